//! The tools of a project's servers, as the port that the rest of the program knows.

use std::sync::Arc;

use futures_util::future::join_all;
use indexmap::IndexMap;
use lf_core::McpServer;
use lf_core::pins::{Peer, Pins};
use lf_core::project::Disabled;
use lf_core::tool::{
    Approval, Attendant, BoxFuture, Catalogue, Hints, ServerDown, Tool, ToolContent, ToolError, ToolOutput,
    ToolRef, ToolSource,
};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::connection::AskError;
use crate::failure::{Cause, Failure};
use crate::pool::{ServerState, SessionPool};
use crate::record::Activity;
use crate::relay::List;
use crate::session::Live;

/// A project's servers by name, each reached through the pool.
#[derive(Clone)]
pub struct ProjectTools {
    pool: SessionPool,
    servers: IndexMap<String, Result<Arc<McpServer>, Disabled>>,
    pins: Arc<Pins>,
}

/// What is known of one server of a project.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerReport {
    pub name: String,
    /// `stdio`, `http` or `sse`; not known of a disabled server.
    pub transport: Option<&'static str>,
    pub required: bool,
    pub state: ServerState,
    /// `None` of one that was never wanted.
    pub activity: Option<Activity>,
    /// Of the tools that it listed, those that are held back, with the reasons.
    pub held: Vec<(ToolRef, String)>,
}

impl ServerReport {
    /// Why the server is not usable, or was not the last time.
    pub fn last_error(&self) -> Option<&str> {
        match &self.state {
            ServerState::Disabled { reason } => Some(reason),
            ServerState::Idle { last_error } => last_error.as_ref().map(|failure| failure.reason.as_str()),
            ServerState::Failed { failure, .. } => Some(&failure.reason),
            ServerState::Ready { .. } => self.doubt().map(|failure| failure.reason.as_str()),
            ServerState::Connecting | ServerState::Closed => None,
        }
    }

    /// What kind of failure [`Self::last_error`] is, as [`crate::Cause::code`] has it.
    pub fn error_code(&self) -> Option<&'static str> {
        match &self.state {
            ServerState::Disabled { .. } => Some("disabled"),
            ServerState::Idle { last_error } => last_error.as_ref().map(|failure| failure.cause.code()),
            ServerState::Failed { failure, .. } => Some(failure.cause.code()),
            ServerState::Ready { .. } => self.doubt().map(|failure| failure.cause.code()),
            ServerState::Connecting | ServerState::Closed => None,
        }
    }

    /// Why a server that is connected may not be there any more.
    fn doubt(&self) -> Option<&Failure> {
        self.activity.as_ref()?.doubt.as_ref()
    }

    /// What to try about [`Self::last_error`].
    pub fn hint(&self) -> Option<&str> {
        match &self.state {
            ServerState::Idle { last_error } => last_error.as_ref()?.hint.as_deref(),
            ServerState::Failed { failure, .. } => failure.hint.as_deref(),
            ServerState::Ready { .. } => self.doubt()?.hint.as_deref(),
            _ => None,
        }
    }
}

/// Whether calls go to the same servers.
impl PartialEq for ProjectTools {
    fn eq(&self, other: &Self) -> bool {
        self.servers == other.servers
    }
}

impl ProjectTools {
    pub(crate) fn new(
        pool: SessionPool,
        servers: IndexMap<String, Result<Arc<McpServer>, Disabled>>,
    ) -> Self {
        Self { pool, servers, pins: Arc::default() }
    }

    /// The same, listing only tools that are as in the lock, and reporting the others. Calls are not held against it here.
    #[must_use]
    pub fn pinned(self, pins: Arc<Pins>) -> Self {
        Self { pins, ..self }
    }

    /// What a server says of itself and of the tools that the file does not withhold, for a lock. Started if needed, and
    /// asked anew.
    ///
    /// # Errors
    /// When it cannot be used or reached, or does not answer within its timeout.
    pub async fn identity(&self, name: &str) -> Result<(Peer, Vec<Value>), Failure> {
        let server = self.server(name)?;
        let live = self.pool.live(server).await?;
        let listed = live.link.pages(server, List::Tools).await;
        let (listed, _) = listed.map_err(|error| live.link.failure_of(error, "`tools/list`"))?;
        let offered = |tool: &Value| {
            let name = tool["name"].as_str().unwrap_or_default();
            server.tools.permits(name) && server.tools.approval(name, Hints::of(tool)) != Approval::Deny
        };
        Ok((Peer::clone(&live.link.about.peer), listed.into_iter().filter(offered).collect()))
    }

    /// The names of all servers, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(String::as_str)
    }

    /// What is known of each server now; starts nothing.
    pub fn reports(&self) -> Vec<ServerReport> {
        self.servers.iter().map(|(name, server)| self.report(name, server)).collect()
    }

    /// Starts every server that is not running and lists its tools, then reports. As long as the slowest start takes;
    /// dropping the future leaves the starts running.
    pub async fn probe(&self) -> Vec<ServerReport> {
        join_all(self.servers.values().flatten().map(|server| self.pool.tools_of(server))).await;
        self.reports()
    }

    /// What to try about a server that is down.
    pub fn hint(&self, server: &str) -> Option<String> {
        match self.servers.get(server) {
            None => Some(not_found_hint(self.names())),
            Some(found) => self.report(server, found).hint().map(str::to_owned),
        }
    }

    /// Starts one server if it is not running, and waits for that; how it went is in its report.
    pub async fn start(&self, server: &str) {
        if let Some(Ok(found)) = self.servers.get(server) {
            let _ = self.pool.tools_of(found).await;
        }
    }

    /// What is known of one server; `None` if no such server is configured.
    pub fn report_of(&self, server: &str) -> Option<ServerReport> {
        self.servers.get(server).map(|found| self.report(server, found))
    }

    /// Takes the session with this server down, starts it anew and waits for that, at most its startup timeout. Calls
    /// that are running fail at once. `None` if no such server is configured. Dropping the future leaves the start
    /// running.
    pub async fn renew(&self, server: &str) -> Option<ServerReport> {
        if !self.restart(server) {
            return None;
        }
        self.start(server).await;
        self.report_of(server)
    }

    /// Takes the session with this server down; the next use starts it anew. `false` if no such server is configured.
    pub fn restart(&self, server: &str) -> bool {
        let Some(found) = self.servers.get(server) else { return false };
        if let Ok(server) = found {
            self.pool.restart(server);
        }
        true
    }

    fn report(&self, name: &str, server: &Result<Arc<McpServer>, Disabled>) -> ServerReport {
        match server {
            Ok(server) => ServerReport {
                name: name.to_owned(),
                transport: Some(server.transport.name()),
                required: server.required,
                state: self.pool.status(server),
                activity: self.pool.activity(server),
                held: self.held(server),
            },
            Err(disabled) => ServerReport {
                name: name.to_owned(),
                transport: None,
                required: false,
                state: ServerState::Disabled { reason: disabled.reason.clone() },
                activity: None,
                held: Vec::new(),
            },
        }
    }

    fn held(&self, server: &McpServer) -> Vec<(ToolRef, String)> {
        if !self.pins.is_locked() {
            return Vec::new();
        }
        let tools = self.pool.known_tools(server);
        let held =
            tools.iter().filter_map(|tool| Some((tool.id.clone(), self.pins.holds_back_listed(tool)?)));
        held.collect()
    }

    fn server(&self, name: &str) -> Result<&Arc<McpServer>, Failure> {
        match self.servers.get(name) {
            Some(Ok(server)) => Ok(server),
            Some(Err(disabled)) => Err(Failure::new(&disabled.reason)),
            None => Err(Failure::hinted(
                format!("Server not found: `{name}` is not in `mcp.servers`"),
                not_found_hint(self.names()),
            )),
        }
    }

    async fn tools_of(&self, name: &str) -> Result<Arc<Vec<Tool>>, ServerDown> {
        let down = |failure: Failure, required| ServerDown {
            server: name.to_owned(),
            reason: failure.reason,
            required,
        };
        let server = self.server(name).map_err(|failure| down(failure, false))?;
        self.pool.tools_for_chat(server).await.map_err(|failure| down(failure, server.required))
    }

    async fn run(
        &self,
        tool: &ToolRef,
        arguments: &Map<String, Value>,
        attendant: &dyn Attendant,
    ) -> Result<ToolOutput, ToolError> {
        let unavailable =
            |failure: Failure| ToolError::Down { server: tool.server.to_string(), reason: failure.reason };
        let server = self.server(&tool.server).map_err(unavailable)?;
        if !server.tools.permits(&tool.name) {
            return Err(unknown(tool));
        }
        // whether a rule denies the tool may depend on what the server says of it
        if !server.tools.approval.is_empty() {
            let listed = self.pool.tools_of(server).await.map_err(unavailable)?;
            if !listed.iter().any(|listed| listed.id == *tool) {
                return Err(unknown(tool));
            }
        }
        let mut is_first = true;
        loop {
            let live = self.pool.live(server).await.map_err(unavailable)?;
            match run_on(&live, server, tool, arguments, attendant).await {
                Ok(output) => return Ok(output),
                Err(Trouble::Told(error)) => return Err(error),
                Err(Trouble::Ask(AskError::Outdated(_))) if is_first => {
                    self.pool.outdated(server, &live);
                    is_first = false;
                }
                Err(Trouble::Ask(error)) => return Err(tool_error(error, tool, &live).await),
            }
        }
    }
}

/// Why a call on one connection has no result.
enum Trouble {
    Told(ToolError),
    Ask(AskError),
}

impl From<AskError> for Trouble {
    fn from(error: AskError) -> Self {
        Self::Ask(error)
    }
}

async fn run_on(
    live: &Arc<Live>,
    server: &McpServer,
    tool: &ToolRef,
    arguments: &Map<String, Value>,
    attendant: &dyn Attendant,
) -> Result<ToolOutput, Trouble> {
    let listed = live.listed();
    if !has(&live.known_tools(), tool) && !refreshed_has(live, tool, listed).await? {
        return Err(Trouble::Told(unknown(tool)));
    }
    let listed = live.listed();
    let limits = (server.timeout, server.max_timeout);
    let calling = live.call_it();
    let answer = live.link.call(&tool.name, arguments, limits, attendant).await;
    live.call_ended(&answer);
    if !is_unknown_tool(&answer, &tool.name) {
        return answer.map_err(Trouble::Ask);
    }
    drop(calling);
    match (refreshed_has(live, tool, listed).await, answer) {
        (Ok(false), _) => Err(Trouble::Told(unknown(tool))),
        // The server has it now. A result may stand for work that was done, as may an error that only sounds like it.
        (Ok(true), Err(error)) if !denies_tool(&error, &tool.name) => Err(Trouble::Ask(error)),
        (Ok(true), Err(_)) => {
            let _calling = live.call_it();
            let answer = live.link.call(&tool.name, arguments, limits, attendant).await;
            live.call_ended(&answer);
            Ok(answer?)
        }
        (Err(error), Err(_)) => Err(Trouble::Ask(error)),
        (Ok(true) | Err(_), Ok(output)) => Ok(output),
    }
}

fn not_found_hint<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        return "add the server under `mcp.servers`".to_owned();
    }
    format!("check the name in the model's `mcp_servers`; configured are {}", names.join(", "))
}

fn unknown(tool: &ToolRef) -> ToolError {
    ToolError::UnknownTool { server: tool.server.to_string(), tool: tool.name.to_string() }
}

fn has(tools: &[Tool], tool: &ToolRef) -> bool {
    tools.iter().any(|known| known.id.name == tool.name)
}

async fn refreshed_has(live: &Arc<Live>, tool: &ToolRef, seen: Instant) -> Result<bool, AskError> {
    Ok(has(&live.refreshed(seen).await?, tool))
}

/// Whether the answer says that the server has no such tool. By the specification that is error -32602; many servers
/// give a result instead, which is taken for it only when it is one short sentence that names the tool.
fn is_unknown_tool(answer: &Result<ToolOutput, AskError>, tool: &str) -> bool {
    const LONGEST: usize = 300;
    let text = match answer {
        Err(AskError::Refused { message, code: -32_602 | -32_601, .. }) => message.as_str(),
        Ok(output) if output.is_error => match output.content.as_slice() {
            [ToolContent::Text(text)] if text.len() < LONGEST && text.contains(tool) => text.as_str(),
            _ => return false,
        },
        _ => return false,
    };
    let text = text.to_lowercase();
    text.contains("tool") && ["unknown", "not found", "no such"].iter().any(|sign| text.contains(sign))
}

/// Whether an error says that there is no such tool and nothing else, in a sentence of an SDK: the call was not run.
fn denies_tool(error: &AskError, tool: &str) -> bool {
    let AskError::Refused { message, .. } = error else { return false };
    let plain: String = message.chars().filter(|c| !"'\"`:.".contains(*c)).collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    let words = match words.as_slice() {
        [mcp, error, _code, rest @ ..] if mcp.eq_ignore_ascii_case("mcp") && *error == "error" => rest,
        words => words,
    };
    let said = words.join(" ").to_lowercase();
    let tool: String = tool.chars().filter(|c| !"'\"`:.".contains(*c)).collect();
    let tool = tool.to_lowercase();
    let sentences = ["unknown tool", "no such tool", "tool not found"];
    sentences.iter().any(|sentence| said == *sentence || said == format!("{sentence} {tool}"))
        || ["not found", "does not exist", "is unknown"]
            .iter()
            .any(|end| said == format!("tool {tool} {end}"))
}

async fn tool_error(error: AskError, tool: &ToolRef, live: &Arc<Live>) -> ToolError {
    let server = tool.server.to_string();
    let name = tool.name.to_string();
    match error {
        AskError::Timeout(limit) => ToolError::Timeout { server, tool: name, limit },
        AskError::Closed => {
            let reason = live.reason().await.reason;
            ToolError::Lost { server, tool: name, reason }
        }
        AskError::TurnedAway { failure, after } if failure.cause == Cause::RateLimited => {
            ToolError::RateLimited { server, reason: failure.reason, retry_after: after }
        }
        AskError::Unsent(failure) | AskError::Outdated(failure) | AskError::TurnedAway { failure, .. } => {
            ToolError::Down { server, reason: failure.reason }
        }
        AskError::Broken(failure) => ToolError::Lost { server, tool: name, reason: failure.reason },
        AskError::Refused { message, code, .. } => ToolError::Refused { server, message, code },
        AskError::VisitFirst { message, .. } => ToolError::Refused { server, message, code: -32_042 },
        AskError::TooLarge(limit) => ToolError::TooLarge { tool: name, limit },
        AskError::Forbidden(reason) => ToolError::Denied { server, tool: name, reason },
    }
}

impl ToolSource for ProjectTools {
    fn list<'a>(&'a self, servers: &'a [String]) -> BoxFuture<'a, Catalogue> {
        Box::pin(async move {
            let listed = join_all(servers.iter().map(|name| self.tools_of(name))).await;
            let mut catalogue = Catalogue::default();
            for tools in listed {
                match tools {
                    Ok(tools) => catalogue.tools.extend(tools.iter().cloned()),
                    Err(down) => catalogue.down.push(down),
                }
            }
            catalogue.hold_back(&self.pins);
            catalogue
        })
    }

    fn ready<'a>(&'a self, server: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Ok(server) = self.server(server) {
                // why it is down is told by the call
                drop(self.pool.live(server).await);
            }
        })
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolRef,
        arguments: &'a Map<String, Value>,
        attendant: &'a dyn Attendant,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let started = Instant::now();
            let result = self.run(tool, arguments, attendant).await;
            let (server, name, elapsed) = (&*tool.server, &*tool.name, started.elapsed());
            match &result {
                Ok(output) => {
                    tracing::debug!(server, tool = name, ?elapsed, is_error = output.is_error, "tool ran");
                }
                Err(error) => tracing::warn!(server, tool = name, ?elapsed, error = %error, "tool failed"),
            }
            result
        })
    }
}
