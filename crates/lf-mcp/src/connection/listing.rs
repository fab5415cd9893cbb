//! A server's tool list: fetched page by page within bounds, filtered and renamed as the file says.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use lf_core::pins::{Peer, Print};
use lf_core::policy::Labels;
use lf_core::project::Generation;
use lf_core::tool::{Approval, Hints, Tool, ToolRef};
use lf_core::{McpServer, visible};
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{AskError, Link};
use crate::secrets::Secrets;

const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 1_000;
/// The description and schema of one tool, in bytes.
const MAX_TOOL: usize = 64 * 1024;

/// The tools of one server that exist for us, and when they were listed.
#[derive(Debug, Clone)]
pub(crate) struct ToolList {
    pub(crate) tools: Arc<Vec<Tool>>,
    pub(crate) listed: Instant,
    /// How long the server wants the list to be kept: the least of its pages.
    pub(crate) fresh: Option<Duration>,
}

impl ToolList {
    /// Whether this is the same to a model as another list: names, descriptions and schemas.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.tools.len() == other.tools.len()
            && self.tools.iter().zip(other.tools.iter()).all(|(one, other)| is_same(one, other))
    }
}

fn is_same(one: &Tool, other: &Tool) -> bool {
    one.id == other.id
        && one.description == other.description
        && one.schema == other.schema
        && one.repeatable == other.repeatable
        && one.approval == other.approval
        && one.print == other.print
}

impl Link {
    /// Lists the tools within `limit`. Tools that did not change since `previous` are the same values, with what
    /// was computed for them.
    pub(crate) async fn list(
        &self,
        server: &McpServer,
        limit: Duration,
        previous: Option<&ToolList>,
    ) -> Result<ToolList, AskError> {
        // Forgotten before asking: a change that is reported while the answer is on its way counts for the next.
        self.signals.take_tools_changed();
        let deadline = Instant::now() + limit;
        let mut pages = Pages::new(server, &self.signals.secrets, self.about.peer.clone());
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let left = deadline.saturating_duration_since(Instant::now());
            let page = self.page(cursor, left).await.map_err(|error| match error {
                AskError::Timeout(_) => AskError::Timeout(limit),
                error => error,
            })?;
            cursor = pages.add(page)?;
            if cursor.is_none() || pages.is_full() {
                break;
            }
        }
        if cursor.is_some() {
            tracing::warn!(
                server = server.name,
                tools = pages.tools.len(),
                "the tool list is too long and was cut"
            );
        }
        if self.about.generation == Generation::Modern && !pages.is_full() {
            self.note_left_out(server, &pages.listed);
        }
        let fresh = pages.fresh;
        Ok(ToolList { tools: Arc::new(pages.finish(previous)), listed: Instant::now(), fresh })
    }

    /// Tells which tools came over HTTP and are not in the list.
    fn note_left_out(&self, server: &McpServer, listed: &HashSet<String>) {
        for tool in self.signals.take_annotated() {
            if !listed.contains(&tool) {
                let server = server.name.as_str();
                tracing::warn!(server, tool, "a tool is left out: its `x-mcp-header` is wrong");
            }
        }
    }

    async fn page(&self, cursor: Option<String>, limit: Duration) -> Result<Value, AskError> {
        let params = cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let request = ListToolsRequest { params, ..ListToolsRequest::default() };
        let request = ClientRequest::ListToolsRequest(request);
        match self.ask(request, (limit, limit)).await {
            // one that has prompts or resources only need not know what is asked
            Err(AskError::Refused { code: -32_601, .. }) if self.about.capability("tools").is_none() => {
                Ok(json!({"tools": []}))
            }
            result => Ok(serde_json::to_value(&result?).unwrap_or_default()),
        }
    }
}

struct Pages<'a> {
    server: &'a McpServer,
    tools: Vec<Tool>,
    seen: usize,
    names: HashSet<String>,
    /// As the server lists them, also those that the file denies.
    listed: HashSet<String>,
    cursors: HashSet<String>,
    fresh: Option<Duration>,
    secrets: &'a Secrets,
    peer: Arc<Peer>,
}

impl<'a> Pages<'a> {
    fn new(server: &'a McpServer, secrets: &'a Secrets, peer: Arc<Peer>) -> Self {
        Self {
            server,
            tools: Vec::new(),
            seen: 0,
            names: HashSet::new(),
            listed: HashSet::new(),
            cursors: HashSet::new(),
            fresh: None,
            secrets,
            peer,
        }
    }

    fn is_full(&self) -> bool {
        self.seen >= MAX_TOOLS
    }

    /// Takes a page's tools. Returns the cursor of the next page, if there is one that was not asked for before.
    fn add(&mut self, page: Value) -> Result<Option<String>, AskError> {
        let Value::Object(mut page) = page else { return Err(not_a_list()) };
        let Some(Value::Array(tools)) = page.remove("tools") else { return Err(not_a_list()) };
        let fresh = page.get("ttlMs").and_then(Value::as_u64).map(Duration::from_millis);
        self.fresh = self.fresh.into_iter().chain(fresh).min();
        for tool in tools {
            if self.is_full() {
                let server = self.server.name.as_str();
                tracing::warn!(
                    server,
                    limit = MAX_TOOLS,
                    "the server has too many tools; the rest is left out"
                );
                return Ok(None);
            }
            self.seen += 1;
            self.add_tool(&tool);
        }
        let next = page.get("nextCursor").and_then(Value::as_str).filter(|cursor| !cursor.is_empty());
        let Some(next) = next else { return Ok(None) };
        if self.cursors.insert(next.to_owned()) {
            return Ok(Some(next.to_owned()));
        }
        tracing::warn!(server = self.server.name, "the server repeats a page of its tool list");
        Ok(None)
    }

    fn add_tool(&mut self, said: &Value) {
        let server = self.server.name.as_str();
        let Some(name) = said.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
            tracing::warn!(server, "a tool without a name is left out");
            return;
        };
        self.listed.insert(name.to_owned());
        let name: Arc<str> = name.into();
        let hints = Hints::of(said);
        let labels = Labels::told(said);
        let approval = self.server.tools.approval(&name, hints);
        if !self.server.tools.permits(&name) || approval == Approval::Deny {
            return;
        }
        if !self.names.insert(name.to_string()) {
            tracing::warn!(server, tool = &*name, "a tool is listed twice; the first counts");
            return;
        }
        let description = said.get("description").and_then(Value::as_str);
        let description = description.map(|text| self.secrets.content(visible::words(text).into_owned()));
        let description = description.map(Arc::<str>::from);
        let schema = match said.get("inputSchema") {
            None | Some(Value::Null) => json!({"type": "object"}),
            Some(schema @ Value::Object(fields))
                if fields.get("type").is_none_or(|kind| kind == "object" || kind.is_array()) =>
            {
                visible::value(self.secrets.value(schema.clone()))
            }
            Some(_) => {
                tracing::warn!(
                    server,
                    tool = &*name,
                    "a tool whose schema is not that of an object is left out"
                );
                return;
            }
        };
        let size = name.len() + description.as_deref().map_or(0, str::len) + schema.to_string().len();
        if size > MAX_TOOL {
            tracing::warn!(server, tool = &*name, size, limit = MAX_TOOL, "a tool's definition is too large");
            return;
        }
        let shown = self.server.tools.rename.get(&*name).map(|shown| Arc::from(shown.as_str()));
        let id = ToolRef { server: server.into(), name };
        let mut tool = Tool::new(id, description, Arc::new(schema));
        if let Some(shown) = shown {
            tool.shown_name = shown;
        }
        let (retries, is_safe) =
            self.server.retry.as_ref().map_or((None, false), |rule| rule.of(&tool.id.name));
        tool.repeatable = hints.repeatable() || is_safe;
        tool.retries = retries.cloned();
        tool.approval = approval;
        tool.hints = hints;
        tool.labels = labels;
        // as it was sent: what is hidden from people and models counts, too
        tool.print = Some(Print::of(&self.secrets.value(said.clone()), self.peer.clone()).into());
        self.tools.push(tool);
    }

    fn finish(self, previous: Option<&ToolList>) -> Vec<Tool> {
        let known = previous.map(|list| list.tools.as_slice()).unwrap_or_default();
        let kept = |tool: Tool| {
            let same = known.iter().find(|known| is_same(known, &tool));
            same.cloned().unwrap_or(tool)
        };
        self.tools.into_iter().map(kept).collect()
    }
}

fn not_a_list() -> AskError {
    AskError::Refused {
        message: "it answered with something that is not a tool list".into(),
        code: -32_603,
        data: None,
    }
}
