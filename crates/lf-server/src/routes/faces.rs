//! The APIs that answer with a turn: how each reads its request and writes the turn's events.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive};
use lf_core::ChatEvent;
use lf_core::model::ChatRequest;
use lf_dialects::anthropic_messages::{self, EventEncoder, MessagesView};
use lf_dialects::openai_chat::{self, ChunkEncoder, ErrorReply, LfEvents, RequestError, ViewOptions};
use lf_dialects::openai_responses::{self, ResponsesView};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reply::Face;

/// Between two signs of life on a stream that is silent while a model thinks or a tool runs.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How the client wants its answer shown.
#[derive(Clone)]
pub(super) enum View {
    Chat(ViewOptions),
    Messages(MessagesView),
    Responses(Box<ResponsesView>),
}

impl View {
    /// `stored_item` looks up an output item of an earlier response.
    pub(super) fn decode(
        face: Face,
        headers: &HeaderMap,
        body: &Bytes,
        stored_item: &dyn Fn(&str) -> Option<Value>,
    ) -> Result<(ChatRequest, Self), RequestError> {
        match face {
            Face::Messages => {
                let (mut request, view) = anthropic_messages::decode_request(body)?;
                let given = ["anthropic-beta", "anthropic-version"].into_iter().filter_map(|name| {
                    let values: Vec<&str> =
                        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
                    (!values.is_empty()).then(|| (name.to_owned(), values.join(",")))
                });
                anthropic_messages::keep_headers(&mut request, given);
                Ok((request, Self::Messages(view)))
            }
            Face::Responses => {
                let (request, view) = openai_responses::decode_request_with(body, stored_item)?;
                Ok((request, Self::Responses(Box::new(view))))
            }
            Face::Chat | Face::Own => {
                openai_chat::decode_request(body).map(|(request, view)| (request, Self::Chat(view)))
            }
        }
    }

    pub(super) fn streams(&self) -> bool {
        match self {
            Self::Chat(view) => view.stream,
            Self::Messages(view) => view.stream,
            Self::Responses(view) => view.stream,
        }
    }
}

/// What is said of an answer beside its content.
pub(super) struct Head {
    pub id: String,
    pub created: u64,
    pub model: String,
    pub view: View,
    pub told: LfEvents,
}

impl Head {
    pub(super) fn new(turn: &str, model: String, view: View, told: LfEvents) -> Self {
        let prefix = match view {
            View::Chat(_) => "chatcmpl-",
            View::Messages(_) => "msg_",
            View::Responses(_) => "resp_",
        };
        Self { id: format!("{prefix}{turn}"), created: now(), model, view, told }
    }

    pub(super) fn fold(&self) -> Fold {
        match &self.view {
            View::Chat(_) => Fold::Chat(Box::new(openai_chat::Completion::new(
                &self.id,
                self.created,
                &self.model,
                self.told,
            ))),
            View::Messages(view) => Fold::Messages(Box::new(anthropic_messages::Completion::new(
                &self.id,
                &self.model,
                *view,
                self.told,
            ))),
            View::Responses(view) => Fold::Responses(Box::new(self.response(view))),
        }
    }

    pub(super) fn response(&self, view: &ResponsesView) -> openai_responses::Completion {
        openai_responses::Completion::new(&self.id, self.created, &self.model, view.clone(), self.told)
    }

    pub(super) fn encoder(&self) -> Encoder {
        match &self.view {
            View::Chat(view) => {
                Encoder::Chat(ChunkEncoder::new(&self.id, self.created, &self.model, *view, self.told))
            }
            View::Messages(view) => {
                Encoder::Messages(Box::new(EventEncoder::new(&self.id, &self.model, *view, self.told)))
            }
            View::Responses(view) => Encoder::Responses(Box::new(self.response_encoder(view))),
        }
    }

    pub(super) fn response_encoder(&self, view: &ResponsesView) -> openai_responses::EventEncoder {
        openai_responses::EventEncoder::new(&self.id, self.created, &self.model, view.clone(), self.told)
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Folds the events into one body.
pub(super) enum Fold {
    Chat(Box<openai_chat::Completion>),
    Messages(Box<anthropic_messages::Completion>),
    Responses(Box<openai_responses::Completion>),
}

impl Fold {
    pub(super) fn push(&mut self, event: &ChatEvent) {
        match self {
            Self::Chat(completion) => completion.push(event),
            Self::Messages(completion) => completion.push(event),
            Self::Responses(completion) => {
                completion.set_now(now());
                completion.push(event);
            }
        }
    }

    pub(super) fn finish(self, request_id: &str) -> Result<Value, ErrorReply> {
        match self {
            Self::Chat(completion) => completion.finish(),
            Self::Messages(completion) => completion.finish(request_id),
            Self::Responses(completion) => completion.finish(),
        }
    }
}

/// How a response is shown that is read from its turn's journal.
#[derive(Serialize, Deserialize)]
pub(super) struct Shown {
    pub view: ResponsesView,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    pub told: LfEvents,
}

impl Shown {
    pub(super) fn head(self, id: &str) -> Head {
        let Self { view, created, model, told } = self;
        Head { id: id.to_owned(), created, model, view: View::Responses(Box::new(view)), told }
    }
}

pub(super) enum Encoder {
    Chat(ChunkEncoder),
    Messages(Box<EventEncoder>),
    Responses(Box<openai_responses::EventEncoder>),
}

impl Encoder {
    pub(super) fn event(&mut self, event: &ChatEvent) -> Vec<Event> {
        match self {
            Self::Chat(encoder) => {
                encoder.event(event).into_iter().map(|chunk| Event::default().data(chunk)).collect()
            }
            Self::Messages(encoder) => named(encoder.event(event)),
            Self::Responses(encoder) => {
                encoder.set_now(now());
                named(encoder.event(event))
            }
        }
    }

    /// What follows the last event of an answer that ended well.
    pub(super) fn end_mark(&self) -> Option<Event> {
        match self {
            Self::Chat(_) => Some(Event::default().data("[DONE]")),
            Self::Messages(_) | Self::Responses(_) => None,
        }
    }
}

/// Signs of life as each API has them.
pub(super) fn keep_alive(face: Face) -> KeepAlive {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    match face {
        Face::Chat | Face::Responses | Face::Own => keep_alive,
        Face::Messages => keep_alive.event(Event::default().event("ping").data(r#"{"type":"ping"}"#)),
    }
}

fn named<N: AsRef<str>>(events: Vec<(N, String)>) -> Vec<Event> {
    events.into_iter().map(|(name, data)| Event::default().event(name).data(data)).collect()
}
