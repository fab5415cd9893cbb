//! What happens beside the calls of turns, and is on record as well.

use std::time::Duration;

use lf_tests::client::{modern, stream_with};
use lf_tests::scripted_mcp::{Act, ScriptedTool};
use lf_tests::wait::within;
use nix::sys::signal::Signal;

use super::evading::{eventually_told, lines, with_key};
use super::*;

#[test]
fn what_a_key_may_not_do_is_on_record_wherever_it_is_refused() {
    let calls = [Call::new("a", "vault__look", json!({}))];
    let model = ScriptedModel::start([Reply::calls(calls), Reply::text("Then not.")]);
    let servers = ["disk", "vault"].map(|name| scripted(name, &Script::echoing(&["look"])));
    let mut content = document(json!({"mcp_servers": ["disk"]}), &model.base_url(), &servers);
    content["mcp"]["servers"][0]["tools"] = json!({"deny": ["gone"]});
    let project = TestProject::of(&content);
    let reader = project.key(&["reader", "--scope", "read"]);
    let chats = project.key(&["chats", "--scope", "chat"]);
    let runs = project.key(&["runs", "--scope", "tools,read", "--tool", "disk"]);
    let daemon = project.serve();

    // a model that wants what its list does not have
    post(&daemon.url("/v1/chat/completions"), &chat("Go.")).ok();
    let denied = eventually_told(&project, "denied", &["who", "model", "tool", "detail"], 1);
    assert_eq!(denied[0][..3], ["the owner", "assistant", "vault__look"]);
    assert!(lines(&project).iter().any(|line| line["turn"].is_string()), "it leads to the turn");

    let url = daemon.url("/mcp/default/demo/disk");
    let look = json!({"name": "look", "arguments": {}});
    assert_eq!(modern(&url, "tools/call", &look, &[("x-api-key", &reader)]).status, 403);
    let answer = json!({"type": "mcp_approval_response", "approval_request_id": "apr_1", "approve": true});
    let body = json!({"input": [answer]});
    assert_eq!(with_key(&daemon, "/v1/responses", &chats, &body).status, 403);
    let refused = eventually_told(&project, "authentication", &["who", "detail"], 2);
    assert_eq!(refused[0], ["reader", "tools/call at /mcp/default/demo/disk: needs the scope tools"]);
    assert_eq!(refused[1], ["chats", "decisions about calls: needs the scope approve"]);

    // a server out of reach is not there, is not told of, and is not started
    let execute = |server: &str, tool: &str| json!({"server": server, "tool": tool, "arguments": {}});
    let answer = with_key(&daemon, "/api/mcp/execute", &runs, &execute("vault", "look"));
    assert_eq!(answer.status, 404);
    assert!(answer.text.contains("disk"), "{}", answer.text);
    let answer = with_key(&daemon, "/api/mcp/execute", &runs, &execute("nowhere", "look"));
    assert!(answer.status == 404 && !answer.text.contains("vault"), "{}", answer.text);
    assert_eq!(with_key(&daemon, "/api/mcp/execute", &runs, &execute("disk", "gone")).status, 404);
    let denied = eventually_told(&project, "denied", &["who", "server", "tool"], 4);
    assert_eq!(
        denied[1..],
        [["runs", "vault", "look"], ["runs", "nowhere", "look"], ["runs", "disk", "gone"]]
    );
    let servers = lf_tests::client::get(&daemon.url("/v1/mcp/servers")).ok().to_string();
    assert!(servers.contains("idle"), "{servers}");
    daemon.stop();
    project.run(&["audit", "verify"]).ok();
}

#[test]
fn own_tools_commands_and_keys_are_on_record() {
    let server = scripted("disk", &Script::echoing(&["look"]));
    let project = TestProject::with_model(&ScriptedModel::start([]).base_url(), &[server]);
    let key = project.key(&["ann", "--scope", "read", "--tool", "disk"]);
    project.run(&["mcp", "call", "disk", "look", "{}"]).ok();
    project.run(&["keys", "revoke", "ann"]).ok();
    let told_of_keys = told_now(&project, "key", &["who", "outcome", "detail"]);
    assert_eq!(told_of_keys.len(), 2, "{told_of_keys:?}");
    assert_eq!(told_of_keys[0][..2], ["the owner", "created"]);
    assert_eq!(told_of_keys[1][1], "revoked");
    let detail = &told_of_keys[0][2];
    assert!(
        detail.contains("ann: read") && detail.contains("tools [disk]") && !detail.contains(&key),
        "{detail}"
    );
    let calls = told_now(&project, "call", &["who", "server", "tool", "outcome"]);
    assert_eq!(calls, [["the owner", "disk", "look", "ok"]]);

    let looks = project.key(&["looks", "--scope", "read"]);
    let daemon = project.serve();
    let list = json!({"name": "models_list", "arguments": {}});
    assert_eq!(modern(&daemon.url("/mcp"), "tools/call", &list, &[]).status, 200);
    let delete = json!({"name": "project_delete", "arguments": {"namespace": "team", "project": "made"}});
    modern(&daemon.url("/mcp"), "tools/call", &delete, &[("x-api-key", &looks)]);
    let calls = eventually_told(&project, "call", &["who", "server", "tool", "outcome"], 2);
    assert_eq!(calls[1], ["the owner", "lf", "models_list", "ok"]);
    let denied = eventually_told(&project, "denied", &["who", "server", "tool"], 1);
    assert_eq!(denied, [["looks", "lf", "project_delete"]]);
    daemon.stop();
}

fn told_now(project: &TestProject, event: &str, keys: &[&str]) -> Vec<Vec<String>> {
    let lines = lines(project);
    let told = told(&lines, event, keys);
    told.iter().map(|told| told.iter().map(|text| (*text).to_owned()).collect()).collect()
}

/// Nobody puts another configuration into a running daemon's hands unseen, by whatever way.
#[test]
fn what_a_daemon_begins_with_is_on_record_for_stored_projects_too() {
    let project = TestProject::with_model(&ScriptedModel::start([]).base_url(), &[]);
    let daemon = project.serve();
    post(&daemon.url("/v1/projects/team"), &json!({"name": "made"}));
    let shown = || lf_tests::client::get(&daemon.url("/v1/projects/team/made")).status;
    assert_eq!(shown(), 200);
    let models = || lf_tests::client::get(&daemon.url("/v1/projects/team/made/models")).status;
    eventually("the project", || (models() == 200).then_some(()));
    let directory = project.data_dir().join("projects/team/made");
    let away = project.data_dir().join("away");
    std::fs::rename(&directory, &away).expect("it can be moved");
    let of_made = |outcome: &str| {
        let lines = lines(&project);
        let all = told(&lines, "configuration", &["project", "outcome"]);
        all.iter().filter(|told| told[0] == "team/made" && told[1] == outcome).count()
    };
    let active = of_made("active");
    within(Duration::from_secs(20), "it to be gone", || (of_made("gone") == 1).then_some(()));
    std::fs::rename(&away, &directory).expect("it can be moved");
    eventually("it again", || {
        models();
        (of_made("active") == active + 1).then_some(())
    });
    daemon.stop();
    // and after a restart
    let daemon = project.serve();
    eventually("it again", || {
        lf_tests::client::get(&daemon.url("/v1/projects/team/made/models"));
        (of_made("active") == active + 2).then_some(())
    });
    daemon.stop();
}

#[test]
fn a_call_that_died_with_the_daemon_is_on_record_once_its_turn_goes_on_or_is_given_up() {
    for is_revoked in [false, true] {
        let model =
            ScriptedModel::start([Reply::call("a", "disk__hang", json!({})), Reply::text("Lost it.")]);
        let log = tempfile::NamedTempFile::new().expect("a file");
        let tools = [ScriptedTool::new("hang", Act::Hang)];
        let server = scripted("disk", &Script { log: Some(log.path().to_owned()), ..Script::with(tools) });
        let project = TestProject::with_model(&model.base_url(), &[server]);
        let key = project.key(&["ann", "--scope", "chat,read"]);
        let daemon = project.serve();
        let created = with_key(&daemon, "/conversations", &key, &json!({})).json();
        let id = created["conversation"]["id"].as_str().expect("an id").to_owned();
        let path = format!("/conversations/{id}/tools");
        let tool = json!({"server_id": "disk", "tool_name": "hang"});
        with_key(&daemon, &path, &key, &tool).ok();
        let url = daemon.url(&format!("/conversations/{id}/chat"));
        let body = json!({"content": "Go.", "stream": true});
        let _asks = stream_with(&url, &[("x-api-key", &key)], &body);
        eventually("the call to run", || {
            std::fs::read_to_string(log.path()).expect("a log").contains("call hang").then_some(())
        });
        daemon.signal(Signal::SIGKILL);
        daemon.wait(Duration::from_secs(10));
        assert!(told_now(&project, "call", &["tool"]).is_empty());
        if is_revoked {
            project.run(&["keys", "revoke", "ann"]).ok();
        }
        let daemon = project.serve();
        let calls = eventually_told(&project, "call", &["who", "server", "tool", "outcome", "turn"], 1);
        assert_eq!(calls[0][..4], ["ann", "disk", "hang", "lost"]);
        assert_eq!(calls[0][4].len(), 32, "{calls:?}");
        daemon.stop();
        project.run(&["audit", "verify"]).ok();
    }
}
