//! Watching turns wherever they run. One that runs in another daemon is read from the store, where all that may be shown
//! of it is kept before it is shown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_stream::stream;
use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use lf_core::ChatEvent;
use lf_store::{StoreError, TurnState};

use super::recovery::{Read, cut_off};
use super::running::STOP_WAIT;
use super::{Memory, Running};

/// How often the store is asked for what is new.
const LOOK: Duration = Duration::from_millis(150);
/// A database that is gone for longer is not waited for by those who watch.
const PATIENCE: Duration = Duration::from_secs(60);

impl Memory {
    /// The events of a turn after the first `seen`, and those to come, each with its number (0: it has none). Where another
    /// daemon takes the turn over, they go on with what that one does.
    pub(crate) fn watch(
        self: &Arc<Self>,
        running: Arc<Running>,
        seen: usize,
    ) -> impl Stream<Item = (usize, Arc<ChatEvent>)> + Send + use<> {
        let memory = self.clone();
        stream! {
            let turn = running.turn.clone();
            let mut seen = seen;
            let mut events = std::pin::pin!(running.clone().watch(seen));
            while let Some((number, event)) = events.next().await {
                seen = seen.max(number);
                yield (number, event);
            }
            if running.has_ended() || !memory.store.is_shared() {
                return;
            }
            let mut elsewhere = std::pin::pin!(memory.follow(turn, seen));
            while let Some(event) = elsewhere.next().await {
                yield event;
            }
        }
    }

    /// The events of a turn after the first `seen`, as its journal tells them, until it is over.
    pub(crate) fn follow(
        self: &Arc<Self>,
        turn: String,
        seen: usize,
    ) -> impl Stream<Item = (usize, Arc<ChatEvent>)> + Send + use<> {
        let memory = self.clone();
        stream! {
            let mut seen = seen;
            let mut read = None;
            let mut heard = Instant::now();
            loop {
                match memory.look(&turn, &mut read).await {
                    Ok(is_running) => {
                        heard = Instant::now();
                        let events = read.as_ref().map_or(&[][..], |read: &Read| &read.events);
                        let cut = (!is_running).then(|| cut_off(events)).flatten();
                        let new: Vec<ChatEvent> = events.iter().cloned().chain(cut).skip(seen).collect();
                        for event in new {
                            seen += 1;
                            yield (seen, Arc::new(event));
                        }
                        if !is_running {
                            break;
                        }
                    }
                    Err(reason) if heard.elapsed() > PATIENCE => {
                        tracing::warn!(turn, reason, "a turn can no longer be followed");
                        break;
                    }
                    Err(_) => {}
                }
                tokio::select! {
                    () = memory.leave.cancelled() => break,
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        }
    }

    /// Reads what is new. Whether the turn runs: asked first, so that of one that does not everything is read.
    async fn look(&self, turn: &str, read: &mut Option<Read>) -> Result<bool, String> {
        let unread = |error: StoreError| error.to_string();
        let Some(record) = self.store.turn(turn).await.map_err(unread)? else { return Ok(false) };
        let seen = read.as_ref().map_or(0, |read| read.entries);
        for entry in self.store.entries(&record, seen).await.map_err(unread)? {
            match read {
                Some(read) => read.take(entry)?,
                None => *read = Some(Read::begin(entry)?),
            }
        }
        Ok(record.state == TurnState::Running)
    }

    /// The events of a turn from the first on, and those to come, wherever it runs; `None` where it does not.
    ///
    /// # Errors
    /// When that cannot be asked.
    pub(crate) async fn present(
        self: &Arc<Self>,
        turn: &str,
    ) -> Result<Option<BoxStream<'static, (usize, Arc<ChatEvent>)>>, StoreError> {
        if let Some(running) = self.going(turn).await {
            return Ok(Some(self.watch(running, 0).boxed()));
        }
        Ok(self.runs_elsewhere(turn).await?.then(|| self.follow(turn.to_owned(), 0).boxed()))
    }

    async fn runs_elsewhere(&self, turn: &str) -> Result<bool, StoreError> {
        if !self.store.is_shared() {
            return Ok(false);
        }
        Ok(self.store.turn(turn).await?.is_some_and(|turn| turn.state == TurnState::Running))
    }

    /// Ends a turn wherever it runs, and waits until that is kept, but not longer than 5 s. False where it does not run.
    ///
    /// # Errors
    /// When it runs elsewhere and the store cannot be used.
    pub(crate) async fn stop(&self, turn: &str) -> Result<bool, StoreError> {
        if let Some(running) = self.going(turn).await {
            running.stop().await;
            return Ok(true);
        }
        if !self.runs_elsewhere(turn).await? {
            return Ok(false);
        }
        self.store.ask_to_stop(turn).await?;
        let begun = Instant::now();
        while self.runs_elsewhere(turn).await? {
            if begun.elapsed() > STOP_WAIT {
                tracing::warn!(turn, "a turn of another daemon takes long to stop");
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(true)
    }
    /// Ends a response that another daemon makes for a client of its own, and waits for that as [`Memory::stop`] does. False
    /// where none makes it.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub(crate) async fn stop_response(&self, id: &str) -> Result<bool, StoreError> {
        if !self.store.ask_to_stop_response(id).await? {
            return Ok(false);
        }
        let begun = Instant::now();
        while self.store.is_made_elsewhere(id).await? {
            if begun.elapsed() > STOP_WAIT {
                tracing::warn!(response = id, "a response of another daemon takes long to stop");
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(true)
    }
}
