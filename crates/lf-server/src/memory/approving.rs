//! What is approved in kept conversations: calls with which a turn ended, and tools for all that follows.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lf_core::ChatEvent;
use lf_core::turn::{Decision, Verdict};
use lf_store::{LeftWaiting, StoreError};
use tokio::time::{Instant, sleep};
use tracing::error;

use super::{Memory, Running, TRIES, unkept};
use crate::app::{App, Refusal};
use crate::approvals::{self, Outcome, Pending};

/// How often the store is asked what came of a decision.
const LOOK: Duration = Duration::from_millis(100);

impl App {
    /// Decides about a call that waits, wherever it does.
    ///
    /// # Errors
    /// When the decision cannot be kept.
    pub(crate) async fn decide(&self, id: &str, decision: Decision) -> Result<Outcome, Refusal> {
        let mut opened = self.approvals.opened();
        let outcome = self.approvals.decide(id, decision.clone()).await;
        let Ok(memory) = self.memory() else { return Ok(outcome) };
        if outcome != Outcome::Unknown {
            return Ok(outcome);
        }
        if memory.store.decide_elsewhere(id, &decision).await.map_err(|error| unkept(&error))? {
            return memory.answer_to_decision(id).await.map_err(|error| unkept(&error));
        }
        let left = memory.store.all_waiting(approvals::oldest()).await.map_err(|error| unkept(&error))?;
        let Some(left) = left.into_iter().find(|left| left.waiting.asks.iter().any(|ask| ask.id == id))
        else {
            return Ok(Outcome::Unknown);
        };
        // as it is when no turn runs that could have taken it
        let mut guard = pin!(memory.turn_to_speak(&left.conversation));
        let _guard = loop {
            tokio::select! {
                guard = &mut guard => break guard?,
                _ = opened.changed() => {}
            }
            // a turn that was about to begin with the call asks about it itself, and would wait for this in vain
            let outcome = self.approvals.decide(id, decision.clone()).await;
            if outcome != Outcome::Unknown {
                return Ok(outcome);
            }
        };
        for _ in 0..TRIES {
            let now = memory.store.waiting(&left.conversation).await.map_err(|error| unkept(&error))?;
            let Some(left) = now else { return Ok(Outcome::Unknown) };
            let mut waiting = left.waiting.clone();
            if !approvals::decide(&mut waiting, id, &decision) {
                return Ok(Outcome::Unknown);
            }
            // else something else was decided at another daemon
            if memory.store.decided(&left, &waiting).await.map_err(|error| unkept(&error))? {
                return Ok(Outcome::Taken);
            }
        }
        Ok(Outcome::Unkept)
    }
}

/// What other daemons are shown of what waits here: by its id, and whether a decision of theirs is being kept.
#[derive(Default)]
pub(super) struct Asks(HashMap<String, bool>);

impl App {
    /// Shows other daemons what waits here, and takes what they decide about it.
    ///
    /// # Errors
    /// When the store cannot be used; it is made up for the next time.
    pub(super) async fn attend_asks(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        asks: &mut Asks,
    ) -> Result<(), StoreError> {
        let pending: HashMap<String, Pending> =
            self.approvals.pending().into_iter().map(|pending| (pending.ask.id.clone(), pending)).collect();
        let mut new = Vec::new();
        for (id, pending) in pending.iter().filter(|(id, _)| !asks.0.contains_key(*id)) {
            match serde_json::to_string(pending) {
                Ok(body) => new.push((id.clone(), body)),
                Err(error) => error!(approval = id, %error, "an approval cannot be shown to other daemons"),
            }
        }
        let gone: Vec<String> = asks.0.keys().filter(|id| !pending.contains_key(*id)).cloned().collect();
        if !new.is_empty() {
            memory.store.show_asks(&new).await?;
            asks.0.extend(new.into_iter().map(|(id, _)| (id, false)));
        }
        if !gone.is_empty() {
            memory.store.take_back_asks(&gone).await?;
        }
        if asks.0.is_empty() {
            return Ok(());
        }
        for (id, decision) in memory.store.decided_elsewhere().await? {
            if asks.0.insert(id.clone(), true) == Some(true) {
                continue;
            }
            let (app, here) = (self.clone(), memory.clone());
            memory.sharing.spawn(async move {
                let outcome = app.approvals.decide(&id, decision).await;
                if let Err(error) = here.store.answer_decision(&id, outcome.name()).await {
                    error!(approval = id, %error, "the daemon that decided is not answered");
                }
            });
        }
        asks.0.retain(|id, _| !gone.contains(id));
        Ok(())
    }

    /// What waits in other daemons.
    ///
    /// # Errors
    /// When that cannot be asked.
    pub(crate) async fn asks_elsewhere(&self, memory: &Memory) -> Result<Vec<Pending>, Refusal> {
        let asks = memory.store.asks_elsewhere().await.map_err(|error| unkept(&error))?;
        // those of a later program, which cannot be read, can be decided there
        Ok(asks.iter().filter_map(|ask| serde_json::from_str(ask).ok()).collect())
    }
}

impl Memory {
    /// What came of a decision about what waits in another daemon, which keeps it within 10 s or says that it did not.
    async fn answer_to_decision(&self, id: &str) -> Result<Outcome, StoreError> {
        let until = Instant::now() + approvals::KEEPING;
        while Instant::now() < until {
            let answer = self.store.answer_of(id).await?;
            if let Some(outcome) = answer.as_deref().and_then(Outcome::named) {
                return Ok(outcome);
            }
            sleep(LOOK).await;
        }
        Ok(Outcome::Unkept)
    }

    /// What is approved for all of the conversation is so for later turns, too.
    pub(super) async fn learn(&self, running: &Running, event: &ChatEvent) {
        let ChatEvent::ApprovalDecided(ask) = event else { return };
        // a rule looks at each call anew: a yes to one is none to the next, and none to what the server's `approval` asks
        let always = ask.decision.as_ref().is_some_and(|decision| decision.verdict == Verdict::Always);
        if !always || ask.why.is_some() {
            return;
        }
        if let Err(error) = self.store.approve_always(&running.conversation, &ask.tool).await {
            error!(turn = running.turn, %error, "an approval for the conversation could not be kept");
        }
    }

    /// What the last turn of a conversation ended with; what is too old by now is a no.
    pub(super) async fn waiting(&self, conversation: &str) -> Result<Option<LeftWaiting>, StoreError> {
        let mut left = self.store.waiting(conversation).await?;
        if let Some(left) = left.as_mut().filter(|left| left.created < approvals::oldest()) {
            approvals::expire(&mut left.waiting);
        }
        Ok(left)
    }
}
