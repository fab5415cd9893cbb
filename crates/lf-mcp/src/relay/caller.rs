//! Who asks: what its client said of itself, and the way back to it while a request is running.

use std::sync::Arc;

use lf_core::project::Generation;
use lf_core::tool::{Attendant, BoxFuture, Question, Reply, ToolProgress};
use rmcp::RoleServer;
use rmcp::model::{ClientCapabilities, CustomRequest, ServerRequest};
use rmcp::service::{Peer, ServiceError};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

const META_PREFIX: &str = "io.modelcontextprotocol/";
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const META_CLIENT: &str = "io.modelcontextprotocol/clientInfo";
pub(crate) const META_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(crate) const META_REVISION: &str = "io.modelcontextprotocol/protocolVersion";

/// What a client can be asked in the middle of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Abilities {
    pub(crate) sampling: bool,
    pub(crate) sampling_tools: bool,
    pub(crate) forms: bool,
    pub(crate) urls: bool,
    pub(crate) roots: bool,
}

impl Abilities {
    /// As they are declared to a server.
    pub(crate) fn declared(self) -> ClientCapabilities {
        let with = |on: bool| on.then(|| json!({}));
        let mut declared = Map::new();
        if self.sampling {
            declared.insert("sampling".to_owned(), some(&[("tools", with(self.sampling_tools))]));
        }
        if self.forms || self.urls {
            let elicitation = some(&[("form", with(self.forms)), ("url", with(self.urls))]);
            declared.insert("elicitation".to_owned(), elicitation);
        }
        if self.roots {
            declared.insert("roots".to_owned(), json!({}));
        }
        serde_json::from_value(Value::Object(declared)).unwrap_or_default()
    }

    /// As a client declares them.
    fn of(capabilities: &Value) -> Self {
        let has = |path: &[&str]| {
            let found = path.iter().try_fold(capabilities, |value, key| value.get(key));
            found.is_some_and(Value::is_object)
        };
        let asks_persons = has(&["elicitation"]);
        let urls = has(&["elicitation", "url"]);
        Self {
            sampling: has(&["sampling"]),
            sampling_tools: has(&["sampling", "tools"]),
            // before 2025-11-25 there were only forms, and nothing to say about them
            forms: asks_persons && (!urls || has(&["elicitation", "form"])),
            urls,
            roots: has(&["roots"]),
        }
    }
}

fn some(entries: &[(&str, Option<Value>)]) -> Value {
    entries
        .iter()
        .filter_map(|(key, value)| Some(((*key).to_owned(), value.clone()?)))
        .collect::<Map<_, _>>()
        .into()
}

/// A client, as the servers behind are told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    pub(crate) generation: Generation,
    pub(crate) abilities: Abilities,
    capabilities: Value,
    info: Value,
}

impl Caller {
    pub(crate) fn new(generation: Generation, capabilities: Value, info: Value) -> Self {
        Self { generation, abilities: Abilities::of(&capabilities), capabilities, info }
    }

    /// Nobody in particular, who cannot be asked anything.
    pub fn nobody() -> Self {
        Self::new(Generation::Legacy, json!({}), Value::Null)
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.generation == Generation::Modern
    }

    /// Whether the client said that it answers this kind of question.
    pub(super) fn answers(&self, method: &str) -> bool {
        match method {
            "sampling/createMessage" => self.abilities.sampling,
            "elicitation/create" => self.abilities.forms || self.abilities.urls,
            "roots/list" => self.abilities.roots,
            _ => false,
        }
    }

    /// What goes with a request of this client to a server of a generation: its own words, and what the server must be
    /// told of the client. What belongs to the hop alone does not.
    pub(super) fn meta(
        &self,
        own: &Map<String, Value>,
        level: Option<Level>,
        to: Generation,
    ) -> Map<String, Value> {
        let of_hop = |key: &str| key == "progressToken" || key.starts_with(META_PREFIX);
        let mut meta: Map<String, Value> = own
            .iter()
            .filter(|(key, _)| !of_hop(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if to == Generation::Modern {
            meta.insert(META_CAPABILITIES.to_owned(), self.capabilities.clone());
            if self.info.is_object() {
                meta.insert(META_CLIENT.to_owned(), self.info.clone());
            }
            if let Some(level) = level {
                meta.insert(META_LEVEL.to_owned(), level.name().into());
            }
        }
        meta
    }
}

/// How grave a message of a server is; the least comes first (RFC 5424).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl Level {
    const ALL: [(Self, &str); 8] = [
        (Self::Debug, "debug"),
        (Self::Info, "info"),
        (Self::Notice, "notice"),
        (Self::Warning, "warning"),
        (Self::Error, "error"),
        (Self::Critical, "critical"),
        (Self::Alert, "alert"),
        (Self::Emergency, "emergency"),
    ];

    pub(crate) fn parse(name: &Value) -> Option<Self> {
        let name = name.as_str()?;
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(level, _)| *level)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(level, _)| *level == self).map_or("debug", |(_, name)| name)
    }

    /// Whether a message is to be shown to who asked for this level. One without a level is.
    pub(crate) fn admits(self, message: &Value) -> bool {
        Self::parse(&message["level"]).is_none_or(|level| level >= self)
    }
}

/// What is told of a running request before its result.
#[derive(Debug)]
pub(crate) enum Told {
    Progress(ToolProgress),
    /// The parameters of `notifications/message`.
    Log(Value),
}

/// Reports that wait for a slow client; more are dropped.
const BUFFER: usize = 64;

/// A question, and where its answer goes.
pub(crate) type Asked = (Question, oneshot::Sender<Reply>);

/// How a client is asked.
#[derive(Debug, Clone)]
pub(crate) enum Asking {
    /// Not at all in the middle of a request.
    Never,
    /// By a request, which is sent on the task of its own request.
    Request(Peer<RoleServer>),
    /// By whoever holds the other end.
    Held(mpsc::Sender<Asked>),
}

/// The way back to the client of one request while that is running.
#[derive(Debug, Clone)]
pub struct Channel {
    pub(crate) told: mpsc::Sender<Told>,
    pub(crate) wants_progress: bool,
    /// `None` where the client wants no messages.
    pub(crate) level: Option<Level>,
    /// What the client said that it wants, of which the server is to be told.
    pub(crate) wanted_level: Option<Level>,
    pub(crate) asking: Asking,
    pub(crate) party: Option<u64>,
    pub(crate) guard: Guard,
}

/// What says right before a request is sent whether it may be.
#[derive(Clone, Default)]
pub(crate) struct Guard(Option<Arc<MaySend>>);

type MaySend = dyn Fn() -> Result<(), String> + Send + Sync;

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Guard").field(&self.0.is_some()).finish()
    }
}

impl Channel {
    /// The same for a request that is sent only where this says so, each time that it is sent; else it is
    /// [`crate::endpoint::Refused::Forbidden`] for the reason given.
    #[must_use]
    pub fn guarded(self, may_send: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { guard: Guard(Some(Arc::new(may_send))), ..self }
    }

    /// For a client that wants to know nothing and cannot be asked, until it is said otherwise.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Told>) {
        let (told, receiver) = mpsc::channel(BUFFER);
        let (wants_progress, level, wanted_level, party) = (false, None, None, None);
        let guard = Guard::default();
        (Self { told, wants_progress, level, wanted_level, asking: Asking::Never, party, guard }, receiver)
    }

    /// Hands a message of the server on.
    pub(crate) fn log(&self, message: Value) {
        if self.level.is_some_and(|level| level.admits(&message)) {
            let _ = self.told.try_send(Told::Log(message));
        }
    }
}

impl Attendant for Channel {
    fn progress(&self, progress: ToolProgress) {
        if self.wants_progress {
            let _ = self.told.try_send(Told::Progress(progress));
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            match &self.asking {
                Asking::Never => not_offered(&question.method),
                Asking::Request(peer) => ask(peer, question).await,
                Asking::Held(holder) => {
                    let (reply, replied) = oneshot::channel();
                    if holder.send((question, reply)).await.is_err() {
                        return gone();
                    }
                    replied.await.unwrap_or_else(|_| gone())
                }
            }
        })
    }

    /// For clients that want to read messages.
    fn note(&self, note: String) {
        self.log(json!({"level": "info", "logger": "lf", "data": note}));
    }

    fn may_send(&self) -> Result<(), String> {
        self.guard.0.as_ref().map_or(Ok(()), |may_send| may_send())
    }

    fn party(&self) -> Option<u64> {
        self.party
    }
}

pub(super) fn not_offered(method: &str) -> Reply {
    Reply::Refused { code: -32_601, message: format!("the client does not offer `{method}`") }
}

fn gone() -> Reply {
    Reply::Refused { code: -32_603, message: "the client is gone".to_owned() }
}

async fn ask(peer: &Peer<RoleServer>, question: Question) -> Reply {
    let params = Some(question.params).filter(Value::is_object);
    let request = ServerRequest::CustomRequest(CustomRequest::new(question.method, params));
    match peer.send_request(request).await {
        Ok(result) => Reply::Result(serde_json::to_value(&result).unwrap_or_default()),
        Err(ServiceError::McpError(error)) => {
            Reply::Refused { code: i64::from(error.code.0), message: error.message.into_owned() }
        }
        Err(error) => Reply::Refused { code: -32_603, message: error.to_string() },
    }
}
