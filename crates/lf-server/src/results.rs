//! Results that were too large for a model, kept whole for a while, and the tools with which a turn looks into its own.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lf_core::results::{KeptResult, Look, ResultRef, Room, SOURCE};
use lf_core::tool::{Attendant, BoxFuture, Catalogue, ToolContent};
use lf_core::turn::{Course, Entry, Setup};
use lf_core::{Message, ToolError, ToolOutput, ToolRef, ToolSource};
use lf_store::Store;
use serde_json::{Map, Value};

/// Bytes kept in memory over all turns; the ones that were looked at least recently go first.
const NEAR: u64 = 128 * 1024 * 1024;
/// So long after somebody last looked. What a journal has is read from there again.
const NEAR_FOR: Duration = Duration::from_secs(3600);

/// The whole results of all turns. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Results {
    near: moka::sync::Cache<ResultRef, Arc<str>>,
}

impl Default for Results {
    fn default() -> Self {
        Self::new(NEAR)
    }
}

impl Results {
    fn new(bytes: u64) -> Self {
        let near = moka::sync::Cache::builder()
            .weigher(|_, text: &Arc<str>| u32::try_from(text.len()).unwrap_or(u32::MAX))
            .eviction_policy(moka::policy::EvictionPolicy::lru())
            .max_capacity(bytes)
            .time_to_idle(NEAR_FOR)
            .build();
        Self { near }
    }
}

/// What one turn may look into: what was cut in it, and what of its conversation it is shown cut. Nothing else has a handle
/// here, whatever a model calls it.
#[derive(Clone)]
pub(crate) struct Shelf {
    results: Results,
    turn: String,
    room: Room,
    earlier: Arc<[ResultRef]>,
    /// The handles of what was cut in this turn.
    own: Arc<Mutex<HashSet<String>>>,
    /// Where the journals of the conversation are.
    journals: Option<(Store, String)>,
}

impl Shelf {
    /// `journals`: the store and the conversation of a turn that is kept.
    pub(crate) fn new(results: &Results, setup: &Setup, journals: Option<(Store, String)>) -> Self {
        let earlier = setup.request.messages.iter().filter_map(|message| match message {
            Message::Tool(result) => result.kept.clone(),
            _ => None,
        });
        Self {
            results: results.clone(),
            turn: setup.id.clone(),
            room: Room::new(setup.limits.result_tokens, setup.limits.result_bytes),
            earlier: earlier.collect(),
            own: Arc::default(),
            journals,
        }
    }

    pub(crate) fn keep(&self, cut: Vec<KeptResult>) {
        for KeptResult { id, text } in cut {
            if id.turn == self.turn {
                self.own.lock().unwrap_or_else(PoisonError::into_inner).insert(id.handle.clone());
            }
            self.results.near.insert(id, text);
        }
    }

    /// These tools, and those that look into results.
    pub(crate) fn over(&self, tools: Arc<dyn ToolSource>) -> Arc<dyn ToolSource> {
        Arc::new(WithResults { tools, shelf: self.clone() })
    }

    async fn look(&self, tool: &str, arguments: &Map<String, Value>) -> Result<String, String> {
        let look = Look::parse(tool, arguments)?;
        let text = self.find(&look.handle).await?;
        let room = self.room;
        // a search takes up to seconds
        let looked = tokio::task::spawn_blocking(move || look.at(&text, room)).await;
        looked.unwrap_or_else(|error| Err(format!("the result cannot be looked at: {error}")))
    }

    async fn find(&self, handle: &str) -> Result<Arc<str>, String> {
        let is_own = self.own.lock().unwrap_or_else(PoisonError::into_inner).contains(handle);
        let id = match self.earlier.iter().rev().find(|id| id.handle == handle) {
            _ if is_own => ResultRef { turn: self.turn.clone(), handle: handle.to_owned() },
            Some(earlier) => earlier.clone(),
            // for a handle that a model made up no journal is read
            None => return Err(format!("there is no result `{handle}` in this conversation")),
        };
        if let Some(text) = self.results.near.get(&id) {
            return Ok(text);
        }
        self.journalled(&id).await.ok_or_else(|| {
            format!(
                "`{handle}` is not kept any more: call the tool that it came from again, for less at a time"
            )
        })
    }

    /// Tells the turn again what its journal has: that cuts the same results.
    async fn journalled(&self, id: &ResultRef) -> Option<Arc<str>> {
        let (store, conversation) = self.journals.as_ref()?;
        let turn = store.turn(&id.turn).await.ok()??;
        if turn.conversation != *conversation {
            return None;
        }
        let mut entries = store.entries(&turn, 0).await.ok()?.into_iter();
        let Some(Entry::Begun(setup)) = entries.next() else { return None };
        let mut events = Vec::new();
        let mut course = Course::new(*setup, &mut events);
        for entry in entries {
            course.take(entry, &mut events).ok()?;
            events.clear();
            // only this one: the others could drive it out
            if let Some(found) = course.take_cut().into_iter().find(|cut| cut.id == *id) {
                self.results.near.insert(found.id, found.text.clone());
                return Some(found.text);
            }
        }
        None
    }
}

struct WithResults {
    tools: Arc<dyn ToolSource>,
    shelf: Shelf,
}

impl ToolSource for WithResults {
    fn list<'a>(&'a self, servers: &'a [String]) -> BoxFuture<'a, Catalogue> {
        self.tools.list(servers)
    }

    fn ready<'a>(&'a self, server: &'a str) -> BoxFuture<'a, ()> {
        self.tools.ready(server)
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolRef,
        arguments: &'a Map<String, Value>,
        attendant: &'a dyn Attendant,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        if &*tool.server != SOURCE {
            return self.tools.call(tool, arguments, attendant);
        }
        Box::pin(async move {
            let looked = self.shelf.look(&tool.name, arguments).await;
            let is_error = looked.is_err();
            let content = vec![ToolContent::Text(looked.unwrap_or_else(|problem| problem))];
            Ok(ToolOutput { content, structured: None, is_error })
        })
    }
}

#[cfg(test)]
impl Default for Shelf {
    fn default() -> Self {
        let setup =
            Setup::new("turn", "model", lf_core::ModelRequest::default(), lf_core::ToolSet::default());
        Self::new(&Results::default(), &setup, None)
    }
}

#[cfg(test)]
mod tests;
