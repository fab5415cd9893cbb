//! Coming back with the results of client-run calls: what the server did in the same turn is put back in place, so
//! that every call id the model sees is answered.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::message::{Content, Message, Part, ToolCall, ToolResult};

/// What a turn said and did before it handed calls to the client, and under which ids that client comes back.
#[derive(Debug, Clone, PartialEq)]
pub struct Resume {
    /// Whose turn it was: nobody else comes back to it.
    pub owner: String,
    /// Ids of the client's calls; any one of them leads here.
    pub ids: Vec<String>,
    /// The turn's messages after the request's own: earlier rounds, the assistant message with all calls of the last
    /// round, and the results of those that the server ran.
    pub messages: Arc<[Message]>,
}

impl Resume {
    /// About as many bytes as it takes in memory.
    pub fn size(&self) -> usize {
        size_of(&self.messages)
    }
}

/// About as many bytes as these messages take in memory.
pub fn size_of(messages: &[Message]) -> usize {
    const MESSAGE: usize = 256;
    let content = |content: &Content| match content {
        Content::Text(text) => text.len(),
        Content::Parts(parts) => parts
            .iter()
            .map(|part| match part {
                Part::Text(text) | Part::Image { url: text, .. } => text.len(),
                Part::Other(value) => value.to_string().len(),
            })
            .sum(),
    };
    let rest = |rest: &Map<String, Value>| rest.values().map(|value| value.to_string().len()).sum::<usize>();
    let message = |message: &Message| match message {
        Message::System(prose) | Message::User(prose) => content(&prose.content) + rest(&prose.rest),
        // the arguments are kept as text and as values
        Message::Assistant(said) => {
            let calls =
                said.calls.iter().map(|call| MESSAGE + 3 * call.arguments.raw().len() + rest(&call.rest));
            let reasoning = said.reasoning.as_ref().map_or(0, String::len);
            content(&said.content) + reasoning + rest(&said.rest) + calls.sum::<usize>()
        }
        Message::Tool(result) => content(&result.content) + rest(&result.rest),
    };
    messages.iter().map(|each| MESSAGE + message(each)).sum()
}

/// Puts back what `find` remembers for the calls in a client's history. An assistant message that carries a known
/// call id stands for the whole turn that produced it.
pub fn put_back(messages: &mut Vec<Message>, find: impl Fn(&str) -> Option<Arc<Resume>>) {
    let known = |message: &Message| match message {
        Message::Assistant(assistant) => assistant.calls.iter().find_map(|call| find(&call.id)),
        _ => None,
    };
    if !messages.iter().any(|message| known(message).is_some()) {
        return;
    }
    let mut whole = Vec::with_capacity(messages.len() + 8);
    let mut seen: Vec<Arc<Resume>> = Vec::new();
    for message in messages.drain(..) {
        match known(&message) {
            // the same turn, told in more than one message
            Some(resume) if seen.iter().any(|seen| Arc::ptr_eq(seen, &resume)) => {}
            Some(resume) => {
                whole.extend(resume.messages.iter().cloned());
                seen.push(resume);
            }
            None => whole.push(message),
        }
    }
    *messages = whole;
    answer_in_order(messages);
    answer_the_rest(messages);
}

/// A client that came back with only some of its calls: the others are answered, so that no call stays open.
fn answer_the_rest(messages: &mut Vec<Message>) {
    let mut at = 0;
    while at < messages.len() {
        let Message::Assistant(said) = &messages[at] else {
            at += 1;
            continue;
        };
        let calls = said.calls.clone();
        at += 1;
        for call in &calls {
            match messages.get(at) {
                Some(Message::Tool(result)) if result.call_id == call.id => {}
                _ => messages.insert(at, Message::Tool(ToolResult::error(call, "the client gave no result"))),
            }
            at += 1;
        }
    }
}

/// Whether every call of a client's history has exactly one result, directly after the message that makes it, and every
/// result a call: what model APIs ask of a conversation.
///
/// # Errors
/// What is wrong with which message, for the client to read.
pub fn check_answers(messages: &[Message]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut answered: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if let Message::Tool(result) = message {
            let id = result.call_id.as_str();
            if let Some(place) = open.iter().position(|open| *open == id) {
                answered.push(open.remove(place));
            } else if answered.contains(&id) {
                return Err(format!(
                    "messages[{at}] is a second result of call `{id}`; send each result once"
                ));
            } else {
                return Err(format!(
                    "messages[{at}] is the result of call `{id}`, which the assistant message before it does not make"
                ));
            }
            continue;
        }
        if let Some(id) = open.first() {
            return Err(unanswered(at, id));
        }
        answered.clear();
        if let Message::Assistant(said) = message {
            open.extend(said.calls.iter().map(|call| call.id.as_str()));
        }
    }
    open.first().map_or(Ok(()), |id| Err(unanswered(messages.len(), id)))
}

fn unanswered(at: usize, id: &str) -> String {
    format!(
        "call `{id}` has no result before messages[{at}]; each call needs a `tool` message with its id, right after it"
    )
}

/// Puts the results that follow an assistant message into the order of its calls.
pub fn answer_in_order(messages: &mut [Message]) {
    let mut at = 0;
    while at < messages.len() {
        let Message::Assistant(assistant) = &messages[at] else {
            at += 1;
            continue;
        };
        let calls: Vec<ToolCall> = assistant.calls.clone();
        let start = at + 1;
        let end = start
            + messages[start..].iter().take_while(|message| matches!(message, Message::Tool(_))).count();
        let place = |message: &Message| match message {
            Message::Tool(result) => calls.iter().position(|call| call.id == result.call_id),
            _ => None,
        };
        messages[start..end].sort_by_key(|message| place(message).unwrap_or(usize::MAX));
        at = end;
    }
}
