//! What private and untrusted results together hold back, wherever the conversation is kept.

use super::*;

#[test]
fn private_and_untrusted_results_together_hold_back_what_can_leave() {
    let labels = json!({"look": ["private"], "browse": ["untrusted"], "send": ["egress"]});
    let send = |id: &str| Reply::calls([call(id, "send", json!({"to": id}))]);
    let replies = vec![
        Reply::calls([call("c1", "look", json!({}))]),
        send("c2"),
        Reply::calls([call("c3", "browse", json!({}))]),
        Reply::text("Read."),
        // the next turn of the same conversation
        send("c4"),
        Reply::text("Not sent."),
    ];
    let bench = Bench::new(&json!({}), &labels, replies);
    let daemon = bench.project.serve();
    let say = |words: &str| {
        let body = json!({"messages": [{"role": "user", "content": words}]});
        let answer = request(
            "POST",
            &daemon.url("/v1/chat/completions"),
            &[("x-session-id", "s1")],
            Some(body.to_string()),
        );
        answer.ok()
    };
    say("Look.");
    assert_eq!(bench.calls("send"), 1, "what was private alone may leave");
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| say("Send it."));
        let waiting = ada_says(&daemon, "deny");
        assert!(
            waiting["why"].as_str().is_some_and(|why| why.contains("private results and untrusted")),
            "{waiting}"
        );
        answer.join().expect("an answer");
    });
    assert_eq!(bench.calls("send"), 1);
    bench.model.finish();
}

#[test]
fn what_a_conversation_has_seen_counts_after_a_crash() {
    let labels = json!({"look": ["private"], "browse": ["untrusted"], "send": ["egress"]});
    let gate = Gate::new();
    let replies = vec![
        Reply::calls([call("c1", "look", json!({})), call("c2", "browse", json!({}))]),
        // the daemon dies while the model answers
        Reply::text("…").hold(&gate),
        Reply::calls([call("c3", "send", json!({}))]),
        Reply::text("Not sent."),
    ];
    let bench = Bench::new(&json!({"flow": "deny"}), &labels, replies);
    let daemon = bench.project.serve();
    let id = lf_tests::conversation::create(&daemon, &json!({}));
    for tool in ["look", "browse", "send"] {
        post(
            &daemon.url(&format!("/conversations/{id}/tools")),
            &json!({"server_id": "disk", "tool_name": tool}),
        )
        .ok();
    }
    let chat = daemon.url(&format!("/conversations/{id}/chat"));
    let mut events = stream(&chat, &json!({"content": "Look.", "stream": true}));
    events.until("the turn", |event| event["event"] == "started");
    bench.model.wait_for_requests(2);
    daemon.signal(Signal::SIGKILL);
    daemon.wait(PATIENCE);
    gate.open();
    let daemon = bench.project.serve();
    eventually("the end of the turn", || {
        let said = lf_tests::conversation::said(&daemon, &id);
        said.iter().any(|said| said.contains("Not sent.")).then_some(())
    });
    assert_eq!(bench.calls("send"), 0);
    assert!(bench.result(3).contains("private results and untrusted"), "{}", bench.result(3));
}

/// Ends with the model's call of `send`, after it has seen what must not leave unasked.
fn mixed() -> Vec<Reply> {
    let seen = Reply::calls([call("c1", "look", json!({})), call("c2", "browse", json!({}))]);
    vec![seen, Reply::calls([call("c3", "send", json!({"n": 1}))])]
}

#[test]
fn whatever_a_client_says_next_is_no_yes_where_it_keeps_the_conversation() {
    let labels = json!({"look": ["private"], "browse": ["untrusted"], "send": ["egress"]});
    let mut replies = mixed();
    replies.push(Reply::calls([call("c4", "send", json!({"n": 2}))]));
    let bench = Bench::waiting("100ms", &json!({}), &labels, replies);
    let daemon = bench.project.serve();
    let mut said = vec![json!({"role": "user", "content": "Look."})];
    let mut say = |words: &str| {
        let answer = post(&daemon.url("/v1/chat/completions"), &json!({"messages": said})).ok();
        said.push(answer["choices"][0]["message"].clone());
        said.push(json!({"role": "user", "content": words}));
        said[said.len() - 2]["content"].as_str().expect("words").to_owned()
    };
    let told = say("What is this?");
    assert!(told.contains("apr_"), "a person is asked: {told}");
    // nothing was decided, and the transcript does not tell what was seen
    let again = say("Go on.");
    assert!(again.contains("apr_"), "it is asked again: {again}");
    assert_eq!(bench.calls("send"), 0);
    ada_says(&daemon, "approve");
    let next = say("It may.");
    assert_eq!(bench.calls("send"), 1, "the approved one");
    assert!(next.contains("apr_"), "and the next one is asked about: {next}");
    bench.model.finish();
}

#[test]
fn what_was_seen_counts_after_the_conversation_was_made_short() {
    let labels = json!({"look": ["private"], "browse": ["untrusted"], "send": ["egress"]});
    let replies = vec![
        Reply::calls([call("c1", "look", json!({})), call("c2", "browse", json!({}))]),
        Reply::text("Read."),
        Reply::text("They read."),
        Reply::calls([call("c3", "send", json!({"n": 1}))]),
        Reply::text("Not sent."),
    ];
    let bench = Bench::new(&json!({"flow": "deny"}), &labels, replies);
    let daemon = bench.project.serve();
    let respond = |body: &Value| post(&daemon.url("/v1/responses"), body).ok();
    let read = respond(&json!({"model": "assistant", "input": "Look."}));
    let body = json!({"model": "assistant", "previous_response_id": read["id"]});
    let short = post(&daemon.url("/v1/responses/compact"), &body).ok();
    let mut items = short["output"].as_array().expect("items").clone();
    items.push(json!({"role": "user", "content": "Send it."}));
    respond(&json!({"model": "assistant", "input": items}));
    assert_eq!(bench.calls("send"), 0);
    assert!(bench.result(4).contains("private results and untrusted"), "{}", bench.result(4));
    bench.model.finish();
}

#[test]
fn labels_that_a_server_tells_are_asked_about_without_a_policy() {
    let labelled = |name: &str, label: &str| ScriptedTool {
        meta: Some(json!({"io.lf/labels": [label]})),
        ..ScriptedTool::new(name, Act::Echo)
    };
    let tools = [labelled("look", "private"), labelled("browse", "untrusted"), labelled("send", "egress")];
    let mut replies = mixed();
    replies.push(Reply::text("Sent."));
    let model = ScriptedModel::start(replies);
    let limits = json!({"limits": {"approval_timeout": "100ms"}});
    let project = document(limits, &model.base_url(), &[scripted("disk", &Script::with(tools))]);
    let project = TestProject::of(&project);
    let answer = chat(&project.serve(), "Send it.");
    let told = answer["choices"][0]["message"]["content"].as_str().expect("words");
    assert!(told.contains("apr_") && told.contains("private results and untrusted"), "{told}");
}
