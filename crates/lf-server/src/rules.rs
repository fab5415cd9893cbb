//! Whether a call of a tool may run: the one answer for turns, for clients of `/mcp`, and for `…/mcp/execute`. It is given
//! twice for a call of a turn: before a person is asked, and right before the call runs, by the configuration of then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lf_core::policy::{Case, Judgement, Labels, Policy, deadline};
use lf_core::results::SOURCE;
use lf_core::tool::{Approval, Hints};
use lf_core::turn::{Before, Judged, Standing};
use lf_core::{Project, ToolRef, ToolSource};
use lf_mcp::{ProjectTools, SessionPool};
use serde_json::{Map, Value};

/// For the conditions of all calls of a round together.
const ROUND: Duration = Duration::from_secs(1);

/// What the names of sources begin with that come with the program. No server of a file can have such a name, and who is
/// shown their tools may use them; the rules speak of them like of any others.
const BUILT_IN: &str = "lf:";

/// A call that somebody wants to run.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// By its name in the file; `None` for a client's own call.
    pub model: Option<&'a str>,
    pub facts: &'a Facts,
    pub arguments: &'a Map<String, Value>,
}

/// What is known of a call besides its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub tool: ToolRef,
    pub hints: Hints,
    /// Those that its server gives it; what the file says is added.
    pub labels: Labels,
    pub earlier: Before,
    pub seen: Labels,
    /// A person has said yes to this call.
    pub is_approved: bool,
    /// A person has said yes to this tool for all of the conversation.
    pub is_trusted: bool,
}

impl Facts {
    /// Of a client's own call: nothing but what the server lists.
    pub(crate) fn alone(tool: ToolRef, hints: Hints, labels: Labels) -> Self {
        let (earlier, seen) = (Before::default(), Labels::default());
        Self { tool, hints, labels, earlier, seen, is_approved: false, is_trusted: false }
    }

    /// The same when a person has said yes.
    pub(crate) fn approved(self) -> Self {
        Self { is_approved: true, ..self }
    }

    /// The same of the tool as it is listed there. One that is not listed is as dangerous as one that says nothing of itself.
    pub(crate) async fn listed_by(self, tools: &dyn ToolSource) -> Self {
        let catalogue = tools.list(&[self.tool.server.to_string()]).await;
        let listed = catalogue.tools.iter().find(|listed| listed.id == self.tool);
        let (hints, labels) = listed.map(|listed| (listed.hints, listed.labels)).unwrap_or_default();
        Self { hints, labels, ..self }
    }
}

impl From<Standing<'_>> for Facts {
    fn from(standing: Standing<'_>) -> Self {
        let Standing { tool, earlier, seen, is_approved, is_trusted, .. } = standing;
        Self {
            tool: tool.id.clone(),
            hints: tool.hints,
            labels: tool.labels,
            earlier,
            seen,
            is_approved,
            is_trusted,
        }
    }
}

/// Who says whether calls run.
pub(crate) trait Check: Send + Sync {
    /// What becomes of a call, whatever a person has said of it. `end`: when its conditions must be decided.
    fn check(&self, asked: &Asked<'_>, end: Instant) -> Judgement;

    /// Where calls of this server run, if that is another place than the turn began with: its entry in the file has
    /// changed since.
    fn moved(&self, _server: &str) -> Option<ProjectTools> {
        None
    }
}

/// What becomes of a call, with what a person has said of it: it runs, or this is why it does not.
pub(crate) fn permit(check: &dyn Check, asked: &Asked<'_>) -> Result<(), String> {
    let Judgement { verdict, why } = check.check(asked, deadline());
    let why = if why.is_empty() { "it needs a person's yes".to_owned() } else { why };
    match verdict {
        Approval::Auto => Ok(()),
        Approval::Ask if asked.facts.is_approved => Ok(()),
        Approval::Ask => Err(format!("{why}, and nobody has given it")),
        Approval::Deny => Err(why),
    }
}

/// What is to be said of the calls of a round.
pub(crate) fn judge(check: &dyn Check, standing: Vec<Standing<'_>>, model: &str) -> Vec<Judged> {
    let last = Instant::now() + ROUND;
    let empty = Map::new();
    let judged = standing.into_iter().filter_map(|standing| {
        let (call, arguments) = (standing.index, standing.call.arguments.value().unwrap_or(&empty));
        let asked = Asked { model: Some(model), facts: &standing.into(), arguments };
        let Judgement { verdict, why } = check.check(&asked, deadline().min(last));
        // what a server's `approval` asks for is asked without a rule's words
        (verdict != Approval::Auto && !why.is_empty()).then_some(Judged { call, verdict, why })
    });
    judged.collect()
}

/// The configuration that counts now: the active generation of a project, or nothing once the project is gone.
pub(crate) type Active = Arc<dyn Fn() -> Option<Arc<Project>> + Send + Sync>;

/// What a turn began with.
pub(crate) struct Began {
    pub project: Arc<Project>,
    /// The model that was asked for. What it may not use any more, none that answers in its place may, either.
    pub model: String,
    pub pool: SessionPool,
}

/// The rules of a project's file as it is at each look: whose servers a model may use, which tools they offer, the policy, and `approval`.
pub(crate) struct Rules {
    project: Active,
    /// The name of who asks.
    key: Option<String>,
    /// They are asked about the daemon's own tools, which are no server's.
    own: bool,
    began: Option<Began>,
}

impl Rules {
    /// For a client's own calls.
    pub(crate) fn of(project: Active) -> Self {
        Self { project, key: None, own: false, began: None }
    }

    /// For the calls of a turn.
    pub(crate) fn of_turn(project: Active, began: Began) -> Self {
        Self { began: Some(began), ..Self::of(project) }
    }

    /// For calls of the daemon's own tools.
    pub(crate) fn of_own_tools(project: Active) -> Self {
        Self { own: true, ..Self::of(project) }
    }

    /// What the lists say of a call by its model, and by `first`, the one that was asked for.
    fn listed(project: &Project, asked: &Asked<'_>, first: Option<&str>) -> Judgement {
        let ToolRef { server, name } = &asked.facts.tool;
        if server.starts_with(BUILT_IN) {
            return Judgement::runs();
        }
        for model in asked.model.into_iter().chain(first) {
            let found = match project.models.get(model) {
                Some(Ok(found)) => found,
                Some(Err(disabled)) => return no(disabled.reason.clone()),
                None => return no(format!("model `{model}` is not there any more")),
            };
            if !found.servers.iter().any(|known| **known == **server) {
                return no(format!("model `{model}` may not use MCP server `{server}`"));
            }
        }
        let found = match project.servers.get(&**server) {
            Some(Ok(found)) => found,
            Some(Err(disabled)) => return no(disabled.reason.clone()),
            None => return no(format!("MCP server `{server}` is not there any more")),
        };
        let approval = found.tools.approval(name, asked.facts.hints);
        if !found.tools.permits(name) || approval == Approval::Deny {
            return no(format!("MCP server `{server}` has no tool `{name}`"));
        }
        // an empty reason: everybody knows that such tools are asked about
        let verdict = if asked.facts.is_trusted { Approval::Auto } else { approval };
        Judgement { verdict, why: String::new() }
    }
}

fn no(why: String) -> Judgement {
    Judgement { verdict: Approval::Deny, why }
}

impl Check for Rules {
    fn check(&self, asked: &Asked<'_>, end: Instant) -> Judgement {
        // it shows more of what a call returned that was permitted, and what that brought in counts already
        if &*asked.facts.tool.server == SOURCE {
            return Judgement::runs();
        }
        let Some(project) = (self.project)() else {
            return no("its project is not there any more".to_owned());
        };
        let first = self.began.as_ref().map(|began| &*began.model);
        let listed = if self.own { Judgement::runs() } else { Self::listed(&project, asked, first) };
        if listed.verdict == Approval::Deny {
            return listed;
        }
        let Facts { tool, hints, labels, earlier, seen, .. } = asked.facts;
        let case = Case {
            model: asked.model,
            key: self.key.as_deref(),
            tool,
            hints: *hints,
            labels: labels.and(project.policy.labels_of(tool)),
            arguments: asked.arguments,
            earlier,
            seen: *seen,
        };
        // the policy first: of two that ask, it is the one with a reason
        project.policy.judge(&case, end).and(listed)
    }

    fn moved(&self, server: &str) -> Option<ProjectTools> {
        let Began { project: then, pool, .. } = self.began.as_ref()?;
        let project = (self.project)()?;
        let now = project.servers.get(server)?.as_ref().ok()?;
        let has_changed = then.servers.get(server).is_none_or(|then| then.as_ref().ok() != Some(now));
        has_changed.then(|| pool.tools([(server.to_owned(), Ok(now.clone()))]))
    }
}

/// What the lists of a file and this part of its policy say of a call, whatever a person says.
pub(crate) fn outlook_of(project: &Project, policy: &Policy, tool: ToolRef, case: &Case<'_>) -> Judgement {
    let facts = Facts::alone(tool, case.hints, case.labels);
    let listed =
        Rules::listed(project, &Asked { model: case.model, facts: &facts, arguments: case.arguments }, None);
    match listed.verdict {
        Approval::Deny => listed,
        _ => policy.judge(case, deadline()).and(listed),
    }
}

/// For calls whose results are played from a recording: nothing runs.
pub(crate) struct Recorded;

impl Check for Recorded {
    fn check(&self, _: &Asked<'_>, _: Instant) -> Judgement {
        Judgement::runs()
    }
}

#[cfg(test)]
mod tests;
