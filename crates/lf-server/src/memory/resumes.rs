//! Turns that wait for a client to come back, by the ids of its calls. In memory, and in the store where there is one, so
//! that a client is understood after a restart. A store that cannot be written is no reason to fail: memory is enough then.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lf_core::turn::Resume;
use lf_store::{Store, StoreError};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use super::ago;

/// Bytes kept in memory for clients that may come back; the oldest go first.
const REMEMBERED: u64 = 64 * 1024 * 1024;
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);
/// The same in the store. A client sends a call again with every later request of its conversation.
const STORED: i64 = 256 * 1024 * 1024;
const STORED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// A larger one is kept in memory only.
const LARGEST: usize = 16 * 1024 * 1024;
/// A client that waits for the end of its answer, or for its beginning, is not held up longer by a store that is slow.
const STORE_WAIT: Duration = Duration::from_secs(2);
/// So many are kept between two looks for old ones.
const LOOK_EVERY: usize = 64;
/// Calls of one request that are looked for in the store. Longer conversations lead back from their last calls first.
const LOOKED_FOR: usize = 256;

#[derive(Clone)]
pub(crate) struct Resumes {
    near: moka::sync::Cache<String, Arc<Resume>>,
    store: Option<Store>,
    kept: Arc<AtomicUsize>,
}

impl Resumes {
    pub(crate) fn new(store: Option<Store>) -> Self {
        let near = moka::sync::Cache::builder()
            .weigher(|_, resume: &Arc<Resume>| {
                u32::try_from(resume.size() / resume.ids.len().max(1)).unwrap_or(u32::MAX)
            })
            // the default policy keeps what is old and often asked for; here the newest is what will be asked for
            .eviction_policy(moka::policy::EvictionPolicy::lru())
            .max_capacity(REMEMBERED)
            .time_to_live(REMEMBERED_FOR)
            .build();
        Self { near, store, kept: Arc::default() }
    }

    /// Returns when it is kept, in memory at least.
    pub(crate) async fn remember(&self, resume: Resume) {
        let resume = Arc::new(resume);
        self.put_near(&resume);
        let Some(store) = self.store.as_ref().filter(|_| resume.size() <= LARGEST) else { return };
        let kept = async {
            store.remember(&resume).await?;
            if self.kept.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
                store.trim_remembered(ago(STORED_FOR), STORED).await?;
            }
            Ok::<_, StoreError>(())
        };
        match timeout(STORE_WAIT, kept).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "calls of a client are remembered in memory only"),
            Err(_) => warn!("the store is slow: calls of a client may be remembered in memory only"),
        }
    }

    /// What is known about these ids.
    pub(crate) async fn find(&self, ids: Vec<String>) -> HashMap<String, Arc<Resume>> {
        let look = |id: String| async move {
            match &self.store {
                Some(store) => store.remembered(&id).await,
                None => Ok(None),
            }
        };
        self.find_with(ids, look).await
    }

    async fn find_with<F>(
        &self,
        mut ids: Vec<String>,
        look: impl Fn(String) -> F,
    ) -> HashMap<String, Arc<Resume>>
    where
        F: Future<Output = Result<Option<Resume>, StoreError>>,
    {
        ids.retain(|id| may_be_ours(id));
        let mut known = HashMap::with_capacity(ids.len());
        let (mut looked, until) = (0, Instant::now() + STORE_WAIT);
        for id in ids.into_iter().rev() {
            if known.contains_key(&id) {
                continue;
            }
            if let Some(resume) = self.near.get(&id) {
                known.insert(id, resume);
            } else if looked < LOOKED_FOR {
                looked += 1;
                let resume = match timeout_at(until, look(id)).await {
                    Ok(Ok(Some(resume))) => Arc::new(resume),
                    Ok(Ok(None)) => continue,
                    Ok(Err(error)) => {
                        warn!(%error, "a client's call cannot be looked up");
                        continue;
                    }
                    Err(_) => {
                        warn!("the store is slow: calls of a client cannot be looked up");
                        looked = LOOKED_FOR;
                        continue;
                    }
                };
                self.put_near(&resume);
                // all of one turn lead to the same value
                known.extend(resume.ids.iter().map(|id| (id.clone(), resume.clone())));
            }
        }
        known
    }

    fn put_near(&self, resume: &Arc<Resume>) {
        for id in &resume.ids {
            self.near.insert(id.clone(), resume.clone());
        }
    }
}

/// The ids that turns give to calls: those of upstreams are not worth a look.
fn may_be_ours(id: &str) -> bool {
    id.strip_prefix("call_")
        .is_some_and(|rest| rest.len() >= 26 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests;
