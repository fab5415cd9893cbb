//! The calls of a round are running.

use std::time::Duration;

use crate::event::ChatEvent;
use crate::message::{Content, Message, Part, ToolResult};
use crate::model::ModelError;
use crate::policy::Labels;
use crate::tool::{Retries, Tool, ToolError, ToolOutput};

use crate::results::SOURCE;

use super::judging::Ran;
use super::output::result_for_model;
use super::pictures;
use super::plan::{Planned, PlannedCall};
use super::{AskModel, Done, Round, Step, Turn};

/// The round's calls; each one that is [`Planned::Run`] is to be settled once, in any order.
#[derive(Debug)]
pub struct RunTools {
    pub(super) turn: Box<Turn>,
    pub(super) planned: Vec<PlannedCall>,
    pub(super) results: Vec<Option<ToolResult>>,
    /// How often each call was handed to its source.
    tries: Vec<u32>,
    /// Those that a person has said yes to.
    pub(super) approved: Vec<bool>,
}

impl RunTools {
    pub(super) fn new(turn: Box<Turn>, planned: Vec<PlannedCall>) -> Self {
        let results = planned
            .iter()
            .map(|planned| match &planned.plan {
                Planned::Answered(result) => Some(result.clone()),
                _ => None,
            })
            .collect();
        let tries = vec![0; planned.len()];
        let approved = vec![false; planned.len()];
        Self { turn, planned, results, tries, approved }
    }

    /// The calls in the model's order.
    pub fn calls(&self) -> &[PlannedCall] {
        &self.planned
    }

    /// How many may run at the same time.
    pub fn parallel(&self) -> usize {
        self.turn.limits.parallel_calls.max(1)
    }

    /// The calls that were answered without running.
    pub fn answered(&self, events: &mut Vec<ChatEvent>) {
        for result in self.results.iter().flatten() {
            events.push(ChatEvent::CallFinished { result: result.clone(), elapsed: Duration::ZERO });
        }
    }

    /// The call at this index is about to run.
    pub fn begin(&mut self, index: usize) {
        if let Some(tries) = self.tries.get_mut(index) {
            *tries += 1;
        }
    }

    /// How long to wait before the call at this index is run once more; `None` where this outcome stands. `share`, of 0 to 1,
    /// keeps calls apart that failed together.
    pub fn pause_after(
        &self,
        index: usize,
        outcome: &Result<ToolOutput, ToolError>,
        share: f64,
    ) -> Option<Duration> {
        self.retries(index)?.pause(*self.tries.get(index)?, outcome, share)
    }

    /// Whether the file says how often the call at this index is tried.
    pub fn is_tried_again(&self, index: usize) -> bool {
        self.retries(index).is_some()
    }

    fn retries(&self, index: usize) -> Option<&Retries> {
        self.tool(index).filter(|tool| tool.repeatable)?.retries.as_ref()
    }

    /// The call at this index failed, and is about to run once more.
    pub(super) fn again(&mut self, index: usize, reason: &str, pause: Duration, events: &mut Vec<ChatEvent>) {
        self.begin(index);
        let (Some(planned), Some(tries)) = (self.planned.get(index), self.tries.get(index)) else { return };
        let attempts = self.tool(index).and_then(|tool| tool.retries.as_ref());
        let of = attempts.map(|retries| format!(" of {}", retries.attempts)).unwrap_or_default();
        events.push(ChatEvent::Notice(format!(
            "`{}` failed: {reason}; it is tried again in {:.1} s (try {tries}{of})",
            planned.call.name,
            pause.as_secs_f64()
        )));
    }

    /// Whether the call at this index was handed to its source.
    pub(super) fn has_begun(&self, index: usize) -> bool {
        self.tries.get(index).is_some_and(|tries| *tries > 0)
    }

    fn tool(&self, index: usize) -> Option<&Tool> {
        match &self.planned.get(index)?.plan {
            Planned::Run(id) => self.turn.tools.tool(id),
            _ => None,
        }
    }

    /// The calls that are still to be run, and whether they have been begun before: those may have had their effect.
    pub fn open(&self) -> impl Iterator<Item = (usize, &PlannedCall, bool)> {
        let open =
            self.planned.iter().enumerate().filter(|(_, planned)| matches!(planned.plan, Planned::Run(_)));
        open.filter(|(index, _)| self.results[*index].is_none())
            .map(|(index, planned)| (index, planned, self.tries[index] > 0))
    }

    /// What came of the call at this index, and what its tool is labelled with by now.
    pub fn settle(
        &mut self,
        index: usize,
        (outcome, labels): (Result<ToolOutput, ToolError>, Labels),
        elapsed: Duration,
        events: &mut Vec<ChatEvent>,
    ) {
        let Some(planned) = self.planned.get(index) else { return };
        let (has_run, has_answered) = match &outcome {
            Ok(_) | Err(ToolError::Refused { .. }) => (true, true),
            // it may have had its effect, and counts for who limits how often
            Err(ToolError::Timeout { .. } | ToolError::Lost { .. } | ToolError::TooLarge { .. }) => {
                (true, false)
            }
            Err(
                ToolError::Down { .. }
                | ToolError::RateLimited { .. }
                | ToolError::Denied { .. }
                | ToolError::UnknownTool { .. },
            ) => (false, false),
        };
        let mut result = match outcome {
            Ok(output) => {
                let (mut result, cut) = result_for_model(&planned.call, output, self.turn.room());
                if let Some(cut) = cut {
                    let is_look = matches!(&planned.plan, Planned::Run(tool) if &*tool.server == SOURCE);
                    self.turn.keep_whole(&mut result, cut, is_look);
                }
                self.turn.notice_pictures(pictures::has(&result.content), events);
                result
            }
            Err(error) => ToolResult::error(&planned.call, error.to_string()),
        };
        if let Some(tool) = self.tool(index).filter(|_| has_run) {
            let labels = if has_answered { tool.labels.and(labels) } else { Labels::default() };
            result.ran = Some(Box::new(Ran { tool: tool.id.clone(), labels, is_silent: !has_answered }));
        }
        events.push(ChatEvent::CallFinished { result: result.clone(), elapsed });
        self.results[index] = Some(result);
    }

    /// The person does not want the calls: those without a result are answered with that, so that the conversation can
    /// go on.
    pub fn stop(self, events: &mut Vec<ChatEvent>) -> Done {
        self.leave([NOT_RUN, STOPPED], events).stop(Round::default(), events)
    }

    /// The turn cannot go on; its calls are answered as with [`Self::stop`].
    pub fn fail(self, error: ModelError, events: &mut Vec<ChatEvent>) -> Done {
        self.leave([NEVER_RUN, LOST], events).fail(error, events)
    }

    /// Answers every call without a result by saying why, and gives the turn back: the first of the two for a call that was
    /// not begun, the second for one that was.
    pub(super) fn leave(self, why: [&'static str; 2], events: &mut Vec<ChatEvent>) -> Box<Turn> {
        let Self { mut turn, planned, results, tries, .. } = self;
        for ((planned, result), tries) in planned.iter().zip(results).zip(tries) {
            let result = result.unwrap_or_else(|| {
                let result = ToolResult::error(&planned.call, why[usize::from(tries > 0)]);
                if !matches!(planned.plan, Planned::Client) {
                    let elapsed = Duration::ZERO;
                    events.push(ChatEvent::CallFinished { result: result.clone(), elapsed });
                }
                result
            });
            turn.request.messages.push(Message::Tool(result));
        }
        turn
    }

    /// All calls are settled. One that is not is told to the model as not run.
    pub fn finish(self, events: &mut Vec<ChatEvent>) -> Step {
        let Self { mut turn, planned, results, .. } = self;
        let mut answers: Vec<ToolResult> = planned
            .iter()
            .zip(results)
            .filter(|(planned, _)| !matches!(planned.plan, Planned::Client))
            .map(|(planned, result)| {
                result.unwrap_or_else(|| ToolResult::error(&planned.call, "this call was not run"))
            })
            .collect();
        if planned.iter().any(|planned| matches!(planned.plan, Planned::Client)) {
            turn.request.messages.extend(answers.into_iter().map(Message::Tool));
            return Step::Done(turn.hand_over(&planned, Round::default(), events));
        }
        turn.end_round();
        let note = turn.tell_limit(events);
        if let Some(last) = answers.last_mut() {
            for problem in turn.unread.drain(..) {
                say(
                    &mut last.content,
                    &format!("[another call of this message could not be read and was not run: {problem}]"),
                );
            }
            if let Some(note) = &note {
                say(&mut last.content, note);
            }
        }
        turn.request.messages.extend(answers.into_iter().map(Message::Tool));
        Step::AskModel(AskModel::new(turn))
    }
}

const NOT_RUN: &str = "the turn was stopped before this call was run";
const STOPPED: &str = "the turn was stopped while this call was running; its outcome is unknown";
const NEVER_RUN: &str = "the turn failed before this call was run";
const LOST: &str = "the turn failed while this call was running; its outcome is unknown";

/// Said in a result, because that is the one place which every dialect carries and every model reads.
pub(super) fn say(content: &mut Content, note: &str) {
    let note = format!("\n\n{note}");
    match content {
        Content::Text(text) => text.push_str(&note),
        Content::Parts(parts) => parts.push(Part::Text(note)),
    }
}
