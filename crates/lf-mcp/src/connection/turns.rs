//! Calls that wait before they are sent: for their turn, and for a server that wants to be left alone for a while.
//! Neither counts against the limit of the call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lf_core::tool::Attendant;
use rmcp::model::{ClientRequest, RequestMetaObject, ServerResult};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::link::{AskError, Link};
use crate::failure::{Cause, Failure};
use crate::http::called_tool;

/// Calls that run on one connection at the same time, over all turns.
const MAX_RUNNING: usize = 256;
/// Calls that wait for their turn.
const MAX_WAITING: usize = 1_024;
/// Times that a request is sent again to a server that has too many.
const MAX_TURNED_AWAY: usize = 2;

/// The calls of one connection.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    running: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(MAX_RUNNING)), waiting: Arc::default() }
    }
}

/// A call that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Turns {
    /// Waits for a turn, at most `limit`. Dropping the future leaves the queue.
    async fn take(&self, limit: Duration) -> Result<OwnedSemaphorePermit, AskError> {
        if let Ok(turn) = self.running.clone().try_acquire_owned() {
            return Ok(turn);
        }
        let ahead = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&self.waiting);
        if ahead >= MAX_WAITING {
            return Err(busy(format!(
                "runs {MAX_RUNNING} calls already, and {MAX_WAITING} more wait for their turn"
            )));
        }
        let turn = timeout(limit, self.running.clone().acquire_owned()).await;
        let waited = || busy(format!("ran {MAX_RUNNING} other calls for {limit:?}, while this one waited"));
        turn.map_err(|_| waited())?.map_err(|_| AskError::Closed)
    }
}

fn busy(reason: String) -> AskError {
    let failure =
        Failure::hinted(reason, "let fewer turns call it at the same time, or make its tools faster");
    AskError::TurnedAway { failure: failure.of(Cause::RateLimited), after: None }
}

/// A request, and who attends it.
#[derive(Clone)]
pub(super) struct Ask<'a> {
    pub(super) request: ClientRequest,
    /// The first starts anew with each report of progress; the second bounds it all.
    pub(super) limits: (Duration, Duration),
    /// Hears of progress.
    pub(super) told: &'a dyn Attendant,
    /// Is asked what the server asks meanwhile; without one, it has nothing to ask.
    pub(super) asked: Option<&'a dyn Attendant>,
    pub(super) meta: Option<RequestMetaObject>,
}

impl Link {
    #[cfg(test)]
    pub(crate) fn free_turns(&self) -> usize {
        self.turns.running.available_permits()
    }

    /// Sends a request when it is its turn, and again when the server wanted it later.
    pub(super) async fn send(&self, ask: Ask<'_>) -> Result<ServerResult, AskError> {
        let (limit, total) = ask.limits;
        let _turn = match called_tool(&ask.request) {
            Some(_) => Some(self.turns.take(total).await?),
            None => None,
        };
        let end = Instant::now() + total;
        let mut turned_away = 0;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.send_now(Ask { limits: (limit, left), ..ask.clone() }).await {
                Err(AskError::TurnedAway { after: Some(pause), .. })
                    if !ask.told.tries_again()
                        && turned_away < MAX_TURNED_AWAY
                        && Instant::now() + pause < end =>
                {
                    turned_away += 1;
                    sleep(pause).await;
                }
                // what is told is the limit, not what was left of it
                Err(AskError::Timeout(reached)) if reached == left => return Err(AskError::Timeout(total)),
                outcome => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests;
