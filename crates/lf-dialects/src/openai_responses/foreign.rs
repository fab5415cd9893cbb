//! What of a request in this dialect no model of another can be told.

use lf_core::{Message, ModelError, ModelRequest};
use serde_json::Value;

use super::items::CLIENT_SIDE;
use super::request::kept;
use super::{ITEMS, NEEDED};

/// To be asked before a request is written in any dialect but this one. Gives the items of the input that mean something
/// and are left out.
///
/// # Errors
/// [`ModelError::Unsupported`] where the answer would be about a tool that only this API has.
pub(crate) fn check_foreign(request: &ModelRequest) -> Result<Vec<String>, ModelError> {
    let needed = kept(&request.parameters).and_then(|kept| kept.get(NEEDED)).and_then(Value::as_str);
    if let Some(kind) = needed {
        return Err(ModelError::Unsupported(not_here(kind)));
    }
    let mut left_out = Vec::new();
    for message in &request.messages {
        let Message::Assistant(said) = message else { continue };
        let items = kept(&said.rest).and_then(|kept| kept.get(ITEMS)).and_then(Value::as_array);
        for kind in items.into_iter().flatten().filter_map(|item| item["type"].as_str()) {
            let name = format!("input: {kind}");
            if CLIENT_SIDE.contains(&kind) && !left_out.contains(&name) {
                left_out.push(name);
            }
        }
    }
    Ok(left_out)
}

fn not_here(kind: &str) -> String {
    match kind {
        "mcp" => "a tool of type `mcp` would be reached from OpenAI's own servers; list the server under `mcp.servers` in \
                  the project's llamafarm.yaml"
            .to_owned(),
        _ => format!(
            "a tool of type `{kind}` is part of OpenAI's own API and not offered here; use a tool of an MCP server for \
             it, or declare a function"
        ),
    }
}
