//! Results that are too large for a model: what it is shown, and how it looks further.

use lf_tests::client::{chat, get, post, stream};
use lf_tests::conversation::{at, create};
use lf_tests::project::{Daemon, TestProject, document, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use lf_tests::wait::{PATIENCE, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// 1,088,890 bytes.
const LINES: usize = 100_000;

fn server() -> Value {
    scripted("m", &Script::with([ScriptedTool::new("lines", Act::Lines(LINES))]))
}

fn look(id: &str, arguments: Value) -> Reply {
    Reply::calls([Call::new(id, "result_read", arguments)])
}

/// A new one, which may use the tool.
fn conversation(daemon: &Daemon) -> String {
    let id = create(daemon, &json!({}));
    let tool = json!({"server_id": "m", "tool_name": "lines"});
    post(&at(daemon, &id, "/tools"), &tool).ok();
    id
}

fn say(daemon: &Daemon, id: &str, text: &str) {
    post(&at(daemon, id, "/chat"), &json!({"content": text})).ok();
}

#[test]
fn a_model_is_shown_the_head_of_a_megabyte_and_reads_its_middle() {
    let model = ScriptedModel::start([
        Reply::call("a", "~lines", json!({})),
        look("b", json!({"handle": "result-1", "offset": 50_000, "length": 3, "unit": "lines"})),
        Reply::calls([Call::new(
            "c",
            "result_search",
            json!({"handle": "result-1", "pattern": "^line 7{4}$", "regex": true}),
        )]),
        look("d", json!({"handle": "result-1", "offset": 600_000})),
        look("e", json!({"handle": "result-9"})),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[server()]);
    let answer = project.run(&["chat", "hi"]).ok();
    assert_eq!(answer.stdout.trim(), "done");
    assert_eq!(model.request(0).tool_names(), ["m__lines"], "nothing was cut yet");
    assert_eq!(model.request(1).tool_names(), ["m__lines", "result_read", "result_search"]);
    let last = model.request(5);
    let head = last.result_of("a").unwrap();
    assert!(head.starts_with("line 0\nline 1\n") && head.len() < 100_300, "{}", head.len());
    assert!(
        head.contains("[cut: the first 100000 of 1088890 bytes. All of it is kept as `result-1`"),
        "{}",
        &head[100_000..]
    );
    let lines = last.result_of("b").unwrap();
    assert_eq!(
        lines,
        "[result-1: lines 50000 to 50003 of 100000; the next offset is 50003]\nline 50000\nline 50001\nline 50002\n"
    );
    let found = last.result_of("c").unwrap();
    assert!(found.contains("1 match(es)") && found.contains("line 7778: "), "{found}");
    let middle = last.result_of("d").unwrap();
    assert!(
        middle.starts_with("[result-1: bytes 600000 to 6") && middle.len() <= 100_000,
        "{}",
        &middle[..100]
    );
    assert_eq!(last.result_of("e").unwrap(), "Error: there is no result `result-9` in this conversation");
    model.finish();
}

#[test]
fn a_later_turn_reads_on_after_a_restart_and_another_conversation_cannot() {
    let model = ScriptedModel::start_with(|_, request| {
        let asked = request["messages"].as_array().unwrap();
        let last = asked.last().unwrap();
        let words = last["content"].as_str().unwrap_or_default();
        let read = |id: &str| {
            look(id, json!({"handle": "result-1", "offset": 99_998, "length": 2, "unit": "lines"}))
        };
        Some(match last["role"].as_str().unwrap() {
            "user" if words == "get it" => Reply::call("a", "~lines", json!({})),
            "user" => read("b"),
            _ => Reply::text("done"),
        })
    });
    let project = TestProject::with_model(&model.base_url(), &[server()]);
    let daemon = project.serve();
    let (mine, other) = (conversation(&daemon), conversation(&daemon));
    say(&daemon, &mine, "get it");
    daemon.stop();
    let daemon = project.serve();
    say(&daemon, &mine, "the end of it");
    let request = model.asked().pop().unwrap();
    let end = request.result_of("b").unwrap();
    assert!(end.ends_with("\nline 99998\nline 99999\n"), "{end}");
    // where nothing was cut, the tool itself is not there
    say(&daemon, &other, "the end of it");
    let request = model.asked().pop().unwrap();
    let none = request.result_of("b").unwrap();
    assert!(none.contains("there is no tool `result_read`"), "{none}");
    let answer = post(&daemon.url("/v1/chat/completions"), &chat("the end of it")).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "done", "{answer}");
    let none = model.asked().pop().unwrap().result_of("b").unwrap();
    assert!(none.contains("there is no tool `result_read`"), "{none}");
}

#[test]
fn a_client_that_comes_back_with_its_own_result_finds_what_was_cut_before() {
    let model = ScriptedModel::start([
        Reply::calls([Call::new("a", "~lines", json!({})), Call::new("mine", "get_weather", json!({}))]),
        look("b", json!({"handle": "result-1", "offset": 99_999, "unit": "lines"})),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[server()]);
    let daemon = project.serve();
    let url = daemon.url("/v1/chat/completions");
    let mut request = chat("hi");
    let parameters = json!({"type": "object", "properties": {}});
    request["tools"] =
        json!([{"type": "function", "function": {"name": "get_weather", "parameters": parameters}}]);
    let answer = post(&url, &request).ok();
    let said = &answer["choices"][0]["message"];
    let result = json!({"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "sunny"});
    request["messages"].as_array_mut().unwrap().extend([said.clone(), result]);
    assert_eq!(post(&url, &request).ok()["choices"][0]["message"]["content"], "done");
    let end = model.request(2).result_of("b").unwrap();
    assert!(end.ends_with("\nline 99999\n"), "{end}");
    model.finish();
}

#[test]
fn a_recorded_turn_with_a_look_into_a_result_plays_in_the_place_of_its_model() {
    let model = ScriptedModel::start([
        Reply::call("a", "~lines", json!({})),
        look("b", json!({"handle": "result-1", "offset": 50_000, "length": 1, "unit": "lines"})),
        Reply::text("It says line 50000."),
    ]);
    let project = TestProject::of(&document(json!({}), &model.base_url(), &[server()]));
    let tape = project.path().join("turn.jsonl");
    project.run(&["chat", "--record", tape.to_str().unwrap(), "hi"]).ok();
    model.finish();
    let playing = TestProject::playing(&tape);
    let answer = playing.run(&["chat", "hi"]).ok();
    assert_eq!(answer.stdout.trim(), "It says line 50000.");
}

#[test]
fn a_turn_that_a_crash_interrupted_reads_on_in_what_was_cut_before() {
    let model = ScriptedModel::start([
        Reply::call("a", "~lines", json!({})),
        Reply::silence(),
        look("b", json!({"handle": "result-1", "offset": 77_777, "length": 1, "unit": "lines"})),
        Reply::text("done"),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[server()]);
    let daemon = project.serve();
    let id = conversation(&daemon);
    let mut events = stream(&at(&daemon, &id, "/chat"), &json!({"content": "hi", "stream": true}));
    let started = events.until("the start", |event| event["event"] == "started");
    let turn = started["turn"].as_str().unwrap().to_owned();
    eventually("the second ask", || (model.asked().len() == 2).then_some(()));
    daemon.signal(Signal::SIGKILL);
    drop(events);
    daemon.wait(PATIENCE);
    let daemon = project.serve();
    let url = daemon.url(&format!("/v1/turns/{turn}"));
    eventually("the turn to end", || (get(&url).ok()["status"] == "finished").then_some(()));
    let read = model.request(3).result_of("b").unwrap();
    assert!(read.ends_with("\nline 77777\n"), "{read}");
    model.finish();
}
