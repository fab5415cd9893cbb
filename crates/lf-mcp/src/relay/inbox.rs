//! What servers say to those whose requests they are asked on: their messages, and what changed.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lf_core::McpServer;
use rmcp::model::{NotificationMetaObject, RequestId, ServerNotification};
use serde_json::Value;
use tokio::sync::{Notify, broadcast};

use super::caller::{Channel, Level};
use super::catalogue::{Catalogues, List};
use super::watching::Watched;
use crate::secrets::Secrets;

/// Pieces of news that wait for a slow client; one that falls behind is told that everything changed.
const NEWS_BUFFER: usize = 1_024;
/// Subscriptions whose acknowledgement nobody has looked at yet.
const ACKNOWLEDGED: usize = 64;

/// What a server says outside of any request.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    Changed(List),
    /// The parameters of `notifications/resources/updated`.
    Updated(Value),
    /// The parameters of `notifications/message`.
    Log(Value),
}

/// Everything that servers say on relaying sessions, for all who listen.
#[derive(Debug, Clone)]
pub(crate) struct Feed(broadcast::Sender<(Arc<McpServer>, News)>);

impl Default for Feed {
    fn default() -> Self {
        Self(broadcast::Sender::new(NEWS_BUFFER))
    }
}

impl Feed {
    pub(crate) fn tell(&self, server: &Arc<McpServer>, news: News) {
        // nobody listens: nobody needs to know
        let _ = self.0.send((server.clone(), news));
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<(Arc<McpServer>, News)> {
        self.0.subscribe()
    }
}

/// One connection's notifications that no request of our own takes.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    feed: OnceLock<(Arc<McpServer>, Feed)>,
    next: AtomicU64,
    calls: Mutex<HashMap<u64, Channel>>,
    /// The subscriptions that were agreed to, and the resources that each tells of.
    acknowledged: Mutex<VecDeque<(RequestId, Vec<String>)>>,
    news: Notify,
    /// The most that anybody wanted to be told, where the server was told so.
    level: Mutex<Option<Level>>,
    /// How often each list changed.
    changes: [AtomicU64; 4],
    pub(super) catalogues: Catalogues,
    pub(super) watched: Arc<Watched>,
}

impl Inbox {
    /// From now on news are told to those who listen.
    pub(crate) fn open(&self, server: &Arc<McpServer>, feed: &Feed) {
        let _ = self.feed.set((server.clone(), feed.clone()));
    }

    pub(crate) fn is_open(&self) -> bool {
        self.feed.get().is_some()
    }

    /// Takes a notification.
    pub(crate) fn take(&self, notification: &ServerNotification, secrets: &Secrets) {
        match notification {
            ServerNotification::LoggingMessageNotification(message) => {
                self.log(secrets.value(serde_json::to_value(&message.params).unwrap_or_default()));
            }
            ServerNotification::ToolListChangedNotification(_) => self.changed(List::Tools),
            ServerNotification::PromptListChangedNotification(_) => self.changed(List::Prompts),
            ServerNotification::ResourceListChangedNotification(_) => {
                self.changed(List::Resources);
                self.changed(List::Templates);
            }
            ServerNotification::ResourceUpdatedNotification(update) => {
                let update = serde_json::to_value(&update.params).unwrap_or_default();
                self.tell(News::Updated(secrets.value(update)));
            }
            ServerNotification::SubscriptionsAcknowledgedNotification(agreed) => {
                let meta = agreed.extensions.get::<NotificationMetaObject>();
                let Some(id) = meta.and_then(NotificationMetaObject::subscription_id) else { return };
                let mut acknowledged = lock(&self.acknowledged);
                if acknowledged.len() == ACKNOWLEDGED {
                    acknowledged.pop_front();
                }
                let uris = agreed.params.notifications.resource_subscriptions.clone();
                acknowledged.push_back((id, uris.unwrap_or_default()));
                self.news.notify_waiters();
            }
            _ => {}
        }
    }

    pub(crate) fn changed(&self, list: List) {
        self.changes[list as usize].fetch_add(1, Ordering::AcqRel);
        if list != List::Templates {
            self.tell(News::Changed(list));
        }
    }

    /// A number that grows with each change of a list that is told.
    pub(super) fn changes(&self, list: List) -> u64 {
        self.changes[list as usize].load(Ordering::Acquire)
    }

    fn tell(&self, news: News) {
        if let Some((server, feed)) = self.feed.get() {
            feed.tell(server, news);
        }
    }

    /// Hands the server's messages to the channel as long as the guard lives, where they are of its request.
    pub(super) fn attend(self: &Arc<Self>, channel: &Channel) -> Attended {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.calls).insert(id, channel.clone());
        Attended { inbox: self.clone(), id }
    }

    /// A message does not say which request it is of. It goes to the only one that is running, and to all clients when
    /// none is; with several it would be told to somebody else's client, and is told to nobody.
    fn log(&self, message: Value) {
        let calls = lock(&self.calls);
        let mut running = calls.values();
        match (running.next(), running.next()) {
            (Some(call), None) => call.log(message),
            (None, _) => {
                drop(calls);
                self.tell(News::Log(message));
            }
            _ => tracing::debug!("a server's message is of one of several requests; it is told to nobody"),
        }
    }

    /// Waits until the server agreed to a subscription. Returns the resources that it tells of.
    pub(super) async fn acknowledged(&self, id: &RequestId) -> Vec<String> {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            {
                let mut acknowledged = lock(&self.acknowledged);
                let at = acknowledged.iter().position(|(known, _)| known == id);
                if let Some((_, uris)) = at.and_then(|at| acknowledged.remove(at)) {
                    return uris;
                }
            }
            news.await;
        }
    }

    /// Whether a server must be told this level, because it tells less so far.
    pub(super) fn is_below(&self, level: Level) -> bool {
        lock(&self.level).is_none_or(|known| level < known)
    }

    pub(super) fn set_level(&self, level: Level) {
        *lock(&self.level) = Some(level);
    }
}

/// A request whose client is told what the server says meanwhile.
pub(super) struct Attended {
    inbox: Arc<Inbox>,
    id: u64,
}

impl Drop for Attended {
    fn drop(&mut self) {
        lock(&self.inbox.calls).remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
