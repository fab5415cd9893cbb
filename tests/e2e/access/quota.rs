//! What a key may use over time.

use lf_tests::client::{chat, modern};
use lf_tests::project::{Daemon, TestProject, document, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Reply, ScriptedModel};
use serde_json::{Value, json};

use super::{NOWHERE, ask};

/// Status, seconds to wait, and the error's code.
fn chat_with(daemon: &Daemon, key: &str) -> (u16, Option<u64>, Value) {
    let answer = ask(daemon, "POST", "/v1/chat/completions", ("x-api-key", key), Some(&chat("hi")));
    let pause = answer.header("retry-after").map(|seconds| seconds.parse().unwrap());
    (answer.status, pause, answer.json()["error"]["code"].clone())
}

#[test]
fn a_key_has_its_own_requests_of_a_minute_for_turns_and_calls_together() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("yes")));
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["echo"]))]);
    let all = ["--scope", "chat,read,tools", "--requests-per-minute", "2"];
    let bounded = project.key(&[&["bounded"][..], &all].concat());
    let other = project.key(&[&["other"][..], &all].concat());
    let free = project.key(&["free", "--scope", "chat,tools"]);
    let daemon = project.serve();
    let call = json!({"server": "m", "tool": "echo", "arguments": {}});
    let execute = |key: &str| ask(&daemon, "POST", "/api/mcp/execute", ("x-api-key", key), Some(&call));
    assert_eq!(chat_with(&daemon, &bounded).0, 200);
    assert_eq!(execute(&bounded).status, 200);
    let (status, pause, code) = chat_with(&daemon, &bounded);
    assert_eq!((status, code), (429, json!("rate_limit_exceeded")));
    assert!((1..=30).contains(&pause.unwrap()), "{pause:?}");
    let refused = execute(&bounded);
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    // through `/mcp`, too, where a refusal is what the tool says
    let url = daemon.url("/mcp/default/demo/m");
    let params = json!({"name": "echo", "arguments": {}});
    let answer = modern(&url, "tools/call", &params, &[("x-api-key", &bounded)]);
    assert!(answer.text.contains("the limit of 2 requests per minute is reached"), "{answer:?}");
    for key in [&other, &free] {
        assert_eq!(chat_with(&daemon, key).0, 200, "what one key uses is its own");
    }
    assert_eq!(model.asked().len(), 3);
}

#[test]
fn what_a_key_has_of_a_day_is_used_up_in_all_projects_and_over_restarts() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("yes").usage(300, 100)));
    let price = json!({"price": {"input_per_million": 1000, "output_per_million": 1000}});
    for (bound, most) in [("--tokens-per-day", "1000"), ("--cost-per-day", "1")] {
        let project = TestProject::of(&document(price.clone(), &model.base_url(), &[]));
        let key = project.key(&["ann", bound, most]);
        let daemon = project.serve();
        for _ in 0..2 {
            assert_eq!(chat_with(&daemon, &key).0, 200);
        }
        daemon.stop();
        let daemon = project.serve();
        assert_eq!(chat_with(&daemon, &key).0, 200, "{bound}: 800 are used");
        let (status, pause, code) = chat_with(&daemon, &key);
        assert_eq!((status, code), (429, json!("insufficient_quota")), "{bound}");
        assert!(pause.is_some(), "{bound}");
        let listed = project.run(&["keys", "list"]).ok().stdout;
        assert!(
            listed.contains(&format!("{most}{}", if most == "1" { "/day" } else { " tokens/day" })),
            "{listed}"
        );
    }
}

#[test]
fn what_a_key_may_spend_is_spent_only_where_the_price_is_known() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("yes")));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let key = project.key(&["ann", "--cost-per-day", "0.5"]);
    let daemon = project.serve();
    let answer = ask(&daemon, "POST", "/v1/chat/completions", ("x-api-key", &key), Some(&chat("hi")));
    assert_eq!(answer.status, 403, "{answer:?}");
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("`assistant`") && message.contains("`price`"), "{message}");
    assert_eq!(model.asked().len(), 0);
}

#[test]
fn bounds_that_are_none_are_refused_with_what_is_expected() {
    let project = TestProject::with_model(NOWHERE, &[]);
    for (option, value, words) in [
        ("--requests-per-minute", "0", "1..=1000000"),
        ("--tokens-per-day", "0", "1.."),
        ("--cost-per-day", "-1", "2.50"),
        ("--cost-per-day", "inf", "2.50"),
    ] {
        let refused = project.run(&["keys", "create", "ann", &format!("{option}={value}")]);
        assert_eq!(refused.status, Some(2), "{option} {value}");
        assert!(refused.stderr.contains(words), "{option} {value}: {}", refused.stderr);
    }
}
