//! What clients are not offered because it is not what somebody looked at.

use std::sync::Arc;

use lf_core::pins::{Peer, Print};
use lf_core::tool::{Approval, Hints};
use lf_core::{McpServer, ToolRef};
use lf_mcp::endpoint::{Caller, List};
use lf_mcp::{Prints, SessionPool};
use serde_json::Value;

use super::Gate;
use crate::rules::{Check as _, Rules, Said, Withheld};

impl Gate<'_> {
    /// What a tool is now, where that has to be known.
    pub(super) async fn said(
        &self,
        rules: &Rules,
        pool: &SessionPool,
        server: &Arc<McpServer>,
        tool: &str,
        caller: &Caller,
    ) -> Said {
        if !rules.is_locked(&server.name) {
            return Said::Unknown;
        }
        let Ok((_, prints)) = pool.printed(server, List::Tools, caller, None).await else {
            return Said::Nothing;
        };
        prints.get(tool).map_or(Said::Nothing, |print| Said::This(print.clone().into()))
    }

    /// Takes those out of a list, as it was just sent, that are held back, and those that have the name of one before.
    pub(super) fn hold_back(&self, server: &McpServer, peer: &Arc<Peer>, tools: &mut Vec<Value>) {
        let mut prints = Prints::new();
        tools.retain(|tool| {
            let name = tool["name"].as_str().unwrap_or_default();
            let is_first = !prints.contains_key(name);
            if is_first {
                prints.insert(name.to_owned(), Print::of(tool, peer.clone()));
            }
            is_first
        });
        let held = self.held(server, tools, &prints);
        tools.retain(|tool| !held.iter().any(|(name, _)| tool["name"] == name.as_str()));
    }

    /// Of the tools of a server that whoever asks would see those that are held back, with the reasons. What is new among
    /// them is put on record.
    pub(super) fn held(&self, server: &McpServer, tools: &[Value], prints: &Prints) -> Vec<(String, String)> {
        let pins = &self.project.pins;
        if !pins.is_locked() {
            return Vec::new();
        }
        // what the file withholds is in no lock
        let is_offered = |name: &str, tool: &Value| {
            server.tools.permits(name) && server.tools.approval(name, Hints::of(tool)) != Approval::Deny
        };
        let held: Vec<Withheld<'_>> = tools
            .iter()
            .filter_map(|definition| {
                let name = definition["name"].as_str()?;
                if !is_offered(name, definition) || !self.shows(&server.name, name) {
                    return None;
                }
                let tool = ToolRef { server: server.name.as_str().into(), name: name.into() };
                let print = prints.get(name);
                let why = match print {
                    Some(print) => pins.holds_back(&tool, print),
                    None => pins.cannot_compare(&server.name),
                };
                Some(Withheld { tool, print, why: why? })
            })
            .collect();
        let told = held.iter().map(|held| (held.tool.name.to_string(), held.why.clone())).collect();
        let app = &self.gateway.0.app;
        let rules = Rules::of(app.active(&self.project), self.asks.clone());
        app.held_back.tell(&rules, &self.project, self.model.as_deref(), held);
        told
    }
}
