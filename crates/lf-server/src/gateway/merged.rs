//! Several servers as one. What one of them has goes to it; lists are of all, and tell how each server fared, so that a
//! server that is down costs only its own part.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lf_core::McpServer;
use lf_mcp::SessionPool;
use lf_mcp::endpoint::{Caller, Channel, List, Refused, Request, Watch};
use serde_json::{Map, Value, json};

use super::naming::{Named, is_of_template, may_be_of, named};
use super::{Gate, Outcome, Server};

/// Key of `_meta` in lists: how each server fared, by name.
const OUTCOMES: &str = "io.lf/outcomes";
/// URIs that are told of a server whose resources another server has too.
const TOLD: usize = 20;
/// Age of a list that is asked for anew when a name is not in it.
const RECENT: Duration = Duration::from_secs(1);
/// Between a server's name and the id of its task.
const OF_SERVER: char = ':';
/// JSON-RPC's code for wrong parameters, which an unknown resource is from 2026-07-28 on, and the code before.
const NOT_FOUND: [i64; 2] = [-32_602, -32_002];

/// What is said of several servers together: all that any may have.
pub(super) fn about(instructions: &str) -> Value {
    json!({
        "capabilities": {
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"listChanged": true, "subscribe": true},
            "completions": {},
            "logging": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
        "serverInfo": {"name": "lf", "version": env!("CARGO_PKG_VERSION")},
        "instructions": instructions,
    })
}

pub(super) struct Merged<'a> {
    pub(super) pool: &'a SessionPool,
    pub(super) servers: Vec<Server>,
    pub(super) gate: Gate<'a>,
}

/// What the servers have of one kind.
struct Listed {
    up: Vec<(Arc<McpServer>, Arc<Vec<Value>>)>,
    /// Name and reason.
    down: Vec<(String, String)>,
    /// Tools of each server of `up` that are held back, with the reasons.
    held: Vec<Vec<(String, String)>>,
}

impl Listed {
    /// Takes the tools out that are held back, and tells of them by server.
    fn without_held(&mut self) -> Map<String, Value> {
        let mut told = Map::new();
        for ((server, tools), held) in self.up.iter_mut().zip(&self.held) {
            if held.is_empty() {
                continue;
            }
            Arc::make_mut(tools).retain(|tool| !held.iter().any(|(name, _)| tool["name"] == name.as_str()));
            let held: Vec<Value> =
                held.iter().take(TOLD).map(|(tool, why)| json!({"tool": tool, "reason": why})).collect();
            told.insert(server.name.clone(), held.into());
        }
        told
    }
}

impl Merged<'_> {
    pub(super) async fn answer(
        &self,
        request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Outcome<Map<String, Value>> {
        match request.method.as_str() {
            "tools/list" => Ok(self.list(List::Tools, caller).await),
            "prompts/list" => Ok(self.list(List::Prompts, caller).await),
            "resources/list" => Ok(self.list(List::Resources, caller).await),
            "resources/templates/list" => Ok(self.list(List::Templates, caller).await),
            "tools/call" => self.call(request, caller, channel).await,
            "prompts/get" => self.prompt(request, caller, channel).await,
            "resources/read" => self.read(request, caller, channel).await,
            "completion/complete" => self.complete(request, caller, channel).await,
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.task(request, caller, channel).await,
            // each server is told with the next request that is passed on to it
            "logging/setLevel" => Ok(Map::new()),
            _ => Err(Refused::UnknownMethod(request.method)),
        }
    }

    async fn listed(
        &self,
        list: List,
        servers: impl Iterator<Item = &Server>,
        caller: &Caller,
        oldest: Option<Duration>,
    ) -> Listed {
        let listing = servers.map(|(name, server)| async move {
            let server = server.as_ref().map_err(|disabled| (name.clone(), disabled.reason.clone()))?;
            match self.pool.printed(server, list, caller, oldest).await {
                Ok((items, prints)) => Ok((server.clone(), items, prints)),
                Err(failure) => Err((name.clone(), failure.reason)),
            }
        });
        let mut found = Listed { up: Vec::new(), down: Vec::new(), held: Vec::new() };
        for listed in join_all(listing).await {
            match listed {
                Ok((server, items, prints)) => {
                    // of other lists there is nothing to compare
                    let held = match list {
                        List::Tools => self.gate.held(&server, &items, &prints),
                        _ => Vec::new(),
                    };
                    found.held.push(held);
                    found.up.push((server, items));
                }
                Err(failed) => found.down.push(failed),
            }
        }
        found
    }

    async fn list(&self, list: List, caller: &Caller) -> Map<String, Value> {
        let mut listed = self.listed(list, self.servers.iter(), caller, None).await;
        let held = if list == List::Tools { listed.without_held() } else { Map::new() };
        let mut shadowed: Map<String, Value> = Map::new();
        let items: Vec<(String, Value)> = match list {
            List::Tools | List::Prompts => {
                let named = named(list, &listed.up);
                let shown = named
                    .into_iter()
                    .filter(|(_, named)| list != List::Tools || self.gate.shows(&named.server, &named.own));
                let told = shown.map(|(_, Named { server, own, mut definition })| {
                    if list == List::Tools {
                        self.gate.labels(&server, &own, &definition).tell(&mut definition);
                    }
                    (server, definition)
                });
                told.collect()
            }
            List::Resources | List::Templates => by_uri(list, &listed.up, &mut shadowed),
        };
        let outcome = |(name, _): &Server| {
            let outcome = match listed.down.iter().find(|(down, _)| down == name) {
                Some((_, reason)) => json!({"status": "down", "reason": reason}),
                None => {
                    let count = items.iter().filter(|(server, _)| server == name).count();
                    let mut outcome = json!({"status": "ok", list.key(): count});
                    if let Some(held) = held.get(name) {
                        outcome["held_back"] = held.clone();
                    }
                    if let Some(shadowed) = shadowed.get(name) {
                        outcome["shadowed"] = shadowed.clone();
                    }
                    outcome
                }
            };
            (name.clone(), outcome)
        };
        let outcomes: Map<String, Value> = self.servers.iter().map(outcome).collect();
        let items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
        Map::from_iter([
            (list.key().to_owned(), items.into()),
            ("_meta".to_owned(), json!({OUTCOMES: outcomes})),
        ])
    }

    fn server(&self, name: &str) -> Option<&Arc<McpServer>> {
        self.servers.iter().find(|(known, _)| known == name)?.1.as_ref().ok()
    }

    /// The tool or prompt behind a name. Only the servers are asked that can have it, so that no other delays this.
    pub(super) async fn find(&self, list: List, name: &str, caller: &Caller) -> Outcome<Named> {
        let candidates = || self.servers.iter().filter(|(server, _)| may_be_of(name, server));
        let mut listed = Listed { up: Vec::new(), down: Vec::new(), held: Vec::new() };
        for oldest in [None, Some(RECENT)] {
            listed = self.listed(list, candidates(), caller, oldest).await;
            let found = named(list, &listed.up).into_iter().find(|(exposed, _)| exposed == name);
            if let Some((_, found)) = found {
                return Ok(found);
            }
            if listed.up.is_empty() {
                break;
            }
        }
        Err(match (listed.down.first(), list) {
            (Some((server, reason)), _) => down(server, reason),
            (None, List::Tools) => Refused::UnknownTool(name.to_owned()),
            (None, _) => Refused::Invalid(format!("unknown prompt: `{name}`")),
        })
    }

    async fn call(
        &self,
        mut request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Outcome<Map<String, Value>> {
        let called = async {
            let found = self.find(List::Tools, request.param("name"), caller).await?;
            let server = self.server(&found.server).ok_or_else(|| down(&found.server, "it left the file"))?;
            request.params.insert("name".to_owned(), found.own.into());
            let mut result = self.gate.call_tool(self.pool, server, request, caller, channel).await?;
            if result.get("resultType").is_some_and(|kind| kind == "task") {
                name_task(&mut result, &server.name);
            }
            Ok(result)
        };
        match called.await {
            // trouble with a tool is a result, so that the model reads it
            Err(Refused::Unavailable(text)) => Ok(failed(&text)),
            answer => answer,
        }
    }

    async fn prompt(
        &self,
        mut request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Outcome<Map<String, Value>> {
        let found = self.find(List::Prompts, request.param("name"), caller).await?;
        let server = self.server(&found.server).ok_or_else(|| down(&found.server, "it left the file"))?;
        request.params.insert("name".to_owned(), found.own.into());
        self.pool.relay(server, request, caller, channel).await
    }

    /// The servers that may have a resource: the one that lists it, or whose template stands for it; otherwise all.
    async fn routes(&self, uri: &str, caller: &Caller) -> Vec<Arc<McpServer>> {
        let mut all = Vec::new();
        for list in [List::Resources, List::Templates] {
            let listed = self.listed(list, self.servers.iter(), caller, None).await;
            let is_it = |item: &Value| match list {
                List::Templates => {
                    item["uriTemplate"].as_str().is_some_and(|template| is_of_template(uri, template))
                }
                _ => item["uri"] == uri,
            };
            let has = |items: &[Value]| items.iter().any(is_it);
            if let Some((server, _)) = listed.up.iter().find(|(_, items)| has(items)) {
                return vec![server.clone()];
            }
            all = listed.up.into_iter().map(|(server, _)| server).collect();
        }
        all
    }

    async fn read(
        &self,
        request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Outcome<Map<String, Value>> {
        let uri = request.param("uri").to_owned();
        let mut last = Refused::Upstream {
            code: NOT_FOUND[1],
            message: format!("no server has a resource `{uri}`"),
            data: Some(json!({"uri": uri})),
        };
        for server in self.routes(&uri, caller).await {
            match self.pool.relay(&server, request.clone(), caller, channel).await {
                Err(Refused::Upstream { code: -32_601, .. }) => {}
                Err(refused @ Refused::Upstream { code, .. }) if NOT_FOUND.contains(&code) => last = refused,
                answer => return answer,
            }
        }
        Err(last)
    }

    pub(super) async fn watch(&self, uri: &str, caller: &Caller) -> Outcome<Watch> {
        let mut last = Refused::Invalid(format!("no server has a resource `{uri}`"));
        for server in self.routes(uri, caller).await {
            match self.pool.watch(&server, uri, caller).await {
                Err(refused @ Refused::Upstream { .. }) => last = refused,
                watch => return watch,
            }
        }
        Err(last)
    }

    async fn complete(
        &self,
        mut request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Outcome<Map<String, Value>> {
        let reference = request.params.get("ref").cloned().unwrap_or_default();
        let text = |key: &str| reference[key].as_str().unwrap_or_default().to_owned();
        let server = match reference["type"].as_str() {
            Some("ref/prompt") => {
                let found = self.find(List::Prompts, &text("name"), caller).await?;
                if let Some(reference) = request.params.get_mut("ref") {
                    reference["name"] = found.own.into();
                }
                self.server(&found.server).cloned()
            }
            Some("ref/resource") => {
                let uri = text("uri");
                let listed = self.listed(List::Templates, self.servers.iter(), caller, None).await;
                let has = |items: &[Value]| items.iter().any(|item| item["uriTemplate"] == uri.as_str());
                match listed.up.iter().find(|(_, items)| has(items)) {
                    Some((server, _)) => Some(server.clone()),
                    None => self.routes(&uri, caller).await.into_iter().next(),
                }
            }
            _ => return Err(Refused::Invalid("`ref` names neither a prompt nor a resource".to_owned())),
        };
        let server = server.ok_or_else(|| Refused::Invalid("no server has what `ref` names".to_owned()))?;
        self.pool.relay(&server, request, caller, channel).await
    }

    async fn task(
        &self,
        mut request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Outcome<Map<String, Value>> {
        let id = request.param("taskId").to_owned();
        let of = |name: &str| id.strip_prefix(name)?.strip_prefix(OF_SERVER).map(str::to_owned);
        let found = self.servers.iter().find_map(|(name, server)| Some((server.as_ref().ok()?, of(name)?)));
        let (server, own) = found.ok_or_else(|| Refused::Invalid(format!("unknown task: `{id}`")))?;
        request.params.insert("taskId".to_owned(), own.into());
        let mut result = self.pool.relay(server, request, caller, channel).await?;
        name_task(&mut result, &server.name);
        Ok(result)
    }
}

/// What the servers have by URI; what two have is the first one's, and told of the others.
fn by_uri(
    list: List,
    servers: &[(Arc<McpServer>, Arc<Vec<Value>>)],
    shadowed: &mut Map<String, Value>,
) -> Vec<(String, Value)> {
    let key = if list == List::Resources { "uri" } else { "uriTemplate" };
    let mut seen = std::collections::HashMap::new();
    let mut items = Vec::new();
    for (server, listed) in servers {
        for item in listed.iter() {
            let Some(uri) = item[key].as_str() else { continue };
            match seen.get(uri) {
                None => {
                    seen.insert(uri, &server.name);
                    items.push((server.name.clone(), item.clone()));
                }
                Some(first) => {
                    let told = shadowed.entry(server.name.clone()).or_insert_with(|| json!([]));
                    if let Some(told) = told.as_array_mut().filter(|told| told.len() < TOLD) {
                        told.push(json!({key: uri, "server": first}));
                    }
                }
            }
        }
    }
    items
}

/// The ids of tasks say whose they are.
fn name_task(result: &mut Map<String, Value>, server: &str) {
    if let Some(Value::String(id)) = result.get_mut("taskId") {
        *id = format!("{server}{OF_SERVER}{id}");
    }
}

fn down(server: &str, reason: &str) -> Refused {
    Refused::Unavailable(format!("MCP server `{server}` is not available: {reason}"))
}

pub(super) fn failed(text: &str) -> Map<String, Value> {
    Map::from_iter([
        ("content".to_owned(), json!([{"type": "text", "text": text}])),
        ("isError".to_owned(), Value::Bool(true)),
    ])
}
