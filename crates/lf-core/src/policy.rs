//! The rules of a project: which calls run, which wait for a person, and which never run. Pure: what a call is comes in as
//! a [`Case`], and a [`Judgement`] comes out.
//!
//! The strictest rule that speaks of a call counts, wherever it stands; where none does, the default. A rule can make a
//! call stricter than its server's `approval` says, and never milder.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use globset::GlobMatcher;
use indexmap::IndexMap;
use serde_json::{Map, Value};

use crate::project::Hint;
use crate::tool::{Approval, Hints, ToolRef};

mod condition;
mod labels;

pub use condition::{Condition, MAX_TEXT, Mistake, TIME};
pub use labels::{Label, Labels};

/// Names that conditions may use.
pub const VARIABLES: [&str; 8] = condition::VARIABLES;

/// The server that rules know the daemon's own tools by.
pub const OWN: &str = "lf";

/// `policy:` and the labels of a file.
#[derive(Debug, Clone)]
pub struct Policy {
    pub rules: Vec<Rule>,
    /// What becomes of calls that no rule speaks of.
    pub default: Approval,
    /// What becomes of a call that can take something out, once private and untrusted results were seen.
    pub flow: Approval,
    /// By server, then by glob of the server's own tool names; all that match count.
    pub labels: IndexMap<String, Vec<(GlobMatcher, Labels)>>,
}

impl Default for Policy {
    fn default() -> Self {
        Self { rules: Vec::new(), default: Approval::Auto, flow: Approval::Ask, labels: IndexMap::new() }
    }
}

/// One rule. What it does not name, it does not ask for; all that it names must be so.
#[derive(Debug, Clone)]
pub struct Rule {
    /// How people and models are told of it: its name, or its number.
    pub name: String,
    /// Where it stands, such as `llamafarm.yaml:12`.
    pub place: String,
    pub models: Option<Vec<GlobMatcher>>,
    pub keys: Option<Vec<GlobMatcher>>,
    pub servers: Option<Vec<GlobMatcher>>,
    /// Globs of servers' own tool names.
    pub tools: Option<Vec<GlobMatcher>>,
    pub annotations: Vec<(Hint, bool)>,
    /// Those that the tool must have.
    pub labels: Labels,
    pub when: Option<Condition>,
    pub verdict: Approval,
    /// For the model and the person to read.
    pub reason: Option<String>,
}

/// One call, and what came before it.
#[derive(Debug, Clone)]
pub struct Case<'a> {
    /// The model that calls, by its name in the file; `None` for a client's own call.
    pub model: Option<&'a str>,
    /// The name of who asks, where that is known.
    pub key: Option<&'a str>,
    pub tool: &'a ToolRef,
    pub hints: Hints,
    pub labels: Labels,
    pub arguments: &'a Map<String, Value>,
    /// Calls of the same turn, in the order in which the model made them.
    pub earlier: &'a [Earlier],
    /// Of all results that this conversation has seen.
    pub seen: Labels,
}

/// A call before this one.
#[derive(Debug, Clone)]
pub struct Earlier {
    pub tool: ToolRef,
    pub labels: Labels,
    pub arguments: Arc<Map<String, Value>>,
    /// The model had its result when it made this call.
    pub is_done: bool,
    pub has_failed: bool,
    /// The conversation has nothing from it, or not yet.
    pub is_silent: bool,
}

/// What becomes of a call, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Approval,
    /// For the model or the person to read; empty where it runs.
    pub why: String,
}

/// What one rule says of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It does not speak of this call: which of its keys says so.
    Silent(&'static str),
    Speaks,
    /// Its condition could not be decided, for this reason.
    Undecided(String),
}

impl Judgement {
    pub fn runs() -> Self {
        Self { verdict: Approval::Auto, why: String::new() }
    }

    /// The stricter of two; of equals, this one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if other.verdict > self.verdict { other } else { self }
    }
}

impl Policy {
    /// Whether it can say anything at all.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.default == Approval::Auto && self.labels.is_empty()
    }

    pub fn labels_of(&self, tool: &ToolRef) -> Labels {
        let rules = self.labels.get(&*tool.server).map(Vec::as_slice).unwrap_or_default();
        let matching = rules.iter().filter(|(glob, _)| glob.is_match(&*tool.name));
        matching.fold(Labels::default(), |all, (_, labels)| all.and(*labels))
    }

    /// What came before a call, with the labels that tools have by now: they may have been given some since the turn began.
    pub fn relabelled<'a>(&self, earlier: &'a [Earlier], seen: Labels) -> (Cow<'a, [Earlier]>, Labels) {
        if self.labels.is_empty() {
            return (Cow::Borrowed(earlier), seen);
        }
        let labels = earlier.iter().map(|call| call.labels.and(self.labels_of(&call.tool)));
        let labels: Vec<Labels> = labels.collect();
        let calls = || earlier.iter().zip(&labels);
        let heard = calls().filter(|(call, _)| !call.is_silent);
        let seen = heard.fold(seen, |seen, (_, labels)| seen.and(*labels));
        let earlier = match calls().all(|(call, labels)| call.labels == *labels) {
            true => Cow::Borrowed(earlier),
            false => calls().map(|(call, labels)| Earlier { labels: *labels, ..call.clone() }).collect(),
        };
        (earlier, seen)
    }

    /// What becomes of a call. `end` bounds the time for its conditions; one that is not decided by then is undecided.
    pub fn judge(&self, case: &Case<'_>, end: Instant) -> Judgement {
        let findings = self.findings(case, end);
        let rules = self.rules.iter().zip(findings).filter_map(|(rule, finding)| rule.says(&finding));
        let strictest = rules.fold(None, |all: Option<Judgement>, said| match all {
            Some(all) => Some(all.and(said)),
            None => Some(said),
        });
        strictest.unwrap_or_else(|| self.otherwise()).and(self.flow(case))
    }

    /// What each rule says of a call, in the order of the file.
    pub fn findings(&self, case: &Case<'_>, end: Instant) -> Vec<Finding> {
        self.rules.iter().map(|rule| rule.finding(case, end)).collect()
    }

    /// What becomes of a call that no rule speaks of.
    pub fn otherwise(&self) -> Judgement {
        let why = match self.default {
            Approval::Auto => return Judgement::runs(),
            Approval::Ask => "no rule of the policy allows it without a person's yes",
            Approval::Deny => "no rule of the policy allows it",
        };
        Judgement { verdict: self.default, why: why.to_owned() }
    }

    /// What private results and words of strangers together lead to.
    pub fn flow(&self, case: &Case<'_>) -> Judgement {
        let mixed = case.seen.has(Label::Private) && case.seen.has(Label::Untrusted);
        if self.flow == Approval::Auto || !mixed || !case.labels.has(Label::Egress) {
            return Judgement::runs();
        }
        let why = "this conversation has seen private results and untrusted ones, and this tool can take something out \
                   (labels `private`, `untrusted`, `egress`)";
        Judgement { verdict: self.flow, why: why.to_owned() }
    }
}

impl Rule {
    /// A rule that speaks of every call.
    pub fn new(name: impl Into<String>, verdict: Approval) -> Self {
        Self {
            name: name.into(),
            place: String::new(),
            models: None,
            keys: None,
            servers: None,
            tools: None,
            annotations: Vec::new(),
            labels: Labels::default(),
            when: None,
            verdict,
            reason: None,
        }
    }

    fn finding(&self, case: &Case<'_>, end: Instant) -> Finding {
        let fits = |globs: &Option<Vec<GlobMatcher>>, name: Option<&str>| match (globs, name) {
            (None, _) => true,
            (Some(globs), Some(name)) => globs.iter().any(|glob| glob.is_match(name)),
            (Some(_), None) => false,
        };
        let selectors = [
            ("models", fits(&self.models, case.model)),
            ("keys", fits(&self.keys, case.key)),
            ("servers", fits(&self.servers, Some(&case.tool.server))),
            ("tools", fits(&self.tools, Some(&case.tool.name))),
            ("annotations", self.annotations.iter().all(|(hint, is)| hint.is_true_of(case.hints) == *is)),
            ("labels", self.labels.iter().all(|label| case.labels.has(label))),
        ];
        if let Some((key, _)) = selectors.into_iter().find(|(_, fits)| !fits) {
            return Finding::Silent(key);
        }
        match self.when.as_ref().map(|when| when.holds(case, end)) {
            None | Some(Ok(true)) => Finding::Speaks,
            Some(Ok(false)) => Finding::Silent("when"),
            Some(Err(error)) => Finding::Undecided(error),
        }
    }

    /// A rule that cannot be decided says what it would say at its strictest; one that allows then allows nothing.
    pub fn says(&self, finding: &Finding) -> Option<Judgement> {
        let undecided = match finding {
            Finding::Silent(_) => return None,
            Finding::Undecided(_) if self.verdict == Approval::Auto => return None,
            Finding::Undecided(error) => Some(error),
            Finding::Speaks => None,
        };
        if self.verdict == Approval::Auto {
            return Some(Judgement::runs());
        }
        let word = if self.verdict == Approval::Deny { "forbids it" } else { "asks for a person's yes" };
        let place = if self.place.is_empty() { String::new() } else { format!(" ({})", self.place) };
        let mut why = format!("rule {}{place} {word}", self.name);
        if let Some(reason) = &self.reason {
            why = format!("{why}: {reason}");
        }
        if let Some(error) = undecided {
            why = format!("{why} (its condition could not be decided, which counts as true: {error})");
        }
        Some(Judgement { verdict: self.verdict, why })
    }
}

/// When the conditions of a call that is judged now must be decided.
pub fn deadline() -> Instant {
    Instant::now() + TIME
}

#[cfg(test)]
mod tests;
