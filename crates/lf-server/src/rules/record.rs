//! What is put on record of a call: who wanted it run, and what became of it.

use std::time::Duration;

use lf_core::audit::{Event, Record, hash_of_json};
use lf_core::turn::{Ask, Decision};
use lf_core::{ToolError, ToolOutput, ToolRef};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Asked, Rules};

/// A call that is put on record.
pub(crate) struct Told<'a> {
    /// By its name in the file; `None` for a client's own call.
    pub model: Option<&'a str>,
    pub tool: &'a ToolRef,
    /// Their hash; `None` where they could not be read.
    pub arguments: Option<String>,
}

/// What became of it.
pub(crate) enum Became<'a> {
    /// It was handed to its server.
    Ran {
        outcome: &'static str,
        result: String,
        elapsed: Duration,
    },
    /// Why it was not run.
    Denied(&'a str),
    Decided(&'a Decision),
}

impl<'a> From<&Asked<'a>> for Told<'a> {
    fn from(asked: &Asked<'a>) -> Self {
        Self::new(asked.model, &asked.facts.tool, asked.arguments)
    }
}

impl<'a> Told<'a> {
    pub(crate) fn new(model: Option<&'a str>, tool: &'a ToolRef, arguments: &Map<String, Value>) -> Self {
        Self { model, tool, arguments: Some(hash_of_json(arguments)) }
    }

    pub(crate) fn of(ask: &'a Ask, model: &'a str) -> Self {
        let arguments = ask.call.arguments.value().ok().map(hash_of_json);
        Self { model: Some(model), tool: &ask.tool, arguments }
    }
}

impl Became<'_> {
    /// `result`: all that came back.
    pub(crate) fn ran(outcome: &'static str, result: &impl Serialize, elapsed: Duration) -> Self {
        Self::Ran { outcome, result: hash_of_json(result), elapsed }
    }

    pub(crate) fn settled(outcome: &Result<ToolOutput, ToolError>, elapsed: Duration) -> Self {
        match outcome {
            Ok(output) => Self::ran(if output.is_error { "error" } else { "ok" }, output, elapsed),
            Err(error) => Self::ran(error.name(), &error.to_string(), elapsed),
        }
    }
}

impl Rules {
    pub(super) fn put_on_record(&self, told: &Told<'_>, became: &Became<'_>) {
        let project = (self.project)().map(|project| format!("{}/{}", project.namespace, project.name));
        let record = Record {
            who: Some(self.asks.principal.name.clone()),
            project,
            model: told.model.map(str::to_owned),
            server: Some(told.tool.server.to_string()),
            tool: Some(told.tool.name.to_string()),
            arguments: told.arguments.clone(),
            ..Record::new(match became {
                Became::Ran { .. } => Event::Call,
                Became::Denied(_) => Event::Denied,
                Became::Decided(_) => Event::Approval,
            })
        };
        self.asks.record(match became {
            Became::Ran { outcome, result, elapsed } => Record {
                outcome: Some(outcome),
                result: Some(result.clone()),
                ms: Some(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)),
                ..record
            },
            Became::Denied(why) => record.detail(why),
            Became::Decided(Decision { verdict, by, reason }) => {
                let reason = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
                Record { outcome: Some(verdict.name()), ..record }.detail(&format!("by {by}{reason}"))
            }
        });
    }
}
