//! Messages that wait for others of their conversation: their clients see that they are not forgotten, and none waits for ever.

use std::time::{Duration, Instant};

use lf_tests::client::{Events, chat, request, stream, stream_with, streamed_chat};
use lf_tests::conversation::{at, create};
use lf_tests::project::{Daemon, TestProject, document};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::Gate;
use serde_json::{Value, json};

const SESSION: [(&str, &str); 1] = [("x-session-id", "s")];

/// A model whose first two answers are held back, in a project whose messages wait so long.
struct Bench {
    model: ScriptedModel,
    gate: Gate,
    project: TestProject,
}

impl Bench {
    fn new(queue_timeout: &str) -> Self {
        let gate = Gate::new();
        let held = gate.clone();
        let model = ScriptedModel::start_with(move |number, _| {
            Some(if number < 2 { Reply::text("first").hold(&held) } else { Reply::text("second") })
        });
        let limits = json!({"limits": {"queue_timeout": queue_timeout}});
        let project = TestProject::of(&document(limits, &model.base_url(), &[]));
        Self { model, gate, project }
    }

    /// A turn that runs in a conversation, whose id is given, and one that runs in a session.
    fn busy(&self, daemon: &Daemon) -> String {
        let id = create(daemon, &json!({}));
        drop(stream(&at(daemon, &id, "/chat"), &json!({"content": "hi", "stream": true})));
        drop(stream_with(&daemon.url("/v1/chat/completions"), &SESSION, &streamed_chat("hi")));
        self.model.wait_for_requests(2);
        id
    }
}

fn message() -> Value {
    let messages = [json!({"role": "user", "content": "and?"})];
    json!({"model": "assistant", "max_tokens": 10, "messages": messages, "stream": true})
}

/// A message over each API, while another one runs: what is first to be read of its stream, and what is told of the error.
fn waiting(daemon: &Daemon, id: &str) -> [(Events, &'static str, &'static str); 4] {
    let open = |at: usize| match at {
        0 => stream(
            &lf_tests::conversation::at(daemon, id, "/chat"),
            &json!({"content": "and?", "stream": true}),
        ),
        1 => {
            let body = json!({"input": "and?", "conversation": id, "stream": true});
            stream(&daemon.url("/v1/responses"), &body)
        }
        2 => stream_with(&daemon.url("/v1/chat/completions"), &SESSION, &streamed_chat("and?")),
        _ => stream_with(&daemon.url("/v1/messages"), &SESSION, &message()),
    };
    let began = Instant::now();
    let streams = std::thread::scope(|scope| {
        let open = &open;
        [0, 1, 2, 3].map(|at| scope.spawn(move || open(at))).map(|opening| opening.join().unwrap())
    });
    assert!(began.elapsed() < Duration::from_secs(28), "the streams begin");
    let mut streams = streams.into_iter();
    let told = [
        (":\n", r#""event":"failed""#),
        (":\n", r#""type":"error""#),
        (":\n", r#""code":"conversation_busy""#),
        ("event: ping\n", r#""type":"error""#),
    ];
    told.map(|(alive, failed)| (streams.next().unwrap(), alive, failed))
}

#[test]
fn a_stream_that_waits_for_the_messages_before_it_shows_signs_of_life_and_then_its_answer() {
    let bench = Bench::new("5m");
    let daemon = bench.project.serve();
    let id = bench.busy(&daemon);
    let mut streams = waiting(&daemon, &id);
    for (events, alive, _) in &mut streams {
        assert_eq!(events.status, 200);
        events.until_text(alive);
    }
    bench.gate.open();
    for (events, _, _) in streams {
        let rest = events.rest().join("\n");
        assert!(rest.contains("second") && !rest.contains("conversation_busy"), "{rest}");
    }
}

#[test]
fn a_message_waits_no_longer_than_the_file_says_and_its_client_is_told_why() {
    let bench = Bench::new("30s");
    let daemon = bench.project.serve();
    let id = bench.busy(&daemon);
    let refused = std::thread::scope(|scope| {
        let whole =
            || request("POST", &daemon.url("/v1/chat/completions"), &SESSION, Some(chat("and?").to_string()));
        let whole = scope.spawn(whole);
        for (events, _, failed) in waiting(&daemon, &id) {
            assert_eq!(events.status, 200, "it has begun");
            let rest = events.rest();
            let error = rest.last().expect("an error");
            assert!(error.contains(failed) && error.contains("limits.queue_timeout"), "{error}");
        }
        whole.join().unwrap()
    });
    assert_eq!(refused.status, 429, "{refused:?}");
    let error = &refused.json()["error"];
    assert_eq!(error["code"], "conversation_busy");
    assert!(error["message"].as_str().unwrap().contains("was busy with other messages for 30s"), "{error}");
    bench.gate.open();

    // what is refused before a stream begins is a status
    let bench = Bench::new("1s");
    let daemon = bench.project.serve();
    let id = bench.busy(&daemon);
    let body = json!({"content": "and?", "stream": true}).to_string();
    let refused = request("POST", &at(&daemon, &id, "/chat"), &[], Some(body));
    assert_eq!((refused.status, &refused.json()["error"]), (429, &json!("Busy")), "{refused:?}");
    bench.gate.open();
}
