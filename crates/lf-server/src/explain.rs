//! What becomes of a model's calls of a tool, and why, before anybody makes one: what `lf config why` and `lf config plan`
//! tell.

use std::sync::Arc;

use lf_core::policy::{Case, Finding, Judgement, Label, Labels, Rule, deadline};
use lf_core::tool::{Approval, Hints, Tool};
use lf_core::{Model, Project, ToolRef};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::rules::{Said, outlook_of};

/// One thing that is looked at, in the order in which a call passes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    pub step: &'static str,
    pub says: String,
    /// Where in the file, for a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// `allow`, `ask` or `deny`, where it decides something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<&'static str>,
}

/// A tool as far as it is known.
#[derive(Debug, Clone)]
pub struct Known {
    pub tool: ToolRef,
    /// `None` where its server could not be asked: then it is what the protocol says of a tool that says nothing.
    pub listed: Option<Tool>,
}

/// What is certain of calls of a tool, whatever their arguments and whatever came before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    pub verdict: Approval,
    /// Why, where it does not simply run.
    pub why: String,
    /// Rules that may make it stricter, by what a call carries or follows.
    pub depends: Vec<String>,
}

/// As rules write it.
pub fn word(verdict: Approval) -> &'static str {
    match verdict {
        Approval::Auto => "allow",
        Approval::Ask => "ask",
        Approval::Deny => "deny",
    }
}

impl Known {
    fn hints(&self) -> Hints {
        self.listed.as_ref().map(|tool| tool.hints).unwrap_or_default()
    }

    fn said(&self) -> Said {
        self.listed.as_ref().and_then(|tool| tool.print.clone()).map_or(Said::Unknown, Said::This)
    }

    fn labels(&self, project: &Project) -> Labels {
        let own = self.listed.as_ref().map(|tool| tool.labels).unwrap_or_default();
        own.and(project.policy.labels_of(&self.tool))
    }

    fn case<'a>(&'a self, project: &Project, model: &'a str, arguments: &'a Map<String, Value>) -> Case<'a> {
        Case {
            model: Some(model),
            key: None,
            tool: &self.tool,
            hints: self.hints(),
            labels: self.labels(project),
            arguments,
            earlier: &[],
            seen: Labels::default(),
        }
    }

    /// What is certain of a model's calls of it.
    pub fn outlook(&self, project: &Arc<Project>, model: &str) -> Outlook {
        let empty = Map::new();
        let case = self.case(project, model, &empty);
        let without: Vec<Rule> =
            project.policy.rules.iter().map(|rule| Rule { when: None, ..rule.clone() }).collect();
        let mut depends = Vec::new();
        let mut certain = project.policy.clone();
        certain.rules.clear();
        for (rule, without) in project.policy.rules.iter().zip(without) {
            let Some(when) = &rule.when else {
                certain.rules.push(rule.clone());
                continue;
            };
            let alone = lf_core::policy::Policy { rules: vec![without], ..Default::default() };
            if alone.findings(&case, deadline()) == [Finding::Speaks] {
                let (verdict, name, text) = (word(rule.verdict), &rule.name, when.text());
                depends.push(format!("{verdict} where `{text}` (rule {name}, {})", rule.place));
            }
        }
        let flow = project.policy.flow;
        if case.labels.has(Label::Egress) && flow != Approval::Auto {
            depends.push(format!("{} once private and untrusted results were seen", word(flow)));
        }
        let Judgement { verdict, why } =
            outlook_of(project, &certain, (self.tool.clone(), self.said()), &case);
        Outlook { verdict, why, depends }
    }

    /// Step by step, what becomes of one call with these arguments, at the beginning of a conversation. Without arguments,
    /// conditions are told and not decided.
    pub fn explain(
        &self,
        project: &Project,
        model: &Model,
        arguments: Option<&Map<String, Value>>,
    ) -> Vec<Step> {
        let mut steps = vec![self.access(model)];
        let ToolRef { server, name } = &self.tool;
        let Some(Ok(found)) = project.servers.get(&**server) else {
            let why = match project.servers.get(&**server) {
                Some(Err(disabled)) => format!("MCP server `{server}` cannot be used: {}", disabled.reason),
                _ => format!("MCP server `{server}` is not in `mcp.servers`"),
            };
            steps.push(decided("server", why, Approval::Deny));
            return steps;
        };
        steps.push(match found.tools.permits(name) {
            true => told("filter", format!("`tools` of MCP server `{server}` offers `{name}`")),
            false => decided(
                "filter",
                format!("`tools` of MCP server `{server}` withholds `{name}`"),
                Approval::Deny,
            ),
        });
        steps.extend(self.lock(project));
        steps.push(self.description());
        let empty = Map::new();
        let case = self.case(project, &model.name, arguments.unwrap_or(&empty));
        for (rule, finding) in project.policy.rules.iter().zip(project.policy.findings(&case, deadline())) {
            steps.push(of_rule(rule, &finding, arguments.is_some()));
        }
        let speaks = steps.iter().any(|step| step.step == "rule" && step.verdict.is_some());
        if !speaks {
            let otherwise = project.policy.otherwise();
            let says = format!("no rule speaks of it: `policy.default` is {}", word(otherwise.verdict));
            steps.push(decided("default", says, otherwise.verdict));
        }
        steps.push(flow(project, case.labels));
        let approval = found.tools.approval(name, case.hints);
        let says = format!("`approval` of MCP server `{server}` is {} for it", approval.name());
        steps.push(decided("approval", says, approval));
        steps
    }

    fn access(&self, model: &Model) -> Step {
        let server = &self.tool.server;
        match model.servers.iter().any(|known| **known == **server) {
            true => told("access", format!("model `{}` may use MCP server `{server}`", model.name)),
            false => {
                let list =
                    if model.servers.is_empty() { "none".to_owned() } else { model.servers.join(", ") };
                let says = format!(
                    "model `{}` may not use MCP server `{server}`: `mcp_servers` leaves it {list}",
                    model.name
                );
                decided("access", says, Approval::Deny)
            }
        }
    }

    fn lock(&self, project: &Project) -> Option<Step> {
        let pins = &project.pins;
        let tool = self.listed.as_ref();
        if !pins.is_locked() {
            return None;
        }
        let held =
            tool.map_or_else(|| pins.cannot_compare(&self.tool.server), |tool| pins.holds_back_listed(tool));
        Some(match held {
            Some(why) => decided("lock", why, Approval::Deny),
            None => told("lock", format!("it is as in {}", pins.file)),
        })
    }

    fn description(&self) -> Step {
        let hints = self.hints();
        let is = |is: bool, word: &'static str| is.then_some(word);
        let words: Vec<&str> = [
            is(hints.read_only, "reads only"),
            is(hints.destructive, "may destroy"),
            is(hints.idempotent, "is idempotent"),
            is(hints.open_world, "reaches beyond its own domain"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let words =
            if words.is_empty() { "changes only its own domain".to_owned() } else { words.join(", ") };
        let says = match self.listed {
            Some(_) => format!("by its server's annotations it {words}"),
            None => format!("its server did not list it; a tool that says nothing of itself {words}"),
        };
        told("annotations", says)
    }
}

/// What the steps come to.
pub fn verdict(steps: &[Step]) -> &'static str {
    let verdicts: Vec<&str> = steps.iter().filter_map(|step| step.verdict).collect();
    ["deny", "ask"].into_iter().find(|word| verdicts.contains(word)).unwrap_or("allow")
}

fn told(step: &'static str, says: String) -> Step {
    Step { step, says, place: None, verdict: None }
}

fn decided(step: &'static str, says: String, verdict: Approval) -> Step {
    Step { verdict: Some(word(verdict)), ..told(step, says) }
}

fn of_rule(rule: &Rule, finding: &Finding, has_arguments: bool) -> Step {
    let step = match (finding, &rule.when) {
        (Finding::Silent(key), _) if *key != "when" => {
            told("rule", format!("rule {} does not speak of it (`{key}`)", rule.name))
        }
        (_, Some(when)) if !has_arguments => {
            let verdict = word(rule.verdict);
            told(
                "rule",
                format!("rule {} says {verdict} where `{}`; `--args` would tell", rule.name, when.text()),
            )
        }
        (Finding::Silent(_), _) => {
            told("rule", format!("rule {} does not speak of it (`when` is false)", rule.name))
        }
        (Finding::Speaks | Finding::Undecided(_), _) => match rule.says(finding) {
            Some(judged) if !judged.why.is_empty() => decided("rule", judged.why, judged.verdict),
            Some(judged) => decided("rule", format!("rule {} allows it", rule.name), judged.verdict),
            None => told("rule", format!("rule {} could not be decided, and so allows nothing", rule.name)),
        },
    };
    Step { place: Some(rule.place.clone()), ..step }
}

fn flow(project: &Project, labels: Labels) -> Step {
    let words: Vec<&str> = labels.iter().map(Label::name).collect();
    let flow = project.policy.flow;
    let says = match (words.is_empty(), labels.has(Label::Egress) && flow != Approval::Auto) {
        (true, _) => "it has no labels".to_owned(),
        (false, false) => format!("labels: {}", words.join(", ")),
        (false, true) => format!(
            "labels: {}; {} once the conversation has seen private and untrusted results",
            words.join(", "),
            word(flow)
        ),
    };
    told("labels", says)
}
