//! Whether a call of a tool may run, for whoever asks: the one answer for turns, for clients of `/mcp`, and for `…/mcp/execute`. It is given
//! twice for a call of a turn: before a person is asked, and right before the call runs, by the configuration of then.

mod held;
mod record;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lf_core::pins::Print;
use lf_core::policy::{Case, Judgement, Labels, Policy, deadline};
use lf_core::results::SOURCE;
use lf_core::tool::{Approval, Hints};
use lf_core::turn::{Before, Judged, Standing};
use lf_core::{Project, ToolRef, ToolSource};
use lf_mcp::{ProjectTools, SessionPool};
use serde_json::{Map, Value};

use crate::authority::Authority;

pub(crate) use held::{HeldBack, Withheld};
pub(crate) use record::{Became, NO_TOOL, Told, Underway, record_told};

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
    /// What its server says of it, to be held against the lock.
    pub said: Said,
    /// A person has said yes to this call.
    pub is_approved: bool,
    /// A person has said yes to this tool for all of the conversation.
    pub is_trusted: bool,
}

/// What is known of a tool's definition.
#[derive(Debug, Clone, Default)]
pub(crate) enum Said {
    /// Nobody has looked yet; it is looked at before the call runs.
    #[default]
    Unknown,
    /// Its server does not list it, or cannot be asked.
    Nothing,
    This(Arc<Print>),
}

impl Facts {
    /// Of a client's own call: nothing but what the server lists.
    pub(crate) fn alone(tool: ToolRef, hints: Hints, labels: Labels) -> Self {
        let (earlier, seen) = (Before::default(), Labels::default());
        let said = Said::Unknown;
        Self { tool, hints, labels, earlier, seen, said, is_approved: false, is_trusted: false }
    }

    /// The same when a person has said yes.
    pub(crate) fn approved(self) -> Self {
        Self { is_approved: true, ..self }
    }

    /// The same of the tool as it is listed there. One that is not listed is as dangerous as one that says nothing of itself.
    pub(crate) async fn listed_by(self, tools: &dyn ToolSource) -> Self {
        let catalogue = tools.list(&[self.tool.server.to_string()]).await;
        let held = catalogue.held.iter().map(|held| &held.tool);
        let listed = catalogue.tools.iter().chain(held).find(|listed| listed.id == self.tool);
        let (hints, labels) = listed.map(|listed| (listed.hints, listed.labels)).unwrap_or_default();
        let said = listed.and_then(|listed| listed.print.clone()).map_or(Said::Nothing, Said::This);
        Self { hints, labels, said, ..self }
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
            said: tool.print.clone().map_or(Said::Unknown, Said::This),
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

    /// Whether tools of this server are held against a lock, so that what they are now has to be known.
    fn is_locked(&self, _server: &str) -> bool {
        false
    }

    /// What the configuration labels a tool with now.
    fn labels_of(&self, _tool: &ToolRef) -> Labels {
        Labels::default()
    }

    /// Puts on record what became of a call.
    fn record(&self, _told: &Told<'_>, _became: &Became<'_>) {}
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
        if verdict == Approval::Deny {
            check.record(&Told::from(&asked), &Became::Denied(&why));
        }
        (verdict != Approval::Auto).then_some(Judged { call, verdict, why })
    });
    judged.collect()
}

/// The configuration that counts now: the active generation of a project, or nothing once the project is gone.
pub(crate) type Active = Arc<dyn Fn() -> Option<Arc<Project>> + Send + Sync>;

/// What a turn, or a call that waits for its server, began with.
#[derive(Clone)]
pub(crate) struct Began {
    pub project: Arc<Project>,
    /// The model that was asked for, where one was. What it may not use any more, none that answers in its place may, either.
    pub model: Option<String>,
    pub turn: Option<String>,
    pub pool: SessionPool,
}

/// What whoever asks reaches, and the rules of a project's file, both as they are at each look: whose servers a model may
/// use, which tools they offer, the policy, and `approval`.
#[derive(Clone)]
pub(crate) struct Rules {
    project: Active,
    asks: Authority,
    /// They are asked about the daemon's own tools, which are no server's.
    own: bool,
    began: Option<Began>,
}

impl Rules {
    /// For a client's own calls.
    pub(crate) fn of(project: Active, asks: Authority) -> Self {
        Self { project, asks, own: false, began: None }
    }

    /// For the calls of a turn, and of whoever calls one tool: where a server changes meanwhile, they run there.
    pub(crate) fn of_turn(project: Active, asks: Authority, began: Began) -> Self {
        Self { began: Some(began), ..Self::of(project, asks) }
    }

    /// For calls of the daemon's own tools.
    pub(crate) fn of_own_tools(project: Active, asks: Authority) -> Self {
        Self { own: true, ..Self::of(project, asks) }
    }

    /// Keys name servers and their tools; what comes with the program has other bounds.
    fn reached(&self, tool: &ToolRef) -> Result<(), String> {
        match self.own || tool.server.starts_with(BUILT_IN) {
            true => self.asks.now().map(drop),
            false => self.asks.reaches(tool),
        }
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
        let held = match &asked.facts.said {
            Said::This(print) => project.pins.holds_back(&asked.facts.tool, print),
            Said::Nothing => project.pins.cannot_compare(server),
            Said::Unknown => None,
        };
        if let Some(why) = held {
            return no(why);
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
        if let Err(why) = self.reached(&asked.facts.tool) {
            let ToolRef { server, name } = &asked.facts.tool;
            let asks = self.asks.principal.name.as_str();
            tracing::warn!(%server, tool = %name, asks, reason = why, "a tool call was denied");
            return no(why);
        }
        // it shows more of what a call returned that was permitted, and what that brought in counts already
        if &*asked.facts.tool.server == SOURCE {
            return Judgement::runs();
        }
        let Some(project) = (self.project)() else {
            return no("its project is not there any more".to_owned());
        };
        let first = self.began.as_ref().and_then(|began| began.model.as_deref());
        let listed = if self.own { Judgement::runs() } else { Self::listed(&project, asked, first) };
        if listed.verdict == Approval::Deny {
            return listed;
        }
        let Facts { tool, hints, labels, earlier, seen, .. } = asked.facts;
        let (earlier, seen) = project.policy.relabelled(earlier, *seen);
        let case = Case {
            model: asked.model,
            key: self.asks.key(),
            tool,
            hints: *hints,
            labels: labels.and(project.policy.labels_of(tool)),
            arguments: asked.arguments,
            earlier: &earlier,
            seen,
        };
        // the policy first: of two that ask, it is the one with a reason
        project.policy.judge(&case, end).and(listed)
    }

    fn labels_of(&self, tool: &ToolRef) -> Labels {
        (self.project)().map(|project| project.policy.labels_of(tool)).unwrap_or_default()
    }

    fn record(&self, told: &Told<'_>, became: &Became<'_>) {
        // it shows more of what a call returned that is on record
        if told.server != Some(SOURCE) {
            self.put_on_record(told, became);
        }
    }

    fn moved(&self, server: &str) -> Option<ProjectTools> {
        let Began { project: then, pool, .. } = self.began.as_ref()?;
        let project = (self.project)()?;
        let now = project.servers.get(server)?.as_ref().ok()?;
        let has_changed = then.servers.get(server).is_none_or(|then| then.as_ref().ok() != Some(now));
        has_changed.then(|| pool.tools([(server.to_owned(), Ok(now.clone()))]))
    }

    fn is_locked(&self, server: &str) -> bool {
        !self.own
            && !server.starts_with(BUILT_IN)
            && (self.project)().is_some_and(|project| project.pins.is_locked())
    }
}

/// What the lists of a file and this part of its policy say of a call, whatever a person says.
pub(crate) fn outlook_of(
    project: &Project,
    policy: &Policy,
    (tool, said): (ToolRef, Said),
    case: &Case<'_>,
) -> Judgement {
    let facts = Facts { said, ..Facts::alone(tool, case.hints, case.labels) };
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
pub(crate) mod tests;
