use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};

use super::*;
use crate::message::{Arguments, ToolResult};
use crate::model::ToolSpec;
use crate::project::InlineTool;
use crate::tool::{Catalogue, Tool, ToolContent, ToolError, ToolOutput, ToolRef};

fn tool(server: &str, name: &str) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    });
    Tool::new(ToolRef { server: server.into(), name: name.into() }, Some("a tool".into()), Arc::new(schema))
}

fn inline(name: &str) -> InlineTool {
    InlineTool {
        name: name.to_owned(),
        description: String::new(),
        parameters: crate::tool_set::empty_schema(),
    }
}

fn setup(strategy: ToolCallStrategy) -> Setup {
    let catalogue = Catalogue { tools: vec![tool("sky", "weather"), tool("sky", "time")], down: Vec::new() };
    Setup {
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        model: "m".to_owned(),
        request: ModelRequest {
            messages: vec![Message::User(Prose { content: "hi".into(), rest: Map::new() })],
            ..ModelRequest::default()
        },
        tools: ToolSet::new(&catalogue, &[inline("cli.upload")], &[]),
        strategy,
        text_formats: crate::text_calls::DEFAULT,
        limits: Limits::default(),
        calls_left: None,
    }
}

fn call(id: &str, name: &str, arguments: &str) -> ModelDelta {
    ModelDelta::Call(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: Arguments::parse(arguments),
        rest: Map::new(),
    })
}

fn text(text: &str) -> ModelDelta {
    ModelDelta::Text(text.to_owned())
}

fn end(reason: FinishReason) -> ModelDelta {
    ModelDelta::Finish { reason, raw: None, stop_sequence: None }
}

fn weather(id: &str, city: &str) -> ModelDelta {
    call(id, "sky__weather", &json!({"city": city}).to_string())
}

fn output(text: &str) -> ToolOutput {
    ToolOutput { content: vec![ToolContent::Text(text.to_owned())], ..ToolOutput::default() }
}

/// Drives a turn with one script of deltas per ask; every call that is to run returns "ok NAME ARGUMENTS".
fn play(setup: Setup, rounds: Vec<Vec<ModelDelta>>) -> (String, Vec<ModelRequest>, Done) {
    let mut events = Vec::new();
    let mut step = Step::AskModel(start(setup, &mut events));
    let mut rounds = rounds.into_iter();
    let mut requests = Vec::new();
    let done = loop {
        step = match step {
            Step::AskModel(mut ask) => {
                requests.push(ask.request().into_owned());
                for delta in rounds.next().expect("the script has an answer for every ask") {
                    ask.push(delta, &mut events);
                }
                ask.finish(&mut events)
            }
            Step::RunTools(mut run) => {
                run.answered(&mut events);
                let jobs: Vec<(usize, String)> = run
                    .calls()
                    .iter()
                    .enumerate()
                    .filter(|(_, planned)| matches!(planned.plan, Planned::Run(_)))
                    .map(|(at, planned)| {
                        (at, format!("ok {} {}", planned.call.name, planned.call.arguments.raw()))
                    })
                    .collect();
                // the last one first: the order of completion must not matter
                for (at, text) in jobs.into_iter().rev() {
                    run.settle(at, Ok(output(&text)), Duration::ZERO, &mut events);
                }
                run.finish(&mut events)
            }
            Step::Done(done) => break done,
        };
    };
    assert!(rounds.next().is_none(), "the turn ended before the script");
    (told(&events), requests, done)
}

fn told(events: &[ChatEvent]) -> String {
    let mut out = String::new();
    for event in events {
        let _ = match event {
            ChatEvent::Started { .. } => Ok(()),
            ChatEvent::Text(text) => writeln!(out, "text {text:?}"),
            ChatEvent::Reasoning(text) => writeln!(out, "reasoning {text:?}"),
            ChatEvent::CallStarted { call, tool } => {
                writeln!(
                    out,
                    "start {} {} {}",
                    call.id,
                    call.name,
                    if tool.is_some() { "run" } else { "answered" }
                )
            }
            ChatEvent::CallProgress { call_id, .. } => writeln!(out, "progress {call_id}"),
            ChatEvent::CallFinished { result, .. } => writeln!(
                out,
                "{} {} {:?}",
                if result.is_error { "error" } else { "result" },
                result.call_id,
                result.content.text()
            ),
            ChatEvent::ClientCalls(calls) => {
                let calls: Vec<String> =
                    calls.iter().map(|call| format!("{} {}", call.id, call.name)).collect();
                writeln!(out, "client {}", calls.join(", "))
            }
            ChatEvent::Notice(text) => writeln!(out, "notice {text}"),
            ChatEvent::Answering { model } => writeln!(out, "answering {model}"),
            ChatEvent::Native(native) => writeln!(out, "native {}", native.item),
            ChatEvent::Finished { reason, rounds, .. } => {
                writeln!(out, "finished {} {rounds}", reason.name())
            }
            ChatEvent::Failed(error) => writeln!(out, "failed {error}"),
        };
    }
    out
}

/// Every call of the history is answered exactly once, directly after it and in its order.
fn check_history(request: &ModelRequest) {
    let mut open: Vec<String> = Vec::new();
    for message in &request.messages {
        match message {
            Message::Tool(result) => {
                assert!(!open.is_empty(), "a result without a call: {}", result.call_id);
                assert_eq!(open.remove(0), result.call_id);
            }
            other => {
                assert!(open.is_empty(), "calls without a result: {open:?}");
                if let Message::Assistant(said) = other {
                    open = said.calls.iter().map(|call| call.id.clone()).collect();
                }
            }
        }
    }
    assert!(open.is_empty(), "calls without a result: {open:?}");
}

#[test]
fn a_text_answer_is_one_round() {
    let (told, requests, done) = play(
        setup(ToolCallStrategy::NativeApi),
        vec![vec![text("Hel"), text("lo"), end(FinishReason::Stop)]],
    );
    assert_eq!(told, "text \"Hel\"\ntext \"lo\"\nfinished stop 1\n");
    assert_eq!(requests[0].tools.len(), 3);
    assert!(done.resume.is_none());
}

#[test]
fn all_calls_of_a_round_are_answered_in_call_order() {
    let rounds = vec![
        vec![text("Let me look."), weather("a", "Rome"), weather("b", "Oslo"), end(FinishReason::ToolCalls)],
        vec![text("Sunny."), end(FinishReason::Stop)],
    ];
    let (told, requests, _) = play(setup(ToolCallStrategy::NativeApi), rounds);
    assert_eq!(
        told,
        "text \"Let me look.\"\n\
         start a sky__weather run\n\
         start b sky__weather run\n\
         result b \"ok sky__weather {\\\"city\\\":\\\"Oslo\\\"}\"\n\
         result a \"ok sky__weather {\\\"city\\\":\\\"Rome\\\"}\"\n\
         text \"\\n\\nSunny.\"\n\
         finished stop 2\n"
    );
    check_history(&requests[1]);
    assert_eq!(requests[1].messages.len(), 4);
}

#[test]
fn a_finish_reason_of_stop_does_not_lose_calls() {
    let rounds = vec![
        vec![weather("a", "Rome"), end(FinishReason::Stop)],
        vec![text("Sunny."), end(FinishReason::ToolCalls)],
    ];
    let (told, _, _) = play(setup(ToolCallStrategy::NativeApi), rounds);
    assert!(told.contains("start a sky__weather run"), "{told}");
    assert!(told.ends_with("finished stop 2\n"), "tool_calls without calls is stop: {told}");
}

#[test]
fn unknown_tools_bad_arguments_and_cut_arguments_are_told_to_the_model() {
    let cut = ModelDelta::Call(ToolCall {
        id: "d".to_owned(),
        name: "sky__time".to_owned(),
        arguments: Arguments::incomplete("{\"city\":\"Ro", "cut off"),
        rest: Map::new(),
    });
    let rounds = vec![
        vec![
            call("a", "sky__wether", "{}"),
            call("b", "sky__weather", "{\"city\": 5}"),
            call("c", "sky__weather", "[1]"),
            cut,
            weather("e", "Rome"),
            end(FinishReason::ToolCalls),
        ],
        vec![text("ok"), end(FinishReason::Stop)],
    ];
    let (told, requests, _) = play(setup(ToolCallStrategy::NativeApi), rounds);
    assert!(told.contains("error a \"there is no tool `sky__wether`. Did you mean `sky__weather`"), "{told}");
    assert!(told.contains("error b \"the arguments do not fit the schema of `sky__weather`"), "{told}");
    assert!(told.contains("/city"), "the place is named: {told}");
    assert!(told.contains("error c \"the arguments could not be read"), "{told}");
    assert!(told.contains("error d \"the arguments could not be read (cut off)"), "{told}");
    assert!(told.contains("result e"), "the good neighbour runs: {told}");
    check_history(&requests[1]);
}

#[test]
fn a_call_cut_by_the_token_limit_ends_the_turn_and_does_not_run() {
    let cut = ModelDelta::Call(ToolCall {
        id: "a".to_owned(),
        name: "sky__weather".to_owned(),
        arguments: Arguments::incomplete("{\"city\":\"Ro", "cut off"),
        rest: Map::new(),
    });
    let (told, _, _) = play(setup(ToolCallStrategy::NativeApi), vec![vec![cut, end(FinishReason::Length)]]);
    assert_eq!(
        told,
        "notice the model wanted 1 tool call(s) in an answer that was cut off; nothing was run\nfinished length 1\n"
    );
}

#[test]
fn the_round_limit_ends_in_an_answer_without_tools() {
    let mut start = setup(ToolCallStrategy::NativeApi);
    start.limits.rounds = 2;
    let rounds = vec![
        vec![weather("a", "Rome"), end(FinishReason::ToolCalls)],
        vec![weather("b", "Oslo"), end(FinishReason::ToolCalls)],
        vec![text("That is all."), end(FinishReason::Stop)],
    ];
    let (told, requests, _) = play(start, rounds);
    assert!(told.ends_with("text \"That is all.\"\nfinished stop 3\n"), "{told}");
    assert!(requests[2].tools.is_empty());
    let Some(Message::Tool(last)) = requests[2].messages.last() else { panic!("a result is last") };
    assert!(last.content.text().contains("No more tool calls"));
}

#[test]
fn the_same_call_again_and_again_is_refused_and_then_ended() {
    let mut rounds: Vec<Vec<ModelDelta>> =
        (0..5).map(|at| vec![weather(&format!("c{at}"), "Rome"), end(FinishReason::ToolCalls)]).collect();
    rounds.push(vec![text("Fine."), end(FinishReason::Stop)]);
    let (told, requests, _) = play(setup(ToolCallStrategy::NativeApi), rounds);
    assert_eq!(told.matches("\nresult ").count() + usize::from(told.starts_with("result")), 2, "{told}");
    assert!(told.contains("error c2 \"this is call number 3"), "{told}");
    assert!(requests[5].tools.is_empty(), "the fifth one ends it");
}

#[test]
fn a_forced_tool_choice_is_forced_once() {
    let mut start = setup(ToolCallStrategy::NativeApi);
    start.request.tool_choice = Some(ToolChoice::Required);
    let rounds = vec![
        vec![weather("a", "Rome"), end(FinishReason::ToolCalls)],
        vec![text("ok"), end(FinishReason::Stop)],
    ];
    let (_, requests, _) = play(start, rounds);
    assert_eq!(requests[0].tool_choice, Some(ToolChoice::Required));
    assert_eq!(requests[1].tool_choice, Some(ToolChoice::Auto));
}

#[test]
fn a_request_that_allows_no_tools_runs_none() {
    let mut start = setup(ToolCallStrategy::NativeApi);
    start.request.tool_choice = Some(ToolChoice::None);
    let quoted = "<tool_call>{\"name\": \"sky__weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>";
    let rounds = vec![vec![text(quoted), weather("a", "Rome"), end(FinishReason::ToolCalls)]];
    let (told, _, _) = play(start, rounds);
    assert!(told.contains(&format!("text {quoted:?}")), "{told}");
    assert!(told.contains("although the request allows none; nothing was run"), "{told}");
    assert!(told.ends_with("finished stop 1\n") && !told.contains("start "), "{told}");
}

#[test]
fn a_client_may_come_back_in_pieces_or_with_less() {
    let call = |id: &str| ToolCall {
        id: id.to_owned(),
        name: "t".to_owned(),
        arguments: Arguments::parse("{}"),
        rest: Map::new(),
    };
    let said = |ids: &[&str]| {
        let calls = ids.iter().map(|id| call(id)).collect();
        Message::Assistant(AssistantMessage { calls, ..AssistantMessage::default() })
    };
    let result = |id: &str| Message::Tool(ToolResult::error(&call(id), "x"));
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
fn missing_and_repeated_ids_are_replaced() {
    let rounds = vec![
        vec![weather("", "A"), weather("x", "B"), weather("x", "C"), end(FinishReason::ToolCalls)],
        vec![text("ok"), end(FinishReason::Stop)],
    ];
    let (_, requests, _) = play(setup(ToolCallStrategy::NativeApi), rounds);
    check_history(&requests[1]);
    let Message::Assistant(said) = &requests[1].messages[1] else { panic!("the assistant spoke") };
    let mut ids: Vec<&str> = said.calls.iter().map(|call| call.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| !id.is_empty() && id.len() <= 40));
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
        Message::Tool(ToolResult {
            call_id: id.clone(),
            name: None,
            content: "done".into(),
            is_error: false,
            rest: Map::new(),
        }),
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
    let call = |id: &str| ToolCall {
        id: id.to_owned(),
        name: "t".to_owned(),
        arguments: Arguments::parse("{}"),
        rest: Map::new(),
    };
    let said = |ids: &[&str]| {
        let calls = ids.iter().map(|id| call(id)).collect();
        Message::Assistant(AssistantMessage { calls, ..AssistantMessage::default() })
    };
    let result = |id: &str| Message::Tool(ToolResult::error(&call(id), "x"));
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
fn a_call_in_a_models_own_dialect_is_run_and_not_shown() {
    let setup = Setup {
        text_formats: crate::text_calls::named("kimi_k2").expect("a dialect"),
        ..setup(ToolCallStrategy::NativeApi)
    };
    let written = "Looking.<|tool_calls_section_begin|><|tool_call_begin|>functions.sky__weather:0\
                   <|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_end|><|tool_calls_section_end|>";
    let first = written.as_bytes().chunks(5).map(|part| text(&String::from_utf8_lossy(part)));
    let (told, requests, _) = play(
        setup,
        vec![first.chain([end(FinishReason::Stop)]).collect(), vec![text("Sunny."), end(FinishReason::Stop)]],
    );
    assert!(!told.contains("<|"), "no mark is shown: {told}");
    let result = requests[1].messages.iter().find_map(|message| match message {
        Message::Tool(result) => Some(result),
        _ => None,
    });
    assert!(format!("{result:?}").contains("ok sky__weather"), "{result:?}");
}

#[test]
fn the_prompt_strategy_tells_tools_in_the_system_prompt_and_results_as_text() {
    let rounds = vec![
        vec![
            text("Looking.\n<tool_call>\n{\"name\": \"sky__weather\", \"argu"),
            text("ments\": {\"city\": \"Rome\"}}\n</tool_"),
            text("call>"),
            end(FinishReason::Stop),
        ],
        vec![text("Sunny."), end(FinishReason::Stop)],
    ];
    let (told, requests, _) = play(setup(ToolCallStrategy::PromptBased), rounds);
    assert!(told.starts_with("text \"Looking.\"\nstart call_"), "{told}");
    assert!(!told.contains("tool_call>"), "no tag is shown: {told}");
    let Message::System(system) = &requests[0].messages[0] else { panic!("a system prompt was added") };
    assert!(system.content.text().contains("<tool>{\"type\":\"function\""));
    assert!(requests[0].tools.is_empty());
    let [_, _, Message::Assistant(said), Message::User(answer)] = &requests[1].messages[..] else {
        panic!("calls and results are text: {:?}", requests[1].messages)
    };
    assert!(
        said.calls.is_empty() && said.content.text().contains("<tool_call>\n{\"name\": \"sky__weather\"")
    );
    assert!(answer.content.text().starts_with("<tool_response>\n[sky__weather]\nok sky__weather"));
}

#[test]
fn a_malformed_text_call_is_reported_and_not_swallowed() {
    let rounds = vec![
        vec![
            text("<tool_call>{\"name\": \"sky__weather\", \"arguments\": {\"city\": }}</tool_call>"),
            end(FinishReason::Stop),
        ],
        vec![text("Sorry."), end(FinishReason::Stop)],
    ];
    let (told, requests, _) = play(setup(ToolCallStrategy::PromptBased), rounds);
    assert_eq!(told, "text \"Sorry.\"\nfinished stop 2\n");
    let Some(Message::User(report)) = requests[1].messages.last() else { panic!("the report is last") };
    assert!(report.content.text().contains("could not be read"));
}

#[test]
fn auto_switches_to_the_prompt_when_the_upstream_has_no_tools() {
    let mut events = Vec::new();
    let mut ask = start(setup(ToolCallStrategy::Auto), &mut events);
    let refusal = |message: &str| ModelError::Rejected {
        url: "u".to_owned(),
        status: 400,
        message: message.to_owned(),
        body: None,
    };
    assert!(!ask.switch_to_prompt(&refusal("context too long")));
    assert!(ask.switch_to_prompt(&refusal("registry.example/llama2 does not support tools")));
    assert!(ask.request().tools.is_empty());
    assert!(!ask.switch_to_prompt(&refusal("does not support tools")), "only once");
    let mut native = start(setup(ToolCallStrategy::NativeApi), &mut events);
    assert!(!native.switch_to_prompt(&refusal("does not support tools")));
}

#[test]
fn a_failed_answer_runs_nothing() {
    let mut events = Vec::new();
    let mut ask = start(setup(ToolCallStrategy::PromptBased), &mut events);
    ask.push(
        text("<tool_call>{\"name\": \"sky__weather\", \"arguments\": {\"city\": \"Rome\"}}"),
        &mut events,
    );
    let error =
        ModelError::Garbled { url: "u".to_owned(), expected: "answer".into(), found: "a cut".to_owned() };
    let done = ask.fail(error, &mut events);
    assert!(done.resume.is_none());
    assert!(told(&events).ends_with("failed u answered with something that is no answer: a cut\n"));
    assert!(!told(&events).contains("start"));
}

#[test]
fn failures_of_tools_are_results() {
    let mut events = Vec::new();
    let mut ask = start(setup(ToolCallStrategy::NativeApi), &mut events);
    ask.push(weather("a", "Rome"), &mut events);
    ask.push(end(FinishReason::ToolCalls), &mut events);
    let Step::RunTools(mut run) = ask.finish(&mut events) else { panic!("tools run") };
    let error = ToolError::Down { server: "sky".to_owned(), reason: "Connection refused".to_owned() };
    run.settle(0, Err(error), Duration::ZERO, &mut events);
    let Step::AskModel(ask) = run.finish(&mut events) else { panic!("the model is asked again") };
    check_history(&ask.request());
    assert!(told(&events).contains("error a \"MCP server `sky` is not available: Connection refused\""));
}

#[test]
fn a_long_result_is_cut_and_says_so() {
    let call = ToolCall {
        id: "a".to_owned(),
        name: "t".to_owned(),
        arguments: Arguments::parse("{}"),
        rest: Map::new(),
    };
    let result = result_for_model(&call, output(&"ä".repeat(1000)), 100);
    let text = result.content.text();
    assert!(text.len() < 500, "{}", text.len());
    assert!(text.ends_with("[cut: the first 400 of 2000 bytes; ask for less at a time]"), "{text}");
}

#[test]
fn usage_is_summed_over_the_rounds() {
    let usage = |input, output| ModelDelta::Usage(Usage { input, output, ..Usage::default() });
    let rounds = [
        vec![weather("a", "Rome"), usage(10, 5), end(FinishReason::ToolCalls)],
        vec![text("ok"), usage(20, 7), end(FinishReason::Stop)],
    ];
    let mut events = Vec::new();
    let mut ask = start(setup(ToolCallStrategy::NativeApi), &mut events);
    for delta in rounds[0].clone() {
        ask.push(delta, &mut events);
    }
    let Step::RunTools(run) = ask.finish(&mut events) else { panic!("tools run") };
    let Step::AskModel(mut ask) = run.finish(&mut events) else { panic!("asked again") };
    for delta in rounds[1].clone() {
        ask.push(delta, &mut events);
    }
    ask.finish(&mut events);
    let Some(ChatEvent::Finished { usage, .. }) = events.last() else { panic!("finished") };
    assert_eq!((usage.input, usage.output), (30, 12));
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

fn failed_generation(text: &str) -> ModelError {
    ModelError::Rejected {
        url: "u".to_owned(),
        status: 400,
        message: "Failed to call a function. Please adjust your prompt.".to_owned(),
        body: Some(Box::new(json!({"code": "tool_use_failed", "failed_generation": text}))),
    }
}

#[test]
fn calls_that_the_upstream_could_not_read_are_read_from_its_error() {
    for written in [
        "<function=sky__weather>{\"city\": \"Rome\"}</function>",
        "<function=sky__weather{\"city\": \"Rome\"}</function>",
        "<tool_call>{\"name\": \"sky__weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>",
        "{\"name\": \"sky__weather\", \"parameters\": {\"city\": \"Rome\"}}",
    ] {
        let mut events = Vec::new();
        let mut ask = start(setup(ToolCallStrategy::NativeApi), &mut events);
        assert_eq!(ask.rescue(&failed_generation(written), &mut events), Rescue::Answered, "{written}");
        let Step::RunTools(run) = ask.finish(&mut events) else { panic!("{written}") };
        assert_eq!(run.calls()[0].call.arguments.raw().replace(' ', ""), "{\"city\":\"Rome\"}");
    }
}

#[test]
fn what_cannot_be_read_from_an_error_is_asked_again_once() {
    let mut events = Vec::new();
    let mut ask = start(setup(ToolCallStrategy::NativeApi), &mut events);
    assert_eq!(ask.rescue(&failed_generation("I would call the weather."), &mut events), Rescue::AskAgain);
    assert_eq!(ask.rescue(&failed_generation("I would call the weather."), &mut events), Rescue::Nothing);
    let mut begun = start(setup(ToolCallStrategy::NativeApi), &mut events);
    begun.push(text("Hel"), &mut events);
    assert_eq!(
        begun.rescue(&failed_generation("<function=sky__time>{}</function>"), &mut events),
        Rescue::Nothing
    );
}

#[test]
fn another_model_takes_over_with_its_own_ways_and_only_its_own_tools() {
    let catalogue = Catalogue { tools: vec![tool("sky", "time")], down: Vec::new() };
    let other = |tools: ToolSet| StandIn {
        model: "spare".to_owned(),
        tools,
        parameters: [("temperature".to_owned(), json!(0))].into_iter().collect(),
        strategy: ToolCallStrategy::PromptBased,
        text_formats: crate::text_calls::DEFAULT,
        sealed: Vec::new(),
    };
    let fewer = ToolSet::new(&catalogue, &[], &[]);
    let mut events = Vec::new();
    let mut ask = start(setup(ToolCallStrategy::NativeApi), &mut events);
    assert!(ask.stand_in(other(fewer.clone()), &mut events));
    assert_eq!(told(&events), "answering spare\n");
    assert!(ask.request().tools.is_empty(), "it is told its tools in the prompt");
    assert_eq!(ask.request().parameters["temperature"], json!(0));
    ask.push(
        text("<tool_call>{\"name\": \"sky__weather\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>"),
        &mut events,
    );
    let Step::RunTools(run) = ask.finish(&mut events) else { panic!("the call is answered") };
    assert!(matches!(run.calls()[0].plan, Planned::Answered(_)), "it may not use the other's tools");

    let mut forced = setup(ToolCallStrategy::NativeApi);
    forced.request.tool_choice = Some(ToolChoice::Tool("sky__weather".to_owned()));
    let mut ask = start(forced, &mut events);
    assert!(!ask.stand_in(other(fewer.clone()), &mut events), "it has not the tool that is forced");
    let mut begun = start(setup(ToolCallStrategy::NativeApi), &mut events);
    begun.push(text("Hel"), &mut events);
    assert!(!begun.stand_in(other(fewer), &mut events), "somebody has seen the beginning");
}

#[test]
fn what_a_turn_said_is_told_at_its_end() {
    let rounds = vec![
        vec![weather("a", "Rome"), end(FinishReason::ToolCalls)],
        vec![
            ModelDelta::State([("$x".to_owned(), json!(1))].into_iter().collect()),
            text("Sunny."),
            end(FinishReason::Stop),
        ],
    ];
    let (_, _, done) = play(setup(ToolCallStrategy::NativeApi), rounds);
    let [Message::Assistant(asked), Message::Tool(result), Message::Assistant(answer)] = &*done.said else {
        panic!("{:?}", done.said)
    };
    assert_eq!((asked.calls.len(), result.call_id.as_str()), (1, "a"));
    assert_eq!((answer.content.text().as_str(), &answer.rest["$x"]), ("Sunny.", &json!(1)));
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

mod any_turn {
    use proptest::prelude::*;

    use super::*;

    fn delta() -> impl Strategy<Value = ModelDelta> {
        let names = prop::sample::select(vec!["sky__weather", "sky__time", "cli_upload", "nope"]);
        let arguments =
            prop::sample::select(vec!["{\"city\":\"A\"}", "{\"city\":\"B\"}", "{}", "[", "", "{\"city\":1}"]);
        let ids = prop::sample::select(vec!["", "a", "b", "c"]);
        prop_oneof![
            ".{0,12}".prop_map(ModelDelta::Text),
            (ids, names, arguments).prop_map(|(id, name, arguments)| call(id, name, arguments)),
            Just(ModelDelta::Text(
                "<tool_call>{\"name\":\"sky__time\",\"arguments\":{\"city\":\"C\"}}</tool_call>".to_owned()
            )),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn every_call_is_answered_once_and_rounds_are_bounded(
            script in prop::collection::vec(prop::collection::vec(delta(), 0..6), 1..8),
            limit in 1u32..5,
        ) {
            let mut start_from = setup(ToolCallStrategy::NativeApi);
            start_from.limits.rounds = limit;
            let mut events = Vec::new();
            let mut step = Step::AskModel(start(start_from, &mut events));
            let mut script = script.into_iter().cycle();
            let mut asked = 0;
            loop {
                step = match step {
                    Step::AskModel(mut ask) => {
                        asked += 1;
                        prop_assert!(asked <= limit + 1, "more asks than rounds and the answer");
                        check_history(&ask.request());
                        for delta in script.next().unwrap_or_default() {
                            ask.push(delta, &mut events);
                        }
                        ask.push(end(FinishReason::Stop), &mut events);
                        ask.finish(&mut events)
                    }
                    Step::RunTools(mut run) => {
                        run.answered(&mut events);
                        for at in 0..run.calls().len() {
                            if matches!(run.calls()[at].plan, Planned::Run(_)) {
                                run.settle(at, Ok(output("ok")), Duration::ZERO, &mut events);
                            }
                        }
                        run.finish(&mut events)
                    }
                    Step::Done(_) => break,
                };
            }
            let ends = events.iter().filter(|event| matches!(event, ChatEvent::Finished { .. })).count();
            prop_assert_eq!(ends, 1);
            let last_is_the_end = matches!(events.last(), Some(ChatEvent::Finished { .. }));
            prop_assert!(last_is_the_end);
        }
    }
}
