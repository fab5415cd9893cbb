//! The OpenAI Python SDK as the client.

use std::process::{Command, Stdio};

use lf_tests::peers;
use lf_tests::project::{TestProject, document, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use serde_json::{Value, json};

fn python(script: &str, arguments: &[&str]) -> Value {
    let mut command = Command::new(peers::python("python"));
    command.arg(peers::script(script)).args(arguments).stdin(Stdio::null());
    let output = command.output().expect("the SDK can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

/// What the SDK must have seen of a turn of three rounds.
fn assert_one_life_cycle(seen: &Value, text: &str) {
    assert_eq!(seen["ids"].as_array().unwrap().len(), 1, "{seen}");
    assert_eq!(seen["finish_reasons"], json!(["stop"]), "{seen}");
    assert_eq!(seen["tool_calls"], 0, "{seen}");
    assert_eq!(seen["text"], text, "{seen}");
    let usage = json!({"prompt_tokens": 60, "completion_tokens": 6, "total_tokens": 66});
    assert_eq!(seen["usage"], usage, "{seen}");
}

#[test]
fn three_rounds_are_one_answer_to_the_sdk() {
    let project = TestProject::playing_ours("three_rounds.jsonl");
    let daemon = project.serve();
    for how in ["stream", "whole"] {
        let seen = python("openai_chat.py", &[&daemon.url("/v1"), how, "hi"]);
        assert_one_life_cycle(&seen, "All three came back.");
    }
}

#[test]
fn the_prompt_based_strategy_is_the_same_to_the_sdk() {
    let replies = || {
        vec![
            Reply::tagged("", [Call::new("", "~echo", json!({"n": 1}))]).pieces(1).usage(10, 1),
            Reply::tagged(
                "",
                [Call::new("", "~echo", json!({"n": 2})), Call::new("", "~echo", json!({"n": 3}))],
            )
            .pieces(2)
            .usage(20, 2),
            Reply::text("All three came back, 2 < 3.").pieces(1).usage(30, 3),
        ]
    };
    let model = ScriptedModel::start(replies().into_iter().chain(replies()));
    let server = Script::echoing(&["echo"]);
    let project = TestProject::of(&document(
        json!({"tool_call_strategy": "prompt_based"}),
        &model.base_url(),
        &[scripted("m", &server)],
    ));
    let daemon = project.serve();
    for how in ["stream", "whole"] {
        let seen = python("openai_chat.py", &[&daemon.url("/v1"), how, "hi"]);
        assert_one_life_cycle(&seen, "All three came back, 2 < 3.");
    }
    model.finish();
}

#[test]
fn an_unknown_model_is_a_not_found_error_to_the_sdk() {
    let model = ScriptedModel::start([]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let seen = python("openai_errors.py", &[&daemon.url("/v1"), "nobody"]);
    assert_eq!(seen["class"], "NotFoundError", "{seen}");
    assert!(seen["message"].as_str().unwrap().contains("assistant"), "{seen}");
}

#[test]
fn a_refused_key_is_an_authentication_error_to_the_sdk() {
    let model = ScriptedModel::start([Reply::error(401, "bad key")]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let seen = python("openai_errors.py", &[&daemon.url("/v1"), "assistant"]);
    assert_eq!(seen["class"], "AuthenticationError", "{seen}");
}

/// A round of two server-run calls, a mixed round, a client-run call alone, the answer.
fn rounds_for_both_sides() -> Vec<Reply> {
    vec![
        Reply::calls([Call::new("a", "~echo", json!({"n": 1})), Call::new("b", "~echo", json!({"n": 2}))])
            .usage(10, 1),
        Reply::calls([
            Call::new("c", "~echo", json!({"n": 3})),
            Call::new("d", "note", json!({"text": "x"})),
        ])
        .usage(20, 2),
        Reply::call("e", "note", json!({"text": "y"})).usage(30, 3),
        Reply::text("All is noted.").pieces(4).usage(40, 4),
    ]
}

#[test]
fn tools_of_both_sides_are_one_conversation_to_the_anthropic_sdk() {
    let model = ScriptedModel::start(rounds_for_both_sides().into_iter().chain(rounds_for_both_sides()));
    let server = Script::echoing(&["echo"]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let daemon = project.serve();
    for how in ["stream", "whole"] {
        let seen = python("anthropic_messages.py", &[&daemon.url(""), how, "hi"]);
        let turns = seen.as_array().unwrap();
        assert_eq!(turns.len(), 3, "{seen}");
        // the server's calls of the first two rounds are not the client's business
        assert_eq!(turns[0]["stop_reason"], "tool_use", "{seen}");
        assert_eq!(turns[0]["calls"], json!([{"name": "note", "input": {"text": "x"}}]), "{seen}");
        assert_eq!(turns[0]["usage"], json!({"input_tokens": 30, "output_tokens": 3}), "{seen}");
        assert_eq!(turns[1]["calls"], json!([{"name": "note", "input": {"text": "y"}}]), "{seen}");
        assert_eq!(turns[2]["stop_reason"], "end_turn", "{seen}");
        assert_eq!(turns[2]["text"], "All is noted.", "{seen}");
        // every call of the conversation is answered upstream, the server's and the client's
        let last = model.asked().last().unwrap().clone();
        for (id, result) in [("a", "1"), ("b", "2"), ("c", "3")] {
            assert!(last.result_of(id).unwrap().contains(result), "{id}");
        }
    }
    model.finish();
}
