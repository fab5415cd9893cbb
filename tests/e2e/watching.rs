//! Turns of kept conversations that somebody watches: from any event, many at once, and too slowly.

use lf_tests::client::{Events, get, post, stream, watch};
use lf_tests::project::{Daemon, TestProject};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::{Gate, eventually};
use serde_json::{Value, json};

/// A turn that has begun and waits for its model: the client's stream, and the turn's id.
fn begin(daemon: &Daemon) -> (Events, String) {
    let created = post(&daemon.url("/conversations"), &json!({})).json();
    let id = created["conversation"]["id"].as_str().expect("an id");
    let chat = daemon.url(&format!("/conversations/{id}/chat"));
    let mut events = stream(&chat, &json!({"content": "go", "stream": true}));
    let started = events.until("the start", |event| event["event"] == "started");
    (events, started["turn"].as_str().expect("a turn").to_owned())
}

fn text(events: &[String]) -> String {
    let events = events.iter().map(|event| serde_json::from_str::<Value>(event).expect("JSON"));
    events
        .filter(|event| event["event"] == "text")
        .map(|event| event["text"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_turn_is_heard_from_any_event_while_it_runs_and_afterwards() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, _| {
        let reply = Reply::text("abcdefghijklmnopqrstuvwxyz").pieces(2);
        Some(reply.with(|answer| answer.hold = Some((8, held.clone()))))
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let (mut events, turn) = begin(&daemon);
    events.until("some text", |event| event["text"].as_str().is_some_and(|text| text.contains('c')));
    let url = daemon.url(&format!("/v1/turns/{turn}/events"));
    let live: Vec<Events> = (0..4)
        .map(|seen: usize| match seen % 2 {
            0 => watch(&format!("{url}?after={seen}"), &[]),
            _ => watch(&url, &[("last-event-id", &seen.to_string())]),
        })
        .collect();
    gate.open();
    let live: Vec<Vec<String>> = live.into_iter().map(Events::rest).collect();
    let whole = &live[0];
    assert_eq!(text(whole), "abcdefghijklmnopqrstuvwxyz");
    for (seen, heard) in live.iter().enumerate() {
        assert_eq!(heard[..], whole[seen..], "from event {seen} on");
    }
    for seen in 0..=whole.len() + 1 {
        let late = watch(&url, &[("last-event-id", &seen.to_string())]).rest();
        assert_eq!(late[..], whole[seen.min(whole.len())..], "the same from the journal");
    }
}

#[test]
fn many_watchers_hear_the_same() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, _| {
        Some(Reply::text(&"many words ".repeat(200)).pieces(7).hold(&held))
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let (events, turn) = begin(&daemon);
    let url = daemon.url(&format!("/v1/turns/{turn}/events"));
    let watchers: Vec<Events> = (0..50).map(|_| watch(&format!("{url}?after=1"), &[])).collect();
    gate.open();
    let own = events.rest();
    for watcher in watchers {
        assert_eq!(watcher.rest(), own);
    }
}

#[test]
fn a_watcher_that_does_not_read_holds_up_nobody() {
    const TEXT: usize = 10 * 1024 * 1024;
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, _| {
        Some(Reply::text(&"0123456789abcdef".repeat(TEXT / 16)).pieces(32 * 1024).hold(&held))
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    // neither the client of the turn nor the others read on
    let (client, turn) = begin(&daemon);
    let url = daemon.url(&format!("/v1/turns/{turn}"));
    let idle: Vec<Events> = (0..3).map(|_| watch(&format!("{url}/events"), &[])).collect();
    let quick = watch(&format!("{url}/events"), &[]);
    gate.open();
    assert_eq!(text(&quick.rest()).len(), TEXT, "one who reads hears it all");
    eventually("the turn to end", || (get(&url).ok()["status"] == "finished").then_some(()));
    for late in idle {
        assert_eq!(text(&late.rest()).len(), TEXT, "and so do the others, when they come to it");
    }
    assert_eq!(text(&client.rest()).len(), TEXT);
}
