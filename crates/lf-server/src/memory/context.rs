//! What of a long conversation a model is shown, and what of a client's transcript is new.

use lf_core::message::{Prose, ToolResult};
use lf_core::model::BYTES_PER_TOKEN;
use lf_core::turn::size_of;
use lf_core::{AssistantMessage, Content, Message, Model};
use lf_store::{Conversation, Kept};

/// Bytes of conversation that a model is shown.
pub(super) fn budget(model: &Model) -> usize {
    model.limits.context_tokens.saturating_mul(BYTES_PER_TOKEN)
}

/// The conversation as a model is shown it: the system prompts, then as many of the last exchanges as there is room for,
/// then what is now `said`. An exchange is what a user said with all that followed, so that no call is without its
/// result. The oldest are left out of the request and stay in the store.
pub(super) fn window(
    conversation: &Conversation,
    systems: &[Message],
    kept: &[Kept],
    said: &[Message],
    budget: usize,
) -> Vec<Message> {
    let mut shown = Vec::with_capacity(kept.len() + said.len() + 1);
    if let Some(system) = &conversation.system {
        shown.push(Message::System(Prose { content: system.as_str().into(), ..Prose::default() }));
    }
    shown.extend_from_slice(systems);
    let mut room = budget.saturating_sub(size_of(&shown)).saturating_sub(size_of(said));
    let mut begin = kept.len();
    for exchange in exchanges(kept).rev() {
        let size: usize =
            kept[exchange..begin].iter().map(|kept| size_of(std::slice::from_ref(&kept.message))).sum();
        if size > room {
            break;
        }
        room -= size;
        begin = exchange;
    }
    // the answer to a client's own call is told apart from the call, or was told before
    let goes_on = said.first().is_none_or(|said| matches!(said, Message::Tool(_)));
    let begin = if goes_on { begin.min(last_user(kept)) } else { begin };
    shown.extend(whole(kept[begin..].iter().map(|kept| &kept.message).chain(said).cloned()));
    shown
}

fn last_user(kept: &[Kept]) -> usize {
    exchanges(kept).next_back().unwrap_or(0)
}

/// Where exchanges begin.
fn exchanges(kept: &[Kept]) -> impl DoubleEndedIterator<Item = usize> {
    (0..kept.len()).filter(|&at| {
        matches!(kept[at].message, Message::User(_))
            && (at == 0 || !matches!(kept[at - 1].message, Message::User(_)))
    })
}

/// Without calls that lost their result, and results that lost their call: a message of them may have been deleted.
fn whole(messages: impl Iterator<Item = Message>) -> Vec<Message> {
    let messages: Vec<Message> = messages.collect();
    let mut all = Vec::with_capacity(messages.len());
    let mut at = 0;
    while at < messages.len() {
        let message = &messages[at];
        at += 1;
        let Message::Assistant(said) = message else {
            if !matches!(message, Message::Tool(_)) {
                all.push(message.clone());
            }
            continue;
        };
        let results: Vec<&ToolResult> = messages[at..]
            .iter()
            .map_while(|message| match message {
                Message::Tool(result) => Some(result),
                _ => None,
            })
            .collect();
        at += results.len();
        let answered = |id: &str| results.iter().find(|result| result.call_id == id);
        let calls: Vec<_> = said.calls.iter().filter(|call| answered(&call.id).is_some()).cloned().collect();
        let results: Vec<Message> = calls
            .iter()
            .filter_map(|call| answered(&call.id).map(|result| Message::Tool((*result).clone())))
            .collect();
        if !calls.is_empty() || !said.content.is_empty() {
            all.push(Message::Assistant(AssistantMessage { calls, ..said.clone() }));
        }
        all.extend(results);
    }
    all
}

/// What of a client's messages the conversation does not have yet. Some clients send what they want to say, others all
/// that was said so far: then only what follows is new. A transcript that differs from what is kept (edited, shortened)
/// is taken for its last words. A client that got no answer sends calls and results again, which are not said twice.
pub(crate) fn unsaid(kept: &[Kept], mut said: Vec<Message>) -> Vec<Message> {
    let open = unanswered(kept);
    let behind = said.iter().rposition(|said| matches!(said, Message::Assistant(_))).map_or(0, |at| at + 1);
    let results = said[behind..].iter().position(|said| has_result(open, said).is_some());
    if let Some(at) = results {
        let mut new = said.split_off(behind + at);
        new.retain(|said| has_result(open, said) != Some(true));
        return new;
    }
    let known: Vec<(bool, String)> = kept.iter().filter_map(|kept| spoken(&kept.message)).collect();
    if known.is_empty() {
        return said;
    }
    let mut matched = 0;
    let mut end = 0;
    for (at, message) in said.iter().enumerate() {
        match spoken(message) {
            None => {}
            Some(words) if known.get(matched).is_some_and(|known| same(known, &words)) => {
                matched += 1;
                end = at + 1;
            }
            Some(_) => break,
        }
    }
    if matched == known.len() && end < said.len() {
        return said.split_off(end);
    }
    let last_answer = said.iter().rposition(|message| !matches!(message, Message::User(_)));
    match last_answer {
        Some(at) if at + 1 < said.len() => said.split_off(at + 1),
        _ => {
            said.retain(|said| !is_of_a_call(kept, said));
            said
        }
    }
}

/// What was said since the model's last answer, which is one without calls.
fn unanswered(kept: &[Kept]) -> &[Kept] {
    let is_answer = |kept: &Kept| matches!(&kept.message, Message::Assistant(said) if said.calls.is_empty());
    let answer = kept.iter().rposition(is_answer);
    &kept[answer.map_or(0, |at| at + 1)..]
}

/// Of a result: whether its call, which is among these messages, has one already. Some upstreams use an id again and again: the
/// last call of it is meant.
fn has_result(kept: &[Kept], said: &Message) -> Option<bool> {
    let Message::Tool(result) = said else { return None };
    let at = kept.iter().rposition(|kept| calls(&kept.message, &result.call_id))?;
    let is_same =
        |kept: &Kept| matches!(&kept.message, Message::Tool(known) if known.call_id == result.call_id);
    Some(kept[at..].iter().any(is_same))
}

fn calls(message: &Message, id: &str) -> bool {
    matches!(message, Message::Assistant(said) if said.calls.iter().any(|call| call.id == id))
}

/// Whether all that it says are calls that were made, or the result of one.
fn is_of_a_call(kept: &[Kept], said: &Message) -> bool {
    let is_known = |id: &str| kept.iter().any(|kept| calls(&kept.message, id));
    match said {
        Message::Assistant(said) => {
            !said.calls.is_empty() && said.calls.iter().all(|call| is_known(&call.id))
        }
        Message::Tool(result) => is_known(&result.call_id),
        Message::System(_) | Message::User(_) => false,
    }
}

/// How many of the last messages that are kept are said again: who got no answer repeats the words, and means them once.
pub(super) fn repeated(kept: &[Kept], said: &[Message]) -> usize {
    let unanswered = kept.iter().rev().take_while(|kept| matches!(kept.message, Message::User(_))).count();
    let repeats =
        |count: usize| kept[kept.len() - count..].iter().zip(said).all(|(kept, said)| kept.message == *said);
    (1..=unanswered.min(said.len())).rev().find(|count| repeats(*count)).unwrap_or(0)
}

/// The calls that wait for their client.
pub(crate) fn pending(kept: &[Kept]) -> Vec<&str> {
    let last = kept.iter().rposition(|kept| matches!(kept.message, Message::Assistant(_)));
    let Some((at, Message::Assistant(said))) = last.map(|at| (at, &kept[at].message)) else {
        return Vec::new();
    };
    let answered = |id: &str| {
        kept[at + 1..]
            .iter()
            .any(|kept| matches!(&kept.message, Message::Tool(result) if result.call_id == id))
    };
    said.calls.iter().map(|call| call.id.as_str()).filter(|id| !answered(id)).collect()
}

/// Whether a user or the model said it, and the words. Rounds in which the model only called tools are known to this
/// program alone.
fn spoken(message: &Message) -> Option<(bool, String)> {
    let (user, content): (bool, &Content) = match message {
        Message::User(said) => (true, &said.content),
        Message::Assistant(said) => (false, &said.content),
        Message::System(_) | Message::Tool(_) => return None,
    };
    let words = content.text();
    (user || !words.trim().is_empty()).then(|| (user, words.trim().to_owned()))
}

/// An answer of several rounds is one message for a client.
fn same(known: &(bool, String), said: &(bool, String)) -> bool {
    known.0 == said.0 && (known.1 == said.1 || (!said.0 && said.1.contains(&known.1)))
}

#[cfg(test)]
mod tests;
