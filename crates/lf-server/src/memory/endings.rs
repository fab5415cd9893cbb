//! Ends of turns that could not be kept when they came. The turn is over for whoever watched it, and what it said is kept as
//! soon as that is possible, before anything else is said in its conversation.

use std::sync::Arc;
use std::time::Duration;

use lf_core::turn::{Done, Waiting};
use lf_core::{ChatEvent, Message};
use lf_store::{End, StoreError, TurnState};
use tracing::{info, warn};

use super::{Memory, named};

/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Ending {
    pub turn: String,
    pub conversation: String,
    pub state: TurnState,
    /// What the turn added to its conversation.
    pub said: Vec<(String, Message)>,
    /// What still waits for an approval.
    pub waiting: Option<Waiting>,
}

impl Ending {
    pub(super) fn new(turn: String, conversation: String, state: TurnState, done: Option<Done>) -> Self {
        let (said, waiting) = done.map(|done| (done.said.to_vec(), done.waiting)).unwrap_or_default();
        Self { turn, conversation, state, said: named(said), waiting }
    }
}

/// No more than there were turns at the time: while nothing can be kept, none begins. What is left when the daemon ends is
/// gone on with at the next start.
#[derive(Default)]
pub(super) struct Endings(tokio::sync::Mutex<Vec<Ending>>);

impl Memory {
    /// # Errors
    /// Then it can be kept later.
    pub(super) async fn keep(&self, ending: &Ending) -> Result<(), StoreError> {
        let Ending { turn, conversation, state, said, waiting } = ending;
        let end = End { turn, conversation, state: *state, said, waiting: waiting.as_ref() };
        self.store.end(end).await
    }

    /// Keeps an end later.
    pub(super) async fn owe(self: &Arc<Self>, ending: Ending) {
        let mut owed = self.endings.0.lock().await;
        owed.push(ending);
        if owed.len() > 1 {
            return;
        }
        drop(owed);
        let memory = self.clone();
        self.tasks.spawn(async move { while memory.pause().await && memory.settle(None).await.is_err() {} });
    }

    /// Waits between two tries. False when there is to be no other one: the daemon ends.
    pub(super) async fn pause(&self) -> bool {
        tokio::select! {
            () = self.closing.cancelled() => false,
            () = tokio::time::sleep(PAUSE) => true,
        }
    }

    /// Keeps what is owed to one conversation, or all.
    ///
    /// # Errors
    /// When something of it still cannot be kept.
    pub(super) async fn settle(&self, conversation: Option<&str>) -> Result<(), StoreError> {
        let mut owed = self.endings.0.lock().await;
        let mut at = 0;
        while let Some(ending) = owed.get(at) {
            if conversation.is_some_and(|conversation| conversation != ending.conversation) {
                at += 1;
                continue;
            }
            let turn = &ending.turn;
            match self.keep(ending).await {
                Ok(()) => info!(turn, state = ending.state.name(), "the end of a turn is kept at last"),
                // it ends there
                Err(error @ StoreError::Overtaken { .. }) => warn!(turn, %error, "a turn is let go of"),
                // with its conversation, or its whole database, the turn may have been taken away
                Err(error) if self.store.turn(turn).await?.is_some() => return Err(error),
                Err(error) => warn!(turn, %error, "a turn is gone whose end was to be kept"),
            }
            owed.remove(at);
        }
        Ok(())
    }
}

/// The last event of a turn whose end is not kept: nobody is told that all is well with it.
pub(super) fn ended_unkept(event: ChatEvent, error: &StoreError) -> ChatEvent {
    match event {
        ChatEvent::Finished { .. } => ChatEvent::Failed(crate::driver::unkept(error)),
        event => event,
    }
}
