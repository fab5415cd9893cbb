//! A model that does not answer as it should.

use lf_tests::client::{assemble, chat, post, stream, streamed_chat};
use lf_tests::project::{TestProject, document};
use lf_tests::scripted_model::{End, Reply, ScriptedModel};
use serde_json::json;

/// The status, and the message of OpenAI's envelope, of a whole and of a streamed chat.
fn refused(reply: impl Fn() -> Reply + Send + 'static, status: u16, words: &[&str]) {
    // Enough for every attempt.
    let model = ScriptedModel::start_with(move |_, _| Some(reply()));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let url = daemon.url("/v1/chat/completions");
    for body in [chat("hi"), streamed_chat("hi")] {
        let refused = post(&url, &body);
        assert_eq!(refused.status, status, "{refused:?}");
        let message = refused.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        for word in words {
            assert!(message.contains(word), "`{word}` is missing in: {message}");
        }
        assert!(!message.contains("sk-scripted"), "a secret is shown: {message}");
    }
    let said = project.run(&["chat", "hi"]).failed(1);
    for word in words {
        assert!(said.contains(word), "`{word}` is missing in: {said}");
    }
}

#[test]
fn a_refused_key_is_said() {
    refused(|| Reply::error(401, "Incorrect API key provided"), 401, &["Incorrect API key"]);
}

#[test]
fn a_refused_request_keeps_the_upstream_s_words() {
    refused(|| Reply::error(400, "max_tokens is too large"), 400, &["max_tokens is too large"]);
}

#[test]
fn html_instead_of_json_is_said() {
    refused(Reply::html, 502, &["Sign in"]);
}

#[test]
fn a_rate_limit_keeps_its_pause() {
    let model =
        ScriptedModel::start_with(|_, _| Some(Reply::error(429, "slow down").header("retry-after", "37")));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    for body in [chat("hi"), streamed_chat("hi")] {
        let refused = post(&daemon.url("/v1/chat/completions"), &body);
        assert_eq!(refused.status, 429, "{refused:?}");
        assert_eq!(refused.header("retry-after"), Some("37"));
        assert!(refused.text.contains("slow down"), "{refused:?}");
    }
}

#[test]
fn a_short_pause_is_kept_and_the_request_made_again() {
    let model = ScriptedModel::start([
        Reply::error(429, "slow down").header("retry-after", "1"),
        Reply::text("here I am"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    assert_eq!(project.run(&["chat", "hi"]).ok().stdout.trim(), "here I am");
    model.finish();
}

#[test]
fn an_unreachable_model_is_said() {
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[]);
    let said = project.run(&["chat", "hi"]).failed(1);
    assert!(said.contains("127.0.0.1:9"), "{said}");
    let daemon = project.serve();
    let refused = post(&daemon.url("/v1/chat/completions"), &chat("hi"));
    assert!(refused.status == 502 || refused.status == 503, "{refused:?}");
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("127.0.0.1:9"), "{refused:?}");
}

#[test]
fn a_stream_that_breaks_off_ends_with_an_error_and_no_done() {
    let model = ScriptedModel::start([Reply::text("half an answer").pieces(4).end(End::CutAfter(3))]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let answer = assemble(&stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi")).rest());
    assert_eq!(answer.text, "half an ");
    assert_eq!(answer.errors.len(), 1, "{answer:?}");
    assert!(!answer.done && answer.finish_reasons.is_empty(), "{answer:?}");
    model.finish();
}

#[test]
fn an_error_inside_the_stream_is_the_end_of_ours() {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "well"}, "finish_reason": null}]});
    let error = json!({"error": {"message": "the engine is overloaded", "type": "server_error"}});
    let model = ScriptedModel::start([Reply::chunks([chunk, error])]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let answer = assemble(&stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi")).rest());
    assert!(answer.errors[0]["message"].as_str().unwrap().contains("overloaded"), "{answer:?}");
    assert!(!answer.done, "{answer:?}");
    model.finish();
}

#[test]
fn a_stream_cut_into_single_bytes_is_the_same_answer() {
    let text = "Grüße aus dem Stall 🦙";
    let model = ScriptedModel::start([Reply::text(text).pieces(2).writes(1)]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    assert_eq!(project.run(&["chat", "hi"]).ok().stdout.trim(), text);
    model.finish();
}

#[test]
fn a_whole_answer_to_a_streamed_request_is_understood() {
    let message = json!({"role": "assistant", "content": "all at once"});
    let body = json!({"id": "x", "object": "chat.completion", "choices": [
        {"index": 0, "message": message, "finish_reason": "stop"},
    ]});
    let model = ScriptedModel::start([Reply::whole(200, "application/json", body.to_string())]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    assert_eq!(project.run(&["chat", "hi"]).ok().stdout.trim(), "all at once");
    model.finish();
}

#[test]
fn a_silent_model_is_given_up_with_the_turn() {
    let model = ScriptedModel::start([Reply::silence()]);
    let limits = json!({"limits": {"turn_timeout": "5s"}});
    let project = TestProject::of(&document(limits, &model.base_url(), &[]));
    let said = project.run(&["chat", "hi"]).failed(1);
    assert!(said.contains("5s"), "{said}");
    model.wait_for_abort();
}
