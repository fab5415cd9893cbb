//! Conversations that are kept: as the documents describe them, under the clients' own names, and after a crash.

use std::path::Path;

use lf_tests::client::{Response, get, post, request, stream};
use lf_tests::conversation::{at, create, said};
use lf_tests::project::{Daemon, TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use lf_tests::wait::{Gate, PATIENCE, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

mod trouble;

fn delete(url: &str) -> Response {
    request("DELETE", url, &[], None)
}

/// How often the tool was called.
pub(super) fn calls(log: &Path, tool: &str) -> usize {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    log.lines().filter(|line| line.starts_with(&format!("call {tool} "))).count()
}

#[test]
fn the_documents_conversation_works_field_by_field() {
    let model = ScriptedModel::start([
        Reply::calls([Call::new("call_123", "files__look", json!({"path": "/docs"}))]),
        Reply::text("The /docs directory contains: README.md"),
    ]);
    let servers = [scripted("files", &Script::echoing(&["look", "hide"]))];
    let project = TestProject::with_model(&model.base_url(), &servers);
    let daemon = project.serve();
    let id = create(&daemon, &json!({"title": "Docs", "system_prompt": "Be brief."}));

    let available = get(&at(&daemon, &id, "/tools/available")).ok();
    assert_eq!(available["count"], 2, "{available}");
    assert_eq!(available["tools"][0]["enabled"], false);
    let tool = json!({"server_id": "files", "tool_name": "look"});
    assert_eq!(post(&at(&daemon, &id, "/tools"), &tool).ok()["success"], true);
    assert_eq!(get(&at(&daemon, &id, "/tools")).ok()["enabled_tools"], json!([tool]));

    let answer = post(&at(&daemon, &id, "/chat"), &json!({"content": "What files are in /docs?"})).ok();
    assert_eq!(answer["success"], true);
    assert_eq!(answer["message"], "Chat completed successfully");
    assert_eq!(answer["user_message"]["role"], "user");
    assert_eq!(answer["user_message"]["content"], "What files are in /docs?");
    assert_eq!(answer["assistant_message"]["content"], "The /docs directory contains: README.md");

    let asked = model.request(0);
    let offered: Vec<&str> = asked.body["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert_eq!(offered, ["files__look"], "only what was enabled");
    assert_eq!(asked.messages()[0]["content"], "Be brief.");

    let messages = get(&at(&daemon, &id, "/messages")).ok();
    let messages = messages["messages"].as_array().expect("messages");
    let roles: Vec<&str> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    assert_eq!(messages[1]["content"], Value::Null);
    let call = &messages[1]["tool_calls"][0];
    assert_eq!((&call["id"], &call["type"]), (&json!("call_123"), &json!("function")));
    assert_eq!(call["function"]["name"], "files__look");
    assert_eq!(call["function"]["arguments"], r#"{"path":"/docs"}"#);
    assert_eq!(
        (&messages[2]["tool_call_id"], &messages[2]["name"]),
        (&json!("call_123"), &json!("files__look"))
    );
    assert!(messages.iter().all(|message| message["timestamp"].as_str().is_some_and(|at| at.ends_with('Z'))));
    assert_eq!(messages[0]["id"], answer["user_message"]["id"]);
    assert_eq!(messages[3]["id"], answer["assistant_message"]["id"]);
    model.finish();
}

#[test]
fn conversations_are_listed_found_renamed_and_forgotten_and_survive_a_restart() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("Hay is for goats.")));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let first = create(&daemon, &json!({"title": "Goats"}));
    let second = create(&daemon, &json!({}));
    post(&at(&daemon, &first, "/chat"), &json!({"content": "Who eats it?"})).ok();
    let list = |daemon: &Daemon, query: &str| {
        let listed = get(&daemon.url(&format!("/conversations{query}"))).ok();
        let ids = listed["conversations"].as_array().expect("conversations").iter();
        ids.map(|one| one["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list(&daemon, ""), [first.clone(), second.clone()], "the last used one first");
    assert_eq!(list(&daemon, "?search=HAY+goats"), std::slice::from_ref(&first));
    assert_eq!(list(&daemon, "?limit=1&offset=1"), std::slice::from_ref(&second));
    let renamed =
        request("PATCH", &at(&daemon, &second, ""), &[], Some(json!({"title": "Sheep"}).to_string()));
    assert_eq!(renamed.ok()["conversation"]["title"], "Sheep");
    daemon.stop().ok();

    let daemon = project.serve();
    let another = project.run(&["serve", "--port", "0"]).failed(1);
    assert!(another.contains("in use by another daemon") && another.contains("LF_DATA_DIR"), "{another}");
    assert_eq!(list(&daemon, "?q=sheep"), std::slice::from_ref(&second));
    assert_eq!(said(&daemon, &first), ["user: Who eats it?", "assistant: Hay is for goats."]);
    assert_eq!(delete(&at(&daemon, &first, "")).ok()["success"], true);
    let gone = post(&at(&daemon, &first, "/chat"), &json!({"content": "hi"}));
    assert_eq!((gone.status, &gone.json()["error"]), (404, &json!("ConversationNotFound")), "{gone:?}");
    assert_eq!(list(&daemon, ""), [second]);
    model.finish();
}

#[test]
fn mistakes_are_told_and_change_nothing() {
    let model = ScriptedModel::start([]);
    let servers = [scripted("files", &Script::echoing(&["look"]))];
    let project = TestProject::with_model(&model.base_url(), &servers);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let message = |answer: Response, status: u16| {
        assert_eq!(answer.status, status, "{answer:?}");
        answer.json()["message"].as_str().expect("a message").to_owned()
    };
    let chat = |body: Value| post(&at(&daemon, &id, "/chat"), &body);
    assert!(message(chat(json!({"content": " "})), 400).contains("say something"));
    assert!(message(chat(json!({"text": "hi"})), 400).contains("unknown field `text`"));
    assert!(
        message(chat(json!({"content": "hi", "model": "none"})), 404).contains("the models are: assistant")
    );
    let tool = |server: &str, name: &str| {
        post(&at(&daemon, &id, "/tools"), &json!({"server_id": server, "tool_name": name}))
    };
    assert!(message(tool("files", "no"), 400).contains("has no tool `no`"));
    assert!(message(tool("none", "look"), 404).contains("the servers are: files"));
    let patch = request("PATCH", &at(&daemon, &id, ""), &[], Some(json!({"id": "x"}).to_string()));
    assert!(message(patch, 400).contains("`id` cannot be changed"));
    assert!(
        message(get(&daemon.url("/conversations/none/messages")), 404).contains("no conversation `none`")
    );
    assert!(message(get(&daemon.url("/v1/turns/none/events")), 404).contains("no turn `none`"));
    assert_eq!(said(&daemon, &id), [] as [&str; 0]);
    model.finish();
}

#[test]
fn a_turn_goes_on_without_its_client_and_is_watched_from_any_event() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, _| {
        Some(Reply::text("one two three four five six seven").pieces(4).hold(&held))
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let mut events = stream(&at(&daemon, &id, "/chat"), &json!({"content": "count", "stream": true}));
    let started = events.until("the start", |event| event["event"] == "started");
    let turn = started["turn"].as_str().unwrap().to_owned();
    drop(events);
    let url = daemon.url(&format!("/v1/turns/{turn}"));
    assert_eq!(get(&url).ok()["status"], "running");
    assert_eq!(get(&at(&daemon, &id, "")).ok()["conversation"]["running_turns"], json!([turn]));
    gate.open();
    let whole = request("GET", &format!("{url}/events"), &[], None).text;
    let text: String = whole
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
        .filter(|event| event["event"] == "text")
        .map(|event| event["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(text, "one two three four five six seven");
    assert_eq!(get(&url).ok()["status"], "finished");
    let later = request("GET", &format!("{url}/events"), &[("last-event-id", "3")], None).text;
    assert!(later.contains("id: 4\n") && !later.contains("id: 3\n"), "{later}");
    assert!(whole.ends_with(&later), "the same events, live and from the journal");
    assert_eq!(said(&daemon, &id), ["user: count", "assistant: one two three four five six seven"]);
    let wrong = request("GET", &format!("{url}/events?after=x"), &[], None);
    assert_eq!(wrong.status, 400, "{wrong:?}");
}

#[test]
fn a_turn_that_is_cancelled_lets_go_of_its_tools_and_leaves_a_conversation_that_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let script = Script { log: Some(log.clone()), ..Script::with([ScriptedTool::new("wait", Act::Hang)]) };
    let model = ScriptedModel::start([
        Reply::calls([Call::new("a", "m__wait", json!({}))]),
        Reply::text("You stopped me."),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &script)]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    post(&at(&daemon, &id, "/tools"), &json!({"server_id": "m", "tool_name": "wait"})).ok();
    let mut events = stream(&at(&daemon, &id, "/chat"), &json!({"content": "wait", "stream": true}));
    let turn = events.until("the start", |event| event["event"] == "started")["turn"].clone();
    eventually("the call to arrive", || (calls(&log, "wait") == 1).then_some(()));
    let cancelled =
        post(&daemon.url(&format!("/v1/turns/{}/cancel", turn.as_str().unwrap())), &json!({})).ok();
    assert_eq!(cancelled["status"], "cancelled");
    eventually("the server to be told", || {
        std::fs::read_to_string(&log).unwrap().contains("cancelled wait").then_some(())
    });
    let last: Value = serde_json::from_str(events.rest().last().unwrap()).unwrap();
    assert_eq!(last["event"], "finished");
    let answer = post(&at(&daemon, &id, "/chat"), &json!({"content": "what happened?"})).ok();
    assert_eq!(answer["assistant_message"]["content"], "You stopped me.");
    assert!(model.request(1).result_of("a").is_some_and(|result| result.contains("outcome is unknown")));
    model.finish();
}

#[test]
fn a_session_of_the_clients_naming_remembers_and_does_not_double() {
    let model = ScriptedModel::start_with(|at, _| Some(Reply::text(&format!("answer {at}"))));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let url = daemon.url("/v1/projects/default/demo/chat/completions");
    let ask = |messages: Value, headers: &[(&str, &str)]| {
        let body = json!({"model": "assistant", "messages": messages});
        request("POST", &url, headers, Some(body.to_string()))
    };
    let user = |text: &str| json!({"role": "user", "content": text});
    let headers = [("x-session-id", "s 1")];
    let first = ask(json!([user("one")]), &headers);
    assert_eq!(first.header("x-session-id"), Some("s 1"));
    assert_eq!(first.ok()["choices"][0]["message"]["content"], "answer 0");
    ask(json!([user("two")]), &headers).ok();
    let transcript = json!([
        {"role": "system", "content": "Be brief."},
        user("one"),
        {"role": "assistant", "content": "answer 0"},
        user("two"),
        {"role": "assistant", "content": "answer 1"},
        user("three"),
    ]);
    ask(transcript, &headers).ok();
    let said: Vec<String> = model
        .request(2)
        .messages()
        .iter()
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(said, ["Be brief.", "one", "answer 0", "two", "answer 1", "three"]);
    let history = daemon.url("/v1/projects/default/demo/chat/sessions/s%201/history");
    assert_eq!(get(&history).ok()["messages"].as_array().unwrap().len(), 6);

    let stateless = ask(json!([user("four")]), &[("x-session-id", "s 1"), ("x-no-session", "1")]);
    assert_eq!((stateless.status, stateless.header("x-session-id")), (200, None));
    assert_eq!(model.request(3).messages().len(), 1);
    assert_eq!(get(&history).ok()["messages"].as_array().unwrap().len(), 6);
    let deleted = delete(&daemon.url("/v1/projects/default/demo/chat/sessions")).ok();
    assert_eq!(deleted, json!({"message": "Deleted 1 session(s)", "count": 1}));
    assert_eq!(get(&history).ok()["messages"], json!([]));
    model.finish();
}

#[test]
fn turns_of_one_conversation_are_put_in_order() {
    let model = ScriptedModel::start_with(|at, _| Some(Reply::text(&format!("answer {at}"))));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let url = at(&daemon, &id, "/chat");
    std::thread::scope(|scope| {
        for each in 0..20 {
            let url = &url;
            scope.spawn(move || post(url, &json!({"content": format!("question {each}")})).ok());
        }
    });
    let said = said(&daemon, &id);
    assert_eq!(said.len(), 40);
    for (turn, pair) in said.chunks(2).enumerate() {
        assert!(pair[0].starts_with("user: question "), "{said:?}");
        assert_eq!(pair[1], format!("assistant: answer {turn}"));
    }
    model.finish();
}

#[test]
fn what_waits_in_a_conversation_that_is_deleted_is_told_so() {
    let model = ScriptedModel::start([Reply::silence()]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let url = at(&daemon, &id, "/chat");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| post(&url, &json!({"content": "one"})));
        model.wait_for_requests(1);
        let second = scope.spawn(|| post(&url, &json!({"content": "two"})));
        assert_eq!(delete(&at(&daemon, &id, "")).ok()["success"], true);
        let second = second.join().unwrap();
        assert_eq!(second.status, 404, "{second:?}");
        assert_eq!(first.join().unwrap().json()["success"], true, "what there was of it");
    });
    model.finish();
}

#[test]
fn a_killed_daemon_goes_on_with_its_turn_and_runs_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let (log, gate) = (directory.path().join("log"), directory.path().join("gate"));
    let script = Script {
        log: Some(log.clone()),
        ..Script::with([ScriptedTool::new("pay", Act::Gate(gate)), ScriptedTool::new("look", Act::Echo)])
    };
    let model = ScriptedModel::start([
        Reply::calls([Call::new("a", "m__look", json!({"n": 1}))]),
        Reply::calls([
            Call::new("b", "m__pay", json!({"sum": 5})),
            Call::new("c", "m__look", json!({"n": 2})),
        ]),
        Reply::text("I do not know whether it was paid."),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &script)]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    for tool in ["pay", "look"] {
        post(&at(&daemon, &id, "/tools"), &json!({"server_id": "m", "tool_name": tool})).ok();
    }
    let mut events = stream(&at(&daemon, &id, "/chat"), &json!({"content": "pay", "stream": true}));
    let turn =
        events.until("the start", |event| event["event"] == "started")["turn"].as_str().unwrap().to_owned();
    events.until("the second result", |event| event["event"] == "tool_result" && event["call_id"] == "c");
    eventually("the payment to begin", || (calls(&log, "pay") == 1).then_some(()));
    daemon.signal(Signal::SIGKILL);
    drop(events);
    daemon.wait(PATIENCE);

    let daemon = project.serve();
    let url = daemon.url(&format!("/v1/turns/{turn}"));
    eventually("the turn to end", || (get(&url).ok()["status"] == "finished").then_some(()));
    assert_eq!((calls(&log, "pay"), calls(&log, "look")), (1, 2), "nothing ran twice");
    let asked = model.request(2);
    assert!(asked.result_of("b").is_some_and(|result| result.contains("outcome is unknown")), "{asked:?}");
    assert!(asked.result_of("c").is_some_and(|result| result.contains('2')), "{asked:?}");
    let said = said(&daemon, &id);
    assert_eq!(said.last().unwrap(), "assistant: I do not know whether it was paid.");
    assert_eq!(said.len(), 7, "{said:?}");
    model.finish();
}

#[test]
fn without_its_memory_the_daemon_still_answers_and_says_what_is_wrong() {
    let model = ScriptedModel::start([Reply::text("hello")]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let data = project.home().join("data");
    std::fs::create_dir_all(&data).unwrap();
    let damaged = "no database at all, ".repeat(400);
    std::fs::write(data.join("lf.db"), &damaged).unwrap();
    let daemon = project.serve();
    assert!(daemon.log().contains("conversations are not kept"), "{}", daemon.log());
    let refused = post(&daemon.url("/conversations"), &json!({}));
    assert_eq!(refused.status, 503, "{refused:?}");
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("lf.db") && message.contains("damaged"), "{message}");
    let body = json!({"model": "assistant", "messages": [{"role": "user", "content": "hi"}]});
    let answer = post(&daemon.url("/v1/chat/completions"), &body).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "hello");
    assert_eq!(std::fs::read_to_string(data.join("lf.db")).unwrap(), damaged, "it is left as it is");
    model.finish();
}
