//! Our own side as an MCP server: both generations of the protocol on one URL, and on stdin and stdout.
//!
//! What is offered is decided by who owns the URL, through [`Offer`]; this module knows the protocol. Requests reach the
//! offer as method and parameters, as they came, and so do the results that go back.

mod arrival;
mod client;
mod coalesced;
mod handler;
mod listening;
mod sessions;

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::{HeaderValue, Method, Request as HttpRequest, Response, StatusCode, header};
use http_body::Body;
use lf_core::tool::{BoxFuture, ToolContent, ToolOutput};
use rmcp::service::{QuitReason, ServerInitializeError, serve_server};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use crate::relay::{Caller, Channel, List, News, Request, Watch};
use crate::stdio::MAX_LINE;
use arrival::Arrival;
use handler::Handler;
use listening::Listening;
use sessions::{Scoped, Sessions};

/// Largest message from a client, in bytes; the same as for the other routes.
const MAX_MESSAGE: usize = 10 * 1024 * 1024;
/// Between two signs of life on a stream that is silent while a tool runs.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Request header by which a daemon knows its own requests: a project may list the daemon itself as a server.
pub const INSTANCE_HEADER: &str = "lf-instance";

/// Key of the `_meta` by which a daemon knows on whose behalf it asks itself.
pub const ON_BEHALF: &str = "io.lf/on-behalf";

/// This process, as it is named in [`INSTANCE_HEADER`]: random, and of no meaning to others.
pub fn instance() -> &'static str {
    static INSTANCE: OnceLock<String> = OnceLock::new();
    INSTANCE.get_or_init(|| uuid::Uuid::new_v4().simple().to_string())
}

/// What is served to MCP clients at one URL.
pub trait Offer: Send + Sync + 'static {
    /// What is said of it, as MCP writes it: `capabilities`, `serverInfo`, `instructions`.
    fn about<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Result<Value, Refused>>;

    /// Answers a request, with a result as MCP writes it. `ping`, subscriptions and what begins a session do not come
    /// here. Dropping the future cancels the request.
    fn answer<'a>(
        &'a self,
        request: Request,
        caller: &'a Caller,
        channel: &'a Channel,
    ) -> BoxFuture<'a, Result<Map<String, Value>, Refused>>;

    /// The definition of a tool, where its arguments may be sent as headers too.
    fn tool<'a>(&'a self, _name: &'a str, _caller: &'a Caller) -> BoxFuture<'a, Option<Value>> {
        Box::pin(std::future::ready(None))
    }

    /// What is told outside of requests, from now on.
    fn news(&self) -> BoxStream<'static, News> {
        futures_util::stream::pending().boxed()
    }

    /// Has changes of a resource be among the news for as long as the result lives.
    fn watch<'a>(&'a self, _uri: &'a str, _caller: &'a Caller) -> BoxFuture<'a, Result<Watch, Refused>> {
        Box::pin(std::future::ready(Err(Refused::UnknownMethod("resources/subscribe".to_owned()))))
    }
}

/// Why a request is answered with a protocol error instead of a result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("unknown tool: `{0}`")]
    UnknownTool(String),
    #[error("`{0}` is not offered here")]
    UnknownMethod(String),
    /// The request names something that there is not, or says it wrongly.
    #[error("{0}")]
    Invalid(String),
    /// The error of the server behind, passed on with its code.
    #[error("{message}")]
    Upstream { code: i64, message: String, data: Option<Value> },
    /// The request was not sent, by what was said in [`Channel::guarded`].
    #[error("{0}")]
    Forbidden(String),
    /// Nothing can be answered now.
    #[error("{0}")]
    Unavailable(String),
}

impl Refused {
    /// In a word, for records: whether there is no such tool, the server said no, or there is no answer.
    pub fn name(&self) -> &'static str {
        match self {
            Self::UnknownTool(_) => "unknown_tool",
            Self::UnknownMethod(_) | Self::Invalid(_) | Self::Upstream { .. } => "refused",
            Self::Forbidden(_) => "denied",
            Self::Unavailable(_) => "unavailable",
        }
    }

    pub(crate) fn upstream(code: i64, message: String) -> Self {
        Self::Upstream { code, message, data: None }
    }
}

/// Why serving on stdin and stdout did not run to its end.
#[derive(Debug, Error)]
pub enum EndpointError {
    #[error("the client did not start an MCP session: {reason}")]
    Handshake { reason: String },
    #[error("the session broke off: {reason}")]
    Session { reason: String },
}

/// The HTTP side: the sessions of all clients of the legacy generation, whatever URL they are of. Cheap to clone.
#[derive(Clone)]
pub struct Endpoint {
    sessions: Arc<Sessions>,
    tracker: TaskTracker,
    stop: CancellationToken,
    cut: CancellationToken,
}

impl Endpoint {
    /// Streams on which nothing is answered end with `stop`; sessions and running calls end with `cut`.
    pub fn new(stop: CancellationToken, cut: CancellationToken) -> Self {
        Self { sessions: Arc::new(Sessions::new()), tracker: TaskTracker::new(), stop, cut }
    }

    /// Answers one request. Legacy sessions belong to the `scope` they were begun in and are unknown (404) in any other;
    /// at most 1024 of them are kept, each for an hour after its last message, and the one unused longest makes room for
    /// another. Host and Origin are not looked at here. Dropping the response of a modern request cancels it.
    pub async fn serve(
        &self,
        scope: &str,
        offer: Arc<dyn Offer>,
        request: HttpRequest<Bytes>,
    ) -> Response<impl Body<Data = Bytes, Error = Infallible> + Send + Sync + use<>> {
        let waits = request.method() == Method::GET;
        let is_end = request.method() == Method::DELETE;
        let mut config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_max_request_body_bytes(MAX_MESSAGE);
        config.cancellation_token = if waits { self.stop.clone() } else { self.cut.clone() };
        let sessions = Arc::new(Scoped::new(self.sessions.clone(), scope));
        let (request, arrival) = Arrival::read(request);
        let mut handler = Handler::new(offer, self.tracker.clone(), self.stop.clone());
        if let Some(arrival) = &arrival {
            // what the library asks of a handler without waiting for it
            handler.prepare(arrival).await;
        }
        let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions.clone(), config);
        let mut response = service.handle(request).await;
        if sessions.was_full() {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        if is_end && response.status() == StatusCode::ACCEPTED {
            // some SDKs take any other success for a failure
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }
}

/// What a tool returned, as MCP writes it.
pub fn tool_result(output: &ToolOutput) -> Map<String, Value> {
    let content = output.content.iter().map(ToolContent::to_json).collect();
    let mut result = Map::from_iter([("content".to_owned(), Value::Array(content))]);
    if let Some(structured) = &output.structured {
        result.insert("structuredContent".to_owned(), structured.clone());
    }
    if output.is_error {
        result.insert("isError".to_owned(), Value::Bool(true));
    }
    result
}

/// Serves on stdin and stdout until stdin ends.
///
/// # Errors
/// When the client does not begin as the protocol says, or the session breaks off.
pub async fn serve_stdio(offer: Arc<dyn Offer>) -> Result<(), EndpointError> {
    serve_on(offer, tokio::io::stdin(), tokio::io::stdout()).await
}

pub(crate) async fn serve_on(
    offer: Arc<dyn Offer>,
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), EndpointError> {
    let transport = AsyncRwTransport::new_server(reader, writer).with_max_line_length(MAX_LINE);
    let mut handler = Handler::new(offer, TaskTracker::new(), CancellationToken::new());
    handler.prepare_about(&Caller::nobody()).await;
    let running = match serve_server(handler, transport).await {
        Ok(running) => running,
        // A client that looks and leaves is no failure.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(EndpointError::Handshake { reason: error.to_string() }),
    };
    match running.waiting().await {
        Ok(QuitReason::JoinError(error)) | Err(error) => {
            Err(EndpointError::Session { reason: error.to_string() })
        }
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
