//! Running one call: the only place where a tool is run for a turn.

use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use lf_core::message::ToolCall;
use lf_core::policy::Labels;
use lf_core::tool::{Attendant, BoxFuture, Question, Reply, ToolProgress};
use lf_core::turn::{Entry, RunTools};
use lf_core::{Principal, Project, ToolError, ToolOutput, ToolRef, ToolSource};
use lf_mcp::ProjectTools;
use serde_json::{Map, Value};
use tracing::info;

use super::attending::{Attending, Elsewhere};
use crate::app::App;
use crate::authority::Errand;
use crate::rules::{Asked, Became, Check, Facts, Rules, Told, Underway, permit};

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
    let empty = Map::new();
    let mandate = runner.errand.mandate_for(&facts.tool);
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
    let denied = |underway: Underway<'_>, reason: String| {
        info!(server = %tool.server, tool = %tool.name, call_id, reason, "the call may not run");
        underway.became(&Became::Denied(&reason));
        let (server, tool) = (tool.server.to_string(), tool.name.to_string());
        let outcome = Err(ToolError::Denied { server, tool, reason });
        Came { outcome, labels: Labels::default(), elapsed: Duration::ZERO }
    };
    let handed_over = || Underway::handed_over(check, Told::from(asked));
    let mut looks = 0;
    let now = loop {
        let now = Now::of(tools, check, asked).await;
        if let Err(reason) = permit(check, &now.asked(asked)) {
            return denied(handed_over(), reason);
        }
        // a server that starts takes up to a minute, in which the file may change, and what the server lists
        looks += 1;
        let has_waited = has_waited_for(now.source(tools), &tool.server).await;
        if check.moved(&tool.server) == now.moved && (looks > 1 || !has_waited) {
            break now;
        }
    };
    let underway = handed_over();
    info!(server = %tool.server, tool = %tool.name, call_id, "Executing MCP tool");
    let (elsewhere, asked_now) = (Elsewhere(attendant), now.asked(asked));
    let attendant: &dyn Attendant = if now.moved.is_some() { &elsewhere } else { attendant };
    let guarded = Guarded { attendant, check, asked: &asked_now };
    let outcome = match now.source(tools).call(tool, asked.arguments, &guarded).await {
        // nothing was sent
        Err(ToolError::Denied { reason, .. }) => return denied(underway, reason),
        outcome => outcome,
    };
    let elapsed = underway.elapsed();
    let said = match &outcome {
        Ok(output) if !output.is_error => "Tool execution successful",
        Ok(_) => "the tool reported an error",
        // why is told by the source, which also serves calls that come from elsewhere
        Err(_) => "the tool call failed",
    };
    info!(server = %tool.server, tool = %tool.name, call_id, ?elapsed, "{said}");
    underway.became(&Became::settled(&outcome, elapsed));
    Came { outcome, labels: now.facts.labels.and(check.labels_of(tool)), elapsed }
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

impl App {
    /// Runs a tool for whoever runs this program, whom neither lists nor rules hold; it is on record like any other. Dropping
    /// the future cancels the call.
    ///
    /// # Errors
    /// [`ToolError`]
    pub async fn call_as_owner(
        &self,
        project: &Project,
        tools: &ProjectTools,
        (tool, arguments): (&ToolRef, &Map<String, Value>),
        attendant: &dyn Attendant,
    ) -> Result<ToolOutput, ToolError> {
        let owner = Arc::new(Principal::owner());
        let rules = Rules::of(self.active(project), self.authority(&owner));
        let underway = Underway::handed_over(&rules, Told::new(None, tool, arguments));
        let outcome = tools.call(tool, arguments, attendant).await;
        let elapsed = underway.elapsed();
        underway.became(&Became::settled(&outcome, elapsed));
        outcome
    }
}

/// Waits until a server is ready; false where it was.
async fn has_waited_for(source: &dyn ToolSource, server: &str) -> bool {
    let mut ready = source.ready(server);
    let has_waited = poll!(&mut ready).is_pending();
    if has_waited {
        ready.await;
    }
    has_waited
}

/// A call by the configuration of now.
struct Now {
    /// Where it runs, if that is another place than its turn began with.
    moved: Option<ProjectTools>,
    /// What is known of the tool, as its server lists it now where that may be something else.
    facts: Facts,
}

impl Now {
    async fn of(tools: &dyn ToolSource, check: &dyn Check, asked: &Asked<'_>) -> Self {
        let facts = asked.facts.clone();
        let moved = check.moved(&facts.tool.server);
        let facts = match &moved {
            Some(moved) => facts.listed_by(moved).await,
            // it may have changed since it was offered
            None if check.is_locked(&facts.tool.server) => facts.listed_by(tools).await,
            None => facts,
        };
        Self { moved, facts }
    }

    fn source<'a>(&'a self, tools: &'a dyn ToolSource) -> &'a dyn ToolSource {
        self.moved.as_ref().map_or(tools, |moved| moved as &dyn ToolSource)
    }

    fn asked<'a>(&'a self, asked: &Asked<'a>) -> Asked<'a> {
        Asked { facts: &self.facts, ..*asked }
    }
}

#[cfg(test)]
mod tests;
