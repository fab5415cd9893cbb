//! Limits of a turn and of its callers: who is told what when one is reached.

use lf_tests::client::{chat, post};
use lf_tests::postgres::Postgres;
use lf_tests::project::{Daemon, TestProject, document, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use lf_tests::wait::eventually;
use serde_json::{Value, json};

/// A model that calls a tool for ever, and answers where it is offered none.
fn relentless(tool: &'static str) -> ScriptedModel {
    ScriptedModel::start_with(move |number, request| {
        Some(match request["tools"] {
            Value::Null => Reply::text("That is as far as I got.").usage(10, 5),
            _ => Reply::calls([Call::new(&format!("call-{number}"), tool, json!({"n": number}))])
                .usage(600, 400),
        })
    })
}

fn server() -> Value {
    scripted("m", &Script::with([ScriptedTool::new("echo", Act::Echo), ScriptedTool::new("hang", Act::Hang)]))
}

fn price() -> Value {
    json!({"input_per_million": 1000, "output_per_million": 1000})
}

/// What the answer tells of limits.
fn limits(answer: &Value) -> Vec<String> {
    let events = answer["lf"]["events"].as_array().cloned().unwrap_or_default();
    let limits = events.iter().filter(|event| event["event"] == "limit");
    limits.map(|event| event["limit"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn each_limit_ends_in_an_answer_that_is_told_why() {
    for (limit, tool, model_has, asks, words) in [
        ("rounds", "m__echo", json!({"limits": {"rounds": 2}}), 3, "the limit of 2 rounds"),
        (
            "tokens",
            "m__echo",
            json!({"limits": {"tokens": 2500}}),
            4,
            "the limit of 2500 tokens (3000 are used)",
        ),
        (
            "cost",
            "m__echo",
            json!({"limits": {"cost_usd": 1.5}, "price": price()}),
            3,
            "the limit of $1.5 ($2.0000 are spent)",
        ),
        ("time", "m__hang", json!({"limits": {"turn_timeout": "4s"}}), 2, "the time limit of 4s"),
    ] {
        let model = relentless(tool);
        let project = TestProject::of(&document(model_has, &model.base_url(), &[server()]));
        let daemon = project.serve();
        let answer = post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
        assert_eq!(answer["choices"][0]["message"]["content"], "That is as far as I got.", "{limit}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        assert_eq!(limits(&answer), [limit]);
        let asked = model.asked();
        assert_eq!(asked.len(), asks, "{limit}");
        let last = asked.last().unwrap();
        let told = last.messages().last().unwrap()["content"].to_string();
        assert!(
            told.contains("No more tool calls are possible in this turn") && told.contains(words),
            "{told}"
        );
        assert!(last.tool_names().is_empty());
    }
}

#[test]
fn clients_of_the_other_apis_and_the_terminal_are_told_of_the_limit() {
    let model = relentless("m__echo");
    let limits_of = json!({"limits": {"rounds": 1}});
    let project = TestProject::of(&document(limits_of, &model.base_url(), &[server()]));
    let daemon = project.serve();
    let request =
        json!({"model": "assistant", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]});
    let answer = post(&daemon.url("/v1/messages"), &request).ok();
    assert_eq!(
        (&answer["stop_reason"], limits(&answer)),
        (&json!("end_turn"), vec!["rounds".to_owned()]),
        "{answer}"
    );
    let answer = post(&daemon.url("/v1/responses"), &json!({"model": "assistant", "input": "hi"})).ok();
    assert_eq!(answer["status"], "completed", "{answer}");
    daemon.stop();
    let said = project.run(&["chat", "hi"]).ok();
    assert!(
        said.stderr.contains("the turn has reached the limit of 1 rounds of tool calls"),
        "{}",
        said.stderr
    );
    let told = project.run(&["chat", "--events", "hi"]).ok().stdout;
    assert!(told.contains(r#""event":"limit","limit":"rounds""#), "{told}");
}

#[test]
fn the_last_answer_has_a_bound_of_its_own() {
    let model = ScriptedModel::start_with(|number, request| {
        Some(match request["tools"] {
            Value::Null => Reply::silence(),
            _ => Reply::call(&format!("call-{number}"), "m__echo", json!({"n": number})),
        })
    });
    let bounds = json!({"limits": {"rounds": 1, "final_timeout": "300ms"}});
    let project = TestProject::of(&document(bounds, &model.base_url(), &[server()]));
    let said = project.run(&["chat", "hi"]).failed(1);
    assert!(said.contains("the last answer of model"), "{said}");
    assert!(said.contains("did not come to its end within 300ms"), "{said}");
}

#[test]
fn images_go_to_models_that_take_them_and_others_are_told_of_them() {
    let picture = Act::Content(vec![json!({"type": "image", "data": "pixel", "mimeType": "image/png"})]);
    let server = scripted("m", &Script::with([ScriptedTool::new("look", picture)]));
    for (input, shown) in [(json!(["text", "image"]), true), (json!(["text"]), false)] {
        let model = ScriptedModel::start([Reply::call("a", "m__look", json!({})), Reply::text("done")]);
        let project = TestProject::of(&document(
            json!({"input": input}),
            &model.base_url(),
            std::slice::from_ref(&server),
        ));
        project.run(&["chat", "hi"]).ok();
        let sent = model.request(1).body.to_string();
        assert_eq!(sent.contains("data:image/png;base64,"), shown, "{sent}");
        assert_eq!(
            sent.contains("[an image (image/png, 70 bytes), which this model cannot be shown]"),
            !shown,
            "{sent}"
        );
        model.finish();
    }
}

fn with_quota(quota: Value, base_url: &str) -> TestProject {
    let mut content = document(json!({"price": price()}), base_url, &[]);
    content["quota"] = quota;
    TestProject::of(&content)
}

/// Asks in three APIs; the statuses, with the seconds to wait and the code or type of the error.
fn ask_all(daemon: &Daemon) -> Vec<(u16, Option<u64>, String)> {
    let messages = json!([{"role": "user", "content": "hi"}]);
    [
        ("/v1/chat/completions", json!({"model": "assistant", "messages": messages}), "code"),
        ("/v1/messages", json!({"model": "assistant", "max_tokens": 100, "messages": messages}), "type"),
        ("/v1/responses", json!({"model": "assistant", "input": "hi"}), "code"),
    ]
    .into_iter()
    .map(|(path, request, key)| {
        let response = post(&daemon.url(path), &request);
        let pause = response.header("retry-after").map(|seconds| seconds.parse().unwrap());
        (response.status, pause, response.json()["error"][key].as_str().unwrap_or_default().to_owned())
    })
    .collect()
}

#[test]
fn one_request_more_than_a_minute_has_is_told_when_to_come_back() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("yes")));
    let project = with_quota(json!({"requests_per_minute": 3}), &model.base_url());
    let daemon = project.serve();
    let allowed = ask_all(&daemon);
    assert!(allowed.iter().all(|(status, ..)| *status == 200), "{allowed:?}");
    let refused = ask_all(&daemon);
    let kinds: Vec<&str> = refused.iter().map(|(_, _, kind)| kind.as_str()).collect();
    assert_eq!(kinds, ["rate_limit_exceeded", "rate_limit_error", "rate_limit_exceeded"]);
    for (status, pause, _) in refused {
        assert_eq!(status, 429);
        assert!((1..=20).contains(&pause.unwrap()), "{pause:?}");
    }
    assert_eq!(model.asked().len(), 3, "nothing of a refused request reaches a model");
}

#[test]
fn what_a_day_has_is_used_up_over_restarts() {
    for quota in [json!({"tokens_per_day": 1000}), json!({"cost_per_day_usd": 1})] {
        let model = ScriptedModel::start_with(|_, _| Some(Reply::text("yes").usage(300, 100)));
        let project = with_quota(quota, &model.base_url());
        let daemon = project.serve();
        for _ in 0..2 {
            post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
        }
        daemon.stop();
        let daemon = project.serve();
        post(&daemon.url("/v1/chat/completions"), &chat("800 are used")).ok();
        let refused = ask_all(&daemon);
        let kinds: Vec<&str> = refused.iter().map(|(_, _, kind)| kind.as_str()).collect();
        assert_eq!(kinds, ["insufficient_quota", "rate_limit_error", "insufficient_quota"]);
        assert!(refused.iter().all(|(status, pause, _)| *status == 429 && pause.is_some()), "{refused:?}");
        assert_eq!(model.asked().len(), 3);
    }
}

#[test]
fn daemons_on_one_postgres_use_up_a_day_together() {
    let database = Postgres::shared().database();
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("yes").usage(300, 100)));
    let project = with_quota(json!({"tokens_per_day": 1000}), &model.base_url())
        .variable("LF_STORAGE", &database.url());
    let (one, other) = (project.serve(), project.serve());
    for (turn, daemon) in [&one, &other, &one].into_iter().enumerate() {
        post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
        let used = (400 * (turn + 1)).to_string();
        eventually("what the turn used to be kept", || {
            (database.ask("SELECT coalesce(sum(tokens), 0) FROM spent") == used).then_some(())
        });
    }
    for daemon in [&one, &other] {
        let refused = ask_all(daemon);
        let kinds: Vec<&str> = refused.iter().map(|(_, _, kind)| kind.as_str()).collect();
        assert_eq!(kinds, ["insufficient_quota", "rate_limit_error", "insufficient_quota"]);
    }
    assert_eq!(model.asked().len(), 3);
}
