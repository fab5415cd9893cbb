//! What is different about two asks, and about two turns: the first thing, in words.

use std::borrow::Cow;

use crate::event::ChatEvent;
use crate::message::{Content, Message, Part, ToolCall};
use crate::model::{ModelRequest, ToolChoice, ToolSpec};

/// Characters of a value that are shown from where it begins to differ.
const SHOWN: usize = 80;
/// Characters before that.
const BEFORE: usize = 20;

/// What is different about a request, by what the model is shown: messages, tools and tool choice. Whether it is asked to
/// stream, and other fields such as `temperature`, are the client's way of asking; ids of calls are new in every turn.
pub fn request_difference(recorded: &ModelRequest, now: &ModelRequest) -> Option<String> {
    let count = recorded.messages.len().max(now.messages.len());
    for at in 0..count {
        let difference = match (recorded.messages.get(at), now.messages.get(at)) {
            (Some(recorded), Some(now)) => message_difference(recorded, now),
            (Some(recorded), None) => Some(format!("the {} is missing", role(recorded))),
            (None, Some(now)) => Some(format!("there is a {} too many", role(now))),
            (None, None) => None,
        };
        if let Some(difference) = difference {
            return Some(format!("message {}: {difference}", at + 1));
        }
    }
    tools_difference(&recorded.tools, &now.tools)
        .or_else(|| choice_difference(recorded.tool_choice.as_ref(), now.tool_choice.as_ref()))
}

fn role(message: &Message) -> &'static str {
    match message {
        Message::System(_) => "system message",
        Message::User(_) => "user message",
        Message::Assistant(_) => "assistant message",
        Message::Tool(_) => "tool result",
    }
}

fn message_difference(recorded: &Message, now: &Message) -> Option<String> {
    let text = |recorded: &Content, now: &Content| {
        let (recorded, now) = (plain(recorded), plain(now));
        (recorded != now).then(|| both(&recorded, &now))
    };
    match (recorded, now) {
        (Message::System(recorded), Message::System(now)) | (Message::User(recorded), Message::User(now)) => {
            text(&recorded.content, &now.content)
        }
        (Message::Tool(recorded), Message::Tool(now)) => text(&recorded.content, &now.content),
        (Message::Assistant(recorded), Message::Assistant(now)) => {
            calls_difference(&recorded.calls, &now.calls).or_else(|| text(&recorded.content, &now.content))
        }
        _ => Some(format!("recorded a {}, now a {}", role(recorded), role(now))),
    }
}

/// The text, however it is cut into parts; what is no text as JSON.
fn plain(content: &Content) -> String {
    match content {
        Content::Parts(parts) if !parts.iter().all(|part| matches!(part, Part::Text(_))) => {
            serde_json::to_string(parts).unwrap_or_default()
        }
        content => content.text(),
    }
}

fn calls_difference(recorded: &[ToolCall], now: &[ToolCall]) -> Option<String> {
    for at in 0..recorded.len().max(now.len()) {
        let difference = match (recorded.get(at), now.get(at)) {
            (Some(recorded), None) => Some(format!("recorded `{}`, now none", recorded.name)),
            (None, Some(now)) => Some(format!("recorded none, now `{}`", now.name)),
            (Some(recorded), Some(now)) if recorded.name != now.name => {
                Some(format!("recorded `{}`, now `{}`", recorded.name, now.name))
            }
            (Some(recorded), Some(now)) if !same_arguments(recorded, now) => {
                let (old, new) = (recorded.arguments.raw(), now.arguments.raw());
                Some(format!("`{}`, its arguments: {}", recorded.name, both(old, new)))
            }
            _ => None,
        };
        if let Some(difference) = difference {
            return Some(format!("call {}: {difference}", at + 1));
        }
    }
    None
}

fn same_arguments(one: &ToolCall, other: &ToolCall) -> bool {
    match (one.arguments.value(), other.arguments.value()) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), Err(_)) => one.arguments.raw() == other.arguments.raw(),
        _ => false,
    }
}

fn tools_difference(recorded: &[ToolSpec], now: &[ToolSpec]) -> Option<String> {
    for tool in recorded {
        let Some(same) = now.iter().find(|now| now.name == tool.name) else {
            return Some(format!("the tool `{}` is missing", tool.name));
        };
        let text = |tool: &ToolSpec| tool.description.as_deref().unwrap_or_default().to_owned();
        if text(tool) != text(same) {
            let both = both(&text(tool), &text(same));
            return Some(format!("the tool `{}`, its description: {both}", tool.name));
        }
        if tool.schema != same.schema {
            let both = both(&tool.schema.to_string(), &same.schema.to_string());
            return Some(format!("the tool `{}`, its schema: {both}", tool.name));
        }
    }
    let added = now.iter().find(|now| !recorded.iter().any(|tool| tool.name == now.name));
    added.map(|tool| format!("there is a tool `{}` too many", tool.name))
}

fn choice_difference(recorded: Option<&ToolChoice>, now: Option<&ToolChoice>) -> Option<String> {
    // what a client does not say is the same as `auto`
    let word = |choice: Option<&ToolChoice>| match choice {
        None | Some(ToolChoice::Auto) => "auto".to_owned(),
        Some(ToolChoice::None) => "none".to_owned(),
        Some(ToolChoice::Required) => "required".to_owned(),
        Some(ToolChoice::Tool(name)) => format!("the tool {name}"),
    };
    let (recorded, now) = (word(recorded), word(now));
    (recorded != now).then(|| format!("tool choice: {}", both(&recorded, &now)))
}

/// Two values, from shortly before the place where they begin to differ.
fn both(recorded: &str, now: &str) -> String {
    let common = recorded.char_indices().zip(now.chars()).find(|((_, a), b)| a != b).map(|((at, _), _)| at);
    let at = common.unwrap_or_else(|| recorded.len().min(now.len()));
    format!("recorded `{}`, now `{}`", excerpt(recorded, at), excerpt(now, at))
}

fn excerpt(text: &str, at: usize) -> Cow<'_, str> {
    let begin = text[..at].char_indices().rev().nth(BEFORE - 1).map_or(0, |(begin, _)| begin);
    let end = text[at..].char_indices().nth(SHOWN).map_or(text.len(), |(end, _)| at + end);
    if begin == 0 && end == text.len() {
        return Cow::Borrowed(text);
    }
    let (before, after) = (if begin > 0 { "…" } else { "" }, if end < text.len() { "…" } else { "" });
    Cow::Owned(format!("{before}{}{after}", &text[begin..end]))
}

/// The first thing that another turn does in another way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundDifference {
    /// From 1.
    pub round: usize,
    /// A fragment that names the call or the text.
    pub what: String,
}

/// What is different about two turns, by their events: in each round its calls first, because they are what a turn does,
/// then its text; after the last round how it ended. `None` where there is nothing.
pub fn first_difference(recorded: &[ChatEvent], now: &[ChatEvent]) -> Option<RoundDifference> {
    let (old, new) = (rounds(recorded), rounds(now));
    let nothing = Round::default();
    for at in 0..old.len().max(new.len()) {
        let (old, new) = (old.get(at).unwrap_or(&nothing), new.get(at).unwrap_or(&nothing));
        let text = || (old.text != new.text).then(|| format!("text: {}", both(&old.text, &new.text)));
        if let Some(what) = calls_difference(&old.calls, &new.calls).or_else(text) {
            return Some(RoundDifference { round: at + 1, what });
        }
    }
    let (recorded, now) = (end(recorded), end(now));
    let what = || format!("the end: {}", both(&recorded, &now));
    (recorded != now).then(|| RoundDifference { round: new.len().max(1), what: what() })
}

#[derive(Default)]
struct Round {
    text: String,
    calls: Vec<ToolCall>,
    /// Results have come: what is said next is another round.
    is_over: bool,
}

fn rounds(events: &[ChatEvent]) -> Vec<Round> {
    let mut rounds: Vec<Round> = Vec::new();
    for event in events {
        if matches!(event, ChatEvent::Text(_) | ChatEvent::CallStarted { .. } | ChatEvent::ClientCalls(_))
            && rounds.last().is_none_or(|round| round.is_over)
        {
            rounds.push(Round::default());
        }
        let Some(round) = rounds.last_mut() else { continue };
        match event {
            ChatEvent::Text(text) => round.text.push_str(text),
            ChatEvent::CallStarted { call, .. } => round.calls.push(call.clone()),
            ChatEvent::ClientCalls(calls) => round.calls.extend(calls.iter().cloned()),
            ChatEvent::CallFinished { .. } => round.is_over = true,
            _ => {}
        }
    }
    rounds
}

fn end(events: &[ChatEvent]) -> String {
    match events.last() {
        Some(ChatEvent::Finished { reason, .. }) => reason.name().to_owned(),
        Some(ChatEvent::Failed(error)) => error.to_string(),
        _ => "none".to_owned(),
    }
}
