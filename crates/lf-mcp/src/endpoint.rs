//! Our own side as an MCP server: both generations of the protocol on one URL, and on stdin and stdout.
//!
//! What is offered is decided by who owns the URL, through [`Offer`]; this module knows the protocol.

mod handler;
mod sessions;

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use lf_core::tool::{BoxFuture, ToolOutput, ToolProgress};
use rmcp::service::{QuitReason, ServerInitializeError, serve_server};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::stdio::MAX_LINE;
use handler::Handler;
use sessions::{Scoped, Sessions};

/// Largest message from a client, in bytes; the same as for the other routes.
const MAX_MESSAGE: usize = 10 * 1024 * 1024;
/// Between two signs of life on a stream that is silent while a tool runs.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Request header by which a daemon knows its own requests: a project may list the daemon itself as a server.
pub const INSTANCE_HEADER: &str = "lf-instance";

/// This process, as it is named in [`INSTANCE_HEADER`]: random, and of no meaning to others.
pub fn instance() -> &'static str {
    static INSTANCE: OnceLock<String> = OnceLock::new();
    INSTANCE.get_or_init(|| uuid::Uuid::new_v4().simple().to_string())
}

/// Tools that are served to MCP clients.
pub trait Offer: Send + Sync + 'static {
    /// For the model: what these tools are.
    fn instructions(&self) -> String;

    /// What there is now. Dropping the future leaves starting servers starting.
    fn list(&self) -> BoxFuture<'_, Result<Offered, Refused>>;

    /// Runs a tool by the name under which it is listed. Dropping the future cancels it.
    fn call<'a>(
        &'a self,
        name: &'a str,
        arguments: &'a Map<String, Value>,
        progress: &'a (dyn Fn(ToolProgress) + Send + Sync),
    ) -> BoxFuture<'a, Result<ToolOutput, Refused>>;
}

/// A list of tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offered {
    /// Each as MCP writes it: `name`, `description`, `inputSchema`, …
    pub tools: Vec<Value>,
    /// What is said of the list itself (`_meta`).
    pub meta: Map<String, Value>,
}

/// Why a request is answered with a protocol error instead of a result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    #[error("unknown tool: `{0}`")]
    UnknownTool(String),
    /// The error of the server behind, passed on with its code.
    #[error("{message}")]
    Upstream { code: i64, message: String },
    /// Nothing can be answered now.
    #[error("{0}")]
    Unavailable(String),
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
    stop: CancellationToken,
    cut: CancellationToken,
}

impl Endpoint {
    /// Streams on which nothing is answered end with `stop`; sessions and running calls end with `cut`.
    pub fn new(stop: CancellationToken, cut: CancellationToken) -> Self {
        Self { sessions: Arc::new(Sessions::new()), stop, cut }
    }

    /// Answers one request. Legacy sessions belong to the `scope` they were begun in and are unknown (404) in any other;
    /// at most 1024 of them are kept, each for an hour after its last message. Host and Origin are not looked at here.
    /// Dropping the response of a modern request cancels its call.
    pub async fn serve<B>(
        &self,
        scope: &str,
        offer: Arc<dyn Offer>,
        request: Request<B>,
    ) -> Response<impl Body<Data = Bytes, Error = Infallible> + Send + Sync + use<B>>
    where
        B: Body<Error: std::fmt::Display> + Send + 'static,
    {
        let waits = request.method() == Method::GET;
        let mut config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_max_request_body_bytes(MAX_MESSAGE);
        config.cancellation_token = if waits { self.stop.clone() } else { self.cut.clone() };
        let sessions = Arc::new(Scoped::new(self.sessions.clone(), scope));
        let service =
            StreamableHttpService::new(move || Ok(Handler::new(offer.clone())), sessions.clone(), config);
        let mut response = service.handle(request).await;
        if sessions.was_full() {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
        response
    }
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
    let running = match serve_server(Handler::new(offer), transport).await {
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
