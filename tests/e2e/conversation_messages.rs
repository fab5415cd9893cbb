//! Messages of kept conversations: added without a question, read one by one, and deleted for good.

use lf_tests::client::{get, post, request, stream};
use lf_tests::project::{Daemon, TestProject};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::Gate;
use serde_json::{Value, json};

fn create(daemon: &Daemon) -> String {
    let created = post(&daemon.url("/conversations"), &json!({}));
    created.json()["conversation"]["id"].as_str().expect("an id").to_owned()
}

#[test]
fn messages_are_added_without_asking_and_read_by_the_model_later() {
    let model = ScriptedModel::start([Reply::text("Blue.")]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon);
    let url = daemon.url(&format!("/v1/conversations/{id}/messages"));
    let add = |message: Value| post(&url, &message);
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let said = [
        json!({"role": "user", "content": "Look at the sky."}),
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "call_1", "name": "look", "content": "blue"}),
        json!({"role": "assistant", "content": "I looked."}),
    ];
    for message in &said {
        let added = add(message.clone());
        assert_eq!(added.status, 201, "{added:?}");
        let mut added = added.json()["message"].clone();
        let own = added["id"].as_str().unwrap().to_owned();
        assert_eq!(get(&format!("{url}/{own}")).ok()["message"], added);
        let fields = added.as_object_mut().unwrap();
        assert!(fields.remove("timestamp").unwrap().as_str().unwrap().ends_with('Z'));
        fields.remove("id");
        assert_eq!(added, *message);
    }
    let chat = daemon.url(&format!("/conversations/{id}/chat"));
    post(&chat, &json!({"content": "Which colour?"})).ok();
    let asked = model.request(0);
    assert_eq!(asked.messages().len(), 5);
    assert_eq!(asked.result_of("call_1").as_deref(), Some("blue"));

    for (wrong, what) in [
        (json!({"role": "user", "content": " "}), "say something"),
        (json!({"role": "bot", "content": "x"}), "role"),
        (json!({"role": "user", "text": "x"}), "`text` is no field"),
        (json!({"role": "tool", "tool_call_id": "call_1", "content": "again"}), "no open call"),
        (json!({"role": "assistant", "content": ""}), "no `tool_calls`"),
        (json!({"content": "x"}), "`role` is missing"),
    ] {
        let refused = add(wrong);
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.json()["message"].as_str().unwrap().contains(what), "{refused:?}");
    }
    assert_eq!(get(&format!("{url}/msg-none")).status, 404);
    assert_eq!(get(&url).ok()["count"], 6);
    model.finish();
}

#[test]
fn long_conversations_are_read_in_parts() {
    let model = ScriptedModel::start([]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon);
    let url = daemon.url(&format!("/conversations/{id}/messages"));
    let words = |messages: &Value| -> Vec<String> {
        let all = messages["messages"].as_array().unwrap().iter();
        all.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    };
    for n in 1..=5 {
        assert_eq!(post(&url, &json!({"role": "user", "content": n.to_string()})).status, 201);
    }
    let first = get(&format!("{url}?limit=2")).ok();
    assert_eq!((words(&first).concat(), &first["count"]), ("12".to_owned(), &json!(2)));
    let second = get(&format!("{url}?limit=3&after={}", first["next_after"])).ok();
    assert_eq!(words(&second).concat(), "345");
    assert_eq!(second.get("next_after"), None, "it is the last");
    for (limit, expected) in [("0", "1"), ("5", "12345"), ("4000000000", "12345")] {
        assert_eq!(words(&get(&format!("{url}?limit={limit}")).ok()).concat(), expected);
    }
    assert_eq!(get(&format!("{url}?limit=many")).status, 400);
    // an answer has room for 4 MiB, and for the one that goes beyond
    for words in ["x".repeat(9 * 1024 * 1024), "y".repeat(9 * 1024 * 1024), "8".to_owned()] {
        assert_eq!(post(&url, &json!({"role": "user", "content": words})).status, 201);
    }
    let part = get(&url).ok();
    assert_eq!(part["count"], 6);
    let part = get(&format!("{url}?after={}", part["next_after"])).ok();
    assert!(words(&part).concat().bytes().all(|letter| letter == b'y'));
    assert_eq!(words(&get(&format!("{url}?after={}", part["next_after"])).ok()), ["8"]);
    let shown = project.run(&["conversations", "export", &id, "--server", &daemon.url("")]).ok();
    assert_eq!(words(&shown.json()).len(), 8, "the terminal reads on");
}

#[test]
fn a_deleted_message_is_nowhere_any_more() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |at, _| {
        let reply = Reply::text(&format!("answer {at}"));
        Some(if at == 2 { reply.hold(&held) } else { reply })
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon);
    let chat = daemon.url(&format!("/conversations/{id}/chat"));
    let first = post(&chat, &json!({"content": "my secret is quokka"}));
    let turn = first.header("x-turn-id").expect("a turn").to_owned();
    post(&chat, &json!({"content": "forget it"})).ok();
    let secret = first.ok()["user_message"]["id"].as_str().unwrap().to_owned();
    let url = daemon.url(&format!("/conversations/{id}/messages/{secret}"));

    let mut running = stream(&chat, &json!({"content": "quickly", "stream": true}));
    running.until("the start", |event| event["event"] == "started");
    let refused = request("DELETE", &url, &[], None);
    assert_eq!(refused.status, 409, "{refused:?}");
    gate.open();
    running.rest();

    assert_eq!(request("DELETE", &url, &[], None).ok()["success"], true);
    assert_eq!(get(&url).status, 404);
    assert_eq!(request("DELETE", &url, &[], None).status, 404);
    assert_eq!(get(&daemon.url("/conversations?search=quokka")).ok()["count"], 0);
    let events = get(&daemon.url(&format!("/v1/turns/{turn}/events")));
    assert_eq!(events.status, 410, "{events:?}");
    post(&chat, &json!({"content": "what was it?"})).ok();
    assert!(!model.request(3).body.to_string().contains("quokka"));
    for file in std::fs::read_dir(project.home().join("data")).unwrap() {
        let path = file.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        assert!(!bytes.windows(6).any(|at| at == b"quokka"), "it is still in {}", path.display());
    }
}
