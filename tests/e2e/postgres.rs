//! Several daemons on one Postgres database: what one keeps the others know, and one's turns outlive it.

use std::time::{Duration, Instant};

use lf_tests::approvals::{pending, url_of};
use lf_tests::client::{get, post, request, stream};
use lf_tests::conversation::{at, create, said};
use lf_tests::postgres::{Database, PASSWORD, Postgres};
use lf_tests::project::{Daemon, TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use lf_tests::wait::{Gate, PATIENCE, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::conversations::calls;

/// Of daemons that share this database.
fn project(database: &Database, model: &ScriptedModel, servers: &[Value]) -> TestProject {
    TestProject::with_model(&model.base_url(), servers).variable("LF_STORAGE", &database.url())
}

fn say(daemon: &Daemon, conversation: &str, words: &str) -> Value {
    post(&at(daemon, conversation, "/chat"), &json!({"content": words})).ok()
}

/// Begins a turn and leaves it.
fn begin(daemon: &Daemon, conversation: &str, words: &str) -> String {
    let body = json!({"content": words, "stream": true});
    let mut events = stream(&at(daemon, conversation, "/chat"), &body);
    let started = events.until("the start", |event| event["event"] == "started");
    started["turn"].as_str().expect("an id").to_owned()
}

fn status(daemon: &Daemon, turn: &str) -> String {
    let shown = get(&daemon.url(&format!("/v1/turns/{turn}"))).ok();
    shown["status"].as_str().expect("a status").to_owned()
}

/// All events of a turn, when it is over.
fn events(daemon: &Daemon, turn: &str) -> String {
    request("GET", &daemon.url(&format!("/v1/turns/{turn}/events")), &[], None).text
}

#[test]
fn what_one_daemon_keeps_another_one_knows() {
    let database = Postgres::shared().database();
    let model = ScriptedModel::start_with(|at, _| Some(Reply::text(&format!("Hay, {at} times."))));
    let project = project(&database, &model, &[]);
    let (one, other) = (project.serve(), project.serve());
    let id = create(&one, &json!({"title": "Goats"}));
    say(&one, &id, "What do they eat?");
    say(&other, &id, "And then?");
    let expected = [
        "user: What do they eat?",
        "assistant: Hay, 0 times.",
        "user: And then?",
        "assistant: Hay, 1 times.",
    ];
    assert_eq!(said(&one, &id), expected);
    assert_eq!(said(&other, &id), expected);
    assert_eq!(model.request(1).messages().len(), 3, "the model is told what was said at the other one");
    let found = get(&other.url("/conversations?search=HAY")).ok();
    assert_eq!(found["conversations"][0]["id"], json!(id), "{found}");
    one.stop().ok();
    other.stop().ok();
    let again = project.serve();
    assert_eq!(said(&again, &id), expected);
    assert_eq!(database.ask("SELECT count(*) FROM daemon"), "1", "those that ended said so");
    assert!(!project.home().join("data/lf.db").exists());
    model.finish();
}

#[test]
fn turns_of_one_conversation_at_two_daemons_are_put_in_order() {
    let database = Postgres::shared().database();
    let model = ScriptedModel::start_with(|at, _| Some(Reply::text(&format!("answer {at}"))));
    let project = project(&database, &model, &[]);
    let daemons = [project.serve(), project.serve()];
    let id = create(&daemons[0], &json!({}));
    std::thread::scope(|scope| {
        for each in 0..12 {
            let (daemon, id) = (&daemons[each % 2], &id);
            scope.spawn(move || say(daemon, id, &format!("question {each}")));
        }
    });
    let said = said(&daemons[1], &id);
    assert_eq!(said.len(), 24);
    for (turn, pair) in said.chunks(2).enumerate() {
        assert!(pair[0].starts_with("user: question "), "{said:?}");
        assert_eq!(pair[1], format!("assistant: answer {turn}"));
    }
    for at in 0..12 {
        assert_eq!(model.request(at).messages().len(), 2 * at + 1, "each knows all that was said before");
    }
    model.finish();
}

#[test]
fn a_turn_is_watched_and_cancelled_at_another_daemon() {
    let database = Postgres::shared().database();
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |at, _| {
        let reply = Reply::text("one two three four five").pieces(4);
        Some(if at == 0 { reply.hold(&held) } else { Reply::silence() })
    });
    let project = project(&database, &model, &[]);
    let (one, other) = (project.serve(), project.serve());
    let id = create(&one, &json!({}));
    let turn = begin(&one, &id, "count");
    assert_eq!(status(&other, &turn), "running");
    assert_eq!(get(&at(&other, &id, "")).ok()["conversation"]["running_turns"], json!([turn]));
    let watched = std::thread::scope(|scope| {
        let watching = scope.spawn(|| events(&other, &turn));
        gate.open();
        watching.join().unwrap()
    });
    assert_eq!(watched, events(&one, &turn), "the same events, from the store and live");
    assert!(watched.contains("event: finished"), "{watched}");

    let turn = begin(&one, &id, "again");
    model.wait_for_requests(2);
    let cancelled = post(&other.url(&format!("/v1/turns/{turn}/cancel")), &json!({})).ok();
    assert_eq!(cancelled["status"], "cancelled");
    model.wait_for_abort();

    let turn = begin(&one, &id, "and again");
    model.wait_for_requests(3);
    let deleted = request("DELETE", &at(&other, &id, ""), &[], None);
    assert_eq!(deleted.ok()["success"], true);
    assert_eq!(get(&one.url(&format!("/v1/turns/{turn}"))).status, 404);
    eventually("the model to be let go of", || (model.aborted() == 2).then_some(()));
    model.finish();
}

#[test]
fn another_daemon_goes_on_with_the_turn_of_a_killed_one_and_runs_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let (log, gate) = (directory.path().join("log"), directory.path().join("gate"));
    let script = Script {
        log: Some(log.clone()),
        ..Script::with([ScriptedTool::new("pay", Act::Gate(gate)), ScriptedTool::new("look", Act::Echo)])
    };
    let model = ScriptedModel::start([
        Reply::calls([
            Call::new("b", "m__pay", json!({"sum": 5})),
            Call::new("c", "m__look", json!({"n": 2})),
        ]),
        Reply::text("I do not know whether it was paid."),
        Reply::text("Hello again."),
    ]);
    let database = Postgres::shared().database();
    let project = project(&database, &model, &[scripted("m", &script)]);
    let (one, other) = (project.serve(), project.serve());
    let id = create(&one, &json!({}));
    for tool in ["pay", "look"] {
        post(&at(&one, &id, "/tools"), &json!({"server_id": "m", "tool_name": tool})).ok();
    }
    let turn = begin(&one, &id, "pay");
    eventually("the payment to begin", || {
        (calls(&log, "pay") == 1 && calls(&log, "look") == 1).then_some(())
    });
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| events(&other, &turn));
        let next = scope.spawn(|| say(&other, &id, "hello?"));
        one.signal(Signal::SIGKILL);
        let killed = Instant::now();
        let watched = watching.join().unwrap();
        assert!(killed.elapsed() < PATIENCE, "{:?}", killed.elapsed());
        assert!(watched.contains("I do not know whether it was paid."), "{watched}");
        assert_eq!(next.join().unwrap()["assistant_message"]["content"], "Hello again.");
    });
    assert_eq!(status(&other, &turn), "finished");
    assert_eq!((calls(&log, "pay"), calls(&log, "look")), (1, 1), "nothing ran twice");
    let unknown = model.request(1).result_of("b");
    assert!(unknown.as_deref().is_some_and(|result| result.contains("outcome is unknown")), "{unknown:?}");
    let said = said(&other, &id);
    assert_eq!(said[said.len() - 3], "assistant: I do not know whether it was paid.", "{said:?}");
    assert_eq!(said[said.len() - 2], "user: hello?", "{said:?}");
    model.finish();
}

#[test]
fn a_daemon_that_was_taken_for_dead_writes_and_runs_nothing_more() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |at, _| {
        let reply = Reply::text(&format!("said by {at}, in several pieces")).pieces(4);
        Some(if at == 0 { reply.hold(&held) } else { reply })
    });
    let database = Postgres::shared().database();
    let project = project(&database, &model, &[]);
    let (one, other) = (project.serve(), project.serve());
    let id = create(&one, &json!({}));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| say(&one, &id, "who are you?"));
        model.wait_for_requests(1);
        one.signal(Signal::SIGSTOP);
        model.wait_for_requests(2);
        eventually("the turn to end", || {
            (database.ask("SELECT count(*) FROM turn WHERE state = 'finished'") == "1").then_some(())
        });
        // it comes back and finds the answer of its own request
        gate.open();
        one.signal(Signal::SIGCONT);
        let answer = asking.join().unwrap();
        assert_eq!(answer["assistant_message"]["content"], "said by 1, in several pieces", "{answer}");
    });
    for daemon in [&one, &other] {
        assert_eq!(said(daemon, &id), ["user: who are you?", "assistant: said by 1, in several pieces"]);
    }
    say(&one, &id, "and now?");
    model.finish();
}

#[test]
fn a_database_that_is_gone_is_told_and_used_again_when_it_is_back() {
    let server = Postgres::own();
    let database = server.database();
    let model = ScriptedModel::start_with(|at, _| Some(Reply::text(&format!("answer {at}"))));
    let project = project(&database, &model, &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    say(&daemon, &id, "one");

    server.stop();
    // a connection that was there may end before another one is refused
    let message = eventually("the connection to be refused", || {
        let refused = post(&at(&daemon, &id, "/chat"), &json!({"content": "two"}));
        assert_eq!(refused.status, 503, "{refused:?}");
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        message.contains("refused").then_some(message)
    });
    assert!(message.contains(&database.place()), "{message}");
    let body = json!({"model": "assistant", "messages": [{"role": "user", "content": "hi"}]});
    let answer = post(&daemon.url("/v1/chat/completions"), &body).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "answer 1", "without memory");

    // one that starts meanwhile is as good as the others later on
    let late = project.serve();
    assert!(late.log().contains("conversations are not kept: "), "{}", late.log());
    assert_eq!(get(&late.url("/conversations")).status, 503);

    eventually("the log to say so", || daemon.log().contains("the store cannot be used").then_some(()));

    server.start_again();
    let answer = eventually("the database to be used again", || {
        let answer = post(&at(&daemon, &id, "/chat"), &json!({"content": "three"}));
        (answer.status == 200).then(|| answer.json())
    });
    assert_eq!(answer["assistant_message"]["content"], "answer 2");
    let expected = ["user: one", "assistant: answer 0", "user: three", "assistant: answer 2"];
    assert_eq!(said(&late, &id), expected, "what was refused was not kept");
    eventually("the log to say so", || daemon.log().contains("the store can be used again").then_some(()));
    for log in [daemon.log(), late.log()] {
        assert!(!log.contains(PASSWORD), "{log}");
    }
    model.finish();
}

#[test]
fn a_call_that_waits_at_one_daemon_is_seen_and_decided_at_another_one() {
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("log");
    let script = Script { log: Some(log.clone()), ..Script::echoing(&["wipe"]) };
    let mut server = scripted("m", &script);
    server["approval"] = json!("ask");
    let wipe = |id: &str| Reply::calls([Call::new(id, "m__wipe", json!({"path": "/tmp/x"}))]);
    let model = ScriptedModel::start([
        wipe("a"),
        Reply::text("Wiped."),
        wipe("b"),
        Reply::text("As you wish."),
        wipe("c"),
        Reply::text("More."),
    ]);
    let database = Postgres::shared().database();
    let project = project(&database, &model, &[server]);
    let (one, other) = (project.serve(), project.serve());
    let id = create(&one, &json!({}));
    post(&at(&one, &id, "/tools"), &json!({"server_id": "m", "tool_name": "wipe"})).ok();
    let pending = |daemon: &Daemon| {
        let listed = pending(daemon);
        assert!(listed.len() <= 1, "{listed:?}");
        listed.into_iter().next()
    };
    for (decision, status, answer, ran) in
        [("approve", "approved", "Wiped.", 1), ("deny", "denied", "As you wish.", 1)]
    {
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| say(&one, &id, "wipe it"));
            let waiting = eventually("the other one to know of it", || pending(&other));
            assert_eq!(pending(&one).expect("the same")["id"], waiting["id"]);
            assert_eq!(waiting["arguments"], json!({"path": "/tmp/x"}));
            assert_eq!(waiting["conversation_id"], json!(id));
            let url = url_of(&other, &waiting);
            let decided = post(&url, &json!({"decision": decision, "by": "Ada"}));
            assert_eq!(decided.ok()["status"], status);
            assert_eq!(post(&url, &json!({"decision": "approve"})).status, 404, "a decision stands");
            assert_eq!(asking.join().unwrap()["assistant_message"]["content"], answer);
        });
        assert_eq!(calls(&log, "wipe"), ran);
        eventually("nothing to wait any more", || pending(&other).is_none().then_some(()));
    }
    let decided = "SELECT count(*) FROM entry WHERE body LIKE '{\"decided\"%Ada%'";
    assert_eq!(database.ask(decided), "2", "it is in the journal who decided");

    // what waits outlives its daemon
    let turn = begin(&one, &id, "wipe more");
    let waiting = eventually("the other one to know of it", || pending(&other));
    one.signal(Signal::SIGKILL);
    let url = url_of(&other, &waiting);
    eventually("the other one to have the turn, and to take the decision", || {
        let decided = post(&url, &json!({"decision": "approve"}));
        assert!([200, 404, 503].contains(&decided.status), "{decided:?}");
        (decided.status == 200).then_some(())
    });
    eventually("the turn to end", || (status(&other, &turn) == "finished").then_some(()));
    assert_eq!(calls(&log, "wipe"), 2);
    model.finish();
}

/// Says something whose answer comes only once the database is gone, and what is told about it when that is back.
fn answered_through_an_outage(outage: Duration) -> (String, ScriptedModel) {
    let server = Postgres::own();
    let database = server.database();
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |at, _| {
        let reply = Reply::text(&format!("answer {at}")).pieces(2);
        Some(if at == 0 { reply.hold(&held) } else { reply })
    });
    let project = project(&database, &model, &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| say(&daemon, &id, "one"));
        model.wait_for_requests(1);
        server.stop();
        gate.open();
        let begun = Instant::now();
        let is_over = || match outage {
            Duration::ZERO => daemon.log().contains("the store cannot be used").then_some(()),
            outage => (begun.elapsed() > outage).then_some(()),
        };
        eventually("the outage to be over", is_over);
        server.start_again();
        asking.join().unwrap()
    });
    let answer = answer["assistant_message"]["content"].as_str().expect("an answer").to_owned();
    assert_eq!(said(&daemon, &id), ["user: one".to_owned(), format!("assistant: {answer}")]);
    let shown = get(&daemon.url("/conversations")).ok();
    assert_eq!(shown["conversations"][0]["id"], json!(id), "{shown}");
    (answer, model)
}

#[test]
fn a_turn_waits_for_a_database_that_is_gone_for_less_than_a_lease() {
    let (answer, model) = answered_through_an_outage(Duration::ZERO);
    assert_eq!(answer, "answer 0");
    assert_eq!(model.received().len(), 1, "the model is not asked again");
    model.finish();
}

#[test]
fn a_turn_whose_database_was_gone_for_longer_than_a_lease_is_gone_on_with() {
    let (answer, model) = answered_through_an_outage(Duration::from_secs(11));
    assert_eq!(answer, "answer 1", "it was let go of, and the model is asked again");
    model.finish();
}

#[test]
fn a_wrong_address_is_told_without_its_password() {
    let model = ScriptedModel::start([]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let wrong = format!("mysql://lf:{PASSWORD}@db/lf");
    let told = project.run(&["serve", "--port", "0", "--storage", &wrong]).failed(2);
    assert!(told.contains("neither `sqlite` nor") && !told.contains(PASSWORD), "{told}");

    let nowhere = format!("postgres://lf:{PASSWORD}@127.0.0.1:1/lf?connect_timeout=2");
    let daemon = project.serve_with(&["--storage", &nowhere]);
    let refused = post(&daemon.url("/conversations"), &json!({}));
    assert_eq!(refused.status, 503);
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("postgres://127.0.0.1:1/lf"), "{message}");
    assert!(!message.contains(PASSWORD) && !daemon.log().contains(PASSWORD), "{message}");
    model.finish();
}
