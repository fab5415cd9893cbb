//! Calls of a round that a person has to approve before anything of the round runs.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::event::ChatEvent;
use crate::message::{AssistantMessage, Content, Message, ToolCall, ToolResult};
use crate::model::{FinishReason, ModelError};
use crate::policy::Labels;
use crate::principal::Principal;
use crate::tool::{Approval, ToolRef};
use crate::tool_set::Target;

use super::judging::{Judge, seen_in};
use super::plan::Planned;
use super::{Done, RawCall, Round, RunTools, Spent, Step, Turn, plan};

/// What a person is asked about one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// Unguessable, like the turn's.
    pub id: String,
    pub call: ToolCall,
    pub tool: ToolRef,
    /// Why a rule wants it asked; `None` where the tool is always asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// `None` while nobody has said anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// What was decided, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub verdict: Verdict,
    /// Who or what decided, in words: `the person at the terminal`, `key ci for Ada`, …
    pub by: String,
    /// For the model to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// [`Principal::id`] of who decided, where the decision came in over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

impl Decision {
    /// The same as one that came in from this principal. What it says of itself stands behind its name and never in the
    /// place of it.
    #[must_use]
    pub fn of(self, who: &Principal) -> Self {
        let name = match who.is_key() {
            true => format!("key {}", who.name),
            false => who.name.clone(),
        };
        let by = match self.by.is_empty() {
            true => name,
            false => format!("{name} for {}", crate::visible::line(&self.by)),
        };
        Self { by, who: Some(who.id.clone()).filter(|id| !id.is_empty()), ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// This call runs.
    Approved,
    /// This call runs, and every later one of the same tool in this conversation.
    Always,
    Denied,
    /// Nobody said anything in time, which is a no.
    Expired,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Always => "always",
            Self::Denied => "denied",
            Self::Expired => "expired",
        }
    }

    pub fn is_yes(self) -> bool {
        matches!(self, Self::Approved | Self::Always)
    }
}

/// The calls that a turn ended with because nobody had approved them. A later turn of the conversation may begin with
/// them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// All calls of the round that this program runs.
    pub calls: Vec<ToolCall>,
    /// About some of these calls.
    pub asks: Vec<Ask>,
    /// What results brought in before these calls were made: a client that keeps the conversation itself does not tell it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub seen: Labels,
}

/// A person has to say what becomes of some calls of the round; until then none of it runs.
#[derive(Debug)]
pub struct AskPerson {
    run: RunTools,
    asks: Vec<Ask>,
}

impl AskPerson {
    /// Every ask of the round, decided ones too.
    pub fn asks(&self) -> &[Ask] {
        &self.asks
    }

    /// Those that nobody has decided yet.
    pub fn open(&self) -> impl Iterator<Item = &Ask> {
        self.asks.iter().filter(|ask| ask.decision.is_none())
    }

    pub(super) fn run(&self) -> &RunTools {
        &self.run
    }

    pub(super) fn spent(&self) -> Spent {
        self.run.turn.spent
    }

    /// Takes what was decided about one ask. One that is decided stays so.
    pub(super) fn decide(&mut self, id: &str, decision: &Decision, events: &mut Vec<ChatEvent>) {
        let Some(at) = self.asks.iter().position(|ask| ask.id == id && ask.decision.is_none()) else {
            return;
        };
        let tool = self.asks[at].tool.clone();
        // a rule looks at each call anew: a yes to one is no yes to the next
        let always = decision.verdict == Verdict::Always && self.asks[at].why.is_none();
        if always {
            self.run.turn.always.push(tool.clone());
        }
        for ask in &mut self.asks {
            let meant = ask.id == id || (always && ask.tool == tool && ask.why.is_none());
            if meant && ask.decision.is_none() {
                ask.decision = Some(decision.clone());
                events.push(ChatEvent::ApprovalDecided(Box::new(ask.clone())));
            }
        }
    }

    /// The round as it runs once everything is decided.
    #[expect(clippy::result_large_err, reason = "a step is moved by value, whichever it becomes")]
    pub(super) fn decided(self) -> Result<RunTools, Self> {
        if self.open().next().is_some() {
            return Err(self);
        }
        let Self { mut run, asks } = self;
        for ask in asks {
            let Some(at) = run.planned.iter().position(|planned| planned.call.id == ask.call.id) else {
                continue;
            };
            match ask.decision {
                Some(no) if !no.verdict.is_yes() => run.answer_at(at, &refusal(&no)),
                _ => run.approved[at] = true,
            }
        }
        Ok(run)
    }

    /// Nobody is here who could say: the turn ends with `words` for the person, and nothing of the round was run. What
    /// waits is kept for the next turn of the conversation.
    pub(super) fn end(self, words: String, events: &mut Vec<ChatEvent>) -> Done {
        let Self { run, asks } = self;
        let calls: Vec<ToolCall> = run
            .calls()
            .iter()
            .filter(|planned| matches!(planned.plan, Planned::Run(_)))
            .map(|planned| planned.call.clone())
            .collect();
        run.answered(events);
        let mut turn = run.leave([NOT_YET; 2], events);
        let seen = turn.seen.and(seen_in(&turn.request.messages));
        if !words.is_empty() {
            let apart = if turn.apart { "\n\n" } else { "" };
            events.push(ChatEvent::Text(format!("{apart}{words}")));
            let content = Content::Text(words);
            turn.request
                .messages
                .push(Message::Assistant(AssistantMessage { content, ..Default::default() }));
        }
        let (reason, rounds) = (FinishReason::Stop, turn.rounds + 1);
        events.push(ChatEvent::Finished { reason, usage: turn.usage, rounds, stop_sequence: None });
        Done { waiting: Some(Waiting { calls, asks, seen }), ..turn.done() }
    }

    /// The turn cannot go on; nothing of the round was run.
    pub(super) fn fail(self, error: ModelError, events: &mut Vec<ChatEvent>) -> Done {
        self.run.answered(events);
        self.run.fail(error, events)
    }

    /// The turn is stopped; nothing of the round was run.
    pub(super) fn stop(self, events: &mut Vec<ChatEvent>) -> Done {
        self.run.answered(events);
        self.run.stop(events)
    }
}

const NOT_YET: &str =
    "this call was not run yet: a person has to approve it, or another call made with it, first";

/// What is said instead of a result, to a model or to whoever called.
pub fn refusal(decision: &Decision) -> String {
    let mut text = match decision.verdict {
        Verdict::Expired => "nobody approved this call in time, so it was not run".to_owned(),
        _ => format!("this call was denied by {} and was not run", decision.by),
    };
    if let Some(reason) = &decision.reason {
        text.push_str(": ");
        text.push_str(reason);
    }
    text.push_str(". Do not call it again with the same arguments.");
    text
}

/// What is known of calls that an earlier turn ended with.
#[derive(Debug)]
pub(super) struct Known {
    /// The ids that the calls of the round had then, in their order.
    ids: Vec<String>,
    asks: Vec<Ask>,
}

impl Known {
    fn of(&self, index: usize, tool: &ToolRef) -> Option<&Ask> {
        let id = self.ids.get(index)?;
        self.asks.iter().find(|ask| ask.call.id == *id && ask.tool == *tool)
    }
}

impl RunTools {
    /// The next step: what the rules say comes first, where there are any.
    pub(super) fn held(self, known: Option<Known>, events: &mut Vec<ChatEvent>) -> Step {
        let runs = self.planned.iter().any(|planned| matches!(planned.plan, Planned::Run(_)));
        match self.turn.judged && runs {
            true => Step::Judge(Judge { run: self, known }),
            false => self.asked(&HashMap::new(), known.as_ref(), events),
        }
    }

    /// The next step: what has to be asked is asked before anything runs. `why`: which calls a rule wants asked.
    pub(super) fn asked(
        mut self,
        why: &HashMap<usize, String>,
        known: Option<&Known>,
        events: &mut Vec<ChatEvent>,
    ) -> Step {
        let mut asks = Vec::new();
        for (index, planned) in self.planned.iter().enumerate() {
            let Planned::Run(tool) = &planned.plan else { continue };
            // a rule may speak of a call for what came before it, which a new turn does not see any more: what was asked and
            // never decided is asked still
            let open = known.and_then(|known| known.of(index, tool)).filter(|ask| ask.decision.is_none());
            let told = why.get(&index);
            // without words where its server's entry has it asked by now
            let words = told.filter(|why| !why.is_empty());
            let why = words.or(open.and_then(|ask| ask.why.as_ref()));
            if told.is_some() || why.is_some() || self.turn.must_ask(&planned.call.name, tool) {
                asks.push((index, planned.call.clone(), tool.clone(), why.cloned()));
            }
        }
        if let Some(known) = known {
            self.refuse(known);
        }
        if asks.is_empty() {
            return Step::RunTools(self);
        }
        let mut decisions = Vec::new();
        let mut needed = Vec::with_capacity(asks.len());
        for (index, call, tool, why) in asks {
            let minted = self.turn.mint_approval();
            // asks of an earlier turn are told under the ids that the person already has
            let before = known.and_then(|known| known.of(index, &tool));
            let id = before.map_or(minted, |before| before.id.clone());
            let ask = Ask { id, call, tool, why, decision: None };
            match before.and_then(|before| before.decision.clone()) {
                Some(decision) => decisions.push((ask.id.clone(), decision)),
                None => events.push(ChatEvent::ApprovalNeeded(Box::new(ask.clone()))),
            }
            needed.push(ask);
        }
        let mut asking = AskPerson { run: self, asks: needed };
        // what was said of one call alone stands against what was said of all calls of its tool
        decisions.sort_by_key(|(_, decision)| decision.verdict == Verdict::Always);
        for (id, decision) in decisions {
            asking.decide(&id, &decision, events);
        }
        Step::AskPerson(asking)
    }

    /// What was denied in an earlier turn stays so: also when the tool does not ask any more.
    fn refuse(&mut self, known: &Known) {
        let denied = self.planned.iter().enumerate().filter_map(|(index, planned)| {
            let Planned::Run(tool) = &planned.plan else { return None };
            let decision = known.of(index, tool)?.decision.as_ref()?;
            (!decision.verdict.is_yes()).then(|| (index, refusal(decision)))
        });
        for (index, why) in denied.collect::<Vec<_>>() {
            self.answer_at(index, &why);
        }
    }

    /// Answers a call without running it.
    pub(super) fn answer_at(&mut self, at: usize, why: &str) {
        let Some(planned) = self.planned.get_mut(at) else { return };
        let result = ToolResult::error(&planned.call, why);
        self.results[at] = Some(result.clone());
        planned.plan = Planned::Answered(result);
    }
}

impl Turn {
    fn must_ask(&self, name: &str, tool: &ToolRef) -> bool {
        let asks = match self.tools.resolve(name, None) {
            Ok((_, Target::Source(found))) => found.approval == Approval::Ask,
            // what cannot be found again is not trusted
            _ => true,
        };
        asks && !self.always.contains(tool)
    }

    fn mint_approval(&mut self) -> String {
        self.minted += 1;
        format!("apr_{}{:02}", self.id.get(..24).unwrap_or(&self.id), self.minted)
    }

    /// Begins a turn with calls that an earlier one ended with, as if the model had made them now. What was decided
    /// meanwhile counts; what was not is asked under the same id.
    pub(super) fn begin_with(mut self: Box<Self>, waiting: Waiting, events: &mut Vec<ChatEvent>) -> Step {
        let Waiting { calls, asks, seen } = waiting;
        self.seen = self.seen.and(seen);
        let mut ids = Vec::with_capacity(calls.len());
        let raw = calls.into_iter().map(|mut call| {
            ids.push(std::mem::take(&mut call.id));
            call.rest.clear();
            RawCall { call, server: None }
        });
        let raw: Vec<RawCall> = raw.collect();
        plan::plan_known(self, Round::default(), raw, Some(Known { ids, asks }), events)
    }
}

#[cfg(test)]
mod tests;
