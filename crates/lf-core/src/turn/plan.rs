//! What happens to each call of a round.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::event::ChatEvent;
use crate::message::{AssistantMessage, Content, Message, ToolCall, ToolResult};
use crate::model::FinishReason;
use crate::tool::{Tool, ToolRef};
use crate::tool_set::{Target, UnknownTool};

use super::approval::Known;
use super::{Done, RawCall, Resume, Round, RunTools, Step, Turn, some_text};

/// One call of a round, in the order the model made them.
#[derive(Debug)]
pub struct PlannedCall {
    pub call: ToolCall,
    pub plan: Planned,
}

#[derive(Debug)]
pub enum Planned {
    /// To be run by this program.
    Run(ToolRef),
    /// Answered without running anything.
    Answered(ToolResult),
    /// Left to the client.
    Client,
}

pub(super) fn plan(turn: Box<Turn>, round: Round, calls: Vec<RawCall>, events: &mut Vec<ChatEvent>) -> Step {
    plan_known(turn, round, calls, None, events)
}

/// The same with calls of which a person may have said something before.
pub(super) fn plan_known(
    mut turn: Box<Turn>,
    mut round: Round,
    calls: Vec<RawCall>,
    known: Option<Known>,
    events: &mut Vec<ChatEvent>,
) -> Step {
    let mut ids = HashSet::new();
    let mut planned: Vec<PlannedCall> =
        calls.into_iter().map(|raw| plan_call(&mut turn, raw, &mut ids)).collect();
    let for_client = planned.iter().any(|call| matches!(call.plan, Planned::Client));
    let to_remember = turn.request.messages.len() > turn.given
        || has_state(&round, &planned)
        || planned.iter().any(|call| !matches!(call.plan, Planned::Client));
    if for_client && to_remember {
        // the client must come back with ids that lead to what only this turn knows
        for planned in planned.iter_mut().filter(|call| matches!(call.plan, Planned::Client)) {
            planned.call.id = turn.mint_id();
        }
    }
    turn.request.messages.push(Message::Assistant(AssistantMessage {
        content: Content::Text(std::mem::take(&mut round.text)),
        reasoning: some_text(std::mem::take(&mut round.reasoning)),
        calls: planned.iter().map(|planned| planned.call.clone()).collect(),
        rest: std::mem::take(&mut round.state),
    }));
    if for_client && planned.iter().all(|call| matches!(call.plan, Planned::Client)) {
        return Step::Done(turn.hand_over(&planned, round, events));
    }
    round.show_late(events);
    for planned in planned.iter().filter(|call| !matches!(call.plan, Planned::Client)) {
        let tool = match &planned.plan {
            Planned::Run(tool) => Some(tool.clone()),
            _ => None,
        };
        events.push(ChatEvent::CallStarted { call: planned.call.clone(), tool });
    }
    RunTools::new(turn, planned).held(known, events)
}

/// The model's API wants something back that the client's may have no place for.
fn has_state(round: &Round, planned: &[PlannedCall]) -> bool {
    !round.state.is_empty() || planned.iter().any(|planned| !planned.call.rest.is_empty())
}

fn plan_call(turn: &mut Turn, raw: RawCall, ids: &mut HashSet<String>) -> PlannedCall {
    let RawCall { mut call, server } = raw;
    if call.id.is_empty() || ids.contains(&call.id) {
        call.id = turn.mint_id();
    }
    ids.insert(call.id.clone());
    let plan = match turn.tools.resolve(&call.name, server.as_deref()) {
        Err(unknown) => Planned::Answered(ToolResult::error(&call, say_unknown(&unknown, &turn.tools))),
        Ok((exposed, target)) => {
            let (exposed, target) = (exposed.to_owned(), target.clone());
            call.name = exposed;
            match target {
                Target::Source(tool) => plan_source(turn, &call, &tool),
                Target::Client(name) => plan_client(&mut call, name),
            }
        }
    };
    PlannedCall { call, plan }
}

fn plan_client(call: &mut ToolCall, name: String) -> Planned {
    if let Err(problem) = call.arguments.value() {
        return Planned::Answered(ToolResult::error(call, say_unreadable(problem)));
    }
    // the client knows the tool by its own name
    call.name = name;
    Planned::Client
}

fn plan_source(turn: &mut Turn, call: &ToolCall, tool: &Tool) -> Planned {
    let arguments = match call.arguments.value() {
        Ok(arguments) => arguments,
        Err(problem) => return Planned::Answered(ToolResult::error(call, say_unreadable(problem))),
    };
    let problems = tool.problems(arguments);
    if !problems.is_empty() {
        let text = format!(
            "the arguments do not fit the schema of `{}`, so it was not run:\n- {}\nCorrect the arguments and call \
             it again.",
            call.name,
            problems.join("\n- ")
        );
        return Planned::Answered(ToolResult::error(call, text));
    }
    let key = format!("{}\0{}", call.name, canonical(arguments));
    let seen = turn.repeats.entry(key).or_insert(0);
    *seen += 1;
    let seen = *seen;
    // the first call is never a repetition, whatever the limit says
    let limit = turn.limits.repeat_calls.max(2);
    if seen >= limit {
        // a model that does not take no for an answer is asked for one
        turn.last |= seen >= limit + 2;
        let text = format!(
            "this is call number {seen} of `{}` with the same arguments in this turn; it was not run again. Use the \
             earlier result, or do something else.",
            call.name
        );
        return Planned::Answered(ToolResult::error(call, text));
    }
    match &mut turn.calls_left {
        Some(0) => {
            turn.last = true;
            let text = "the client's limit of tool calls is reached, so this one was not run";
            return Planned::Answered(ToolResult::error(call, text));
        }
        Some(left) => *left -= 1,
        None => {}
    }
    Planned::Run(tool.id.clone())
}

/// The same text for the same arguments in any order of keys.
fn canonical(arguments: &serde_json::Map<String, serde_json::Value>) -> String {
    fn write(value: &serde_json::Value, out: &mut String) {
        match value {
            serde_json::Value::Object(map) => {
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort();
                out.push('{');
                for key in keys {
                    let _ = write!(out, "{key:?}:");
                    write(&map[key], out);
                    out.push(',');
                }
                out.push('}');
            }
            serde_json::Value::Array(list) => {
                out.push('[');
                for value in list {
                    write(value, out);
                    out.push(',');
                }
                out.push(']');
            }
            scalar => {
                let _ = write!(out, "{scalar}");
            }
        }
    }
    let mut out = String::new();
    write(&serde_json::Value::Object(arguments.clone()), &mut out);
    out
}

fn say_unreadable(problem: &str) -> String {
    format!(
        "the arguments could not be read ({problem}), so nothing was run. Send the call again with valid JSON."
    )
}

fn say_unknown(unknown: &UnknownTool, tools: &crate::ToolSet) -> String {
    let mut text = format!("there is no tool `{}`.", unknown.name);
    if !unknown.near.is_empty() {
        let _ = write!(text, " Did you mean `{}`?", unknown.near.join("`, `"));
    } else if tools.len() <= 20 {
        let names: Vec<&str> = tools.iter().map(|(name, _)| name).collect();
        let _ = write!(text, " The tools are: {}.", names.join(", "));
    }
    text
}

impl Turn {
    /// Ends the turn with the calls that are the client's to run. The assistant message is the last assistant message
    /// of the request, with all calls of the round.
    pub(super) fn hand_over(
        self: Box<Self>,
        planned: &[PlannedCall],
        mut round: Round,
        events: &mut Vec<ChatEvent>,
    ) -> Done {
        let calls: Vec<ToolCall> = planned
            .iter()
            .filter(|planned| matches!(planned.plan, Planned::Client))
            .map(|planned| planned.call.clone())
            .collect();
        let ids: Vec<String> = calls.iter().map(|call| call.id.clone()).collect();
        self.tell_unread(self.unread.iter().map(String::as_str), events);
        events.push(ChatEvent::ClientCalls(calls));
        round.show_late(events);
        let rounds = self.rounds + 1;
        let reason = FinishReason::ToolCalls;
        events.push(ChatEvent::Finished { reason, usage: self.usage, rounds, stop_sequence: None });
        let mut messages = self.request.messages;
        let said: Arc<[Message]> = messages.split_off(self.given).into();
        let sealed = |message: &Message| match message {
            Message::Assistant(said) => {
                !said.rest.is_empty() || said.calls.iter().any(|call| !call.rest.is_empty())
            }
            _ => false,
        };
        // a single message without state is just what the client was told: nothing to put back
        let resume = (said.len() > 1 || planned.len() > ids.len() || said.iter().any(sealed))
            .then(|| Resume { ids, messages: said.clone() });
        Done { resume, ..Done::with(said) }
    }
}
