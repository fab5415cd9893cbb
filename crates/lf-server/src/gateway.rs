//! What the daemon offers to MCP clients: the servers of a project or of a model, merged; one server, passed through;
//! and, at `/mcp` itself, the daemon's own tools.

mod merged;
mod naming;
mod one;
mod own;

use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, unfold};
use lf_core::policy::Labels;
use lf_core::project::{Disabled, Transport};
use lf_core::tool::{Approval, BoxFuture, Hints};
use lf_core::turn::denial;
use lf_core::{McpServer, Project, ToolRef};
use lf_mcp::SessionPool;
use lf_mcp::endpoint::{Caller, Channel, List, News, Offer, Refused, Request, Watch};
use serde_json::{Map, Value};
use tokio::sync::broadcast::error::RecvError;
use url::{Host, Url};

use crate::app::{App, Refusal};
use crate::approvals::{About, CallApprovals, No};
use crate::rules::{Asked, Facts, Rules, permit};
use merged::Merged;
use one::One;
pub(crate) use own::Own;

/// Which servers of a project are offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offering {
    /// All, merged: what they have is named `server__name`.
    All,
    /// Those this model may use, merged, with their tools under the names that it is shown.
    Model(String),
    /// One, under its own names.
    Server(String),
}

/// Servers of a project. The project is looked up for each request, so that a changed file counts.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    app: Arc<App>,
    /// Namespace and name.
    project: (String, String),
    offering: Offering,
    /// The Host under which this daemon asks itself; servers at it are left out, because each would ask for the others.
    asks_itself_at: Option<String>,
}

/// A server of the project: as it is reached, or why it is not.
type Server = (String, Result<Arc<McpServer>, Disabled>);

type Outcome<T> = Result<T, Refused>;

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
        let gateway = Self(Arc::new(Inner { app, project, offering, asks_itself_at }));
        gateway.names().await?;
        Ok(gateway)
    }

    /// The servers that are offered, in the order in which a model is shown them.
    async fn names(&self) -> Result<(Arc<Project>, Vec<String>), Refusal> {
        let Inner { app, project, offering, asks_itself_at } = &*self.0;
        let project = app.find_project(&project.0, &project.1).await?;
        let mut names: Vec<String> = match offering {
            Offering::All => project.servers.keys().cloned().collect(),
            Offering::Model(name) => {
                let (_, model) = app.find_model(Some(&project), Some(name)).await?;
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
        if let Some(host) = asks_itself_at {
            names
                .retain(|name| !matches!(project.servers.get(name), Some(Ok(server)) if is_at(server, host)));
        }
        Ok((project, names))
    }

    async fn servers(&self) -> Outcome<(Arc<Project>, Vec<Server>)> {
        let (project, names) = self.names().await.map_err(unavailable)?;
        let servers =
            names.into_iter().filter_map(|name| Some((name.clone(), project.servers.get(&name)?.clone())));
        let servers = servers.collect();
        Ok((project, servers))
    }

    fn gate(&self, project: Arc<Project>) -> Gate<'_> {
        let model = match &self.0.offering {
            Offering::Model(model) => Some(model.clone()),
            Offering::All | Offering::Server(_) => None,
        };
        Gate { gateway: self, approvals: &self.0.app.approvals, project, model }
    }

    fn pool(&self) -> &SessionPool {
        self.0.app.pool()
    }

    async fn one(&self) -> Outcome<One<'_>> {
        let name = match &self.0.offering {
            Offering::Server(name) => name.as_str(),
            Offering::All | Offering::Model(_) => "",
        };
        let (project, servers) = self.servers().await?;
        match servers.into_iter().next() {
            Some((_, Ok(server))) => Ok(One { pool: self.pool(), server, gate: self.gate(project) }),
            Some((_, Err(disabled))) => Err(Refused::Unavailable(format!(
                "MCP server `{name}` is not available: {}",
                disabled.reason
            ))),
            None => Err(Refused::Unavailable(format!(
                "MCP server `{name}` is this daemon, which asks for it itself"
            ))),
        }
    }

    async fn merged(&self) -> Outcome<Merged<'_>> {
        let (project, servers) = self.servers().await?;
        Ok(Merged { pool: self.pool(), servers, gate: self.gate(project) })
    }

    fn instructions(&self) -> String {
        let (namespace, name) = &self.0.project;
        let whose = match &self.0.offering {
            Offering::Model(model) => format!("model {model} of project {namespace}/{name}"),
            _ => format!("project {namespace}/{name}"),
        };
        format!("The MCP servers of {whose}. Tools and prompts are named `server__name`.")
    }
}

impl Offer for Gateway {
    fn about<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Outcome<Value>> {
        Box::pin(async move {
            match self.0.offering {
                Offering::Server(_) => self.one().await?.about(caller).await,
                Offering::All | Offering::Model(_) => Ok(merged::about(&self.instructions())),
            }
        })
    }

    fn answer<'a>(
        &'a self,
        request: Request,
        caller: &'a Caller,
        channel: &'a Channel,
    ) -> BoxFuture<'a, Outcome<Map<String, Value>>> {
        Box::pin(async move {
            match self.0.offering {
                Offering::Server(_) => self.one().await?.answer(request, caller, channel).await,
                Offering::All | Offering::Model(_) => {
                    self.merged().await?.answer(request, caller, channel).await
                }
            }
        })
    }

    fn tool<'a>(&'a self, name: &'a str, caller: &'a Caller) -> BoxFuture<'a, Option<Value>> {
        Box::pin(async move {
            match self.0.offering {
                Offering::Server(_) => self.one().await.ok()?.tool(name, caller).await,
                Offering::All | Offering::Model(_) => {
                    let merged = self.merged().await.ok()?;
                    merged.find(List::Tools, name, caller).await.ok().map(|found| found.definition)
                }
            }
        })
    }

    fn news(&self) -> BoxStream<'static, News> {
        let receiver = self.pool().news();
        let news = unfold((self.clone(), receiver), |(gateway, mut receiver)| async move {
            loop {
                let news = match receiver.recv().await {
                    Ok((server, news)) if gateway.has(&server).await => vec![news],
                    Ok(_) => continue,
                    // what was missed may have been anything
                    Err(RecvError::Lagged(_)) => {
                        [List::Tools, List::Prompts, List::Resources].map(News::Changed).to_vec()
                    }
                    Err(RecvError::Closed) => return None,
                };
                return Some((futures_util::stream::iter(news), (gateway, receiver)));
            }
        });
        news.flatten().boxed()
    }

    fn watch<'a>(&'a self, uri: &'a str, caller: &'a Caller) -> BoxFuture<'a, Outcome<Watch>> {
        Box::pin(async move {
            match self.0.offering {
                Offering::Server(_) => {
                    let one = self.one().await?;
                    one.pool.watch(&one.server, uri, caller).await
                }
                Offering::All | Offering::Model(_) => self.merged().await?.watch(uri, caller).await,
            }
        })
    }
}

impl Gateway {
    async fn has(&self, server: &Arc<McpServer>) -> bool {
        let Ok((_, servers)) = self.servers().await else { return false };
        servers.iter().any(|(_, known)| known.as_ref().is_ok_and(|known| known == server))
    }
}

/// What a client's call of a tool passes.
struct Gate<'a> {
    gateway: &'a Gateway,
    approvals: &'a CallApprovals,
    project: Arc<Project>,
    /// Whose tools are offered, where one model's are.
    model: Option<String>,
}

impl Gate<'_> {
    /// The one place where a client's call of a tool is passed on, once the rules and, where they ask for that, a person
    /// permit it.
    async fn call_tool(
        &self,
        pool: &SessionPool,
        server: &Arc<McpServer>,
        request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Outcome<Map<String, Value>> {
        let started = Instant::now();
        let tool = request.param("name").to_owned();
        let server_name = server.name.as_str();
        let rules = Rules::of(self.gateway.0.app.active(&self.project));
        let facts = match self.may_run(&rules, pool, server, &request, caller).await {
            Ok(facts) => facts,
            Err(No::Tool) => return Err(Refused::UnknownTool(tool)),
            Err(No::Said(text)) => return Ok(merged::failed(&text)),
        };
        pool.ready(server, caller).await;
        // the configuration may have changed since the server was looked up
        if !self.gateway.has(server).await {
            return Err(Refused::Unavailable(format!(
                "MCP server `{server_name}` is not configured as it was"
            )));
        }
        // what was approved a while ago may be forbidden by now
        let empty = Map::new();
        let arguments = arguments(&request).unwrap_or(&empty);
        let asked = Asked { model: self.model.as_deref(), facts: &facts, arguments };
        if let Err(why) = permit(&rules, &asked) {
            return Ok(merged::failed(&denial(&why)));
        }
        tracing::info!(server = server_name, tool, "Executing MCP tool");
        let outcome = pool.relay(server, request, caller, channel).await;
        let said = match &outcome {
            Ok(result) if result.get("isError").is_none_or(|failed| failed != true) => {
                "Tool execution successful"
            }
            Ok(_) => "the tool reported an error",
            Err(_) => "the tool call failed",
        };
        tracing::info!(server = server_name, tool, elapsed = ?started.elapsed(), "{said}");
        outcome
    }

    /// What the file and the server say of a tool.
    fn labels(&self, server: &str, tool: &str, listed: &Value) -> Labels {
        let id = ToolRef { server: server.into(), name: tool.into() };
        self.project.policy.labels_of(&id).and(Labels::told(listed))
    }

    async fn may_run(
        &self,
        rules: &Rules,
        pool: &SessionPool,
        server: &Arc<McpServer>,
        request: &Request,
        caller: &Caller,
    ) -> Result<Facts, No> {
        let tool = request.param("name");
        let id = ToolRef { server: server.name.as_str().into(), name: tool.into() };
        let mut facts = Facts::alone(id, Hints::default(), Labels::default());
        if !server.tools.approval.is_empty() || !self.project.policy.is_empty() {
            // a tool that is not listed is as dangerous as one that says nothing of itself
            let listed = pool.catalogue(server, List::Tools, caller, None).await.unwrap_or_default();
            let definition = listed.iter().find(|listed| listed["name"] == tool).unwrap_or(&Value::Null);
            facts.hints = Hints::of(definition);
            facts.labels = Labels::told(definition);
        }
        if server.tools.approval(tool, facts.hints) == Approval::Deny {
            return Err(No::Tool);
        }
        let empty = Map::new();
        let about = About::alone(&self.project, self.model.clone());
        self.approvals.may_run(rules, (facts, arguments(request).unwrap_or(&empty)), about).await
    }
}

fn arguments(request: &Request) -> Option<&Map<String, Value>> {
    request.params.get("arguments").and_then(Value::as_object)
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unavailable(refusal: Refusal) -> Refused {
    Refused::Unavailable(refusal.to_string())
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
