//! Responses that clients may come back for: to read them, to go on from them, to stop them. In memory, within a bound.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use lf_core::Message;
use lf_core::turn::size_of;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Bytes of all kept responses; those that were not asked for the longest go first.
const KEPT: u64 = 64 * 1024 * 1024;
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);
/// Responses that one connection can go on from without their being stored. Clients go on from the last one; the others
/// are for a branch or a retry.
const OF_A_CONNECTION: usize = 8;

/// The responses of all projects.
#[derive(Debug, Clone)]
pub(crate) struct Responses(moka::sync::Cache<String, Arc<Stored>>);

/// `namespace/project` of the route, where it names one: a response is found where it was made.
pub(crate) type Scope = Option<String>;

/// One response as it stands.
#[derive(Debug)]
pub(crate) struct Stored {
    scope: Scope,
    /// The response object; its `status` says how it stands.
    pub body: Value,
    /// The request's input items.
    pub input: Vec<Value>,
    /// The conversation up to and with this response; `None` where there is nothing to go on from.
    pub conversation: Option<Arc<[Message]>>,
    /// Stops the turn while it runs.
    stop: CancellationToken,
}

impl Stored {
    fn size(&self) -> usize {
        let conversation = self.conversation.as_ref().map_or(0, |messages| size_of(messages));
        let input: usize = self.input.iter().map(|item| item.to_string().len()).sum();
        512 + conversation + input + self.body.to_string().len()
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.body["status"].as_str(), Some("queued" | "in_progress"))
    }
}

impl Responses {
    pub(crate) fn new() -> Self {
        let cache = moka::sync::Cache::builder()
            .weigher(|_, stored: &Arc<Stored>| u32::try_from(stored.size()).unwrap_or(u32::MAX))
            .eviction_policy(moka::policy::EvictionPolicy::lru())
            .max_capacity(KEPT)
            .time_to_live(KEPT_FOR)
            .build();
        Self(cache)
    }

    /// `None` also for a response of another project.
    pub(crate) fn find(&self, scope: &Scope, id: &str) -> Option<Arc<Stored>> {
        self.0.get(id).filter(|stored| stored.scope == *scope)
    }

    /// False where there was none. A running one is stopped.
    pub(crate) fn delete(&self, scope: &Scope, id: &str) -> bool {
        let Some(stored) = self.find(scope, id) else { return false };
        stored.stop.cancel();
        self.0.invalidate(id);
        true
    }

    /// Stops a running response and gives it as it then stands; one that is over stays as it is.
    pub(crate) fn cancel(&self, scope: &Scope, id: &str) -> Option<Arc<Stored>> {
        let stored = self.find(scope, id)?;
        if !stored.is_running() {
            return Some(stored);
        }
        stored.stop.cancel();
        Some(self.put(id, stored.scope.clone(), cancelled(stored.body.clone()), stored.input.clone(), None))
    }

    /// Keeps a response that has just begun; what the [`Record`] is told completes it.
    pub(crate) fn begin(&self, id: &str, scope: Scope, body: Value, input: Vec<Value>, said: Said) -> Record {
        let stored = self.put(id, scope, body, input, None);
        Record { responses: self.clone(), id: id.to_owned(), stored, said, over: false }
    }

    fn put(
        &self,
        id: &str,
        scope: Scope,
        body: Value,
        input: Vec<Value>,
        conversation: Option<Arc<[Message]>>,
    ) -> Arc<Stored> {
        let stored = Arc::new(Stored { scope, body, input, conversation, stop: CancellationToken::new() });
        self.0.insert(id.to_owned(), stored.clone());
        stored
    }
}

/// Responses with `store: false` of one connection: nobody else finds them, and they go with it. All connections share the
/// bound in bytes.
#[derive(Debug)]
pub(crate) struct Aside {
    responses: Responses,
    /// No project has such a name.
    scope: Scope,
    ids: Mutex<VecDeque<String>>,
}

impl Aside {
    pub(crate) fn new(responses: Responses) -> Self {
        let scope = Some(uuid::Uuid::new_v4().simple().to_string());
        Self { responses, scope, ids: Mutex::default() }
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Stored>> {
        self.responses.find(&self.scope, id)
    }

    /// False where there was none.
    pub(crate) fn forget(&self, id: &str) -> bool {
        self.responses.delete(&self.scope, id)
    }

    pub(crate) fn begin(&self, id: &str, body: Value, said: Said) -> Record {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.push_back(id.to_owned());
        let old = ids.len().saturating_sub(OF_A_CONNECTION);
        for old in ids.drain(..old) {
            self.forget(&old);
        }
        self.responses.begin(id, self.scope.clone(), body, Vec::new(), said)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        for id in self.ids.get_mut().unwrap_or_else(PoisonError::into_inner).iter() {
            self.responses.delete(&self.scope, id);
        }
    }
}

fn cancelled(mut body: Value) -> Value {
    body["status"] = json!("cancelled");
    body
}

/// Where the turn leaves the conversation for the record to find.
pub(crate) type Said = Arc<OnceLock<Vec<Message>>>;

/// Keeps a running response up to date. Dropped before its end, the response counts as cancelled: its client is gone.
pub(crate) struct Record {
    responses: Responses,
    id: String,
    stored: Arc<Stored>,
    said: Said,
    over: bool,
}

impl Record {
    /// Is cancelled when a client wants the response stopped.
    pub(crate) fn stop(&self) -> CancellationToken {
        self.stored.stop.clone()
    }

    /// The response has ended. One that was deleted or cancelled meanwhile stays so.
    pub(crate) fn finish(&mut self, body: Value) {
        let conversation = self.said.get().map(|messages| messages.as_slice().into());
        self.end(body, conversation);
    }

    fn end(&mut self, body: Value, conversation: Option<Arc<[Message]>>) {
        if std::mem::replace(&mut self.over, true) || self.stored.stop.is_cancelled() {
            return;
        }
        let Stored { scope, input, .. } = &*self.stored;
        self.responses.put(&self.id, scope.clone(), body, input.clone(), conversation);
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let body = cancelled(self.stored.body.clone());
        self.end(body, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(responses: &Responses, id: &str) -> Record {
        responses.begin(id, None, json!({"id": id, "status": "in_progress"}), Vec::new(), Said::default())
    }

    fn status(responses: &Responses, id: &str) -> Option<String> {
        Some(responses.find(&None, id)?.body["status"].as_str()?.to_owned())
    }

    #[test]
    fn a_response_is_kept_as_it_stands() {
        let responses = Responses::new();
        let mut record = running(&responses, "a");
        assert_eq!(status(&responses, "a").as_deref(), Some("in_progress"));
        record.said.set(vec![Message::User(lf_core::Prose::default())]).unwrap();
        record.finish(json!({"status": "completed"}));
        drop(record);
        let stored = responses.find(&None, "a").unwrap();
        assert_eq!(stored.body["status"], "completed");
        assert_eq!(stored.conversation.as_ref().map(|messages| messages.len()), Some(1));
        assert!(responses.find(&Some("ns/p".to_owned()), "a").is_none(), "another project");
    }

    #[test]
    fn a_client_that_goes_away_cancels_its_response() {
        let responses = Responses::new();
        drop(running(&responses, "a"));
        assert_eq!(status(&responses, "a").as_deref(), Some("cancelled"));
    }

    #[test]
    fn a_cancelled_or_deleted_response_stays_so() {
        let responses = Responses::new();
        let mut record = running(&responses, "a");
        responses.cancel(&None, "a").unwrap();
        assert!(record.stop().is_cancelled());
        record.finish(json!({"status": "completed"}));
        assert_eq!(status(&responses, "a").as_deref(), Some("cancelled"));
        let mut record = running(&responses, "b");
        assert!(responses.delete(&None, "b"));
        record.finish(json!({"status": "completed"}));
        assert_eq!(status(&responses, "b"), None);
        assert!(!responses.delete(&None, "b"));
    }

    #[test]
    fn a_connection_keeps_its_last_responses_to_itself() {
        let responses = Responses::new();
        let (one, other) = (Aside::new(responses.clone()), Aside::new(responses.clone()));
        for at in 0..10 {
            one.begin(&at.to_string(), json!({"status": "completed"}), Said::default()).finish(json!({}));
        }
        let known: Vec<bool> = (0..10).map(|at| one.find(&at.to_string()).is_some()).collect();
        assert_eq!(known, [false, false, true, true, true, true, true, true, true, true]);
        assert!(other.find("9").is_none() && responses.find(&None, "9").is_none());
        assert!(!other.forget("9") && one.forget("9") && one.find("9").is_none());
        let scope = one.scope.clone();
        drop(one);
        assert!(responses.find(&scope, "8").is_none(), "it goes with the connection");
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes() {
        let responses = Responses::new();
        for at in 0..100 {
            let body = json!({"status": "completed", "text": "x".repeat(1024 * 1024)});
            let mut record = running(&responses, &at.to_string());
            record.finish(body);
        }
        responses.0.run_pending_tasks();
        assert!(responses.0.weighted_size() <= KEPT);
        assert!(status(&responses, "99").is_some());
    }
}
