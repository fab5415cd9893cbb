//! Who answers a turn: the model that was asked for, or one of its fallbacks when it cannot.

use std::sync::Arc;
use std::time::Instant;

use lf_core::turn::{AskModel, StandIn};
use lf_core::{ChatEvent, DeltaStream, Model, ModelError, ModelProvider, ModelRequest};
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
    /// In reverse order: the next one is the last.
    others: Vec<Upstream>,
    circuits: Arc<Circuits>,
    /// The present ask has been answered in part.
    answered: bool,
}

impl Upstreams {
    pub(crate) fn new(first: Upstream, mut others: Vec<Upstream>, circuits: Arc<Circuits>) -> Self {
        others.reverse();
        Self { now: first, others, circuits, answered: false }
    }

    pub(crate) fn name(&self) -> &str {
        &self.now.model.name
    }

    pub(crate) fn ask(&mut self, request: &ModelRequest) -> DeltaStream {
        self.answered = false;
        self.now.provider.stream(request)
    }

    /// Passes over models that have been failing, as long as there is another.
    pub(crate) fn begin(&mut self, ask: &mut AskModel, events: &mut Vec<ChatEvent>) {
        while !self.others.is_empty() && !self.circuits.permits(&self.now.circuit(), Instant::now()) {
            warn!(model = self.name(), "this model has been failing; another is asked in its place");
            if !self.take_next(ask, events) {
                return;
            }
        }
    }

    /// A piece of the answer has come.
    pub(crate) fn answered(&mut self) {
        if !std::mem::replace(&mut self.answered, true) {
            self.circuits.answered(&self.now.circuit());
        }
    }

    /// Whether another model takes over after this error.
    pub(crate) fn fall_back(
        &mut self,
        error: &ModelError,
        ask: &mut AskModel,
        events: &mut Vec<ChatEvent>,
    ) -> bool {
        if self.answered || !is_the_upstreams_fault(error) {
            return false;
        }
        self.circuits.failed(&self.now.circuit(), Instant::now());
        let failed = self.name().to_owned();
        if !self.take_next(ask, events) {
            return false;
        }
        warn!(model = failed, %error, by = self.name(), "the model failed; another is asked in its place");
        true
    }

    fn take_next(&mut self, ask: &mut AskModel, events: &mut Vec<ChatEvent>) -> bool {
        while let Some(mut next) = self.others.pop() {
            let open = !self.others.is_empty() && !self.circuits.permits(&next.circuit(), Instant::now());
            let taken = !open && next.stand_in.take().is_some_and(|stand_in| ask.stand_in(stand_in, events));
            if taken {
                self.now = next;
                return true;
            }
        }
        false
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
