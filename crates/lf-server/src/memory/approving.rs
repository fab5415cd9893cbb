//! What is approved in kept conversations: calls with which a turn ended, and tools for all that follows.

use lf_core::ChatEvent;
use lf_core::turn::{Decision, Verdict, Waiting};
use lf_store::{LeftWaiting, StoreError};
use tracing::error;

use super::{Memory, Running, unkept};
use crate::app::{App, Refusal};
use crate::approvals::{self, Outcome};

impl App {
    /// Decides about a call that waits, wherever it does.
    ///
    /// # Errors
    /// When the decision cannot be kept.
    pub(crate) async fn decide(&self, id: &str, decision: Decision) -> Result<Outcome, Refusal> {
        let outcome = self.approvals.decide(id, decision.clone()).await;
        let Ok(memory) = self.memory() else { return Ok(outcome) };
        if outcome != Outcome::Unknown {
            return Ok(outcome);
        }
        let left = memory.store.all_waiting(approvals::oldest()).await.map_err(|error| unkept(&error))?;
        let Some(left) = left.into_iter().find(|left| left.waiting.asks.iter().any(|ask| ask.id == id))
        else {
            return Ok(Outcome::Unknown);
        };
        // as it is when no turn runs that could have taken it
        let _guard = memory.turn_to_speak(&left.conversation).await;
        let now = memory.store.waiting(&left.conversation).await.map_err(|error| unkept(&error))?;
        let Some(LeftWaiting { mut waiting, .. }) = now else { return Ok(Outcome::Unknown) };
        if !approvals::decide(&mut waiting, id, &decision) {
            return Ok(Outcome::Unknown);
        }
        let kept =
            memory.store.decided(&left.conversation, &waiting).await.map_err(|error| unkept(&error))?;
        Ok(if kept { Outcome::Taken } else { Outcome::Unknown })
    }
}

impl Memory {
    /// What is approved for all of the conversation is so for later turns, too.
    pub(super) async fn learn(&self, running: &Running, event: &ChatEvent) {
        let ChatEvent::ApprovalDecided(ask) = event else { return };
        if ask.decision.as_ref().is_none_or(|decision| decision.verdict != Verdict::Always) {
            return;
        }
        if let Err(error) = self.store.approve_always(&running.conversation, &ask.tool).await {
            error!(turn = running.turn, %error, "an approval for the conversation could not be kept");
        }
    }

    /// What the last turn of a conversation ended with; what is too old by now is a no.
    pub(super) async fn waiting(&self, conversation: &str) -> Result<Option<Waiting>, StoreError> {
        let left = self.store.waiting(conversation).await?;
        Ok(left.map(|LeftWaiting { mut waiting, created, .. }| {
            if created < approvals::oldest() {
                approvals::expire(&mut waiting);
            }
            waiting
        }))
    }
}
