//! Characters that a terminal obeys or nobody sees, through every channel that people and models read.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use lf_tests::project::{TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel, rounds_so_far};
use nix::pty::openpty;
use serde_json::json;

/// All control characters but those that end a line or a cell, sequences, and what has no shape.
fn hostile() -> String {
    let controls = (0..0x20_u32).chain(0x7f..0xa0).filter_map(char::from_u32);
    let mut text: String =
        controls.filter(|c| !['\n', '\r', '\t'].contains(c)).map(|c| format!("a{c}b ")).collect();
    text += "\u{1b}[2J\u{1b}[31m \u{1b}]8;;http://evil.example\u{7}link\u{1b}]8;;\u{7} \u{1b}]52;c;ZXZpbA==\u{7} \u{9b}2K ";
    text + "\u{202e}txt\u{202c} \u{200b}\u{2066}\u{feff} \u{e0041}\u{e0042}\u{e007f} end"
}

#[track_caller]
fn assert_harmless(text: &str, what: &str) {
    let is_hidden = |c: &char| {
        (c.is_control() && !['\n', '\r', '\t'].contains(c))
            || matches!(*c, '\u{200b}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
    };
    let hidden: Vec<char> = text.chars().filter(is_hidden).collect();
    assert!(hidden.is_empty(), "{hidden:?} in {what}:\n{text:?}");
    for sequence in ["]52;", "]8;;", "[2J"] {
        assert!(!text.contains(sequence), "{sequence} in {what}: {text:?}");
    }
}

/// What a terminal is written to stdout.
fn in_a_terminal(project: &TestProject, arguments: &[&str]) -> String {
    let pty = openpty(None, None).unwrap();
    let mut command = project.command(arguments);
    command.stdout(Stdio::from(pty.slave));
    // ends with the last holder of the other side, with an error
    let reader = std::thread::spawn(move || {
        let mut written = Vec::new();
        let _ = File::from(pty.master).read_to_end(&mut written);
        String::from_utf8_lossy(&written).into_owned()
    });
    project.start_command(command).wait(Duration::from_secs(60));
    reader.join().unwrap()
}

#[test]
fn what_strangers_say_moves_no_cursor_and_hides_nothing() {
    let model = ScriptedModel::start_with(|_, request| {
        Some(match rounds_so_far(request) {
            0 if request["tools"].is_array() => Reply::call("a", "~fail", json!({"x": hostile()})),
            _ => Reply::error(400, &hostile()),
        })
    });
    let mut fails = ScriptedTool::new("fail", Act::Fail(hostile()));
    fails.description = Some(hostile());
    fails.schema = Some(
        json!({"type": "object", "description": hostile(), "properties": {"x": {"enum": [hostile()], "description": hostile()}}}),
    );
    let project = TestProject::with_model(&model.base_url(), &[scripted("s", &Script::with([fails]))]);
    let chatted = project.run(&["--log", "debug", "chat", "hi"]);
    assert_harmless(&chatted.stderr, "the log and the terminal");
    assert_harmless(&chatted.stdout, "the answer");
    assert!(chatted.stderr.contains("end"), "the control: it was told: {chatted:?}");
    let tools = model.received()[0].body["tools"].clone();
    let told = tools[0]["function"]["description"].as_str().unwrap_or_default();
    assert!(told.contains("end"), "{tools}");
    for text in [told, tools[0]["function"]["parameters"]["description"].as_str().unwrap_or_default()] {
        assert_harmless(text, "what the model is told of a tool");
    }
    let deep = &tools[0]["function"]["parameters"]["properties"]["x"];
    assert_harmless(
        &format!(
            "{}{}",
            deep["enum"][0].as_str().unwrap_or_default(),
            deep["description"].as_str().unwrap_or_default()
        ),
        "a schema",
    );
    for arguments in [&["mcp", "tools"][..], &["mcp", "list"], &["mcp", "probe", "s"]] {
        let finished = project.run(arguments);
        assert_harmless(&finished.stderr, &format!("stderr of {arguments:?}"));
        assert_harmless(&finished.stdout, &format!("stdout of {arguments:?}"));
    }
    let called = in_a_terminal(&project, &["mcp", "call", "s", "fail", "{}"]);
    assert!(called.contains("end"), "the control: {called:?}");
    assert_harmless(&called, "what a called tool says in a terminal");
}
