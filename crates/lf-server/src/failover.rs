//! Who answers a turn: the model that was asked for, or one of its fallbacks when it cannot.

use std::sync::Arc;
use std::time::Instant;

use lf_core::turn::StandIn;
use lf_core::{DeltaStream, Model, ModelError, ModelProvider, ModelRequest};
use lf_models::circuit::Circuits;
use tracing::warn;

/// One model that can answer.
pub(crate) struct Upstream {
    pub model: Arc<Model>,
    pub provider: Arc<dyn ModelProvider>,
    /// `None` for the model that was asked for: the turn begins with it.
    pub stand_in: Option<StandIn>,
}

impl Upstream {
    /// What shares its fate: the same model of the same upstream, whatever projects call it.
    fn circuit(&self) -> String {
        format!("{}\0{}", self.model.base_url, self.model.model)
    }
}

/// The models of one turn, the one that answers first.
pub(crate) struct Upstreams {
    now: Upstream,
    /// The candidate that the turn has not yet taken.
    next: Option<Upstream>,
    /// In reverse order: the next one is the last.
    others: Vec<Upstream>,
    circuits: Arc<Circuits>,
    /// The present ask has been answered in part.
    answered: bool,
}

impl Upstreams {
    pub(crate) fn new(first: Upstream, mut others: Vec<Upstream>, circuits: Arc<Circuits>) -> Self {
        others.reverse();
        Self { now: first, next: None, others, circuits, answered: false }
    }

    pub(crate) fn name(&self) -> &str {
        &self.now.model.name
    }

    pub(crate) fn ask(&mut self, request: &ModelRequest) -> DeltaStream {
        self.answered = false;
        self.now.provider.stream(request)
    }

    /// Whether this model has been failing lately, and there is another.
    pub(crate) fn is_failing(&self) -> bool {
        let failing = !self.others.is_empty() && !self.circuits.permits(&self.now.circuit(), Instant::now());
        if failing {
            warn!(model = self.name(), "this model has been failing; another is asked in its place");
        }
        failing
    }

    /// A piece of the answer has come.
    pub(crate) fn answered(&mut self) {
        if !std::mem::replace(&mut self.answered, true) {
            self.circuits.answered(&self.now.circuit());
        }
    }

    /// Whether another model may do better after this error.
    pub(crate) fn failed(&mut self, error: &ModelError) -> bool {
        if self.answered || !is_the_upstreams_fault(error) {
            return false;
        }
        self.circuits.failed(&self.now.circuit(), Instant::now());
        if !self.others.is_empty() {
            warn!(model = self.name(), %error, "the model failed; another is asked in its place");
        }
        true
    }

    /// The next model that may take over; it does with [`Self::take_over`].
    pub(crate) fn candidate(&mut self) -> Option<StandIn> {
        while let Some(mut next) = self.others.pop() {
            let open = !self.others.is_empty() && !self.circuits.permits(&next.circuit(), Instant::now());
            if let Some(stand_in) = next.stand_in.take().filter(|_| !open) {
                self.next = Some(next);
                return Some(stand_in);
            }
        }
        None
    }

    /// The candidate fits the turn.
    pub(crate) fn take_over(&mut self) {
        if let Some(next) = self.next.take() {
            self.now = next;
        }
    }
}

/// Another model may do better; a request that is at fault is at fault everywhere.
fn is_the_upstreams_fault(error: &ModelError) -> bool {
    match error {
        ModelError::Unreachable { .. }
        | ModelError::RateLimited { .. }
        | ModelError::Failed { .. }
        | ModelError::Timeout { .. }
        | ModelError::Garbled { .. } => true,
        ModelError::Unauthorized { .. } | ModelError::Rejected { .. } | ModelError::Unsupported(_) => false,
    }
}
