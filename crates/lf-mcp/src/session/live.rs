//! A connection in use: who uses it, what its tools are, and how it is given up.

use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lf_core::McpServer;
use lf_core::tool::Tool;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::{AskError, Link, ToolList};
use crate::failure::{Cause, Failure};
use crate::record::Record;

/// Between two refreshes that changed tool lists cause.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// For which a list is kept whatever the server says of it, so that callers at the same time share one.
const LEAST_FRESH: Duration = Duration::from_secs(1);
/// For which a caller waits for a list that is known to be old, before it is given the old one.
const REFRESH_WAIT: Duration = Duration::from_secs(2);
/// For the session to find out why the connection under a call ended: a little longer than that takes. The call has failed
/// by then, and what it failed of is worth the wait.
const REASON_GRACE: Duration = Duration::from_secs(3);

/// A connection in use.
pub(crate) struct Live {
    pub(crate) link: Link,
    pub(super) server: Arc<McpServer>,
    pub(super) record: Arc<Record>,
    pub(super) tracker: TaskTracker,
    list: Mutex<ToolList>,
    /// One refresh at a time; when the last one because of a change was.
    refresh: AsyncMutex<Option<Instant>>,
    /// Counts lists that differ from the one before.
    changes: watch::Sender<u64>,
    pub(super) load: watch::Sender<Load>,
    used: Mutex<Instant>,
    /// Set once the connection ended.
    pub(super) ended: watch::Sender<Option<Failure>>,
    /// Cancelled by a caller who found the connection unusable.
    pub(super) given_up: CancellationToken,
    /// How it was given up.
    parting: Mutex<Option<Parting>>,
    /// Whether somebody is finding out whether the server still answers.
    pub(super) is_doubted: AtomicBool,
}

/// Who uses the connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    pub(super) in_flight: usize,
    /// Uses that are calls of tools.
    pub(super) calls: usize,
    /// Calls in a row that were not answered in time.
    pub(super) unanswered: usize,
    /// Nobody may begin to use it.
    is_over: bool,
}

/// How a connection is given up that did not end by itself.
#[derive(Debug, Clone)]
pub(super) enum Parting {
    /// It is of no use.
    Lost(Failure),
    /// Another takes its place; what runs on it goes on.
    Renewed,
}

impl Live {
    pub(super) fn new(
        link: Link,
        list: ToolList,
        server: Arc<McpServer>,
        record: Arc<Record>,
        tracker: TaskTracker,
    ) -> Self {
        Self {
            link,
            server,
            record,
            tracker,
            list: Mutex::new(list),
            refresh: AsyncMutex::new(None),
            changes: watch::Sender::new(0),
            load: watch::Sender::default(),
            used: Mutex::new(Instant::now()),
            ended: watch::Sender::new(None),
            given_up: CancellationToken::new(),
            parting: Mutex::new(None),
            is_doubted: AtomicBool::new(false),
        }
    }

    /// Begins to use the connection, for as long as the guard lives. `None` when it is over: nobody who got the guard
    /// has the connection closed under it for being unused.
    pub(super) fn enter(self: &Arc<Self>) -> Option<InUse> {
        if !self.is_usable() {
            return None;
        }
        let entered = self.load.send_if_modified(|load| {
            load.in_flight += usize::from(!load.is_over);
            !load.is_over
        });
        entered.then(|| InUse(self.clone()))
    }

    /// Marks the connection as used for as long as the guard lives, whatever its state.
    pub(crate) fn use_it(self: &Arc<Self>) -> InUse {
        self.load.send_modify(|load| load.in_flight += 1);
        InUse(self.clone())
    }

    /// Counts a running call for as long as the guard lives.
    pub(crate) fn call_it(self: &Arc<Self>) -> Calling {
        self.load.send_modify(|load| load.calls += 1);
        self.record.called();
        Calling(self.clone())
    }

    /// Notes that a call was answered, or that it was not.
    pub(crate) fn call_ended<T>(self: &Arc<Self>, outcome: &Result<T, AskError>) {
        match outcome {
            Ok(_) | Err(AskError::Refused { .. } | AskError::TooLarge(_) | AskError::VisitFirst { .. }) => {
                self.load.send_if_modified(|load| std::mem::take(&mut load.unanswered) > 0);
            }
            Err(error) => {
                self.record.call_failed();
                if let AskError::Timeout(limit) = error {
                    self.load.send_modify(|load| load.unanswered += 1);
                    self.doubt(*limit);
                }
            }
        }
    }

    /// Probes the server where something else than a call was not answered in time.
    pub(crate) fn doubt_if_silent<T>(self: &Arc<Self>, outcome: &Result<T, AskError>) {
        if let Err(AskError::Timeout(limit)) = outcome {
            self.doubt(*limit);
        }
    }

    /// Gives the connection up where it is found to be of no use: none begins to use it then, and the next use makes a new
    /// one.
    pub(super) fn give_up_if(&self, failure: Failure, is_lost: impl FnOnce(&Load) -> bool) -> bool {
        let is_lost = self.close_for_use(is_lost);
        if is_lost {
            self.part(Parting::Lost(failure));
        }
        is_lost
    }

    /// Has the next use make a new connection. What runs on this one goes on, and it is closed when that is done.
    pub(crate) fn renew(&self) {
        self.close_for_use(|_| true);
        self.part(Parting::Renewed);
    }

    fn close_for_use(&self, decide: impl FnOnce(&Load) -> bool) -> bool {
        let mut decided = false;
        self.load.send_if_modified(|load| {
            decided = decide(load);
            load.is_over |= decided;
            decided
        });
        decided
    }

    fn part(&self, parting: Parting) {
        self.parting.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(parting);
        self.given_up.cancel();
    }

    /// How it was given up; for after that.
    pub(super) fn parting(&self) -> Parting {
        let parting = self.parting.lock().unwrap_or_else(PoisonError::into_inner).clone();
        parting.unwrap_or_else(|| Parting::Lost(Failure::new("it was given up")))
    }

    /// Waits until nobody can begin to use the connection any more.
    pub(crate) async fn over(&self) {
        let mut ended = self.ended.subscribe();
        tokio::select! {
            () = self.given_up.cancelled() => {}
            () = self.link.signals.dead.cancelled() => {}
            _ = ended.wait_for(Option::is_some) => {}
        }
    }

    /// Why the connection ended, after a wait of at most 3 s for the session to find out.
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

    /// The tools, listed anew when they are older than `ttl` or known to have changed. A server that takes long over it
    /// holds nobody up: what it listed before is served meanwhile, and the listing goes on.
    pub(crate) async fn tools(self: &Arc<Self>, ttl: Duration) -> Result<Arc<Vec<Tool>>, AskError> {
        let known = self.current();
        let ttl = match known.fresh {
            // A server that tells every change says enough: most say 0, for want of anything better.
            Some(fresh) if !self.link.signals.is_told() => ttl.min(fresh.max(LEAST_FRESH)),
            _ => ttl,
        };
        if known.listed.elapsed() < ttl && !self.link.signals.are_tools_changed() {
            return Ok(known.tools);
        }
        let live = self.clone();
        let seen = known.listed;
        let refreshing = self.tracker.spawn(async move {
            let _in_use = live.use_it();
            live.refreshed(seen).await
        });
        match timeout(REFRESH_WAIT, refreshing).await {
            Ok(Ok(listed)) => listed,
            // still listing, or the runtime is shutting down
            Err(_) | Ok(Err(_)) => Ok(known.tools),
        }
    }

    /// The tools, listed after `seen`. Any number of callers cause one request.
    pub(crate) async fn refreshed(self: &Arc<Self>, seen: Instant) -> Result<Arc<Vec<Tool>>, AskError> {
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
        match self.list_anew(self.server.timeout).await {
            Ok(tools) => Ok(tools),
            Err(error @ AskError::Refused { .. }) => Err(error),
            Err(error) => {
                if let AskError::Outdated(_) = error {
                    self.renew();
                    return Err(error);
                }
                let failure = self.link.failure_of(error.clone(), "`tools/list`");
                let is_limited = failure.cause == Cause::RateLimited;
                if self.give_up_if(failure, |load| load.calls == 0 && !is_limited) {
                    return Err(error);
                }
                // Busy with a call or out of reach for a moment: what it listed before still holds, also for those
                // who wait here, and the calls go on.
                let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
                list.listed = Instant::now();
                Ok(known.tools)
            }
        }
    }

    /// Asks for the tools, whatever is known.
    pub(super) async fn list_anew(&self, limit: Duration) -> Result<Arc<Vec<Tool>>, AskError> {
        let known = self.current();
        // a change that was not listed in the end is still to be listed
        let mut pending = Pending { live: self, changed: self.link.signals.are_tools_changed() };
        let list = self.link.list(&self.server, limit, Some(&known)).await?;
        pending.changed = false;
        *self.list.lock().unwrap_or_else(PoisonError::into_inner) = list.clone();
        if !list.is_as(&known) {
            self.changes.send_modify(|count| *count += 1);
        }
        Ok(list.tools)
    }

    /// When the tools were listed last.
    pub(crate) fn listed(&self) -> Instant {
        self.current().listed
    }

    fn current(&self) -> ToolList {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_usable(&self) -> bool {
        let signals = &self.link.signals;
        let over = self.load.borrow().is_over || signals.dead.is_cancelled() || signals.stuck.is_cancelled();
        !over && self.ended.borrow().is_none() && !self.link.is_closed()
    }

    /// Waits until the connection was not used for `idle`; nobody begins to use it then.
    pub(super) async fn idle_for(&self, idle: Duration) {
        loop {
            let until = *self.used.lock().unwrap_or_else(PoisonError::into_inner) + idle;
            if Instant::now() >= until && self.close_for_use(|load| load.in_flight == 0) {
                return;
            }
            // A call that runs longer than that is looked at again.
            sleep_until(until.max(Instant::now() + Duration::from_secs(1))).await;
        }
    }

    /// Waits until nobody uses the connection, at most as long as a call may take.
    pub(super) async fn unused(&self) {
        let mut load = self.load.subscribe();
        let _ = timeout(self.server.max_timeout, load.wait_for(|load| load.in_flight == 0)).await;
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
        self.0.load.send_modify(|load| load.calls -= 1);
    }
}

/// A use of a connection, from start to end.
pub(crate) struct InUse(Arc<Live>);

impl Deref for InUse {
    type Target = Arc<Live>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.load.send_modify(|load| load.in_flight -= 1);
    }
}

/// What is told of a server that does not answer any more.
pub(super) fn unresponsive(limit: Duration, probe: Duration) -> Failure {
    Failure::hinted(
        format!("did not answer a call within {limit:?}, nor `tools/list` within {probe:?} after that"),
        "if its calls take longer, raise `timeout`; another takes its place when nothing else runs on it",
    )
    .of(Cause::Unresponsive)
}
