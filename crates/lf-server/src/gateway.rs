//! What the daemon offers to MCP clients: the tools of a project, of a model or of one server; and, at `/mcp` itself,
//! the daemon's own.

mod own;

use std::sync::Arc;

use lf_core::project::Transport;
use lf_core::tool::{BoxFuture, Tool, ToolProgress};
use lf_core::tool_set::{Target, fit_name};
use lf_core::{Catalogue, McpServer, Project, ToolError, ToolOutput, ToolRef, ToolSet, ToolSource as _};
use lf_mcp::ProjectTools;
use lf_mcp::endpoint::{Offer, Offered, Refused};
use serde_json::{Map, Value, json};
use url::{Host, Url};

use crate::app::{App, Refusal};
use crate::driver::execute_tool;
pub(crate) use own::Own;

/// Key of `_meta` in `tools/list`: how each server fared, by name.
const OUTCOMES: &str = "io.lf/outcomes";
/// An exposed name begins with so many characters of what was wanted, whatever became of the rest.
const KEPT: usize = 55;

/// Which tools of a project are offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offering {
    /// Those of every server, as `server__tool`.
    All,
    /// Those this model may use, under the names that it is shown.
    Model(String),
    /// Those of one server, under its own names.
    Server(String),
}

/// The tools of a project. The project is looked up for each request, so that a changed file counts.
pub struct Gateway {
    app: Arc<App>,
    /// Namespace and name.
    project: (String, String),
    offering: Offering,
    /// The Host under which this daemon asks itself; servers at it are left out, because each would ask for the others.
    asks_itself_at: Option<String>,
}

impl Gateway {
    /// # Errors
    /// When there is no such project, model or server, or it cannot be used.
    pub async fn open(
        app: Arc<App>,
        (namespace, name): (&str, &str),
        offering: Offering,
        asks_itself_at: Option<String>,
    ) -> Result<Self, Refusal> {
        let project = (namespace.to_owned(), name.to_owned());
        let gateway = Self { app, project, offering, asks_itself_at };
        gateway.servers().await?;
        Ok(gateway)
    }

    /// The servers whose tools are offered, in the order in which a model is shown them.
    async fn servers(&self) -> Result<(Arc<Project>, Vec<String>), Refusal> {
        let project = self.app.find_project(&self.project.0, &self.project.1).await?;
        let mut names: Vec<String> = match &self.offering {
            Offering::All => project.servers.keys().cloned().collect(),
            Offering::Model(name) => {
                let (_, model) = self.app.find_model(Some(&project), Some(name)).await?;
                model.servers.clone()
            }
            Offering::Server(name) if project.servers.contains_key(name) => vec![name.clone()],
            Offering::Server(name) => {
                return Err(Refusal::UnknownServer {
                    server: name.clone(),
                    known: project.servers.keys().cloned().collect(),
                });
            }
        };
        if let Some(host) = &self.asks_itself_at {
            names
                .retain(|name| !matches!(project.servers.get(name), Some(Ok(server)) if is_at(server, host)));
        }
        Ok((project, names))
    }

    /// The source that knows these servers and no others.
    fn tools(&self, project: &Project, names: &[String]) -> ProjectTools {
        let servers =
            names.iter().filter_map(|name| Some((name.clone(), project.servers.get(name)?.clone())));
        self.app.pool.tools(servers)
    }

    async fn listed(&self) -> Result<Offered, Refused> {
        let (project, names) = self.servers().await.map_err(unavailable)?;
        let catalogue = self.tools(&project, &names).list(&names).await;
        if let Offering::Server(server) = &self.offering {
            if let Some(down) = catalogue.down.first() {
                return Err(Refused::Unavailable(format!(
                    "MCP server `{server}` is not available: {}",
                    down.reason
                )));
            }
            let tools = catalogue.tools.iter().map(|tool| definition(&tool.id.name, tool)).collect();
            return Ok(Offered { tools, meta: Map::new() });
        }
        let set = ToolSet::new(&catalogue, &[], &[]);
        let tools = sources(&set).map(|(name, tool)| definition(name, tool)).collect();
        let meta = Map::from_iter([(OUTCOMES.to_owned(), outcomes(&names, &catalogue))]);
        Ok(Offered { tools, meta })
    }

    /// The tool behind a name. Only the servers are asked that can have it, so that no other delays the call.
    async fn find(&self, tools: &ProjectTools, names: &[String], name: &str) -> Result<ToolRef, Unfound> {
        if let Offering::Server(server) = &self.offering {
            return match names.is_empty() {
                false => Ok(ToolRef { server: server.as_str().into(), name: name.into() }),
                true => Err(Unfound::Unknown),
            };
        }
        let candidates: Vec<String> =
            names.iter().filter(|server| may_be_of(name, server)).cloned().collect();
        let catalogue = tools.list(&candidates).await;
        let set = ToolSet::new(&catalogue, &[], &[]);
        let found = sources(&set).find(|(exposed, _)| *exposed == name).map(|(_, tool)| tool.id.clone());
        found.ok_or_else(|| match catalogue.down.into_iter().next() {
            Some(down) => Unfound::Down(ToolError::Down { server: down.server, reason: down.reason }),
            None => Unfound::Unknown,
        })
    }

    async fn called(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        progress: &(dyn Fn(ToolProgress) + Send + Sync),
    ) -> Result<ToolOutput, Refused> {
        let (project, names) = self.servers().await.map_err(unavailable)?;
        let tools = self.tools(&project, &names);
        let tool = match self.find(&tools, &names, name).await {
            Ok(tool) => tool,
            Err(Unfound::Unknown) => return Err(Refused::UnknownTool(name.to_owned())),
            Err(Unfound::Down(error)) => return Ok(told(&error)),
        };
        match execute_tool(&tools, &tool, "", arguments, progress).await.0 {
            Ok(output) => Ok(output),
            Err(ToolError::UnknownTool { .. }) => Err(Refused::UnknownTool(name.to_owned())),
            Err(ToolError::Refused { message, code, .. }) => Err(Refused::Upstream { code, message }),
            Err(error) => Ok(told(&error)),
        }
    }
}

impl Offer for Gateway {
    fn instructions(&self) -> String {
        let (namespace, name) = &self.project;
        match &self.offering {
            Offering::All => format!("The tools of project {namespace}/{name}, named `server__tool`."),
            Offering::Model(model) => {
                format!("The tools of model {model} of project {namespace}/{name}, named `server__tool`.")
            }
            Offering::Server(server) => {
                format!("The tools of {server}, a server of project {namespace}/{name}.")
            }
        }
    }

    fn list(&self) -> BoxFuture<'_, Result<Offered, Refused>> {
        Box::pin(self.listed())
    }

    fn call<'a>(
        &'a self,
        name: &'a str,
        arguments: &'a Map<String, Value>,
        progress: &'a (dyn Fn(ToolProgress) + Send + Sync),
    ) -> BoxFuture<'a, Result<ToolOutput, Refused>> {
        Box::pin(self.called(name, arguments, progress))
    }
}

enum Unfound {
    Unknown,
    Down(ToolError),
}

/// Trouble with a tool is a result, so that the model reads it.
fn told(error: &ToolError) -> ToolOutput {
    failed(error.to_string())
}

fn failed(text: String) -> ToolOutput {
    let content = vec![lf_core::tool::ToolContent::Text(text)];
    ToolOutput { content, is_error: true, ..ToolOutput::default() }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unavailable(refusal: Refusal) -> Refused {
    Refused::Unavailable(refusal.to_string())
}

fn sources(set: &ToolSet) -> impl Iterator<Item = (&str, &Tool)> {
    set.iter().filter_map(|(name, target)| match target {
        Target::Source(tool) => Some((name, tool)),
        Target::Client(_) => None,
    })
}

fn definition(name: &str, tool: &Tool) -> Value {
    let mut definition = json!({"name": name, "inputSchema": tool.schema});
    if let Some(description) = &tool.description {
        definition["description"] = json!(description);
    }
    definition
}

fn outcomes(names: &[String], catalogue: &Catalogue) -> Value {
    let outcome = |name: &String| match catalogue.down.iter().find(|down| down.server == *name) {
        Some(down) => json!({"status": "down", "reason": down.reason}),
        None => {
            let tools = catalogue.tools.iter().filter(|tool| *tool.id.server == **name).count();
            json!({"status": "ok", "tools": tools})
        }
    };
    names.iter().map(|name| (name.clone(), outcome(name))).collect::<Map<_, _>>().into()
}

/// Whether a tool of this server can have this exposed name.
fn may_be_of(name: &str, server: &str) -> bool {
    let mut prefix: String = server.chars().map(|c| if is_kept(c) { c } else { '_' }).collect();
    prefix.push_str("__");
    prefix.truncate(KEPT);
    name.starts_with(&prefix)
}

fn is_kept(c: char) -> bool {
    fit_name(c.encode_utf8(&mut [0; 4])).starts_with(c)
}

/// Whether a remote server is behind this Host: the same port, and the same name or this machine.
fn is_at(server: &McpServer, host: &str) -> bool {
    let url = match &server.transport {
        Transport::Stdio(_) => return false,
        Transport::Http(http) | Transport::Sse(http) => Url::parse(&http.base_url),
    };
    let (Ok(url), Ok(own)) = (url, Url::parse(&format!("http://{host}/"))) else { return false };
    let same_port = url.port_or_known_default() == own.port_or_known_default();
    same_port && (url.host() == own.host() || (is_here(&url) && is_here(&own)))
}

fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback() || address.is_unspecified(),
        Some(Host::Ipv6(address)) => address.is_loopback() || address.is_unspecified(),
        None => false,
    }
}

#[cfg(test)]
mod tests;
