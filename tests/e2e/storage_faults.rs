//! The memory of the daemon in trouble: it says what is wrong and where, answers without it meanwhile, throws nothing away,
//! and goes on by itself when the trouble is over.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use lf_tests::client::{Response, chat, get, post, request, stream};
use lf_tests::conversation::{at, create, said};
use lf_tests::disk::Mount;
use lf_tests::project::{Daemon, TestProject};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::{Gate, PATIENCE, eventually};
use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::{Value, json};

fn model() -> ScriptedModel {
    ScriptedModel::start_with(|_, _| Some(Reply::text("hello")))
}

fn data(project: &TestProject) -> PathBuf {
    project.home().join("data")
}

fn database(project: &TestProject) -> PathBuf {
    data(project).join("lf.db")
}

/// Takes all the room there is; it is there again when the file is deleted.
fn fill(directory: &Path) -> PathBuf {
    let path = directory.join("ballast");
    let mut file = File::create(&path).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    path
}

fn converse(daemon: &Daemon, id: &str) -> Response {
    post(&at(daemon, id, "/chat"), &json!({"content": "hi"}))
}

/// A refusal in each dialect that keeps something; the message names the file and has these words.
#[track_caller]
fn assert_refused(daemon: &Daemon, status: u16, code: &str, words: &str) {
    let wrong = |response: &Response, message: &Value| {
        assert_eq!(response.status, status, "{response:?}");
        let message = message.as_str().unwrap_or_default();
        assert!(message.contains(words) && message.contains("/data"), "{response:?}");
    };
    let own = post(&daemon.url("/conversations"), &json!({}));
    wrong(&own, &own.json()["message"]);
    let session = [("x-session-id", "s")];
    let openai = request("POST", &daemon.url("/v1/chat/completions"), &session, Some(chat("hi").to_string()));
    wrong(&openai, &openai.json()["error"]["message"]);
    assert_eq!(openai.json()["error"]["code"], code, "{openai:?}");
    let mut body = chat("hi");
    body["max_tokens"] = json!(100);
    let anthropic = request("POST", &daemon.url("/v1/messages"), &session, Some(body.to_string()));
    wrong(&anthropic, &anthropic.json()["error"]["message"]);
    assert_eq!(anthropic.json()["type"], "error", "{anthropic:?}");
}

#[track_caller]
fn assert_answers_without_memory(daemon: &Daemon) {
    let answer = post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "hello");
}

#[track_caller]
fn assert_keeps_again(daemon: &Daemon) -> String {
    let id = eventually("conversations to be kept again", || {
        let created = post(&daemon.url("/conversations"), &json!({}));
        (created.status == 201).then(|| created.json()["conversation"]["id"].as_str().unwrap().to_owned())
    });
    converse(daemon, &id).ok();
    assert_eq!(said(daemon, &id), ["user: hi", "assistant: hello"]);
    id
}

#[test]
fn a_full_disk_stops_what_is_to_be_kept_and_nothing_else() {
    let model = model();
    let project = TestProject::with_model(&model.base_url(), &[]);
    let _disk = Mount::memory(&data(&project), "2m");
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    converse(&daemon, &id).ok();
    let ballast = fill(&data(&project));
    assert_refused(&daemon, 507, "storage_full", "no space is left");
    assert_answers_without_memory(&daemon);
    assert_eq!(converse(&daemon, &id).status, 507);
    assert_eq!(said(&daemon, &id), ["user: hi", "assistant: hello"], "what is there can be read");
    std::fs::remove_file(ballast).unwrap();
    assert_keeps_again(&daemon);
    converse(&daemon, &id).ok();
    assert_eq!(said(&daemon, &id).len(), 4);
    daemon.stop().ok();
}

#[test]
fn a_turn_whose_disk_fills_up_ends_with_an_error_and_shows_nothing_that_is_not_kept() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |number, _| {
        let long = format!("first {}", "then much more ".repeat(2000));
        let reply = Reply::text(&long).pieces(15);
        Some(match number {
            0 => reply.with(|answer| answer.hold = Some((3, held.clone()))),
            _ => Reply::text("hello"),
        })
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let _disk = Mount::memory(&data(&project), "2m");
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let mut events = stream(&at(&daemon, &id, "/chat"), &json!({"content": "hi", "stream": true}));
    let started = events.until("the start", |event| event["event"] == "started");
    let turn = daemon.url(&format!("/v1/turns/{}", started["turn"].as_str().unwrap()));
    let mut shown = events.until("the first words", |event| event["event"] == "text")["text"].clone();
    let ballast = fill(&data(&project));
    gate.open();
    let rest: Vec<Value> = events.rest().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let last = rest.last().unwrap();
    assert_eq!(last["event"], "failed", "{last}");
    assert!(last.to_string().contains("no space is left"), "{last}");
    let text = |events: &[Value]| {
        let texts = events.iter().filter(|event| event["event"] == "text");
        texts.map(|event| event["text"].as_str().unwrap()).collect::<String>()
    };
    shown = json!(format!("{}{}", shown.as_str().unwrap(), text(&rest)));
    assert_eq!(get(&turn).ok()["status"], "running", "that it is over is not kept yet");
    std::fs::remove_file(ballast).unwrap();
    eventually("the end of the turn to be kept", || (get(&turn).ok()["status"] == "failed").then_some(()));
    let kept = request("GET", &format!("{turn}/events"), &[], None).text;
    let kept: Vec<Value> =
        kept.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    assert_eq!(text(&kept), shown.as_str().unwrap(), "what was shown and what is kept are the same");
    converse(&daemon, &id).ok();
    assert_eq!(said(&daemon, &id), ["user: hi", "assistant: hello"], "what got no answer is said once");
}

#[test]
fn a_directory_that_cannot_be_written_is_used_when_it_can() {
    let model = model();
    let project = TestProject::with_model(&model.base_url(), &[]);
    let disk = Mount::memory(&data(&project), "8m");
    disk.remount("ro");
    let daemon = project.serve();
    assert!(daemon.log().contains("conversations are not kept"), "{}", daemon.log());
    assert_refused(&daemon, 503, "store_unavailable", "Read-only file system");
    assert_answers_without_memory(&daemon);
    assert_eq!(get(&daemon.url("/conversations")).status, 503);
    disk.remount("rw");
    assert_keeps_again(&daemon);
    daemon.stop().ok();
}

#[test]
fn a_turn_that_was_left_goes_on_when_the_store_can_be_used_again() {
    let never = Gate::new();
    let model = ScriptedModel::start_with(move |number, _| {
        Some(if number == 0 { Reply::text("never said").hold(&never) } else { Reply::text("hello") })
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let disk = Mount::memory(&data(&project), "8m");
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    drop(stream(&at(&daemon, &id, "/chat"), &json!({"content": "hi", "stream": true})));
    model.wait_for_requests(1);
    daemon.signal(Signal::SIGKILL);
    daemon.wait(PATIENCE);
    disk.remount("ro");
    let daemon = project.serve();
    assert_refused(&daemon, 503, "store_unavailable", "Read-only file system");
    disk.remount("rw");
    model.wait_for_requests(2);
    eventually("the answer to be kept", || (said(&daemon, &id).len() == 2).then_some(()));
    assert_eq!(said(&daemon, &id), ["user: hi", "assistant: hello"]);
}

#[test]
fn a_database_that_another_program_holds_is_waited_for_and_then_told() {
    let model = model();
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let other = Connection::open(database(&project)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_refused(&daemon, 503, "store_unavailable", "is locked by another program");
    assert_answers_without_memory(&daemon);
    assert_eq!(said(&daemon, &id), [] as [&str; 0], "what is there can be read");
    other.execute_batch("ROLLBACK").unwrap();
    assert_keeps_again(&daemon);
}

#[test]
fn a_damaged_database_is_left_as_it_is_until_it_is_repaired() {
    let model = model();
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    converse(&daemon, &id).ok();
    daemon.stop().ok();
    // the last one who closes it brings all of its log into the file
    let file = Connection::open(database(&project)).unwrap();
    file.execute_batch("PRAGMA wal_checkpoint").unwrap();
    drop(file);
    assert!(!data(&project).join("lf.db-wal").exists());
    let whole = std::fs::read(database(&project)).unwrap();
    // without its beginning it is no database; without its pages it is found out by whoever reads them
    for from in [0, 4096] {
        let mut damaged = whole.clone();
        damaged[from..].fill(0x5a);
        std::fs::write(database(&project), &damaged).unwrap();
        let daemon = project.serve();
        assert_refused(&daemon, 503, "store_unavailable", "is damaged");
        assert_answers_without_memory(&daemon);
        assert_eq!(std::fs::read(database(&project)).unwrap(), damaged, "it is left as it is");
        std::fs::write(database(&project), &whole).unwrap();
        eventually("what was said to be back", || {
            (get(&at(&daemon, &id, "/messages")).status == 200).then_some(())
        });
        assert_eq!(said(&daemon, &id), ["user: hi", "assistant: hello"]);
    }
}

#[test]
fn a_database_of_a_later_version_is_not_touched() {
    let model = model();
    let project = TestProject::with_model(&model.base_url(), &[]);
    project.serve().stop().ok();
    let set_version = |version: i64| {
        let file = Connection::open(database(&project)).unwrap();
        let before: i64 = file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        file.pragma_update(None, "user_version", version).unwrap();
        before
    };
    let known = set_version(1000);
    let daemon = project.serve();
    assert_refused(&daemon, 503, "store_unavailable", "schema version 1000");
    assert_answers_without_memory(&daemon);
    assert_eq!(set_version(known), 1000);
    assert_keeps_again(&daemon);
}

#[test]
fn a_database_that_is_moved_away_is_whole_and_a_new_one_is_begun() {
    let model = model();
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    converse(&daemon, &id).ok();
    let away = project.home().join("away");
    std::fs::create_dir(&away).unwrap();
    let move_all = || {
        for file in ["lf.db", "lf.db-wal", "lf.db-shm"] {
            std::fs::rename(data(&project).join(file), away.join(file)).unwrap();
        }
    };
    // without its log it is not whole, and a new one must not take that log for its own
    std::fs::rename(database(&project), away.join("lf.db")).unwrap();
    assert_refused(&daemon, 503, "store_unavailable", "it is gone, but its log");
    assert_answers_without_memory(&daemon);
    std::fs::rename(away.join("lf.db"), database(&project)).unwrap();
    eventually("what was said to be back", || {
        (get(&at(&daemon, &id, "/messages")).status == 200).then_some(())
    });
    assert_eq!(said(&daemon, &id), ["user: hi", "assistant: hello"]);
    move_all();
    assert_keeps_again(&daemon);
    assert_eq!(converse(&daemon, &id).status, 404, "it went with the file");
    let file = Connection::open(away.join("lf.db")).unwrap();
    let count: i64 = file.query_row("SELECT count(*) FROM message", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 2);
    // and with the whole directory
    std::fs::remove_dir_all(data(&project)).unwrap();
    assert_answers_without_memory(&daemon);
    let kept = assert_keeps_again(&daemon);
    daemon.stop().ok();
    let daemon = project.serve();
    assert_eq!(said(&daemon, &kept), ["user: hi", "assistant: hello"]);
}
