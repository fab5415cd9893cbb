//! Streams that begin before their turn does: the message waits for others of its conversation, or for a server that starts.
//! Clients give up a connection that says nothing.

use async_stream::stream;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::StreamExt as _;
use lf_dialects::openai_chat::ErrorReply;
use lf_dialects::openai_responses::error_event;

use super::{Begins, Begun, first, respond, told};
use crate::reply::{Caller, Face};
use crate::routes::sessions;

/// Whether a request wants its answer as a stream.
pub(super) fn is_streamed(body: &Bytes) -> bool {
    #[derive(serde::Deserialize)]
    struct How {
        #[serde(default)]
        stream: Option<bool>,
    }
    serde_json::from_slice::<How>(body).is_ok_and(|how| how.stream == Some(true))
}

/// Signs of life until the turn begins, and then what it tells; why it does not begin is an error event.
pub(super) fn streamed(begins: Begins, caller: Caller, headers: &HeaderMap) -> Response {
    let face = caller.face;
    let events = stream! {
        let (mut events, mut head) = match begins.await {
            Ok(Begun::Turn(events, head)) => (events, head),
            // nothing that is streamed goes on aside
            Ok(Begun::Aside(_)) => return,
            Err(error) => {
                yield Ok(failed(face, error));
                return;
            }
        };
        match first(&mut events, &mut head).await {
            Ok(held) => {
                let mut events = Box::pin(told(held, events, &head));
                while let Some(event) = events.next().await {
                    yield event;
                }
            }
            Err(error) => yield Ok(failed(face, caller.model_error(&error))),
        }
    };
    let mut response = respond(events, face);
    sessions::echo(headers, response.headers_mut());
    response
}

fn failed(face: Face, error: ErrorReply) -> Event {
    match face {
        Face::Messages => Event::default().event("error").data(error.body.to_string()),
        Face::Responses => Event::default().event("error").data(error_event(error)),
        Face::Chat | Face::Own => Event::default().data(error.body.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_streamed_where_it_says_so_and_nowhere_else() {
        let is_streamed = |body: &str| is_streamed(&Bytes::from(body.to_owned()));
        assert!(is_streamed(r#"{"messages": [], "stream": true}"#));
        for body in [r#"{"stream": false}"#, r#"{"stream": null}"#, "{}", r#"{"stream": "yes"}"#, "x"] {
            assert!(!is_streamed(body), "{body}");
        }
    }
}
