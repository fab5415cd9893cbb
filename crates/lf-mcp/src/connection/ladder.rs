//! From a configured server to a connection that is greeted: what is tried, in which order, and what is remembered.
//!
//! The probe comes first, as it costs a legacy server one round trip on a connection that goes on with `initialize`,
//! while the other order would leave every server that knows both generations in the older. A server that exits when it
//! is probed is started once more, for `initialize` alone. What a server turned out to be is remembered, so that this is
//! done once.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lf_core::McpServer;
use lf_core::project::{Generation, HttpServer, Transport as Kind};
use rmcp::RoleClient;
use rmcp::service::{RunningService, serve_directly_with_ct};
use rmcp::transport::Transport;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::client::{self, Client};
use super::explain::{Broken, explain, unanswered};
use super::greeting::{Manners, Opening, greet};
use super::{EXIT_GRACE, Lane, Surroundings, launch};
use crate::failure::Failure;
use crate::http::Access;
use crate::secrets::Secrets;
use crate::spawn::{self, Process};
use crate::sse::SseTransport;
use crate::stdio::StdioTransport;
use crate::tap::{Signals, Tap};

/// Silence after `server/discover` before `initialize` follows. Node.js servers are up within a second; a slower one
/// loses nothing by it, and one that ignores what it does not know is not kept waiting.
const PATIENCE: Duration = Duration::from_secs(2);
/// Over HTTP, where a slow answer is given up with its request, and the newer generation with it.
const HTTP_PATIENCE: Duration = Duration::from_secs(5);
/// Of the whole limit, for the first request alone.
const PATIENCE_SHARE: u32 = 4;
/// A probe, a fresh start for the one generation, and one for the other.
const ATTEMPTS: usize = 3;

/// A connection on which a server was greeted.
pub(super) struct Greeted {
    pub(super) running: RunningService<RoleClient, Client>,
    pub(super) signals: Arc<Signals>,
    pub(super) process: Option<Process>,
}

/// Reaches a server in the generation that is wanted, or else in the one it prefers. Dropping the future kills what was
/// started.
pub(super) async fn climb(
    server: &Arc<McpServer>,
    surroundings: &Surroundings,
    lane: Lane,
    secrets: &Arc<Secrets>,
    deadline: Instant,
) -> Result<Greeted, Failure> {
    let generations = &surroundings.generations;
    let pinned = lane.generation.or(server.protocol.generation());
    let mut opening = match pinned.or_else(|| generations.of(server)) {
        None => Opening::Probe,
        Some(Generation::Modern) => Opening::Discover,
        Some(Generation::Legacy) => Opening::Initialize,
    };
    let mut attempts = 1;
    loop {
        let attempt = Attempt { server, surroundings, lane, opening, deadline };
        let (broken, process) = match Box::pin(attempt.run(secrets.clone())).await {
            Ok(greeted) => {
                let revision =
                    greeted.running.peer().peer_info().map(|info| info.protocol_version.to_string());
                if pinned.is_none() {
                    let generation = Generation::of(&revision.unwrap_or_default());
                    generations.remember(server, generation, &surroundings.tracker);
                }
                return Ok(greeted);
            }
            Err(failed) => failed,
        };
        generations.forget(server);
        match broken.next {
            Some(next) if pinned.is_none() && attempts < ATTEMPTS && Instant::now() < deadline => {
                tracing::debug!(server = server.name, error = %broken.failure, ?next, "greeting again");
                opening = next;
                attempts += 1;
                if let Some(process) = process {
                    // One that ignores its end takes seconds; its successor does not wait for that.
                    surroundings.tracker.spawn(process.stop());
                }
            }
            _ => return Err(explain(broken, process, server.startup_timeout).await),
        }
    }
}

struct Attempt<'a> {
    server: &'a McpServer,
    surroundings: &'a Surroundings,
    lane: Lane,
    opening: Opening,
    deadline: Instant,
}

impl Attempt<'_> {
    async fn run(&self, secrets: Arc<Secrets>) -> Result<Greeted, (Broken, Option<Process>)> {
        let record = self.surroundings.records.of(self.server);
        let signals = Arc::new(Signals::new(secrets.clone(), record.clone()));
        let told = |failure| (Broken::told(failure), None);
        let mut process = None;
        let running = match &self.server.transport {
            Kind::Stdio(stdio) => {
                let launch = launch(stdio, self.surroundings, secrets, record);
                let (child, stdin, stdout) =
                    spawn::spawn(launch, &self.surroundings.tracker, &self.server.name)
                        .await
                        .map_err(told)?;
                let transport = StdioTransport::new(stdout, stdin, signals.clone());
                let greeting = Box::pin(self.greet(transport, &signals));
                unless_exited(process.insert(child), greeting).await.unwrap_or_else(|| Err(self.exited()))
            }
            Kind::Http(http) => {
                let client = self.surroundings.client(http).map_err(told)?;
                let transport =
                    crate::http::transport(client, http, self.access(http, &signals), signals.clone())
                        .map_err(told)?;
                self.greet(transport, &signals).await
            }
            Kind::Sse(http) => {
                let client = self.surroundings.client(http).map_err(told)?;
                let connecting =
                    SseTransport::connect(client, http, self.access(http, &signals), signals.clone());
                match timeout_at(self.deadline, connecting).await {
                    Ok(transport) => self.greet(transport.map_err(told)?, &signals).await,
                    Err(_) => Err(Broken::told(unanswered("the event stream"))),
                }
            }
        };
        match running {
            Ok(running) => Ok(Greeted { running, signals, process }),
            Err(broken) => Err((broken, process)),
        }
    }

    fn access(&self, http: &HttpServer, signals: &Arc<Signals>) -> Access {
        Access::new(self.server, http, &self.surroundings.oauth, signals.clone())
    }

    async fn greet<T: Transport<RoleClient> + 'static>(
        &self,
        transport: T,
        signals: &Arc<Signals>,
    ) -> Result<RunningService<RoleClient, Client>, Broken> {
        let mut tap = Tap { transport, signals: signals.clone() };
        // The library would go on waiting for the answer to a first request that nobody waits for any more.
        let abandoned = signals.dead.clone().drop_guard();
        let is_duplex = !matches!(self.server.transport, Kind::Http(_));
        let patience = if is_duplex { PATIENCE } else { HTTP_PATIENCE };
        let manners = Manners {
            opening: self.opening,
            protocol: self.server.protocol,
            client: client::config(self.lane),
            is_duplex,
            patience: patience.min(self.server.startup_timeout / PATIENCE_SHARE),
            deadline: self.deadline,
        };
        match Box::pin(greet(&mut tap, &manners)).await {
            Ok(info) => {
                abandoned.disarm();
                let client = Client {
                    lane: self.lane,
                    server: self.server.name.as_str().into(),
                    policy: self.server.elicitation,
                    signals: signals.clone(),
                };
                Ok(serve_directly_with_ct(client, tap, Some(info), CancellationToken::new()))
            }
            Err(broken) => Err(match signals.trouble() {
                Some(failure) if broken.is_silent => Broken { failure, is_silent: false, ..broken },
                _ => broken,
            }),
        }
    }

    fn exited(&self) -> Broken {
        match self.opening {
            Opening::Initialize => Broken::silent("ended before it answered `initialize`"),
            Opening::Discover | Opening::Probe => {
                Broken::silent("ended before it answered `server/discover`").or_else(Opening::Initialize)
            }
        }
    }
}

/// The outcome, unless the child ends and leaves none: something it started may hold its pipes open.
pub(super) async fn unless_exited<T>(process: &mut Process, outcome: impl Future<Output = T>) -> Option<T> {
    let mut outcome = std::pin::pin!(outcome);
    tokio::select! {
        outcome = &mut outcome => Some(outcome),
        _ = process.exited() => timeout(EXIT_GRACE, outcome).await.ok(),
    }
}
