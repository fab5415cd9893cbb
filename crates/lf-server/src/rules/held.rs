//! Tools that are held back: each is logged and put on record once for what it says.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use lf_core::pins::Print;
use lf_core::tool::Held;
use lf_core::{Project, ToolRef, visible};
use tracing::warn;

use super::{Became, Check, Told};

/// Of how many tools it is remembered that they were told; beyond, some are told again.
const REMEMBERED: usize = 10_000;

/// Which tools of which project were told, and what they said.
#[derive(Debug, Default)]
pub(crate) struct HeldBack(Mutex<HashMap<(String, ToolRef), (String, u64)>>);

/// A tool that is held back.
pub(crate) struct Withheld<'a> {
    pub tool: ToolRef,
    pub print: Option<&'a Print>,
    pub why: String,
}

impl<'a> From<&'a Held> for Withheld<'a> {
    fn from(Held { tool, why }: &'a Held) -> Self {
        Self { tool: tool.id.clone(), print: tool.print.as_deref(), why: why.clone() }
    }
}

impl HeldBack {
    /// Tells of those that were not held back before, or that said something else then. `model`: whose tools are listed, where
    /// they are one model's.
    pub(crate) fn tell<'a>(
        &self,
        check: &dyn Check,
        project: &Project,
        model: Option<&str>,
        held: impl IntoIterator<Item = Withheld<'a>>,
    ) {
        for Withheld { tool, print, why } in held {
            let key = (format!("{}/{}", project.namespace, project.name), tool.clone());
            if !self.is_new(key, &(why.clone(), print.map_or(0, Print::mark))) {
                continue;
            }
            warn!(server = %tool.server, tool = %visible::line(&tool.name), reason = %visible::line(&why), "a tool is held back");
            check.record(&Told::found(model, &tool), &Became::Denied(&why));
        }
    }

    fn is_new(&self, key: (String, ToolRef), said: &(String, u64)) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= REMEMBERED && !told.contains_key(&key) {
            told.clear();
        }
        told.insert(key, said.clone()).is_none_or(|before| before != *said)
    }
}
