//! The first words on a new connection, which tell the generation of the protocol that the server is of.
//!
//! The client library has a probe of its own. It waits ten seconds whatever the server, takes the late answer of a slow
//! one for a broken one, and knows no way on from a server that exits.

use std::time::Duration;

use lf_core::project::{Generation, Protocol};
use rmcp::RoleClient;
use rmcp::model::{
    ClientConfig, ClientJsonRpcMessage, ClientNotification, ClientRequest, ClientResult, DiscoverRequest,
    DiscoverRequestParams, ErrorCode, ErrorData, InitializeRequest, InitializedNotification, JsonRpcMessage,
    ProtocolVersion, RequestId, RequestMetaObject, ServerCapabilities, ServerJsonRpcMessage, ServerPeerInfo,
    ServerRequest,
};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::explain::{Broken, unanswered};
use crate::failure::{Failure, excerpt};

/// The ids of our requests; the library counts its own from 0.
const DISCOVER: i64 = 1_000_000_001;
const INITIALIZE: i64 = 1_000_000_002;
const DISCOVER_AGAIN: i64 = 1_000_000_003;
/// For a server that turned out to be modern to refuse the `initialize` that it was sent meanwhile.
const SECOND_ANSWER: Duration = Duration::from_secs(5);
const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// What is said first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// `server/discover`, and `initialize` where that is not answered as a modern server does.
    Probe,
    /// `server/discover` alone.
    Discover,
    /// `initialize` alone.
    Initialize,
}

/// How to greet.
pub(super) struct Manners {
    pub(super) opening: Opening,
    pub(super) protocol: Protocol,
    pub(super) client: ClientConfig,
    /// Whether all messages go over one connection, in order. Otherwise each request has one of its own.
    pub(super) is_duplex: bool,
    /// After this much silence, `server/discover` is not waited for alone.
    pub(super) patience: Duration,
    pub(super) deadline: Instant,
}

/// Greets, and returns what the server said of itself. Dropping the future leaves the connection of no use.
pub(super) async fn greet<T: Transport<RoleClient>>(
    transport: &mut T,
    manners: &Manners,
) -> Result<ServerPeerInfo, Broken> {
    let mut greeter = Greeter { transport, manners };
    match manners.opening {
        Opening::Initialize => {
            greeter.ask(Asked::Initialize).await?;
            let answer = greeter.answer(manners.deadline).await;
            greeter.initialized(answer.to(Asked::Initialize)?).await
        }
        Opening::Probe if manners.is_duplex => greeter.probe().await,
        Opening::Probe | Opening::Discover => {
            let end = match manners.opening {
                Opening::Probe => manners.deadline.min(Instant::now() + manners.patience),
                _ => manners.deadline,
            };
            greeter.discover(end).await
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Discover,
    /// The same after it was refused for no reason.
    DiscoverAgain,
    Initialize,
}

impl Asked {
    fn id(self) -> i64 {
        match self {
            Self::Discover => DISCOVER,
            Self::DiscoverAgain => DISCOVER_AGAIN,
            Self::Initialize => INITIALIZE,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Discover | Self::DiscoverAgain => "`server/discover`",
            Self::Initialize => "`initialize`",
        }
    }
}

type Said = Result<Value, ErrorData>;

enum Answer {
    Said(Asked, Said),
    /// The connection ended.
    Closed,
    /// Nothing came in time.
    Silence,
}

impl Answer {
    /// What was said to a request that is the only one.
    fn to(self, asked: Asked) -> Result<Said, Broken> {
        match self {
            Self::Said(_, said) => Ok(said),
            Self::Closed => Err(closed(asked)),
            Self::Silence => Err(Broken::told(unanswered(asked.name()))),
        }
    }
}

fn closed(asked: Asked) -> Broken {
    Broken::silent(&format!("closed the connection before it answered {}", asked.name()))
}

/// What an answer to `server/discover` means.
enum Discovered {
    Modern(Box<ServerPeerInfo>),
    /// Why it is none.
    Legacy(Failure),
    /// A modern server that we cannot work with.
    Refused(Failure),
    /// It refused the revision that it says it speaks: another instance of it may know better.
    Contradicted(Failure),
}

struct Greeter<'a, T> {
    transport: &'a mut T,
    manners: &'a Manners,
}

impl<T: Transport<RoleClient>> Greeter<'_, T> {
    /// For connections where each request is answered on its own.
    async fn discover(&mut self, end: Instant) -> Result<ServerPeerInfo, Broken> {
        let mut discovered = self.discover_once(Asked::Discover, end).await?;
        if let Discovered::Contradicted(_) = discovered {
            discovered = self.discover_once(Asked::DiscoverAgain, end).await?;
        }
        match discovered {
            Discovered::Modern(info) => Ok(*info),
            Discovered::Legacy(failure) => Err(Broken::told(failure).or_else(Opening::Initialize)),
            Discovered::Refused(failure) | Discovered::Contradicted(failure) => Err(Broken::told(failure)),
        }
    }

    async fn discover_once(&mut self, asked: Asked, end: Instant) -> Result<Discovered, Broken> {
        let asking = async {
            self.ask(asked).await?;
            Ok(self.answer(end).await)
        };
        // the answer may be on its way from the moment it is sent
        let answer = timeout_at(end, asking).await.unwrap_or(Ok(Answer::Silence))?;
        let said = answer.to(asked).map_err(|broken| broken.or_else(Opening::Initialize))?;
        Ok(discovered(said))
    }

    /// For one connection that carries everything. A server that has not answered for a while is either one that
    /// ignores what it does not know, or one that is still starting and will read both requests: the first that it
    /// reads decides for its whole life what it speaks. So `initialize` follows on the same connection, and the answer
    /// to either request is taken.
    async fn probe(&mut self) -> Result<ServerPeerInfo, Broken> {
        self.ask(Asked::Discover).await?;
        let patience = self.manners.deadline.min(Instant::now() + self.manners.patience);
        let mut is_open = false;
        match self.answer(patience).await {
            Answer::Said(_, said) => match discovered(said) {
                Discovered::Modern(info) => return Ok(*info),
                Discovered::Legacy(_) => {}
                Discovered::Refused(failure) | Discovered::Contradicted(failure) => {
                    return Err(Broken::told(failure));
                }
            },
            Answer::Closed => return Err(closed(Asked::Discover).or_else(Opening::Initialize)),
            Answer::Silence => is_open = true,
        }
        self.ask(Asked::Initialize).await.map_err(|broken| broken.or_else(Opening::Initialize))?;
        let mut refusal = None;
        loop {
            match self.answer(self.manners.deadline).await {
                Answer::Said(Asked::Initialize, said) => match self.initialized(said).await {
                    Err(broken) if is_open => refusal = Some(broken),
                    settled => return settled,
                },
                Answer::Said(Asked::Discover | Asked::DiscoverAgain, _) if !is_open => {}
                Answer::Said(Asked::Discover | Asked::DiscoverAgain, said) => match discovered(said) {
                    Discovered::Modern(info) if refusal.is_some() => return Ok(*info),
                    Discovered::Modern(info) => return self.modern_after_all(*info).await,
                    Discovered::Refused(failure) | Discovered::Contradicted(failure) => {
                        return Err(Broken::told(failure));
                    }
                    Discovered::Legacy(_) => match refusal {
                        Some(refusal) => return Err(refusal),
                        None => is_open = false,
                    },
                },
                Answer::Closed => {
                    let broken = refusal.unwrap_or_else(|| closed(Asked::Initialize));
                    return Err(broken.or_else(Opening::Initialize));
                }
                Answer::Silence => {
                    return Err(refusal.unwrap_or_else(|| Broken::told(unanswered("`initialize`"))));
                }
            }
        }
    }

    /// The server answered as a modern one, with our `initialize` on its way. What that made of the connection is told
    /// by the answer: only a refusal leaves it modern.
    async fn modern_after_all(&mut self, info: ServerPeerInfo) -> Result<ServerPeerInfo, Broken> {
        let end = self.manners.deadline.min(Instant::now() + SECOND_ANSWER);
        match self.answer(end).await {
            Answer::Said(_, Err(_)) | Answer::Silence => Ok(info),
            Answer::Said(_, Ok(_)) | Answer::Closed => {
                Err(closed(Asked::Initialize).or_else(Opening::Discover))
            }
        }
    }

    async fn ask(&mut self, asked: Asked) -> Result<(), Broken> {
        let client = self.manners.client.clone();
        let request = match asked {
            Asked::Discover | Asked::DiscoverAgain => {
                let mut discover = DiscoverRequest::new(DiscoverRequestParams {});
                discover.extensions.insert(RequestMetaObject::with_client_context(
                    ProtocolVersion::V_2026_07_28,
                    client.client_info,
                    client.capabilities,
                ));
                ClientRequest::DiscoverRequest(discover)
            }
            Asked::Initialize => {
                let params = match self.manners.protocol {
                    Protocol::Revision(revision) => client.with_protocol_version(version(revision)),
                    _ => client.with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE),
                };
                ClientRequest::InitializeRequest(InitializeRequest::new(params))
            }
        };
        let message = ClientJsonRpcMessage::request(request, RequestId::Number(asked.id()));
        let sending = timeout_at(self.manners.deadline, self.transport.send(message));
        match sending.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.unsent(asked, &error)),
            Err(_) => Err(Broken::told(unanswered(asked.name()))),
        }
    }

    fn unsent(&self, asked: Asked, error: &(dyn std::error::Error + 'static)) -> Broken {
        let broken = Broken::silent(&format!("{} could not be sent to it", asked.name()));
        match asked {
            // Nobody is there, or wants to know who we are: that would be no different.
            Asked::Discover | Asked::DiscoverAgain if crate::http::is_final(error) => broken,
            Asked::Discover | Asked::DiscoverAgain => broken.or_else(Opening::Initialize),
            Asked::Initialize => broken,
        }
    }

    /// The next answer to one of our requests, up to `end`. What else a server says before it is greeted is passed
    /// over, but for a ping.
    async fn answer(&mut self, end: Instant) -> Answer {
        loop {
            let message = match timeout_at(end, self.transport.receive()).await {
                Ok(Some(message)) => message,
                Ok(None) => return Answer::Closed,
                Err(_) => return Answer::Silence,
            };
            let (id, said) = match message {
                ServerJsonRpcMessage::Response(response) => {
                    (Some(response.id), Ok(serde_json::to_value(&response.result).unwrap_or_default()))
                }
                ServerJsonRpcMessage::Error(error) => (error.id, Err(error.error)),
                JsonRpcMessage::Request(request) => {
                    if matches!(request.request, ServerRequest::PingRequest(_)) {
                        let pong = ClientJsonRpcMessage::response(ClientResult::empty(()), request.id);
                        let _ = timeout_at(end, self.transport.send(pong)).await;
                    }
                    continue;
                }
                JsonRpcMessage::Notification(_) => continue,
            };
            let is_of = |asked: Asked| match &id {
                Some(RequestId::Number(id)) => *id == asked.id(),
                Some(RequestId::String(id)) => **id == *asked.id().to_string(),
                None => false,
            };
            if is_of(Asked::Initialize) {
                return Answer::Said(Asked::Initialize, said);
            }
            // An error without an id is that of a server which could not read the request.
            let is_unread = id.is_none() && self.manners.opening != Opening::Initialize;
            if is_of(Asked::Discover) || is_of(Asked::DiscoverAgain) || is_unread {
                return Answer::Said(Asked::Discover, said);
            }
            if id.is_none() {
                return Answer::Said(Asked::Initialize, said);
            }
        }
    }

    /// Ends the handshake of a legacy server.
    async fn initialized(&mut self, said: Said) -> Result<ServerPeerInfo, Broken> {
        let info = initialized(said, self.manners.protocol)?;
        let notification = InitializedNotification::default();
        let message =
            ClientJsonRpcMessage::notification(ClientNotification::InitializedNotification(notification));
        match timeout_at(self.manners.deadline, self.transport.send(message)).await {
            Ok(Ok(())) => Ok(info),
            Ok(Err(_)) => Err(Broken::silent("`notifications/initialized` could not be sent to it")),
            Err(_) => Err(Broken::told(unanswered("`notifications/initialized`"))),
        }
    }
}

fn version(revision: &str) -> ProtocolVersion {
    let known = ProtocolVersion::KNOWN_VERSIONS.iter().find(|version| version.as_str() == revision);
    known.cloned().unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE)
}

fn discovered(said: Said) -> Discovered {
    let result = match said {
        Ok(result) => result,
        Err(error) => return discovery_error(&error),
    };
    let Some(supported) = result.get("supportedVersions").and_then(Value::as_array) else {
        return Discovered::Legacy(Failure::new("answered `server/discover` with something else"));
    };
    let supported: Vec<&str> = supported.iter().filter_map(Value::as_str).collect();
    if !supported.contains(&ProtocolVersion::V_2026_07_28.as_str()) {
        return no_common(&supported);
    }
    Discovered::Modern(Box::new(info(
        ProtocolVersion::V_2026_07_28,
        &result,
        result["_meta"].get(META_SERVER),
    )))
}

fn discovery_error(error: &ErrorData) -> Discovered {
    let message = excerpt(&error.message, 200);
    match error.code {
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
            let supported = error.data.as_ref().and_then(|data| data.get("supported")?.as_array());
            let supported: Vec<&str> = supported.into_iter().flatten().filter_map(Value::as_str).collect();
            no_common(&supported)
        }
        ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY | ErrorCode::HEADER_MISMATCH => {
            Discovered::Refused(Failure::new(format!("refused `server/discover`: {message}")))
        }
        _ => Discovered::Legacy(Failure::hinted(
            format!("refused `server/discover`: {message}"),
            "it speaks older revisions of the protocol: set `protocol` to `legacy` or `auto`",
        )),
    }
}

/// Of a modern server that does not speak our revision.
fn no_common(supported: &[&str]) -> Discovered {
    if supported.contains(&ProtocolVersion::V_2026_07_28.as_str()) {
        let reason = "refuses revision 2026-07-28 of the protocol, and lists it as one of its own";
        return Discovered::Contradicted(Failure::new(reason));
    }
    let failure = Failure::new(match supported {
        [] => "does not speak revision 2026-07-28 of the protocol".to_owned(),
        _ => format!("speaks other revisions of the protocol: {}", excerpt(&supported.join(", "), 200)),
    });
    match supported.iter().any(|revision| Generation::of(revision) == Generation::Legacy) {
        true => Discovered::Legacy(failure),
        false => Discovered::Refused(failure),
    }
}

/// What an answer to `initialize` means.
fn initialized(said: Said, protocol: Protocol) -> Result<ServerPeerInfo, Broken> {
    let result = said.map_err(|error| {
        let refusal = Failure::new(format!("refused `initialize`: {}", excerpt(&error.message, 200)));
        match error.code {
            ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => Broken::told(Failure {
                hint: Some("it speaks newer revisions only: set `protocol` to `modern` or `auto`".to_owned()),
                ..refusal
            })
            .or_else(Opening::Discover),
            _ => Broken::told(refusal),
        }
    })?;
    let Some(revision) = result.get("protocolVersion").and_then(Value::as_str) else {
        return Err(Broken::told(Failure::new("answered `initialize` with something else")));
    };
    let shown = excerpt(revision, 64);
    if let Protocol::Revision(wanted) = protocol
        && revision != wanted
    {
        return Err(Broken::told(Failure::hinted(
            format!("speaks revision {shown} of the protocol, not {wanted}"),
            "set `protocol` to a revision that it speaks, or to `auto`",
        )));
    }
    let latest = ProtocolVersion::LATEST_WITH_INITIALIZE;
    if revision > latest.as_str() {
        return Err(Broken::told(Failure::new(format!(
            "answered `initialize` with revision {shown} of the protocol, which is not known here"
        )))
        .or_else(Opening::Discover));
    }
    let Ok(version) = serde_json::from_value(result["protocolVersion"].clone()) else {
        return Err(Broken::told(Failure::new("answered `initialize` with something else")));
    };
    Ok(info(version, &result, result.get("serverInfo")))
}

fn info(version: ProtocolVersion, result: &Value, server: Option<&Value>) -> ServerPeerInfo {
    let capabilities: Option<ServerCapabilities> =
        result.get("capabilities").and_then(|value| serde_json::from_value(value.clone()).ok());
    let mut info = ServerPeerInfo::new(version, capabilities.unwrap_or_default());
    info.server_info = server.and_then(|value| serde_json::from_value(value.clone()).ok());
    info.instructions = result.get("instructions").and_then(Value::as_str).map(str::to_owned);
    info
}

#[cfg(test)]
mod tests;
