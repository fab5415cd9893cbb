//! One server's session: a task that owns the connection, and a handle that publishes its state.
//!
//! The task connects when somebody wants it to, waits out the connection's life and takes it down. Callers wait for
//! a settled state, so that any number of them cause one connect; calls run on the callers' own futures.

mod backoff;
mod follow;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use lf_core::McpServer;
use lf_core::project::Generation;
use lf_core::tool::Tool;
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::connection::{AskError, Connection, Link, Surroundings, ToolList};
use crate::failure::Failure;
use backoff::Backoff;

/// Between two refreshes that changed tool lists cause.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// For which a list is kept whatever the server says of it, so that callers at the same time share one.
const LEAST_FRESH: Duration = Duration::from_secs(1);
/// A backoff that a caller sits out rather than doing without the server.
const SHORT_WAIT: Duration = Duration::from_secs(1);
/// For the session to find out why the connection under a call ended.
const REASON_GRACE: Duration = Duration::from_millis(80);

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
    /// The only generation in which the server is spoken to; `None` where the file or the server decides.
    wanted_generation: Option<Generation>,
    state: watch::Sender<State>,
    wanted: Notify,
    closing: CancellationToken,
}

/// Why there is no connection to use.
pub(crate) enum Unready {
    Failed(Failure),
    /// This session is over; a new one may be made.
    Closed,
}

/// A connection in use.
pub(crate) struct Live {
    pub(crate) link: Link,
    list: Mutex<ToolList>,
    /// One refresh at a time; when the last one because of a change was.
    refresh: AsyncMutex<Option<Instant>>,
    /// Counts lists that differ from the one before.
    changes: watch::Sender<u64>,
    in_flight: AtomicUsize,
    /// Uses that are calls of tools.
    calls: AtomicUsize,
    used: Mutex<Instant>,
    /// Set once the connection ended.
    ended: watch::Sender<Option<Failure>>,
    /// Cancelled by a caller who found the connection unusable.
    given_up: CancellationToken,
}

impl Session {
    /// Makes a session and the task behind it; nothing is started yet.
    pub(crate) fn new(
        server: Arc<McpServer>,
        wanted_generation: Option<Generation>,
        surroundings: Arc<Surroundings>,
        closing: CancellationToken,
        idle: Duration,
    ) -> Arc<Self> {
        let (state, _) = watch::channel(State::Idle(None));
        let session = Arc::new(Self { server, wanted_generation, state, wanted: Notify::new(), closing });
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

    /// Takes the session down for good.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// The live connection, started if there is none. A backoff of up to a second is sat out; during a longer one the last
    /// failure comes at once. The wait is
    /// bounded by the server's startup timeout; dropping the future leaves the start running for others.
    pub(crate) async fn ready(&self) -> Result<Arc<Live>, Unready> {
        let mut state = self.state.subscribe();
        let mut waited = false;
        loop {
            let current = state.borrow_and_update().clone();
            match current {
                State::Ready(live) if live.is_usable() => return Ok(live),
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
                State::Connecting | State::Ready(_) => {}
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
            let Some(opened) = self.open(&surroundings).await else { break };
            let (connection, list) = match opened {
                Ok(opened) => opened,
                Err(failure) => {
                    let delay = backoff.failed_to_start();
                    tracing::warn!(server, error = %failure, retry_in = ?delay, "MCP server is down");
                    self.state.send_replace(State::Failed { failure, next: Instant::now() + delay });
                    continue;
                }
            };
            backoff.started();
            let End::Lost(failure) = self.live(connection, list, idle, &surroundings).await else { break };
            tracing::warn!(server, error = %failure, "MCP session ended");
            self.state.send_replace(match backoff.died() {
                Duration::ZERO => State::Idle(Some(failure)),
                delay => State::Failed { failure, next: Instant::now() + delay },
            });
        }
        self.state.send_replace(State::Closed);
    }

    /// Opens a connection; `None` when the session is closed meanwhile.
    async fn open(&self, surroundings: &Surroundings) -> Option<Result<(Connection, ToolList), Failure>> {
        self.state.send_replace(State::Connecting);
        let started = Instant::now();
        let opened = tokio::select! {
            opened = Connection::open(&self.server, surroundings, self.wanted_generation) => opened,
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
        let live = Arc::new(Live::new(connection.link.clone(), list));
        self.state.send_replace(State::Ready(live.clone()));
        let end = tokio::select! {
            failure = connection.ended() => End::Lost(failure),
            () = live.given_up.cancelled() => End::Lost(
                live.link.signals.trouble().unwrap_or_else(|| Failure::new("it did not answer any more")),
            ),
            () = live.idle_for(idle) => End::Closing,
            never = live.follow(&self.server) => match never {},
            () = self.closing.cancelled() => End::Closing,
        };
        match &end {
            End::Lost(failure) => {
                live.ended.send_replace(Some(failure.clone()));
                // Taking down a server that hangs takes seconds; its successor does not wait for that.
                surroundings.tracker.spawn(connection.close());
            }
            End::Closing => {
                live.ended.send_replace(Some(Failure::new("the session was closed")));
                self.state.send_replace(State::Closed);
                connection.close().await;
            }
        }
        end
    }
}

enum End {
    /// Asked for, or nobody used it.
    Closing,
    Lost(Failure),
}

fn with_next_try(failure: Failure, next: Instant) -> Failure {
    let seconds = next.saturating_duration_since(Instant::now()).as_secs_f64();
    Failure { reason: format!("{} (next try in {seconds:.1} s)", failure.reason), hint: failure.hint }
}

impl Live {
    fn new(link: Link, list: ToolList) -> Self {
        Self {
            link,
            list: Mutex::new(list),
            refresh: AsyncMutex::new(None),
            changes: watch::Sender::new(0),
            in_flight: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            ended: watch::Sender::new(None),
            given_up: CancellationToken::new(),
        }
    }

    /// Marks the connection as used for as long as the guard lives.
    pub(crate) fn use_it(self: &Arc<Self>) -> InUse {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        InUse(self.clone())
    }

    /// Counts a running call for as long as the guard lives.
    pub(crate) fn call_it(self: &Arc<Self>) -> Calling {
        self.calls.fetch_add(1, Ordering::AcqRel);
        Calling(self.clone())
    }

    /// Gives the connection up: the next use makes a new one.
    pub(crate) fn give_up(&self) {
        self.given_up.cancel();
    }

    /// Why the connection ended, after a short wait for the session to find out.
    pub(crate) async fn reason(&self) -> Failure {
        let mut ended = self.ended.subscribe();
        let found = timeout(REASON_GRACE, ended.wait_for(Option::is_some)).await;
        let reason = match found {
            Ok(Ok(reason)) => reason.clone(),
            _ => self.link.signals.trouble(),
        };
        reason.unwrap_or_else(|| Failure::new("the connection ended"))
    }

    /// A number that grows whenever the list of tools turns out to be another.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn known_tools(&self) -> Arc<Vec<Tool>> {
        self.current().tools
    }

    /// The tools, listed anew when they are older than `ttl` or known to have changed.
    pub(crate) async fn tools(&self, server: &McpServer, ttl: Duration) -> Result<Arc<Vec<Tool>>, AskError> {
        let known = self.current();
        let ttl = match known.fresh {
            // A server that tells every change says enough: most say 0, for want of anything better.
            Some(fresh) if !self.link.signals.is_told() => ttl.min(fresh.max(LEAST_FRESH)),
            _ => ttl,
        };
        if known.listed.elapsed() < ttl && !self.link.signals.are_tools_changed() {
            return Ok(known.tools);
        }
        self.refreshed(server, known.listed).await
    }

    /// The tools, listed after `seen`. Any number of callers cause one request.
    pub(crate) async fn refreshed(
        &self,
        server: &McpServer,
        seen: Instant,
    ) -> Result<Arc<Vec<Tool>>, AskError> {
        let mut last_change = self.refresh.lock().await;
        let known = self.current();
        let changed = self.link.signals.are_tools_changed();
        if known.listed > seen && !changed {
            return Ok(known.tools);
        }
        if changed {
            if let Some(last) = *last_change {
                sleep_until(last + REFRESH_INTERVAL).await;
            }
            *last_change = Some(Instant::now());
        }
        // a change that was not listed in the end is still to be listed
        let mut pending = Pending { live: self, changed };
        let listed = self.link.list(server, server.timeout, Some(&known)).await;
        pending.changed &= listed.is_err();
        match listed {
            Ok(list) => {
                *self.list.lock().unwrap_or_else(PoisonError::into_inner) = list.clone();
                if !list.is_as(&known) {
                    self.changes.send_modify(|count| *count += 1);
                }
                Ok(list.tools)
            }
            // Busy with a call or out of reach for a moment: what it listed before still holds, also for those who
            // wait here, and the calls go on.
            Err(AskError::Timeout(_) | AskError::Unsent(_) | AskError::Broken(_) | AskError::TooLarge(_))
                if self.calls.load(Ordering::Acquire) > 0 =>
            {
                let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
                list.listed = Instant::now();
                Ok(known.tools)
            }
            Err(error) => {
                if !matches!(error, AskError::Refused { .. }) {
                    self.give_up();
                }
                Err(error)
            }
        }
    }

    /// When the tools were listed last.
    pub(crate) fn listed(&self) -> Instant {
        self.current().listed
    }

    fn current(&self) -> ToolList {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_usable(&self) -> bool {
        let over = self.given_up.is_cancelled() || self.link.signals.dead.is_cancelled();
        !over && self.ended.borrow().is_none() && !self.link.is_closed()
    }

    fn last_used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the connection was not used for `idle`.
    async fn idle_for(&self, idle: Duration) {
        loop {
            let until = self.last_used() + idle;
            if Instant::now() >= until && self.in_flight.load(Ordering::Acquire) == 0 {
                return;
            }
            // A call that runs longer than that is looked at again.
            sleep_until(until.max(Instant::now() + Duration::from_secs(1))).await;
        }
    }
}

/// A refresh because of a change; dropped before it is done, the change is still there.
struct Pending<'a> {
    live: &'a Live,
    changed: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.changed {
            self.live.link.signals.tools_changed();
        }
    }
}

/// A running call.
pub(crate) struct Calling(Arc<Live>);

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A use of a connection, from start to end.
pub(crate) struct InUse(Arc<Live>);

impl Drop for InUse {
    fn drop(&mut self) {
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}
