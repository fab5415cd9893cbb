use crate::policy::Labels;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};

use super::*;
use crate::message::{Arguments, ToolResult};
use crate::model::ToolSpec;
use crate::project::InlineTool;
use crate::results::Room;
use crate::tool::{Catalogue, Tool, ToolContent, ToolError, ToolOutput, ToolRef};

mod any_turn;
mod client;
mod other_ways;

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
    let catalogue =
        Catalogue { tools: vec![tool("sky", "weather"), tool("sky", "time")], ..Catalogue::default() };
    Setup {
        strategy,
        ..Setup::new(
            "0123456789abcdef0123456789abcdef",
            "m",
            ModelRequest {
                messages: vec![Message::User(Prose { content: "hi".into(), rest: Map::new() })],
                ..ModelRequest::default()
            },
            ToolSet::new(&catalogue, &[inline("cli.upload")], &[]),
        )
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
                    run.settle(at, (Ok(output(&text)), Labels::default()), Duration::ZERO, &mut events);
                }
                run.finish(&mut events)
            }
            Step::Judge(_) | Step::AskPerson(_) => panic!("no tool of these tests asks"),
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
            ChatEvent::ApprovalNeeded(ask) | ChatEvent::ApprovalDecided(ask) => writeln!(out, "{ask:?}"),
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
            ChatEvent::Limited(limit) => writeln!(out, "limited {}", limit.name()),
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
    run.settle(0, (Err(error), Labels::default()), Duration::ZERO, &mut events);
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
    let (result, cut) = result_for_model(&call, output(&"ä".repeat(1000)), Room::new(100, 300));
    assert_eq!(result.content.text(), "ä".repeat(133), "by tokens");
    let cut = cut.unwrap();
    assert_eq!((cut.shown, cut.size, cut.is_all, cut.whole.len()), (266, 2000, true, 2000));
    let (result, _) = result_for_model(&call, output(&"a".repeat(1000)), Room::new(100, 300));
    assert_eq!(result.content.text(), "a".repeat(300), "by bytes");
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
