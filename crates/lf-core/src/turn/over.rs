//! The end of a turn, and what is left of it.

use std::sync::Arc;

use crate::event::ChatEvent;
use crate::message::{AssistantMessage, Message};
use crate::model::{FinishReason, ModelError};

use super::{Resume, Round, Spent, Turn, Waiting, some_text};

/// The turn is over; its last event has been told.
#[derive(Debug)]
pub struct Done {
    /// What the turn added to the conversation: each round's message, the results, the answer. A turn that failed has done
    /// what its finished rounds did.
    pub said: Arc<[Message]>,
    /// There is no answer.
    pub failed: bool,
    /// What has to be put back when the client returns with the results of its own calls.
    pub resume: Option<Resume>,
    /// Calls that were not run because nobody had approved them.
    pub waiting: Option<Waiting>,
    pub spent: Spent,
}

impl Done {
    pub(super) fn with(said: Arc<[Message]>, spent: Spent) -> Self {
        Self { said, failed: false, resume: None, waiting: None, spent }
    }
}

impl Turn {
    /// Ends the turn with what the model said.
    pub(super) fn answer(mut self: Box<Self>, mut round: Round, events: &mut Vec<ChatEvent>) -> Done {
        if !round.calls.is_empty() {
            let why = match round.finish {
                _ if self.limit_told => match &self.ended_by {
                    Some(limit) => format!("after {limit}"),
                    None => "after a limit".to_owned(),
                },
                Some(FinishReason::Length | FinishReason::ContentFilter) => {
                    "in an answer that was cut off".to_owned()
                }
                _ => "although the request allows none".to_owned(),
            };
            let count = round.calls.len();
            events.push(ChatEvent::Notice(format!(
                "the model wanted {count} tool call(s) {why}; nothing was run"
            )));
        }
        self.tell_unread(round.malformed.iter().map(|malformed| malformed.problem.as_str()), events);
        let reason = match round.finish {
            Some(FinishReason::ToolCalls) | None => FinishReason::Stop,
            Some(reason) => reason,
        };
        events.push(ChatEvent::Finished {
            reason,
            usage: self.usage,
            rounds: self.rounds + 1,
            stop_sequence: round.stop_sequence.take(),
        });
        self.request.messages.push(Message::Assistant(AssistantMessage {
            content: round.text.into(),
            reasoning: some_text(round.reasoning),
            rest: round.state,
            ..AssistantMessage::default()
        }));
        self.done()
    }

    /// Ends the turn where it is; a text that was begun stays.
    pub(super) fn stop(mut self: Box<Self>, round: Round, events: &mut Vec<ChatEvent>) -> Done {
        self.count(&round);
        if !round.text.is_empty() {
            self.request.messages.push(Message::Assistant(AssistantMessage {
                content: round.text.into(),
                reasoning: some_text(round.reasoning),
                ..AssistantMessage::default()
            }));
        }
        events.push(ChatEvent::Notice("the turn was stopped".to_owned()));
        let (reason, rounds) = (FinishReason::Stop, self.rounds + 1);
        events.push(ChatEvent::Finished { reason, usage: self.usage, rounds, stop_sequence: None });
        self.done()
    }

    /// Ends the turn without an answer. What was done in it has happened.
    pub(super) fn fail(self: Box<Self>, error: ModelError, events: &mut Vec<ChatEvent>) -> Done {
        events.push(ChatEvent::Failed(error));
        Done { failed: true, ..self.done() }
    }

    pub(super) fn done(mut self: Box<Self>) -> Done {
        Done::with(self.request.messages.split_off(self.given).into(), self.spent)
    }

    /// Calls that could not be read, where the model is not asked again: nothing vanishes.
    pub(super) fn tell_unread<'a>(
        &self,
        problems: impl Iterator<Item = &'a str>,
        events: &mut Vec<ChatEvent>,
    ) {
        for problem in problems {
            events
                .push(ChatEvent::Notice(format!("a tool call could not be read and was not run: {problem}")));
        }
    }
}
