//! Who may use the daemon, and for what.

mod decisions;
mod hostile;
mod names;
mod quota;
mod reach;

use std::process::Command;

use lf_server::{Need, Route, route_table};
use lf_tests::client::{Response, chat, request};
use lf_tests::peers;
use lf_tests::project::{Daemon, TestProject, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Reply, ScriptedModel, rounds_so_far};
use lf_tests::wait::eventually;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const NOWHERE: &str = "http://127.0.0.1:9/v1";
/// The routes that tell whether the daemon is there, and nothing else.
const OPEN: [&str; 2] = ["/health/liveness", "/health/readiness"];
/// Sent instead of a key: nobody.
const NOBODY: (&str, &str) = ("authorization", "");

fn ask(daemon: &Daemon, method: &str, path: &str, key: (&str, &str), body: Option<&Value>) -> Response {
    let port = daemon.port();
    request(method, &format!("http://127.0.0.1:{port}{path}"), &[key], body.map(Value::to_string))
}

/// A route with something in place of its parameters.
fn path_of(route: &Route) -> String {
    let part = |part: &str| match part.starts_with('{') {
        true => "demo".to_owned(),
        false => part.to_owned(),
    };
    route.path.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn methods_of(route: &Route) -> Vec<&'static str> {
    if route.method == "*" { vec!["GET", "POST", "DELETE"] } else { vec![route.method] }
}

/// Whether an error is written as the API of its route writes errors.
fn is_of_its_dialect(path: &str, status: u16, body: &Value) -> bool {
    if path.starts_with("/mcp") {
        return body["jsonrpc"] == "2.0"
            && body["error"]["code"].is_i64()
            && body["error"]["message"].is_string();
    }
    let is_own = ["/conversations", "/v1/conversations", "/v1/turns"].iter().any(|own| path.starts_with(own));
    if !is_own && (path.ends_with("/messages") || path.ends_with("/messages/count_tokens")) {
        let kind = if status == 401 { "authentication_error" } else { "permission_error" };
        return body["type"] == "error" && body["error"]["type"] == kind;
    }
    let openai = ["/chat/completions", "/responses", "/models"];
    if !is_own && openai.iter().any(|part| path.contains(part)) {
        let code = if status == 401 { "invalid_api_key" } else { "permission_denied" };
        return body["error"]["code"] == code && body["error"]["message"].is_string();
    }
    body["error"].is_string() && body["message"].is_string()
}

#[test]
fn every_route_refuses_whoever_has_no_key_or_not_the_right_one() {
    let project = TestProject::with_model(NOWHERE, &[]);
    project.key(&["short", "--expires", "1ms"]);
    let expired = project.key(&["expired", "--expires", "1ms", "--scope", "chat,read,admin"]);
    let all = "chat,read,tools,config:write,config:exec,approve,admin";
    // for each scope a key that has every other one
    let lacking: Vec<(String, String)> = all
        .split(',')
        .map(|scope| {
            let others: Vec<&str> = all.split(',').filter(|other| *other != scope).collect();
            let name = format!("without-{scope}");
            (scope.to_owned(), project.key(&[&name, "--scope", &others.join(",")]))
        })
        .collect();
    let routes = route_table();
    assert!(routes.len() > 70, "{} routes", routes.len());
    let open: Vec<&str> =
        routes.iter().filter(|it| it.need == Need::Open).map(|it| it.path.as_str()).collect();
    assert_eq!(open, OPEN);
    for host in ["0.0.0.0", "127.0.0.1"] {
        let daemon = project.serve_with(&["--host", host]);
        let is_far = host == "0.0.0.0";
        for route in routes.iter().filter(|route| route.need != Need::Open) {
            let Need::Scope(scope) = route.need else { continue };
            let lacking = &lacking.iter().find(|(name, _)| *name == scope.name()).unwrap().1;
            let needs_none = !is_far && ["chat", "read"].contains(&scope.name());
            let path = path_of(route);
            for method in methods_of(route) {
                let wrong = format!("lfk_00000000_{}", "0".repeat(64));
                let mut attempts = vec![
                    ("a wrong key", ("x-api-key", wrong.as_str()), 401),
                    ("an expired key", ("x-api-key", expired.as_str()), 401),
                    ("a key without the scope", ("x-api-key", lacking.as_str()), 403),
                ];
                if !needs_none {
                    attempts.push(("no key", NOBODY, 401));
                    attempts.push(("a key of something else", ("authorization", "Bearer sk-dummy"), 401));
                }
                for (who, key, status) in attempts {
                    let answer = ask(&daemon, method, &path, key, Some(&json!({})));
                    let what = format!("{host}: {method} {path} with {who}: {answer:?}");
                    assert_eq!(answer.status, status, "{what}");
                    assert!(is_of_its_dialect(&path, status, &answer.json()), "{what}");
                    assert_eq!(answer.header("www-authenticate").is_some(), status == 401, "{what}");
                }
                if needs_none {
                    let answer = ask(&daemon, method, &path, NOBODY, Some(&json!({})));
                    assert!(![401, 403].contains(&answer.status), "{method} {path}: {answer:?}");
                }
            }
        }
        for path in OPEN {
            let answer = ask(&daemon, "GET", path, NOBODY, None);
            assert_eq!(answer.status, 200, "{path}");
        }
        daemon.stop();
    }
}

#[test]
fn a_daemon_that_others_can_reach_does_not_start_without_a_key() {
    let project = TestProject::with_model(NOWHERE, &[]);
    for expired in [false, true] {
        if expired {
            project.key(&["old", "--expires", "1ms"]);
        }
        let refused = project.run(&["serve", "--host", "0.0.0.0", "--port", "0"]).failed(2);
        assert!(refused.contains("no API key") && refused.contains("lf keys create"), "{refused}");
    }
    project.key(&["new"]);
    project.serve_with(&["--host", "0.0.0.0"]).stop();
}

#[test]
fn keys_are_made_listed_and_revoked_while_the_daemon_runs() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("hello")));
    let project = TestProject::with_model(&model.base_url(), &[]);
    project.key(&["first"]);
    let daemon = project.serve_with(&["--host", "0.0.0.0"]);
    let key =
        project.key(&["ann", "--scope", "chat", "--expires", "30d", "--project", "default/*", "--tool", ""]);
    let bearer = format!("Bearer {key}");
    for header in [("authorization", bearer.as_str()), ("x-api-key", key.as_str())] {
        let answer = ask(&daemon, "POST", "/v1/chat/completions", header, Some(&chat("hi")));
        assert_eq!(answer.ok()["choices"][0]["message"]["content"], "hello");
    }
    let listed = project.run(&["keys", "list", "--json"]).ok();
    let ann = &listed.json()["keys"][1];
    assert_eq!((&ann["name"], &ann["scopes"], &ann["tools"]), (&json!("ann"), &json!(["chat"]), &json!([])));
    assert!(!listed.stdout.contains(&key[13..]), "{}", listed.stdout);
    let kept = std::fs::read_to_string(project.data_dir().join("keys.json")).unwrap();
    assert!(!kept.contains(&key[13..]), "{kept}");
    let again = project.run(&["keys", "create", "ann"]).failed(2);
    assert!(again.contains("already"), "{again}");
    project.run(&["keys", "revoke", "ann"]).ok();
    // at once: not even one request later
    assert_eq!(ask(&daemon, "GET", "/v1/models", ("x-api-key", &key), None).status, 401);
    assert!(project.run(&["keys", "revoke", "ann"]).failed(2).contains("no key `ann`"));
    assert!(project.run(&["keys", "create", "x", "--scope", "all"]).failed(2).contains("config:exec"));
    assert!(!daemon.log().contains(&key[13..]));
}

#[test]
fn commands_of_the_same_owner_find_his_token_and_hand_it_to_nobody_else() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("hello")));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let url = daemon.url("");
    let approvals = project.run(&["approvals", "--server", &url, "--json"]).ok();
    assert_eq!(approvals.json()["data"], json!([]));
    let local = url.replace("127.0.0.1", "localhost");
    project.run(&["approvals", "--server", &local]).ok();
    assert_eq!(project.run(&["chat", "--server", &url, "hi"]).ok().stdout.trim(), "hello");
    project.run(&["keys", "create", "reader", "--scope", "read"]).ok();
    // another user of this machine, who has no data directory with a token in it
    let stranger = TestProject::with_model(NOWHERE, &[]);
    let refused = stranger.run(&["approvals", "--server", &url]).failed(1);
    assert!(refused.contains("approve"), "{refused}");
    let key = project.key(&["helper", "--scope", "approve"]);
    let stranger = stranger.variable("LF_API_KEY", &key);
    stranger.run(&["approvals", "--server", &url]).ok();
    // whoever listens there once the daemon is gone is told nothing
    let port = daemon.port();
    daemon.stop();
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let heard = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut heard = vec![0; 4096];
        let count = std::io::Read::read(&mut connection, &mut heard).unwrap();
        String::from_utf8_lossy(&heard[..count]).to_lowercase()
    });
    project.run(&["approvals", "--server", &url]).failed(1);
    let heard = heard.join().unwrap();
    assert!(heard.starts_with("get ") && !heard.contains("authorization"), "{heard}");
}

#[test]
fn the_sdks_are_let_in_with_a_key_and_raise_their_own_errors_without() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("hello")));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let (chatter, reader) = (project.key(&["chatter"]), project.key(&["reader", "--scope", "read"]));
    let wrong = format!("lfk_00000000_{}", "0".repeat(64));
    for host in ["0.0.0.0", "127.0.0.1"] {
        let daemon = project.serve_with(&["--host", host]);
        let url = format!("http://127.0.0.1:{}", daemon.port());
        for (sdk, base_url) in [("openai", format!("{url}/v1")), ("anthropic", url.clone())] {
            let seen = |key: &str| {
                let mut command = Command::new(peers::python("python"));
                command.arg(peers::script("with_key.py")).args([sdk, &base_url, key]);
                peers::run(&command, project.home(), "").ok().json()
            };
            let refused = json!({"class": "AuthenticationError", "status": 401});
            assert_eq!(seen(&chatter), json!({"text": "hello"}), "{sdk}");
            assert_eq!(seen(&wrong), refused, "{sdk}");
            assert_eq!(seen(&reader), json!({"class": "PermissionDeniedError", "status": 403}), "{sdk}");
            let dummy = if host == "0.0.0.0" { refused } else { json!({"text": "hello"}) };
            assert_eq!(seen("-"), dummy, "{sdk} at {host}");
        }
        daemon.stop();
    }
}

#[test]
fn a_turn_that_a_crash_left_goes_on_for_its_key_and_not_without_it() {
    let model = ScriptedModel::start_with(|_, request| {
        Some(match rounds_so_far(request) {
            0 if request["tools"].is_array() => Reply::call("a", "~echo", json!({"n": 1})),
            _ => Reply::text("done"),
        })
    });
    let mut server = scripted("m", &Script::echoing(&["echo"]));
    server["approval"] = json!("ask");
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let keys = ["stays", "goes"].map(|name| project.key(&[name, "--scope", "chat,read,approve"]));
    let daemon = project.serve();
    let begun = keys.each_ref().map(|key| {
        let key = ("x-api-key", key.as_str());
        let made = ask(&daemon, "POST", "/conversations", key, Some(&json!({}))).json();
        let id = made["conversation"]["id"].as_str().unwrap().to_owned();
        let tool = json!({"server_id": "m", "tool_name": "echo"});
        ask(&daemon, "POST", &format!("/conversations/{id}/tools"), key, Some(&tool)).ok();
        let url = daemon.url(&format!("/conversations/{id}/chat"));
        drop(lf_tests::client::stream_with(&url, &[key], &json!({"content": "hi", "stream": true})));
        eventually("the turn", || {
            let shown = ask(&daemon, "GET", &format!("/conversations/{id}"), key, None).json();
            shown["conversation"]["running_turns"][0].as_str().map(str::to_owned)
        })
    });
    let waiting = |daemon: &Daemon, key: &str| {
        let all = ask(daemon, "GET", "/v1/approvals", ("x-api-key", key), None).json();
        all["data"][0]["id"].as_str().map(str::to_owned)
    };
    for key in &keys {
        eventually("the approval", || waiting(&daemon, key));
    }
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    project.run(&["keys", "revoke", "goes"]).ok();
    let daemon = project.serve();
    let approval = eventually("the approval again", || waiting(&daemon, &keys[0]));
    let decided = json!({"decision": "approve"});
    let path = format!("/v1/approvals/{approval}");
    ask(&daemon, "POST", &path, ("x-api-key", &keys[0]), Some(&decided)).ok();
    for (turn, status) in begun.iter().zip(["finished", "failed"]) {
        eventually(status, || {
            let shown = ask(&daemon, "GET", &format!("/v1/turns/{turn}"), ("accept", "*/*"), None).ok();
            (shown["status"] == status).then_some(())
        });
    }
    assert_eq!(daemon.log().matches("Executing MCP tool").count(), 1, "{}", daemon.log());
    daemon.stop();
}
