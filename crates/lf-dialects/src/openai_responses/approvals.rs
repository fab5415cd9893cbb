//! Calls that the client has to approve: an `mcp_approval_request` in the answer, and an `mcp_approval_response` in a later
//! request (OpenAI API reference, Responses, "MCP approval request").

use lf_core::turn::{Ask, Decision, Verdict};
use serde_json::{Value, json};

use crate::openai_chat::RequestError;

/// What the ids of this program's own approvals begin with; others are an upstream's business.
const OWN: &str = "apr_";

/// The item that asks.
pub(super) fn item(ask: &Ask) -> Value {
    json!({
        "id": ask.id,
        "type": "mcp_approval_request",
        "server_label": ask.tool.server,
        "name": ask.tool.name,
        "arguments": ask.call.arguments.raw(),
    })
}

/// Takes the decisions out of `input`, and the questions that they answer.
pub(super) fn take(input: &mut Option<Value>) -> Result<Vec<(String, Decision)>, RequestError> {
    let Some(Value::Array(items)) = input else { return Ok(Vec::new()) };
    let mut decisions = Vec::new();
    let mut trouble = None;
    let mut at = 0;
    items.retain(|item| {
        let path = format!("input[{at}]");
        at += 1;
        let own = |key: &str| item[key].as_str().filter(|id| id.starts_with(OWN));
        match item["type"].as_str() {
            Some("mcp_approval_request") => own("id").is_none(),
            Some("mcp_approval_response") => {
                let Some(id) = own("approval_request_id") else { return true };
                match decision(&path, item) {
                    Ok(decision) => decisions.push((id.to_owned(), decision)),
                    Err(error) => drop(trouble.get_or_insert(error)),
                }
                false
            }
            _ => true,
        }
    });
    trouble.map_or(Ok(decisions), Err)
}

fn decision(path: &str, item: &Value) -> Result<Decision, RequestError> {
    let verdict = match &item["approve"] {
        Value::Bool(true) => Verdict::Approved,
        Value::Bool(false) => Verdict::Denied,
        other => return Err(RequestError::expected(&format!("{path}.approve"), "true or false", other)),
    };
    let reason = match &item["reason"] {
        Value::Null => None,
        Value::String(reason) => Some(reason.clone()),
        other => return Err(RequestError::expected(&format!("{path}.reason"), "a string", other)),
    };
    Ok(Decision { verdict, by: "the client of the Responses API".to_owned(), reason, who: None })
}
