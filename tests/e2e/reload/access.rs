//! What a turn may call is what the configuration says when it calls.

use std::time::Duration;

use lf_tests::approvals::{decide, pending};
use lf_tests::client::{chat, get, message, modern, post};
use lf_tests::processes::Process;
use lf_tests::project::{Daemon, TestProject, document, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::{PATIENCE, eventually, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{SOON, generation};

/// For a server that left the file to be gone, with all it started.
const GONE: Duration = PATIENCE;

/// A turn in whose first call the configuration changes, and that calls `echo` after that.
struct MidTurn {
    model: ScriptedModel,
    project: TestProject,
    daemon: Daemon,
    server: Value,
    noted: tempfile::NamedTempFile,
    gate: std::path::PathBuf,
}

impl MidTurn {
    fn new() -> Self {
        let model = ScriptedModel::start([
            Reply::call("a", "m__gate", json!({})),
            Reply::call("b", "m__echo", json!({"x": 1})),
            Reply::text("done"),
        ]);
        let noted = tempfile::NamedTempFile::new().unwrap();
        let home = tempfile::tempdir().unwrap().keep();
        let gate = home.join("gate");
        let tools =
            [ScriptedTool::new("gate", Act::Gate(gate.clone())), ScriptedTool::new("echo", Act::Echo)];
        let script = Script { log: Some(noted.path().to_owned()), ..Script::with(tools) };
        let server = scripted("m", &script);
        let project = TestProject::with_model(&model.base_url(), std::slice::from_ref(&server));
        let daemon = project.serve();
        Self { model, project, daemon, server, noted, gate }
    }

    /// The file as it is, after a change.
    fn changed(&self, change: impl FnOnce(&mut Value, &mut Value)) -> Value {
        let (mut model, mut server) = (json!({}), self.server.clone());
        change(&mut model, &mut server);
        let servers: Vec<Value> = Some(server).filter(Value::is_object).into_iter().collect();
        document(model, &self.model.base_url(), &servers)
    }

    /// Makes the change in the first call, and gives what the model was told of the second one.
    fn told(&self, config: &Value) -> String {
        std::thread::scope(|scope| {
            let url = self.daemon.url("/v1/chat/completions");
            let turn = scope.spawn(move || post(&url, &chat("hi")).ok());
            eventually("the call to run", || self.has("call gate").then_some(()));
            self.project.write("llamafarm.yaml", &format!("{config:#}"));
            within(SOON, "the change to be active", || (generation(&self.daemon) == 2).then_some(()));
            std::fs::write(&self.gate, "").unwrap();
            let answer = turn.join().unwrap();
            assert_eq!(answer["choices"][0]["message"]["content"], "done", "the turn keeps its model");
        });
        self.model.request(2).result_of("b").unwrap()
    }

    fn has(&self, line: &str) -> bool {
        std::fs::read_to_string(self.noted.path()).unwrap().contains(line)
    }
}

/// What the model reads after a change that takes the tool away.
fn refused(words: &str, change: impl FnOnce(&mut Value, &mut Value)) {
    let turn = MidTurn::new();
    let told = turn.told(&turn.changed(change));
    assert!(told.contains(words), "`{words}` is not in: {told}\n{}", turn.daemon.log());
    assert!(!turn.has("call echo"), "it ran");
    turn.daemon.stop();
    turn.project.assert_nothing_left();
}

#[test]
fn a_server_that_the_model_may_not_use_any_more_is_not_called_by_a_running_turn() {
    refused("this call was not run: model `assistant` may not use MCP server `m`", |model, _| {
        model["mcp_servers"] = json!([]);
    });
}

#[test]
fn a_server_that_left_the_file_is_not_called_by_a_running_turn() {
    refused("this call was not run: model `assistant` may not use MCP server `m`", |_, server| {
        *server = Value::Null;
    });
}

#[test]
fn a_model_that_left_the_file_calls_nothing() {
    refused("model `assistant` is not there any more", |model, _| {
        model["name"] = json!("another");
    });
}

#[test]
fn a_tool_that_is_denied_is_not_called_by_a_running_turn() {
    refused("MCP server `m` has no tool `echo`", |_, server| server["tools"] = json!({"deny": ["echo"]}));
    refused("MCP server `m` has no tool `echo`", |_, server| server["approval"] = json!("deny"));
}

/// A rule that forbids `echo`.
fn rule() -> Value {
    let rule = json!({"name": "no-echo", "tools": ["echo"], "verdict": "deny", "reason": "nothing is to be repeated"});
    json!({"rules": [rule]})
}

#[test]
fn a_rule_that_came_meanwhile_holds_the_next_call_of_a_running_turn() {
    let turn = MidTurn::new();
    let mut config = turn.changed(|_, _| {});
    config["policy"] = rule();
    let told = turn.told(&config);
    assert!(told.contains("nothing is to be repeated"), "{told}");
    assert!(!turn.has("call echo"), "it ran");
}

/// A turn that is asked about its second call, by what the file says since its first one.
fn asked(config: impl FnOnce(&MidTurn) -> Value) -> Value {
    let turn = MidTurn::new();
    let config = config(&turn);
    let waiting = std::thread::scope(|scope| {
        let (list, noted) = (turn.daemon.url("/v1/approvals"), turn.noted.path().to_owned());
        let deciding = scope.spawn(move || {
            let waiting = eventually("somebody to be asked", || {
                let waiting = get(&list).ok();
                waiting["data"].as_array().expect("a list").first().cloned()
            });
            let ran = std::fs::read_to_string(noted).expect("a log");
            assert!(!ran.contains("call echo"), "it ran unasked: {ran}");
            let decide = format!("{list}/{}", waiting["id"].as_str().expect("an id"));
            post(&decide, &json!({"decision": "approve", "by": "Ada"})).ok();
            waiting
        });
        let told = turn.told(&config);
        assert!(!told.contains("was not run"), "{told}");
        deciding.join().expect("a decision")
    });
    assert!(turn.has("call echo"), "a yes is a yes");
    turn.daemon.stop();
    turn.project.assert_nothing_left();
    waiting
}

#[test]
fn a_policy_that_came_meanwhile_asks_about_the_next_call_of_a_running_turn() {
    let waiting = asked(|turn| {
        let mut config = turn.changed(|_, _| {});
        let rule = json!({"tools": ["echo"], "verdict": "ask", "reason": "Ada wants to know"});
        config["policy"] = json!({"rules": [rule]});
        config
    });
    assert!(waiting["why"].as_str().is_some_and(|why| why.contains("Ada wants to know")), "{waiting}");
}

#[test]
fn a_tool_that_needs_an_approval_now_is_asked_about_in_a_running_turn() {
    let waiting = asked(|turn| turn.changed(|_, server| server["approval"] = json!({"echo": "ask"})));
    assert_eq!(waiting.get("why").and_then(Value::as_str).unwrap_or_default(), "", "{waiting}");
}

/// Labels of the turn's only result so far, and of the tool that it calls next.
#[test]
fn labels_that_came_meanwhile_count_for_results_of_a_running_turn() {
    let turn = MidTurn::new();
    let mut config = turn.changed(|_, server| {
        server["labels"] = json!({"gate": ["private", "untrusted"], "echo": ["egress"]});
    });
    config["policy"] = json!({"flow": "deny"});
    let told = turn.told(&config);
    assert!(told.contains("private results and untrusted"), "{told}");
    assert!(!turn.has("call echo"), "it ran");
}

#[test]
fn a_rule_that_comes_while_the_daemon_drains_holds_the_next_call_of_a_running_turn() {
    let turn = MidTurn::new();
    let mut config = turn.changed(|_, _| {});
    config["policy"] = rule();
    std::thread::scope(|scope| {
        let url = turn.daemon.url("/v1/chat/completions");
        let answer = scope.spawn(move || post(&url, &chat("hi")).ok());
        eventually("the call to run", || turn.has("call gate").then_some(()));
        turn.daemon.signal(Signal::SIGTERM);
        let says = |words: &str| turn.daemon.log().contains(words).then_some(());
        eventually("the drain", || says("draining"));
        turn.project.write("llamafarm.yaml", &format!("{config:#}"));
        within(SOON, "the change to be active", || says("configuration reloaded"));
        std::fs::write(&turn.gate, "").unwrap();
        assert_eq!(answer.join().unwrap()["choices"][0]["message"]["content"], "done");
    });
    let told = turn.model.request(2).result_of("b").unwrap();
    assert!(told.contains("nothing is to be repeated"), "{told}");
    assert!(!turn.has("call echo"), "it ran");
    assert_eq!(turn.daemon.wait(Duration::from_secs(10)).status, Some(0));
    turn.project.assert_nothing_left();
}

#[test]
fn a_rule_that_came_while_a_client_waited_for_its_approval_holds_the_call() {
    let noted = tempfile::NamedTempFile::new().unwrap();
    let script =
        Script { log: Some(noted.path().to_owned()), ..Script::with([ScriptedTool::new("echo", Act::Echo)]) };
    let mut server = scripted("m", &script);
    server["approval"] = json!({"echo": "ask"});
    let model = ScriptedModel::start([]);
    let mut config = document(json!({}), &model.base_url(), &[server]);
    let project = TestProject::of(&config);
    let daemon = project.serve();
    let execute = || {
        let body = json!({"server": "m", "tool": "echo", "arguments": {}});
        let answer = post(&daemon.url("/api/mcp/execute"), &body);
        assert_eq!(answer.status, 403, "{}", answer.text);
        answer.text
    };
    let relayed = || {
        let params = json!({"name": "echo", "arguments": {}});
        let answer = message(&modern(&daemon.url("/mcp/default/demo/m"), "tools/call", &params, &[]));
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        answer.to_string()
    };
    let ways: [&(dyn Fn() -> String + Sync); 2] = [&execute, &relayed];
    std::thread::scope(|scope| {
        let waiting: Vec<_> = ways.into_iter().map(|way| scope.spawn(way)).collect();
        let calls =
            eventually("both calls to wait", || Some(pending(&daemon)).filter(|calls| calls.len() == 2));
        config["policy"] = rule();
        project.write("llamafarm.yaml", &format!("{config:#}"));
        within(SOON, "the change to be active", || (generation(&daemon) == 2).then_some(()));
        for call in calls {
            decide(&daemon, &call, &json!({"decision": "approve", "by": "Ada"})).ok();
        }
        for told in waiting {
            let told = told.join().unwrap();
            assert!(told.contains("nothing is to be repeated"), "{told}");
        }
    });
    assert!(!std::fs::read_to_string(noted.path()).unwrap().contains("call echo"), "it ran");
}

#[test]
fn a_server_that_lacks_a_variable_now_is_not_called() {
    refused("variable `NO_SUCH_VARIABLE` is not set", |_, server| {
        server["env"] = json!({"X": "${env:NO_SUCH_VARIABLE}"});
    });
}

#[test]
fn a_server_that_changed_is_called_as_it_is_now() {
    let turn = MidTurn::new();
    let config = turn.changed(|_, server| server["timeout"] = json!("20s"));
    let told = turn.told(&config);
    assert!(told.contains("\"x\""), "{told}");
    let starts = || std::fs::read_to_string(turn.noted.path()).unwrap().matches("start ").count();
    assert_eq!(starts(), 2, "one as it was, one as it is");
    within(GONE, "the one as it was to be gone", || (turn.project.children().len() == 1).then_some(()));
}

#[test]
fn a_call_that_runs_when_its_server_leaves_the_file_ends_with_it() {
    let noted = tempfile::NamedTempFile::new().unwrap();
    let script = Script {
        log: Some(noted.path().to_owned()),
        grandchildren: 1,
        ignore_eof: true,
        ignore_sigterm: true,
        ..Script::with([ScriptedTool::new("hang", Act::Hang)])
    };
    let model = ScriptedModel::start([Reply::call("a", "m__hang", json!({})), Reply::text("done")]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &script)]);
    let daemon = project.serve();
    std::thread::scope(|scope| {
        let url = daemon.url("/v1/chat/completions");
        let turn = scope.spawn(move || post(&url, &chat("hi")).ok());
        let noted = || std::fs::read_to_string(noted.path()).unwrap();
        eventually("the call to run", || noted().contains("call hang").then_some(()));
        project.write("llamafarm.yaml", &format!("{:#}", document(json!({}), &model.base_url(), &[])));
        within(SOON, "the change to be active", || (generation(&daemon) == 2).then_some(()));
        within(GONE, "the server to be gone", || project.children().is_empty().then_some(()));
        assert_eq!(turn.join().unwrap()["choices"][0]["message"]["content"], "done");
    });
    let told = model.request(1).result_of("a").unwrap();
    assert!(told.contains("the server left the configuration"), "{told}");
    let body = json!({"server": "m", "tool": "hang", "arguments": {}});
    assert_eq!(post(&daemon.url("/api/mcp/execute"), &body).status, 404);
    assert_eq!(post(&daemon.url("/mcp/default/demo/m"), &json!({})).status, 404);
}

#[test]
fn sessions_of_servers_that_did_not_change_stay_and_the_others_go() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("hello")));
    let server = |name: &str| scripted(name, &Script::echoing(&[name]));
    let servers = [server("stays"), server("changes"), server("leaves")];
    let project = TestProject::with_model(&model.base_url(), &servers);
    let daemon = project.serve();
    let say = || post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    say();
    let of = |name: &str| -> Option<Process> {
        project
            .children()
            .into_iter()
            .find(|process| process.command.contains(&format!("\"name\":\"{name}\"")))
    };
    let before: Vec<Process> = ["stays", "changes", "leaves"].iter().map(|name| of(name).unwrap()).collect();
    let mut changed = server("changes");
    changed["timeout"] = json!("11s");
    let config = document(json!({"description": "new"}), &model.base_url(), &[server("stays"), changed]);
    project.write("llamafarm.yaml", &format!("{config:#}"));
    within(SOON, "the change to be active", || (generation(&daemon) == 2).then_some(()));
    within(GONE, "the two to be gone", || (project.children() == before[..1]).then_some(()));
    say();
    assert_eq!(of("stays").as_ref(), Some(&before[0]));
    assert_ne!(of("changes").unwrap(), before[1]);
    assert_eq!(of("leaves"), None);
    let listed = get(&daemon.url("/v1/mcp/servers")).ok();
    assert_eq!(listed["servers"][0]["counters"]["starts"], 1, "{listed}");
    daemon.stop();
    project.assert_nothing_left();
}
