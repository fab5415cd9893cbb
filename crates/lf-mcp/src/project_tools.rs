//! The tools of a project's servers, as the port that the rest of the program knows.

use std::sync::Arc;

use futures_util::future::join_all;
use indexmap::IndexMap;
use lf_core::McpServer;
use lf_core::project::Disabled;
use lf_core::tool::{
    BoxFuture, Catalogue, ServerDown, Tool, ToolContent, ToolError, ToolOutput, ToolProgress, ToolRef,
    ToolSource,
};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::connection::AskError;
use crate::failure::Failure;
use crate::pool::{ServerState, SessionPool};
use crate::session::Live;

/// A project's servers by name, each reached through the pool.
#[derive(Clone)]
pub struct ProjectTools {
    pool: SessionPool,
    servers: IndexMap<String, Result<Arc<McpServer>, Disabled>>,
}

/// What is known of one server of a project.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerReport {
    pub name: String,
    /// `stdio`, `http` or `sse`; not known of a disabled server.
    pub transport: Option<&'static str>,
    pub required: bool,
    pub state: ServerState,
}

impl ServerReport {
    /// Why the server is not usable, or was not the last time.
    pub fn last_error(&self) -> Option<&str> {
        match &self.state {
            ServerState::Disabled { reason } => Some(reason),
            ServerState::Idle { last_error } => last_error.as_ref().map(|failure| failure.reason.as_str()),
            ServerState::Failed { failure, .. } => Some(&failure.reason),
            ServerState::Connecting | ServerState::Ready { .. } | ServerState::Closed => None,
        }
    }

    /// What to try about [`Self::last_error`].
    pub fn hint(&self) -> Option<&str> {
        match &self.state {
            ServerState::Idle { last_error } => last_error.as_ref()?.hint.as_deref(),
            ServerState::Failed { failure, .. } => failure.hint.as_deref(),
            _ => None,
        }
    }
}

impl ProjectTools {
    pub(crate) fn new(
        pool: SessionPool,
        servers: IndexMap<String, Result<Arc<McpServer>, Disabled>>,
    ) -> Self {
        Self { pool, servers }
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
            },
            Err(disabled) => ServerReport {
                name: name.to_owned(),
                transport: None,
                required: false,
                state: ServerState::Disabled { reason: disabled.reason.clone() },
            },
        }
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
        progress: &(dyn Fn(ToolProgress) + Send + Sync),
    ) -> Result<ToolOutput, ToolError> {
        let unavailable =
            |failure: Failure| ToolError::Down { server: tool.server.to_string(), reason: failure.reason };
        let server = self.server(&tool.server).map_err(unavailable)?;
        if !server.tools.permits(&tool.name) {
            return Err(unknown(tool));
        }
        let mut is_first = true;
        loop {
            let live = self.pool.live(server).await.map_err(unavailable)?;
            match run_on(&live, server, tool, arguments, progress).await {
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
    progress: &(dyn Fn(ToolProgress) + Send + Sync),
) -> Result<ToolOutput, Trouble> {
    let _in_use = live.use_it();
    let listed = live.listed();
    if !has(&live.known_tools(), tool) && !refreshed_has(live, server, tool, listed).await? {
        return Err(Trouble::Told(unknown(tool)));
    }
    let listed = live.listed();
    let limits = (server.timeout, server.max_timeout);
    let calling = live.call_it();
    let answer = live.link.call(&tool.name, arguments, limits, progress).await;
    if !is_unknown_tool(&answer, &tool.name) {
        return answer.map_err(Trouble::Ask);
    }
    drop(calling);
    match (refreshed_has(live, server, tool, listed).await, answer) {
        (Ok(false), _) => Err(Trouble::Told(unknown(tool))),
        // A protocol error means that nothing was run yet; a result may stand for work that was done.
        (Ok(true), Err(_)) => {
            let _calling = live.call_it();
            Ok(live.link.call(&tool.name, arguments, limits, progress).await?)
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

async fn refreshed_has(
    live: &Arc<Live>,
    server: &McpServer,
    tool: &ToolRef,
    seen: Instant,
) -> Result<bool, AskError> {
    Ok(has(&live.refreshed(server, seen).await?, tool))
}

/// Whether the answer says that the server has no such tool. By the specification that is error -32602; many servers
/// give a result instead, which is taken for it only when it is one short sentence that names the tool.
fn is_unknown_tool(answer: &Result<ToolOutput, AskError>, tool: &str) -> bool {
    const LONGEST: usize = 300;
    let text = match answer {
        Err(AskError::Refused { message, code: -32_602 | -32_601 }) => message.as_str(),
        Ok(output) if output.is_error => match output.content.as_slice() {
            [ToolContent::Text(text)] if text.len() < LONGEST && text.contains(tool) => text.as_str(),
            _ => return false,
        },
        _ => return false,
    };
    let text = text.to_lowercase();
    text.contains("tool") && ["unknown", "not found", "no such"].iter().any(|sign| text.contains(sign))
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
        AskError::Unsent(failure) | AskError::Outdated(failure) => {
            ToolError::Down { server, reason: failure.reason }
        }
        AskError::Broken(failure) => ToolError::Lost { server, tool: name, reason: failure.reason },
        AskError::Refused { message, code } => ToolError::Refused { server, message, code },
        AskError::TooLarge(limit) => ToolError::TooLarge { tool: name, limit },
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
            catalogue
        })
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolRef,
        arguments: &'a Map<String, Value>,
        progress: &'a (dyn Fn(ToolProgress) + Send + Sync),
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let started = Instant::now();
            let result = self.run(tool, arguments, progress).await;
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
