//! One live connection to a server: opened with its first tool list, asked, and taken down.

mod answer;
mod asking;
mod client;
mod explain;
mod generations;
mod greeting;
mod ladder;
mod link;
mod listing;
mod rounds;
mod turns;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use lf_core::McpServer;
use lf_core::project::{Generation, HttpServer, StdioServer, Transport as Kind};
use lf_egress::{Clients, Egress};
use rmcp::service::RunningServiceCancellationToken;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::failure::{Cause, Failure};
use crate::oauth::OAuth;
use crate::record::{Record, Records};
use crate::relay::{Abilities, Relay};
use crate::secrets::Secrets;
use crate::spawn::{self, Launch, Process};
pub(crate) use asking::{Patience, Questions, ask_in_time, declined};
use explain::{Broken, explain, with_lines};
pub(crate) use generations::Generations;
use ladder::{Greeted, climb, unless_exited};
pub(crate) use link::{AskError, Link};
pub(crate) use listing::ToolList;

/// For the pipes of a child that ended to be read to their ends: what it started may hold them open.
const EXIT_GRACE: Duration = Duration::from_millis(500);
/// For the status of a child whose connection ended. The kernel closes the pipes of a process that dies before it hands
/// over how it died, and a busy machine takes its time in between.
pub(crate) const STATUS_GRACE: Duration = Duration::from_secs(2);
/// For cancellations to reach the server before its connection is closed.
const CANCEL_GRACE: Duration = Duration::from_millis(500);
/// For the library to close its side.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// What every connection needs from its pool.
pub(crate) struct Surroundings {
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) program: PathBuf,
    pub(crate) keeps: bool,
    pub(crate) tracker: TaskTracker,
    pub(crate) http: std::sync::OnceLock<Clients>,
    /// Certificates, in DER, of authorities that remote servers are trusted with besides the system's.
    pub(crate) egress: Egress,
    pub(crate) generations: Generations,
    pub(crate) oauth: OAuth,
    pub(crate) records: Records,
    pub(crate) relay: Relay,
}

/// What a session with a server is for: of these, there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Lane {
    /// The only generation in which the server is spoken to; `None` where the file or the server decides.
    pub(crate) generation: Option<Generation>,
    /// What the clients can be asked whose requests are passed on; `None` where the requests are our own.
    pub(crate) relays: Option<Abilities>,
}

impl Lane {
    /// For our own requests in one generation.
    pub(crate) fn of(generation: Generation) -> Self {
        Self { generation: Some(generation), relays: None }
    }
}

/// The side of a connection that its owner waits on and takes down.
pub(crate) struct Connection {
    pub(crate) link: Link,
    closing: RunningServiceCancellationToken,
    /// Resolves when the library's task for this connection is over.
    closed: Shared<BoxFuture<'static, ()>>,
    process: Option<Process>,
}

impl Connection {
    /// Starts or connects, greets and takes the first tool list, all within the server's startup timeout; in the
    /// generation that is wanted, or else in the one that the file or the server prefers.
    /// Dropping the future kills what was started.
    pub(crate) async fn open(
        server: &Arc<McpServer>,
        surroundings: &Surroundings,
        lane: Lane,
    ) -> Result<(Self, ToolList), Failure> {
        let deadline = Instant::now() + server.startup_timeout;
        let secrets = Arc::new(Secrets::of(server, &surroundings.environment));
        let opened = Box::pin(Self::try_open(server, surroundings, lane, deadline, &secrets)).await;
        opened.map_err(|failure| secrets.failure(&failure))
    }

    async fn try_open(
        server: &Arc<McpServer>,
        surroundings: &Surroundings,
        lane: Lane,
        deadline: Instant,
        secrets: &Arc<Secrets>,
    ) -> Result<(Self, ToolList), Failure> {
        let Greeted { running, signals, process } =
            climb(server, surroundings, lane, secrets, deadline).await?;
        let base_url = match &server.transport {
            Kind::Stdio(_) => "",
            Kind::Http(http) | Kind::Sse(http) => &http.base_url,
        };
        let link = Link::new(&running, signals, surroundings.tracker.clone(), base_url);
        let closing = running.cancellation_token();
        let closed = running.waiting().map(drop).boxed().shared();
        let mut connection = Self { link, closing, closed, process };
        let left = deadline.saturating_duration_since(Instant::now());
        let listing = connection.link.list(server, left, None);
        let listed = match &mut connection.process {
            Some(process) => unless_exited(process, listing).await.unwrap_or(Err(AskError::Closed)),
            None => listing.await,
        };
        match listed {
            Ok(tools) => {
                if lane.relays.is_some() {
                    connection.link.signals.inbox.open(server, &surroundings.relay.feed);
                }
                if let Some(process) = &connection.process {
                    process.remember_descendants().await;
                }
                Ok((connection, tools))
            }
            Err(error) => {
                surroundings.generations.forget(server);
                let is_silent = matches!(error, AskError::Closed);
                let failure = connection.link.failure_of(error, "`tools/list`");
                let process = connection.process.take();
                let broken = Broken { is_silent, ..Broken::told(failure) };
                let explained = explain(broken, process, server.startup_timeout).await;
                connection.close().await;
                Err(explained)
            }
        }
    }

    /// Waits until the connection ends, and says why, at most 2.5 s later. Cancel-safe.
    pub(crate) async fn ended(&mut self) -> Failure {
        let exited = async {
            match &mut self.process {
                Some(process) => process.exited().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = exited => {
                // What it wrote last is still in the pipe: let the reader see the end of it.
                let _ = timeout(EXIT_GRACE, self.closed.clone()).await;
                return self.describe_exit(status).await;
            }
            () = self.closed.clone() => {}
            () = self.link.signals.dead.cancelled() => {}
        }
        // one that was given up by us may live on
        if let Some(trouble) = self.nonsense() {
            return trouble;
        }
        if let Some(process) = &mut self.process
            && let Ok(status) = timeout(STATUS_GRACE, process.exited()).await
        {
            return self.describe_exit(status).await;
        }
        let failure = self.link.signals.trouble();
        failure.unwrap_or_else(|| Failure::new("the server closed the connection"))
    }

    async fn describe_exit(&self, status: Option<std::process::ExitStatus>) -> Failure {
        // given up by us, it fails at its next line, which says nothing of why
        if let Some(trouble) = self.nonsense() {
            return trouble;
        }
        let ended = explain::ended(status);
        match &self.process {
            Some(process) => with_lines(ended, &process.last_lines().await),
            None => ended,
        }
    }

    /// Why nothing more is read of what the server sends.
    fn nonsense(&self) -> Option<Failure> {
        self.link.signals.trouble().filter(|trouble| trouble.cause == Cause::ProtocolError)
    }

    /// Closes politely, then by force; at most 8.5 s, 6 of them for a child that ignores everything.
    pub(crate) async fn close(self) {
        let Self { link, closing, closed, process } = self;
        // A legacy server over HTTP works on for a client that only went away.
        let _ = timeout(CANCEL_GRACE, link.signals.cancelled()).await;
        // before its stdin is closed: what is in a session of its own is not found any more once its parent is gone
        if let Some(process) = &process {
            process.remember_descendants().await;
        }
        closing.cancel();
        let library = timeout(CLOSE_GRACE, closed);
        match process {
            Some(process) => drop(tokio::join!(library, process.stop())),
            None => drop(library.await),
        }
    }
}

impl Surroundings {
    /// The client for a server. Where none can be set up, such as for want of file descriptors, the next use tries again.
    pub(crate) fn client(&self, server: &HttpServer) -> Result<reqwest::Client, Failure> {
        if let Some(clients) = self.http.get() {
            return crate::http::client(clients, server);
        }
        let clients = crate::http::clients(self.egress.clone())?;
        crate::http::client(self.http.get_or_init(|| clients), server)
    }
}

fn launch(
    stdio: &StdioServer,
    surroundings: &Surroundings,
    secrets: Arc<Secrets>,
    record: Arc<Record>,
) -> Launch {
    Launch {
        command: stdio.command.clone(),
        args: stdio.args.iter().map(|arg| arg.expose().into()).collect(),
        environment: spawn::child_environment(&surroundings.environment, stdio),
        cwd: stdio.cwd.clone(),
        limits: stdio.limits,
        sandbox: stdio.sandbox.clone(),
        keeps: surroundings.keeps,
        pin: stdio.pin.clone(),
        own_program: surroundings.program.clone(),
        secrets,
        record,
    }
}
