//! Running one call: the only place where a tool is run for a turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::poll;
use lf_core::message::ToolCall;
use lf_core::policy::Labels;
use lf_core::tool::{Attendant, BoxFuture, Question, Reply, ToolProgress};
use lf_core::turn::{Entry, RunTools};
use lf_core::{ToolError, ToolOutput, ToolSource};
use tracing::info;

use super::attending::Attending;
use crate::authority::Errand;
use crate::rules::{Asked, Became, Check, Facts, Told, permit};

/// A call that is to be run.
pub(super) struct Runnable {
    /// Its place in the round.
    pub index: usize,
    pub call: ToolCall,
    pub facts: Facts,
    /// The file says how often it is tried.
    pub is_tried_again: bool,
}

pub(super) fn runnable(run: &RunTools) -> Vec<Runnable> {
    let standing = run.standing().into_iter();
    let runnable = standing.map(|standing| {
        let (index, call) = (standing.index, standing.call.clone());
        Runnable { index, call, facts: standing.into(), is_tried_again: run.is_tried_again(index) }
    });
    runnable.collect()
}

/// What the calls of a round are run with.
#[derive(Clone)]
pub(super) struct Runner {
    pub tools: Arc<dyn ToolSource>,
    pub check: Arc<dyn Check>,
    pub errand: Errand,
    pub model: Arc<str>,
}

/// One call of a turn after a pause, and what came of it.
pub(super) async fn run_call(
    runner: Runner,
    Runnable { index, call, facts, is_tried_again }: Runnable,
    pause: Duration,
    attending: Attending,
) -> Entry {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    let empty = serde_json::Map::new();
    // what this daemon is told on somebody's behalf is told to no other server that has its name by now
    let is_moved = runner.check.moved(&facts.tool.server).is_some();
    let mandate = runner.errand.mandate_for(&facts.tool).filter(|_| !is_moved);
    let attendant = attending.call(&call.id, is_tried_again, mandate);
    let arguments = call.arguments.value().unwrap_or(&empty);
    let asked = Asked { model: Some(&runner.model), facts: &facts, arguments };
    let Came { outcome, labels, elapsed } =
        execute_tool(&*runner.tools, &*runner.check, &asked, &call.id, &attendant).await;
    Entry::Settled { call: index, outcome, labels, elapsed }
}

/// What came of a call.
pub(crate) struct Came {
    pub outcome: Result<ToolOutput, ToolError>,
    /// What its result brings in by the configuration of its end.
    pub labels: Labels,
    pub elapsed: Duration,
}

/// The one place where a tool is run for a turn, and for who calls it alone: after everything else that decides about it,
/// the check looks at it once more, by the configuration of now. A server whose entry has changed is called as it is now.
pub(crate) async fn execute_tool(
    tools: &dyn ToolSource,
    check: &dyn Check,
    asked: &Asked<'_>,
    call_id: &str,
    attendant: &dyn Attendant,
) -> Came {
    let tool = &asked.facts.tool;
    let denied = |reason: String| {
        info!(server = %tool.server, tool = %tool.name, call_id, reason, "the call may not run");
        check.record(&Told::from(asked), &Became::Denied(&reason));
        let (server, tool) = (tool.server.to_string(), tool.name.to_string());
        let outcome = Err(ToolError::Denied { server, tool, reason });
        Came { outcome, labels: Labels::default(), elapsed: Duration::ZERO }
    };
    let mut facts = match permit_now(tools, check, asked).await {
        Ok(facts) => facts,
        Err(reason) => return denied(reason),
    };
    let moved = check.moved(&tool.server);
    let source = moved.as_ref().map_or(tools, |moved| moved as &dyn ToolSource);
    let mut ready = source.ready(&tool.server);
    // a server that starts takes up to a minute, in which the rules may change
    if poll!(&mut ready).is_pending() {
        ready.await;
        facts = match permit_now(tools, check, asked).await {
            Ok(facts) => facts,
            Err(reason) => return denied(reason),
        };
    }
    let started = Instant::now();
    info!(server = %tool.server, tool = %tool.name, call_id, "Executing MCP tool");
    let asked_now = &Asked { facts: &facts, ..*asked };
    let guarded = Guarded { attendant, check, asked: asked_now };
    let outcome = match source.call(tool, asked.arguments, &guarded).await {
        // nothing was sent
        Err(ToolError::Denied { reason, .. }) => return denied(reason),
        outcome => outcome,
    };
    let elapsed = started.elapsed();
    let said = match &outcome {
        Ok(output) if !output.is_error => "Tool execution successful",
        Ok(_) => "the tool reported an error",
        // why is told by the source, which also serves calls that come from elsewhere
        Err(_) => "the tool call failed",
    };
    info!(server = %tool.server, tool = %tool.name, call_id, ?elapsed, "{said}");
    check.record(&Told::from(asked), &Became::settled(&outcome, elapsed));
    Came { outcome, labels: facts.labels.and(check.labels_of(tool)), elapsed }
}

/// A call that is looked at once more when it is sent: its connection may have ended since it was ready.
struct Guarded<'a> {
    attendant: &'a dyn Attendant,
    check: &'a dyn Check,
    asked: &'a Asked<'a>,
}

impl Attendant for Guarded<'_> {
    fn may_send(&self) -> Result<(), String> {
        permit(self.check, self.asked)?;
        self.attendant.may_send()
    }

    fn progress(&self, progress: ToolProgress) {
        self.attendant.progress(progress);
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        self.attendant.ask(question)
    }

    fn note(&self, note: String) {
        self.attendant.note(note);
    }

    fn tries_again(&self) -> bool {
        self.attendant.tries_again()
    }

    fn on_behalf(&self) -> Option<&str> {
        self.attendant.on_behalf()
    }

    fn party(&self) -> Option<u64> {
        self.attendant.party()
    }
}

/// Whether a call may run by the configuration of now, of the tool as its server lists it now: the facts by which it may.
async fn permit_now(tools: &dyn ToolSource, check: &dyn Check, asked: &Asked<'_>) -> Result<Facts, String> {
    let mut facts = asked.facts.clone();
    match check.moved(&facts.tool.server) {
        Some(moved) => facts = facts.listed_by(&moved).await,
        // it may have changed since it was offered
        None if check.is_locked(&facts.tool.server) => facts = facts.listed_by(tools).await,
        None => {}
    }
    permit(check, &Asked { facts: &facts, ..*asked })?;
    Ok(facts)
}

#[cfg(test)]
mod tests;
