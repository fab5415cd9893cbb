//! HTTP: the one client that every remote server is reached with, and the streamable HTTP transport over it.

mod auth;
mod describe;
mod events;
mod exchange;
mod fate;
mod repeat;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue, StatusCode};
use lf_core::project::HttpServer;
use lf_egress::{Clients, Egress, NoClient, same_origin};
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, PingRequest, ProtocolVersion, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;
use tokio::time::sleep;

use crate::failure::{Failure, excerpt};
use crate::tap::Signals;
pub(crate) use auth::Access;
use describe::{describe, reason_of};
pub(crate) use describe::{describe_request, describe_status, encoded, not_mcp};
pub(crate) use events::{SseError, events};
use exchange::{Address, Reply};
pub(crate) use exchange::{encoding, fate_of, shown_body};
pub(crate) use fate::{Fate, Told, failure_of, is_final, turned_away};
use fate::{is_unsent, told, wanted_pause};
use repeat::{Again, Repeatable};
pub(crate) use repeat::{Once, called_tool};
pub(crate) use watch::BROKEN_OFF;
use watch::{Resumable, Watch};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// One event of a stream, in bytes: it carries a whole result.
pub(crate) const MAX_EVENT: usize = 16 * 1024 * 1024;
/// One body, in bytes.
pub(crate) const MAX_BODY: usize = 16 * 1024 * 1024;
/// Requests that wait for the headers of their answers. Calls queue before they come here.
const MAX_CONCURRENT: usize = 1024;
/// Of the question whether the server knows a session; the library counts its ids from 0.
const PING: i64 = 1_000_000_003;

/// The clients that remote servers are reached with. A rustls provider must have been installed in the process.
///
/// # Errors
/// When TLS cannot be set up.
pub(crate) fn clients(egress: Egress) -> Result<Clients, Failure> {
    clients_within(egress, CONNECT_TIMEOUT)
}

fn clients_within(egress: Egress, connect_timeout: Duration) -> Result<Clients, Failure> {
    let instance = HeaderValue::from_static(crate::endpoint::instance());
    let named = HeaderName::from_static(crate::endpoint::INSTANCE_HEADER);
    let headers = http::HeaderMap::from_iter([(named, instance)]);
    let clients = Clients::new(egress, move |builder| {
        builder
            .default_headers(headers.clone())
            .user_agent(concat!("lf/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(connect_timeout)
            // A pooled connection may have been closed by the server just when a call is sent over it.
            .pool_max_idle_per_host(0)
            .redirect(same_origin())
    });
    clients.map_err(|error| unusable(&error))
}

/// The client for a server, where it may be reached at all.
///
/// # Errors
/// When its address is not dialled.
pub(crate) fn client(clients: &Clients, server: &HttpServer) -> Result<reqwest::Client, Failure> {
    match clients.to(&server.base_url, server.reach) {
        Ok(client) => Ok(client.clone()),
        Err(NoClient::Refused(refused)) => Err(Failure::new(refused.to_string())),
        Err(NoClient::Broken(error)) => Err(unusable(&error)),
    }
}

fn unusable(error: &reqwest::Error) -> Failure {
    Failure::new(format!("no HTTP client can be set up: {}", reason_of(error)))
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
    access: Access,
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
    let backend = Backend::new(client, access, signals, &server.base_url);
    Ok(StreamableHttpClientTransport::with_client(backend, config))
}

type HttpError = StreamableHttpError<reqwest::Error>;

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

/// The library's HTTP backend: it knows an expired session also by a 400, repeats what may be repeated, and keeps why a
/// request failed.
#[derive(Clone)]
pub(crate) struct Backend {
    client: reqwest::Client,
    access: Access,
    signals: Arc<Signals>,
    base_url: Arc<str>,
    resumable: Arc<Resumable>,
    repeatable: Arc<Repeatable>,
}

impl Backend {
    fn new(client: reqwest::Client, access: Access, signals: Arc<Signals>, base_url: &str) -> Self {
        let base_url = base_url.into();
        Self { client, access, signals, base_url, resumable: Arc::default(), repeatable: Arc::default() }
    }

    fn note(&self, error: HttpError) -> HttpError {
        if matches!(error, StreamableHttpError::SessionExpired) {
            // Behind the new session may be a new server: what it lists must be asked anew.
            self.signals.tools_changed();
        } else {
            self.signals.note(&describe(&error, &self.base_url));
        }
        error
    }

    /// Posts, and again where nothing was run or where running it twice is no different.
    async fn post(&self, address: &Address<'_>, message: &ClientJsonRpcMessage) -> Result<Reply, HttpError> {
        let mut again = Again::of(message, &self.repeatable);
        let mut refusals = 0;
        loop {
            let bearer = self.access.bearer().await.map_err(locked)?;
            let address = Address { bearer: bearer.as_deref(), ..*address };
            let posted = tokio::select! {
                posted = address.post(message) => posted,
                () = self.signals.dead.cancelled() => return Err(StreamableHttpError::TransportChannelClosed),
            };
            let error = match posted {
                Ok(reply) => {
                    self.signals.reached();
                    return Ok(reply);
                }
                Err(error) => error,
            };
            match repeat::is_out_of_reach(&error) {
                true => self.signals.unreached(),
                false => self.signals.reached(),
            }
            let Some(error) = self.refused(error, bearer.as_deref(), refusals).await? else {
                refusals += 1;
                continue;
            };
            let Some(pause) = again.after(&error) else { return Err(error) };
            sleep(pause).await;
        }
    }

    /// Answers a refusal for want of a token, so that the request can be sent again; `Some` with any other error.
    async fn refused(
        &self,
        error: HttpError,
        bearer: Option<&str>,
        earlier: usize,
    ) -> Result<Option<HttpError>, HttpError> {
        let (status, challenge) = match &error {
            StreamableHttpError::AuthRequired(refusal) => {
                (StatusCode::UNAUTHORIZED, &refusal.www_authenticate_header)
            }
            StreamableHttpError::InsufficientScope(refusal) => {
                (StatusCode::FORBIDDEN, &refusal.www_authenticate_header)
            }
            _ => return Ok(Some(error)),
        };
        match self.access.answer(status, challenge, bearer, earlier).await {
            Ok(()) => Ok(None),
            Err(None) => Ok(Some(error)),
            Err(Some(failure)) => Err(locked(failure)),
        }
    }

    /// Asks whether the server knows this session, after it has refused a request in a way that may mean so or anything
    /// else: only then was the request not run, and may be sent in another session.
    async fn knows_session(&self, address: &Address<'_>) -> bool {
        let ping = ClientRequest::PingRequest(PingRequest::default());
        let ping = ClientJsonRpcMessage::request(ping, RequestId::Number(PING));
        let Ok(bearer) = self.access.bearer().await else { return true };
        match (Address { bearer: bearer.as_deref(), ..*address }).post(&ping).await {
            Ok(reply) => !reply.doubts_session,
            Err(StreamableHttpError::SessionExpired) => false,
            Err(error) => !told(&error).is_some_and(|told| told.doubts_session),
        }
    }

    fn watch(&self, request: Option<RequestId>, headers: &HashMap<HeaderName, HeaderValue>) -> Watch {
        Watch {
            signals: self.signals.clone(),
            request,
            resumable: (!is_modern(headers)).then(|| self.resumable.clone()),
            is_resumed: false,
            repeatable: self.repeatable.clone(),
        }
    }
}

/// A request that was not run because the server is closed to us.
fn locked(failure: Failure) -> HttpError {
    Told {
        failure,
        fate: Fate::TurnedAway(None),
        status: Some(StatusCode::UNAUTHORIZED),
        doubts_session: false,
    }
    .into()
}

/// Whether a request is of the newer generation, by the header that the library sends with it.
fn is_modern(headers: &HashMap<HeaderName, HeaderValue>) -> bool {
    // not looked up as text, whose hash is another
    let name = HeaderName::from_static("mcp-protocol-version");
    let revision = headers.get(&name).and_then(|revision| revision.to_str().ok());
    revision.is_some_and(|revision| revision >= ProtocolVersion::V_2026_07_28.as_str())
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
        let address = Address {
            client: &self.client,
            uri: &uri,
            session: session_id.as_deref(),
            bearer: auth_header.as_deref(),
            headers: &custom_headers,
        };
        let request = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let posted = self.post(&address, &message).await;
        let is_doubtful = match &posted {
            Ok(reply) => reply.doubts_session,
            Err(error) => told(error).is_some_and(|told| told.doubts_session),
        };
        // Servers of the TypeScript SDK answer a session they do not know with 400, most without an id. Any other such
        // error may come after the work was done, and sending the request again would do it twice.
        if request.is_some() && is_doubtful && !self.knows_session(&address).await {
            return Err(self.note(StreamableHttpError::SessionExpired));
        }
        let posted = posted.map_err(|error| self.note(error))?.posted;
        self.signals.clear_trouble();
        Ok(match posted {
            StreamableHttpPostResponse::Json(message, session) => {
                self.signals.annotated(annotated_tools(&message));
                self.repeatable.learn(&message, &self.signals);
                StreamableHttpPostResponse::Json(message, session)
            }
            StreamableHttpPostResponse::Sse(stream, session) => {
                let watched = self.watch(request, &custom_headers).over(stream);
                StreamableHttpPostResponse::Sse(watched, session)
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
        let bearer = self.access.bearer().await.map_err(locked)?.or(auth_header);
        let address = Address {
            client: &self.client,
            uri: &uri,
            session: Some(&session),
            bearer: bearer.as_deref(),
            headers: &custom_headers,
        };
        address.delete().await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        let bearer = self.access.bearer().await.map_err(locked)?.or(auth_header);
        let address = Address {
            client: &self.client,
            uri: &uri,
            session: session_id.as_deref(),
            bearer: bearer.as_deref(),
            headers: &custom_headers,
        };
        let request = last_event_id.as_deref().and_then(|event| self.resumable.request(event));
        match address.get(last_event_id.as_deref()).await {
            Ok(stream) => {
                let is_resumed = last_event_id.is_some();
                Ok(Watch { is_resumed, ..self.watch(request, &custom_headers) }.over(stream))
            }
            // That a server has no such stream is not trouble; that it cannot be reached is.
            Err(error) if is_unsent(&error) => {
                let error = self.note(error);
                self.signals.unreached();
                Err(error)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
