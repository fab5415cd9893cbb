//! One server's session: a task that owns the connection, and a handle that publishes its state.
//!
//! The task connects when somebody wants it to, waits out the connection's life and takes it down. Callers wait for
//! a settled state, so that any number of them cause one connect; calls run on the callers' own futures.

mod backoff;
mod doubt;
mod follow;
mod live;

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use lf_core::McpServer;
use lf_core::project::Transport;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::connection::{Connection, Lane, STATUS_GRACE, Surroundings, ToolList};
use crate::failure::{Cause, Failure};
use crate::record::{Circuit, Record};
use backoff::{Backoff, FORGIVEN_AFTER};
use live::Parting;
pub(crate) use live::{InUse, Live};

/// Before a server that wants a login is asked again: the login may come at any time, and is no sign of health.
const LOGIN_PAUSE: Duration = Duration::from_millis(500);
/// For a child that closed its stdin to be over, and to have said how.
const STUCK_GRACE: Duration = STATUS_GRACE.saturating_add(Duration::from_millis(500));
/// A backoff that a caller sits out rather than doing without the server.
const SHORT_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) enum State {
    /// Not started, or ended in a way that the next use may mend; the reason of the last end.
    Idle(Option<Failure>),
    Connecting,
    Ready(Arc<Live>),
    /// No start is tried before `next`.
    Failed {
        failure: Failure,
        next: Instant,
    },
    /// Taken down for good; the pool makes a new session.
    Closed,
}

/// The handle.
pub(crate) struct Session {
    server: Arc<McpServer>,
    lane: Lane,
    record: Arc<Record>,
    state: watch::Sender<State>,
    wanted: Notify,
    closing: CancellationToken,
    /// Why it is taken down, where somebody said so.
    why: OnceLock<Failure>,
}

/// Why there is no connection to use.
pub(crate) enum Unready {
    Failed(Failure),
    /// This session is over; a new one may be made.
    Closed,
}

/// How a connection's life went on.
enum End {
    /// Asked for, or nobody used it.
    Closing,
    Lost(Failure),
    /// Nothing can be sent any more, or another is to take its place; what runs on it goes on.
    Retired(Option<Failure>),
}

impl Session {
    /// Makes a session and the task behind it; nothing is started yet.
    pub(crate) fn new(
        server: Arc<McpServer>,
        lane: Lane,
        surroundings: Arc<Surroundings>,
        closing: CancellationToken,
        idle: Duration,
    ) -> Arc<Self> {
        let session = Arc::new(Self {
            record: surroundings.records.of(&server),
            server,
            lane,
            state: watch::Sender::new(State::Idle(None)),
            wanted: Notify::new(),
            closing,
            why: OnceLock::new(),
        });
        session.record.set_circuit(Circuit::Closed);
        let tracker = surroundings.tracker.clone();
        let task = session.clone();
        tracker.spawn(async move { task.run(surroundings, idle).await });
        session
    }

    pub(crate) fn server(&self) -> &Arc<McpServer> {
        &self.server
    }

    pub(crate) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Takes the session down for good. Calls that run on it fail with `why`.
    pub(crate) fn close(&self, why: Failure) {
        let _ = self.why.set(why);
        self.closing.cancel();
    }

    /// The same after what runs on it now had this long to end.
    pub(crate) async fn leave(self: Arc<Self>, grace: Duration, why: Failure) {
        if let State::Ready(live) = self.state() {
            let _ = timeout(grace, live.unused()).await;
        }
        self.close(why);
    }

    /// The live connection, started if there is none. A backoff of up to a second is sat out; during a longer one the last
    /// failure comes at once. The wait is
    /// bounded by the server's startup timeout; dropping the future leaves the start running for others.
    pub(crate) async fn ready(&self) -> Result<InUse, Unready> {
        let mut state = self.state.subscribe();
        let mut waited = false;
        loop {
            let current = state.borrow_and_update().clone();
            match current {
                State::Ready(live) => {
                    if let Some(in_use) = live.enter() {
                        return Ok(in_use);
                    }
                }
                State::Closed => return Err(Unready::Closed),
                State::Failed { next, .. }
                    if !waited && Instant::now() < next && next <= Instant::now() + SHORT_WAIT =>
                {
                    sleep_until(next).await;
                    continue;
                }
                State::Failed { failure, next } if Instant::now() < next => {
                    // Who saw the failure happen need not be told that it is being waited out.
                    let failure = if waited { failure } else { with_next_try(failure, next) };
                    return Err(Unready::Failed(failure));
                }
                State::Idle(_) | State::Failed { .. } => self.wanted.notify_one(),
                State::Connecting => {}
            }
            if state.changed().await.is_err() {
                return Err(Unready::Closed);
            }
            waited = true;
        }
    }

    async fn run(&self, surroundings: Arc<Surroundings>, idle: Duration) {
        let closing = self.closing.clone();
        let mut backoff = Backoff::default();
        let server = self.server.name.as_str();
        loop {
            let wanted = tokio::select! {
                () = self.wanted.notified() => true,
                () = sleep(idle) => false,
                () = closing.cancelled() => false,
            };
            if !wanted {
                break;
            }
            if matches!(&*self.state.borrow(), State::Failed { next, .. } if Instant::now() < *next) {
                continue;
            }
            backoff.trying();
            self.record.set_circuit(backoff.circuit());
            let Some(opened) = self.open(&surroundings).await else { break };
            let (connection, list) = match opened {
                Ok(opened) => opened,
                Err(failure) => {
                    let delay = match failure.cause {
                        Cause::AuthRequired => LOGIN_PAUSE,
                        _ => backoff.failed_to_start(),
                    };
                    tracing::warn!(server, error = %failure, retry_in = ?delay, "MCP server is down");
                    self.failed(failure, delay, backoff.circuit());
                    continue;
                }
            };
            backoff.started();
            match self.live(connection, list, idle, &surroundings).await {
                End::Closing => break,
                End::Retired(None) => self.publish(State::Idle(None)),
                End::Lost(failure) | End::Retired(Some(failure)) => {
                    let delay = match failure.cause {
                        Cause::AuthRequired => LOGIN_PAUSE,
                        _ => backoff.died(),
                    };
                    tracing::warn!(server, error = %failure, retry_in = ?delay, "MCP session ended");
                    self.failed(failure, delay, backoff.circuit());
                }
            }
        }
        self.publish(State::Closed);
    }

    fn failed(&self, failure: Failure, delay: Duration, circuit: Circuit) {
        self.record.failed(&failure);
        self.record.set_circuit(circuit);
        self.publish(match delay {
            Duration::ZERO => State::Idle(Some(failure)),
            delay => State::Failed { failure, next: Instant::now() + delay },
        });
    }

    fn publish(&self, state: State) {
        // the other sessions with a server that has several are not the one whose state is shown
        if self.lane == Lane::default() {
            self.record.state_changed();
        }
        self.state.send_replace(state);
    }

    /// Opens a connection; `None` when the session is closed meanwhile.
    async fn open(&self, surroundings: &Surroundings) -> Option<Result<(Connection, ToolList), Failure>> {
        self.publish(State::Connecting);
        self.record.started();
        let started = Instant::now();
        let opened = tokio::select! {
            opened = Connection::open(&self.server, surroundings, self.lane) => opened,
            () = self.closing.cancelled() => return None,
        };
        // What was wanted until now is served by this start.
        let _ = self.wanted.notified().now_or_never();
        if let Ok((connection, list)) = &opened {
            tracing::info!(
                server = self.server.name,
                transport = self.server.transport.name(),
                protocol = connection.link.about.protocol,
                tools = list.tools.len(),
                elapsed = ?started.elapsed(),
                "MCP server is ready"
            );
        }
        Some(opened)
    }

    async fn live(
        &self,
        mut connection: Connection,
        list: ToolList,
        idle: Duration,
        surroundings: &Surroundings,
    ) -> End {
        let tracker = surroundings.tracker.clone();
        let link = connection.link.clone();
        let live = Arc::new(Live::new(link, list, self.server.clone(), self.record.clone(), tracker));
        self.publish(State::Ready(live.clone()));
        let end = tokio::select! {
            failure = connection.ended() => End::Lost(failure),
            () = live.given_up.cancelled() => match live.parting() {
                Parting::Lost(failure) => End::Lost(failure),
                Parting::Renewed => End::Retired(None),
            },
            () = stuck(&live) => End::Retired(Some(
                live.link.signals.end_of_sending().unwrap_or_else(|| Failure::new("its stdin is closed")),
            )),
            () = live.idle_for(idle) => End::Closing,
            never = live.follow() => match never {},
            never = self.outlasts() => match never {},
            () = self.closing.cancelled() => End::Closing,
        };
        match &end {
            End::Lost(failure) => {
                live.ended.send_replace(Some(failure.clone()));
                // Taking down a server that hangs takes seconds; its successor does not wait for that.
                surroundings.tracker.spawn(connection.close());
            }
            End::Retired(failure) => {
                let reason = failure.clone().unwrap_or_else(|| Failure::new("the session was renewed"));
                let closing = self.closing.clone();
                live.renew();
                surroundings.tracker.spawn(async move {
                    tokio::select! {
                        () = live.unused() => {}
                        _ = connection.ended() => {}
                        () = closing.cancelled() => {}
                    }
                    live.ended.send_replace(Some(reason));
                    connection.close().await;
                });
            }
            End::Closing => {
                let why = self.why.get().cloned();
                live.ended.send_replace(Some(why.unwrap_or_else(|| Failure::new("the session was closed"))));
                self.publish(State::Closed);
                connection.close().await;
            }
        }
        end
    }

    /// A connection that lasts shows that the server is well again.
    async fn outlasts(&self) -> Infallible {
        sleep(FORGIVEN_AFTER).await;
        self.record.set_circuit(Circuit::Closed);
        std::future::pending().await
    }
}

/// Waits until nothing can be sent any more, and then for a child that took no more to be over, which says more.
async fn stuck(live: &Live) {
    live.link.signals.stuck.cancelled().await;
    if matches!(live.server.transport, Transport::Stdio(_)) {
        sleep(STUCK_GRACE).await;
    }
}

fn with_next_try(failure: Failure, next: Instant) -> Failure {
    // a login is not waited for like a server that comes back
    if failure.cause == Cause::AuthRequired {
        return failure;
    }
    let seconds = next.saturating_duration_since(Instant::now()).as_secs_f64();
    Failure { reason: format!("{} (next try in {seconds:.1} s)", failure.reason), ..failure }
}
