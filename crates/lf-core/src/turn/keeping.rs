//! Results that are too large for the model: it is shown their beginning and a handle, and all of them is kept.

use std::sync::Arc;

use crate::message::{Message, ToolResult};
use crate::results::{KeptResult, READ, ResultRef, Room, SEARCH, SOURCE};

use super::output::Cut;
use super::run::say;
use super::{Course, Step, Turn};

impl Turn {
    /// What a result may take of the model's context.
    pub(super) fn room(&self) -> Room {
        Room::new(self.limits.result_tokens, self.limits.result_bytes)
    }

    pub(super) fn offers_results(&self) -> bool {
        self.tools.name_of(SOURCE, READ).is_some()
    }

    /// Handles that stand in the conversation already can be looked at from the beginning of the turn.
    pub(super) fn offer_what_was_cut(&mut self) {
        let number = |handle: &str| handle.rsplit('-').next().and_then(|number| number.parse().ok());
        let numbers = self.request.messages.iter().filter_map(|message| match message {
            Message::Tool(result) => number(&result.kept.as_ref()?.handle),
            _ => None,
        });
        if let Some(last) = numbers.max() {
            self.handles = last;
            self.offer_results();
        }
    }

    fn offer_results(&mut self) {
        if !self.offers_results() {
            self.tools = std::mem::take(&mut self.tools).with_results();
            self.request.tools = self.tools.specs();
        }
    }

    /// Says in a result that it was cut, and how the rest can be read. What a look shows is kept already.
    pub(super) fn keep_whole(&mut self, result: &mut ToolResult, cut: Cut, is_look: bool) {
        let Cut { whole, shown, size, is_all } = cut;
        if is_look {
            return say(
                &mut result.content,
                &format!("[cut: the first {shown} of {size} bytes; ask for less at a time]"),
            );
        }
        self.handles += 1;
        let handle = format!("result-{}", self.handles);
        self.offer_results();
        let name = |tool| self.tools.name_of(SOURCE, tool).unwrap_or(tool);
        let kept = match is_all {
            true => "All of it".to_owned(),
            false => format!("Its beginning ({} bytes)", whole.len()),
        };
        let note = format!(
            "[cut: the first {shown} of {size} bytes. {kept} is kept as `{handle}`: read on with {}(handle: \"{handle}\", \
             offset: {shown}), or find places in it with {}.]",
            name(READ),
            name(SEARCH),
        );
        say(&mut result.content, &note);
        let id = ResultRef { turn: self.id.clone(), handle };
        result.kept = Some(id.clone());
        self.cut.push(KeptResult { id, text: Arc::from(whole) });
    }
}

impl Course {
    /// Results that were cut since this was last asked. They are the caller's to keep, for as long as somebody may look
    /// into them; told the same entries, a turn gives the same ones.
    pub fn take_cut(&mut self) -> Vec<KeptResult> {
        match &mut self.step {
            Step::AskModel(ask) => std::mem::take(&mut ask.turn.cut),
            Step::RunTools(run) => std::mem::take(&mut run.turn.cut),
            Step::Judge(judge) => std::mem::take(&mut judge.run.turn.cut),
            Step::AskPerson(_) | Step::Done(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
