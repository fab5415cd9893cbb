//! Calls of a round are held against the rules before anybody is asked about them and before anything runs. The rules are
//! the driver's: what they said is told to the turn, so that it is the same turn when it is read back.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::event::ChatEvent;
use crate::message::{Message, ToolCall};
use crate::model::ModelError;
use crate::policy::{Earlier, Labels};
use crate::tool::{Approval, Tool, ToolRef};

use super::approval::Known;
use super::{Done, Planned, RunTools, Step, Turn};

/// The calls of a round wait for what the rules say of them.
#[derive(Debug)]
pub struct Judge {
    pub(super) run: RunTools,
    /// What is known of calls that an earlier turn ended with.
    pub(super) known: Option<Known>,
}

/// What the rules say of one call. Calls that are not named may run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// Its place in the round.
    pub call: usize,
    pub verdict: Approval,
    /// For the model, or the person, to read; empty where the tool is always asked about.
    pub why: String,
}

/// A tool that was run for a call, and what its result brought in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    #[serde(flatten)]
    pub tool: ToolRef,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Nothing came back: what it did is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_silent: bool,
}

/// A call as rules look at it.
#[derive(Debug)]
pub struct Standing<'a> {
    /// Its place in the round.
    pub index: usize,
    pub call: &'a ToolCall,
    pub tool: &'a Tool,
    pub earlier: Before,
    /// Of all results that the conversation has seen.
    pub seen: Labels,
    /// A person has said yes to this very call.
    pub is_approved: bool,
    /// A person has said yes to this tool for all of the conversation.
    pub is_trusted: bool,
}

/// The calls before one, in a list that all calls of their round share.
#[derive(Debug, Clone, Default)]
pub struct Before {
    all: Arc<[Earlier]>,
    count: usize,
}

impl std::ops::Deref for Before {
    type Target = [Earlier];

    fn deref(&self) -> &[Earlier] {
        &self.all[..self.count]
    }
}

impl Judge {
    /// The calls that would run.
    pub fn standing(&self) -> Vec<Standing<'_>> {
        self.run.standing()
    }

    /// The next step, by what was said of the calls.
    pub(super) fn judged(self, judged: &[Judged], events: &mut Vec<ChatEvent>) -> Step {
        let Self { mut run, known } = self;
        let mut asked = HashMap::new();
        for Judged { call, verdict, why } in judged {
            match verdict {
                Approval::Auto => {}
                Approval::Ask => drop(asked.insert(*call, why.clone())),
                Approval::Deny => run.answer_at(*call, &denial(why)),
            }
        }
        run.asked(&asked, known.as_ref(), events)
    }

    pub(super) fn fail(self, error: ModelError, events: &mut Vec<ChatEvent>) -> Done {
        self.run.answered(events);
        self.run.fail(error, events)
    }

    pub(super) fn stop(self, events: &mut Vec<ChatEvent>) -> Done {
        self.run.answered(events);
        self.run.stop(events)
    }
}

/// What a model is told of a call that the rules forbid.
pub fn denial(why: &str) -> String {
    format!("this call was not run: {why}. Do not call it again with the same arguments.")
}

impl RunTools {
    /// The calls that are still to run, as rules look at them.
    pub fn standing(&self) -> Vec<Standing<'_>> {
        let (seen, mut all) = self.turn.history();
        let mut open = Vec::new();
        for (index, planned) in self.planned.iter().enumerate() {
            let Planned::Run(id) = &planned.plan else { continue };
            let tool = self.turn.tools.tool(id);
            if let Some(tool) = tool.filter(|_| self.results[index].is_none()) {
                open.push((index, &planned.call, tool, all.len()));
            }
            let labels = tool.map(|tool| tool.labels).unwrap_or_default();
            let arguments = Arc::new(planned.call.arguments.value().cloned().unwrap_or_default());
            let tool = id.clone();
            all.push(Earlier { tool, labels, arguments, is_done: false, has_failed: false, is_silent: true });
        }
        let all: Arc<[Earlier]> = all.into();
        let standing = open.into_iter().map(|(index, call, tool, count)| Standing {
            index,
            call,
            tool,
            earlier: Before { all: Arc::clone(&all), count },
            seen,
            is_approved: self.approved.get(index).copied().unwrap_or_default(),
            is_trusted: self.turn.always.contains(&tool.id),
        });
        standing.collect()
    }
}

impl Turn {
    /// The labels of all that was seen, and the calls of finished rounds.
    fn history(&self) -> (Labels, Vec<Earlier>) {
        let mut seen = self.seen;
        let mut calls: HashMap<&str, &Map<String, Value>> = HashMap::new();
        let mut earlier = Vec::new();
        for (at, message) in self.request.messages.iter().enumerate() {
            seen = seen.and(brought(message));
            match message {
                Message::Assistant(said) if at >= self.given => {
                    let arguments = said
                        .calls
                        .iter()
                        .filter_map(|call| Some((call.id.as_str(), call.arguments.value().ok()?)));
                    calls.extend(arguments);
                }
                Message::Tool(result) => {
                    let Some(ran) = &result.ran else { continue };
                    if at >= self.given {
                        earlier.push(Earlier {
                            tool: ran.tool.clone(),
                            labels: ran.labels,
                            arguments: calls
                                .get(result.call_id.as_str())
                                .map(|arguments| Arc::new((*arguments).clone()))
                                .unwrap_or_default(),
                            is_done: true,
                            has_failed: result.is_error,
                            is_silent: ran.is_silent,
                        });
                    }
                }
                _ => {}
            }
        }
        (seen, earlier)
    }
}

/// What results in a conversation brought into it.
pub fn seen_in<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Labels {
    messages.into_iter().map(brought).fold(Labels::default(), Labels::and)
}

fn brought(message: &Message) -> Labels {
    match message {
        Message::Tool(result) => result.ran.as_ref().map(|ran| ran.labels).unwrap_or_default(),
        // a summary stands for what it was made of
        Message::User(prose) => Labels::carried(&prose.rest),
        _ => Labels::default(),
    }
}

#[cfg(test)]
mod tests;
