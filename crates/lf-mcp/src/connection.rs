//! One live connection to a server: opened with its first tool list, asked, and taken down.

mod answer;
mod link;
mod listing;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use lf_core::McpServer;
use lf_core::project::{StdioServer, Transport as Kind};
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, RequestContext, RunningService,
    RunningServiceCancellationToken, serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::Transport;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::failure::{Failure, excerpt};
use crate::secrets::Secrets;
use crate::spawn::{self, Launch, Process};
use crate::sse::SseTransport;
use crate::stdio::StdioTransport;
use crate::tap::{Signals, Tap};
pub(crate) use link::{AskError, Link};
pub(crate) use listing::ToolList;

/// For a child whose connection ended to report how it ended.
const EXIT_GRACE: Duration = Duration::from_millis(500);
/// For the library to close its side.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// What every connection needs from its pool.
pub(crate) struct Surroundings {
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) program: PathBuf,
    pub(crate) tracker: TaskTracker,
    pub(crate) http: std::sync::OnceLock<Result<reqwest::Client, Failure>>,
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
    /// Starts or connects, shakes hands and takes the first tool list, all within the server's startup timeout.
    /// Dropping the future kills what was started.
    pub(crate) async fn open(
        server: &McpServer,
        surroundings: &Surroundings,
    ) -> Result<(Self, ToolList), Failure> {
        let deadline = Instant::now() + server.startup_timeout;
        let secrets = Arc::new(Secrets::of(server, &surroundings.environment));
        let opened = Box::pin(Self::try_open(server, surroundings, deadline, secrets.clone())).await;
        opened.map_err(|failure| secrets.failure(&failure))
    }

    async fn try_open(
        server: &McpServer,
        surroundings: &Surroundings,
        deadline: Instant,
        secrets: Arc<Secrets>,
    ) -> Result<(Self, ToolList), Failure> {
        let signals = Arc::new(Signals::new(secrets.clone()));
        let mut process = None;
        let handshake = match &server.transport {
            Kind::Stdio(stdio) => {
                let (child, stdin, stdout) =
                    spawn::spawn(&launch(stdio, surroundings, secrets), &surroundings.tracker, &server.name)?;
                let transport = StdioTransport::new(stdout, stdin, signals.clone());
                let shaking = Box::pin(handshake(transport, &signals, deadline));
                let shaken = unless_exited(process.insert(child), shaking).await;
                shaken.unwrap_or_else(|| Err(Broken::silent("ended before it answered `initialize`")))
            }
            Kind::Http(http) => {
                let client = surroundings.client()?;
                let transport = crate::http::transport(client, http, signals.clone())?;
                handshake(transport, &signals, deadline).await
            }
            Kind::Sse(http) => {
                let connecting = SseTransport::connect(surroundings.client()?, http, signals.clone());
                match timeout_at(deadline, connecting).await {
                    Ok(transport) => handshake(transport?, &signals, deadline).await,
                    Err(_) => Err(Broken::told(unanswered("the event stream"))),
                }
            }
        };
        let running = match handshake {
            Ok(running) => running,
            Err(broken) => return Err(explain(broken, process, server.startup_timeout).await),
        };
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
                if let Some(process) = &connection.process {
                    process.remember_descendants().await;
                }
                Ok((connection, tools))
            }
            Err(error) => {
                let is_silent = matches!(error, AskError::Closed);
                let failure = connection.link.failure_of(error, "`tools/list`");
                let process = connection.process.take();
                let explained = explain(Broken { failure, is_silent }, process, server.startup_timeout).await;
                connection.close().await;
                Err(explained)
            }
        }
    }

    /// Waits until the connection ends, and says why. Cancel-safe.
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
        if let Some(process) = &mut self.process
            && let Ok(status) = timeout(Duration::from_millis(50), process.exited()).await
        {
            return self.describe_exit(status).await;
        }
        let failure = self.link.signals.trouble();
        failure.unwrap_or_else(|| Failure::new("the server closed the connection"))
    }

    async fn describe_exit(&self, status: Option<std::process::ExitStatus>) -> Failure {
        let ending = status.map_or_else(|| "ended".to_owned(), spawn::ending);
        let Some(process) = &self.process else { return Failure::new(ending) };
        with_lines(Failure::new(ending), &process.last_lines().await)
    }

    /// Closes politely, then by force; at most 8 s, 6 of them for a child that ignores everything.
    pub(crate) async fn close(self) {
        let Self { closing, closed, process, .. } = self;
        closing.cancel();
        let library = timeout(CLOSE_GRACE, closed);
        match process {
            Some(process) => drop(tokio::join!(library, process.stop())),
            None => drop(library.await),
        }
    }
}

/// The outcome, unless the child ends and leaves none: something it started may hold its pipes open.
async fn unless_exited<T>(process: &mut Process, outcome: impl Future<Output = T>) -> Option<T> {
    let mut outcome = std::pin::pin!(outcome);
    tokio::select! {
        outcome = &mut outcome => Some(outcome),
        _ = process.exited() => timeout(EXIT_GRACE, outcome).await.ok(),
    }
}

impl Surroundings {
    fn client(&self) -> Result<reqwest::Client, Failure> {
        self.http.get_or_init(crate::http::client).clone()
    }
}

fn launch(stdio: &StdioServer, surroundings: &Surroundings, secrets: Arc<Secrets>) -> Launch {
    Launch {
        command: stdio.command.clone(),
        args: stdio.args.iter().map(|arg| arg.expose().into()).collect(),
        environment: spawn::child_environment(&surroundings.environment, stdio),
        cwd: stdio.cwd.clone(),
        own_program: surroundings.program.clone(),
        secrets,
    }
}

async fn handshake<T: Transport<RoleClient> + 'static>(
    transport: T,
    signals: &Arc<Signals>,
    deadline: Instant,
) -> Result<RunningService<RoleClient, Client>, Broken> {
    let tap = Tap { transport, signals: signals.clone() };
    let mode = ClientLifecycleMode::Initialize;
    let serving = serve_client_with_lifecycle_and_ct(Client, tap, mode, CancellationToken::new());
    match timeout_at(deadline, Box::pin(serving)).await {
        Ok(Ok(running)) => Ok(running),
        Ok(Err(error)) => Err(match signals.trouble() {
            Some(trouble) => Broken::told(trouble),
            None => describe_handshake(&error),
        }),
        Err(_) => Err(Broken::told(unanswered("`initialize`"))),
    }
}

/// A start that failed.
struct Broken {
    failure: Failure,
    /// The connection just ended: how the child ended says more.
    is_silent: bool,
}

impl Broken {
    fn told(failure: Failure) -> Self {
        Self { failure, is_silent: false }
    }

    fn silent(reason: &str) -> Self {
        Self { failure: Failure::new(reason), is_silent: true }
    }
}

fn unanswered(what: &str) -> Failure {
    Failure::hinted(
        format!("did not answer {what} in time"),
        "check that it is an MCP server of this transport, or raise `startup_timeout`",
    )
}

fn describe_handshake(error: &ClientInitializeError) -> Broken {
    match error {
        ClientInitializeError::ConnectionClosed(_) => {
            Broken::silent("closed the connection before it answered `initialize`")
        }
        ClientInitializeError::TransportError { .. } => {
            Broken::silent("`initialize` could not be sent to it")
        }
        ClientInitializeError::JsonRpcError(error) => {
            Broken::told(Failure::new(format!("refused `initialize`: {}", excerpt(&error.message, 200))))
        }
        _ => Broken::told(Failure::new("answered `initialize` with something else")),
    }
}

/// Adds what a child that failed to start wrote last, and how it ended.
async fn explain(broken: Broken, process: Option<Process>, limit: Duration) -> Failure {
    let Broken { mut failure, is_silent } = broken;
    failure.reason = failure.reason.replace("in time", &format!("within {limit:?}"));
    let Some(mut process) = process else { return failure };
    let status = match is_silent {
        true => timeout(EXIT_GRACE, process.exited()).await.ok().flatten(),
        false => None,
    };
    let lines = process.last_lines().await;
    let Some(status) = status else { return with_lines(failure, &lines) };
    let ending = spawn::ending(status);
    let is_denied = lines.iter().any(|line| {
        let line = line.to_lowercase();
        line.contains("permission denied") || line.contains("eacces")
    });
    // A shell says with 126 and 127 that it could not run the command it was given.
    let described = match status.code() {
        Some(127) => Failure::hinted(
            format!("Command not found: {ending}"),
            "install what the command starts, or correct the command",
        ),
        Some(code) if code == 126 || is_denied => Failure::hinted(
            format!("Permission denied: {ending}"),
            "check the permissions of the files and directories that the command uses",
        ),
        _ => Failure::new(ending),
    };
    with_lines(described, &lines)
}

fn with_lines(failure: Failure, lines: &[String]) -> Failure {
    if lines.is_empty() {
        return failure;
    }
    Failure { reason: format!("{}; stderr: {}", failure.reason, lines.join(" | ")), hint: failure.hint }
}

/// Our side of the protocol: it declares nothing, so that servers ask for nothing.
pub(crate) struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("lf", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), implementation)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    #[expect(
        deprecated,
        reason = "the library would answer with an empty list: a capability we do not declare"
    )]
    fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> impl Future<Output = Result<rmcp::model::ListRootsResult, ErrorData>> + Send + '_ {
        std::future::ready(Err(ErrorData::method_not_found::<rmcp::model::ListRootsRequestMethod>()))
    }
}
