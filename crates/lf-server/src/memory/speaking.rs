//! Whose turn it is to speak in a conversation.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use lf_store::StoreError;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Memory, unkept};
use crate::app::Refusal;

/// Turns that wait for their turn to speak in one conversation.
pub(super) const WAITING: usize = 256;
/// How long whoever is no client waits for that: two turns of the default limit.
pub(super) const SPEAK_WAIT: Duration = Duration::from_secs(600);
/// Between two looks whether a turn of another daemon is over.
const PAUSES: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(400)];

/// One turn at a time in each conversation, among those of this daemon.
#[derive(Default)]
pub(super) struct Order(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Memory {
    /// Waits until it is this caller's turn to speak, among those of this daemon; 10 min at most.
    ///
    /// # Errors
    /// [`Refusal::Busy`]
    pub(crate) async fn turn_to_speak(&self, conversation: &str) -> Result<OwnedMutexGuard<()>, Refusal> {
        let until = Instant::now() + SPEAK_WAIT;
        timeout_at(until, self.line(conversation).lock_owned())
            .await
            .map_err(|_| busy(conversation, format!("was busy for {SPEAK_WAIT:?}")))
    }

    /// The same for a client, which waits no longer than this, among those of all daemons. What is owed to the conversation
    /// is kept by then.
    ///
    /// # Errors
    /// [`Refusal::Busy`] where too many wait, or it takes too long.
    pub(crate) async fn next_to_speak(
        &self,
        conversation: &str,
        longest: Duration,
    ) -> Result<OwnedMutexGuard<()>, Refusal> {
        let unkept = |error: StoreError| unkept(&error);
        let mut line = self.line(conversation);
        // this one, and the one that speaks
        let waiting = Arc::strong_count(&line).saturating_sub(2);
        if waiting >= WAITING {
            return Err(busy(conversation, format!("has {waiting} messages waiting")));
        }
        let until = Instant::now() + longest;
        let late = || {
            busy(
                conversation,
                format!("was busy with other messages for {longest:?} (`limits.queue_timeout`)"),
            )
        };
        let [mut pause, longest_pause] = PAUSES;
        loop {
            let guard = timeout_at(until, line.lock_owned()).await.map_err(|_| late())?;
            self.settle(Some(conversation)).await.map_err(unkept)?;
            if !self.store.is_shared()
                || self.store.running_in(conversation).await.map_err(unkept)?.is_empty()
            {
                return Ok(guard);
            }
            if Instant::now() + pause >= until {
                return Err(late());
            }
            // not held while waiting: the turn may be one that this daemon has to take over
            line = OwnedMutexGuard::mutex(&guard).clone();
            drop(guard);
            sleep(pause).await;
            pause = (pause * 2).min(longest_pause);
        }
    }

    /// The same without waiting; `None` while a turn of this daemon runs.
    pub(crate) fn quiet(&self, conversation: &str) -> Option<OwnedMutexGuard<()>> {
        self.line(conversation).try_lock_owned().ok()
    }

    /// Who holds this lock speaks in the conversation; the others wait for it in the order in which they came.
    pub(super) fn line(&self, conversation: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut order = self.order.0.lock().unwrap_or_else(PoisonError::into_inner);
        order.retain(|_, line| line.strong_count() > 0);
        if let Some(line) = order.get(conversation).and_then(Weak::upgrade) {
            return line;
        }
        let line = Arc::new(tokio::sync::Mutex::new(()));
        order.insert(conversation.to_owned(), Arc::downgrade(&line));
        line
    }
}

/// Why nobody may speak now.
pub(crate) fn busy(conversation: &str, why: impl Display) -> Refusal {
    Refusal::Busy(format!("conversation `{conversation}` {why}; try again later"))
}
