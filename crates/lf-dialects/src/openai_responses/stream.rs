//! Writes streamed answers.

use lf_core::ChatEvent;
use serde_json::{Map, Value, json};

use super::draft::Draft;
use super::view::ResponsesView;
use crate::openai_chat::{LfEvents, lf_event};

/// The name of an SSE event, and its data: one JSON document.
type Told = (&'static str, String);

/// Where events go, numbered from 0 without gaps.
#[derive(Debug)]
pub(super) enum Wire {
    /// Nobody listens: only the whole response is wanted.
    Muted,
    Live {
        told: u64,
        out: Vec<Told>,
    },
}

impl Wire {
    pub(super) fn tell(&mut self, name: &'static str, fields: impl FnOnce() -> Value) {
        let Self::Live { told, out } = self else { return };
        let mut event = Map::new();
        event.insert("type".to_owned(), name.into());
        event.insert("sequence_number".to_owned(), (*told).into());
        if let Value::Object(fields) = fields() {
            event.extend(fields);
        }
        *told += 1;
        out.push((name, Value::Object(event).to_string()));
    }

    fn take(&mut self) -> Vec<Told> {
        match self {
            Self::Muted => Vec::new(),
            Self::Live { out, .. } => std::mem::take(out),
        }
    }
}

/// The events of one streamed answer: `response.created` and `response.in_progress`, output items one after the other,
/// then one of `response.completed`, `response.incomplete` and `response.failed`, and nothing after it.
///
/// Progress of the server's own work rides in the field `lf` of further `response.in_progress` events: clients with
/// closed lists of events know that one, and no client does anything but note the response in it, which is whole.
#[derive(Debug)]
pub struct EventEncoder {
    draft: Draft,
    wire: Wire,
    lf_events: LfEvents,
    began: bool,
}

impl EventEncoder {
    /// `id` begins with `resp_`; `created_at` in seconds since 1970.
    pub fn new(id: &str, created_at: u64, model: &str, view: ResponsesView, lf_events: LfEvents) -> Self {
        let draft = Draft::new(id, created_at, model, view);
        Self { draft, wire: Wire::Live { told: 0, out: Vec::new() }, lf_events, began: false }
    }

    /// The time, in seconds since 1970, for `completed_at`. Without it a completed response says `null` there.
    pub fn set_now(&mut self, seconds: u64) {
        self.draft.now = Some(seconds);
    }

    /// The SSE events that this event becomes. The stream ends with the last ones of [`ChatEvent::Finished`] or
    /// [`ChatEvent::Failed`].
    pub fn event(&mut self, event: &ChatEvent) -> Vec<Told> {
        if self.draft.is_over() {
            return Vec::new();
        }
        if !std::mem::replace(&mut self.began, true) {
            for name in ["response.created", "response.in_progress"] {
                self.wire.tell(name, || json!({"response": self.draft.response()}));
            }
        }
        self.draft.event(event, &mut self.wire);
        if let (LfEvents::Told, Some(lf)) = (self.lf_events, lf_event(event)) {
            self.wire.tell("response.in_progress", || json!({"response": self.draft.response(), "lf": lf}));
        }
        self.wire.take()
    }

    /// The response as far as it is, whatever its end: to be stored.
    pub fn response(&self) -> Value {
        self.draft.response()
    }
}
