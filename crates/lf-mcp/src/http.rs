//! HTTP: the one client that every remote server is reached with, and the streamable HTTP transport over it.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue, StatusCode};
use lf_core::project::HttpServer;
use reqwest::redirect::{Attempt, Policy};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

use crate::failure::{Failure, excerpt};
use crate::tap::Signals;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Same-origin 307 and 308 only.
const MAX_REDIRECTS: usize = 5;
/// One event of a stream, in bytes: it carries a whole result.
const MAX_EVENT: usize = 16 * 1024 * 1024;
/// Calls to one server at the same time, over all turns; the library's own limit of 16 would let slow ones block.
const MAX_CONCURRENT: usize = 256;
/// Characters shown of a body that is no answer.
const SHOWN_BODY: usize = 200;

/// Builds the client. A rustls provider must have been installed in the process.
pub(crate) fn client() -> Result<reqwest::Client, Failure> {
    reqwest::Client::builder()
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

type HttpError = StreamableHttpError<reqwest::Error>;

impl Backend {
    fn note(&self, error: HttpError) -> HttpError {
        if matches!(error, StreamableHttpError::SessionExpired) {
            // Behind the new session may be a new server: what it lists must be asked anew.
            self.signals.tools_changed();
        } else {
            self.signals.note(describe(&error, &self.base_url));
        }
        if let StreamableHttpError::Client(error) = &error
            && error.is_connect()
        {
            self.signals.dead.cancel();
        }
        error
    }

    fn watched(
        &self,
        stream: BoxStream<'static, Result<Sse, SseError>>,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        let signals = self.signals.clone();
        let noting = stream.inspect(move |item| {
            if let Err(error) = item {
                signals.note(Failure::new(format!("the answer broke off: {error}")));
            }
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
        let posted = self
            .client
            .post_message_with_max_sse_event_size(
                uri,
                message,
                session_id,
                auth_header,
                custom_headers,
                max_sse_event_size,
            )
            .await;
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
        opened.map_err(|error| match &error {
            StreamableHttpError::Client(cause) if cause.is_connect() => self.note(error),
            _ => error,
        })
    }
}

fn describe(error: &HttpError, base_url: &str) -> Failure {
    match error {
        StreamableHttpError::Client(error) => describe_request(error, base_url),
        StreamableHttpError::AuthRequired(_) => needs_credentials(StatusCode::UNAUTHORIZED),
        StreamableHttpError::InsufficientScope(_) => needs_credentials(StatusCode::FORBIDDEN),
        StreamableHttpError::HttpStatus(error) => {
            describe_status(StatusCode::from_u16(error.status).unwrap_or_default(), "")
        }
        StreamableHttpError::UnexpectedServerResponse(text) => match parse_status(text) {
            Some((status, body)) => describe_status(status, body),
            None => Failure::new(format!("answered unexpectedly: {}", excerpt(text, SHOWN_BODY))),
        },
        StreamableHttpError::UnexpectedContentType(kind) => not_mcp(kind.as_deref()),
        StreamableHttpError::ReservedHeaderConflict(name) => Failure::hinted(
            format!("header `{name}` is set by the protocol itself"),
            "remove it from `headers`",
        ),
        other => Failure::new(excerpt(&other.to_string(), SHOWN_BODY)),
    }
}

/// The library reports other statuses as text that begins with "HTTP 404 Not Found: ".
fn parse_status(text: &str) -> Option<(StatusCode, &str)> {
    let rest = text.strip_prefix("HTTP ")?;
    let status = StatusCode::from_bytes(rest.get(..3)?.as_bytes()).ok()?;
    Some((status, rest.split_once(": ").map_or("", |(_, body)| body)))
}

pub(crate) fn describe_status(status: StatusCode, body: &str) -> Failure {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => needs_credentials(status),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Failure::hinted(
            format!("answered {status} at its `base_url`"),
            "check the path of `base_url` and whether the server speaks `http` or the older `sse` transport",
        ),
        status if status.is_redirection() => Failure::hinted(
            format!("answered {status}: it redirects elsewhere"),
            "set `base_url` to the place it redirects to",
        ),
        status => {
            let body = excerpt(body, SHOWN_BODY);
            let said = if body.is_empty() { String::new() } else { format!(": {body}") };
            Failure::new(format!("answered {status}{said}"))
        }
    }
}

fn needs_credentials(status: StatusCode) -> Failure {
    let said =
        if status == StatusCode::FORBIDDEN { "refuses these credentials" } else { "needs credentials" };
    Failure::hinted(
        format!("answered {status}: it {said}"),
        "set `headers`, such as `Authorization: 'Bearer ${env:API_TOKEN}'`, to what the server expects",
    )
}

pub(crate) fn not_mcp(kind: Option<&str>) -> Failure {
    let kind = kind.map_or("no content type".to_owned(), |kind| format!("`{}`", excerpt(kind, 64)));
    Failure::hinted(
        format!("answered with {kind} instead of MCP"),
        "check `base_url`: this looks like a web page or another API",
    )
}

/// Why a request got no answer at all.
pub(crate) fn describe_request(error: &reqwest::Error, base_url: &str) -> Failure {
    let place = place(base_url);
    let cause = innermost_io(error);
    match cause.map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => Failure::hinted(
            format!("Connection refused: nothing listens at {place}"),
            "start the server, or correct `base_url`",
        ),
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe) => {
            Failure::new(format!("the connection to {place} was cut off"))
        }
        _ if error.is_timeout() => Failure::hinted(
            format!("no connection to {place} within {} s", CONNECT_TIMEOUT.as_secs()),
            "check the host, the network and any firewall on the way",
        ),
        _ if chain(error).contains("dns error") => Failure::hinted(
            format!("the host of {place} was not found"),
            "check the host name in `base_url` and the network",
        ),
        _ if error.is_builder() => Failure::hinted(
            format!("`{}` cannot be requested", excerpt(&place, SHOWN_BODY)),
            "`base_url` must be an http or https URL",
        ),
        _ => Failure::new(format!("no answer from {place}: {}", excerpt(&chain(error), SHOWN_BODY))),
    }
}

/// The URL without what may be secret in it.
fn place(base_url: &str) -> String {
    let Ok(mut url) = url::Url::parse(base_url) else { return base_url.to_owned() };
    url.set_query(None);
    url.set_fragment(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

fn innermost_io<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let mut found = None;
    let mut current = Some(error);
    while let Some(error) = current {
        found = error.downcast_ref::<io::Error>().or(found);
        current = error.source();
    }
    found
}

/// The causes below the outermost error, whose text may hold the URL.
fn chain(error: &reqwest::Error) -> String {
    let mut parts = Vec::new();
    let mut current = error.source();
    while let Some(error) = current {
        parts.push(error.to_string());
        current = error.source();
    }
    parts.dedup();
    if parts.is_empty() { "the request failed".to_owned() } else { parts.join(": ") }
}
