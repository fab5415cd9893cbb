//! The names under which what several servers have is offered together.

use std::sync::Arc;

use lf_core::tool::{Approval, Hints, Tool};
use lf_core::tool_set::{Target, fit_name};
use lf_core::{Catalogue, McpServer, ToolRef, ToolSet};
use lf_mcp::endpoint::List;
use serde_json::Value;

/// An exposed name begins with so many characters of what was wanted, whatever became of the rest.
const KEPT: usize = 55;

/// A tool or prompt under the name that clients see.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Named {
    pub(super) server: String,
    /// The server's own name for it.
    pub(super) own: String,
    /// As the server defines it, but for the name.
    pub(super) definition: Value,
}

/// Names what these servers have, in the order and under the names in which models are shown tools. What the file
/// withholds is left out.
pub(super) fn named(list: List, servers: &[(Arc<McpServer>, Arc<Vec<Value>>)]) -> Vec<(String, Named)> {
    let tools =
        servers.iter().flat_map(|(server, items)| items.iter().filter_map(|item| tool(list, server, item)));
    let set = ToolSet::new(&Catalogue { tools: tools.collect(), ..Catalogue::default() }, &[], &[]);
    let entries = set.iter().filter_map(|(exposed, target)| {
        let Target::Source(tool) = target else { return None };
        let (_, items) = servers.iter().find(|(server, _)| *server.name == *tool.id.server)?;
        let mut definition = items.iter().find(|item| item["name"] == *tool.id.name)?.clone();
        definition["name"] = exposed.into();
        let (server, own) = (tool.id.server.to_string(), tool.id.name.to_string());
        Some((exposed.to_owned(), Named { server, own, definition }))
    });
    entries.collect()
}

/// A prompt takes its name as a tool would.
fn tool(list: List, server: &McpServer, item: &Value) -> Option<Tool> {
    let name = item["name"].as_str().filter(|name| !name.is_empty())?;
    let id = ToolRef { server: server.name.as_str().into(), name: name.into() };
    let mut tool = Tool::new(id, None, Arc::default());
    if list == List::Tools {
        let approval = server.tools.approval(name, Hints::of(item));
        if !server.tools.permits(name) || approval == Approval::Deny {
            return None;
        }
        if let Some(shown) = server.tools.rename.get(name) {
            tool.shown_name = shown.as_str().into();
        }
    }
    Some(tool)
}

/// Whether something of this server can have this exposed name.
pub(super) fn may_be_of(name: &str, server: &str) -> bool {
    let mut prefix: String = server.chars().map(|c| if is_kept(c) { c } else { '_' }).collect();
    prefix.push_str("__");
    prefix.truncate(KEPT);
    name.starts_with(&prefix)
}

fn is_kept(c: char) -> bool {
    fit_name(c.encode_utf8(&mut [0; 4])).starts_with(c)
}

/// Whether a URI is one that a template stands for (RFC 6570): the text around its expressions is in it, in order. An
/// expression stands for anything.
pub(super) fn is_of_template(uri: &str, template: &str) -> bool {
    let mut rest = uri;
    let mut is_first = true;
    let mut pieces = template.split('{').peekable();
    while let Some(piece) = pieces.next() {
        let text = match is_first {
            true => piece,
            false => piece.split_once('}').map_or(piece, |(_, text)| text),
        };
        let is_last = pieces.peek().is_none();
        rest = match (is_first, is_last) {
            (true, true) => return rest == text,
            (true, false) => match rest.strip_prefix(text) {
                Some(rest) => rest,
                None => return false,
            },
            (false, true) => return rest.ends_with(text),
            (false, false) => match rest.find(text) {
                Some(at) => &rest[at + text.len()..],
                None => return false,
            },
        };
        is_first = false;
    }
    true
}
