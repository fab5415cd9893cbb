//! Writes whole answers.

use lf_core::ChatEvent;
use serde_json::{Value, json};

use super::draft::Draft;
use super::stream::Wire;
use super::view::ResponsesView;
use super::{error_reply, internal_error_reply};
use crate::openai_chat::{ErrorReply, LfEvents, lf_event};

/// Folds the events of a turn into one response object.
#[derive(Debug)]
pub struct Completion {
    draft: Draft,
    lf_events: LfEvents,
    told: Vec<Value>,
    failed: Option<ErrorReply>,
}

impl Completion {
    /// `id` begins with `resp_`; `created_at` in seconds since 1970.
    pub fn new(id: &str, created_at: u64, model: &str, view: ResponsesView, lf_events: LfEvents) -> Self {
        let draft = Draft::new(id, created_at, model, view);
        Self { draft, lf_events, told: Vec::new(), failed: None }
    }

    /// The time, in seconds since 1970, for `completed_at`. Without it a completed response says `null` there.
    pub fn set_now(&mut self, seconds: u64) {
        self.draft.now = Some(seconds);
    }

    pub fn push(&mut self, event: &ChatEvent) {
        if self.draft.is_over() {
            return;
        }
        self.draft.event(event, &mut Wire::Muted);
        match event {
            ChatEvent::Failed(error) => self.failed = Some(error_reply(error)),
            // only a running client can use progress
            ChatEvent::CallProgress { .. } => {}
            _ if self.lf_events == LfEvents::Told => self.told.extend(lf_event(event)),
            _ => {}
        }
    }

    /// The response as far as it is, whatever its end: to be stored.
    pub fn response(&self) -> Value {
        self.draft.response()
    }

    /// The body for status 200, or the error the turn ended with. A turn that has no end is an error of ours.
    ///
    /// # Errors
    /// The reply to send instead.
    pub fn finish(self) -> Result<Value, ErrorReply> {
        if let Some(reply) = self.failed {
            return Err(reply);
        }
        if !self.draft.is_over() {
            return Err(internal_error_reply(500, "the turn ended without an answer"));
        }
        let mut body = self.draft.response();
        if !self.told.is_empty() {
            body["lf"] = json!({"events": self.told});
        }
        Ok(body)
    }
}
