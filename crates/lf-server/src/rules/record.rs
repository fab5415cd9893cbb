//! What is put on record of a call: who wanted it run, and what became of it.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use lf_core::audit::{Event, Record, hash_of_json};
use lf_core::turn::Course;
use lf_core::turn::{Ask, Decision};
use lf_core::{ChatEvent, ToolCall, ToolError, ToolOutput, ToolRef};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Asked, Check, Rules};

/// A call that is put on record.
pub(crate) struct Told<'a> {
    /// By its name in the file; `None` for a client's own call.
    pub model: Option<&'a str>,
    /// `None` of a tool that there is not.
    pub server: Option<&'a str>,
    pub tool: &'a str,
    /// Their hash; `None` where they could not be read.
    pub arguments: Option<String>,
}

/// What became of it.
pub(crate) enum Became<'a> {
    /// It was handed to its server.
    Ran {
        outcome: &'static str,
        /// The hash of all that came back, where anything did.
        result: Option<String>,
        elapsed: Duration,
    },
    /// Why it was not run.
    Denied(&'a str),
    Decided(Cow<'a, Decision>),
}

impl<'a> From<&Asked<'a>> for Told<'a> {
    fn from(asked: &Asked<'a>) -> Self {
        Self::new(asked.model, &asked.facts.tool, asked.arguments)
    }
}

impl<'a> Told<'a> {
    pub(crate) fn new(model: Option<&'a str>, tool: &'a ToolRef, arguments: &Map<String, Value>) -> Self {
        let (server, tool) = (Some(&*tool.server), &*tool.name);
        Self { model, server, tool, arguments: Some(hash_of_json(arguments)) }
    }

    /// Of a tool that was found, and that nobody has called.
    pub(crate) fn found(model: Option<&'a str>, tool: &'a ToolRef) -> Self {
        Self { model, server: Some(&tool.server), tool: &tool.name, arguments: None }
    }

    pub(crate) fn of(ask: &'a Ask, model: &'a str) -> Self {
        let arguments = ask.call.arguments.value().ok().map(hash_of_json);
        let (server, tool) = (Some(&*ask.tool.server), &*ask.tool.name);
        Self { model: Some(model), server, tool, arguments }
    }

    /// Of a call that is of no tool.
    fn unknown(call: &'a ToolCall, model: &'a str) -> Self {
        let arguments = call.arguments.value().ok().map(hash_of_json);
        Self { model: Some(model), server: None, tool: &call.name, arguments }
    }
}

impl Became<'_> {
    /// `result`: all that came back.
    pub(crate) fn ran(outcome: &'static str, result: &impl Serialize, elapsed: Duration) -> Self {
        Self::Ran { outcome, result: Some(hash_of_json(result)), elapsed }
    }

    /// The program died before it had an answer.
    pub(crate) fn lost() -> Self {
        Self::Ran { outcome: "lost", result: None, elapsed: Duration::ZERO }
    }

    /// Nobody has waited for its end: its client has left, the turn was cancelled or took too long.
    fn cancelled(elapsed: Duration) -> Self {
        Self::Ran { outcome: "cancelled", result: None, elapsed }
    }

    pub(crate) fn settled(outcome: &Result<ToolOutput, ToolError>, elapsed: Duration) -> Self {
        match outcome {
            Ok(output) => Self::ran(if output.is_error { "error" } else { "ok" }, output, elapsed),
            Err(error) => Self::ran(error.name(), &error.to_string(), elapsed),
        }
    }
}

/// A call on its way, which is put on record whatever becomes of it: also where it is dropped before its end is known.
pub(crate) struct Underway<'a> {
    check: &'a dyn Check,
    /// `None` once it is on record.
    told: Option<Told<'a>>,
    since: Instant,
    or: fn(Duration) -> Became<'static>,
}

impl<'a> Underway<'a> {
    /// Of a call that is handed to its server now.
    pub(crate) fn handed_over(check: &'a dyn Check, told: Told<'a>) -> Self {
        Self { check, told: Some(told), since: Instant::now(), or: Became::cancelled }
    }

    /// Of a call that waits for a person: `or` is what becomes of it where nobody waits any more.
    pub(crate) fn asked(check: &'a dyn Check, told: Told<'a>, or: fn(Duration) -> Became<'static>) -> Self {
        Self { check, told: Some(told), since: Instant::now(), or }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    pub(crate) fn became(mut self, became: &Became<'_>) {
        if let Some(told) = self.told.take() {
            self.check.record(&told, became);
        }
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            self.check.record(&told, &(self.or)(self.since.elapsed()));
        }
    }
}

/// Of a call of what its caller has not, or the file withholds.
pub(crate) const NO_TOOL: &str = "whoever asks has no such tool";

/// Puts on record what these events of a turn tell: what was decided about calls, whichever way it came in, and what the
/// model wanted that it has not.
pub(crate) fn record_told(check: &dyn Check, course: &Course, events: &[ChatEvent], model: &str) {
    for event in events {
        match event {
            ChatEvent::ApprovalDecided(ask) => {
                if let Some(decision) = &ask.decision {
                    check.record(&Told::of(ask, model), &Became::Decided(Cow::Borrowed(decision)));
                }
            }
            ChatEvent::CallStarted { call, tool: None } if !course.has_tool(&call.name) => {
                check.record(&Told::unknown(call, model), &Became::Denied(NO_TOOL));
            }
            _ => {}
        }
    }
}

impl Rules {
    pub(super) fn put_on_record(&self, told: &Told<'_>, became: &Became<'_>) {
        let project = (self.project)().map(|project| format!("{}/{}", project.namespace, project.name));
        let record = Record {
            project,
            model: told.model.map(str::to_owned),
            turn: self.began.as_ref().and_then(|began| began.turn.clone()),
            server: told.server.map(str::to_owned),
            tool: Some(told.tool.to_owned()),
            arguments: told.arguments.clone(),
            ..Record::new(match became {
                Became::Ran { .. } => Event::Call,
                Became::Denied(_) => Event::Denied,
                Became::Decided(_) => Event::Approval,
            })
        }
        .of(&self.asks.principal);
        self.asks.record(match became {
            Became::Ran { outcome, result, elapsed } => Record {
                outcome: Some(outcome),
                result: result.clone(),
                ms: Some(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)),
                ..record
            },
            Became::Denied(why) => record.detail(why),
            Became::Decided(decision) => {
                let Decision { verdict, by, reason, who } = &**decision;
                let reason = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
                Record { outcome: Some(verdict.name()), decided_by: who.clone(), ..record }
                    .detail(&format!("by {by}{reason}"))
            }
        });
    }
}
