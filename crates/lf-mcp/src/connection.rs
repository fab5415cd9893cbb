//! One live connection to a server: opened with its first tool list, asked, and taken down.

mod answer;
mod client;
mod elicitation;
mod explain;
mod greeting;
mod ladder;
mod link;
mod listing;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use lf_core::McpServer;
use lf_core::project::{Generation, StdioServer, Transport as Kind};
use rmcp::service::RunningServiceCancellationToken;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use crate::failure::Failure;
use crate::secrets::Secrets;
use crate::spawn::{self, Launch, Process};
use explain::{Broken, explain, with_lines};
pub(crate) use ladder::Generations;
use ladder::{Greeted, climb, unless_exited};
pub(crate) use link::{AskError, Link};
pub(crate) use listing::ToolList;

/// For a child whose connection ended to report how it ended.
const EXIT_GRACE: Duration = Duration::from_millis(500);
/// For cancellations to reach the server before its connection is closed.
const CANCEL_GRACE: Duration = Duration::from_millis(500);
/// For the library to close its side.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// What every connection needs from its pool.
pub(crate) struct Surroundings {
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) program: PathBuf,
    pub(crate) tracker: TaskTracker,
    pub(crate) http: std::sync::OnceLock<Result<reqwest::Client, Failure>>,
    pub(crate) generations: Generations,
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
        wanted: Option<Generation>,
    ) -> Result<(Self, ToolList), Failure> {
        let deadline = Instant::now() + server.startup_timeout;
        let secrets = Arc::new(Secrets::of(server, &surroundings.environment));
        let opened = Box::pin(Self::try_open(server, surroundings, wanted, deadline, &secrets)).await;
        opened.map_err(|failure| secrets.failure(&failure))
    }

    async fn try_open(
        server: &Arc<McpServer>,
        surroundings: &Surroundings,
        wanted: Option<Generation>,
        deadline: Instant,
        secrets: &Arc<Secrets>,
    ) -> Result<(Self, ToolList), Failure> {
        let Greeted { running, signals, process } =
            climb(server, surroundings, wanted, secrets, deadline).await?;
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

    /// Closes politely, then by force; at most 8.5 s, 6 of them for a child that ignores everything.
    pub(crate) async fn close(self) {
        let Self { link, closing, closed, process } = self;
        // A legacy server over HTTP works on for a client that only went away.
        let _ = timeout(CANCEL_GRACE, link.signals.cancelled()).await;
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
