//! All sessions of the process, by the server they are with.

mod login;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use indexmap::IndexMap;
use lf_core::McpServer;
use lf_core::operator::Operator;
use lf_core::project::{Disabled, Generation, StdioServer};
use lf_core::tool::Tool;
use lf_egress::Egress;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::{AskError, Generations, Lane, Surroundings};
use crate::failure::{Cause, Failure};
use crate::oauth::{Consent, OAuth};
use crate::open_session::OpenSession;
use crate::project_tools::ProjectTools;
use crate::record::{Activity, Records};
use crate::relay::Relay;
use crate::session::{InUse, Live, Session, State, Unready};
use crate::spawn;

/// For everything to be taken down: closed stdin and SIGTERM have their graces within this.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(9);

/// For calls that run when their server leaves the file. With the graces of a process that ends, within 6 s.
const RETIRE_GRACE: Duration = Duration::from_millis(500);

/// How long one chat waits for a server that is still starting and is not `required`: a first start through `npx` or
/// `uvx` usually takes 5 to 20 s. The start itself has the server's `startup_timeout`.
const LIST_WAIT: Duration = Duration::from_secs(20);

/// What a pool works with.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Our own environment, from which servers get the safe list and what they inherit by name.
    pub environment: Vec<(String, String)>,
    /// Our own executable: what `command: lf` runs.
    pub program: PathBuf,
    /// Whether this program calls [`lf_keeper::run`] before anything else: servers are kept then, unless their file wants
    /// none of it.
    pub keeps: bool,
    /// A session that was not used this long is closed.
    pub idle: Duration,
    /// How long a tool list is served before it is asked for again.
    pub list_ttl: Duration,
    /// How long a listing of tools waits for a server that is still starting and is not `required`. The start goes on
    /// in the background, for a later listing.
    pub list_wait: Duration,
    /// Certificates, in DER, of authorities that remote servers are trusted with besides the system's.
    pub roots: Vec<Vec<u8>>,
    /// What the operator says of hosts.
    pub operator: Arc<Operator>,
    /// The directory for tokens that people agreed to; without one they are gone with the process.
    pub tokens: Option<PathBuf>,
    /// Who agrees when a server wants it of a request.
    pub consent: Consent,
    /// The file in which is kept of which generation servers turned out to be; without one every start probes anew.
    pub generations: Option<PathBuf>,
}

impl PoolOptions {
    /// Sessions close after an hour without use; tool lists hold for five minutes; a listing waits 20 s for a start.
    pub fn new(environment: Vec<(String, String)>, program: PathBuf) -> Self {
        Self {
            environment,
            program,
            keeps: false,
            idle: Duration::from_secs(60 * 60),
            list_ttl: Duration::from_secs(5 * 60),
            list_wait: LIST_WAIT,
            roots: Vec::new(),
            operator: Arc::default(),
            tokens: None,
            consent: Consent::Absent,
            generations: None,
        }
    }
}

/// Where the session with a server stands.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerState {
    /// The file cannot be used as it is.
    Disabled {
        reason: String,
    },
    /// Not started, or to be started anew by the next use.
    Idle {
        last_error: Option<Failure>,
    },
    Connecting,
    Ready {
        protocol: String,
        peer: Option<PeerName>,
        tools: usize,
    },
    Failed {
        failure: Failure,
        retry_in: Duration,
    },
    /// Shut down.
    Closed,
}

impl ServerState {
    /// One word for tables and JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Failed { failure, .. } | Self::Idle { last_error: Some(failure) }
                if failure.cause == Cause::AuthRequired =>
            {
                "auth_required"
            }
            Self::Disabled { .. } => "disabled",
            Self::Idle { .. } => "idle",
            Self::Connecting => "connecting",
            Self::Ready { .. } => "ready",
            Self::Failed { .. } => "failed",
            Self::Closed => "closed",
        }
    }
}

/// What a server calls itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerName {
    pub name: String,
    pub version: String,
}

/// The sessions of this process. Two projects with an equal server share its session. Cheap to clone.
#[derive(Clone)]
pub struct SessionPool(Arc<Pool>);

struct Pool {
    surroundings: Arc<Surroundings>,
    sessions: Mutex<HashMap<Arc<McpServer>, Sessions>>,
    closing: CancellationToken,
    idle: Duration,
    list_ttl: Duration,
    list_wait: Duration,
}

/// The sessions with one server: the chats' one first, which is in the generation that the file or the server prefers.
type Sessions = IndexMap<Lane, Arc<Session>>;

impl SessionPool {
    /// Starts nothing. Its sessions need a runtime, and remote ones a rustls provider installed in the process.
    pub fn new(options: PoolOptions) -> Self {
        let tracker = TaskTracker::new();
        let egress = Egress::new(options.operator, options.roots);
        let oauth = OAuth::new(options.tokens, options.consent, egress.clone(), tracker.clone());
        let surroundings = Surroundings {
            oauth,
            environment: options.environment,
            program: options.program,
            keeps: options.keeps,
            tracker,
            http: OnceLock::new(),
            egress,
            generations: Generations::kept_in(options.generations),
            records: Records::default(),
            relay: Relay::default(),
        };
        Self(Arc::new(Pool {
            surroundings: Arc::new(surroundings),
            sessions: Mutex::default(),
            closing: CancellationToken::new(),
            idle: options.idle,
            list_ttl: options.list_ttl,
            list_wait: options.list_wait,
        }))
    }

    /// The tools of a project's servers; a disabled one is reported as down, with its reason.
    pub fn tools(
        &self,
        servers: impl IntoIterator<Item = (String, Result<Arc<McpServer>, Disabled>)>,
    ) -> ProjectTools {
        ProjectTools::new(self.clone(), servers.into_iter().collect::<IndexMap<_, _>>())
    }

    /// Where the session with this server stands, in the generation that it prefers; starts nothing.
    pub fn status(&self, server: &McpServer) -> ServerState {
        if self.0.closing.is_cancelled() {
            return ServerState::Closed;
        }
        self.state_of(server).map_or(ServerState::Idle { last_error: None }, describe)
    }

    /// What this server listed last, where it is connected; asks nothing.
    pub(crate) fn known_tools(&self, server: &McpServer) -> Arc<Vec<Tool>> {
        match self.state_of(server) {
            Some(State::Ready(live)) => live.known_tools(),
            _ => Arc::default(),
        }
    }

    fn state_of(&self, server: &McpServer) -> Option<State> {
        let session = self.sessions().get(server).and_then(|sessions| {
            sessions.get(&Lane::default()).or_else(|| sessions.values().next()).cloned()
        });
        session.map(|session| session.state())
    }

    /// The session with this server in one generation, or in the one that it prefers, started if needed. Callers share
    /// it with each other and with the chats.
    ///
    /// # Errors
    /// When the server cannot be reached, does not speak that generation, or the file has it speak another.
    pub async fn session(
        &self,
        server: &Arc<McpServer>,
        generation: Option<Generation>,
    ) -> Result<OpenSession, Failure> {
        if let (Some(pinned), Some(wanted)) = (server.protocol.generation(), generation)
            && pinned != wanted
        {
            return Err(Failure::hinted(
                format!("is not spoken to in the {} generation", wanted.name()),
                format!("the file says `protocol: {}`", server.protocol.name()),
            ));
        }
        let own = self.live(server).await?;
        match generation {
            Some(Generation::Legacy) if own.link.about.generation == Generation::Modern => {
                Ok(OpenSession(self.live_in(server, Lane::of(Generation::Legacy)).await?.clone()))
            }
            Some(Generation::Modern) if own.link.about.generation == Generation::Legacy => {
                Err(Failure::new(format!("speaks only older revisions: {}", own.link.about.protocol)))
            }
            _ => Ok(OpenSession(own.clone())),
        }
    }

    /// The program that this server's command would run, or `None` where there is none; starts nothing.
    pub fn program_of(&self, server: &StdioServer) -> Option<PathBuf> {
        let surroundings = &self.0.surroundings;
        spawn::program_of(server, &surroundings.environment, &surroundings.program)
    }

    /// What is known of this server's past; `None` when it was never wanted.
    pub fn activity(&self, server: &McpServer) -> Option<Activity> {
        self.0.surroundings.records.known(server).map(|record| record.activity())
    }

    /// Takes down the sessions with this server, if there are any; the next use starts another, whatever failed before,
    /// and finds out anew what the server speaks. Calls that are running fail at once, each with this as the reason: who
    /// restarts a server mostly does so because they hang.
    pub fn restart(&self, server: &McpServer) {
        self.end(server, &Failure::new("the server was restarted on request").of(Cause::Restarted));
    }

    /// The same for a server that left the file, of which nothing is kept; calls that are running have half a second to end by
    /// themselves, so that a process is gone within 6 s. Whoever uses it after this begins a session anew: callers look
    /// whether it is still in the file right before each call.
    pub fn retire(&self, server: &McpServer) {
        let why = Failure::new("the server left the configuration");
        for session in self.forget_all(server).into_iter().flat_map(IndexMap::into_values) {
            self.0.surroundings.tracker.spawn(session.leave(RETIRE_GRACE, why.clone()));
        }
        self.0.surroundings.records.forget(server);
    }

    /// Retires the servers for which this is false.
    pub fn retain(&self, keep: impl Fn(&McpServer) -> bool) {
        let servers: Vec<Arc<McpServer>> = self.sessions().keys().cloned().collect();
        servers.iter().filter(|server| !keep(server)).for_each(|server| self.retire(server));
    }

    fn end(&self, server: &McpServer, why: &Failure) {
        let sessions = self.forget_all(server);
        sessions.iter().flat_map(IndexMap::values).for_each(|session| session.close(why.clone()));
    }

    fn forget_all(&self, server: &McpServer) -> Option<Sessions> {
        self.0.surroundings.generations.forget(server);
        self.0.surroundings.relay.forget(server);
        self.sessions().remove(server)
    }

    /// Takes all sessions down: stdin, SIGTERM, SIGKILL. Returns within 9 s; nothing can be used afterwards.
    pub async fn shutdown(&self) {
        self.0.closing.cancel();
        self.sessions().clear();
        let tracker = &self.0.surroundings.tracker;
        tracker.close();
        if timeout(SHUTDOWN_LIMIT, tracker.wait()).await.is_err() {
            tracing::warn!("MCP sessions did not end in time");
        }
    }

    /// The tools of a server, for a chat: one that is still starting is waited for only as long as it is worth it.
    /// The start goes on in the background.
    pub(crate) async fn tools_for_chat(&self, server: &Arc<McpServer>) -> Result<Arc<Vec<Tool>>, Failure> {
        if server.required {
            return self.tools_of(server).await;
        }
        let wait = self.0.list_wait;
        match timeout(wait, self.live(server)).await {
            Ok(live) => self.listed(&live?, server).await,
            Err(_) => Err(Failure::new(format!("still starting after {wait:?}"))),
        }
    }

    /// The tools of a server, started if needed.
    pub(crate) async fn tools_of(&self, server: &Arc<McpServer>) -> Result<Arc<Vec<Tool>>, Failure> {
        self.listed(&self.live(server).await?, server).await
    }

    async fn listed(&self, live: &InUse, server: &McpServer) -> Result<Arc<Vec<Tool>>, Failure> {
        let tools = live.tools(self.0.list_ttl).await;
        if let Err(AskError::Outdated(_)) = &tools {
            self.outdated(server, live);
        }
        tools.map_err(|error| live.link.failure_of(error, "`tools/list`"))
    }

    /// Gives up a connection whose server has become another; the next use finds out what it speaks. What runs on it is
    /// not touched.
    pub(crate) fn outdated(&self, server: &McpServer, live: &Live) {
        self.0.surroundings.generations.forget(server);
        live.renew();
    }

    /// The live connection to a server, started if needed.
    pub(crate) async fn live(&self, server: &Arc<McpServer>) -> Result<InUse, Failure> {
        self.live_in(server, Lane::default()).await
    }

    pub(crate) async fn live_in(&self, server: &Arc<McpServer>, lane: Lane) -> Result<InUse, Failure> {
        // A session that closed for idleness just now is replaced by the second look.
        const LOOKS: usize = 2;
        for _ in 0..LOOKS {
            let Some(session) = self.session_in(server, lane) else { break };
            match session.ready().await {
                Ok(live) => return Ok(live),
                Err(Unready::Failed(failure)) => return Err(failure),
                Err(Unready::Closed) => self.forget(&session, lane),
            }
        }
        Err(Failure::new("its session is shut down"))
    }

    fn session_in(&self, server: &Arc<McpServer>, lane: Lane) -> Option<Arc<Session>> {
        if self.0.closing.is_cancelled() {
            return None;
        }
        let mut sessions = self.sessions();
        let session = sessions.entry(server.clone()).or_default().entry(lane).or_insert_with(|| {
            let closing = self.0.closing.child_token();
            Session::new(server.clone(), lane, self.0.surroundings.clone(), closing, self.0.idle)
        });
        Some(session.clone())
    }

    fn forget(&self, closed: &Arc<Session>, lane: Lane) {
        let mut sessions = self.sessions();
        let Some(of_server) = sessions.get_mut(closed.server()) else { return };
        if of_server.get(&lane).is_some_and(|session| Arc::ptr_eq(session, closed)) {
            of_server.shift_remove(&lane);
        }
        if of_server.is_empty() {
            sessions.remove(closed.server());
        }
    }

    /// Puts a session that turned out to be of another lane there, unless that has one.
    pub(crate) fn move_session(&self, server: &McpServer, from: Lane, to: Lane) {
        let mut sessions = self.sessions();
        let Some(of_server) = sessions.get_mut(server) else { return };
        if !of_server.contains_key(&to)
            && let Some(session) = of_server.shift_remove(&from)
        {
            of_server.insert(to, session);
        }
    }

    /// What the sessions with this server are for.
    pub(crate) fn lanes(&self, server: &McpServer) -> Vec<Lane> {
        let sessions = self.sessions();
        sessions.get(server).map_or_else(Vec::new, |of_server| of_server.keys().copied().collect())
    }

    /// Ends with the pool.
    pub(crate) fn until_shutdown(&self) -> CancellationToken {
        self.0.closing.child_token()
    }

    pub(crate) fn surroundings(&self) -> &Arc<Surroundings> {
        &self.0.surroundings
    }

    pub(crate) fn list_ttl(&self) -> Duration {
        self.0.list_ttl
    }

    pub(crate) fn list_wait(&self) -> Duration {
        self.0.list_wait
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<McpServer>, Sessions>> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn describe(state: State) -> ServerState {
    match state {
        State::Idle(last_error) => ServerState::Idle { last_error },
        State::Connecting => ServerState::Connecting,
        State::Ready(live) => ServerState::Ready {
            protocol: live.link.about.protocol.clone(),
            peer: live.link.about.server.clone().map(|(name, version)| PeerName { name, version }),
            tools: live.known_tools().len(),
        },
        State::Failed { failure, next } => {
            ServerState::Failed { failure, retry_in: next.saturating_duration_since(Instant::now()) }
        }
        // Closed for idleness: the next use makes another session.
        State::Closed => ServerState::Idle { last_error: None },
    }
}
