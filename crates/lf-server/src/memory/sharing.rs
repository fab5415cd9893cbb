//! What a daemon does for the others with which it shares the store: it says that it lives, goes on with the turns of those
//! that died, and lets go of turns that others took for dead.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use lf_store::{LEASE, StoreError};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

use super::Memory;
use super::approving::Asks;
use crate::app::App;

/// How often a daemon says that it lives: several times in each lease, so that a slow answer does not cost its turns.
const BEAT: Duration = Duration::from_secs(2);
/// How often it asks which of its turns are to stop.
const TICK: Duration = Duration::from_millis(150);
/// A daemon lets go of its turns so long before others may take them.
const MARGIN: Duration = Duration::from_secs(1);
const RETIRE_WAIT: Duration = Duration::from_secs(2);

/// How a daemon lives.
struct Pulse {
    /// When it began to say so for the last time that it was heard.
    alive: Instant,
    beat_at: Instant,
    /// Why it was not heard the last time.
    trouble: Option<String>,
    asks: Asks,
}

impl App {
    /// Lives among other daemons, until the memory is drained.
    pub(super) async fn share(self: Arc<Self>, memory: Arc<Memory>) {
        let mut pulse =
            Pulse { alive: Instant::now(), beat_at: Instant::now(), trouble: None, asks: Asks::default() };
        loop {
            let living = async {
                self.live(&memory, &mut pulse).await;
                sleep(TICK).await;
            };
            tokio::select! {
                () = memory.ended.cancelled() => break,
                () = living => {}
            }
        }
        if let Ok(Err(error)) = timeout(RETIRE_WAIT, memory.store.retire()).await {
            warn!(%error, "other daemons wait for the lease of this one");
        }
    }

    /// One look at what is to be done, which is over before the lease is.
    async fn live(self: &Arc<Self>, memory: &Arc<Memory>, pulse: &mut Pulse) {
        let now = Instant::now();
        let end = pulse.alive + (LEASE - MARGIN);
        if pulse.trouble.is_some() && now >= end {
            memory.let_go(|_| true);
        }
        // who has lost its turns is in no hurry any more
        let limit = if now < end { end } else { now + LEASE };
        let beats = now >= pulse.beat_at;
        if beats {
            pulse.beat_at = now + BEAT;
            let beaten = timeout_at(limit, self.beat(memory)).await;
            let beaten = beaten.unwrap_or_else(|_| Err(format!("{} does not answer", memory.store.place())));
            match (&beaten, &pulse.trouble) {
                (Ok(()), Some(_)) => info!(place = memory.store.place(), "the store can be used again"),
                (Err(error), None) => {
                    warn!(error, "the store cannot be used; it is tried again every {BEAT:?}");
                }
                _ => {}
            }
            if beaten.is_ok() {
                pulse.alive = now;
            }
            pulse.trouble = beaten.err();
        }
        // a store that does not answer is told of by the next beat, which must not be late
        let soon = limit.min(Instant::now() + BEAT);
        if pulse.trouble.is_none() && memory.runs_any() {
            let _ = timeout_at(soon, memory.stop_what_is_to_stop()).await;
        }
        if pulse.trouble.is_none() && (beats || self.making.any()) {
            let _ = timeout_at(soon, self.attend_responses(memory)).await;
        }
        if pulse.trouble.is_none() {
            let _ = timeout_at(soon, self.attend_asks(memory, &mut pulse.asks)).await;
        }
    }

    /// Ends the responses that are to end, and lets go of those whose clients left.
    async fn attend_responses(&self, memory: &Memory) {
        for (response, is_to_stop) in memory.store.own_responses().await.unwrap_or_default() {
            if is_to_stop {
                self.making.stop(&response);
            }
            if !self.making.has(&response)
                && let Err(error) = memory.store.let_go_of_response(&response).await
            {
                warn!(response, %error, "other daemons take a response for one that is being made");
            }
        }
    }

    async fn beat(self: &Arc<Self>, memory: &Arc<Memory>) -> Result<(), String> {
        let said = |error: StoreError| error.to_string();
        memory.store.renew().await.map_err(said)?;
        // before the store is asked: a turn that begins meanwhile is nobody else's
        let here = memory.ids();
        let unattended = memory.store.unattended().await.map_err(said)?;
        let known: HashSet<&str> = unattended.iter().map(|turn| turn.id.as_str()).collect();
        memory.let_go(|turn| here.contains(turn) && !known.contains(turn));
        if !memory.closing.is_cancelled() {
            for turn in unattended.into_iter().filter(|turn| !here.contains(&turn.id)) {
                // else it begins or ends here just now, or is tried already
                if let Ok(guard) = memory.line(&turn.conversation).try_lock_owned() {
                    self.take_up(memory, turn, guard);
                }
            }
        }
        Ok(())
    }
}

impl Memory {
    fn ids(&self) -> HashSet<String> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    fn runs_any(&self) -> bool {
        !self.running.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// These turns are others' now: what runs for them is dropped.
    fn let_go(&self, of: impl Fn(&str) -> bool) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for turn in running.values().filter(|turn| of(&turn.turn) && !turn.lost.is_cancelled()) {
            warn!(turn = turn.turn, "a turn is let go of; another daemon may go on with it");
            turn.lost.cancel();
        }
    }

    async fn stop_what_is_to_stop(&self) {
        for turn in self.store.to_stop().await.unwrap_or_default() {
            if let Some(running) = self.running(&turn) {
                running.stop.cancel();
            }
        }
    }
}
