use std::os::unix::fs::symlink;

use rmcp::model::ContentBlock;
use rmcp::service::{RoleClient, RunningService, serve_client};
use serde_json::Map;
use tempfile::TempDir;

use super::*;

/// A directory to share inside of one that must stay hidden, and a client of the server that shares it.
struct Desk {
    directory: TempDir,
    client: RunningService<RoleClient, ()>,
}

impl Desk {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("shared");
        std::fs::create_dir_all(root.join("docs/deep")).unwrap();
        std::fs::write(directory.path().join("secret.txt"), "hidden").unwrap();
        std::fs::write(root.join("README.md"), "one\nTwo words\nthree\n").unwrap();
        std::fs::write(root.join("docs/deep/note.txt"), "some WORDS here\n").unwrap();
        std::fs::write(root.join("image.bin"), [1, 0, 2]).unwrap();
        symlink("../secret.txt", root.join("leak")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("README.md", root.join("alias")).unwrap();
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(theirs);
        #[expect(clippy::disallowed_methods, reason = "the server ends with the test's end of the pipe")]
        tokio::spawn(async move { serve_files_on(&root, reader, writer).await });
        Self { directory, client: serve_client((), ours).await.unwrap() }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("shared")
    }

    async fn call(&self, name: &'static str, arguments: Value) -> Result<String, String> {
        let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
        let params = CallToolRequestParams::new(name).with_arguments(arguments);
        let result = self.client.call_tool(params).await.unwrap();
        let [ContentBlock::Text(text)] = result.content.as_slice() else { panic!("{result:?}") };
        if result.is_error == Some(true) { Err(text.text.clone()) } else { Ok(text.text.clone()) }
    }
}

#[tokio::test]
async fn three_read_only_tools_are_offered_and_explained() {
    let desk = Desk::new().await;
    let tools = desk.client.list_tools(None).await.unwrap().tools;
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["list", "read", "search"]);
    for tool in &tools {
        assert!(tool.description.as_ref().is_some_and(|description| description.len() > 40));
        assert_eq!(tool.annotations.as_ref().unwrap().read_only_hint, Some(true));
    }
}

#[tokio::test]
async fn a_directory_is_listed_with_sizes() {
    let desk = Desk::new().await;
    let listed = desk.call("list", json!({})).await.unwrap();
    let expected =
        "README.md  (20 bytes)\nalias  (link)\ndocs/\nimage.bin  (3 bytes)\nleak  (link)\nup  (link)";
    assert_eq!(listed, expected);
    assert_eq!(desk.call("list", json!({"path": "docs/deep"})).await.unwrap(), "note.txt  (16 bytes)");
    assert_eq!(desk.call("list", json!({"path": "no"})).await, Err("`no` does not exist".to_owned()));
}

#[tokio::test]
async fn a_file_is_read_whole_or_in_parts() {
    let desk = Desk::new().await;
    assert_eq!(desk.call("read", json!({"path": "README.md"})).await.unwrap(), "one\nTwo words\nthree\n");
    assert_eq!(desk.call("read", json!({"path": "alias", "offset": 3})).await.unwrap(), "three\n");
    let part = desk.call("read", json!({"path": "README.md", "offset": 2, "lines": 1})).await.unwrap();
    assert_eq!(part, "Two words\n\n[cut after line 2: as many lines as asked for; go on with `offset` 3]");
    let absolute = desk.root().join("README.md");
    assert!(desk.call("read", json!({"path": absolute})).await.is_ok());
    let beyond = desk.call("read", json!({"path": "README.md", "offset": 9})).await;
    assert_eq!(beyond, Err("`README.md` has only 3 lines; line 9 was asked for".to_owned()));
}

#[tokio::test]
async fn no_path_and_no_link_leads_out() {
    let desk = Desk::new().await;
    let outside = desk.directory.path().join("secret.txt");
    let paths = ["../secret.txt", "leak", "up/secret.txt", "docs/../../secret.txt", "/etc/passwd"];
    for path in paths.iter().map(|path| json!(path)).chain([json!(outside)]) {
        let error = desk.call("read", json!({"path": path})).await.unwrap_err();
        assert!(error.contains("outside of the shared directory"), "{path}: {error}");
    }
    let listed = desk.call("list", json!({"path": "up"})).await.unwrap_err();
    assert!(listed.contains("outside of the shared directory"), "{listed}");
    assert_eq!(desk.call("search", json!({"pattern": "hidden"})).await.unwrap(), "no line contains `hidden`");
}

#[tokio::test]
async fn only_text_of_regular_files_is_read_and_large_files_are_cut() {
    let desk = Desk::new().await;
    let binary = desk.call("read", json!({"path": "image.bin"})).await.unwrap_err();
    assert_eq!(binary, "`image.bin` is a binary file; only text can be read");
    let directory = desk.call("read", json!({"path": "docs"})).await.unwrap_err();
    assert_eq!(directory, "`docs` is a directory; use `list`");
    let line = format!("{}\n", "y".repeat(99));
    std::fs::write(desk.root().join("large"), line.repeat(20_000)).unwrap();
    let text = desk.call("read", json!({"path": "large"})).await.unwrap();
    assert!(text.ends_with("[cut after line 10485: a read is limited to 1 MiB; go on with `offset` 10486]"));
    let rest = desk.call("read", json!({"path": "large", "offset": 10_486})).await.unwrap();
    assert_eq!(rest.lines().count(), 20_000 - 10_485);
}

#[tokio::test]
async fn a_search_finds_lines_below_whatever_their_case() {
    let desk = Desk::new().await;
    let found = desk.call("search", json!({"pattern": "words"})).await.unwrap();
    assert_eq!(found, "README.md:2: Two words\ndocs/deep/note.txt:1: some WORDS here");
    let below = desk.call("search", json!({"pattern": "words", "path": "docs"})).await.unwrap();
    assert_eq!(below, "docs/deep/note.txt:1: some WORDS here");
    std::fs::write(desk.root().join("many"), "needle\n".repeat(500)).unwrap();
    let many = desk.call("search", json!({"pattern": "needle"})).await.unwrap();
    assert!(many.ends_with("[too many matches to show all of them; search a subdirectory or a longer text]"));
    assert_eq!(many.lines().count(), 201);
}

#[tokio::test]
async fn wrong_arguments_are_told_and_an_unknown_tool_is_refused() {
    let desk = Desk::new().await;
    let error = desk.call("read", json!({})).await.unwrap_err();
    assert!(error.starts_with("wrong arguments: missing field `path`"), "{error}");
    let refused = desk.client.call_tool(CallToolRequestParams::new("write")).await.unwrap_err();
    assert!(refused.to_string().contains("unknown tool `write`"));
}

#[tokio::test]
async fn a_missing_directory_is_refused_before_anything_is_served() {
    let error =
        serve_files_on(Path::new("/no/such"), tokio::io::empty(), tokio::io::sink()).await.unwrap_err();
    assert_eq!(error.to_string(), "`/no/such` cannot be opened as a directory");
    let here = tempfile::tempdir().unwrap();
    serve_files_on(here.path(), tokio::io::empty(), tokio::io::sink()).await.unwrap();
}

#[test]
fn a_search_is_bounded_in_time_and_in_what_it_looks_at() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    std::fs::create_dir(root.join("many")).unwrap();
    for number in 0..=10_000 {
        std::fs::write(root.join(format!("many/{number}")), "").unwrap();
    }
    std::fs::write(root.join("note.txt"), "hay\n").unwrap();
    let shelf = Shelf::open(root).unwrap();
    let found = shelf.search("hay", ".").unwrap();
    assert!(found.starts_with("note.txt:1: hay\n[") && found.contains("too many"), "{found}");
    let late = shelf.search_until("hay", ".", std::time::Instant::now()).unwrap();
    assert!(late.contains("took too long"), "{late}");
    let deep = tempfile::tempdir().unwrap();
    for number in 0..=10_000 {
        std::fs::create_dir(deep.path().join(number.to_string())).unwrap();
    }
    let found = Shelf::open(deep.path()).unwrap().search("hay", ".").unwrap();
    assert!(found.contains("too many"), "{found}");
}
