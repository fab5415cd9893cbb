//! HTTP: the one client that every remote server is reached with, and the streamable HTTP transport over it.

mod describe;

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue, StatusCode};
use lf_core::project::HttpServer;
use reqwest::redirect::{Attempt, Policy};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage, ServerResult};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    HttpStatusError, SseError, StreamableHttpClient, StreamableHttpClientTransportConfig,
    StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::time::sleep;

use crate::failure::{Failure, excerpt};
use crate::tap::{MAX_UNREACHED, Signals};
use describe::describe;
pub(crate) use describe::{describe_request, describe_status, not_mcp};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Same-origin 307 and 308 only.
const MAX_REDIRECTS: usize = 5;
/// One event of a stream, in bytes: it carries a whole result.
const MAX_EVENT: usize = 16 * 1024 * 1024;
/// Calls to one server at the same time, over all turns; the library's own limit of 16 would let slow ones block.
const MAX_CONCURRENT: usize = 256;
/// Before the second and third connect of one request: a server that restarts, or whose backlog was full, is there again.
const CONNECT_PAUSES: [Duration; MAX_UNREACHED - 1] =
    [Duration::from_millis(100), Duration::from_millis(400)];

/// Longest `Retry-After` that is waited for; a call has its own limit besides.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Times that a request is sent again to a server that has too many.
const MAX_TURNED_AWAY: usize = 2;

/// Builds the client. A rustls provider must have been installed in the process.
pub(crate) fn client() -> Result<reqwest::Client, Failure> {
    let instance = HeaderValue::from_static(crate::endpoint::instance());
    let named = HeaderName::from_static(crate::endpoint::INSTANCE_HEADER);
    reqwest::Client::builder()
        .default_headers(http::HeaderMap::from_iter([(named, instance)]))
        .user_agent(concat!("lf/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        // A pooled connection may have been closed by the server just when a call is sent over it.
        .pool_max_idle_per_host(0)
        .redirect(Policy::custom(redirect))
        .build()
        .map_err(|error| Failure::new(format!("no HTTP client can be set up: {error}")))
}

/// Credentials never cross an origin, and a POST never becomes a GET.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let keeps_method =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let same_origin =
        attempt.previous().last().is_some_and(|previous| previous.origin() == attempt.url().origin());
    if keeps_method && same_origin && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

/// The configured headers, as they are sent with each request.
pub(crate) fn headers(server: &HttpServer) -> Result<HashMap<HeaderName, HeaderValue>, Failure> {
    let mut headers = HashMap::new();
    for (name, value) in &server.headers {
        let parsed = HeaderName::try_from(name.as_str())
            .map_err(|_| Failure::new(format!("`{}` is not a header name", excerpt(name, 64))))?;
        let mut value = HeaderValue::from_str(value.expose())
            .map_err(|_| Failure::new(format!("the value of header `{name}` cannot be sent")))?;
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    Ok(headers)
}

/// A streamable HTTP transport; nothing is sent yet.
pub(crate) fn transport(
    client: reqwest::Client,
    server: &HttpServer,
    signals: Arc<Signals>,
) -> Result<StreamableHttpClientTransport<Backend>, Failure> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(server.base_url.as_str())
        .custom_headers(headers(server)?)
        .max_concurrent_requests(MAX_CONCURRENT)
        .max_sse_event_size(MAX_EVENT)
        .session_recovery_timeout(Duration::from_secs(15));
    let mut retry = ExponentialBackoff::default();
    retry.max_times = Some(6);
    retry.max_delay = Some(Duration::from_secs(30));
    config.retry_config = Arc::new(retry);
    let backend = Backend { client, signals, base_url: server.base_url.as_str().into() };
    Ok(StreamableHttpClientTransport::with_client(backend, config))
}

/// The library's HTTP backend, with the two things it lacks: it knows an expired session also by a 400, and it keeps
/// why a request failed.
#[derive(Clone)]
pub(crate) struct Backend {
    client: reqwest::Client,
    signals: Arc<Signals>,
    base_url: Arc<str>,
}

/// Whether an error says that the request was turned away for its session, and so was not run: the code that SDKs use for
/// it, the word in the text, or the TypeScript SDK's plain "Bad Request".
fn names_session(code: i32, message: &str) -> bool {
    let message = message.to_lowercase();
    code == -32_001 || message.contains("session") || (code == -32_000 && message.starts_with("bad request"))
}

/// What a schema names the header with that an argument is also sent in (SEP-2243).
const HEADER_ANNOTATION: &str = "x-mcp-header";

/// The tools of a list that have arguments to be sent as headers. The library leaves out those that it finds wrong and
/// tells nobody.
fn annotated_tools(message: &ServerJsonRpcMessage) -> Vec<String> {
    let JsonRpcMessage::Response(response) = message else { return Vec::new() };
    let ServerResult::ListToolsResult(list) = &response.result else { return Vec::new() };
    let is_annotated = |tool: &&rmcp::model::Tool| {
        serde_json::to_string(&tool.input_schema).is_ok_and(|schema| schema.contains(HEADER_ANNOTATION))
    };
    list.tools.iter().filter(is_annotated).map(|tool| tool.name.to_string()).collect()
}

type HttpError = StreamableHttpError<reqwest::Error>;

/// Whether no connection was made, so that the server does not know of the request.
fn is_unsent(error: &HttpError) -> bool {
    matches!(error, StreamableHttpError::Client(error) if error.is_connect())
}

/// How long to wait before a server that has too many requests is asked again; `None` where it does not say, or says too
/// much (RFC 9110, section 10.2.3).
fn pause_of(error: &HttpStatusError) -> Option<Duration> {
    if error.status != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let text = error.retry_after.as_deref()?.trim();
    let pause = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).unwrap_or_default(),
    };
    (pause <= MAX_RETRY_AFTER).then_some(pause)
}

/// Whether the session that a request was for is gone and no other was to be had: the request was not run.
pub(crate) fn is_outdated(error: &(dyn StdError + 'static)) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            HttpError::SessionExpired
                | HttpError::ReinitializationFailed(_)
                | HttpError::SessionRecoveryTimeout
        )
    )
}

/// Whether another request of another generation would fail just the same: nobody answers, or only those who are known.
pub(crate) fn is_final(error: &(dyn StdError + 'static)) -> bool {
    let Some(error) = error.downcast_ref::<HttpError>() else { return false };
    match error {
        StreamableHttpError::Client(error) => error.is_connect() || error.is_timeout() || error.is_builder(),
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => true,
        StreamableHttpError::HttpStatus(error) => error.status == StatusCode::TOO_MANY_REQUESTS,
        StreamableHttpError::UnexpectedServerResponse(text) => {
            ["HTTP 401", "HTTP 403", "HTTP 3"].iter().any(|status| text.starts_with(status))
        }
        StreamableHttpError::ReservedHeaderConflict(_) => true,
        _ => false,
    }
}

/// What a request over this transport failed with, and whether it was not even sent; `None` for other transports.
pub(crate) fn failure_of(error: &(dyn StdError + 'static), base_url: &str) -> Option<(Failure, bool)> {
    let error = error.downcast_ref::<HttpError>()?;
    Some((describe(error, base_url), is_unsent(error)))
}

impl Backend {
    fn note(&self, error: HttpError) -> HttpError {
        if matches!(error, StreamableHttpError::SessionExpired) {
            // Behind the new session may be a new server: what it lists must be asked anew.
            self.signals.tools_changed();
        } else {
            self.signals.note(&describe(&error, &self.base_url));
        }
        error
    }

    /// Posts, and again after a failed connect, or when told to come back soon: nothing was run then. Not the opening of a session, which its owner
    /// repeats with a backoff, nor notifications, which nobody waits for.
    async fn post(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let is_repeated = matches!(
            &message,
            JsonRpcMessage::Request(request) if !matches!(request.request, ClientRequest::InitializeRequest(_))
        );
        let mut pauses = CONNECT_PAUSES.iter().filter(|_| is_repeated);
        let mut turned_away = 0;
        loop {
            let posting = self.client.post_message_with_max_sse_event_size(
                uri.clone(),
                message.clone(),
                session_id.clone(),
                auth_header.clone(),
                custom_headers.clone(),
                max_sse_event_size,
            );
            let posted = tokio::select! {
                posted = posting => posted,
                () = self.signals.dead.cancelled() => return Err(StreamableHttpError::TransportChannelClosed),
            };
            match posted {
                Err(error) if is_unsent(&error) => {
                    self.signals.unreached();
                    let Some(pause) = pauses.next() else { return Err(error) };
                    sleep(*pause).await;
                }
                Err(StreamableHttpError::HttpStatus(error))
                    if turned_away < MAX_TURNED_AWAY
                        && let Some(pause) = pause_of(&error) =>
                {
                    turned_away += 1;
                    sleep(pause).await;
                }
                posted => {
                    self.signals.reached();
                    return posted;
                }
            }
        }
    }

    fn watched(
        &self,
        stream: BoxStream<'static, Result<Sse, SseError>>,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        let signals = self.signals.clone();
        let noting = stream.inspect(move |item| match item {
            Ok(event) => {
                signals.reached();
                let data = event.data.as_deref().filter(|data| data.contains(HEADER_ANNOTATION));
                if let Some(Ok(message)) = data.map(serde_json::from_str) {
                    signals.annotated(annotated_tools(&message));
                }
            }
            Err(error) => signals.note(&Failure::new(format!("the answer broke off: {error}"))),
        });
        noting.boxed()
    }
}

impl StreamableHttpClient for Backend {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            MAX_EVENT,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let in_session = session_id.is_some();
        let request_id = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let posted =
            self.post(uri, message, session_id, auth_header, custom_headers, max_sse_event_size).await;
        let response = match posted {
            // Servers of the TypeScript SDK answer a session they do not know with 400, most without an id.
            Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::Error(mut error), session))
                if error.id.is_none() && request_id.is_some() =>
            {
                // any other error may come after the work was done: sending it again would do it twice
                if in_session && names_session(error.error.code.0, &error.error.message) {
                    return Err(self.note(StreamableHttpError::SessionExpired));
                }
                error.id = request_id;
                StreamableHttpPostResponse::Json(JsonRpcMessage::Error(error), session)
            }
            Err(StreamableHttpError::UnexpectedServerResponse(text))
                if in_session
                    && request_id.is_some()
                    && text.starts_with("HTTP 400")
                    && names_session(0, &text) =>
            {
                return Err(self.note(StreamableHttpError::SessionExpired));
            }
            Ok(response) => response,
            Err(error) => return Err(self.note(error)),
        };
        self.signals.clear_trouble();
        if let StreamableHttpPostResponse::Json(message, _) = &response {
            self.signals.annotated(annotated_tools(message));
        }
        Ok(match response {
            StreamableHttpPostResponse::Sse(stream, session) => {
                StreamableHttpPostResponse::Sse(self.watched(stream), session)
            }
            other => other,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        self.client.delete_session(uri, session, auth_header, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        let id = session_id.clone();
        let opened = self
            .client
            .get_stream_with_max_sse_event_size(
                uri,
                id,
                last_event_id,
                auth_header,
                custom_headers,
                MAX_EVENT,
            )
            .await;
        // That a server has no such stream is not trouble; that it cannot be reached is.
        opened.map_err(|error| {
            if !is_unsent(&error) {
                return error;
            }
            let error = self.note(error);
            self.signals.unreached();
            error
        })
    }
}

#[cfg(test)]
mod tests;
