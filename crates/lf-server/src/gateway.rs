//! What the daemon offers to MCP clients: the servers of a project or of a model, merged; one server, passed through;
//! and, at `/mcp` itself, the daemon's own tools.

mod merged;
mod naming;
mod one;
mod own;
mod pinned;

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, unfold};
use lf_core::policy::Labels;
use lf_core::project::{Disabled, Transport};
use lf_core::tool::{Approval, BoxFuture, Hints};
use lf_core::turn::denial;
use lf_core::{McpServer, Principal, Project, Scope, ToolRef};
use lf_mcp::SessionPool;
use lf_mcp::endpoint::{Caller, Channel, List, News, ON_BEHALF, Offer, Refused, Request, Watch};
use serde_json::{Map, Value};
use tokio::sync::broadcast::error::RecvError;
use url::{Host, Url};

use crate::app::{App, Refusal};
use crate::approvals::{About, No};
use crate::authority::{Authority, Granted, itself};
use crate::rules::{Asked, Became, Check as _, Facts, NO_TOOL, Rules, Told, Underway, permit};
use merged::Merged;
use one::One;
pub(crate) use own::Own;

/// The scope that a request to a gateway needs: what only tells of a server, and what has it do something.
pub(crate) fn need_of(method: &str) -> Scope {
    const TOLD: [&str; 10] = [
        // an answer to a question of ours
        "",
        "initialize",
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        // of changes; each resource that is watched is asked for on its own
        "subscriptions/listen",
        "logging/setLevel",
    ];
    // notifications change nothing that is not this client's own
    let is_told = TOLD.contains(&method) || method.starts_with("notifications/");
    if is_told { Scope::Read } else { Scope::Tools }
}

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
    who: Arc<Principal>,
    /// Where this daemon asks itself: how far that goes.
    granted: Option<Granted>,
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
        who: Arc<Principal>,
        (namespace, name): (&str, &str),
        offering: Offering,
        asks_itself_at: Option<String>,
    ) -> Result<Self, Refusal> {
        let project = (namespace.to_owned(), name.to_owned());
        let inner = Inner { app, who, granted: None, project, offering, asks_itself_at };
        Self::of(inner).await
    }

    /// The same for a request of this daemon to itself, within what was granted.
    pub(crate) async fn open_within(
        app: Arc<App>,
        who: Arc<Principal>,
        (namespace, name): (&str, &str),
        offering: Offering,
        (asks_itself_at, granted): (Option<String>, Option<Granted>),
    ) -> Result<Self, Refusal> {
        let project = (namespace.to_owned(), name.to_owned());
        Self::of(Inner { app, who, granted, project, offering, asks_itself_at }).await
    }

    async fn of(inner: Inner) -> Result<Self, Refusal> {
        let gateway = Self(Arc::new(inner));
        gateway.names().await?;
        Ok(gateway)
    }

    /// The servers that are offered, in the order in which a model is shown them.
    async fn names(&self) -> Result<(Arc<Project>, Vec<String>), Refusal> {
        let Inner { app, who, granted, project, offering, asks_itself_at } = &*self.0;
        if granted.as_ref().is_some_and(|granted| granted.project != *project) {
            return Err(Refusal::UnknownProject(format!("{}/{}", project.0, project.1)));
        }
        let project = app.find_project(who, &project.0, &project.1).await?;
        let mut names: Vec<String> = match offering {
            Offering::All => project.servers.keys().cloned().collect(),
            Offering::Model(name) => {
                let (_, model) = app.find_model(who, Some(&project), Some(name)).await?;
                model.servers.clone()
            }
            Offering::Server(name) if project.servers.contains_key(name) && who.reaches_server(name) => {
                vec![name.clone()]
            }
            Offering::Server(name) => {
                return Err(Refusal::UnknownServer {
                    server: name.clone(),
                    known: project.servers.keys().filter(|name| who.reaches_server(name)).cloned().collect(),
                });
            }
        };
        let is_granted =
            |name: &String| granted.as_ref().is_none_or(|granted| granted.servers.contains(name));
        names.retain(|name| who.reaches_server(name) && is_granted(name));
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

    fn may_ask(&self, method: &str) -> Outcome<()> {
        let need = need_of(method);
        match self.0.who.has(need) {
            true => Ok(()),
            false => {
                let (namespace, name) = &self.0.project;
                let what = format!("{method} at /mcp/{namespace}/{name}");
                Err(Refused::Unavailable(self.0.app.lacks(&self.0.who, need, &what)))
            }
        }
    }

    async fn gate(&self, project: Arc<Project>) -> Outcome<Gate<'_>> {
        let Inner { app, who, offering, granted, .. } = &*self.0;
        let (model, models) = match offering {
            Offering::Model(name) => {
                let found = app.find_model(who, Some(&project), Some(name)).await;
                let (_, model) = found.map_err(unavailable)?;
                let models = Granted::to_model(who, &project, &model).models;
                (Some(model.name.clone()), models)
            }
            // a model that asks its own daemon is held by the rules about it
            Offering::All | Offering::Server(_) => {
                let models = granted.as_ref().and_then(|granted| granted.models.clone());
                (models.as_ref().and_then(|models| models.first().cloned()), models)
            }
        };
        let granted = Granted {
            principal: who.clone(),
            project: self.0.project.clone(),
            models,
            servers: project.servers.keys().cloned().collect(),
        };
        Ok(Gate { gateway: self, asks: app.authority(who), granted, project, model })
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
            Some((_, Ok(server))) => Ok(One { pool: self.pool(), server, gate: self.gate(project).await? }),
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
        Ok(Merged { pool: self.pool(), servers, gate: self.gate(project).await? })
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
            self.may_ask(&request.method)?;
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
            self.may_ask("resources/subscribe")?;
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
    asks: Authority,
    /// What this daemon is granted where it asks itself.
    granted: Granted,
    project: Arc<Project>,
    /// Whose tools are offered, where one model's are; else the model that asks its own daemon.
    model: Option<String>,
}

impl Gate<'_> {
    /// Whether whoever asks is shown a tool.
    fn shows(&self, server: &str, tool: &str) -> bool {
        self.asks.reaches(&ToolRef { server: server.into(), name: tool.into() }).is_ok()
    }

    /// The one place where a client's call of a tool is passed on, once the rules and, where they ask for that, a person
    /// permit it.
    async fn call_tool(
        &self,
        pool: &SessionPool,
        server: &Arc<McpServer>,
        mut request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Outcome<Map<String, Value>> {
        let tool = request.param("name").to_owned();
        let server_name = server.name.as_str();
        let app = &self.gateway.0.app;
        let rules = Rules::of(app.active(&self.project), self.asks.clone());
        let facts = match self.may_run(&rules, pool, server, &request, caller).await {
            Ok(facts) => facts,
            Err(No::Tool) => {
                let id = ToolRef { server: server_name.into(), name: tool.as_str().into() };
                let none = Map::new();
                let told = Told::new(self.model.as_deref(), &id, arguments(&request).unwrap_or(&none));
                rules.record(&told, &Became::Denied(NO_TOOL));
                return Err(Refused::UnknownTool(tool));
            }
            Err(No::Said(text)) => return Ok(merged::failed(&text)),
        };
        pool.ready(server, caller).await;
        // the configuration may have changed since the server was looked up
        if !self.gateway.has(server).await {
            return Err(Refused::Unavailable(format!(
                "MCP server `{server_name}` is not configured as it was"
            )));
        }
        // what was approved a while ago may be forbidden by now, or another
        let facts = Facts { said: self.said(&rules, pool, server, &tool, caller).await, ..facts };
        let arguments = arguments(&request).cloned().unwrap_or_default();
        let asked = Asked { model: self.model.as_deref(), facts: &facts, arguments: &arguments };
        let on_record = Told::new(self.model.as_deref(), &facts.tool, &arguments);
        if let Err(why) = permit(&rules, &asked) {
            rules.record(&on_record, &Became::Denied(&why));
            return Ok(merged::failed(&denial(&why)));
        }
        if let Err(over) = app.quotas.admit_call(&self.asks.principal).await {
            return Ok(merged::failed(&over.to_string()));
        }
        let channel = channel.clone().guarded({
            let (rules, model, facts, arguments) =
                (rules.clone(), self.model.clone(), facts.clone(), arguments.clone());
            move || permit(&rules, &Asked { model: model.as_deref(), facts: &facts, arguments: &arguments })
        });
        // a client has no say in on whose behalf it asks
        request.meta.remove(ON_BEHALF);
        let is_itself = !itself(std::iter::once(server), app.address.get().copied()).is_empty();
        let mandate = is_itself.then(|| app.grants.grant(self.granted.clone())).flatten();
        if let Some(mandate) = &mandate {
            request.meta.insert(ON_BEHALF.to_owned(), mandate.token().into());
        }
        tracing::info!(server = server_name, tool, "Executing MCP tool");
        let underway = Underway::handed_over(&rules, on_record);
        let outcome = pool.relay(server, request, caller, &channel).await;
        if let Err(Refused::Forbidden(why)) = outcome {
            underway.became(&Became::Denied(&why));
            return Ok(merged::failed(&denial(&why)));
        }
        let elapsed = underway.elapsed();
        let (said, became) = match &outcome {
            Ok(result) if result.get("isError").is_some_and(|failed| failed == true) => {
                ("the tool reported an error", Became::ran("error", result, elapsed))
            }
            Ok(result) => ("Tool execution successful", Became::ran("ok", result, elapsed)),
            Err(refused) => {
                ("the tool call failed", Became::ran(refused.name(), &refused.to_string(), elapsed))
            }
        };
        tracing::info!(server = server_name, tool, ?elapsed, "{said}");
        underway.became(&became);
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
        facts.said = self.said(rules, pool, server, tool, caller).await;
        if server.tools.approval(tool, facts.hints) == Approval::Deny {
            return Err(No::Tool);
        }
        let empty = Map::new();
        let about = About::alone(&self.asks.principal, &self.project, self.model.clone());
        let approvals = &self.gateway.0.app.approvals;
        approvals.may_run(rules, (facts, arguments(request).unwrap_or(&empty)), about).await
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
pub(crate) fn is_at(server: &McpServer, host: &str) -> bool {
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
