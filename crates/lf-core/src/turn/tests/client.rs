//! Tools that the client runs, and what it comes back with.

use super::*;

fn made(id: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: "t".to_owned(), arguments: Arguments::parse("{}"), rest: Map::new() }
}

fn said(ids: &[&str]) -> Message {
    let calls = ids.iter().map(|id| made(id)).collect();
    Message::Assistant(AssistantMessage { calls, ..AssistantMessage::default() })
}

fn result(id: &str) -> Message {
    Message::Tool(ToolResult::error(&made(id), "x"))
}

#[test]
fn a_client_may_come_back_in_pieces_or_with_less() {
    let messages = vec![said(&["a", "b", "s"]), result("s")];
    let resume = Arc::new(Resume { ids: vec!["a".to_owned(), "b".to_owned()], messages: messages.into() });
    let find = |id: &str| (id == "a" || id == "b").then(|| resume.clone());
    for mut history in
        [vec![said(&["a"]), result("a"), said(&["b"]), result("b")], vec![said(&["a"]), result("a")]]
    {
        put_back(&mut history, find);
        assert_eq!(check_answers(&history), Ok(()));
        assert_eq!(history.len(), 4, "one message with three calls, and their results: {history:?}");
    }
}

#[test]
fn calls_of_client_tools_end_the_turn_under_the_clients_name() {
    let rounds = vec![vec![call("a", "cli_upload", "{\"file\":\"x\"}"), end(FinishReason::ToolCalls)]];
    let (told, _, done) = play(setup(ToolCallStrategy::NativeApi), rounds);
    assert_eq!(told, "client a cli.upload\nfinished tool_calls 1\n");
    assert!(done.resume.is_none(), "the client knows all of it");
}

#[test]
fn text_after_a_clients_call_is_shown_after_it_and_before_the_servers_own() {
    let round = |call| vec![text("before"), call, text("after"), end(FinishReason::ToolCalls)];
    let (told, ..) =
        play(setup(ToolCallStrategy::NativeApi), vec![round(call("a", "cli_upload", r#"{"path":"x"}"#))]);
    assert_eq!(told, "text \"before\"\nclient a cli.upload\ntext \"after\"\nfinished tool_calls 1\n");
    let last = vec![text("done"), end(FinishReason::Stop)];
    let (told, ..) = play(setup(ToolCallStrategy::NativeApi), vec![round(weather("a", "Rome")), last]);
    assert!(told.starts_with("text \"before\"\ntext \"after\"\nstart a"), "{told}");
}

#[test]
fn a_mixed_round_is_put_back_when_the_client_returns() {
    let rounds = vec![
        vec![weather("s0", "Bonn"), end(FinishReason::ToolCalls)],
        vec![
            text("Both."),
            weather("s1", "Rome"),
            call("c1", "cli_upload", "{}"),
            weather("s2", "Oslo"),
            end(FinishReason::ToolCalls),
        ],
    ];
    let (told, _, done) = play(setup(ToolCallStrategy::NativeApi), rounds);
    assert!(told.ends_with("finished tool_calls 2\n"), "{told}");
    assert!(!told.contains("start c1"), "a client's call is not told as the server's: {told}");
    let resume = Arc::new(done.resume.expect("there is something to put back"));
    let id = resume.ids[0].clone();
    assert!(id.contains("0123456789abcdef"), "the id leads back and cannot be guessed: {id}");

    let returned = AssistantMessage {
        content: "Both.".into(),
        calls: vec![ToolCall {
            id: id.clone(),
            name: "cli.upload".to_owned(),
            arguments: Arguments::parse("{}"),
            rest: Map::new(),
        }],
        ..AssistantMessage::default()
    };
    let mut messages = vec![
        Message::User(Prose { content: "hi".into(), rest: Map::new() }),
        Message::Assistant(returned),
        Message::Tool(ToolResult::new(id.clone(), "done")),
    ];
    put_back(&mut messages, |wanted| (wanted == id).then(|| resume.clone()));
    let request = ModelRequest { messages, ..ModelRequest::default() };
    check_history(&request);
    let calls: usize = request
        .messages
        .iter()
        .map(|message| match message {
            Message::Assistant(said) => said.calls.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(calls, 4, "the earlier round is there as well");
}

#[test]
fn history_without_known_ids_is_left_as_it_is() {
    let mut messages = vec![Message::User(Prose { content: "hi".into(), rest: Map::new() })];
    let before = messages.clone();
    put_back(&mut messages, |_| None);
    assert_eq!(messages, before);
}

#[test]
fn a_history_whose_calls_and_results_do_not_match_is_refused() {
    let user = || Message::User(Prose { content: "hi".into(), rest: Map::new() });
    assert_eq!(check_answers(&[user(), said(&["a", "b"]), result("b"), result("a"), user()]), Ok(()));
    for (history, word) in [
        (vec![said(&["a", "b"]), result("a")], "call `b` has no result"),
        (vec![said(&["a"]), user(), result("a")], "call `a` has no result before messages[1]"),
        (vec![said(&["a"]), result("x")], "messages[1] is the result of call `x`"),
        (vec![said(&["a"]), result("a"), result("a")], "messages[2] is a second result"),
        (vec![result("a")], "messages[0] is the result of call `a`"),
    ] {
        let problem = check_answers(&history).expect_err("it does not match");
        assert!(problem.contains(word), "{problem}");
    }
}

#[test]
fn client_tools_of_the_request_are_offered_with_all_their_fields() {
    let mut rest = Map::new();
    rest.insert("strict".to_owned(), json!(true));
    let spec = ToolSpec {
        name: "mine".to_owned(),
        description: None,
        schema: crate::tool_set::empty_schema(),
        rest: rest.clone(),
    };
    let set = ToolSet::new(&Catalogue::default(), &[], &[spec]);
    assert_eq!(set.specs()[0].rest, rest);
}

#[test]
fn a_clients_limit_of_calls_holds_over_the_rounds() {
    let rounds = vec![
        vec![weather("a", "Rome"), weather("b", "Oslo"), end(FinishReason::ToolCalls)],
        vec![weather("c", "Paris"), weather("d", "Berne"), end(FinishReason::ToolCalls)],
        vec![text("Enough."), end(FinishReason::Stop)],
    ];
    let mut limited = setup(ToolCallStrategy::NativeApi);
    limited.calls_left = Some(3);
    let (told, requests, _) = play(limited, rounds);
    assert_eq!(told.matches("result ").count(), 3, "{told}");
    assert!(told.contains("error d"), "{told}");
    assert!(requests[2].tools.is_empty(), "the next answer is the last");
}

#[test]
fn state_of_the_models_brings_a_client_back_to_it() {
    let state = ModelDelta::State([("$x".to_owned(), json!("sealed"))].into_iter().collect());
    let rounds = vec![vec![call("a", "cli_upload", "{}"), state, end(FinishReason::ToolCalls)]];
    let (told, _, done) = play(setup(ToolCallStrategy::NativeApi), rounds);
    let resume = done.resume.expect("the client's dialect may have no place for it");
    assert!(told.contains(&resume.ids[0]), "{told}");
    let Message::Assistant(said) = &resume.messages[0] else { panic!("{:?}", resume.messages) };
    assert_eq!(said.rest["$x"], json!("sealed"));
}
