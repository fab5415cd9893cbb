//! Sessions of legacy clients: bounded in number, idle time and what they keep, and each bound to the URL it was begun at.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionHandle, LocalSessionManager, LocalSessionManagerError, StreamableHttpMessageReceiver,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use thiserror::Error;
use tokio::time::Instant;

/// Sessions at the same time. Many clients leave theirs behind without a word: the one unused longest makes room.
const MAX_SESSIONS: usize = 1024;
/// After the last message of a session.
const IDLE: Duration = Duration::from_secs(60 * 60);

/// Every session of the process.
pub(super) struct Sessions {
    local: LocalSessionManager,
    known: Mutex<HashMap<SessionId, Known>>,
}

struct Known {
    /// Where it was begun.
    scope: Arc<str>,
    used: Instant,
    /// Streams that somebody reads.
    open: usize,
}

impl Sessions {
    pub(super) fn new() -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(IDLE);
        Self { local, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<SessionId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a stream of a session as read for as long as the guard lives.
    fn open(self: &Arc<Self>, id: &SessionId) -> Open {
        if let Some(known) = self.known().get_mut(id) {
            known.open += 1;
        }
        Open { sessions: self.clone(), id: id.clone() }
    }

    async fn make_room(&self) -> Result<(), SessionsError> {
        let unused = {
            let mut known = self.known();
            if known.len() < MAX_SESSIONS {
                return Ok(());
            }
            let idle = known.iter().filter(|(_, known)| known.open == 0);
            let unused = idle.min_by_key(|(_, known)| known.used).map(|(id, _)| id.clone());
            let unused = unused.ok_or(SessionsError::Full)?;
            known.remove(&unused);
            unused
        };
        tracing::debug!("a session of an MCP client makes room for another");
        Ok(self.local.close_session(&unused).await?)
    }

    async fn handle(&self, id: &SessionId) -> Result<LocalSessionHandle, SessionsError> {
        let handle = self.local.sessions.read().await.get(id).cloned();
        handle.ok_or_else(|| LocalSessionManagerError::SessionNotFound(id.clone()).into())
    }
}

/// A stream that is being read.
struct Open {
    sessions: Arc<Sessions>,
    id: SessionId,
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(known) = self.sessions.known().get_mut(&self.id) {
            known.open = known.open.saturating_sub(1);
            known.used = Instant::now();
        }
    }
}

/// The sessions as one URL sees them.
pub(super) struct Scoped {
    sessions: Arc<Sessions>,
    scope: Arc<str>,
    full: AtomicBool,
}

#[derive(Debug, Error)]
pub(super) enum SessionsError {
    #[error("there are {MAX_SESSIONS} sessions, and all are in use")]
    Full,
    #[error(transparent)]
    Session(#[from] LocalSessionManagerError),
}

impl Scoped {
    pub(super) fn new(sessions: Arc<Sessions>, scope: &str) -> Self {
        Self { sessions, scope: scope.into(), full: AtomicBool::new(false) }
    }

    /// Whether a session was wanted and there was no room.
    pub(super) fn was_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    fn local(&self) -> &LocalSessionManager {
        &self.sessions.local
    }
}

impl SessionManager for Scoped {
    type Error = SessionsError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionsError> {
        let room = self.sessions.make_room().await;
        if let Err(SessionsError::Full) = room {
            self.full.store(true, Ordering::Release);
        }
        room?;
        let (id, transport) = self.local().create_session().await?;
        let known = Known { scope: self.scope.clone(), used: Instant::now(), open: 0 };
        self.sessions.known().insert(id.clone(), known);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionsError> {
        Ok(self.local().initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionsError> {
        {
            let mut known = self.sessions.known();
            match known.get_mut(id).filter(|known| known.scope == self.scope) {
                Some(known) => known.used = Instant::now(),
                None => return Ok(false),
            }
        }
        Ok(self.local().has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionsError> {
        {
            let mut known = self.sessions.known();
            if known.get(id).is_some_and(|known| known.scope != self.scope) {
                return Ok(());
            }
            known.remove(id);
        }
        Ok(self.local().close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let open = self.sessions.open(id);
        let handle = self.sessions.handle(id).await?;
        let receiver =
            handle.establish_request_wise_channel().await.map_err(LocalSessionManagerError::from)?;
        let pushed = handle.push_message(message, receiver.http_request_id).await;
        pushed.map_err(LocalSessionManagerError::from)?;
        let answer = Answer { receiver, handle, is_whole: false, _open: open };
        Ok(stream::unfold(answer, |mut answer| async { Some((answer.next().await?, answer)) }))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionsError> {
        Ok(self.local().accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let open = self.sessions.open(id);
        let events = self.local().create_standalone_stream(id).await?;
        Ok(while_open(events, open))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let open = self.sessions.open(id);
        let events = self.local().resume(id, last_event_id).await?;
        Ok(while_open(events, open))
    }
}

fn while_open<S: Stream>(events: S, open: Open) -> impl Stream<Item = S::Item> {
    events.map(move |event| {
        let _reading = &open;
        event
    })
}

/// What is said to one request, up to its answer.
struct Answer {
    receiver: StreamableHttpMessageReceiver,
    handle: LocalSessionHandle,
    is_whole: bool,
    _open: Open,
}

impl Answer {
    async fn next(&mut self) -> Option<ServerSseMessage> {
        if self.is_whole {
            self.forget();
            return None;
        }
        let event = self.receiver.inner.recv().await?;
        let answers = |message: &ServerJsonRpcMessage| {
            matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))
        };
        self.is_whole = event.message.as_deref().is_some_and(answers);
        Some(event)
    }

    /// Somebody took the whole answer, so nobody will come back for it. Otherwise rmcp keeps it for a minute, and then until
    /// the session's next message, which may never come.
    fn forget(&mut self) {
        self.receiver.inner.close();
        if let Some(request) = self.receiver.http_request_id {
            // not waited for: where there is no room for it, the minute has to do
            let _ = self.handle.close_request_wise_channel(request).now_or_never();
        }
    }
}

#[cfg(test)]
mod tests;
