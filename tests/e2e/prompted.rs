//! A model without tools of its own.

use lf_tests::client::{assemble, chat, post, stream, streamed_chat};
use lf_tests::project::{TestProject, document, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Call, Reply, ScriptedModel, offered_tools};
use serde_json::json;

fn project(model: &ScriptedModel, strategy: &str) -> TestProject {
    let server = scripted("m", &Script::echoing(&["echo"]));
    TestProject::of(&document(json!({"tool_call_strategy": strategy}), &model.base_url(), &[server]))
}

#[test]
fn tags_are_read_wherever_the_stream_is_cut() {
    let sizes = 1..=40;
    let model = ScriptedModel::start(sizes.clone().flat_map(|size| {
        let call = Call::new("", "~echo", json!({"text": "a </tool_call> in ü"}));
        [Reply::tagged("One moment. ", [call]).pieces(size).writes(size), Reply::text("done")]
    }));
    let project = project(&model, "prompt_based");
    let daemon = project.serve();
    for size in sizes {
        let answer = assemble(&stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi")).rest());
        let text: String = answer.text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text, "One moment. done", "cut at {size}");
        assert_eq!(answer.finish_reasons, ["stop"], "cut at {size}");
        assert!(answer.calls.is_empty(), "cut at {size}: {answer:?}");
    }
    for request in model.asked().iter().skip(1).step_by(2) {
        let told = request.messages().last().unwrap()["content"].to_string();
        assert!(told.contains("a </tool_call> in ü") || told.contains("in ü"), "{told}");
    }
    model.finish();
}

#[test]
fn tools_are_told_in_the_system_prompt_and_not_through_the_api() {
    let model = ScriptedModel::start([Reply::text("hello")]);
    let project = project(&model, "prompt_based");
    project.run(&["chat", "hi"]).ok();
    let request = model.request(0);
    assert!(request.body["tools"].is_null() && request.body["tool_choice"].is_null(), "{request:?}");
    assert_eq!(offered_tools(&request.body), ["m__echo"]);
    assert_eq!(request.messages()[0]["role"], "system");
    model.finish();
}

#[test]
fn auto_turns_to_the_prompt_when_the_upstream_has_no_tools() {
    let model = ScriptedModel::start([
        Reply::error(400, "scripted does not support tools"),
        Reply::tagged("", [Call::new("", "~echo", json!({"n": 1}))]),
        Reply::text("done"),
    ]);
    let project = project(&model, "auto");
    let daemon = project.serve();
    let answer = post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "done");
    assert_eq!(model.request(0).tool_names(), ["m__echo"]);
    assert_eq!(offered_tools(&model.request(1).body), ["m__echo"]);
    model.finish();
}
