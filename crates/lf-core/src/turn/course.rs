//! A turn under way, told what happens to it. Told the same again, it is the same turn in the same step: that is how
//! a turn is read back from a journal, and how a cassette is played.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::event::ChatEvent;
use crate::model::{ModelDelta, ModelError};
use crate::policy::Labels;
use crate::tool::{ToolError, ToolOutput};

use super::{AskModel, AskPerson, Decision, Done, Judged, Rescue, Setup, StandIn, Step, begin};

/// One thing that happens in a turn. What the turn decides by itself is not among them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The first one of every turn, and of no other place.
    Begun(Box<Setup>),
    /// Something the person should know.
    Notice(String),
    /// Another model takes over; said while the model is asked.
    StoodIn(Box<StandIn>),
    /// A piece of the model's answer.
    Delta(ModelDelta),
    /// The ask ended in an error. Whether there is another way is [`Taken`].
    Refused(ModelError),
    /// The answer is whole.
    Answered,
    /// There is no other way: the turn is over.
    Failed(ModelError),
    /// The program died while the model was asked; what it had said of this answer is void but for what it costs, and it is
    /// asked again.
    Interrupted,
    /// What the rules say of the calls of the round; those that are not named may run.
    Judged { calls: Vec<Judged> },
    /// Somebody has said what becomes of the call that this approval is about.
    Decided { approval: String, decision: Decision },
    /// Nobody has, and nobody is waited for: the turn ends with these words.
    Unanswered { words: String },
    /// This call of the round is about to run.
    Running { call: usize },
    /// It failed for this reason, and is about to run once more, after this pause.
    Again {
        call: usize,
        reason: String,
        #[serde(with = "seconds")]
        pause: Duration,
    },
    /// What came of it.
    Settled {
        call: usize,
        outcome: Result<ToolOutput, ToolError>,
        /// What the configuration gave its tool when it ended; what the tool had when the turn began is known.
        #[serde(default, skip_serializing_if = "Labels::is_empty")]
        labels: Labels,
        #[serde(with = "seconds")]
        elapsed: Duration,
    },
    /// All calls that are to run are settled.
    Ran,
    /// The turn has taken as long as it may; said while a model is asked or tools run.
    TimeUp {
        #[serde(with = "seconds")]
        limit: Duration,
    },
    /// Somebody wants the turn to end: what was said and done stays.
    Stopped,
}

/// What an entry led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The turn goes on, or is over.
    GoesOn,
    /// The same ask is to be made again, with what [`AskModel::request`] now says.
    AsksAgain,
    /// Nothing has changed: the entry was of no use.
    Nothing,
}

/// An entry that does not fit the step: the journal is not of this turn, or not whole.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{entry}` cannot follow while {step}")]
pub struct OutOfPlace {
    pub entry: &'static str,
    pub step: &'static str,
}

/// A turn in its present step.
#[derive(Debug)]
pub struct Course {
    pub(super) step: Step,
}

impl Course {
    /// Starts a turn.
    pub fn new(mut setup: Setup, events: &mut Vec<ChatEvent>) -> Self {
        let waiting = setup.waiting.take();
        let turn = begin(setup, events);
        let step = match waiting {
            Some(waiting) => turn.begin_with(waiting, events),
            None => Step::AskModel(AskModel::new(turn)),
        };
        let mut course = Self { step };
        course.enter(events);
        course
    }

    /// What is to be done next.
    pub fn step(&self) -> &Step {
        &self.step
    }

    /// Takes what has happened, and tells what clients may see of it.
    ///
    /// # Errors
    /// [`OutOfPlace`] when it cannot happen in this step; the turn is as it was.
    pub fn take(&mut self, entry: Entry, events: &mut Vec<ChatEvent>) -> Result<Taken, OutOfPlace> {
        match (&mut self.step, entry) {
            (Step::AskModel(ask), Entry::Delta(delta)) => ask.push(delta, events),
            (Step::AskModel(ask), Entry::Interrupted) => ask.begin_again(events),
            (Step::AskModel(ask), Entry::StoodIn(stand_in)) => {
                return Ok(if ask.stand_in(*stand_in, events) { Taken::AsksAgain } else { Taken::Nothing });
            }
            (Step::AskModel(ask), Entry::Refused(error)) => {
                ask.refused(&error);
                if ask.switch_to_prompt(&error) {
                    return Ok(Taken::AsksAgain);
                }
                match ask.rescue(&error, events) {
                    Rescue::Answered => self.go_on(events, AskModel::finish),
                    Rescue::AskAgain => return Ok(Taken::AsksAgain),
                    Rescue::Nothing => return Ok(Taken::Nothing),
                }
            }
            (Step::AskModel(_), Entry::Answered) => self.go_on(events, AskModel::finish),
            (Step::AskModel(_), Entry::Failed(error)) => {
                self.go_on(events, |ask, events| Step::Done(ask.fail(error, events)));
            }
            (Step::Judge(_), Entry::Judged { calls }) => {
                if let Step::Judge(judge) = self.leave() {
                    self.step = judge.judged(&calls, events);
                    self.enter(events);
                }
            }
            (Step::Judge(_), Entry::Stopped) => {
                if let Step::Judge(judge) = self.leave() {
                    self.step = Step::Done(judge.stop(events));
                }
            }
            (Step::Judge(_), Entry::Failed(error)) => {
                if let Step::Judge(judge) = self.leave() {
                    self.step = Step::Done(judge.fail(error, events));
                }
            }
            (Step::AskPerson(asking), Entry::Decided { approval, decision }) => {
                asking.decide(&approval, &decision, events);
                self.enter(events);
            }
            (Step::AskPerson(_), Entry::Unanswered { words }) => {
                self.end_asking(events, |asking, events| asking.end(words, events));
            }
            (Step::AskPerson(_), Entry::Stopped) => self.end_asking(events, AskPerson::stop),
            (Step::RunTools(run), Entry::Running { call }) => run.begin(call),
            (Step::RunTools(run), Entry::Again { call, reason, pause }) => {
                run.again(call, &reason, pause, events);
            }
            (Step::RunTools(run), Entry::Settled { call, outcome, labels, elapsed }) => {
                run.settle(call, (outcome, labels), elapsed, events);
            }
            (Step::AskModel(ask), Entry::TimeUp { limit }) => return Ok(ask.time_up(limit, events)),
            (Step::RunTools(_), Entry::TimeUp { limit }) => {
                if let Step::RunTools(run) = self.leave() {
                    self.step = run.time_up(limit, events);
                }
            }
            (Step::RunTools(_), Entry::Ran) => {
                if let Step::RunTools(run) = self.leave() {
                    self.step = run.finish(events);
                }
            }
            (Step::AskPerson(_), Entry::Failed(error)) => {
                self.end_asking(events, |asking, events| asking.fail(error, events));
            }
            (Step::RunTools(_), Entry::Failed(error)) => {
                if let Step::RunTools(run) = self.leave() {
                    self.step = Step::Done(run.fail(error, events));
                }
            }
            (Step::AskModel(_), Entry::Stopped) => {
                self.go_on(events, |ask, events| Step::Done(ask.stop(events)));
            }
            (Step::RunTools(_), Entry::Stopped) => {
                if let Step::RunTools(run) = self.leave() {
                    self.step = Step::Done(run.stop(events));
                }
            }
            (
                Step::AskModel(_) | Step::Judge(_) | Step::AskPerson(_) | Step::RunTools(_),
                Entry::Notice(text),
            ) => {
                events.push(ChatEvent::Notice(text));
            }
            (step, entry) => return Err(OutOfPlace { entry: entry.name(), step: step.name() }),
        }
        Ok(Taken::GoesOn)
    }

    /// Whether the turn has a tool of this name. Said while calls of it are looked at; before and after, it is true of all.
    pub fn has_tool(&self, name: &str) -> bool {
        let run = match &self.step {
            Step::Judge(judge) => &judge.run,
            Step::AskPerson(asking) => asking.run(),
            Step::RunTools(run) => run,
            Step::AskModel(_) | Step::Done(_) => return true,
        };
        run.turn.tools.resolve(name, None).is_ok()
    }

    fn go_on(
        &mut self,
        events: &mut Vec<ChatEvent>,
        next: impl FnOnce(AskModel, &mut Vec<ChatEvent>) -> Step,
    ) {
        if let Step::AskModel(ask) = self.leave() {
            self.step = next(ask, events);
        }
        self.enter(events);
    }

    fn end_asking(
        &mut self,
        events: &mut Vec<ChatEvent>,
        end: impl FnOnce(AskPerson, &mut Vec<ChatEvent>) -> Done,
    ) {
        if let Step::AskPerson(asking) = self.leave() {
            self.step = Step::Done(end(asking, events));
        }
    }

    /// A round runs once nothing of it is open; what was answered without running is told then.
    fn enter(&mut self, events: &mut Vec<ChatEvent>) {
        self.step = match self.leave() {
            Step::AskPerson(asking) => match asking.decided() {
                Ok(run) => Step::RunTools(run),
                Err(asking) => Step::AskPerson(asking),
            },
            step => step,
        };
        if let Step::RunTools(run) = &self.step {
            run.answered(events);
        }
    }

    fn leave(&mut self) -> Step {
        std::mem::replace(&mut self.step, Step::Done(Done::with([].into(), super::Spent::default())))
    }

    /// What is left of a turn that is over; the turn itself otherwise.
    ///
    /// # Errors
    /// The course, when it is not at its end.
    pub fn into_done(self) -> Result<Done, Box<Self>> {
        match self.step {
            Step::Done(done) => Ok(done),
            step => Err(Box::new(Self { step })),
        }
    }
}

impl Entry {
    /// A call that ended in this way is run once more, after this pause.
    pub fn again(call: usize, outcome: &Result<ToolOutput, ToolError>, pause: Duration) -> Self {
        Self::Again { call, reason: crate::tool::retries::reason(outcome), pause }
    }

    /// As it is called in a journal.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Begun(_) => "begun",
            Self::Notice(_) => "notice",
            Self::StoodIn(_) => "stood_in",
            Self::Delta(_) => "delta",
            Self::Refused(_) => "refused",
            Self::Answered => "answered",
            Self::Failed(_) => "failed",
            Self::Interrupted => "interrupted",
            Self::Decided { .. } => "decided",
            Self::Unanswered { .. } => "unanswered",
            Self::Judged { .. } => "judged",
            Self::Running { .. } => "running",
            Self::Again { .. } => "again",
            Self::Settled { .. } => "settled",
            Self::Ran => "ran",
            Self::TimeUp { .. } => "time_up",
            Self::Stopped => "stopped",
        }
    }
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::AskModel(_) => "the model is asked",
            Self::Judge(_) => "the rules are asked",
            Self::AskPerson(_) => "a person is asked",
            Self::RunTools(_) => "tools run",
            Self::Done(_) => "the turn is over",
        }
    }
}

/// Seconds, so that a person can read them.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(elapsed: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(elapsed.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
