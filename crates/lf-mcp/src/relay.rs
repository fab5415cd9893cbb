//! Requests of clients, passed on to the servers behind: as they came, and answered as they were.
//!
//! The sessions for it are apart from those of the chats, because they declare what the clients can be asked. What a
//! server asks meanwhile is asked of the client whose request it is, whichever generation each side is of: a modern
//! client of a legacy server gets a result that asks for input while the request is held open behind it, and a legacy
//! client of a modern server gets requests.

mod caller;
mod catalogue;
mod held;
mod inbox;
mod lanes;
mod together;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use lf_core::McpServer;
use lf_core::pins::Peer;
use lf_core::project::Generation;
use lf_core::tool::{Attendant, BoxFuture, Question, Reply, ToolProgress};
use rmcp::model::{ClientRequest, CustomRequest, MetaObject, RequestMetaObject};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::connection::{AskError, Patience, ask_in_time, declined};
use crate::endpoint::Refused;
use crate::failure::Failure;
use crate::pool::SessionPool;
use crate::session::{InUse, Live};
pub(crate) use caller::{
    Abilities, Asking, Level, META_CAPABILITIES, META_CLIENT, META_LEVEL, META_REVISION, Told,
};
pub use caller::{Caller, Channel};
pub(crate) use catalogue::Age;
pub use catalogue::{List, Prints};
pub(crate) use inbox::Inbox;
pub use inbox::News;
pub(crate) use lanes::Relay;
pub use watching::Watch;

/// Requests for one, whose server wants input meanwhile; as many as other SDKs send.
const MAX_ROUNDS: usize = 10;

/// A request of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub method: String,
    /// Without `_meta`.
    pub params: Map<String, Value>,
    /// What the client said beside them.
    pub meta: Map<String, Value>,
}

impl Request {
    /// What is asked for, by name.
    pub fn param(&self, key: &str) -> &str {
        self.params.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

impl SessionPool {
    /// What a server says of itself, as MCP writes it: `capabilities`, `serverInfo`, `instructions`. Starts it if needed.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn about(&self, server: &Arc<McpServer>, caller: &Caller) -> Result<Value, Failure> {
        Ok(self.relaying(server, caller).await?.link.about.said.clone())
    }

    /// What a server says of itself, as it was sent. Starts it if needed.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn peer(&self, server: &Arc<McpServer>, caller: &Caller) -> Result<Arc<Peer>, Failure> {
        Ok(self.relaying(server, caller).await?.link.about.peer.clone())
    }

    /// Everything in one of a server's lists, as it was sent, no older than `oldest` or than its lists may be. A server that
    /// is still starting is waited for as long as for a chat.
    ///
    /// # Errors
    /// When it cannot be reached, or does not answer within its timeout.
    pub async fn catalogue(
        &self,
        server: &Arc<McpServer>,
        list: List,
        caller: &Caller,
        oldest: Option<Duration>,
    ) -> Result<Arc<Vec<Value>>, Failure> {
        Ok(self.printed(server, list, caller, oldest).await?.0)
    }

    /// The same, with what its tools were said to be before anything was taken out of it.
    ///
    /// # Errors
    /// As [`Self::catalogue`].
    pub async fn printed(
        &self,
        server: &Arc<McpServer>,
        list: List,
        caller: &Caller,
        oldest: Option<Duration>,
    ) -> Result<(Arc<Vec<Value>>, Arc<Prints>), Failure> {
        let wait = self.list_wait();
        let starting = self.relaying(server, caller);
        let live = match server.required {
            true => starting.await?,
            false => timeout(wait, starting)
                .await
                .map_err(|_| Failure::new(format!("still starting after {wait:?}")))??,
        };
        let age = Age { oldest: oldest.unwrap_or(self.list_ttl()), hinted: oldest.is_none() };
        let listed = live.link.catalogue(server, list, age).await;
        live.doubt_if_silent(&listed);
        if let Err(AskError::Outdated(_)) = &listed {
            self.outdated(server, &live);
        }
        listed.map_err(|error| live.link.failure_of(error, &format!("`{}`", list.method())))
    }

    /// Asks a server what a client asks. Dropping the future tells the server that nobody waits any more.
    ///
    /// # Errors
    /// The server's own, or why there is no answer.
    pub async fn relay(
        &self,
        server: &Arc<McpServer>,
        request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Result<Map<String, Value>, Refused> {
        let mut is_first = true;
        loop {
            let live =
                self.relaying(server, caller).await.map_err(|failure| unavailable(server, &failure))?;
            let answer = match (caller.generation, live.link.about.generation) {
                (Generation::Modern, Generation::Legacy) => {
                    self.held(&live, server, request.clone(), caller, channel).await
                }
                (Generation::Legacy, Generation::Modern) => {
                    live.in_rounds(server, request.clone(), caller, channel).await
                }
                _ => live.once(server, &request, caller, channel).await,
            };
            match answer {
                Ok(result) => return Ok(result),
                Err(Trouble::Told(refused)) => return Err(refused),
                Err(Trouble::Ask(AskError::Outdated(_))) if is_first => {
                    self.outdated(server, &live);
                    is_first = false;
                }
                Err(Trouble::Ask(error)) => return Err(refused(error, server, &live).await),
            }
        }
    }
}

/// Why a request has no result.
pub(super) enum Trouble {
    Ask(AskError),
    Told(Refused),
}

impl From<AskError> for Trouble {
    fn from(error: AskError) -> Self {
        Self::Ask(error)
    }
}

type Answer = Result<Map<String, Value>, Trouble>;

impl Live {
    /// Sends the request once. What it is answered may be a question.
    async fn once(
        self: &Arc<Self>,
        server: &McpServer,
        request: &Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Answer {
        let link = &self.link;
        if let Some(level) = channel.wanted_level {
            self.tell_level(server, level).await;
        }
        if request.method == "logging/setLevel" && link.about.capability("logging").is_some() {
            return Ok(Map::new());
        }
        let meta = caller.meta(&request.meta, channel.level, link.about.generation);
        let params = Some(Value::Object(request.params.clone()));
        let asked = ClientRequest::CustomRequest(CustomRequest::new(request.method.clone(), params));
        let limits = (server.timeout, server.max_timeout);
        let _attended = link.signals.inbox.attend(channel);
        let _calling = self.call_it();
        let meta = RequestMetaObject(MetaObject(meta));
        let outcome = link.ask_with(asked, limits, &Silent(channel), Some(meta)).await;
        self.call_ended(&outcome);
        Ok(self.without_secrets(serde_json::to_value(&outcome?).unwrap_or_default()))
    }

    /// The state of a request is opaque: it goes back as it came.
    fn without_secrets(&self, result: Value) -> Map<String, Value> {
        let Value::Object(mut result) = result else { return Map::new() };
        let state = result.remove("requestState");
        let Value::Object(mut result) = self.link.signals.secrets.value(Value::Object(result)) else {
            return Map::new();
        };
        if let Some(state) = state {
            result.insert("requestState".to_owned(), state);
        }
        result
    }

    /// Has the server tell its messages from this level on, if it tells fewer so far. It tells all clients of this
    /// session as much, and each is told what it wanted.
    async fn tell_level(self: &Arc<Self>, server: &McpServer, level: Level) {
        let inbox = &self.link.signals.inbox;
        let is_asked = self.link.about.generation == Generation::Legacy
            && self.link.about.capability("logging").is_some()
            && inbox.is_below(level);
        if !is_asked {
            return;
        }
        let params = Some(json!({"level": level.name()}));
        let request = ClientRequest::CustomRequest(CustomRequest::new("logging/setLevel", params));
        match self.link.ask(request, (server.timeout, server.timeout)).await {
            Ok(_) => inbox.set_level(level),
            Err(error) => {
                let error = self.link.failure_of(error, "`logging/setLevel`");
                tracing::debug!(server = server.name, %error, "the level of messages could not be set");
            }
        }
    }

    /// Has the client answer with requests what the server asks for in results.
    async fn in_rounds(
        self: &Arc<Self>,
        server: &McpServer,
        mut request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Answer {
        let mut patience = Patience::default();
        for _ in 0..MAX_ROUNDS {
            let mut result = self.once(server, &request, caller, channel).await?;
            if result.get("resultType").is_none_or(|kind| kind != "input_required") {
                return Ok(result);
            }
            let questions = match result.remove("inputRequests") {
                Some(Value::Object(questions)) => questions,
                _ => Map::new(),
            };
            let mut answers = Map::new();
            for (key, mut question) in questions {
                let method = question["method"].as_str().unwrap_or_default().to_owned();
                let params = question["params"].take();
                let tool = (request.method == "tools/call").then(|| request.param("name").into());
                let question = Question { server: server.name.as_str().into(), tool, method, params };
                let reply = match (caller.answers(&question.method), patience.take()) {
                    (false, _) => caller::not_offered(&question.method),
                    (true, true) => ask_in_time(channel, question).await,
                    (true, false) => declined(&question.method),
                };
                match reply {
                    Reply::Result(answer) => answers.insert(key, answer),
                    Reply::Refused { code, message } => {
                        return Err(Trouble::Told(Refused::upstream(code, message)));
                    }
                    Reply::Nobody => {
                        return Err(Trouble::Told(Refused::Unavailable("nobody can be asked".to_owned())));
                    }
                };
            }
            request.params.insert("inputResponses".to_owned(), Value::Object(answers));
            match result.remove("requestState") {
                Some(state) => request.params.insert("requestState".to_owned(), state),
                None => request.params.remove("requestState"),
            };
        }
        let message = format!("MCP server `{}` asked for input more than {MAX_ROUNDS} times", server.name);
        Err(Trouble::Told(Refused::Unavailable(message)))
    }
}

/// The client is who is asked: it need not be told that it was.
struct Silent<'a>(&'a Channel);

impl Attendant for Silent<'_> {
    fn progress(&self, progress: ToolProgress) {
        self.0.progress(progress);
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        self.0.ask(question)
    }

    fn may_send(&self) -> Result<(), String> {
        self.0.may_send()
    }

    fn party(&self) -> Option<u64> {
        self.0.party()
    }
}

fn unavailable(server: &McpServer, failure: &Failure) -> Refused {
    Refused::Unavailable(format!("MCP server `{}` is not available: {}", server.name, failure.reason))
}

async fn refused(error: AskError, server: &McpServer, live: &InUse) -> Refused {
    match error {
        AskError::Refused { message, code, data } => Refused::Upstream { code, message, data },
        AskError::VisitFirst { message, visits } => {
            Refused::Upstream { code: -32_042, message, data: Some(json!({"elicitations": visits})) }
        }
        AskError::Timeout(limit) => {
            Refused::Unavailable(format!("MCP server `{}` did not answer within {limit:?}", server.name))
        }
        AskError::Closed => unavailable(server, &live.reason().await),
        AskError::Forbidden(reason) => Refused::Forbidden(reason),
        error => unavailable(server, &live.link.failure_of(error, "a request")),
    }
}

#[cfg(test)]
mod tests;
