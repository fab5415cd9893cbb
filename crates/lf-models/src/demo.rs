//! `provider: demo`: a few rules in place of a language model, so that the plumbing can be tried and tested with no key
//! and no network. Its tool calls are real; its answers only pass on what the tools returned, and say so.

mod arithmetic;
mod wishes;

use futures_util::stream;
use lf_core::prompting::OPENING;
use lf_core::{
    Arguments, Content, DeltaStream, FinishReason, Message, ModelDelta, ModelProvider, ModelRequest,
    ToolCall, Usage,
};
use serde_json::{Map, Value};

use wishes::{Offer, Wish};

const INTRODUCTION: &str = "(I am the demo stand-in of lf, not a language model: a few fixed rules that can list, read \
                            and search with the tools I am given, and do sums.)\n\n";

/// Lines of a tool's result that are passed on.
const SHOWN_LINES: usize = 40;

/// The provider; it keeps nothing.
#[derive(Debug, Clone, Copy)]
pub struct Demo;

impl ModelProvider for Demo {
    fn stream(&self, request: &ModelRequest) -> DeltaStream {
        Box::pin(stream::iter(answer(request).into_iter().map(Ok)))
    }
}

fn answer(request: &ModelRequest) -> Vec<ModelDelta> {
    let said = answer_or_calls(request);
    let mut deltas = Vec::new();
    let mut written = 0;
    match said {
        Said::Text(text) => {
            written += text.len();
            deltas.extend(text.split_inclusive(' ').map(|word| ModelDelta::Text(word.to_owned())));
            deltas.push(usage(request, written));
            deltas.push(ModelDelta::Finish { reason: FinishReason::Stop, raw: None, stop_sequence: None });
        }
        Said::Calls(calls) => {
            for (index, (name, arguments)) in calls.into_iter().enumerate() {
                let arguments = Arguments::from_object(arguments);
                written += name.len() + arguments.raw().len();
                let id = format!("call_demo_{}_{index}", request.messages.len());
                deltas.push(ModelDelta::Call(ToolCall { id, name, arguments, rest: Map::new() }));
            }
            deltas.push(usage(request, written));
            deltas.push(ModelDelta::Finish {
                reason: FinishReason::ToolCalls,
                raw: None,
                stop_sequence: None,
            });
        }
    }
    deltas
}

/// Four bytes a token, as is usual for an estimate.
fn usage(request: &ModelRequest, written: usize) -> ModelDelta {
    let read: usize = request.messages.iter().map(|message| text_of(message).len()).sum();
    ModelDelta::Usage(Usage {
        input: (read / 4) as u64,
        output: (written / 4).max(1) as u64,
        ..Usage::default()
    })
}

enum Said {
    Text(String),
    Calls(Vec<(String, Map<String, Value>)>),
}

fn answer_or_calls(request: &ModelRequest) -> Said {
    let asked = Asked::of(request);
    let results = results_of_this_turn(&request.messages);
    if results.is_empty() && !asked.calls.is_empty() {
        return match asked.in_text {
            true => Said::Text(asked.calls.iter().map(call_as_text).collect()),
            false => Said::Calls(asked.calls),
        };
    }
    let mut told = tell_results(&results);
    told.extend(asked.sums);
    if told.is_empty() {
        told.push(no_rule_fits(&asked.offers));
    }
    Said::Text(introduced(request, &told.join("\n\n")))
}

/// What the last question asks for.
struct Asked {
    offers: Vec<Offer>,
    /// The tools were told in the system prompt, so calls are written as text.
    in_text: bool,
    calls: Vec<(String, Map<String, Value>)>,
    /// Sums that no tool does, worked out by rule.
    sums: Vec<String>,
}

impl Asked {
    fn of(request: &ModelRequest) -> Self {
        let question = request.messages.iter().rev().find_map(|message| match message {
            Message::User(prose) => {
                Some(prose.content.text()).filter(|text| !text.starts_with("<tool_response>"))
            }
            _ => None,
        });
        let allowed = request.tool_choice != Some(lf_core::ToolChoice::None);
        let mut offers: Vec<Offer> = request.tools.iter().filter(|_| allowed).map(Offer::of).collect();
        let prompted = if offers.is_empty() { offers_in_prompt(&request.messages) } else { Vec::new() };
        let in_text = !prompted.is_empty();
        offers.extend(prompted);
        let mut calls = Vec::new();
        let mut sums = Vec::new();
        for wish in wishes::wishes(&question.unwrap_or_default()) {
            match (wish.call(&offers), &wish) {
                (Some(call), _) => calls.push(call),
                (None, Wish::Sum(sum)) => sums.push(sum.to_string()),
                (None, _) => {}
            }
        }
        Self { offers, in_text, calls, sums }
    }
}

fn call_as_text((name, arguments): &(String, Map<String, Value>)) -> String {
    let call = serde_json::json!({"name": name, "arguments": arguments});
    format!("<tool_call>\n{call}\n</tool_call>\n")
}

/// The tools of the prompt-based strategy, read back from the system prompt.
fn offers_in_prompt(messages: &[Message]) -> Vec<Offer> {
    let Some(Message::System(system)) = messages.first() else { return Vec::new() };
    let text = system.content.text();
    text.lines()
        .filter_map(|line| line.strip_prefix(OPENING)?.strip_suffix("</tool>"))
        .filter_map(|json| serde_json::from_str::<Value>(json).ok())
        .filter_map(|tool| Offer::of_json(&tool["function"]))
        .collect()
}

fn no_rule_fits(offers: &[Offer]) -> String {
    let mut text = String::from(
        "No rule of mine fits this message. Try \"list the files\", \"read NAME\", \"what is in NAME\", \"search for \
         WORD\" or \"12 * 3\".",
    );
    if offers.is_empty() {
        text.push_str(" I was given no tools.");
    } else {
        let names: Vec<&str> = offers.iter().take(12).map(|offer| offer.name.as_str()).collect();
        text.push_str(&format!(" The tools I was given: {}.", names.join(", ")));
    }
    text
}

fn introduced(request: &ModelRequest, text: &str) -> String {
    let introduced_before = request.messages.iter().any(|message| {
        matches!(message, Message::Assistant(said) if said.content.text().contains("demo stand-in"))
    });
    if introduced_before { text.to_owned() } else { format!("{INTRODUCTION}{text}") }
}

/// Name and text of each result after the last question, in either strategy's form.
fn results_of_this_turn(messages: &[Message]) -> Vec<(String, String)> {
    let mut results = Vec::new();
    for message in messages.iter().rev() {
        match message {
            Message::Tool(result) => {
                let name = result.name.clone().or_else(|| name_of_call(messages, &result.call_id));
                let text = result.content.text();
                let text = if result.is_error { format!("Error: {text}") } else { text };
                results.push((name.unwrap_or_default(), text));
            }
            Message::User(prose) => {
                let text = prose.content.text();
                if !text.starts_with("<tool_response>") {
                    break;
                }
                results.extend(responses_in_text(&text).into_iter().rev());
            }
            _ => {}
        }
    }
    results.reverse();
    results
}

fn responses_in_text(text: &str) -> Vec<(String, String)> {
    text.split("<tool_response>\n")
        .filter_map(|response| {
            let response = response.trim_end().strip_suffix("</tool_response>")?;
            let (head, body) = response.split_once('\n')?;
            Some((head.trim_matches(['[', ']']).to_owned(), body.to_owned()))
        })
        .collect()
}

fn name_of_call(messages: &[Message], id: &str) -> Option<String> {
    messages.iter().rev().find_map(|message| match message {
        Message::Assistant(said) => {
            said.calls.iter().find(|call| call.id == id).map(|call| call.name.clone())
        }
        _ => None,
    })
}

fn tell_results(results: &[(String, String)]) -> Vec<String> {
    results
        .iter()
        .map(|(name, text)| {
            let lines: Vec<&str> = text.trim_end().lines().collect();
            let mut shown = lines[..lines.len().min(SHOWN_LINES)].join("\n");
            if lines.len() > SHOWN_LINES {
                shown.push_str(&format!("\n… and {} more lines", lines.len() - SHOWN_LINES));
            }
            format!("`{name}` answered:\n\n{shown}")
        })
        .collect()
}

fn text_of(message: &Message) -> String {
    match message {
        Message::System(prose) | Message::User(prose) => prose.content.text(),
        Message::Assistant(said) => said.content.text(),
        Message::Tool(result) => match &result.content {
            Content::Text(text) => text.clone(),
            parts @ Content::Parts(_) => parts.text(),
        },
    }
}

#[cfg(test)]
mod tests;
