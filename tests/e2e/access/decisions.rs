//! Who decides about calls, and whom the rules of a file speak of: in each kind of turn, at each daemon.

use lf_tests::client::{message, modern, request};
use lf_tests::postgres::Postgres;
use lf_tests::project::{Daemon, TestProject, document, document_of, remote, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Reply, ScriptedModel, rounds_so_far};
use lf_tests::wait::eventually;
use serde_json::{Value, json};

use super::ask;

/// Calls `m__echo`, and then says what came of it.
fn calling() -> ScriptedModel {
    ScriptedModel::start_with(|_, request| {
        Some(match rounds_so_far(request) {
            0 => Reply::call("call_1", "m__echo", json!({"n": 7})),
            _ => Reply::text(
                request["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap(),
            ),
        })
    })
}

fn made(daemon: &Daemon, path: &str, key: &str, body: &Value) -> Value {
    let answer = ask(daemon, "POST", path, ("x-api-key", key), Some(body));
    assert!(answer.status < 300, "{answer:?}");
    answer.json()
}

#[test]
fn a_rule_that_names_a_key_speaks_of_nobody_else() {
    let model = calling();
    let mut document = document(json!({}), &model.base_url(), &[scripted("m", &Script::echoing(&["echo"]))]);
    let rule =
        json!({"name": "guests", "keys": ["guest-*"], "verdict": "deny", "reason": "guests look only"});
    document["policy"] = json!({"rules": [rule]});
    let project = TestProject::of(&document);
    let daemon = project.serve();
    let [guest, ann] = ["guest-1", "ann"].map(|name| project.key(&[name, "--scope", "chat,read,tools"]));
    let owner = lf_tests::keys::of(&daemon.url("/")).unwrap();
    for (key, is_denied) in [(&guest, true), (&ann, false), (&owner, false)] {
        let words = json!({"model": "assistant", "messages": [{"role": "user", "content": "go"}]});
        let answer = made(&daemon, "/v1/chat/completions", key, &words);
        let told = answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        assert_eq!(told.contains("guests look only"), is_denied, "{told}");
        assert_eq!(told.contains("{\"n\":7}"), !is_denied, "{told}");

        let id = made(&daemon, "/conversations", key, &json!({}))["conversation"]["id"].clone();
        let at = |rest: &str| format!("/conversations/{}{rest}", id.as_str().unwrap());
        made(&daemon, &at("/tools"), key, &json!({"server_id": "m", "tool_name": "echo"}));
        let answer = made(&daemon, &at("/chat"), key, &json!({"content": "go"}));
        let told = answer["assistant_message"]["content"].as_str().unwrap().to_owned();
        assert_eq!(told.contains("guests look only"), is_denied, "{told}");

        let direct = json!({"server": "m", "tool": "echo", "arguments": {"n": 7}});
        let answer = ask(&daemon, "POST", "/api/mcp/execute", ("x-api-key", key.as_str()), Some(&direct));
        assert_eq!(answer.status, if is_denied { 403 } else { 200 }, "{answer:?}");
        let call = json!({"name": "m__echo", "arguments": {"n": 7}});
        let url = daemon.url("/mcp/default/demo");
        let answer = message(&modern(&url, "tools/call", &call, &[("x-api-key", key.as_str())]));
        assert_eq!(answer.to_string().contains("guests look only"), is_denied, "{answer}");
    }
    daemon.stop().ok();
}

#[test]
fn a_rule_about_a_model_counts_where_it_asks_its_own_daemon() {
    let model = ScriptedModel::start_with(|_, request| {
        let messages = request["messages"].as_array().unwrap();
        Some(match rounds_so_far(request) {
            0 => {
                Reply::call("call_1", messages.last().unwrap()["content"].as_str().unwrap(), json!({"n": 7}))
            }
            _ => Reply::text(messages.last().unwrap()["content"].as_str().unwrap()),
        })
    });
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[]);
    let daemon = project.serve();
    let own = daemon.url("/mcp/default/ring").replace("127.0.0.1", "localhost");
    let servers = [remote("own", "http", &own), scripted("m", &Script::echoing(&["echo", "wipe"]))];
    let asker = json!({
        "name": "asker", "provider": "openai", "model": "x", "base_url": model.base_url(), "api_key": "k",
    });
    let mut ring = document_of(&[asker], &servers);
    let rule = json!({"name": "tame", "models": ["asker"], "tools": ["wipe"], "verdict": "deny"});
    ring["policy"] = json!({"rules": [rule]});
    let directory = project.data_dir().join("projects/default/ring");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("llamafarm.yaml"), format!("{ring:#}")).unwrap();
    for (tool, runs) in
        [("m__echo", true), ("m__wipe", false), ("own__m__echo", true), ("own__m__wipe", false)]
    {
        let words = json!({"model": "asker", "messages": [{"role": "user", "content": tool}]});
        let answer =
            lf_tests::client::post(&daemon.url("/v1/projects/default/ring/chat/completions"), &words);
        let told = answer.ok()["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
        assert_eq!(told.contains("{\"n\":7}"), runs, "{tool}: {told}");
        assert_eq!(told.contains("rule `tame`"), !runs, "{tool}: {told}");
    }
    daemon.stop().ok();
}

#[test]
fn who_may_not_approve_approves_nothing_by_going_on() {
    let model = calling();
    let mut document = document(json!({}), &model.base_url(), &[scripted("m", &Script::echoing(&["echo"]))]);
    document["mcp"]["servers"][0]["approval"] = json!("ask");
    let project = TestProject::of(&document);
    let daemon = project.serve();
    let chats = project.key(&["chats", "--scope", "chat,read"]);
    let key = ("x-api-key", chats.as_str());
    let responses = "/v1/responses";
    for in_background in [false, true] {
        let begun = json!({"model": "assistant", "input": "go", "background": in_background});
        let first = made(&daemon, responses, &chats, &begun);
        let path = format!("{responses}/{}", first["id"].as_str().unwrap());
        let item = eventually("the item", || {
            let now = ask(&daemon, "GET", &path, key, None).ok();
            let last = now["output"].as_array()?.last()?.clone();
            (now["status"] == "completed" && last["type"] == "mcp_approval_request").then_some(last)
        });
        let decision = json!({
            "type": "mcp_approval_response", "approval_request_id": item["id"], "approve": true,
        });
        let goes_on = json!({
            "model": "assistant", "previous_response_id": first["id"], "input": [decision],
            "background": in_background,
        });
        let refused = ask(&daemon, "POST", responses, key, Some(&goes_on));
        assert_eq!(refused.status, 403, "{refused:?}");
        assert!(refused.text.contains("approve"), "{refused:?}");
        // it waits all the same, for who may
        let decided = ask(
            &daemon,
            "POST",
            &format!("/v1/approvals/{}", item["id"].as_str().unwrap()),
            ("accept", "*/*"),
            Some(&json!({"decision": "deny"})),
        );
        assert_eq!(decided.status, 200, "{decided:?}");
    }
    let conversation = made(&daemon, "/conversations", &chats, &json!({}));
    let within = |input: &Value| {
        json!({
            "model": "assistant", "conversation": conversation["conversation"]["id"], "input": input,
        })
    };
    let first = made(&daemon, responses, &chats, &within(&json!("go")));
    let item = first["output"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(item["type"], "mcp_approval_request", "{first}");
    let decision =
        json!([{"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": true}]);
    let refused = ask(&daemon, "POST", responses, key, Some(&within(&decision)));
    assert_eq!(refused.status, 403, "{refused:?}");
    daemon.stop().ok();
}

#[test]
fn what_one_has_made_is_there_for_no_other_at_any_daemon() {
    let database = Postgres::shared().database();
    let model = calling();
    let mut document = document(json!({}), &model.base_url(), &[scripted("m", &Script::echoing(&["echo"]))]);
    document["mcp"]["servers"][0]["approval"] = json!("ask");
    let project = TestProject::of(&document).variable("LF_STORAGE", &database.url());
    let (one, other) = (project.serve(), project.serve());
    for daemon in [&one, &other] {
        // the owner's commands are let in to each
        project.run(&["approvals", "--server", &daemon.url("")]).ok();
    }
    let [ann, bob] = ["ann", "bob"].map(|name| project.key(&[name, "--scope", "chat,read,approve,tools"]));
    let id = made(&one, "/conversations", &ann, &json!({"title": "Goats"}))["conversation"]["id"].clone();
    let at = |rest: &str| format!("/conversations/{}{rest}", id.as_str().unwrap());
    made(&one, &at("/tools"), &ann, &json!({"server_id": "m", "tool_name": "echo"}));
    let get = |key: &str, path: &str| ask(&other, "GET", path, ("x-api-key", key), None);
    let asking = {
        let (url, key) = (one.url(&at("/chat")), ann.clone());
        let body = json!({"content": "go"}).to_string();
        std::thread::spawn(move || request("POST", &url, &[("x-api-key", &key)], Some(body)))
    };
    let waiting = eventually("the other daemon to know what waits", || {
        get(&ann, "/v1/approvals").ok()["data"].as_array()?.first().cloned()
    });
    let approval = format!("/v1/approvals/{}", waiting["id"].as_str().unwrap());
    assert_eq!(get(&bob, "/v1/approvals").ok()["data"], json!([]));
    let yes = json!({"decision": "approve"});
    for (path, body) in [(approval.clone(), Some(&yes)), (approval.clone(), None), (at(""), None)] {
        let method = if body.is_some() { "POST" } else { "GET" };
        let answer = ask(&other, method, &path, ("x-api-key", bob.as_str()), body);
        assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
    }
    assert_eq!(get(&ann, &approval).status, 200);
    made(&other, &approval, &ann, &yes);
    let answer = asking.join().unwrap().ok();
    let told = answer["assistant_message"]["content"].as_str().unwrap();
    assert!(told.contains("{\"n\":7}"), "{told}");
    for search in ["", "?search=Goats"] {
        let listed = |key: &str| get(key, &format!("/conversations{search}")).ok()["count"].clone();
        assert_eq!((listed(&ann), listed(&bob)), (json!(1), json!(0)), "{search}");
    }
    // keys are of the data directory, which both have
    project.run(&["keys", "revoke", "ann"]).ok();
    assert_eq!(get(&ann, &at("")).status, 401);
    model.finish();
}
