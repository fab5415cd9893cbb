//! One server, passed through: everything as it says it, but for the tools that the file withholds or renames.

use std::sync::Arc;

use lf_core::McpServer;
use lf_core::tool::{Approval, Hints};
use lf_mcp::SessionPool;
use lf_mcp::endpoint::{Caller, Channel, List, Refused, Request};
use serde_json::{Map, Value};

use super::{Gate, Outcome};

pub(super) struct One<'a> {
    pub(super) pool: &'a SessionPool,
    pub(super) server: Arc<McpServer>,
    pub(super) gate: Gate<'a>,
}

impl One<'_> {
    pub(super) async fn about(&self, caller: &Caller) -> Outcome<Value> {
        let about = self.pool.about(&self.server, caller).await.map_err(|failure| {
            let name = &self.server.name;
            Refused::Unavailable(format!("MCP server `{name}` is not available: {}", failure.reason))
        });
        let mut about = about?;
        // they are for models, too
        let peer = self.pool.peer(&self.server, caller).await.unwrap_or_default();
        let pins = &self.gate.project.pins;
        if pins.distrusts(&self.server.name, &peer).is_some()
            && let Some(about) = about.as_object_mut()
        {
            about.remove("instructions");
        }
        // another lock is another list, whatever the server tells
        if pins.is_locked()
            && let Some(Value::Object(tools)) = about.pointer_mut("/capabilities/tools")
        {
            tools.insert("listChanged".to_owned(), true.into());
        }
        Ok(about)
    }

    pub(super) async fn answer(
        &self,
        mut request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Outcome<Map<String, Value>> {
        match request.method.as_str() {
            "tools/list" => {
                let mut result = self.pool.relay(&self.server, request, caller, channel).await?;
                if let Some(Value::Array(tools)) = result.get_mut("tools") {
                    if self.gate.project.pins.is_locked() {
                        let peer = self.pool.peer(&self.server, caller).await.unwrap_or_default();
                        self.gate.hold_back(&self.server, &peer, tools);
                    }
                    tools.retain_mut(|tool| {
                        let own = tool["name"].as_str().unwrap_or_default().to_owned();
                        if !self.gate.shows(&self.server.name, &own) {
                            return false;
                        }
                        self.gate.labels(&self.server.name, &own, tool).tell(tool);
                        shown(&self.server, tool)
                    });
                }
                Ok(result)
            }
            "tools/call" => {
                let name = request.param("name").to_owned();
                let own = own_name(&self.server, &name).ok_or(Refused::UnknownTool(name))?;
                request.params.insert("name".to_owned(), own.into());
                self.gate.call_tool(self.pool, &self.server, request, caller, channel).await
            }
            _ => self.pool.relay(&self.server, request, caller, channel).await,
        }
    }

    pub(super) async fn tool(&self, name: &str, caller: &Caller) -> Option<Value> {
        let own = own_name(&self.server, name)?;
        let tools = self.pool.catalogue(&self.server, List::Tools, caller, None).await.ok()?;
        tools.iter().find(|tool| tool["name"] == own.as_str()).cloned()
    }
}

/// Puts a definition into the name that clients see; `false` where the file withholds the tool.
fn shown(server: &McpServer, tool: &mut Value) -> bool {
    let Some(name) = tool["name"].as_str() else { return false };
    if !server.tools.permits(name) || server.tools.approval(name, Hints::of(tool)) == Approval::Deny {
        return false;
    }
    if let Some(shown) = server.tools.rename.get(name) {
        tool["name"] = shown.as_str().into();
    }
    true
}

/// What the server calls a tool that clients see under this name; `None` where the file withholds it.
fn own_name(server: &McpServer, shown: &str) -> Option<String> {
    let renamed = server.tools.rename.iter().find(|(_, to)| *to == shown).map(|(from, _)| from.as_str());
    let own = match renamed {
        Some(own) => own,
        // under its own name it is not there any more
        None if server.tools.rename.contains_key(shown) => return None,
        None => shown,
    };
    server.tools.permits(own).then(|| own.to_owned())
}
