//! A turn that runs, and those who watch it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_stream::stream;
use futures_core::Stream;
use lf_core::ChatEvent;
use lf_store::TurnState;
use tokio::sync::{OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;

use super::Memory;

/// How long a turn is waited for that was told to stop.
pub(super) const STOP_WAIT: Duration = Duration::from_secs(5);
/// A turn that a restart left is looked for so often, and for so long.
const LOOK: Duration = Duration::from_millis(50);
const TAKEN_UP: Duration = Duration::from_secs(10);

/// A turn of a kept conversation. Its events are numbered from 1; progress reports have no number, because only the
/// latest matters and none is kept.
pub(crate) struct Running {
    pub turn: String,
    pub conversation: String,
    /// Ends the turn where it is.
    pub stop: CancellationToken,
    /// The turn is another daemon's now.
    pub(super) lost: CancellationToken,
    events: Mutex<Vec<Arc<ChatEvent>>>,
    state: watch::Sender<Watched>,
}

#[derive(Debug, Clone, Default)]
struct Watched {
    /// How many events there are.
    told: usize,
    /// The latest report of a tool.
    progress: Option<Arc<ChatEvent>>,
    over: bool,
}

impl Memory {
    /// A turn that runs here, or is about to be gone on with after a restart: for that one it waits, 10 s at most. Where
    /// daemons share the store, that may be another one's, which is not waited for.
    pub(crate) async fn going(&self, turn: &str) -> Option<Arc<Running>> {
        if self.store.is_shared() {
            return self.running(turn);
        }
        let taken_up = async {
            loop {
                if let Some(running) = self.running(turn) {
                    return Some(running);
                }
                let is_left =
                    self.store.turn(turn).await.ok()?.is_some_and(|it| it.state == TurnState::Running);
                if !is_left {
                    return None;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(TAKEN_UP, taken_up).await.ok().flatten()
    }
}

impl Running {
    pub(super) fn new(turn: String, conversation: String) -> Self {
        Self {
            turn,
            conversation,
            stop: CancellationToken::new(),
            lost: CancellationToken::new(),
            events: Mutex::default(),
            state: watch::Sender::default(),
        }
    }

    pub(super) fn tell(&self, event: ChatEvent) {
        let event = Arc::new(event);
        if matches!(*event, ChatEvent::CallProgress { .. }) {
            self.state.send_modify(|state| state.progress = Some(event));
            return;
        }
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
        let told = events.len();
        drop(events);
        self.state.send_modify(|state| state.told = told);
    }

    pub(super) fn over(&self) {
        self.state.send_modify(|state| state.over = true);
    }

    /// The events so far.
    pub(crate) fn told(&self) -> Vec<Arc<ChatEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the last event has been told. A turn that was left for the next start has none.
    pub(crate) fn has_ended(&self) -> bool {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.last().is_some_and(|last| self.ends_with(last).is_some())
    }

    /// Ends the turn where it is, and waits until that is kept. Models and tools are let go of at once; a disk that is slow
    /// is not waited for longer than 5 s.
    pub(crate) async fn stop(self: Arc<Self>) {
        self.stop.cancel();
        let mut state = self.state.subscribe();
        let over = state.wait_for(|state| state.over);
        if tokio::time::timeout(STOP_WAIT, over).await.is_err() {
            tracing::warn!(turn = self.turn, "a turn takes long to stop");
        }
    }

    /// How the turn stands after this event, where it is the last one.
    pub(super) fn ends_with(&self, event: &ChatEvent) -> Option<TurnState> {
        match event {
            ChatEvent::Failed(_) => Some(TurnState::Failed),
            ChatEvent::Finished { .. } if self.stop.is_cancelled() => Some(TurnState::Cancelled),
            ChatEvent::Finished { .. } => Some(TurnState::Finished),
            _ => None,
        }
    }

    /// The events after the first `seen`, and those to come, each with its number (0: it has none). A slow watcher holds
    /// up nobody.
    pub(super) fn watch(self: Arc<Self>, seen: usize) -> impl Stream<Item = (usize, Arc<ChatEvent>)> + Send {
        let mut state = self.state.subscribe();
        stream! {
            let mut seen = seen;
            let mut reported: Option<Arc<ChatEvent>> = None;
            loop {
                let now = state.borrow_and_update().clone();
                while seen < now.told {
                    let event = {
                        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
                        events[seen].clone()
                    };
                    seen += 1;
                    yield (seen, event);
                }
                if now.over {
                    break;
                }
                if let Some(progress) = now.progress
                    && !reported.as_ref().is_some_and(|reported| Arc::ptr_eq(reported, &progress))
                {
                    reported = Some(progress.clone());
                    yield (0, progress);
                }
                if state.changed().await.is_err() {
                    break;
                }
            }
        }
    }
}

/// With it the task of a turn ends, however it does: nobody waits for more.
pub(super) struct Over {
    memory: Arc<Memory>,
    running: Arc<Running>,
    _guard: OwnedMutexGuard<()>,
}

impl Over {
    pub(super) fn new(memory: Arc<Memory>, running: Arc<Running>, guard: OwnedMutexGuard<()>) -> Self {
        Self { memory, running, _guard: guard }
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        let mut all = self.memory.running.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.running.turn);
        drop(all);
        self.running.over();
    }
}
