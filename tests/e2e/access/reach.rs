//! What a key reaches, and what it does not: projects, models, tools, and what others have made.

use std::time::Duration;

use lf_tests::client::{chat, request, stream, streamed_chat};
use lf_tests::project::{TestProject, document, document_of, remote, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel, rounds_so_far};
use lf_tests::wait::eventually;
use serde_json::{Value, json};

use super::{NOBODY, NOWHERE, ask};

/// Calls whatever the user says, and then tells what came of it.
fn obedient() -> ScriptedModel {
    ScriptedModel::start_with(|_, request| {
        let messages = request["messages"].as_array().unwrap();
        let last = messages.last().unwrap();
        Some(match rounds_so_far(request) {
            0 => {
                let said = messages.iter().rfind(|message| message["role"] == "user").unwrap();
                let said: Value = serde_json::from_str(said["content"].as_str().unwrap()).unwrap_or_default();
                match said["call"].as_str() {
                    Some(tool) => Reply::call("call_1", tool, said["arguments"].clone()),
                    None => Reply::text("nothing to do"),
                }
            }
            _ => Reply::text(last["content"].as_str().unwrap_or("no text")),
        })
    })
}

fn calling(tool: &str, arguments: &Value) -> Value {
    chat(&json!({"call": tool, "arguments": arguments}).to_string())
}

#[test]
fn a_call_runs_only_where_the_key_reaches_the_tool() {
    let model = obedient();
    let script = Script::echoing(&["read", "write"]);
    let servers = [scripted("one", &script), scripted("two", &script)];
    let project = TestProject::with_model(&model.base_url(), &servers);
    let daemon = project.serve();
    let key = project.key(&["reader", "--scope", "chat,read,tools", "--tool", "one/read"]);
    let bearer = ("x-api-key", key.as_str());
    for (tool, runs) in
        [("one__read", true), ("one__write", false), ("two__read", false), ("two__write", false)]
    {
        let answer =
            ask(&daemon, "POST", "/v1/chat/completions", bearer, Some(&calling(tool, &json!({"n": 7})))).ok();
        let said = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert_eq!(said.contains("{\"n\":7}"), runs, "{tool}: {said}");
        let (server, name) = tool.split_once("__").unwrap();
        let direct = json!({"server": server, "tool": name, "arguments": {"n": 7}});
        let status = ask(&daemon, "POST", "/api/mcp/execute", bearer, Some(&direct)).status;
        assert_eq!(status == 200, runs, "{tool}: {status}");
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": tool, "arguments": {"n": 7}, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        }});
        let headers = [
            bearer,
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", tool),
        ];
        let url = daemon.url("/mcp/default/demo");
        let answer = request("POST", &url, &headers, Some(body.to_string()));
        assert_eq!(answer.text.contains("{\\\"n\\\":7}"), runs, "{tool}: {}", answer.text);
    }
    let tools = ask(&daemon, "GET", "/v1/tools", bearer, None).ok();
    assert_eq!(tools["total"], 1, "{tools}");
    // what a model is shown is what it may call
    assert_eq!(model.received().last().unwrap().tool_names(), ["one__read"]);
    daemon.stop();
}

#[test]
fn a_key_reaches_its_projects_and_models_and_knows_of_no_others() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("hello")));
    let entry = |name: &str| json!({"name": name, "provider": "openai", "model": "x", "base_url": model.base_url(), "api_key": "k"});
    let project = TestProject::of(&document_of(&[entry("small"), entry("large")], &[]));
    for name in ["barn", "shop"] {
        let directory = project.data_dir().join("projects/team").join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let text = format!("{:#}", document_of(&[entry("small"), entry("large")], &[]));
        std::fs::write(directory.join("llamafarm.yaml"), text).unwrap();
    }
    let daemon = project.serve();
    let key = project.key(&[
        "k",
        "--scope",
        "chat,read,config:write",
        "--project",
        "team/barn",
        "--model",
        "small",
    ]);
    let key = ("x-api-key", key.as_str());
    let status =
        |method: &str, path: &str, body: Option<Value>| ask(&daemon, method, path, key, body.as_ref()).status;
    let models = ask(&daemon, "GET", "/v1/models", key, None).ok();
    assert_eq!(models["data"].as_array().unwrap().len(), 1, "{models}");
    assert_eq!(models["data"][0]["id"], "team/barn/small");
    let projects = ask(&daemon, "GET", "/v1/projects", key, None).ok();
    assert_eq!((&projects["total"], &projects["projects"][0]["name"]), (&json!(1), &json!("barn")));
    let say = |model: &str| Some(json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}));
    assert_eq!(status("POST", "/v1/chat/completions", say("team/barn/small")), 200);
    for foreign in ["team/barn/large", "team/shop/small", "small", "default/demo/small"] {
        assert_eq!(status("POST", "/v1/chat/completions", say(foreign)), 404, "{foreign}");
    }
    assert_eq!(status("POST", "/v1/projects/team/barn/chat/completions", say("small")), 200);
    assert_eq!(status("POST", "/v1/projects/team/barn/chat/completions", say("large")), 404);
    assert_eq!(status("POST", "/v1/projects/team/shop/chat/completions", say("small")), 404);
    assert_eq!(status("GET", "/v1/projects/team/shop", None), 404);
    assert_eq!(status("DELETE", "/v1/projects/team/shop", None), 404);
    assert_eq!(status("POST", "/v1/projects/team", Some(json!({"name": "new"}))), 403);
    assert_eq!(status("GET", "/mcp/team/shop", None), 404);
    assert_eq!(status("POST", "/conversations", Some(json!({"project": "team/shop"}))), 404);
    assert_eq!(status("POST", "/conversations", Some(json!({"project": "team/barn"}))), 201);
    assert!(project.data_dir().join("projects/team/shop/llamafarm.yaml").exists());
    daemon.stop();
}

#[test]
fn what_one_has_made_is_not_there_for_another() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("hello")));
    let mut document = document(json!({}), &model.base_url(), &[scripted("m", &Script::echoing(&["echo"]))]);
    document["mcp"]["servers"][0]["approval"] = json!("ask");
    let project = TestProject::of(&document);
    let daemon = project.serve();
    let [ann, bob] = ["ann", "bob"].map(|name| project.key(&[name, "--scope", "chat,read,approve,tools"]));
    let (ann, bob) = (("x-api-key", ann.as_str()), ("x-api-key", bob.as_str()));
    let made = |path: &str, body: Value| ask(&daemon, "POST", path, ann, Some(&body)).json();
    let conversation = made("/conversations", json!({}))["conversation"]["id"].as_str().unwrap().to_owned();
    let at = |rest: &str| format!("/conversations/{conversation}{rest}");
    let said = ask(&daemon, "POST", &at("/chat"), ann, Some(&json!({"content": "hi"})));
    let turn = said.header("x-turn-id").unwrap().to_owned();
    let message = said.json()["user_message"]["id"].as_str().unwrap().to_owned();
    let response = made("/v1/responses", json!({"model": "assistant", "input": "hi"}));
    let response = response["id"].as_str().unwrap().to_owned();
    // a call of hers that waits
    let call = json!({"server": "m", "tool": "echo", "arguments": {}});
    let waiting = {
        let (url, key) = (daemon.url("/api/mcp/execute"), ann.1.to_owned());
        std::thread::spawn(move || {
            request("POST", &url, &[("x-api-key", &key)], Some(call.to_string())).status
        })
    };
    let approval = eventually("the approval", || {
        let all = ask(&daemon, "GET", "/v1/approvals", ann, None).ok();
        all["data"][0]["id"].as_str().map(str::to_owned)
    });
    let empty = json!({});
    let paths: Vec<(&str, String, Option<Value>)> = vec![
        ("GET", at(""), None),
        ("PATCH", at(""), Some(json!({"title": "mine"}))),
        ("DELETE", at(""), None),
        ("GET", at("/messages"), None),
        ("POST", at("/messages"), Some(json!({"role": "user", "content": "x"}))),
        ("GET", at(&format!("/messages/{message}")), None),
        ("DELETE", at(&format!("/messages/{message}")), None),
        ("POST", at("/chat"), Some(json!({"content": "x"}))),
        ("GET", at("/tools"), None),
        ("POST", at("/tools"), Some(json!({"server_id": "m", "tool_name": "echo"}))),
        ("DELETE", at("/tools?server_id=m&tool_name=echo"), None),
        ("GET", at("/tools/available"), None),
        ("GET", format!("/v1/turns/{turn}"), None),
        ("GET", format!("/v1/turns/{turn}/events"), None),
        ("POST", format!("/v1/turns/{turn}/cancel"), Some(empty.clone())),
        ("GET", format!("/v1/responses/{response}"), None),
        ("GET", format!("/v1/responses/{response}/input_items"), None),
        ("POST", format!("/v1/responses/{response}/cancel"), Some(empty)),
        ("DELETE", format!("/v1/responses/{response}"), None),
        ("GET", format!("/v1/approvals/{approval}"), None),
        ("POST", format!("/v1/approvals/{approval}"), Some(json!({"decision": "approve"}))),
    ];
    for (method, path, body) in &paths {
        let answer = ask(&daemon, method, path, bob, body.as_ref());
        assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
    }
    // nobody on this machine has them either
    for (method, path, body) in paths.iter().filter(|(_, path, _)| !path.contains("approvals")) {
        assert_eq!(ask(&daemon, method, path, NOBODY, body.as_ref()).status, 404, "{method} {path}");
    }
    let goes_on = json!({"model": "assistant", "input": "and?", "previous_response_id": response});
    assert_eq!(ask(&daemon, "POST", "/v1/responses", bob, Some(&goes_on)).status, 400);
    let within = json!({"model": "assistant", "input": "and?", "conversation": conversation});
    assert_eq!(ask(&daemon, "POST", "/v1/responses", bob, Some(&within)).status, 404);
    assert_eq!(ask(&daemon, "GET", "/conversations", bob, None).ok()["count"], 0);
    assert_eq!(ask(&daemon, "GET", "/v1/approvals", bob, None).ok()["data"], json!([]));
    // all of it is there for her, and for the owner
    for key in [ann, ("accept", "*/*")] {
        for (method, path, _) in paths.iter().filter(|(method, ..)| *method == "GET") {
            assert_eq!(ask(&daemon, method, path, key, None).status, 200, "{method} {path}");
        }
    }
    let decided = ask(
        &daemon,
        "POST",
        &format!("/v1/approvals/{approval}"),
        ann,
        Some(&json!({"decision": "approve"})),
    );
    assert_eq!(decided.status, 200);
    assert_eq!(waiting.join().unwrap(), 200);
    // a session of the same name is another one
    let session = [("x-api-key", ann.1), ("x-session-id", "s")];
    request("POST", &daemon.url("/v1/chat/completions"), &session, Some(chat("hi").to_string())).ok();
    let history = "/v1/projects/default/demo/chat/sessions/s/history";
    assert_eq!(ask(&daemon, "GET", history, ann, None).ok()["messages"].as_array().unwrap().len(), 2);
    assert_eq!(ask(&daemon, "GET", history, bob, None).ok()["messages"], json!([]));
    daemon.stop();
}

#[test]
fn an_mcp_session_is_of_whoever_began_it() {
    let project = TestProject::with_model(NOWHERE, &[]);
    let daemon = project.serve();
    let [ann, bob] = ["ann", "bob"].map(|name| project.key(&[name, "--scope", "read"]));
    let accept = ("accept", "application/json, text/event-stream");
    let client = json!({"name": "c", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let begin = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string();
    let url = daemon.url("/mcp");
    let begun = request("POST", &url, &[accept, ("x-api-key", &ann)], Some(begin));
    let session = begun.header("mcp-session-id").unwrap().to_owned();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    for (key, status) in [(ann.as_str(), 200), (bob.as_str(), 404), ("", 404)] {
        let headers = [accept, ("x-api-key", key), ("mcp-session-id", &session)];
        assert_eq!(request("POST", &url, &headers, Some(list.clone())).status, status);
    }
    daemon.stop();
}

#[test]
fn what_runs_for_a_key_ends_when_it_is_revoked() {
    let model = ScriptedModel::start_with(|_, request| {
        Some(match rounds_so_far(request) {
            0 if request["tools"].is_array() => Reply::call("a", "~wait", json!({})),
            _ => Reply::text("done"),
        })
    });
    let script = Script::with([ScriptedTool::new("wait", Act::Hang)]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &script)]);
    let daemon = project.serve();
    let key = project.key(&["ann"]);
    let header = ("x-api-key", key.as_str());
    let made = ask(&daemon, "POST", "/conversations", header, Some(&json!({}))).json();
    let conversation = made["conversation"]["id"].as_str().unwrap().to_owned();
    let tools = json!({"server_id": "m", "tool_name": "wait"});
    ask(&daemon, "POST", &format!("/conversations/{conversation}/tools"), header, Some(&tools)).ok();
    let started = std::time::Instant::now();
    let kept = {
        let (url, key) = (daemon.url(&format!("/conversations/{conversation}/chat")), key.clone());
        let body = json!({"content": "hi"}).to_string();
        std::thread::spawn(move || request("POST", &url, &[("x-api-key", &key)], Some(body)).status)
    };
    let streamed = {
        let (url, key) = (daemon.url("/v1/chat/completions"), key.clone());
        let body = streamed_chat("hi").to_string();
        std::thread::spawn(move || request("POST", &url, &[("x-api-key", &key)], Some(body)).text)
    };
    eventually("both calls to run", || {
        (daemon.log().matches("Executing MCP tool").count() == 2).then_some(())
    });
    project.run(&["keys", "revoke", "ann"]).ok();
    assert_eq!(kept.join().unwrap(), 401);
    let text = streamed.join().unwrap();
    assert!(!text.contains("[DONE]"), "{text}");
    eventually("the turn to be over", || {
        let url = daemon.url(&format!("/conversations/{conversation}"));
        let running = lf_tests::client::get(&url).ok()["conversation"]["running_turns"].clone();
        (running == json!([])).then_some(())
    });
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    drop(stream(&daemon.url("/v1/chat/completions"), &streamed_chat("hi")));
    daemon.stop();
}

#[test]
fn a_model_that_asks_its_own_daemon_gains_nothing_by_it() {
    let model = obedient();
    let project = TestProject::with_model(NOWHERE, &[]);
    let daemon = project.serve();
    let own = daemon.url("/mcp").replace("127.0.0.1", "localhost");
    let script = Script::echoing(&["secret"]);
    let entry = |name: &str, servers: &[&str]| {
        json!({
            "name": name, "provider": "openai", "model": "x", "base_url": model.base_url(), "api_key": "k",
            "mcp_servers": servers,
        })
    };
    let models = [entry("asker", &["own"]), entry("keeper", &["vault"])];
    let servers = [remote("own", "http", &own), scripted("vault", &script)];
    let other = [entry("foreign", &["vault"])];
    for (name, document) in [("ring", document_of(&models, &servers)), ("far", document_of(&other, &servers))]
    {
        let directory = project.data_dir().join("projects/default").join(name);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("llamafarm.yaml"), format!("{document:#}")).unwrap();
    }
    let everything = "chat,read,tools,config:write,config:exec,approve,admin";
    let owner = project.key(&["strong", "--scope", everything]);
    let chats = "/v1/projects/default/ring/chat/completions";
    let told = |key: (&str, &str), tool: &str, arguments: &Value| -> String {
        let mut body = calling(&format!("own__{tool}"), arguments);
        body["model"] = json!("asker");
        let answer = ask(&daemon, "POST", chats, key, Some(&body));
        answer.ok()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let question = json!({"call": "vault__secret", "arguments": {"n": 42}}).to_string();
    for key in [("x-api-key", owner.as_str()), NOBODY] {
        // other models, other projects
        for (named, why) in [
            (json!({"model": "keeper"}), "may not ask"),
            (json!({"model": "default/ring/keeper"}), "may not ask"),
            (json!({"model": "default/far/foreign"}), "may not ask"),
            (json!({"model": "foreign", "project": "default/far"}), "own project"),
            (json!({"project": "default/demo"}), "own project"),
        ] {
            let mut arguments = named.clone();
            arguments["message"] = json!(question);
            let said = told(key, "chat_completions", &arguments);
            assert!(said.contains(why) && !said.contains("42"), "{named}: {said}");
        }
        // it may ask itself, and has no other tools there either
        let arguments = json!({"model": "asker", "message": question});
        let said = told(key, "chat_completions", &arguments);
        assert!(!said.contains("{\"n\":42}"), "{said}");
        let said = told(key, "models_list", &json!({}));
        assert!(said.contains("asker") && !said.contains("keeper") && !said.contains("foreign"), "{said}");
        let said = told(key, "projects_list", &json!({}));
        assert!(said.contains("ring") && !said.contains("far") && !said.contains("demo"), "{said}");
        let said = told(key, "project_get", &json!({}));
        assert!(said.contains("asker") && !said.contains("keeper") && !said.contains("vault"), "{said}");
        assert!(told(key, "project_get", &json!({"project": "default/far"})).contains("own project"));
        assert!(!told(key, "mcp_servers", &json!({})).contains("vault"));
        for (tool, arguments) in [
            ("project_create", json!({"name": "made"})),
            ("project_update", json!({"project": "default/ring", "config": {}})),
            ("project_delete", json!({"project": "default/far"})),
        ] {
            let said = told(key, tool, &arguments);
            assert!(!said.contains("\"revision\""), "{tool}: {said}");
        }
    }
    let stored = project.data_dir().join("projects/default");
    assert!(stored.join("far/llamafarm.yaml").exists() && !stored.join("made").exists());
    assert!(!daemon.log().contains("tool=\"secret\""), "{}", daemon.log());
    daemon.stop();
}
