//! Responses that are being made, and those of one connection that are not stored. What is stored is the store's; which way a
//! request goes is [`crate::routes`]'.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lf_core::Message;
use lf_core::turn::size_of;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Bytes of the responses of all connections; those that were not asked for the longest go first.
const HELD: u64 = 64 * 1024 * 1024;
const HELD_FOR: Duration = Duration::from_secs(24 * 3600);
/// Responses that one connection can go on from without their being stored. Clients go on from the last one; the others
/// are for a branch or a retry.
const OF_A_CONNECTION: usize = 8;

/// Stored responses whose turn is bound to a client of this process: they have no journal, and who finds one unfinished that
/// is not here knows that its client or its daemon went away.
#[derive(Clone, Default)]
pub(crate) struct Making(Arc<Under>);

#[derive(Default)]
struct Under {
    way: Mutex<HashMap<String, Stage>>,
    begun: AtomicUsize,
}

enum Stage {
    Running(CancellationToken),
    /// Its end is about to be kept.
    Ending,
}

impl Making {
    pub(crate) fn begin(&self, id: &str) -> Made {
        let stop = CancellationToken::new();
        self.way().insert(id.to_owned(), Stage::Running(stop.clone()));
        Made { making: self.clone(), id: id.to_owned(), stop }
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.way().contains_key(id)
    }

    pub(crate) fn any(&self) -> bool {
        !self.way().is_empty()
    }

    /// False where it is not running, or ends already.
    pub(crate) fn stop(&self, id: &str) -> bool {
        let mut way = self.way();
        let Some(Stage::Running(stop)) = way.get(id) else { return false };
        stop.cancel();
        way.remove(id);
        true
    }

    /// How many responses were begun before this one.
    pub(crate) fn count(&self) -> usize {
        self.0.begun.fetch_add(1, Ordering::Relaxed)
    }

    fn way(&self) -> MutexGuard<'_, HashMap<String, Stage>> {
        self.0.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them, until it is dropped.
pub(crate) struct Made {
    making: Making,
    id: String,
    /// Is cancelled when a client wants the response stopped.
    pub stop: CancellationToken,
}

impl Made {
    /// Whether its end may be kept: one that was stopped or deleted has none.
    pub(crate) fn ends(&self) -> bool {
        let mut way = self.making.way();
        let Some(stage) = way.get_mut(&self.id) else { return false };
        *stage = Stage::Ending;
        true
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.making.way().remove(&self.id);
    }
}

/// The response of which there will be no more.
pub(crate) fn cancelled(mut body: Value) -> Value {
    body["status"] = json!("cancelled");
    body
}

/// The responses with `store: false` of all connections, within one bound.
#[derive(Debug, Clone)]
pub(crate) struct Held(moka::sync::Cache<(u128, String), Arc<Unstored>>);

/// A response that is not stored.
#[derive(Debug)]
pub(crate) struct Unstored {
    pub body: Value,
    /// The conversation up to and with this response.
    pub conversation: Arc<[Message]>,
}

impl Held {
    pub(crate) fn new() -> Self {
        let size =
            |unstored: &Unstored| 512 + size_of(&unstored.conversation) + unstored.body.to_string().len();
        let cache = moka::sync::Cache::builder()
            .weigher(move |_, unstored: &Arc<Unstored>| u32::try_from(size(unstored)).unwrap_or(u32::MAX))
            .eviction_policy(moka::policy::EvictionPolicy::lru())
            .max_capacity(HELD)
            .time_to_live(HELD_FOR)
            .build();
        Self(cache)
    }
}

/// Those of one connection: nobody else finds them, and they go with it.
#[derive(Debug)]
pub(crate) struct Aside {
    held: Held,
    connection: u128,
    ids: Mutex<VecDeque<String>>,
}

impl Aside {
    pub(crate) fn new(held: Held) -> Self {
        Self { held, connection: uuid::Uuid::new_v4().as_u128(), ids: Mutex::default() }
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Unstored>> {
        self.held.0.get(&self.key(id))
    }

    /// False where there was none.
    pub(crate) fn forget(&self, id: &str) -> bool {
        self.held.0.remove(&self.key(id)).is_some()
    }

    pub(crate) fn hold(&self, id: &str, unstored: Unstored) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.push_back(id.to_owned());
        let old = ids.len().saturating_sub(OF_A_CONNECTION);
        for old in ids.drain(..old) {
            self.forget(&old);
        }
        self.held.0.insert(self.key(id), Arc::new(unstored));
    }

    fn key(&self, id: &str) -> (u128, String) {
        (self.connection, id.to_owned())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let ids = std::mem::take(self.ids.get_mut().unwrap_or_else(PoisonError::into_inner));
        for id in &ids {
            self.forget(id);
        }
    }
}

#[cfg(test)]
mod tests;
