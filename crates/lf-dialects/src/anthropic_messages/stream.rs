//! Writes streamed answers.

use lf_core::{ChatEvent, Usage};
use serde_json::{Value, json};

use super::error_reply;
use super::request::MessagesView;
use super::shown::{BlockStep, Shown, write_usage};
use crate::openai_chat::{LfEvents, lf_event};

/// The name of an SSE event, and its data: one JSON document.
type Told = (&'static str, String);

/// The events of one streamed answer: one `message_start`, content blocks one after the other, then either
/// `message_delta` and `message_stop` or one `error`, and nothing after it.
#[derive(Debug)]
pub struct EventEncoder {
    id: String,
    model: String,
    lf_events: LfEvents,
    began: bool,
    over: bool,
    shown: Shown,
    /// Blocks begun so far; the last of them may be open.
    blocks: u64,
}

impl EventEncoder {
    pub fn new(id: &str, model: &str, view: MessagesView, lf_events: LfEvents) -> Self {
        Self {
            id: id.to_owned(),
            model: model.to_owned(),
            lf_events,
            began: false,
            over: false,
            shown: Shown::new(view.thinking),
            blocks: 0,
        }
    }

    /// The SSE events that this event becomes. The stream ends with the last ones of [`ChatEvent::Finished`] or
    /// [`ChatEvent::Failed`].
    pub fn event(&mut self, event: &ChatEvent) -> Vec<Told> {
        let mut out = Vec::new();
        if self.over {
            return out;
        }
        if let ChatEvent::Failed(error) = event {
            self.over = true;
            let mut body = error_reply(error, "").body;
            if let Some(body) = body.as_object_mut() {
                // the response's header says it
                body.shift_remove("request_id");
            }
            out.push(("error", body.to_string()));
            return out;
        }
        self.begin(&mut out);
        let mut steps = Vec::new();
        if let ChatEvent::Finished { reason, usage, stop_sequence, .. } = event {
            let end = self.shown.end(*reason, usage, stop_sequence.as_deref(), &mut steps);
            self.tell(steps, &mut out);
            let mut last = json!({"type": "message_delta", "delta": end.delta, "usage": end.usage});
            for (key, value) in end.beside {
                last[key.as_str()] = value;
            }
            out.push(told("message_delta", last));
            out.push(told("message_stop", json!({"type": "message_stop"})));
            self.over = true;
            return out;
        }
        self.shown.event(event, &mut steps);
        self.tell(steps, &mut out);
        if let (LfEvents::Told, Some(lf)) = (self.lf_events, lf_event(event)) {
            out.push(told("ping", json!({"type": "ping", "lf": lf})));
        }
        out
    }

    /// For when nothing else is to be said: clients cut off a silent stream.
    pub fn ping(&self) -> Option<Told> {
        (self.began && !self.over).then(|| told("ping", json!({"type": "ping"})))
    }

    fn begin(&mut self, out: &mut Vec<Told>) {
        if std::mem::replace(&mut self.began, true) {
            return;
        }
        let message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            // the counts are known at the end; `message_delta` tells them
            "usage": write_usage(&Usage::default()),
        });
        out.push(told("message_start", json!({"type": "message_start", "message": message})));
    }

    fn tell(&mut self, steps: Vec<BlockStep>, out: &mut Vec<Told>) {
        for step in steps {
            let last = self.blocks.saturating_sub(1);
            out.push(match step {
                BlockStep::Start(block) => {
                    let index = self.blocks;
                    self.blocks += 1;
                    let event =
                        json!({"type": "content_block_start", "index": index, "content_block": block});
                    told("content_block_start", event)
                }
                BlockStep::Delta(delta) => {
                    let event = json!({"type": "content_block_delta", "index": last, "delta": delta});
                    told("content_block_delta", event)
                }
                BlockStep::Stop => {
                    told("content_block_stop", json!({"type": "content_block_stop", "index": last}))
                }
            });
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "every caller has just made it")]
fn told(name: &'static str, event: Value) -> Told {
    (name, event.to_string())
}
