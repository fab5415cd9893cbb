//! A request to a model, whatever API it came through.

use serde_json::Value;

/// What a request says, read by the rules of its API.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    pub model: String,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// The texts of all system messages, one after the other.
    pub system: String,
    pub tools: Vec<Tool>,
    pub history: Vec<Said>,
}

/// A declared tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    /// `null` where the API lets a tool without arguments be declared without a schema.
    pub schema: Value,
}

/// An entry of the history.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    System(String),
    User(String),
    Assistant {
        text: String,
        calls: Vec<Called>,
    },
    /// The result of the call with this id.
    Result {
        id: String,
        text: String,
    },
}

/// A call that the model made before.
#[derive(Clone, Debug, PartialEq)]
pub struct Called {
    /// Where the API has no ids: one made of the call's place.
    pub id: String,
    pub name: String,
    /// A string where they are no JSON.
    pub arguments: Value,
    /// The sealed reasoning that came back with it.
    pub seal: Option<String>,
}

impl Asked {
    /// The result for a call id, as text.
    pub fn result_of(&self, id: &str) -> Option<&str> {
        self.history.iter().find_map(|said| match said {
            Said::Result { id: call, text } if call == id => Some(text.as_str()),
            _ => None,
        })
    }

    /// Every call of the history, in order.
    pub fn calls(&self) -> impl Iterator<Item = &Called> {
        self.history.iter().flat_map(|said| match said {
            Said::Assistant { calls, .. } => calls.as_slice(),
            _ => &[],
        })
    }

    /// Every call with its result, in the order of the calls: name, arguments, result.
    pub fn answered_calls<'a>(&'a self) -> Vec<(&'a str, &'a Value, &'a str)> {
        let answered = |call: &'a Called| {
            self.result_of(&call.id).map(|result| (call.name.as_str(), &call.arguments, result))
        };
        self.calls().filter_map(answered).collect()
    }

    /// What the person said last.
    pub fn last_user_text(&self) -> &str {
        let mut backwards = self.history.iter().rev();
        let text = backwards.find_map(|said| match said {
            Said::User(text) => Some(text.as_str()),
            _ => None,
        });
        text.unwrap_or_default()
    }

    /// Answers since the last user message: which round of a turn this request asks for, from 0.
    pub fn rounds_so_far(&self) -> usize {
        let turn = self.history.rsplit(|said| matches!(said, Said::User(_))).next().unwrap_or_default();
        turn.iter().filter(|said| matches!(said, Said::Assistant { .. })).count()
    }

    /// Names of the tools it offers: declared, or in `<tool>` tags of its system prompt.
    pub fn offered_tools(&self) -> Vec<String> {
        let mut names: Vec<String> = self.tools.iter().map(|tool| tool.name.clone()).collect();
        for part in self.system.split("<tool>").skip(1) {
            let declaration = part.split("</tool>").next().unwrap_or_default();
            let tool: Value = serde_json::from_str(declaration.trim()).unwrap_or_default();
            names.extend(tool["function"]["name"].as_str().map(str::to_owned));
        }
        names
    }

    /// `~suffix` as the one offered tool that ends so; other names as they are.
    pub(super) fn resolve(&self, name: &str) -> String {
        let Some(suffix) = name.strip_prefix('~') else { return name.to_owned() };
        let offered = self.offered_tools();
        if offered.iter().any(|tool| tool == suffix) {
            return suffix.to_owned();
        }
        let matching: Vec<&String> = offered.iter().filter(|tool| tool.ends_with(suffix)).collect();
        match matching[..] {
            [tool] => tool.clone(),
            // Sent as written: the request that comes back with "unknown tool" says which names there were.
            _ => format!("no_single_tool_ends_with_{suffix}"),
        }
    }
}
