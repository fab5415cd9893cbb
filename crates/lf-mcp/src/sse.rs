//! The HTTP+SSE transport of revision 2024-11-05: one long GET stream from the server, and a POST per message to the
//! place that the stream names first. A stream that ends is a closed session; the pool opens another.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use lf_core::project::HttpServer;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use sse_stream::{Sse, SseStream};
use thiserror::Error;
use url::Url;

use crate::failure::Failure;
use crate::http::{describe_request, describe_status, headers, not_mcp};
use crate::tap::Signals;

/// One event, in bytes: as much as a line over stdio.
const MAX_EVENT: usize = 4 * 1024 * 1024;
/// For the server to accept one message; the answer comes over the stream.
const POST_TIMEOUT: Duration = Duration::from_secs(30);
const EVENT_STREAM: &str = "text/event-stream";

/// Why a message was not accepted.
#[derive(Debug, Error)]
#[error("{failure}")]
pub(crate) struct SseError {
    pub(crate) failure: Failure,
    /// No connection was made: the server does not know of the message.
    pub(crate) is_unsent: bool,
}

pub(crate) struct SseTransport {
    client: reqwest::Client,
    headers: HashMap<HeaderName, HeaderValue>,
    base_url: Arc<str>,
    endpoint: Url,
    events: BoxStream<'static, Result<Sse, sse_stream::Error>>,
    signals: Arc<Signals>,
}

impl SseTransport {
    /// Opens the stream and waits for the server to name its endpoint. The caller limits the wait; dropping the
    /// future closes the stream.
    pub(crate) async fn connect(
        client: reqwest::Client,
        server: &HttpServer,
        signals: Arc<Signals>,
    ) -> Result<Self, Failure> {
        let headers = headers(server)?;
        let request = client.get(&server.base_url).headers(headers.clone().into_iter().collect());
        let response = request
            .header(ACCEPT, EVENT_STREAM)
            .send()
            .await
            .map_err(|error| describe_request(&error, &server.base_url))?;
        if !response.status().is_success() {
            return Err(describe_status(response.status(), ""));
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with(EVENT_STREAM)) {
            return Err(not_mcp(kind));
        }
        let stream_url = response.url().clone();
        let bytes = bounded(response.bytes_stream().map(|chunk| chunk.map_err(std::io::Error::other)));
        let mut events = SseStream::from_bytes_stream(bytes).boxed();
        let endpoint = first_endpoint(&mut events, &stream_url).await?;
        let base_url = server.base_url.as_str().into();
        Ok(Self { client, headers, base_url, endpoint, events, signals })
    }
}

async fn first_endpoint(
    events: &mut BoxStream<'static, Result<Sse, sse_stream::Error>>,
    stream_url: &Url,
) -> Result<Url, Failure> {
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| Failure::new(format!("the event stream broke off: {error}")))?;
        if event.event.as_deref() == Some("endpoint") {
            return resolve(stream_url, event.data.as_deref().unwrap_or_default());
        }
    }
    Err(Failure::hinted(
        "the event stream ended before it named an endpoint",
        "check whether the server speaks the newer `http` transport",
    ))
}

/// The endpoint must be of the stream's own origin: credentials go there.
fn resolve(stream_url: &Url, endpoint: &str) -> Result<Url, Failure> {
    match stream_url.join(endpoint.trim()) {
        Ok(url) if url.origin() == stream_url.origin() => Ok(url),
        Ok(_) => Err(Failure::new("named an endpoint of another origin, which was refused")),
        Err(_) => Err(Failure::new("named an endpoint that is not a URL")),
    }
}

impl Transport<RoleClient> for SseTransport {
    type Error = SseError;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let headers = self.headers.clone().into_iter().collect();
        let request = self.client.post(self.endpoint.clone()).headers(headers).json(&item);
        let (base_url, signals) = (self.base_url.clone(), self.signals.clone());
        async move {
            let (failure, is_unsent) = match request.timeout(POST_TIMEOUT).send().await {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) => (describe_status(response.status(), ""), false),
                Err(error) => (describe_request(&error, &base_url), error.is_connect()),
            };
            signals.note(&failure);
            Err(SseError { failure, is_unsent })
        }
    }

    /// Cancel-safe: an event is taken off the stream whole or not at all.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let event = match self.events.next().await? {
                Ok(event) => event,
                Err(error) => {
                    self.signals.note(&Failure::new(format!("the event stream broke off: {error}")));
                    return None;
                }
            };
            let data = event.data.unwrap_or_default();
            match event.event.as_deref() {
                Some("endpoint") => match resolve(&self.endpoint, &data) {
                    Ok(endpoint) => self.endpoint = endpoint,
                    Err(failure) => {
                        self.signals.note(&failure);
                        return None;
                    }
                },
                None | Some("" | "message") => match serde_json::from_str(&data) {
                    Ok(message) => return Some(message),
                    Err(_) => tracing::debug!("an event is not a JSON-RPC message"),
                },
                Some(_) => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.events = futures_util::stream::empty().boxed();
        Ok(())
    }
}

/// Fails once more than [`MAX_EVENT`] bytes come without an empty line between them.
fn bounded(
    bytes: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    let mut bytes = bytes.boxed();
    let mut size = EventSize::default();
    futures_util::stream::poll_fn(move |context| match bytes.poll_next_unpin(context) {
        Poll::Ready(Some(Ok(chunk))) if size.exceeds(&chunk) => {
            bytes = futures_util::stream::empty().boxed();
            let limit = format!("an event is larger than {MAX_EVENT} bytes");
            Poll::Ready(Some(Err(std::io::Error::other(limit))))
        }
        other => other,
    })
}

/// Counts the bytes of the event that is being received.
#[derive(Default)]
struct EventSize {
    bytes: usize,
    /// Line ends in a row; a carriage return and its line feed are one.
    line_ends: usize,
    last: u8,
}

impl EventSize {
    fn exceeds(&mut self, chunk: &[u8]) -> bool {
        for byte in chunk {
            match byte {
                b'\n' if self.last == b'\r' => {}
                b'\n' | b'\r' => self.line_ends += 1,
                _ => self.line_ends = 0,
            }
            self.last = *byte;
            self.bytes = if self.line_ends >= 2 { 0 } else { self.bytes + 1 };
            if self.bytes > MAX_EVENT {
                return true;
            }
        }
        false
    }
}
