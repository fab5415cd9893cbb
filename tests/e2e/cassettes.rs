//! Turns that were recorded: written by a chat and by a daemon, shown again, played in the place of a model, and put to
//! another one.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lf_tests::client::{assemble, chat, post, request, stream, streamed_chat};
use lf_tests::program::repository;
use lf_tests::project::{Finished, TestProject, document, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use serde_json::{Value, json};

const QUESTION: &str = "what grows where?";

/// Three rounds, the first of two calls side by side, and an answer.
fn replies() -> [Reply; 4] {
    [
        Reply::calls([
            Call::new("a", "farm__field", json!({"number": 1})),
            Call::new("b", "farm__field", json!({"number": 2})),
        ]),
        Reply::calls([Call::new("c", "farm__barn", json!({"door": "left"}))]),
        Reply::calls([Call::new("d", "farm__nothing", json!({}))]),
        Reply::text("Hay in the first, oats in the second.").pieces(5),
    ]
}

fn farm() -> Value {
    scripted("farm", &Script::echoing(&["field", "barn"]))
}

/// Records the turn, in a project that is gone afterwards with its model and its server; the events that were seen.
fn record(file: &Path) -> Finished {
    let model = ScriptedModel::start(replies());
    let project = TestProject::with_model(&model.base_url(), &[farm()]);
    let file = file.display().to_string();
    let recorded = project.run(&["chat", "--events", "--record", &file, QUESTION]).ok();
    model.finish();
    recorded
}

fn turn_in(directory: &tempfile::TempDir) -> (PathBuf, Finished) {
    let file = directory.path().join("turn.jsonl");
    let recorded = record(&file);
    (file, recorded)
}

/// A project for commands that need none.
fn nowhere() -> TestProject {
    TestProject::new("")
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

#[test]
fn a_recorded_turn_is_shown_again_byte_for_byte_without_its_model_and_server() {
    let directory = tempfile::tempdir().unwrap();
    let (file, recorded) = turn_in(&directory);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(!written.contains("sk-scripted"), "{written}");
    assert_eq!(written.matches("{\"settled\"").count(), 3);

    let copy = directory.path().join("copy.jsonl");
    let project = nowhere();
    let again = project.run(&["replay", &shown(&file), "--events", "--record", &shown(&copy)]).ok();
    assert_eq!(again.stdout, recorded.stdout);
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), written);

    let text = project.run(&["replay", &shown(&file)]).ok();
    assert_eq!(text.stdout, "Hay in the first, oats in the second.\n");
    assert!(text.stderr.contains("→ farm__barn"), "{}", text.stderr);
    let document = project.run(&["replay", &shown(&file), "--json"]).ok().json();
    assert_eq!(document["rounds"], 4, "{document}");
}

#[test]
fn a_cassette_answers_every_face_of_a_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = turn_in(&directory);
    let project = TestProject::playing(&file);
    let daemon = project.serve();
    let answer = "Hay in the first, oats in the second.";

    let url = daemon.url("/v1/chat/completions");
    let streamed = assemble(&stream(&url, &streamed_chat(QUESTION)).rest());
    assert_eq!((streamed.text.as_str(), streamed.done), (answer, true), "{streamed:?}");
    assert_eq!(streamed.progress.iter().filter(|event| *event == "tool_result").count(), 4);
    let whole = post(&url, &chat(QUESTION)).ok();
    assert_eq!(whole["choices"][0]["message"]["content"], answer, "{whole}");

    let body = json!({"model": "assistant", "input": QUESTION});
    let response = post(&daemon.url("/v1/responses"), &body).ok();
    assert!(response["output"].to_string().contains(answer), "{response}");
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]);
    let body = json!({"model": "assistant", "max_tokens": 100, "messages": messages});
    let message = post(&daemon.url("/v1/messages"), &body).ok();
    assert!(message["content"].to_string().contains(answer), "{message}");

    let other = post(&url, &chat("what grows?"));
    assert_eq!(other.status, 400, "{other:?}");
    let told = other.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        told.contains(
            "does not fit: ask 1 is not the recorded one: message 1: recorded `what grows where?`, now"
        ),
        "{told}"
    );
    assert_eq!(project.children().len(), 0, "no server was started");
}

#[test]
fn a_daemon_records_every_turn_and_its_recordings_can_be_shown() {
    let model = ScriptedModel::start(replies().into_iter().chain([Reply::text("And again.")]));
    let directory = tempfile::tempdir().unwrap();
    let recordings = directory.path().join("made/here");
    let project =
        TestProject::with_model(&model.base_url(), &[farm()]).variable("LF_RECORD", &shown(&recordings));
    let daemon = project.serve();
    let url = daemon.url("/v1/chat/completions");
    let answer = post(&url, &chat(QUESTION)).ok();
    let session = [("X-Session-ID", "one"), ("content-type", "application/json")];
    request("POST", &url, &session, Some(chat("and?").to_string())).ok();
    daemon.stop().ok();
    model.finish();

    let turn = answer["id"].as_str().unwrap().trim_start_matches("chatcmpl-").to_owned();
    let files: Vec<PathBuf> =
        std::fs::read_dir(&recordings).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(files.contains(&recordings.join(format!("{turn}.jsonl"))), "{files:?}");
    let mut answers: Vec<String> =
        files.iter().map(|file| nowhere().run(&["replay", &shown(file)]).ok().stdout).collect();
    answers.sort();
    assert_eq!(answers, ["And again.\n", "Hay in the first, oats in the second.\n"]);
}

#[test]
fn another_model_is_told_apart_by_the_first_thing_it_does_differently() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = turn_in(&directory);
    let put_to = |replies: Vec<Reply>, more: &[&str]| {
        let model = ScriptedModel::start(replies);
        let project = TestProject::with_model(&model.base_url(), &[farm()]);
        let file = shown(&file);
        let finished = project.run(&[&["replay", &file, "--model", "assistant"], more].concat());
        (finished, model)
    };

    let (same, model) = put_to(replies().to_vec(), &[]);
    assert!(same.ok().stderr.contains("every round is as it was recorded"));
    let asked = model.request(1);
    assert_eq!(asked.result_of("b").as_deref(), Some(r#"{"number":2}"#), "the recorded result");
    model.finish();
    let (run, _model) = put_to(replies().to_vec(), &["--run-tools"]);
    run.ok();

    let mut other = replies().to_vec();
    other[1] = Reply::calls([Call::new("c", "farm__barn", json!({"door": "right"}))]);
    let (finished, model) = put_to(other.clone(), &[]);
    let error = finished.failed(1);
    assert!(
        error.contains(
            r#"round 2 is not as it was recorded: call 1: `farm__barn`, its arguments: recorded `{"door":"left"}`, now"#
        ),
        "{error}"
    );
    assert!(model.request(2).result_of("c").unwrap().contains("has no such call"));
    let (finished, _model) = put_to(other, &["--json"]);
    assert_eq!(finished.json()["difference"]["round"], 2, "{}", finished.stdout);

    let (finished, _model) = put_to(vec![Reply::text("Nothing grows.")], &[]);
    let error = finished.failed(1);
    assert!(
        error.contains("round 1 is not as it was recorded: call 1: recorded `farm__field`, now none"),
        "{error}"
    );
    let unknown = nowhere_with_model().run(&["replay", &shown(&file), "--model", "none"]).failed(2);
    assert!(unknown.contains("model `none` does not exist"), "{unknown}");
}

fn nowhere_with_model() -> TestProject {
    TestProject::of(&document(json!({}), "http://127.0.0.1:9/v1", &[]))
}

#[test]
fn what_cannot_be_played_or_written_is_told_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let (file, _) = turn_in(&directory);
    let whole = std::fs::read_to_string(&file).unwrap();
    let project = nowhere_with_model();
    let play = |name: &str, text: &str| {
        let file = project.write(name, text);
        let error = project.run(&["replay", &shown(&file)]).failed(2);
        assert!(error.contains(&shown(&file)), "{error}");
        error
    };
    assert!(play("cut.jsonl", &whole[..whole.len() - 9]).contains("is cut off"));
    assert!(
        play("new.jsonl", &whole.replacen("\"cassette\":1", "\"cassette\":2", 1)).contains("of version 2")
    );
    assert!(play("notes.txt", "Hay and oats.\n").contains("it is no cassette"));
    assert!(play("odd.jsonl", &whole.replace("\"ran\"", "\"run\"")).contains("unknown variant `run`"));
    let missing = project.run(&["replay", "none.jsonl"]).failed(2);
    assert!(missing.contains("cannot read none.jsonl"), "{missing}");
    let lines: Vec<&str> = whole.lines().collect();
    let half = project.write("half.jsonl", &(lines[..lines.len() - 3].join("\n") + "\n"));
    let error = project.run(&["replay", &shown(&half)]).failed(1);
    assert!(error.contains("the recording ends before the turn does"), "{error}");

    let chat = |arguments: &[&str], status: i32| {
        project.run(&[&["chat", "--record"], arguments].concat()).failed(status)
    };
    assert!(chat(&[&shown(&file), "hi"], 1).contains("exists already"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), whole);
    assert!(chat(&["none/at/all.jsonl", "hi"], 1).contains("cannot write none/at/all.jsonl"));
    let error = chat(&["a.jsonl", "--server", "http://127.0.0.1:9", "hi"], 2);
    assert!(error.contains("`lf serve --record DIR`"), "{error}");
    assert!(chat(&["b.jsonl", "--model", "none", "hi"], 1).contains("does not exist"));
    assert!(!project.path().join("b.jsonl").exists(), "nothing was recorded");
    let error = project.run(&["serve", "--port", "0", "--record", &shown(&file)]).failed(1);
    assert!(error.contains("turns cannot be recorded in"), "{error}");
}

#[test]
fn a_cassette_that_cannot_be_played_is_the_model_s_trouble() {
    let project = TestProject::playing(Path::new("none.jsonl"));
    let daemon = project.serve();
    let refused = post(&daemon.url("/v1/chat/completions"), &chat("hi"));
    assert_eq!(refused.status, 502, "{refused:?}");
    let told = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(told.contains("the cassette `none.jsonl`") && told.contains("No such file"), "{told}");
    assert!(!told.contains(&shown(project.path())), "{told}");
    project.write("none.jsonl", "Hay and oats.\n");
    let refused = post(&daemon.url("/v1/chat/completions"), &chat("hi"));
    assert!(refused.json()["error"]["message"].as_str().unwrap().contains("no cassette"), "{refused:?}");
}

#[test]
fn a_recording_that_was_killed_has_whole_lines() {
    use lf_tests::wait::{Gate, eventually};
    use nix::sys::signal::Signal;

    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, _| {
        let gate = held.clone();
        Some(Reply::text("one two three four five").pieces(4).with(|answer| answer.hold = Some((4, gate))))
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let file = project.path().join("turn.jsonl");
    let chat = project.start(&["chat", "--record", "turn.jsonl", "count"]);
    eventually("a piece of the answer", || {
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        written.contains("{\"delta\"").then_some(())
    });
    chat.signal(Signal::SIGKILL);
    model.wait_for_abort();
    gate.open();
    assert!(std::fs::read_to_string(&file).unwrap().ends_with('\n'));
    let error = project.run(&["replay", "turn.jsonl"]).failed(1);
    assert!(error.contains("the recording ends before the turn does"), "{error}");
}

/// Two calls side by side after one, and an answer: what other tests play.
fn three_rounds() -> [Reply; 3] {
    [
        Reply::call("a", "~echo", json!({"n": 1})).pieces(3).usage(10, 1),
        Reply::calls([Call::new("b", "~echo", json!({"n": 2})), Call::new("c", "~echo", json!({"n": 3}))])
            .usage(20, 2),
        Reply::text("All three came back.").pieces(4).usage(30, 3),
    ]
}

/// With `LF_UPDATE_CASSETTES` set, it is recorded anew.
#[test]
fn the_checked_in_cassette_plays_as_it_did_when_it_was_recorded() {
    let file = repository().join("tests/cassettes/three_rounds.jsonl");
    let seen = file.with_extension("events.jsonl");
    if std::env::var_os("LF_UPDATE_CASSETTES").is_some() {
        let model = ScriptedModel::start(three_rounds());
        let server = scripted("m", &Script::echoing(&["echo"]));
        let project = TestProject::with_model(&model.base_url(), &[server]);
        if file.exists() {
            std::fs::remove_file(&file).unwrap();
        }
        let recorded = project.run(&["chat", "--events", "--record", &shown(&file), "hi"]).ok();
        std::fs::write(&seen, recorded.stdout).unwrap();
        model.finish();
    }
    let events = nowhere().run(&["replay", &shown(&file), "--events"]).ok().stdout;
    assert_eq!(events, std::fs::read_to_string(&seen).unwrap());
}
