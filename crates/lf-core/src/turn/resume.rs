//! Coming back with the results of client-run calls: what the server did in the same turn is put back in place, so
//! that every call id the model sees is answered.

use std::sync::Arc;

use crate::message::{Message, ToolCall};

/// What a turn said and did before it handed calls to the client, and under which ids that client comes back.
#[derive(Debug, Clone, PartialEq)]
pub struct Resume {
    /// Ids of the client's calls; any one of them leads here.
    pub ids: Vec<String>,
    /// The turn's messages after the request's own: earlier rounds, the assistant message with all calls of the last
    /// round, and the results of those that the server ran.
    pub messages: Vec<Message>,
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
    for message in messages.drain(..) {
        match known(&message) {
            Some(resume) => whole.extend(resume.messages.iter().cloned()),
            None => whole.push(message),
        }
    }
    *messages = whole;
    answer_in_order(messages);
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
