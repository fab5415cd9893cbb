//! Attempts to leave no trace, or a wrong one.

use std::io::Write as _;
use std::net::TcpStream;

use lf_tests::client::{ACCEPT, Open, get, streamed_chat};
use lf_tests::project::Daemon;
use lf_tests::scripted_mcp::{Act, ScriptedTool};

use super::*;

/// Every line of the file, as it stands there by now.
pub(super) fn lines(project: &TestProject) -> Vec<Value> {
    let text = std::fs::read_to_string(project.data_dir().join("audit/000001.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

/// The records of an event, once there are so many.
pub(super) fn eventually_told(
    project: &TestProject,
    event: &str,
    keys: &[&str],
    count: usize,
) -> Vec<Vec<String>> {
    eventually(&format!("{count} records of `{event}`"), || {
        let lines = lines(project);
        let told = told(&lines, event, keys);
        let owned = |told: &Vec<&str>| told.iter().map(|text| (*text).to_owned()).collect();
        (told.len() == count).then(|| told.iter().map(owned).collect())
    })
}

pub(super) fn with_key(daemon: &Daemon, path: &str, key: &str, body: &Value) -> lf_tests::client::Response {
    request("POST", &daemon.url(path), &[("x-api-key", key)], Some(body.to_string()))
}

fn the_one(daemon: &Daemon) -> String {
    eventually("an approval that waits", || {
        let pending = get(&daemon.url("/v1/approvals")).ok();
        pending["data"][0]["id"].as_str().map(str::to_owned)
    })
}

#[test]
fn a_name_of_any_length_that_was_denied_damages_nothing_of_the_record() {
    let project = project(&ScriptedModel::start([]));
    let key = project.key(&["guest", "--scope", "tools", "--tool", "other"]);
    let daemon = project.serve();
    let execute = |tool: &str| json!({"server": "disk", "tool": tool, "arguments": {}});
    let denied = || post(&daemon.url("/api/mcp/execute"), &execute("wipe")).status;
    assert_eq!(denied(), 403);
    for name in ["x".repeat(200_000), "\u{1}".repeat(20_000)] {
        let mut long = execute(&name);
        assert_ne!(with_key(&daemon, "/api/mcp/execute", &key, &long).status, 200);
        long["server"] = name.into();
        assert_eq!(with_key(&daemon, "/api/mcp/execute", &key, &long).status, 404);
        let owner = post(&daemon.url("/api/mcp/execute"), &execute(long["tool"].as_str().expect("a name")));
        assert_ne!(owner.status, 200);
    }
    assert_eq!(denied(), 403);
    daemon.stop();
    let before = lines(&project);
    let daemon = project.serve();
    assert_eq!(post(&daemon.url("/api/mcp/execute"), &execute("wipe")).status, 403);
    daemon.stop();
    let after = lines(&project);
    assert_eq!(after[..before.len()], before, "nothing of it is taken off");
    assert!(after.len() > before.len() && told(&after, "lost", &["detail"]).is_empty(), "{after:?}");
    project.run(&["audit", "verify"]).ok();
}

/// Whoever closes the connection while a tool runs does not stay off the record with it.
#[test]
fn a_call_whose_client_has_left_is_on_record() {
    let model = ScriptedModel::start([Reply::call("a", "disk__hang", json!({}))]);
    let log = tempfile::NamedTempFile::new().expect("a file");
    let tools = [ScriptedTool::new("hang", Act::Hang)];
    let server = scripted("disk", &Script { log: Some(log.path().to_owned()), ..Script::with(tools) });
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let daemon = project.serve();
    let hangs = |count: usize| {
        eventually("the call to run", || {
            let log = std::fs::read_to_string(log.path()).expect("a log");
            (log.matches("call hang").count() == count).then_some(())
        });
    };
    let is_told = |count: usize| {
        let told = eventually_told(&project, "call", &["server", "tool", "outcome"], count);
        assert_eq!(told[count - 1], ["disk", "hang", "cancelled"]);
    };

    let connection = Open::post(daemon.port(), "/v1/chat/completions", &streamed_chat("Go."));
    hangs(1);
    drop(connection);
    is_told(1);
    let execute = json!({"server": "disk", "tool": "hang", "arguments": {}});
    let connection = Open::post(daemon.port(), "/api/mcp/execute", &execute);
    hangs(2);
    drop(connection);
    is_told(2);

    let key = project.key(&["runs", "--scope", "read,tools"]);
    let connection = begin_call(&daemon, &key);
    hangs(3);
    drop(connection);
    is_told(3);
    daemon.stop();
    project.run(&["audit", "verify"]).ok();
}

/// A client of `/mcp` that reads nothing of what comes.
fn begin_call(daemon: &Daemon, key: &str) -> TcpStream {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "hang", "arguments": {}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    }}});
    let body = body.to_string();
    let mut connection = TcpStream::connect(("127.0.0.1", daemon.port())).expect("a connection");
    let head = [
        "POST /mcp/default/demo/disk HTTP/1.1".to_owned(),
        "host: localhost".to_owned(),
        "content-type: application/json".to_owned(),
        format!("{}: {}", ACCEPT.0, ACCEPT.1),
        "mcp-protocol-version: 2026-07-28".to_owned(),
        "mcp-method: tools/call".to_owned(),
        "mcp-name: hang".to_owned(),
        format!("x-api-key: {key}"),
        format!("content-length: {}", body.len()),
    ];
    write!(connection, "{}\r\n\r\n{body}", head.join("\r\n")).expect("a request");
    connection
}

/// A turn may end before a person has decided. The decision is on record all the same, whichever way it comes in.
#[test]
fn what_is_decided_after_a_turn_has_ended_is_on_record() {
    let calls = |id: &str| Reply::calls([Call::new(id, "disk__send", json!({}))]);
    let replies = [calls("a"), Reply::text("Sent."), calls("b"), Reply::text("Sent again.")];
    let model = ScriptedModel::start(replies);
    let server = scripted("disk", &Script::echoing(&["send"]));
    let limits = json!({"limits": {"approval_timeout": "1s"}});
    let mut project = document(limits, &model.base_url(), &[server]);
    project["policy"] = json!({"rules": [{"tools": ["send"], "verdict": "ask"}]});
    let project = TestProject::of(&project);
    let key = project.key(&["ci", "--scope", "approve,chat,read,admin"]);
    let daemon = project.serve();
    let keys = ["tool", "outcome", "detail"];

    let ended = post(&daemon.url("/v1/chat/completions"), &chat("Go.")).ok();
    let words = ended["choices"][0]["message"]["content"].as_str().expect("words").to_owned();
    let path = format!("/v1/approvals/{}", the_one(&daemon));
    let decision = json!({"decision": "approve", "by": "the owner"});
    assert_eq!(with_key(&daemon, &path, &key, &decision).status, 200);
    let body = json!({"messages": [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": words},
        {"role": "user", "content": "Go on."},
    ]});
    post(&daemon.url("/v1/chat/completions"), &body).ok();
    let told = eventually_told(&project, "approval", &keys, 1);
    assert_eq!(told, [["send", "approved", "by key ci for the owner"]]);

    let first = post(&daemon.url("/v1/responses"), &json!({"input": "Go."})).ok();
    let items = first["output"].as_array().expect("items");
    let asked = items.iter().find(|item| item["type"] == "mcp_approval_request").expect("a question");
    let answer =
        json!({"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": true});
    let body = json!({"previous_response_id": first["id"], "input": [answer]});
    assert_eq!(with_key(&daemon, "/v1/responses", &key, &body).status, 200);
    let told = eventually_told(&project, "approval", &keys, 2);
    assert_eq!(told[1], ["send", "approved", "by key ci for the client of the Responses API"]);

    daemon.stop();
    let lines = lines(&project);
    let ids = super::told(&lines, "approval", &["who", "decided_by"]);
    let id = project.run(&["keys", "list", "--json"]).ok().json()["keys"][0]["id"].to_string();
    let id = format!("key:{}", id.trim_matches('"'));
    assert_eq!(ids[0], ["the owner", &id]);
    assert_eq!(ids[1], ["ci", &id]);
    assert!(project.run(&["keys", "create", "The Owner"]).failed(2).contains("no key was given"));
}
