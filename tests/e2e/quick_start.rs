//! The document's quick start: a filesystem server, a model, `lf chat`.

use lf_tests::client::{assemble, stream, streamed_chat};
use lf_tests::peers;
use lf_tests::project::{TestProject, document, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use lf_tests::wait::PATIENCE;
use serde_json::{Value, json};

/// `npx` in the document finds the pinned server here.
fn filesystem_server(directory: &str) -> Value {
    json!({
        "name": "filesystem",
        "transport": "stdio",
        "command": "npx",
        "args": ["--no-install", "mcp-server-filesystem", directory],
        "cwd": peers::script(""),
    })
}

#[test]
fn the_quick_start_answers_after_three_rounds_with_two_calls_in_one() {
    peers::node("mcp-server-filesystem");
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("plan.txt"), "buy hay").unwrap();
    std::fs::write(directory.path().join("names.txt"), "Dolly").unwrap();
    let root = directory.path().canonicalize().unwrap().display().to_string();
    let model = ScriptedModel::start([
        Reply::call("a", "filesystem__list_directory", json!({"path": root})).pieces(5),
        Reply::calls([
            Call::new("b", "filesystem__read_text_file", json!({"path": format!("{root}/plan.txt")})),
            Call::new("c", "filesystem__read_text_file", json!({"path": format!("{root}/names.txt")})),
        ])
        .pieces(3),
        Reply::text("There is a plan to buy hay, and a llama called Dolly.").pieces(4),
    ]);
    let project = TestProject::of(&document(
        json!({"mcp_servers": ["filesystem"]}),
        &model.base_url(),
        &[filesystem_server(&root)],
    ));
    let finished = project.run(&["chat", "What files are in my documents folder?"]).ok();
    assert_eq!(finished.stdout.trim(), "There is a plan to buy hay, and a llama called Dolly.");
    let last = model.request(2);
    assert!(last.result_of("a").unwrap().contains("plan.txt"), "{last:?}");
    assert!(last.result_of("b").unwrap().contains("buy hay"), "{last:?}");
    assert!(last.result_of("c").unwrap().contains("Dolly"), "{last:?}");
    model.finish();
    project.assert_nothing_left();
}

#[test]
fn two_calls_of_one_round_run_side_by_side() {
    // Each call ends only when the other runs as well.
    let server = Script::with([ScriptedTool::new("meet", Act::Together(2))]);
    let model = ScriptedModel::start([
        Reply::calls([Call::new("a", "~meet", json!({})), Call::new("b", "~meet", json!({}))]),
        Reply::text("met"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    let answer = assemble(&stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi")).rest());
    assert_eq!(answer.text, "met");
    let last = model.request(1);
    assert_eq!(last.result_of("a").as_deref(), Some("2 at once"));
    assert_eq!(last.result_of("b").as_deref(), Some("2 at once"));
    model.finish();
}

#[test]
fn the_answer_is_shown_while_the_model_still_speaks() {
    let gate = lf_tests::wait::Gate::new();
    let model = ScriptedModel::start([Reply::text("first second")
        .pieces(6)
        .with(|answer| answer.hold = Some((2, gate.clone())))]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let chat = project.start(&["chat", "hi"]);
    chat.wait_for_output("first");
    gate.open();
    let finished = chat.wait(PATIENCE).ok();
    assert_eq!(finished.stdout.trim(), "first second");
    model.finish();
}

#[test]
fn json_and_events_are_for_programs() {
    let server = Script::echoing(&["echo"]);
    let script = || [Reply::call("a", "~echo", json!({"x": 1})), Reply::text("done").usage(3, 2)];
    let model = ScriptedModel::start(script().into_iter().chain(script()));
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let document = project.run(&["chat", "--json", "hi"]).ok().json();
    assert!(document.to_string().contains("done"), "{document}");
    let lines = project.run(&["chat", "--events", "hi"]).ok().stdout;
    for line in lines.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error} in {line}"));
    }
    assert!(lines.lines().count() >= 4, "{lines}");
    model.finish();
}

#[test]
fn the_message_may_come_from_a_file_or_from_stdin() {
    let model = ScriptedModel::start([Reply::text("one"), Reply::text("two")]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    project.write("question.txt", "from a file");
    assert_eq!(project.run(&["chat", "-f", "question.txt"]).ok().stdout.trim(), "one");
    let chat = project.start_with_input(&["chat", "-"], "from stdin");
    assert_eq!(chat.wait(PATIENCE).ok().stdout.trim(), "two");
    assert_eq!(model.request(0).messages()[0]["content"], "from a file");
    assert_eq!(model.request(1).messages()[0]["content"], "from stdin");
    model.finish();
}

#[test]
fn the_built_in_file_server_reads_its_directory_and_no_other() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret.txt"), "the secret").unwrap();
    let model = ScriptedModel::start([
        Reply::calls([
            Call::new("in", "files__read", json!({"path": "note.txt"})),
            Call::new("up", "files__read", json!({"path": "../../../../etc/passwd"})),
            Call::new("absolute", "files__read", json!({"path": outside.path().join("secret.txt")})),
            Call::new("link", "files__read", json!({"path": "link/secret.txt"})),
            Call::new("list", "files__list", json!({})),
        ]),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(
        &model.base_url(),
        &[lf_tests::project::stdio("files", lf_tests::program::lf(), &["files", "docs"])],
    );
    project.write("docs/note.txt", "buy hay");
    std::os::unix::fs::symlink(outside.path(), project.path().join("docs/link")).unwrap();
    project.run(&["chat", "hi"]).ok();
    let last = model.request(1);
    let result = |id: &str| last.result_of(id).unwrap();
    assert!(result("in").contains("buy hay"), "{last:?}");
    assert!(result("list").contains("note.txt"), "{last:?}");
    for id in ["up", "absolute", "link"] {
        assert!(!result(id).contains("root:") && !result(id).contains("the secret"), "{id}: {last:?}");
        assert!(result(id).contains("Error"), "{id}: {last:?}");
    }
    model.finish();
    project.assert_nothing_left();
}

#[test]
fn completions_that_cannot_be_written_are_an_error_and_no_panic() {
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[]);
    let to_full = ["sh", "-c", "exec \"$0\" \"$@\" > /dev/full"];
    for shell in ["bash", "fish", "zsh", "elvish", "powershell"] {
        assert!(project.run(&["completions", shell]).ok().stdout.contains("lf"), "{shell}");
        let command = project.under(&to_full, &["completions", shell]);
        let refused = project.start_command(command).wait(PATIENCE);
        assert_eq!(refused.status, Some(1), "{shell}: {}", refused.stderr);
        assert!(refused.stderr.contains("cannot write to stdout"), "{shell}: {}", refused.stderr);
    }
}
