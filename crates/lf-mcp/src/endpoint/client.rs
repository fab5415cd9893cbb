//! A client of the legacy generation for as long as its session lasts: what it wants to be told, and telling it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use rmcp::RoleServer;
use rmcp::model::{CustomNotification, ServerNotification};
use rmcp::service::Peer;
use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::coalesced::coalesced;
use super::{List, News, Offer, Refused};
use crate::relay::{Caller, Level, Watch};

/// Resources that one client watches.
const MAX_WATCHED: usize = 256;

pub(super) struct Client {
    /// Tells it from all others of this process.
    pub(super) party: u64,
    wants: Arc<Wants>,
    /// Ends the telling with the session.
    telling: OnceLock<DropGuard>,
}

#[derive(Default)]
struct Wants {
    level: Mutex<Option<Level>>,
    watched: AsyncMutex<HashMap<String, Watch>>,
}

impl Client {
    pub(super) fn new() -> Self {
        static PARTIES: AtomicU64 = AtomicU64::new(0);
        let party = PARTIES.fetch_add(1, Ordering::Relaxed);
        Self { party, wants: Arc::default(), telling: OnceLock::new() }
    }

    /// The least grave of the messages that the client asked for, if it did.
    pub(super) fn level(&self) -> Option<Level> {
        *self.wants.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_level(&self, level: Level) {
        *self.wants.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    pub(super) async fn watch(&self, offer: &dyn Offer, uri: &str, caller: &Caller) -> Result<(), Refused> {
        let mut watched = self.wants.watched.lock().await;
        if watched.contains_key(uri) {
            return Ok(());
        }
        if watched.len() == MAX_WATCHED {
            return Err(Refused::Unavailable(format!("more than {MAX_WATCHED} subscriptions")));
        }
        watched.insert(uri.to_owned(), offer.watch(uri, caller).await?);
        Ok(())
    }

    pub(super) async fn unwatch(&self, uri: &str) {
        self.wants.watched.lock().await.remove(uri);
    }

    /// Tells the client what happens from now on, as long as its session lasts.
    pub(super) fn tell(&self, news: BoxStream<'static, News>, peer: Peer<RoleServer>, tracker: &TaskTracker) {
        let stop = CancellationToken::new();
        if self.telling.set(stop.clone().drop_guard()).is_err() {
            return;
        }
        let (wants, news) = (self.wants.clone(), coalesced(news));
        tracker.spawn(async move {
            tokio::select! {
                () = wants.tell_all(news, peer) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

impl Wants {
    async fn tell_all(&self, mut news: BoxStream<'static, News>, peer: Peer<RoleServer>) {
        while let Some(news) = news.next().await {
            let notification = match news {
                News::Changed(list) => changed(list),
                News::Updated(update) => {
                    let uri = update["uri"].as_str().unwrap_or_default();
                    if !self.watched.lock().await.contains_key(uri) {
                        continue;
                    }
                    custom("notifications/resources/updated", Some(update))
                }
                News::Log(message) => {
                    let level = *self.level.lock().unwrap_or_else(PoisonError::into_inner);
                    if level.is_some_and(|level| !level.admits(&message)) {
                        continue;
                    }
                    custom("notifications/message", Some(message))
                }
            };
            if peer.send_notification(notification).await.is_err() {
                return;
            }
        }
    }
}

fn changed(list: List) -> ServerNotification {
    match list {
        List::Tools => custom("notifications/tools/list_changed", None),
        List::Prompts => custom("notifications/prompts/list_changed", None),
        List::Resources | List::Templates => custom("notifications/resources/list_changed", None),
    }
}

pub(super) fn custom(method: &str, params: Option<Value>) -> ServerNotification {
    ServerNotification::CustomNotification(CustomNotification::new(method, params))
}
