//! Limits of a turn: which of them ends it, and how its model is told. It is then asked once more, without tools, for an
//! answer from what is known so far.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::ChatEvent;
use crate::message::{Message, ToolResult};
use crate::model::{BYTES_PER_TOKEN, Usage};

use super::plan::Planned;
use super::run::say;
use super::{AskModel, Course, Round, RunTools, Step, Taken, Turn, size_of};

/// The tokens that the last answer may have where tokens or money are used up, and the request wants more.
const FINAL_TOKENS: u64 = 4096;
/// Parameters by which the model thinks within its tokens: a bound could leave it without a word.
const THINKING: [&str; 3] = ["reasoning_effort", "reasoning", "thinking"];

/// A limit that a turn has reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Rounds of tool calls.
    Rounds(u32),
    /// The time for the whole turn.
    Time(Duration),
    /// Tokens of all its requests and answers.
    Tokens { limit: u64, used: u64 },
    /// What they cost, in US dollars.
    Cost { limit: f64, used: f64 },
    /// A call was made again and again although it was answered that it would not be run.
    RepeatedCalls(u32),
    /// Tool calls, as the client wanted it.
    ToolCalls,
}

impl Limit {
    /// For programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Rounds(_) => "rounds",
            Self::Time(_) => "time",
            Self::Tokens { .. } => "tokens",
            Self::Cost { .. } => "cost",
            Self::RepeatedCalls(_) => "repeated_calls",
            Self::ToolCalls => "tool_calls",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rounds(rounds) => write!(out, "the limit of {rounds} rounds of tool calls"),
            Self::Time(time) => write!(out, "the time limit of {time:?}"),
            Self::Tokens { limit, used } => write!(out, "the limit of {limit} tokens ({used} are used)"),
            Self::Cost { limit, used } => write!(out, "the limit of ${limit} (${used:.4} are spent)"),
            Self::RepeatedCalls(limit) => write!(out, "the limit of {limit} identical calls"),
            Self::ToolCalls => write!(out, "the client's limit of tool calls"),
        }
    }
}

/// What a turn has used.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spent {
    /// Of all requests and answers; estimated where the upstream does not count.
    pub tokens: u64,
    /// In US dollars, as far as prices are known.
    pub cost: f64,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.cost += other.cost;
    }
}

impl Turn {
    /// No tools are offered any more: this ask is for the answer.
    pub(super) fn is_last(&self) -> bool {
        self.ended_by.is_some()
    }

    /// The first limit that is reached ends the turn.
    pub(super) fn reach(&mut self, limit: Limit) {
        self.ended_by.get_or_insert(limit);
    }

    /// Counts what an ask took, and looks whether the turn may take more.
    pub(super) fn count(&mut self, round: &Round) {
        self.spend(round);
        let Spent { tokens, cost } = self.spent;
        if let Some(limit) = self.limits.tokens.filter(|limit| tokens >= *limit) {
            self.reach(Limit::Tokens { limit, used: tokens });
        }
        if let Some(limit) = self.limits.cost_usd.filter(|limit| cost >= *limit) {
            self.reach(Limit::Cost { limit, used: cost });
        }
    }

    /// Counts what an ask took.
    pub(super) fn spend(&mut self, round: &Round) {
        self.usage += round.usage;
        let usage = self.counted(round);
        self.spent.tokens = self.spent.tokens.saturating_add(usage.input.saturating_add(usage.output));
        self.spent.cost += self.price.map_or(0.0, |price| price.of(&usage));
    }

    /// As the upstream says, which says the last of it with the end of its answer.
    fn counted(&self, round: &Round) -> Usage {
        let is_told = round.usage.input > 0 || round.usage.output > 0;
        if !round.given_up && (is_told || !round.begun) {
            return round.usage;
        }
        let input = match is_told {
            true => round.usage.input,
            false => estimated(size_of(&self.request.messages)),
        };
        Usage { input, output: estimated(round.came).max(round.usage.output), ..round.usage }
    }

    /// Why a call is not run, where the turn has no room for it.
    pub(super) fn no_room(&self) -> Option<String> {
        match &self.ended_by {
            // what the client has allowed is told by each call that it does not allow
            None | Some(Limit::ToolCalls | Limit::Rounds(_)) => None,
            Some(limit) => Some(format!("this call was not run: the turn has reached {limit}")),
        }
    }

    /// Tells the client once, and what is said to the model about it.
    pub(super) fn tell_limit(&mut self, events: &mut Vec<ChatEvent>) -> Option<String> {
        let limit = self.ended_by?;
        if !std::mem::replace(&mut self.limit_told, true) {
            events.push(ChatEvent::Limited(limit));
        }
        Some(format!(
            "[No more tool calls are possible in this turn, which has reached {limit}. Answer with what is known so far, \
             and say what is missing.]"
        ))
    }

    /// Makes the request one for the last answer.
    pub(super) fn ask_for_the_end(&mut self) {
        self.request.tools = [].into();
        self.request.tool_choice = None;
        let parameters = &mut self.request.parameters;
        parameters.remove("parallel_tool_calls");
        let is_spent = matches!(self.ended_by, Some(Limit::Tokens { .. } | Limit::Cost { .. }));
        if !is_spent || THINKING.iter().any(|key| parameters.contains_key(*key)) {
            return;
        }
        let newer = "max_completion_tokens";
        let key = if parameters.contains_key(newer) { newer } else { "max_tokens" };
        let asked = parameters.get(key).and_then(serde_json::Value::as_u64);
        if asked.is_none_or(|asked| asked > FINAL_TOKENS) {
            parameters.insert(key.to_owned(), FINAL_TOKENS.into());
        }
    }
}

fn estimated(bytes: usize) -> u64 {
    u64::try_from(bytes / BYTES_PER_TOKEN).unwrap_or(u64::MAX)
}

impl AskModel {
    /// The turn's time is over. An answer that is being told may come to its end; otherwise the model is asked for one, if
    /// there is anything to answer from.
    pub(super) fn time_up(&mut self, limit: Duration, events: &mut Vec<ChatEvent>) -> Taken {
        if self.turn.is_last() || self.turn.rounds == 0 {
            return Taken::Nothing;
        }
        self.turn.reach(Limit::Time(limit));
        let note = self.turn.tell_limit(events);
        if !self.round.text.is_empty() {
            return Taken::GoesOn;
        }
        self.begin_again(events);
        match (self.turn.request.messages.last_mut(), note) {
            (Some(Message::Tool(ToolResult { content, .. })), Some(note)) => say(content, &note),
            (Some(Message::User(prose)), Some(note)) => say(&mut prose.content, &note),
            _ => {}
        }
        self.turn.ask_for_the_end();
        self.scanner = self.turn.scanner();
        Taken::AsksAgain
    }
}

const NOT_BEGUN: &str = "the turn's time was over before this call was run";
const CUT_OFF: &str = "the turn's time was over while this call was running; its outcome is unknown";

impl RunTools {
    /// The turn's time is over: calls without a result are answered with that.
    pub(super) fn time_up(mut self, limit: Duration, events: &mut Vec<ChatEvent>) -> Step {
        for at in 0..self.planned.len() {
            if self.results[at].is_some() || !matches!(self.planned[at].plan, Planned::Run(_)) {
                continue;
            }
            let why = if self.has_begun(at) { CUT_OFF } else { NOT_BEGUN };
            let result = ToolResult::error(&self.planned[at].call, why);
            events.push(ChatEvent::CallFinished { result: result.clone(), elapsed: Duration::ZERO });
            self.results[at] = Some(result);
        }
        self.turn.reach(Limit::Time(limit));
        self.finish(events)
    }
}

impl Course {
    /// What the turn has used so far.
    pub fn spent(&self) -> Spent {
        match self.step() {
            Step::AskModel(ask) => ask.turn.spent,
            Step::Judge(judge) => judge.run.turn.spent,
            Step::AskPerson(asking) => asking.spent(),
            Step::RunTools(run) => run.turn.spent,
            Step::Done(done) => done.spent,
        }
    }

    /// What the request alone is going to cost, by estimate.
    pub fn pending(&self) -> Spent {
        let Step::AskModel(AskModel { turn, .. }) = self.step() else { return Spent::default() };
        let usage = Usage { input: estimated(size_of(&turn.request.messages)), ..Usage::default() };
        Spent { tokens: usage.input, cost: turn.price.map_or(0.0, |price| price.of(&usage)) }
    }

    /// How long the last answer may take, once a limit is reached: it has a bound of its own, so that what is left of the
    /// turn's time does not matter.
    pub fn ending(&self) -> Option<Duration> {
        let turn = match self.step() {
            Step::AskModel(ask) => &ask.turn,
            Step::RunTools(run) => &run.turn,
            Step::Judge(judge) => &judge.run.turn,
            Step::AskPerson(_) | Step::Done(_) => return None,
        };
        turn.ended_by.map(|_| turn.limits.final_timeout)
    }
}

#[cfg(test)]
mod tests;
