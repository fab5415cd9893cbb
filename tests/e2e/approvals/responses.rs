//! Calls of kept responses that a person has to approve: in the background, and in conversations.

use lf_tests::client::Events;

use super::*;

fn ask() -> Value {
    json!("ask")
}

/// What a client answers to such an item.
fn answer(item: &Value, approve: bool) -> Value {
    json!({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": approve})
}

/// The response as it stands when it is over.
fn over(daemon: &Daemon, response: &Value) -> Value {
    let url = daemon.url(&format!("/v1/responses/{}", response["id"].as_str().expect("an id")));
    eventually("the end of a response", || {
        let now = get(&url).ok();
        (now["status"] != "in_progress" && now["status"] != "queued").then_some(now)
    })
}

/// The item that asks, which is the last one.
fn asked(response: &Value) -> Value {
    assert_eq!(response["status"], "completed", "{response}");
    let item = response["output"].as_array().and_then(|output| output.last()).expect("an item").clone();
    assert_eq!(
        (&item["type"], &item["name"]),
        (&json!("mcp_approval_request"), &json!("wipe")),
        "{response}"
    );
    item
}

fn text(response: &Value) -> &str {
    let output = response["output"].as_array().expect("items");
    output.last().and_then(|item| item["content"][0]["text"].as_str()).unwrap_or_default()
}

/// A request that is refused, and what its message says.
fn refused(daemon: &Daemon, body: &Value) -> String {
    let refused = post(&daemon.url("/v1/responses"), body);
    assert_eq!(refused.status, 400, "{refused:?}");
    refused.json()["error"]["message"].as_str().expect("a message").to_owned()
}

/// The names of the events of a stream, and its last response.
fn told(events: Events) -> (Vec<String>, Value) {
    let all: Vec<Value> = events.rest().iter().filter_map(|event| serde_json::from_str(event).ok()).collect();
    let names = all.iter().filter_map(|event| event["type"].as_str().map(str::to_owned));
    // signs of life are told as often as there is something to be silent about
    let names = names.filter(|name| name != "response.in_progress").collect();
    let last = all.iter().rfind(|event| event["response"].is_object()).expect("a response");
    (names, last["response"].clone())
}

#[test]
fn a_background_response_ends_with_what_waits_and_the_decision_goes_on_from_it_after_a_restart() {
    let bench = Bench::new(&ask(), "60s", vec![Reply::calls([wipe("c1")]), Reply::text("Wiped.")]);
    let daemon = bench.project.serve();
    let began = Instant::now();
    let first = post(&daemon.url("/v1/responses"), &json!({"input": "Clean up.", "background": true})).ok();
    let first = over(&daemon, &first);
    let item = asked(&first);
    assert!(began.elapsed() < Duration::from_secs(50), "nobody is waited for");
    assert_eq!(the_one(&daemon)["id"], item["id"]);
    daemon.signal(Signal::SIGKILL);
    daemon.wait(PATIENCE);

    let daemon = bench.project.serve();
    let go_on =
        |item: &Value| json!({"previous_response_id": first["id"], "input": [item], "background": true});
    let unknown = answer(&json!({"id": "apr_0123"}), true);
    assert!(refused(&daemon, &go_on(&unknown)).contains("no call waits for approval `apr_0123`"));
    let mut wrong = answer(&item, true);
    wrong["approve"] = json!("yes");
    assert!(refused(&daemon, &go_on(&wrong)).contains("approve"));
    assert_eq!(bench.calls("wipe"), 0);
    let second = post(&daemon.url("/v1/responses"), &go_on(&answer(&item, true))).ok();
    assert_eq!(text(&over(&daemon, &second)), "Wiped.");
    assert_eq!(bench.calls("wipe"), 1);
    assert!(pending(&daemon).is_empty());
    assert!(refused(&daemon, &go_on(&answer(&item, true))).contains("no call waits"), "it is used once");
    assert_eq!(bench.calls("wipe"), 1);
    bench.model.finish();
}

#[test]
fn a_streamed_background_response_tells_the_item_and_a_no_goes_on_as_a_plain_stream() {
    let bench = Bench::new(&ask(), "60s", vec![Reply::calls([wipe("c1")]), Reply::text("Then not.")]);
    let daemon = bench.project.serve();
    let url = daemon.url("/v1/responses");
    let body = json!({"input": "Clean up.", "background": true, "stream": true});
    let (names, first) = told(stream(&url, &body));
    let item = asked(&first);
    let added = names.iter().position(|name| name == "response.output_item.added").expect("the item");
    assert_eq!(names[added + 1..], ["response.output_item.done", "response.completed"], "{names:?}");
    let again = lf_tests::client::watch(&format!("{url}/{}?stream=true", first["id"].as_str().unwrap()), &[]);
    assert_eq!(told(again), (names, first.clone()), "whoever comes back is told the same");

    let mut no = answer(&item, false);
    no["reason"] = json!("not on a Friday");
    let body = json!({"previous_response_id": first["id"], "input": [no], "stream": true});
    let (_, second) = told(stream(&url, &body));
    assert_eq!(text(&second), "Then not.");
    assert!(bench.result(1).contains("was not run: not on a Friday"), "{}", bench.result(1));
    assert_eq!(bench.calls("wipe"), 0);
    bench.model.finish();
}

#[test]
fn in_a_conversation_the_response_ends_with_what_waits_and_its_next_one_goes_on() {
    let replies = vec![
        Reply::calls([wipe("c1")]),
        Reply::text("Wiped."),
        Reply::calls([Call::new("c2", "disk__wipe", json!({"path": "/tmp/y"}))]),
    ];
    let bench = Bench::new(&ask(), "60s", replies);
    let daemon = bench.project.serve();
    let id = conversation(&daemon);
    let other = conversation(&daemon);
    let url = daemon.url("/v1/responses");
    let body = |id: &str, input: &Value| json!({"conversation": id, "input": input});
    let began = Instant::now();
    let (names, first) =
        told(stream(&url, &json!({"conversation": id, "input": "Clean up.", "stream": true})));
    let item = asked(&first);
    assert!(names.ends_with(&["response.output_item.done".to_owned(), "response.completed".to_owned()]));
    assert!(began.elapsed() < Duration::from_secs(50), "nobody is waited for");
    // neither another conversation nor a response of none has it
    let yes = json!([answer(&item, true)]);
    assert!(refused(&daemon, &body(&other, &yes)).contains("no call waits"));
    assert!(refused(&daemon, &json!({"input": yes})).contains("no call waits"));
    assert_eq!(bench.calls("wipe"), 0);

    let second = post(&url, &body(&id, &yes)).ok();
    assert_eq!(text(&second), "Wiped.");
    assert_eq!(bench.calls("wipe"), 1);
    assert!(refused(&daemon, &body(&id, &yes)).contains("no call waits"), "it is used once");

    // one that nobody decides is asked about again, under the same id, whatever is said
    let third = post(&url, &body(&id, &json!("And that."))).ok();
    let waits = asked(&third);
    let fourth = post(&url, &body(&id, &json!("Well?"))).ok();
    assert_eq!(asked(&fourth)["id"], waits["id"]);
    assert_eq!(bench.calls("wipe"), 1);
    bench.model.finish();
}

#[test]
fn what_somebody_else_decided_stands_and_the_client_goes_on_with_it() {
    let bench = Bench::new(&ask(), "60s", vec![Reply::calls([wipe("c1")]), Reply::text("Then not.")]);
    let daemon = bench.project.serve();
    let first = post(&daemon.url("/v1/responses"), &json!({"input": "Clean up.", "background": true})).ok();
    let item = asked(&over(&daemon, &first));
    decide(&daemon, &the_one(&daemon), &json!({"decision": "deny", "by": "Ada"})).ok();
    let body = json!({"previous_response_id": first["id"], "input": [answer(&item, true)]});
    let second = post(&daemon.url("/v1/responses"), &body).ok();
    assert_eq!(text(&second), "Then not.");
    assert!(bench.result(1).contains("denied by the owner for Ada"), "{}", bench.result(1));
    assert_eq!(bench.calls("wipe"), 0);
    bench.model.finish();
}

#[test]
fn a_background_response_that_a_crash_cut_off_ends_with_what_waits_too() {
    let never = lf_tests::wait::Gate::new();
    let mut replies = vec![Reply::text("never said").hold(&never)];
    replies.extend([Reply::calls([wipe("c1")]), Reply::text("Wiped.")]);
    let bench = Bench::new(&ask(), "60s", replies);
    let daemon = bench.project.serve();
    let first = post(&daemon.url("/v1/responses"), &json!({"input": "Clean up.", "background": true})).ok();
    bench.model.wait_for_requests(1);
    daemon.signal(Signal::SIGKILL);
    daemon.wait(PATIENCE);
    let daemon = bench.project.serve();
    let began = Instant::now();
    let item = asked(&over(&daemon, &first));
    assert!(began.elapsed() < Duration::from_secs(50), "nobody is waited for");
    let body = json!({"previous_response_id": first["id"], "input": [answer(&item, true)]});
    assert_eq!(text(&post(&daemon.url("/v1/responses"), &body).ok()), "Wiped.");
    assert_eq!(bench.calls("wipe"), 1);
}
