//! Declarations of tools as the upstreams are sent them, written once per tool list.
//!
//! A tool list stays the same over the rounds of a turn and over many turns, while its schemas are by far the largest
//! part of most requests. A list is the same when names, descriptions and schemas are: the pool shares the schemas of a
//! listed tool, so that the comparison is one of pointers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use lf_core::model::{Dialect, ToolSpec};
use lf_dialects::upstream;

/// Lists kept; one for each model that is in use, in each of its forms.
const LISTS: usize = 32;
/// What the kept texts may take together. A list of 500 tools has some hundred KiB.
const BYTES: usize = 32 * 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct ToolTexts {
    /// The latest use last.
    kept: Mutex<VecDeque<Kept>>,
}

#[derive(Debug)]
struct Kept {
    dialect: Dialect,
    specs: Arc<[ToolSpec]>,
    text: Arc<str>,
}

impl ToolTexts {
    /// What [`upstream::tools`] gives.
    pub(crate) fn text(&self, dialect: Dialect, specs: &Arc<[ToolSpec]>) -> Arc<str> {
        if specs.is_empty() {
            return "".into();
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|kept| kept.dialect == dialect && same(&kept.specs, specs));
        if let Some(known) = found.and_then(|at| kept.remove(at)) {
            let text = known.text.clone();
            kept.push_back(known);
            return text;
        }
        drop(kept);
        let text: Arc<str> = upstream::tools(dialect, specs).into();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(Kept { dialect, specs: specs.clone(), text: text.clone() });
        while kept.len() > LISTS || kept.iter().map(|kept| kept.text.len()).sum::<usize>() > BYTES {
            kept.pop_front();
        }
        text
    }
}

fn same(a: &Arc<[ToolSpec]>, b: &Arc<[ToolSpec]>) -> bool {
    Arc::ptr_eq(a, b) || a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| same_tool(a, b))
}

fn same_tool(a: &ToolSpec, b: &ToolSpec) -> bool {
    a.name == b.name
        && a.description == b.description
        && (Arc::ptr_eq(&a.schema, &b.schema) || a.schema == b.schema)
        && a.rest == b.rest
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn list(count: usize) -> Arc<[ToolSpec]> {
        let spec = |at| ToolSpec {
            name: format!("tool_{at}"),
            description: Some("does it".into()),
            schema: Arc::new(json!({"type": "object", "properties": {"a": {"type": "integer"}}})),
            rest: Map::new(),
        };
        (0..count).map(spec).collect()
    }

    #[test]
    fn a_list_is_written_once_however_often_it_is_asked_for() {
        let texts = ToolTexts::default();
        let first = texts.text(Dialect::OpenaiChat, &list(500));
        let again = texts.text(Dialect::OpenaiChat, &list(500));
        assert!(Arc::ptr_eq(&first, &again), "equal lists share one text");
        let other = texts.text(Dialect::Anthropic, &list(500));
        assert_ne!(first, other);
        assert_ne!(first, texts.text(Dialect::OpenaiChat, &list(499)));
    }

    #[test]
    fn no_more_lists_are_kept_than_the_bound() {
        let texts = ToolTexts::default();
        for count in 1..=LISTS + 8 {
            texts.text(Dialect::OpenaiChat, &list(count));
        }
        assert_eq!(texts.kept.lock().unwrap().len(), LISTS);
    }
}
