//! Calls that a person has to approve: over HTTP, in words for clients that know nothing of it, as items of the Responses
//! API, across a crash, and outside turns.

mod responses;

use std::time::{Duration, Instant};

use lf_tests::approvals::{decide, pending, the_one};
use lf_tests::client::{get, post, request, stream};
use lf_tests::project::{Daemon, TestProject, document, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use lf_tests::wait::{PATIENCE, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// A server whose tools write down each call, and ask as the file says.
struct Bench {
    project: TestProject,
    model: ScriptedModel,
    log: tempfile::TempDir,
}

impl Bench {
    fn new(approval: &Value, wait: &str, replies: Vec<Reply>) -> Self {
        let log = tempfile::tempdir().expect("a directory");
        let log_file = Some(log.path().join("calls"));
        let script = Script { log: log_file, ..Script::echoing(&["look", "wipe"]) };
        let mut server = scripted("disk", &script);
        server["approval"] = approval.clone();
        let model = ScriptedModel::start(replies);
        let limits = json!({"limits": {"approval_timeout": wait}});
        let project = document(limits, &model.base_url(), &[server]);
        Self { project: TestProject::of(&project), model, log }
    }

    fn calls(&self, tool: &str) -> usize {
        let log = std::fs::read_to_string(self.log.path().join("calls")).unwrap_or_default();
        log.lines().filter(|line| line.starts_with(&format!("call {tool} "))).count()
    }

    /// What the model was shown as the result of its last call.
    fn result(&self, request: usize) -> String {
        let request = self.model.request(request);
        let last = request.messages().iter().rfind(|said| said["role"] == "tool").expect("a result");
        last["content"].as_str().expect("a text").to_owned()
    }
}

fn wipe(id: &str) -> Call {
    Call::new(id, "disk__wipe", json!({"path": "/tmp/x"}))
}

fn conversation(daemon: &Daemon) -> String {
    let created = post(&daemon.url("/conversations"), &json!({}));
    let id = created.json()["conversation"]["id"].as_str().expect("an id").to_owned();
    for tool in ["look", "wipe"] {
        let tool = json!({"server_id": "disk", "tool_name": tool});
        post(&daemon.url(&format!("/conversations/{id}/tools")), &tool).ok();
    }
    id
}

#[test]
fn a_turn_waits_for_a_yes_and_its_watchers_are_told() {
    let replies =
        vec![Reply::calls([Call::new("c1", "disk__look", json!({})), wipe("c2")]), Reply::text("Wiped.")];
    let bench = Bench::new(&json!({"wipe": "ask"}), "60s", replies);
    let daemon = bench.project.serve();
    let id = conversation(&daemon);
    let chat = daemon.url(&format!("/conversations/{id}/chat"));
    let mut events = stream(&chat, &json!({"content": "Clean up.", "stream": true}));
    let needed = events.until("the question", |event| event["event"] == "approval_needed");
    let waiting = the_one(&daemon);
    assert_eq!(needed["approval"], waiting["id"]);
    assert_eq!((&waiting["server"], &waiting["tool"]), (&json!("disk"), &json!("wipe")));
    assert_eq!(waiting["arguments"], json!({"path": "/tmp/x"}));
    assert_eq!(waiting["conversation_id"], json!(id));
    assert_eq!((bench.calls("look"), bench.calls("wipe")), (0, 0), "nothing of the round runs before");

    for (body, status) in [
        (json!({"decision": "perhaps"}), 400),
        (json!({"decision": "approve", "forever": true}), 400),
        (json!([]), 400),
        (json!({"decision": "approve", "by": "x".repeat(2000)}), 400),
    ] {
        assert_eq!(decide(&daemon, &waiting, &body).status, status, "{body}");
    }
    let nobody = post(&daemon.url("/v1/approvals/apr_none"), &json!({"decision": "approve"}));
    assert_eq!(nobody.status, 404);

    let decided = decide(&daemon, &waiting, &json!({"decision": "approve", "by": "Ada"})).ok();
    assert_eq!(decided["status"], "approved");
    assert_eq!(decide(&daemon, &waiting, &json!({"decision": "deny"})).status, 404, "a decision stands");
    let told = events.until("the decision", |event| event["event"] == "approval_decided");
    assert_eq!((&told["decision"], &told["by"]), (&json!("approved"), &json!("the owner for Ada")));
    events.until("the end", |event| event["event"] == "finished");
    assert_eq!((bench.calls("look"), bench.calls("wipe")), (1, 1));
    assert!(pending(&daemon).is_empty());
    bench.model.finish();
}

#[test]
fn a_no_and_silence_are_told_to_the_model_and_nothing_runs() {
    let replies = vec![
        Reply::calls([wipe("c1")]),
        Reply::text("Then not."),
        Reply::calls([wipe("c2")]),
        Reply::text("Nobody is there."),
    ];
    let bench = Bench::new(&json!("ask"), "8s", replies);
    let daemon = bench.project.serve();
    let id = conversation(&daemon);
    let chat = daemon.url(&format!("/conversations/{id}/chat"));
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(|| post(&chat, &json!({"content": "Clean up."})).ok());
        let waiting = the_one(&daemon);
        decide(&daemon, &waiting, &json!({"decision": "deny", "by": "Ada", "reason": "not on a Friday"}))
            .ok();
        answer.join().expect("an answer")
    });
    assert_eq!(answer["assistant_message"]["content"], "Then not.");
    assert!(
        bench.result(1).contains("denied by the owner for Ada and was not run: not on a Friday"),
        "{}",
        bench.result(1)
    );

    let began = Instant::now();
    post(&chat, &json!({"content": "Now."})).ok();
    assert!(began.elapsed() >= Duration::from_secs(8));
    assert!(bench.result(3).contains("nobody approved this call in time"), "{}", bench.result(3));
    assert_eq!(bench.calls("wipe"), 0);
    bench.model.finish();
}

#[test]
fn always_counts_for_the_conversation_and_for_no_other() {
    let bench = Bench::new(
        &json!("ask"),
        "60s",
        (1..=6)
            .map(|at| match at % 2 {
                1 => Reply::calls([Call::new(&format!("c{at}"), "disk__wipe", json!({"n": at}))]),
                _ => Reply::text("Done."),
            })
            .collect(),
    );
    let daemon = bench.project.serve();
    let id = conversation(&daemon);
    let chat =
        |id: &str| post(&daemon.url(&format!("/conversations/{id}/chat")), &json!({"content": "Go."})).ok();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| chat(&id));
        let waiting = the_one(&daemon);
        decide(&daemon, &waiting, &json!({"decision": "always"})).ok();
        first.join().expect("an answer");
    });
    chat(&id);
    assert_eq!(bench.calls("wipe"), 2, "the second one was not asked about");
    let other = conversation(&daemon);
    std::thread::scope(|scope| {
        let third = scope.spawn(|| chat(&other));
        let waiting = the_one(&daemon);
        assert_eq!(waiting["conversation_id"], json!(other));
        decide(&daemon, &waiting, &json!({"decision": "deny"})).ok();
        third.join().expect("an answer");
    });
    assert_eq!(bench.calls("wipe"), 2);
    bench.model.finish();
}

/// A plain client: what it is told, and the next message with the decision taken between.
fn told_and_then_goes_on(send: impl Fn(&Daemon, &[Value]) -> String) {
    let replies = vec![Reply::calls([wipe("c1")]), Reply::text("Wiped.")];
    let bench = Bench::new(&json!("ask"), "1s", replies);
    let daemon = bench.project.serve();
    let mut said = vec![json!({"role": "user", "content": "Clean up."})];
    let told = send(&daemon, &said);
    let waiting = the_one(&daemon);
    let id = waiting["id"].as_str().expect("an id");
    assert!(told.contains(id) && told.contains("lf approvals approve"), "{told}");
    assert_eq!(bench.calls("wipe"), 0);

    let listed = bench.project.run(&["approvals", "--server", &daemon.url("")]).ok();
    assert!(listed.stdout.contains(id) && listed.stdout.contains("`wipe` of MCP server `disk`"));
    let refused = bench.project.run(&["approvals", "approve", "apr_0", "--server", &daemon.url("")]);
    assert!(refused.failed(1).contains("no call waits for approval `apr_0`"));
    let approved = bench.project.run(&["approvals", "approve", id, "--server", &daemon.url("")]).ok();
    assert!(approved.stdout.contains("approved"));

    said.push(json!({"role": "assistant", "content": told}));
    said.push(json!({"role": "user", "content": "I have approved it."}));
    assert_eq!(send(&daemon, &said), "Wiped.");
    assert_eq!(bench.calls("wipe"), 1);
    let asked = bench.model.request(1);
    let roles: Vec<&str> = asked
        .messages()
        .iter()
        .filter_map(|said| said["role"].as_str())
        .map(|role| match role {
            "user" => "user",
            "assistant" => "assistant",
            _ => "tool",
        })
        .collect();
    let tail = &roles[roles.len() - 3..];
    assert_eq!(tail, ["user", "assistant", "tool"], "the call and its result follow what was said last");
    bench.model.finish();
}

#[test]
fn a_plain_chat_client_is_told_and_its_next_message_goes_on() {
    told_and_then_goes_on(|daemon, said| {
        let answer = post(&daemon.url("/v1/chat/completions"), &json!({"messages": said})).ok();
        answer["choices"][0]["message"]["content"].as_str().expect("a text").to_owned()
    });
}

#[test]
fn a_plain_anthropic_client_is_told_and_its_next_message_goes_on() {
    told_and_then_goes_on(|daemon, said| {
        let body = json!({"model": "assistant", "max_tokens": 100, "messages": said});
        let answer = post(&daemon.url("/v1/messages"), &body).ok();
        let blocks = answer["content"].as_array().expect("blocks").iter();
        blocks.filter_map(|block| block["text"].as_str()).collect()
    });
}

#[test]
fn a_session_is_told_and_its_next_message_goes_on() {
    told_and_then_goes_on(|daemon, said| {
        let body = json!({"messages": [said.last().expect("a message")]}).to_string();
        let headers = [("x-session-id", "mine"), ("content-type", "application/json")];
        let answer = request("POST", &daemon.url("/v1/chat/completions"), &headers, Some(body)).ok();
        answer["choices"][0]["message"]["content"].as_str().expect("a text").to_owned()
    });
}

#[test]
fn a_responses_client_gets_an_item_and_answers_with_one() {
    let replies = vec![Reply::calls([wipe("c1")]), Reply::text("Wiped.")];
    let bench = Bench::new(&json!({"destructiveHint": "ask"}), "60s", replies);
    let daemon = bench.project.serve();
    let url = daemon.url("/v1/responses");
    let first = post(&url, &json!({"input": "Clean up."})).ok();
    assert_eq!(first["status"], "completed");
    let output = first["output"].as_array().expect("items");
    let [item] = output.as_slice() else { panic!("{first}") };
    assert_eq!((&item["type"], &item["server_label"]), (&json!("mcp_approval_request"), &json!("disk")));
    assert_eq!((&item["name"], &item["arguments"]), (&json!("wipe"), &json!(r#"{"path":"/tmp/x"}"#)));

    let reply = |id: &Value, approve: &Value| {
        let said = json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": approve});
        post(&url, &json!({"previous_response_id": first["id"], "input": [said]}))
    };
    let wrong = reply(&item["id"], &json!("yes"));
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.json()["error"]["param"], "input[0].approve");
    let unknown = reply(&json!("apr_0123"), &json!(true));
    assert_eq!(unknown.status, 400);
    let message = unknown.json()["error"]["message"].to_string();
    assert!(message.contains("apr_0123"), "{message}");
    assert_eq!(bench.calls("wipe"), 0);

    let second = reply(&item["id"], &json!(true)).ok();
    assert_eq!(second["output"][0]["content"][0]["text"], "Wiped.");
    assert_eq!(bench.calls("wipe"), 1);
    assert_eq!(reply(&item["id"], &json!(true)).status, 400, "a decision is used once");
    bench.model.finish();
}

#[test]
fn a_call_that_waits_waits_on_after_a_crash() {
    let replies = vec![Reply::calls([wipe("c1")]), Reply::text("Wiped.")];
    let bench = Bench::new(&json!("ask"), "60s", replies);
    let daemon = bench.project.serve();
    let id = conversation(&daemon);
    let mut events = stream(
        &daemon.url(&format!("/conversations/{id}/chat")),
        &json!({"content": "Clean up.", "stream": true}),
    );
    events.until("the question", |event| event["event"] == "approval_needed");
    let before = the_one(&daemon);
    daemon.signal(Signal::SIGKILL);
    daemon.wait(PATIENCE);

    let daemon = bench.project.serve();
    let after = the_one(&daemon);
    assert_eq!(after["id"], before["id"]);
    decide(&daemon, &after, &json!({"decision": "approve"})).ok();
    let said = eventually("the answer", || {
        let messages = get(&daemon.url(&format!("/conversations/{id}/messages"))).ok();
        let last = messages["messages"].as_array()?.last()?.clone();
        (last["role"] == "assistant" && last["content"] == "Wiped.").then_some(messages)
    });
    assert_eq!(said["count"], 4);
    assert_eq!(bench.calls("wipe"), 1);
    bench.model.finish();
}

#[test]
fn what_is_denied_is_not_there_and_direct_calls_are_asked_about_too() {
    let bench = Bench::new(&json!({"wipe": "deny", "look": "ask"}), "60s", vec![]);
    let daemon = bench.project.serve();
    let tools = get(&daemon.url("/v1/tools")).ok();
    let names: Vec<&str> =
        tools["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["tool"].as_str()).collect();
    assert_eq!(names, ["look"]);
    let execute = |tool: &str| {
        post(&daemon.url("/api/mcp/execute"), &json!({"server": "disk", "tool": tool, "arguments": {}}))
    };
    assert_eq!(execute("wipe").status, 404);
    let answers = std::thread::scope(|scope| {
        let no = scope.spawn(|| execute("look"));
        decide(&daemon, &the_one(&daemon), &json!({"decision": "deny"})).ok();
        let no = no.join().expect("an answer");
        let yes = scope.spawn(|| execute("look"));
        decide(&daemon, &the_one(&daemon), &json!({"decision": "approve"})).ok();
        [no, yes.join().expect("an answer")]
    });
    assert_eq!(answers.map(|answer| answer.status), [403, 200]);
    assert_eq!((bench.calls("look"), bench.calls("wipe")), (1, 0));
    let denied = bench.project.run(&["mcp", "call", "disk", "wipe"]);
    assert!(denied.failed(1).contains("has no tool `wipe`"));
}

#[test]
fn without_a_terminal_nobody_is_asked_and_nothing_runs() {
    let bench = Bench::new(&json!("ask"), "60s", vec![Reply::calls([wipe("c1")]), Reply::text("Then not.")]);
    let answered = bench.project.run(&["chat", "Clean up."]).ok();
    assert_eq!(answered.stdout, "Then not.\n");
    assert_eq!(bench.calls("wipe"), 0);
    bench.model.finish();
}
