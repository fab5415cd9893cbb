//! Calls with which an earlier turn ended because nobody had approved them, and the request that goes on with them.

use std::sync::Arc;

use lf_core::model::ChatRequest;
use lf_core::turn::{Decision, Verdict, Waiting};
use lf_core::{Principal, Project};
use lf_store::{Kind, LeftWaiting};

use crate::app::{App, Refusal};
use crate::approvals::{self, decide, named_in};
use crate::memory::{TRIES, unkept};

/// Calls that a request goes on with, until its turn takes them.
pub(crate) struct Left {
    /// One of the approvals that they wait for.
    approval: String,
    /// What the request's client decided.
    decisions: Vec<(String, Decision)>,
    place: Place,
}

enum Place {
    /// Left by a turn whose conversation its client keeps.
    Memory(Arc<approvals::Left>),
    /// Left at this time by a response in the background.
    Store { conversation: String, created: i64 },
}

impl App {
    /// The calls with which an earlier turn of a client's own conversation, or a response in the background, ended, where
    /// the request's words or its decisions name them.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] for a decision about nothing that waits.
    pub(crate) async fn left_for(
        &self,
        who: &Principal,
        scope: Option<&Arc<Project>>,
        request: &ChatRequest,
    ) -> Result<Option<Left>, Refusal> {
        // whoever may not decide is not told what waits
        self.may_decide(who, request)?;
        let named = match request.approvals.first() {
            Some((id, _)) => vec![id.clone()],
            None => named_in(&request.messages),
        };
        if named.is_empty() {
            return Ok(None);
        }
        let (project, _) = self.find_model(who, scope, request.model.as_deref()).await?;
        let project = format!("{}/{}", project.namespace, project.name);
        let found = named.iter().find_map(|id| self.approvals.left(id, &project, who));
        let (mut waiting, place) = match found {
            Some(left) => (left.waiting(), Place::Memory(left)),
            // words alone name what was left in memory: whoever is told in words has no response in the background
            None if request.approvals.is_empty() => return Ok(None),
            None => {
                let left = self.left_in_store(who, &named[0], &project).await?;
                left.ok_or_else(|| not_waiting(&named[0]))?
            }
        };
        take_decisions(Some(&mut waiting), &request.approvals)?;
        let approval = waiting.asks.first().map(|ask| ask.id.clone()).unwrap_or_default();
        Ok(Some(Left { approval, decisions: request.approvals.clone(), place }))
    }

    async fn left_in_store(
        &self,
        who: &Principal,
        id: &str,
        project: &str,
    ) -> Result<Option<(Waiting, Place)>, Refusal> {
        let Ok(memory) = self.memory() else { return Ok(None) };
        let all = memory.store.all_waiting(approvals::oldest()).await.map_err(|error| unkept(&error))?;
        let left = all.into_iter().find(|left| left.waiting.asks.iter().any(|ask| ask.id == id));
        let is_his = |left: &LeftWaiting| left.scope == project && who.sees(&left.owner);
        let Some(left) = left.filter(is_his) else { return Ok(None) };
        let own = memory.store.conversation(&left.conversation).await.map_err(|error| unkept(&error))?;
        // what a turn of a kept conversation left, the next turn of that conversation takes
        let is_chain = own.is_some_and(|own| own.kind == Kind::Response);
        let place = Place::Store { conversation: left.conversation, created: left.created };
        Ok(is_chain.then_some((left.waiting, place)))
    }

    /// From here on the request's turn has them, with what others decided meanwhile: who was quicker counts.
    ///
    /// # Errors
    /// Where another turn was quicker: nothing runs twice.
    pub(crate) async fn take_left(&self, left: Left) -> Result<Waiting, Refusal> {
        let taken = match &left.place {
            Place::Memory(here) => self.approvals.take(here),
            Place::Store { conversation, created } => self.take_from_store(conversation, *created).await?,
        };
        let mut waiting = taken.ok_or_else(|| not_waiting(&left.approval))?;
        for (id, decision) in &left.decisions {
            decide(&mut waiting, id, decision);
        }
        Ok(waiting)
    }

    async fn take_from_store(&self, conversation: &str, created: i64) -> Result<Option<Waiting>, Refusal> {
        let store = &self.memory()?.store;
        for _ in 0..TRIES {
            let now = store.waiting(conversation).await.map_err(|error| unkept(&error))?;
            let Some(now) = now.filter(|now| now.created == created) else { return Ok(None) };
            // else something was decided in between
            if store.take_waiting(&now).await.map_err(|error| unkept(&error))? {
                return Ok(Some(now.waiting));
            }
        }
        Ok(None)
    }
}

/// Writes a client's decisions into what waits. A decision that was taken before stands, and the client's then only says
/// that it goes on.
///
/// # Errors
/// [`Refusal::BadRequest`] for one about nothing that waits, or that came too late.
pub(crate) fn take_decisions(
    mut waiting: Option<&mut Waiting>,
    decisions: &[(String, Decision)],
) -> Result<(), Refusal> {
    for (id, decision) in decisions {
        let is_known = waiting.as_deref_mut().is_some_and(|waiting| {
            let decided_before = |waiting: &Waiting| {
                let ask = waiting.asks.iter().find(|ask| ask.id == *id);
                let before = ask.and_then(|ask| ask.decision.as_ref());
                before.is_some_and(|before| before.verdict != Verdict::Expired)
            };
            decide(waiting, id, decision) || decided_before(waiting)
        });
        if !is_known {
            return Err(not_waiting(id));
        }
    }
    Ok(())
}

fn not_waiting(id: &str) -> Refusal {
    Refusal::BadRequest {
        message: format!(
            "no call waits for approval `{id}`: it was decided before, is older than an hour, or never was"
        ),
        param: Some("input".to_owned()),
    }
}

#[cfg(test)]
mod tests;
