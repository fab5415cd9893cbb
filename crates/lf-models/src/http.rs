//! The connection to model APIs: one pooled client, every wait limited.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lf_core::ModelError;
use lf_egress::{Clients, Egress};
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::refused::Refused;
use crate::tool_texts::ToolTexts;

/// How long each part of an answer may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    pub connect: Duration,
    /// From the request to the first byte of a streamed answer. Local servers load the model in this time.
    pub first_byte: Duration,
    /// Between two pieces of a stream; reasoning models may be silent for long.
    pub idle: Duration,
    /// After the upstream has said why it stops: for the usage chunk and the end mark.
    pub end: Duration,
    /// A whole answer that is not streamed.
    pub whole: Duration,
    /// Before an upstream is asked again; doubles each time. What the upstream itself asks for goes before.
    pub retry_pause: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(180),
            idle: Duration::from_secs(120),
            end: Duration::from_secs(5),
            whole: Duration::from_secs(600),
            retry_pause: Duration::from_millis(400),
        }
    }
}

/// An HTTP client for model APIs; cloning it shares its connections.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) clients: Clients,
    pub(crate) timeouts: Timeouts,
    pub(crate) tools: Arc<ToolTexts>,
    pub(crate) refused: Arc<Refused>,
}

impl Client {
    /// A client for the user of this machine, who names what is asked; `roots` as in [`Egress`].
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn trusting(timeouts: Timeouts, roots: &[Vec<u8>]) -> Result<Self, ModelError> {
        Self::over(Egress::new(Arc::default(), roots.to_vec()), timeouts)
    }

    /// A client that takes this way out. Needs a rustls provider to be installed before.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn over(egress: Egress, timeouts: Timeouts) -> Result<Self, ModelError> {
        let clients = Clients::new(egress, move |builder| {
            builder
                .connect_timeout(timeouts.connect)
                .tcp_nodelay(true)
                .pool_idle_timeout(Duration::from_secs(60))
                // a redirected POST would carry the key to another host
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(concat!("lf/", env!("CARGO_PKG_VERSION")))
        });
        let clients = clients
            .map_err(|error| ModelError::Unsupported(format!("the HTTP client cannot start: {error}")))?;
        Ok(Self { clients, timeouts, tools: Arc::default(), refused: Arc::default() })
    }
}

/// Largest answer that is not streamed, and largest error body that is read.
const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// Reads a whole body within `limit` of time and [`BODY_LIMIT`] bytes.
pub(crate) async fn whole_body(
    mut response: reqwest::Response,
    url: &str,
    limit: Duration,
) -> Result<Vec<u8>, ModelError> {
    let read = async {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| broken(url, &error))? {
            if body.len() + chunk.len() > BODY_LIMIT {
                return Err(ModelError::Garbled {
                    url: url.to_owned(),
                    expected: "answer of at most 16 MiB".into(),
                    found: format!("more than {BODY_LIMIT} bytes"),
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    let timeout = || ModelError::Timeout { url: url.to_owned(), what: "finish its answer".into(), limit };
    tokio::time::timeout(limit, read).await.unwrap_or_else(|_| Err(timeout()))
}

/// The next piece of a stream; `None` at its end.
pub(crate) async fn next_chunk(
    response: &mut reqwest::Response,
    url: &str,
    what: &'static str,
    limit: Duration,
) -> Result<Option<Bytes>, ModelError> {
    match tokio::time::timeout(limit, response.chunk()).await {
        Ok(chunk) => chunk.map_err(|error| broken(url, &error)),
        Err(_) => Err(ModelError::Timeout { url: url.to_owned(), what: what.into(), limit }),
    }
}

/// The innermost reason: reqwest's own texts repeat the URL.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string().to_lowercase()
}

fn broken(url: &str, error: &reqwest::Error) -> ModelError {
    ModelError::Garbled {
        url: url.to_owned(),
        expected: "complete answer".into(),
        found: format!("a connection that broke off ({})", reason(error)),
    }
}

/// `Retry-After` in seconds or as a date; what is past or unreadable is none.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    date.duration_since(std::time::SystemTime::now()).ok()
}
