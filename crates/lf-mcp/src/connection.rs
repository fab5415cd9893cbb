//! One live connection to a server: opened with its first tool list, asked, and taken down.

mod answer;
mod listing;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use lf_core::McpServer;
use lf_core::project::{StdioServer, Transport as Kind};
use lf_core::tool::{ToolOutput, ToolProgress};
use rmcp::model::{
    CallToolRequestParams, CancelledNotificationParam, ClientCapabilities, ClientConfig, ClientRequest,
    Implementation, ProtocolVersion, RequestId, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, PeerRequestOptions, RequestContext, RequestHandle,
    RunningService, RunningServiceCancellationToken, ServiceError, serve_client_with_lifecycle_and_ct,
};
use rmcp::transport::Transport;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::failure::{Failure, excerpt};
use crate::spawn::{self, Launch, Process};
use crate::sse::SseTransport;
use crate::stdio::{MAX_LINE, OVERSIZED, StdioTransport};
use crate::tap::{Signals, Tap};
pub(crate) use listing::ToolList;

/// For a child whose connection ended to report how it ended.
const EXIT_GRACE: Duration = Duration::from_millis(500);
/// For the library to close its side.
const CLOSE_GRACE: Duration = Duration::from_secs(2);
/// Bytes of one result over HTTP.
const MAX_RESULT: usize = 16 * 1024 * 1024;

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
    secrets: Vec<String>,
}

/// The side of a connection that calls go through; cheap to clone.
#[derive(Clone)]
pub(crate) struct Link {
    peer: Peer<RoleClient>,
    pub(crate) signals: Arc<Signals>,
    tracker: TaskTracker,
    pub(crate) about: Arc<About>,
}

/// What the server said of itself.
#[derive(Debug, PartialEq)]
pub(crate) struct About {
    pub(crate) protocol: String,
    /// Name and version.
    pub(crate) server: Option<(String, String)>,
}

/// Why a request got no usable answer.
#[derive(Debug)]
pub(crate) enum AskError {
    Timeout(Duration),
    /// The connection ended before the answer.
    Closed,
    /// The request could not be sent.
    Unsent(Failure),
    Refused {
        message: String,
        code: i64,
    },
    TooLarge(usize),
}

impl Connection {
    /// Starts or connects, shakes hands and takes the first tool list, all within the server's startup timeout.
    /// Dropping the future kills what was started.
    pub(crate) async fn open(
        server: &McpServer,
        surroundings: &Surroundings,
    ) -> Result<(Self, ToolList), Failure> {
        let deadline = Instant::now() + server.startup_timeout;
        let secrets = secrets(server);
        let opened = Box::pin(Self::try_open(server, surroundings, deadline)).await;
        opened.map_err(|failure| failure.scrubbed(&secrets))
    }

    async fn try_open(
        server: &McpServer,
        surroundings: &Surroundings,
        deadline: Instant,
    ) -> Result<(Self, ToolList), Failure> {
        let signals = Arc::new(Signals::default());
        let mut process = None;
        let handshake = match &server.transport {
            Kind::Stdio(stdio) => {
                let (child, stdin, stdout) =
                    spawn::spawn(&launch(stdio, surroundings), &surroundings.tracker, &server.name)?;
                process = Some(child);
                let transport = StdioTransport::new(stdout, stdin, signals.clone());
                handshake(transport, &signals, deadline).await
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
        let link = Link::new(&running, signals, surroundings.tracker.clone());
        let secrets = secrets(server);
        let closing = running.cancellation_token();
        let closed = running.waiting().map(drop).boxed().shared();
        let mut connection = Self { link, closing, closed, process, secrets };
        let left = deadline.saturating_duration_since(Instant::now());
        match connection.link.list(server, left, None).await {
            Ok(tools) => {
                if let Some(process) = &connection.process {
                    process.remember_descendants();
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
        failure.unwrap_or_else(|| Failure::new("the server closed the connection")).scrubbed(&self.secrets)
    }

    async fn describe_exit(&self, status: Option<std::process::ExitStatus>) -> Failure {
        let ending = status.map_or_else(|| "ended".to_owned(), spawn::ending);
        let Some(process) = &self.process else { return Failure::new(ending) };
        with_lines(Failure::new(ending), &process.last_lines().await).scrubbed(&self.secrets)
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

impl Surroundings {
    fn client(&self) -> Result<reqwest::Client, Failure> {
        self.http.get_or_init(crate::http::client).clone()
    }
}

fn launch(stdio: &StdioServer, surroundings: &Surroundings) -> Launch {
    Launch {
        command: stdio.command.clone(),
        args: stdio.args.iter().map(|arg| arg.expose().into()).collect(),
        environment: spawn::child_environment(&surroundings.environment, stdio),
        cwd: stdio.cwd.clone(),
        own_program: surroundings.program.clone(),
    }
}

/// Values that no message may show. Short ones are left: `1` or `true` would blank out half of every message.
fn secrets(server: &McpServer) -> Vec<String> {
    const SHORTEST: usize = 8;
    let values = match &server.transport {
        Kind::Stdio(stdio) => &stdio.env,
        Kind::Http(http) | Kind::Sse(http) => &http.headers,
    };
    let exposed = values.iter().flat_map(|(_, value)| {
        let value = value.expose();
        [Some(value), value.split_once(' ').map(|(_, credentials)| credentials)]
    });
    exposed.flatten().filter(|value| value.len() >= SHORTEST).map(str::to_owned).collect()
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
        ClientInitializeError::TransportError { .. } => Broken::silent("`initialize` could not be sent to it"),
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

    #[expect(deprecated, reason = "the library would answer with an empty list: a capability we do not declare")]
    fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> impl Future<Output = Result<rmcp::model::ListRootsResult, ErrorData>> + Send + '_ {
        std::future::ready(Err(ErrorData::method_not_found::<rmcp::model::ListRootsRequestMethod>()))
    }
}

impl Link {
    fn new(
        running: &RunningService<RoleClient, Client>,
        signals: Arc<Signals>,
        tracker: TaskTracker,
    ) -> Self {
        let peer = running.peer().clone();
        let about = peer.peer_info().map(|info| About {
            protocol: info.protocol_version.to_string(),
            server: info.server_info.as_ref().map(|server| (server.name.clone(), server.version.clone())),
        });
        let about = about.unwrap_or(About { protocol: String::new(), server: None });
        Self { peer, signals, tracker, about: Arc::new(about) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.peer.is_transport_closed()
    }

    /// Runs a tool. `limit` starts anew with each report of progress; `total` bounds it all. Dropping the future
    /// tells the server that the call is cancelled.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        (limit, total): (Duration, Duration),
        progress: &(dyn Fn(ToolProgress) + Send + Sync),
    ) -> Result<ToolOutput, AskError> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.clone());
        let request = ClientRequest::CallToolRequest(rmcp::model::CallToolRequest::new(params));
        let result = self.ask(request, (limit, total), progress).await?;
        answer::output(&result)
    }

    async fn ask(
        &self,
        request: ClientRequest,
        (limit, total): (Duration, Duration),
        progress: &(dyn Fn(ToolProgress) + Send + Sync),
    ) -> Result<ServerResult, AskError> {
        let now = Instant::now();
        let end = now + total;
        let mut idle_end = now + limit;
        let sending = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let mut handle: RequestHandle<RoleClient> = match timeout_at(idle_end.min(end), sending).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(error)) => return Err(ask_error(error, &self.signals)),
            Err(_) => return Err(AskError::Timeout(limit)),
        };
        let mut reports = self.signals.progress(handle.progress_token.clone());
        let mut cancel = CancelOnDrop { link: self, id: Some(handle.id.clone()) };
        let mut last = f64::NEG_INFINITY;
        let mut report = |update: ToolProgress| {
            // The protocol wants it to increase; what does not was overtaken.
            if update.progress > last {
                last = update.progress;
                progress(update);
            }
        };
        let answer = loop {
            tokio::select! {
                biased;
                Some(update) = reports.receiver.recv() => {
                    idle_end = Instant::now() + limit;
                    report(update);
                }
                answer = &mut handle.rx => break answer,
                () = sleep_until(idle_end.min(end)) => {
                    return Err(AskError::Timeout(if end < idle_end { total } else { limit }));
                }
            }
        };
        cancel.id = None;
        while let Ok(update) = reports.receiver.try_recv() {
            report(update);
        }
        answer.map_err(|_| AskError::Closed)?.map_err(|error| ask_error(error, &self.signals))
    }

    /// What to tell of a server that did not answer a request of ours.
    pub(crate) fn failure_of(&self, error: AskError, what: &str) -> Failure {
        match error {
            AskError::Timeout(_) => unanswered(what),
            AskError::Closed => {
                let trouble = self.signals.trouble();
                trouble.unwrap_or_else(|| Failure::new(format!("closed the connection at {what}")))
            }
            AskError::Unsent(failure) => failure,
            AskError::Refused { message, code } => {
                Failure::new(format!("refused {what}: {message} (code {code})"))
            }
            AskError::TooLarge(limit) => {
                Failure::new(format!("answered {what} with more than {limit} bytes"))
            }
        }
    }
}

fn ask_error(error: ServiceError, signals: &Signals) -> AskError {
    match error {
        ServiceError::McpError(error) if error.code == OVERSIZED => AskError::TooLarge(MAX_LINE),
        ServiceError::McpError(error) => {
            AskError::Refused { message: excerpt(&error.message, 2_000), code: i64::from(error.code.0) }
        }
        ServiceError::TransportSend(error) => {
            let failure = signals.trouble().unwrap_or_else(|| Failure::new(excerpt(&error.error.to_string(), 200)));
            if is_oversized(&failure) { AskError::TooLarge(MAX_RESULT) } else { AskError::Unsent(failure) }
        }
        ServiceError::TransportClosed if signals.trouble().as_ref().is_some_and(is_oversized) => {
            AskError::TooLarge(MAX_RESULT)
        }
        ServiceError::Timeout { timeout } => AskError::Timeout(timeout),
        ServiceError::TransportClosed => AskError::Closed,
        other => AskError::Refused { message: excerpt(&other.to_string(), 200), code: -32_603 },
    }
}

/// The library has the same words for a body and for an event that is too large.
fn is_oversized(failure: &Failure) -> bool {
    failure.reason.contains("exceeded the maximum size")
}

/// Tells the server that nobody waits for this request any more.
struct CancelOnDrop<'a> {
    link: &'a Link,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        const SEND_LIMIT: Duration = Duration::from_secs(5);
        let Some(id) = self.id.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let peer = self.link.peer.clone();
        self.link.tracker.spawn_on(
            async move {
                let params = CancelledNotificationParam::new(
                    Some(id),
                    Some("the caller does not wait any longer".to_owned()),
                );
                let _ = timeout(SEND_LIMIT, peer.notify_cancelled(params)).await;
            },
            &runtime,
        );
    }
}
