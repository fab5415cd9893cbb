//! Another model answers when the one that was asked for cannot.

use lf_tests::client::{assemble, chat, get, post, stream, stream_with, streamed_chat};
use lf_tests::project::{TestProject, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::{Gate, PATIENCE, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn model(name: &str, base_url: &str, more: &Value) -> Value {
    let mut entry = json!({
        "name": name, "provider": "openai", "model": name, "base_url": base_url, "api_key": "sk-scripted",
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        entry[key] = value.clone();
    }
    entry
}

fn project(models: &[Value], servers: &[Value]) -> TestProject {
    TestProject::of(&json!({
        "version": "v1", "name": "p", "namespace": "default",
        "mcp": {"servers": servers},
        "runtime": {"models": models},
    }))
}

#[test]
fn a_model_that_fails_is_replaced_and_the_answer_names_the_one_that_gave_it() {
    for (status, why) in [(429, "limiting"), (503, "down")] {
        let first = ScriptedModel::start_with(move |_, _| Some(Reply::error(status, why)));
        let second = ScriptedModel::start_with(|_, _| Some(Reply::text("the spare one")));
        let main = model("assistant", &first.base_url(), &json!({"fallback": ["gone", "spare"]}));
        let gone = model("gone", "http://127.0.0.1:9/v1", &json!({}));
        let spare = model("spare", &second.base_url(), &json!({}));
        let project = project(&[main, gone, spare], &[]);
        let daemon = project.serve();
        let whole = post(&daemon.url("/v1/chat/completions"), &chat("hi")).json();
        assert_eq!(whole["choices"][0]["message"]["content"], "the spare one", "{whole}");
        assert_eq!(whole["model"], "spare");
        let chunks = stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi")).rest();
        assert_eq!(assemble(&chunks).text, "the spare one");
        assert!(!chunks.iter().any(|chunk| chunk.contains(r#""model":"assistant""#)), "{chunks:?}");
        let message =
            json!({"model": "assistant", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]});
        let message = post(&daemon.url("/v1/messages"), &message).json();
        assert_eq!(message["model"], "spare", "{message}");
        let said = project.run(&["chat", "hi"]).ok();
        assert_eq!(said.stdout.trim(), "the spare one");
        assert!(said.stderr.contains("spare"), "{}", said.stderr);
    }
}

#[test]
fn a_request_at_fault_is_no_reason_to_ask_another() {
    let first = ScriptedModel::start_with(|_, _| Some(Reply::error(400, "max_tokens is too large")));
    let second = ScriptedModel::start([]);
    let main = model("assistant", &first.base_url(), &json!({"fallback": ["spare"]}));
    let spare = model("spare", &second.base_url(), &json!({}));
    let project = project(&[main, spare], &[]);
    let daemon = project.serve();
    assert_eq!(post(&daemon.url("/v1/chat/completions"), &chat("hi")).status, 400);
    assert!(second.received().is_empty());
}

#[test]
fn when_all_fail_the_last_one_s_trouble_is_told() {
    let first = ScriptedModel::start_with(|_, _| Some(Reply::error(503, "the first is down")));
    let second = ScriptedModel::start_with(|_, _| Some(Reply::error(529, "the second is overloaded")));
    let main = model("assistant", &first.base_url(), &json!({"fallback": ["spare"]}));
    let spare = model("spare", &second.base_url(), &json!({}));
    let project = project(&[main, spare], &[]);
    let daemon = project.serve();
    let refused = post(&daemon.url("/v1/chat/completions"), &chat("hi"));
    assert_eq!(refused.status, 529, "{refused:?}");
    assert!(refused.text.contains("the second is overloaded"), "{refused:?}");
}

#[test]
fn a_model_that_keeps_failing_is_left_alone() {
    let first = ScriptedModel::start_with(|_, _| Some(Reply::error(503, "down")));
    let second = ScriptedModel::start_with(|_, _| Some(Reply::text("ok")));
    let main = model("assistant", &first.base_url(), &json!({"fallback": ["spare"]}));
    let spare = model("spare", &second.base_url(), &json!({}));
    let project = project(&[main, spare], &[]);
    let daemon = project.serve();
    for _ in 0..8 {
        assert_eq!(post(&daemon.url("/v1/chat/completions"), &chat("hi")).status, 200);
    }
    assert_eq!(first.received().len(), 3, "three failures open the circuit");
    assert_eq!(second.received().len(), 8);
}

#[test]
fn a_fallback_uses_no_tool_that_it_may_not_use_itself() {
    let first = ScriptedModel::start_with(|_, _| Some(Reply::error(503, "down")));
    let second = ScriptedModel::start([
        Reply::call("c1", "closed__secret", json!({"text": "x"})),
        Reply::call("c2", "open__say", json!({"text": "y"})),
        Reply::text("done"),
    ]);
    let main = model("assistant", &first.base_url(), &json!({"fallback": ["spare"]}));
    let spare = model("spare", &second.base_url(), &json!({"mcp_servers": ["open"]}));
    let servers =
        [scripted("open", &Script::echoing(&["say"])), scripted("closed", &Script::echoing(&["secret"]))];
    let project = project(&[main, spare], &servers);
    let daemon = project.serve();
    let whole = post(&daemon.url("/v1/chat/completions"), &chat("hi")).json();
    assert_eq!(whole["choices"][0]["message"]["content"], "done", "{whole}");
    let offered = second.request(0).tool_names();
    assert_eq!(offered, ["open__say"]);
    let last = second.request(2);
    assert!(last.result_of("c1").unwrap_or_default().contains("no tool"), "{last:?}");
    assert!(last.result_of("c2").unwrap_or_default().contains('y'), "{last:?}");
}

#[test]
fn a_call_that_the_upstream_could_not_read_is_run() {
    let failed = json!({"error": {
        "message": "Failed to call a function.", "type": "invalid_request_error", "code": "tool_use_failed",
        "failed_generation": "<function=open__say>{\"text\": \"hello\"}</function>",
    }});
    let upstream = ScriptedModel::start([
        Reply::whole(400, "application/json", failed.to_string()),
        Reply::text("said it"),
    ]);
    let servers = [scripted("open", &Script::echoing(&["say"]))];
    let project = project(&[model("assistant", &upstream.base_url(), &json!({}))], &servers);
    let daemon = project.serve();
    let whole = post(&daemon.url("/v1/chat/completions"), &chat("hi")).json();
    assert_eq!(whole["choices"][0]["message"]["content"], "said it", "{whole}");
    let messages = upstream.request(1).messages().to_vec();
    assert!(messages.last().unwrap()["content"].as_str().unwrap().contains("hello"), "{messages:?}");
}

#[test]
fn a_turn_that_a_crash_cut_off_has_the_fallbacks_of_its_model() {
    let never = Gate::new();
    let first = ScriptedModel::start_with(move |number, _| {
        Some(match number {
            // half of it
            0 => {
                let half = Reply::text("never said, and more").pieces(5);
                half.with(|answer| answer.hold = Some((2, never.clone())))
            }
            _ => Reply::error(503, "down"),
        })
    });
    let second = ScriptedModel::start_with(|_, _| Some(Reply::error(503, "down as well")));
    let third = ScriptedModel::start([Reply::text("the spare one")]);
    let parameters = json!({"temperature": 0.9, "top_p": 0.5});
    let more =
        json!({"fallback": ["gone", "spare"], "model_api_parameters": parameters, "mcp_servers": ["a", "b"]});
    let main = model("assistant", &first.base_url(), &more);
    let gone = model("gone", &second.base_url(), &json!({"mcp_servers": ["a"]}));
    let more = json!({"mcp_servers": ["b"], "model_api_parameters": {"top_p": 0.1}});
    let spare = model("spare", &third.base_url(), &more);
    let servers = ["a", "b"].map(|name| scripted(name, &Script::echoing(&["echo"])));
    let project = project(&[main, gone, spare], &servers);
    let daemon = project.serve();
    let session = [("x-session-id", "s")];
    let mut body = streamed_chat("hi");
    body["seed"] = json!(7);
    let url = daemon.url("/v1/chat/completions");
    let mut events = stream_with(&url, &session, &body);
    assert!(events.next_event().is_some());
    daemon.signal(Signal::SIGKILL);
    daemon.wait(PATIENCE);

    let daemon = project.serve();
    third.wait_for_requests(1);
    let asked = third.request(0);
    assert_eq!(asked.tool_names(), ["b__echo"], "what it may use itself");
    let told = ["temperature", "top_p", "seed"].map(|key| asked.body[key].clone());
    assert_eq!(told, [json!(null), json!(0.1), json!(7)], "its own defaults, and what the client said");
    let history = daemon.url("/v1/projects/default/p/chat/sessions/s/history");
    eventually("the answer to be kept", || get(&history).text.contains("the spare one").then_some(()));
    assert!(first.received().len() > 1, "the one that was asked for comes first");
    assert!(!second.received().is_empty());
    third.finish();
}
