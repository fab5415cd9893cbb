//! One request to a server and its answer, read within bounds.
//!
//! Nothing is decompressed: no encoding is asked for, and a server that uses one all the same is told of. What a server
//! answers instead of MCP is shown by its first characters.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
    StreamableHttpPostResponse as Posted,
};

use super::describe::{describe_status, encoded, not_mcp, unreadable};
use super::events::events;
use super::watch::{Events, is_same};
use super::{Fate, HttpError, MAX_BODY, MAX_EVENT, Told};
use crate::failure::{Failure, excerpt};

/// Bytes read of the body of an error, as much as one JSON-RPC error may need.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// Bytes read of what is shown of a body.
const MAX_SHOWN: usize = 4 * 1024;
/// For the beginning of a body that is only shown.
const SHOWN_WAIT: Duration = Duration::from_secs(2);
/// Bytes of a `WWW-Authenticate` header that are read.
const MAX_CHALLENGE: usize = 8 * 1024;
const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";
const SESSION: &str = "mcp-session-id";
const LAST_EVENT: &str = "last-event-id";
/// What the transport sends by itself. The version comes with the library's own headers.
const RESERVED: [&str; 4] = ["accept", "content-type", SESSION, LAST_EVENT];

/// What goes with a request besides its message.
#[derive(Clone, Copy)]
pub(super) struct Address<'a> {
    pub(super) client: &'a reqwest::Client,
    pub(super) uri: &'a str,
    pub(super) session: Option<&'a str>,
    pub(super) bearer: Option<&'a str>,
    pub(super) headers: &'a HashMap<HeaderName, HeaderValue>,
}

/// An answer, and whether the server may not know the session: a 400 that names no request.
pub(super) struct Reply {
    pub(super) posted: Posted,
    pub(super) doubts_session: bool,
}

impl From<Posted> for Reply {
    fn from(posted: Posted) -> Self {
        Self { posted, doubts_session: false }
    }
}

impl Address<'_> {
    fn fill(&self, mut request: RequestBuilder, accept: &'static str) -> Result<RequestBuilder, HttpError> {
        request = request.header(ACCEPT, accept);
        for (name, value) in self.headers {
            if RESERVED.contains(&name.as_str()) {
                return Err(StreamableHttpError::ReservedHeaderConflict(name.to_string()));
            }
            request = request.header(name, value);
        }
        if let Some(session) = self.session {
            request = request.header(SESSION, session);
        }
        Ok(match self.bearer {
            Some(bearer) => request.bearer_auth(bearer),
            None => request,
        })
    }

    /// Sends a message and reads the answer, up to its first event where it is a stream.
    pub(super) async fn post(&self, message: &ClientJsonRpcMessage) -> Result<Reply, HttpError> {
        let request = self.fill(self.client.post(self.uri), "text/event-stream, application/json")?;
        let response = request.json(message).send().await.map_err(StreamableHttpError::Client)?;
        let status = response.status();
        if status.is_success() {
            return self.answer(message, response).await.map(Reply::from);
        }
        if status == StatusCode::NOT_FOUND && self.session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        self.refusal(message, response).await
    }

    async fn answer(&self, message: &ClientJsonRpcMessage, response: Response) -> Result<Posted, HttpError> {
        let JsonRpcMessage::Request(request) = message else {
            // Nothing is answered to it, so whatever comes is taken for what it should be: 202 without a body.
            return Ok(Posted::Accepted);
        };
        if matches!(response.status(), StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(Posted::Accepted);
        }
        if let Some(encoding) = encoding(response.headers()) {
            return Err(told(encoded(&encoding), Fate::Unknown));
        }
        let kind = content_type(response.headers());
        let session = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if is_of(kind.as_deref(), EVENT_STREAM) {
            return Ok(Posted::Sse(events(response.bytes_stream(), MAX_EVENT), session));
        }
        if !is_of(kind.as_deref(), JSON) {
            let shown = shown_body(response).await;
            return Err(told(not_mcp(kind.as_deref(), &shown), Fate::Unknown));
        }
        let length = response.content_length();
        let body = whole(response.bytes_stream(), length, MAX_BODY).await?;
        let answer: ServerJsonRpcMessage = serde_json::from_slice(&body).map_err(|_| {
            told(unreadable(&String::from_utf8_lossy(&body[..body.len().min(MAX_SHOWN)])), Fate::Unknown)
        })?;
        let id = match &answer {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {
                return Err(told(Failure::new("answered with something that is no answer"), Fate::Unknown));
            }
        };
        match id {
            Some(id) if !is_same(&id.clone().into_json_value(), &request.id) => {
                Err(told(Failure::new("answered with the result of another request"), Fate::Unknown))
            }
            _ => Ok(Posted::Json(with_id(answer, message), session)),
        }
    }

    async fn refusal(&self, message: &ClientJsonRpcMessage, response: Response) -> Result<Reply, HttpError> {
        let status = response.status();
        if let Some(error) = turned_away(status, response.headers()) {
            return Err(error);
        }
        let is_json = is_of(content_type(response.headers()).as_deref(), JSON);
        let is_plain = encoding(response.headers()).is_none();
        let length = response.content_length().filter(|length| *length <= MAX_ERROR_BODY as u64);
        let body = match is_plain {
            true => whole(response.bytes_stream(), length, MAX_ERROR_BODY).await.unwrap_or_default(),
            false => Vec::new(),
        };
        let error = match serde_json::from_slice(&body) {
            Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
            _ => None,
        };
        let is_bad = status == StatusCode::BAD_REQUEST && self.session.is_some();
        if let JsonRpcMessage::Request(request) = message {
            let is_probe = matches!(request.request, ClientRequest::DiscoverRequest(_));
            // A refused probe is for the greeting to judge, whatever its shape.
            if is_probe && self.session.is_none() && status.is_client_error() {
                let said = format!("answered {status}: {}", excerpt(&String::from_utf8_lossy(&body), 200));
                let error = error.map_or_else(|| ErrorData::invalid_request(said, None), |error| error.error);
                let error = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
                return Ok(Posted::Json(error, None).into());
            }
            if is_json && let Some(error) = error {
                let doubts_session = is_bad && error.id.is_none();
                let posted = Posted::Json(with_id(ServerJsonRpcMessage::Error(error), message), None);
                return Ok(Reply { posted, doubts_session });
            }
        }
        let failure = describe_status(status, &String::from_utf8_lossy(&body));
        Err(told_status(failure, status, is_bad))
    }

    /// Opens the stream of what the server says on its own, or the rest of one that broke off.
    pub(super) async fn get(&self, last_event: Option<&str>) -> Result<Events, HttpError> {
        let mut request = self.fill(self.client.get(self.uri), EVENT_STREAM)?;
        if let Some(last_event) = last_event {
            request = request.header(LAST_EVENT, last_event);
        }
        let response = request.send().await.map_err(StreamableHttpError::Client)?;
        let status = response.status();
        if let Some(error) = turned_away(status, response.headers()) {
            return Err(error);
        }
        // It has no such stream, or does not know any more what it should go on with: asking again is of no use.
        if status.is_client_error() {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let kind = content_type(response.headers());
        if !status.is_success() {
            return Err(told_status(describe_status(status, ""), status, false));
        }
        if let Some(encoding) = encoding(response.headers()) {
            return Err(told(encoded(&encoding), Fate::Unknown));
        }
        if !is_of(kind.as_deref(), EVENT_STREAM) {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Ok(events(response.bytes_stream(), MAX_EVENT))
    }

    /// Ends the session; a server that cannot is no error.
    pub(super) async fn delete(&self) -> Result<(), HttpError> {
        let request = self.fill(self.client.delete(self.uri), JSON)?;
        let response = request.send().await.map_err(StreamableHttpError::Client)?;
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND => Ok(()),
            status => Err(told_status(describe_status(status, ""), status, false)),
        }
    }
}

fn told(failure: Failure, fate: Fate) -> HttpError {
    Told { failure, fate, status: None, doubts_session: false }.into()
}

fn told_status(failure: Failure, status: StatusCode, doubts_session: bool) -> HttpError {
    Told { failure, fate: fate_of(status), status: Some(status), doubts_session }.into()
}

/// What a status says of the request: a client error is told before anything is run (RFC 9110, section 15.5).
pub(crate) fn fate_of(status: StatusCode) -> Fate {
    match status {
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE => Fate::Outdated,
        status if status.is_redirection() => Fate::TurnedAway(None),
        StatusCode::REQUEST_TIMEOUT => Fate::Unknown,
        status if status.is_client_error() => Fate::TurnedAway(None),
        _ => Fate::Unknown,
    }
}

/// For want of credentials, or because there are too many requests.
pub(super) fn turned_away(status: StatusCode, headers: &HeaderMap) -> Option<HttpError> {
    let text = |name: HeaderName, longest: usize| {
        let value = headers.get(name)?;
        (value.len() <= longest).then(|| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    match status {
        StatusCode::UNAUTHORIZED => {
            let challenge = text(WWW_AUTHENTICATE, MAX_CHALLENGE).unwrap_or_default();
            Some(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge)))
        }
        StatusCode::FORBIDDEN => {
            let challenge = text(WWW_AUTHENTICATE, MAX_CHALLENGE).unwrap_or_default();
            let scope = scope_of(&challenge);
            Some(StreamableHttpError::InsufficientScope(InsufficientScopeError::new(challenge, scope)))
        }
        StatusCode::TOO_MANY_REQUESTS => {
            let error = HttpStatusError::new(status.as_u16(), text(RETRY_AFTER, 128));
            Some(StreamableHttpError::HttpStatus(error))
        }
        _ => None,
    }
}

/// The `scope` of a challenge (RFC 6750, section 3).
fn scope_of(challenge: &str) -> Option<String> {
    let at = challenge.to_ascii_lowercase().find("scope=")?;
    let value = &challenge[at + "scope=".len()..];
    let scope = match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => value.split([',', ' ', ';']).next()?,
    };
    (!scope.is_empty()).then(|| scope.to_owned())
}

/// An error that names no request is the answer to the one it was sent for.
fn with_id(answer: ServerJsonRpcMessage, to: &ClientJsonRpcMessage) -> ServerJsonRpcMessage {
    match (answer, to) {
        (JsonRpcMessage::Error(mut error), JsonRpcMessage::Request(request)) => {
            error.id.get_or_insert_with(|| request.id.clone());
            JsonRpcMessage::Error(error)
        }
        (answer, _) => answer,
    }
}

fn content_type(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?;
    Some(String::from_utf8_lossy(kind.as_bytes()).to_ascii_lowercase())
}

fn is_of(kind: Option<&str>, wanted: &str) -> bool {
    kind.is_some_and(|kind| kind.starts_with(wanted))
}

/// How a body is packed, unless it is not.
pub(crate) fn encoding(headers: &HeaderMap) -> Option<String> {
    let encoding = headers.get(CONTENT_ENCODING)?;
    let encoding = String::from_utf8_lossy(encoding.as_bytes()).trim().to_ascii_lowercase();
    (!encoding.is_empty() && encoding != "identity").then_some(encoding)
}

/// The beginning of a body, to be shown; none where it is packed.
pub(crate) async fn shown_body(response: Response) -> String {
    if encoding(response.headers()).is_some() {
        return String::new();
    }
    let mut bytes = response.bytes_stream();
    let mut shown = Vec::new();
    let reading = async {
        while shown.len() < MAX_SHOWN
            && let Some(Ok(chunk)) = bytes.next().await
        {
            shown.extend_from_slice(&chunk[..chunk.len().min(MAX_SHOWN - shown.len())]);
        }
    };
    let _ = tokio::time::timeout(SHOWN_WAIT, reading).await;
    String::from_utf8_lossy(&shown).into_owned()
}

/// A body of at most `limit` bytes. What it says of its length is only ever held against it.
async fn whole(
    bytes: impl Stream<Item = Result<Bytes, reqwest::Error>>,
    length: Option<u64>,
    limit: usize,
) -> Result<Vec<u8>, HttpError> {
    let too_large = || StreamableHttpError::ResponseBodyTooLarge { max_size: limit };
    if length.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let mut bytes = std::pin::pin!(bytes);
    let mut body = Vec::new();
    while let Some(chunk) = bytes.next().await {
        let chunk = chunk.map_err(StreamableHttpError::Client)?;
        if chunk.len() > limit - body.len() {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
