//! Sessions of legacy clients: bounded in number and idle time, and each bound to the URL it was begun at.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use thiserror::Error;

/// Sessions at the same time. Clients that are gone without a word leave theirs for an hour.
const MAX_SESSIONS: usize = 1024;
/// After the last message of a session.
const IDLE: Duration = Duration::from_secs(60 * 60);

/// Every session of the process.
pub(super) struct Sessions {
    local: LocalSessionManager,
    /// The scope each session was begun in.
    scopes: Mutex<HashMap<SessionId, Arc<str>>>,
}

impl Sessions {
    pub(super) fn new() -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config.keep_alive = Some(IDLE);
        Self { local, scopes: Mutex::default() }
    }

    fn scopes(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<str>>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
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
    #[error("there are {MAX_SESSIONS} sessions already")]
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
        if self.sessions.scopes().len() >= MAX_SESSIONS {
            self.full.store(true, Ordering::Release);
            return Err(SessionsError::Full);
        }
        let (id, transport) = self.local().create_session().await?;
        self.sessions.scopes().insert(id.clone(), self.scope.clone());
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
        let ours = self.sessions.scopes().get(id).is_some_and(|scope| *scope == self.scope);
        Ok(ours && self.local().has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionsError> {
        {
            let mut scopes = self.sessions.scopes();
            if scopes.get(id).is_some_and(|scope| *scope != self.scope) {
                return Ok(());
            }
            scopes.remove(id);
        }
        Ok(self.local().close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        Ok(self.local().create_stream(id, message).await?)
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
        Ok(self.local().create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        Ok(self.local().resume(id, last_event_id).await?)
    }
}
