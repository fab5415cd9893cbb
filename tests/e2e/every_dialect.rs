//! Every API that is served over every API that is driven, through the official SDKs: the person sees the same.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use lf_tests::client::{post, stream};
use lf_tests::peers;
use lf_tests::project::{TestProject, document_of, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, End, Received, Reply, ScriptedModel, Wire};
use lf_tests::wait::eventually;
use serde_json::{Value, json};

/// A driven API: the name of its model in the project, what asks it, and the entry of `runtime.models`.
struct Driven {
    model: &'static str,
    wire: Wire,
    entry: fn(&ScriptedModel) -> Value,
}

const DRIVEN: [Driven; 5] = [
    Driven {
        model: "over-chat",
        wire: Wire::Chat,
        entry: |upstream| json!({"provider": "openai", "base_url": upstream.url("/v1")}),
    },
    Driven {
        model: "over-responses",
        wire: Wire::Responses,
        entry: |upstream| json!({"provider": "openai", "api": "responses", "base_url": upstream.url("/v1")}),
    },
    Driven {
        model: "over-messages",
        wire: Wire::Messages,
        entry: |upstream| json!({"provider": "anthropic", "base_url": upstream.url("")}),
    },
    Driven {
        model: "over-gemini",
        wire: Wire::Gemini,
        entry: |upstream| json!({"provider": "gemini", "base_url": upstream.url("/v1beta")}),
    },
    Driven {
        model: "over-ollama",
        wire: Wire::Ollama,
        entry: |upstream| json!({"provider": "ollama", "api": "ollama", "base_url": upstream.url("")}),
    },
];

/// A served API: the SDK that asks it, in which ways, and what it calls the two ends of a turn.
struct Served {
    api: &'static str,
    script: &'static str,
    base: &'static str,
    whole: &'static [&'static str],
    streamed: &'static [&'static str],
    finish: [&'static str; 2],
}

const CHAT: Served = Served {
    api: "chat",
    script: "openai_turns.py",
    base: "/v1",
    whole: &["whole"],
    streamed: &["stream", "helper"],
    finish: ["tool_calls", "stop"],
};

const RESPONSES: Served = Served {
    api: "responses",
    script: "openai_turns.py",
    base: "/v1",
    whole: &["stateless-whole", "previous-whole"],
    streamed: &["stateless-stream", "stateless-helper", "previous-stream", "previous-helper"],
    finish: ["completed", "completed"],
};

const MESSAGES: Served = Served {
    api: "messages",
    script: "anthropic_turns.py",
    base: "",
    whole: &["whole", "runner-whole"],
    streamed: &["stream", "helper", "runner-stream"],
    finish: ["tool_use", "end_turn"],
};

/// Two calls for the server after some thought, one for the client with a word to it, the answer. The person's message
/// names the cell, and so do the arguments.
fn three_rounds() -> impl FnMut(&Received) -> Option<Reply> {
    let mut turns = 0;
    move |received| {
        let cell = received.asked.last_user_text();
        let reply = match received.asked.rounds_so_far() {
            0 => {
                turns += 1;
                Reply::calls([
                    Call::new(&format!("call_{turns}a"), "~look_up", json!({"cell": cell, "where": "barn"})),
                    Call::new(&format!("call_{turns}b"), "~measure", json!({"cell": cell, "unit": "m"})),
                ])
                .with(|answer| answer.reasoning = "Two things must be found out first.".to_owned())
                .usage(10, 1)
            }
            1 => Reply::text("One for your notes.")
                .with(|answer| {
                    let note = json!({"text": cell});
                    answer.calls = vec![Call::new(&format!("call_{turns}c"), "note", note)];
                })
                .usage(20, 2),
            2 => Reply::text("The llama is 1.8 m high, and noted.").usage(30, 3),
            _ => return None,
        };
        Some(reply.pieces(7))
    }
}

fn turns_as_seen(served: &Served, cell: &str) -> Value {
    json!([
        {
            "text": "One for your notes.",
            "reasoning": "Two things must be found out first.",
            "calls": [{"name": "note", "arguments": {"text": cell}}],
            "finish": served.finish[0],
            // both rounds are one answer
            "usage": [30, 3, 33],
        },
        {
            "text": "The llama is 1.8 m high, and noted.",
            "reasoning": "",
            "calls": [],
            "finish": served.finish[1],
            "usage": [30, 3, 33],
        },
    ])
}

struct Table {
    upstream: ScriptedModel,
    project: TestProject,
    /// Holds the log of the server's calls.
    directory: tempfile::TempDir,
}

impl Table {
    fn new(script: impl FnMut(&Received) -> Option<Reply> + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let strings = |names: [&str; 2]| {
            let members: BTreeMap<_, _> =
                names.into_iter().map(|name| (name, json!({"type": "string"}))).collect();
            json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "properties": members,
                "required": names,
                "additionalProperties": false,
            })
        };
        let mut server = Script::with([
            ScriptedTool::new("look_up", Act::Text("found in the barn".to_owned()))
                .schema(strings(["cell", "where"])),
            ScriptedTool::new("measure", Act::Text("1.8 m".to_owned())).schema(strings(["cell", "unit"])),
        ]);
        server.log = Some(directory.path().join("log"));
        let upstream = ScriptedModel::start_by(script);
        let models: Vec<Value> = DRIVEN
            .iter()
            .map(|driven| {
                let mut entry = (driven.entry)(&upstream);
                entry["name"] = json!(driven.model);
                entry["model"] = json!("scripted");
                entry["api_key"] = json!("sk-scripted");
                entry
            })
            .collect();
        let project = TestProject::of(&document_of(&models, &[scripted("m", &server)]));
        Self { upstream, project, directory }
    }

    /// The lines of the log that tell of a call of this cell.
    fn calls_run(&self, cell: &str) -> Vec<String> {
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let named = |line: &&str| line.starts_with("call ") && line.contains(&format!("\"{cell}\""));
        let name = |line: &str| line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut names: Vec<String> = log.lines().filter(named).map(name).collect();
        names.sort();
        names
    }

    /// What is wrong with a cell of the table.
    fn problems(&self, served: &Served, driven: &Driven, way: &str, row: Option<&Value>) -> Vec<String> {
        let mut problems = Vec::new();
        let cell = format!("{} {way} {}", served.api, driven.model);
        let row = row.unwrap_or(&Value::Null);
        if row["turns"] != turns_as_seen(served, &cell) {
            let error = row["error"].as_str().unwrap_or("no error");
            problems.push(format!("the client saw {} ({error})", row["turns"]));
        }
        let run = self.calls_run(&cell);
        if run != ["look_up", "measure"] {
            problems.push(format!("the server ran {run:?}"));
        }
        let asked: Vec<Received> = self
            .upstream
            .asked()
            .into_iter()
            .filter(|received| received.asked.last_user_text() == cell)
            .collect();
        if asked.len() != 3 {
            problems.push(format!("the model was asked {} times", asked.len()));
        }
        let streamed = served.streamed.contains(&way);
        for (number, received) in asked.iter().enumerate() {
            if received.wire != Some(driven.wire) || received.asked.stream != streamed {
                problems.push(format!("request {number} went to {}", received.path));
            }
        }
        if let Some(last) = asked.last() {
            let answered = last.asked.answered_calls();
            let (noted, look_up) = (format!("noted {cell}"), json!({"cell": cell, "where": "barn"}));
            let measure = json!({"cell": cell, "unit": "m"});
            let note = json!({"text": cell});
            let expected = [
                ("m__look_up", &look_up, "found in the barn"),
                ("m__measure", &measure, "1.8 m"),
                ("note", &note, noted.as_str()),
            ];
            if answered != expected {
                problems.push(format!("the model was told in the end: {answered:?}"));
            }
        }
        problems.into_iter().map(|problem| format!("{cell}: {problem}")).collect()
    }
}

/// One document a line.
fn python(script: &str, arguments: &[&str]) -> Vec<Value> {
    let mut command = Command::new(peers::python("python"));
    command.arg(peers::script(script)).args(arguments).stdin(Stdio::null());
    let output = command.output().expect("the SDK can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("a document a line")).collect()
}

/// One row of the table per way of asking, one column per driven API.
#[track_caller]
fn assert_all_cells(served: &Served) {
    let table = Table::new(three_rounds());
    let daemon = table.project.serve();
    let base = daemon.url(served.base);
    let mut arguments = vec![base.as_str(), served.api];
    arguments.extend(DRIVEN.iter().map(|driven| driven.model));
    let rows = python(served.script, &arguments);
    let ways = served.whole.iter().chain(served.streamed);
    assert_eq!(rows.len(), ways.clone().count() * DRIVEN.len(), "{rows:?}");
    let mut problems = table.upstream.violations();
    for driven in &DRIVEN {
        for way in ways.clone() {
            let row = rows.iter().find(|row| row["model"] == driven.model && row["way"] == *way);
            problems.extend(table.problems(served, driven, way, row));
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    daemon.stop().ok();
    table.upstream.finish();
    table.project.assert_nothing_left();
}

#[test]
fn chat_completions_over_every_dialect_show_the_same() {
    assert_all_cells(&CHAT);
}

#[test]
fn responses_over_every_dialect_show_the_same() {
    assert_all_cells(&RESPONSES);
}

#[test]
fn messages_over_every_dialect_show_the_same() {
    assert_all_cells(&MESSAGES);
}

#[test]
fn a_wrong_request_is_a_typed_error_that_names_the_field() {
    let table = Table::new(|_| None);
    let daemon = table.project.serve();
    for served in [&CHAT, &MESSAGES] {
        let rows = python(served.script, &[&daemon.url(served.base), "bad", DRIVEN[0].model]);
        for (what, seen) in rows[0].as_object().unwrap() {
            let field = what.split(' ').next_back().unwrap();
            assert_eq!(seen["class"], "BadRequestError", "{what}: {seen}");
            assert!(seen["message"].as_str().unwrap().contains(field), "{what}: {seen}");
        }
    }
    table.upstream.finish();
}

/// A request of each served API, to this model.
fn bare_requests(model: &str) -> [(&'static str, Value); 3] {
    let user = json!({"role": "user", "content": "hi"});
    [
        ("/v1/chat/completions", json!({"model": model, "messages": [user]})),
        ("/v1/responses", json!({"model": model, "input": [user]})),
        ("/v1/messages", json!({"model": model, "messages": [user], "max_tokens": 100})),
    ]
}

#[test]
fn a_round_of_both_sides_is_put_together_again_for_every_upstream() {
    let mut turns = 0;
    let table = Table::new(move |received| {
        turns += 1;
        let cell = turns.to_string();
        let call = |letter: char, name: &str, key: &str| {
            Call::new(&format!("call_{cell}{letter}"), name, json!({"cell": cell, key: "x"}))
        };
        Some(match received.asked.rounds_so_far() {
            0 => Reply::calls([
                call('a', "~look_up", "where"),
                call('b', "note", "text"),
                call('c', "~measure", "unit"),
            ])
            .with(|answer| answer.reasoning = "All at once.".to_owned()),
            _ => Reply::text("noted"),
        })
    });
    let daemon = table.project.serve();
    let tool = json!({"type": "function", "function": {"name": "note", "parameters": {"type": "object", "properties": {}}}});
    for driven in &DRIVEN {
        let mut request = bare_requests(driven.model)[0].1.clone();
        request["tools"] = json!([tool]);
        let path = daemon.url("/v1/chat/completions");
        let message = post(&path, &request).ok()["choices"][0]["message"].clone();
        let calls = message["tool_calls"].as_array().unwrap();
        assert_eq!(calls.len(), 1, "{}: {message}", driven.model);
        let result = json!({"role": "tool", "tool_call_id": calls[0]["id"], "content": "kept"});
        request["messages"].as_array_mut().unwrap().extend([message.clone(), result]);
        assert_eq!(post(&path, &request).ok()["choices"][0]["message"]["content"], "noted");
        let last = table.upstream.asked().last().unwrap().clone();
        let told: Vec<_> =
            last.asked.answered_calls().into_iter().map(|(name, _, text)| (name, text)).collect();
        let expected = [("m__look_up", "found in the barn"), ("note", "kept"), ("m__measure", "1.8 m")];
        assert_eq!(told, expected, "{}", driven.model);
    }
    table.upstream.finish();
}

#[test]
fn a_refusal_keeps_its_class_and_its_words_through_every_pair() {
    let table = Table::new(|_| Some(Reply::error(400, "the prompt is too long: 9 tokens")));
    let daemon = table.project.serve();
    for driven in &DRIVEN {
        for (path, mut body) in bare_requests(driven.model) {
            for streamed in [false, true] {
                body["stream"] = json!(streamed);
                let refused = post(&daemon.url(path), &body);
                assert_eq!(refused.status, 400, "{path} to {}: {refused:?}", driven.model);
                let message = refused.json()["error"]["message"].to_string();
                assert!(message.contains("the prompt is too long: 9 tokens"), "{path}: {message}");
            }
        }
    }
    assert_eq!(table.upstream.asked().len(), 30, "a refused request is not sent again");
    table.upstream.finish();
}

#[test]
fn an_answer_cut_in_the_middle_is_an_error_through_every_pair() {
    let cut = || Reply::text("never whole").pieces(2).end(End::CutAfter(5));
    let table = Table::new(move |_| Some(cut()));
    let daemon = table.project.serve();
    for driven in &DRIVEN {
        for (path, mut body) in bare_requests(driven.model) {
            body["stream"] = json!(true);
            let events = stream(&daemon.url(path), &body).rest();
            let last: Value =
                serde_json::from_str(events.last().map_or("", String::as_str)).unwrap_or_default();
            let failed = last["type"] == "response.failed" && last["response"]["error"].is_object()
                || last["type"] == "error"
                || last["error"].is_object();
            assert!(failed, "{path} to {}: {events:#?}", driven.model);
            let whole = ["\"finish_reason\":\"stop\"", "response.completed", "\"end_turn\""];
            for event in &events {
                assert!(!whole.iter().any(|end| event.contains(end)), "{path} to {}: {event}", driven.model);
            }
        }
    }
    table.upstream.finish();
}

#[test]
fn a_client_that_leaves_ends_the_request_to_every_upstream() {
    let held = || Reply::text("never whole").pieces(2).end(End::SilentAfter(5));
    let table = Table::new(move |_| Some(held()));
    let daemon = table.project.serve();
    for (number, driven) in DRIVEN.iter().enumerate() {
        let mut body = bare_requests(driven.model)[0].1.clone();
        body["stream"] = json!(true);
        let mut events = stream(&daemon.url("/v1/chat/completions"), &body);
        events.until("some text", |event| {
            event["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty())
        });
        assert_eq!(table.upstream.aborted(), number, "{}", driven.model);
        drop(events);
        eventually("the request to be given up", || (table.upstream.aborted() > number).then_some(()));
    }
    table.upstream.finish();
}
