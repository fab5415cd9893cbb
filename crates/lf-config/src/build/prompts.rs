//! Prompt sets.

use indexmap::IndexMap;
use lf_core::message::Role;
use lf_core::project::{PromptMessage, PromptSet};

use super::{Context, Reading, carry, unique_name};
use crate::diagnostic::{Report, quote};
use crate::node::Node;
use crate::raw::{RawMessage, RawPromptSet, RawRole};
use crate::variables::{Syntax, Used, expand};

#[derive(Default)]
pub(crate) struct Prompts {
    pub(crate) sets: IndexMap<String, PromptSet>,
    /// Why the models that use a set cannot be used.
    pub(crate) missing: IndexMap<String, Vec<String>>,
    /// The variables that a set refers to.
    pub(crate) used: IndexMap<String, Vec<Used>>,
}

pub(super) fn read(root: &Node, context: &Context<'_>, report: &mut Report<'_>) -> Prompts {
    let mut prompts = Prompts::default();
    let Some(list) = root.get("prompts") else { return prompts };
    let mut seen = IndexMap::new();
    for node in list.items() {
        let Some(name) = unique_name(node, "prompt set", &mut seen, report) else { continue };
        let costs = format!("the models that use prompt set {} are not available", quote(&name));
        let expanded = expand(node, &[("messages", Syntax::EnvOnly)], &costs, context.variables, report);
        let mut reading = Reading::new(format!("prompt set {}", quote(&name)), &expanded, context, report);
        let Some(raw) = reading.raw::<RawPromptSet>() else { continue };
        let messages = raw.messages.unwrap_or_default().into_iter().filter_map(message).collect();
        if !expanded.missing.is_empty() {
            prompts.missing.insert(name.clone(), expanded.missing);
        }
        carry::by_prompts(&name, &expanded.used, context);
        prompts.used.insert(name.clone(), expanded.used);
        prompts.sets.insert(name, PromptSet { messages });
    }
    prompts
}

fn message(raw: RawMessage) -> Option<PromptMessage> {
    let role = match raw.role? {
        RawRole::System | RawRole::Developer => Role::System,
        RawRole::User => Role::User,
        RawRole::Assistant => Role::Assistant,
        RawRole::Tool => Role::Tool,
    };
    Some(PromptMessage { role, content: raw.content?, tool_call_id: raw.tool_call_id })
}
