use indexmap::IndexMap;

use super::*;

fn lock_of(tools: impl IntoIterator<Item = Value>) -> Lock {
    let origin = json!({
        "transport": "stdio",
        "command": "npx",
        "args": ["-y", "@x/files@1", "a \"quoted\" \\ word", 8080],
        "env": {"A.B": "c", "TOKEN": "${env:TOKEN}"},
    });
    let said = json!({
        "serverInfo": {"name": "files", "version": "1.0"},
        "instructions": "Two lines:\n  \"\"\"quoted\"\"\", a \\ and a tab\t, then \u{200b}hidden\u{e0041}.\r\nEnd\"",
    });
    let Value::Object(origin) = origin else { return Lock::default() };
    let pinned = Pinned::new(origin, Peer::of(&said), tools);
    Lock { servers: IndexMap::from([("files".to_owned(), pinned)]) }
}

fn tools() -> Vec<Value> {
    vec![
        json!({
            "name": "write",
            "description": "Writes.\n\nIt's '''raw''' and \u{202e}turned\u{2028}.",
            "inputSchema": {"type": "object", "properties": {"b": {"pattern": "^\\d+'''$"}, "a": {"maximum": 1.5}}},
            "annotations": {"title": "\u{200d}\u{1b}[2J"},
        }),
        json!({"name": "read \u{feff}", "description": 5, "inputSchema": null}),
    ]
}

#[test]
fn a_lock_is_read_as_it_was_written_and_hides_nothing() {
    let lock = lock_of(tools());
    let text = write_lock(&lock);
    let plain = |c: char| c == '\n' || !lf_core::visible::is_hidden(c);
    assert!(text.chars().all(plain), "{text}");
    let read = parse_lock(&text).unwrap();
    assert_eq!(read, lock_of(tools().into_iter().rev()));
    assert_eq!(write_lock(&read), text);
}

#[test]
fn the_order_in_which_tools_are_listed_makes_no_other_file() {
    assert_eq!(write_lock(&lock_of(tools())), write_lock(&lock_of(tools().into_iter().rev())));
}

#[test]
fn any_text_survives_being_written() {
    let hard = [
        "",
        "\n",
        "\"",
        "\"\"\"",
        "\"\"\"\"\n",
        "a\n\"",
        "\\",
        "\\\n",
        "'''\n'''",
        "\u{0}\u{7f}\u{9f}\n",
        " \n ",
        "\r\n",
    ];
    for one in hard {
        for other in hard {
            let text = format!("{one}{other}");
            let tool = json!({"name": text, "description": text, "inputSchema": {text.clone(): [text]}});
            let lock = lock_of([tool]);
            assert_eq!(parse_lock(&write_lock(&lock)), Ok(lock), "{text:?}");
        }
    }
}

/// What is wrong, and the line that says so.
fn mistake(text: &str) -> (String, String) {
    let mistake = parse_lock(text).unwrap_err();
    let line = text[mistake.at..].lines().next().unwrap_or_default();
    (mistake.reason, line.to_owned())
}

#[test]
fn a_damaged_lock_is_told_with_its_place() {
    let text = write_lock(&lock_of(tools()));
    let (reason, line) = mistake(&text.replace("Writes.", "Reads."));
    assert!(
        reason.contains("tool `write` of MCP server `files` is not what `sha256` was made of"),
        "{reason}"
    );
    assert!(line.starts_with('"') && line.len() == 66, "{line}");
    let (reason, _) = mistake(&text.replace("command = \"npx\"", "command = \"bash\""));
    assert!(reason.contains("MCP server `files` is not what"), "{reason}");
    let (reason, line) = mistake(&text.replace("command = ", "command "));
    assert!(reason.starts_with("damaged: ") && line.contains("npx"), "{reason}: {line}");
    let (reason, line) = mistake(&text.replace("definition = '''\n{", "definition = '''\n"));
    assert!(reason.contains("is not a JSON object") && line.starts_with("'''"), "{reason}: {line}");
    let (reason, line) = mistake(&text.replace("name = \"write\"", "nome = \"write\""));
    assert!(reason.contains("nome") && line.starts_with("nome"), "{reason}: {line}");
    let twice = text.find("[[server]]").unwrap();
    let (reason, line) = mistake(&format!("{text}{}", &text[twice..]));
    assert!(reason.contains("`files` is there twice") && line.starts_with("[[server]]"), "{reason}: {line}");
    let tool = text.rfind("\n[[server.tool]]").unwrap();
    let (reason, _) = mistake(&format!("{text}{}", &text[tool..]));
    assert!(reason.contains("\"write\" of MCP server `files` is there twice"), "{reason}");
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        // cut anywhere it is damaged, or says less
        if let Ok(lock) = parse_lock(&text[..end]) {
            assert!(lock != lock_of(tools()) || text[end..].trim() == "", "cut at {end}");
        }
    }
}

#[test]
fn a_lock_of_a_newer_version_is_not_guessed_at() {
    let text = write_lock(&lock_of(tools())).replace("version = 1\n", "version = 2\nmode = \"strict\"\n");
    let (reason, line) = mistake(&text);
    assert!(reason.contains("newer lf") && line == "2", "{reason}: {line}");
    assert!(mistake("").0.contains("`version` is missing"));
    assert!(mistake("version = 0").0.contains("no such version"));
}

#[test]
fn the_lock_beside_a_file_counts_and_where_servers_come_from_is_as_the_file_has_it() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("staging.yaml");
    let text = "
version: v1
name: p
namespace: default
mcp:
  servers:
    - {name: files, transport: stdio, command: npx, args: [--token, geheim123456, '${env:NOWHERE}'], env: {API_KEY: abcdefgh1234}}
    - {name: web, transport: http, base_url: '${env:BASE}', headers: {Authorization: Bearer xyz}}
runtime: {models: [{name: a, provider: demo, model: demo}]}
";
    std::fs::write(&file, text).unwrap();
    let load = || crate::load(&file, |_| None);
    let pins = load().unwrap().project.pins;
    assert_eq!((&pins.lock, pins.file.as_str()), (&None, "staging.lock"));
    let told = format!("{:?}", pins.origins);
    assert!(told.contains("${env:NOWHERE}") && told.contains("${env:BASE}"), "{told}");
    for secret in ["geheim", "abcdefgh", "xyz"] {
        assert!(!told.contains(secret), "{told}");
    }
    std::fs::write(home.path().join("staging.lock"), write_lock(&lock_of(tools()))).unwrap();
    assert_eq!(load().unwrap().project.pins.lock, Some(lock_of(tools().into_iter().rev())));
    std::fs::write(home.path().join("staging.lock"), "version = 1\n\n[[servre]]\n").unwrap();
    let error = load().unwrap_err().to_string();
    assert!(error.contains("staging.lock:3:3: damaged: "), "{error}");
}
