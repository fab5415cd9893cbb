//! A request as it came in, and what tests look at in it.

use axum::http::HeaderMap;
use serde_json::Value;

use super::asked::Asked;
use super::check::chat;
use super::wire::Wire;

/// What came in.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: String,
    /// With the query.
    pub path: String,
    pub headers: HeaderMap,
    /// `null` where the body is no JSON.
    pub body: Value,
    /// `None` where the path is no model API's.
    pub wire: Option<Wire>,
    /// What it says, in whatever API; empty without one.
    pub asked: Asked,
}

impl Received {
    /// The messages of the request, as they are.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The result for a call id, as text.
    pub fn result_of(&self, call_id: &str) -> Option<String> {
        self.asked.result_of(call_id).map(str::to_owned)
    }

    /// Names of the tools offered through the API's own declarations.
    pub fn tool_names(&self) -> Vec<String> {
        self.asked.tools.iter().map(|tool| tool.name.clone()).collect()
    }
}

/// Names of the tools that a request of OpenAI Chat Completions offers: see [`Asked::offered_tools`].
pub fn offered_tools(request: &Value) -> Vec<String> {
    chat::read(request, &mut Vec::new()).offered_tools()
}

/// Which round of a turn a request of OpenAI Chat Completions asks for: see [`Asked::rounds_so_far`].
pub fn rounds_so_far(request: &Value) -> usize {
    chat::read(request, &mut Vec::new()).rounds_so_far()
}
