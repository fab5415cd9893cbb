//! What is seen to on every event stream of a server: whose answer an event is, whether the stream can be resumed, and
//! that a request whose answer broke off learns why.
//!
//! The client library takes any response for the end of a stream, resumes whatever had an id, and has no words for why
//! a stream ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use rmcp::model::{ErrorCode, RequestId};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use sse_stream::Sse;

use super::events::{SseError, is_too_large};
use super::repeat::Repeatable;
use super::{HEADER_ANNOTATION, annotated_tools, reason_of};
use crate::failure::{Failure, excerpt};
use crate::stdio::OVERSIZED;
use crate::tap::Signals;

/// Of the error that stands for an answer that broke off; never sent over the wire.
pub(crate) const BROKEN_OFF: ErrorCode = ErrorCode(-32_098);
/// Streams that may be resumed and whose requests are remembered.
const MAX_RESUMABLE: usize = 256;
const SHOWN: usize = 200;
/// What the names of the hints on tools end with.
const HINT: &str = "Hint\"";

pub(super) type Events = BoxStream<'static, Result<Sse, SseError>>;

/// Which request a stream answers, by the id of the last event on it: who resumes a stream knows nothing else.
#[derive(Debug, Default)]
pub(super) struct Resumable(Mutex<VecDeque<(String, RequestId)>>);

impl Resumable {
    fn remember(&self, event: String, request: &RequestId) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, other)| other != request);
        if known.len() == MAX_RESUMABLE {
            known.pop_front();
        }
        known.push_back((event, request.clone()));
    }

    pub(super) fn request(&self, event: &str) -> Option<RequestId> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(id, _)| id == event).map(|(_, request)| request.clone())
    }
}

/// How a stream is looked at.
pub(super) struct Watch {
    pub(super) signals: Arc<Signals>,
    /// What it answers; `None` for the stream of what a server says on its own.
    pub(super) request: Option<RequestId>,
    /// Where the protocol lets streams be resumed: not in the newer generation (revision 2026-07-28, transports).
    pub(super) resumable: Option<Arc<Resumable>>,
    /// Whether this is the rest of a stream.
    pub(super) is_resumed: bool,
    pub(super) repeatable: Arc<Repeatable>,
}

impl Watch {
    pub(super) fn over(self, events: Events) -> Events {
        let may_resume = self.is_resumed;
        let watched = Watched { watch: self, events, may_resume, is_over: false };
        futures_util::stream::unfold(watched, |mut watched| async {
            let item = watched.next().await?;
            Some((item, watched))
        })
        .boxed()
    }
}

struct Watched {
    watch: Watch,
    events: Events,
    /// An id came, so the library asks for the rest when the stream ends.
    may_resume: bool,
    /// The answer has come, or an error in its place.
    is_over: bool,
}

impl Watched {
    async fn next(&mut self) -> Option<Result<Sse, SseError>> {
        if self.is_over {
            return self.events.next().await;
        }
        let error = match self.events.next().await {
            Some(Ok(event)) => return Some(Ok(self.seen(event))),
            Some(Err(error)) => Some(error),
            None => None,
        };
        let said = match &error {
            Some(error) => format!("the answer broke off: {}", excerpt(&reason_of(error), SHOWN)),
            None => "the answer ended before the result came".to_owned(),
        };
        let is_oversized = error.as_ref().is_some_and(is_too_large);
        if let Some(error) = &error {
            tracing::debug!(error = %reason_of(error), resumed = self.may_resume, "an event stream broke off");
        }
        match &self.watch.request {
            // A stream that is resumed would bring the same event again.
            Some(request) if is_oversized || !self.may_resume => {
                self.is_over = true;
                self.events = futures_util::stream::empty().boxed();
                let code = if is_oversized { OVERSIZED } else { BROKEN_OFF };
                Some(Ok(failed(request, code, &said)))
            }
            _ => {
                if error.is_some() {
                    self.watch.signals.note(&Failure::new(said));
                }
                error.map(Err)
            }
        }
    }

    /// What the library is to see of an event.
    fn seen(&mut self, mut event: Sse) -> Sse {
        self.watch.signals.reached();
        match (&self.watch.resumable, &self.watch.request, &event.id) {
            (None, ..) => event.id = None,
            (Some(resumable), Some(request), Some(id)) => {
                resumable.remember(id.clone(), request);
                self.may_resume = true;
            }
            _ => {}
        }
        let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
        let Some(data) = event.data.as_deref().filter(|_| is_message) else { return event };
        if let Some(request) = &self.watch.request {
            match whose(data, request) {
                Whose::Ours => self.is_over = true,
                Whose::Nobodys => {
                    self.is_over = true;
                    event.data = Some(with_id(data, request));
                    return event;
                }
                Whose::Anothers => {
                    tracing::debug!("a stream brought the answer to another request, which is dropped");
                    event.data = None;
                    return event;
                }
                Whose::NoAnswer => {}
            }
        }
        if [HEADER_ANNOTATION, HINT].iter().any(|word| data.contains(word))
            && let Ok(message) = serde_json::from_str(data)
        {
            self.watch.signals.annotated(annotated_tools(&message));
            self.watch.repeatable.learn(&message, &self.watch.signals);
        }
        event
    }
}

enum Whose {
    Ours,
    Anothers,
    /// An error that names no request.
    Nobodys,
    /// A notification, or a request of the server.
    NoAnswer,
}

fn whose(data: &str, request: &RequestId) -> Whose {
    #[derive(Deserialize)]
    struct Head {
        id: Option<Value>,
        method: Option<IgnoredAny>,
        error: Option<IgnoredAny>,
    }
    match serde_json::from_str(data) {
        Ok(Head { method: Some(_), .. }) | Err(_) => Whose::NoAnswer,
        Ok(Head { id: Some(id), .. }) if is_same(&id, request) => Whose::Ours,
        Ok(Head { id: Some(_), .. }) => Whose::Anothers,
        Ok(Head { id: None, error: Some(_), .. }) => Whose::Nobodys,
        Ok(Head { id: None, .. }) => Whose::Anothers,
    }
}

/// Whether these are the same id; some servers answer with a string where a number was asked with.
pub(super) fn is_same(id: &Value, request: &RequestId) -> bool {
    match (id, request) {
        (Value::String(id), request) => *id == request.to_string(),
        (Value::Number(id), RequestId::Number(request)) => {
            id.as_i64() == Some(*request) || id.as_f64().is_some_and(|id| id == *request as f64)
        }
        _ => false,
    }
}

fn with_id(data: &str, request: &RequestId) -> String {
    match serde_json::from_str(data) {
        Ok(Value::Object(mut message)) => {
            message.insert("id".to_owned(), request.clone().into_json_value());
            Value::Object(message).to_string()
        }
        _ => data.to_owned(),
    }
}

/// An answer in the place of the one that did not come.
fn failed(request: &RequestId, code: ErrorCode, message: &str) -> Sse {
    let id = request.clone().into_json_value();
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code.0, "message": message}});
    Sse { data: Some(error.to_string()), ..Sse::default() }
}
