//! Conversations when something goes wrong: models that fail, clients that leave, a daemon that ends.

use std::io::Write as _;
use std::net::TcpStream;
use std::thread;

use lf_tests::client::watch;

use super::*;

fn hanging_tool(log: &Path) -> Script {
    Script { log: Some(log.to_owned()), ..Script::with([ScriptedTool::new("pay", Act::Hang)]) }
}

#[test]
fn a_daemon_that_ends_leaves_its_turn_although_a_client_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let model = ScriptedModel::start([
        Reply::calls([Call::new("a", "m__pay", json!({"sum": 5}))]),
        Reply::text("I do not know whether it was paid."),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &hanging_tool(&log))]);
    let daemon = project.serve_with(&["--grace", "100ms"]);
    let id = create(&daemon, &json!({}));
    post(&at(&daemon, &id, "/tools"), &json!({"server_id": "m", "tool_name": "pay"})).ok();
    let url = at(&daemon, &id, "/chat");
    let asked = thread::spawn(move || post(&url, &json!({"content": "pay"})));
    eventually("the call to arrive", || (calls(&log, "pay") == 1).then_some(()));
    let turn = get(&at(&daemon, &id, "")).ok()["conversation"]["running_turns"][0].clone();
    let mut watched = watch(&daemon.url(&format!("/v1/turns/{}/events", turn.as_str().unwrap())), &[]);
    watched.until("the call", |event| event["event"] == "tool_call");
    daemon.signal(Signal::SIGTERM);
    let answer = asked.join().unwrap();
    assert_eq!((answer.status, &answer.json()["error"]), (503, &json!("Unavailable")), "{answer:?}");
    assert!(answer.json()["message"].as_str().unwrap().contains("shutting down"), "{answer:?}");
    let last: Value = serde_json::from_str(watched.rest().last().unwrap()).unwrap();
    assert_eq!(last["event"], "notice");
    assert!(last["text"].as_str().unwrap().contains("goes on when it is back"), "{last}");
    daemon.wait(PATIENCE).ok();

    let daemon = project.serve();
    let url = daemon.url(&format!("/v1/turns/{}", turn.as_str().unwrap()));
    eventually("the turn to end", || (get(&url).ok()["status"] == "finished").then_some(()));
    let result = model.request(1).result_of("a").unwrap();
    assert!(
        result.contains("this daemon was restarted") && result.contains("outcome is unknown"),
        "{result}"
    );
    assert_eq!(calls(&log, "pay"), 1);
    model.finish();
}

#[test]
fn what_a_failed_turn_did_is_remembered_and_what_was_not_answered_is_not_said_twice() {
    let model = ScriptedModel::start([
        Reply::error(400, "not now"),
        Reply::calls([Call::new("a", "m__look", json!({"n": 1}))]),
        Reply::error(400, "no more"),
        Reply::text("As I saw."),
    ]);
    let servers = [scripted("m", &Script::echoing(&["look"]))];
    let project = TestProject::with_model(&model.base_url(), &servers);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    post(&at(&daemon, &id, "/tools"), &json!({"server_id": "m", "tool_name": "look"})).ok();
    let ask = || post(&at(&daemon, &id, "/chat"), &json!({"content": "look"}));
    for _ in 0..2 {
        let rejected = ask();
        assert_eq!(rejected.status, 400, "{rejected:?}");
    }
    let asked: Vec<Value> = model.request(1).messages().to_vec();
    assert_eq!(asked.len(), 1, "it was not answered, and not said twice: {asked:?}");
    let answer = ask().ok();
    assert_eq!(answer["assistant_message"]["content"], "As I saw.");
    assert!(
        model.request(3).result_of("a").is_some(),
        "what was done is known: {:?}",
        model.request(3).messages()
    );
    let roles: Vec<String> =
        said(&daemon, &id).iter().map(|said| said.split(':').next().unwrap().to_owned()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user", "assistant"]);
    model.finish();
}

#[test]
fn a_client_that_leaves_while_its_message_is_written_leaves_a_turn_that_comes_to_its_end() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("hello")));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let database = rusqlite::Connection::open(project.home().join("data/lf.db")).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", daemon.port())).unwrap();
    let body = json!({"content": "hi"}).to_string();
    // the conversation is of whoever began it
    let key = lf_tests::keys::of(&daemon.url("/")).unwrap();
    write!(
        client,
        "POST /conversations/{id}/chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nx-api-key: {key}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    eventually("the turn to be prepared", || daemon.log().contains("MCP tools loaded").then_some(()));
    // all that is left to do is to write it
    drop(client);
    // the database is let go of long before the daemon gives it up
    for _ in 0..5 {
        // meanwhile the daemon sees that the client is gone
        get(&daemon.url("/health/liveness")).ok();
    }
    database.execute_batch("ROLLBACK").unwrap();
    let turns = || -> Vec<String> {
        let mut states = database.prepare("SELECT state FROM turn").unwrap();
        states.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    eventually("the turn to end", || (turns() == ["finished"]).then_some(()));
    assert_eq!(said(&daemon, &id), ["user: hi", "assistant: hello"]);
}
