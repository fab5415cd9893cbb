//! The HTTP+SSE transport of revision 2024-11-05: one long GET stream from the server, and a POST per message to the
//! place that the stream names first. A stream that ends is a closed session; the pool opens another.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use lf_core::project::HttpServer;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use sse_stream::Sse;
use thiserror::Error;
use url::Url;

use crate::failure::Failure;
use crate::http::{
    Access, Fate, SseError as EventError, describe_status, encoded, encoding, events, fate_of, headers,
    not_mcp, shown_body, turned_away,
};
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
    /// What became of the message.
    pub(crate) fate: Fate,
}

pub(crate) struct SseTransport {
    client: reqwest::Client,
    headers: HashMap<HeaderName, HeaderValue>,
    base_url: Arc<str>,
    endpoint: Url,
    events: BoxStream<'static, Result<Sse, EventError>>,
    access: Access,
    signals: Arc<Signals>,
}

impl SseTransport {
    /// Opens the stream and waits for the server to name its endpoint. The caller limits the wait; dropping the
    /// future closes the stream.
    pub(crate) async fn connect(
        client: reqwest::Client,
        server: &HttpServer,
        access: Access,
        signals: Arc<Signals>,
    ) -> Result<Self, Failure> {
        let headers = headers(server)?;
        let asked = || {
            let headers = headers.clone().into_iter().collect();
            client.get(&server.base_url).headers(headers).header(ACCEPT, EVENT_STREAM)
        };
        let response = access.send(&asked).await.map_err(|error| error.told(&server.base_url).0)?;
        if !response.status().is_success() {
            return Err(refused(response).await.0);
        }
        if let Some(encoding) = encoding(response.headers()) {
            return Err(encoded(&encoding));
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.map(str::to_ascii_lowercase);
        if !kind.as_deref().is_some_and(|kind| kind.starts_with(EVENT_STREAM)) {
            let shown = shown_body(response).await;
            return Err(not_mcp(kind.as_deref(), &shown));
        }
        let stream_url = response.url().clone();
        let mut events = events(response.bytes_stream(), MAX_EVENT);
        let endpoint = first_endpoint(&mut events, &stream_url).await?;
        let base_url = server.base_url.as_str().into();
        Ok(Self { client, headers, base_url, endpoint, events, access, signals })
    }
}

async fn first_endpoint(
    events: &mut BoxStream<'static, Result<Sse, EventError>>,
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
        let (client, endpoint, headers) = (self.client.clone(), self.endpoint.clone(), self.headers.clone());
        let (base_url, access, signals) = (self.base_url.clone(), self.access.clone(), self.signals.clone());
        async move {
            let asked = || {
                let headers = headers.clone().into_iter().collect();
                client.post(endpoint.clone()).headers(headers).json(&item).timeout(POST_TIMEOUT)
            };
            let (failure, fate) = match access.send(&asked).await {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) => refused(response).await,
                Err(error) => error.told(&base_url),
            };
            signals.note(&failure);
            Err(SseError { failure, fate })
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

/// Why a message was not taken, and what became of it.
async fn refused(response: reqwest::Response) -> (Failure, Fate) {
    let (status, headers) = (response.status(), response.headers());
    if let Some((failure, fate)) = turned_away(status, headers) {
        return (failure, fate);
    }
    let body = shown_body(response).await;
    (describe_status(status, &body), fate_of(status))
}
