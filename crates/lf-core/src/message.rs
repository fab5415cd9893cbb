//! What is said in a conversation, independent of any model API.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json;
use crate::results::ResultRef;
use crate::turn::Ran;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    System(Prose),
    User(Prose),
    Assistant(AssistantMessage),
    Tool(ToolResult),
}

/// A system or user message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Prose {
    pub content: Content,
    /// Fields this program does not read, kept for the upstream (`name`, …).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub rest: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AssistantMessage {
    pub content: Content,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub rest: Map<String, Value>,
}

/// A message's content in the form it came in, so that what is sent on is the same bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Parts(Vec<Part>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Content {
    /// The text parts joined, without anything between them.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => parts
                .iter()
                .filter_map(|part| match part {
                    Part::Text(text) => Some(text.as_str()),
                    _ => None,
                })
                .collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Parts(parts) => parts.is_empty(),
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Text(String),
    /// A URL or a `data:` URL.
    Image {
        url: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A part of the caller's dialect that this program does not read, as it came.
    Other(Value),
}

/// The model's request to run a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Never empty once planned; unique within its round.
    pub id: String,
    /// The name as the model knows it (an exposed name).
    pub name: String,
    pub arguments: Arguments,
    /// Provider state that must come back with the call (a thought signature, …).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub rest: Map<String, Value>,
}

/// A call's arguments: the text as the model wrote it, and what it means.
///
/// The text is kept because replaying history must be byte-stable: prefix caches depend on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Arguments {
    raw: String,
    value: Result<Map<String, Value>, String>,
}

impl Arguments {
    /// Reads complete argument text: empty and `null` mean `{}`, an object inside a JSON string is unwrapped once,
    /// what has one reading is repaired ([`json::read_object`]); anything else is kept as unusable.
    pub fn parse(raw: impl Into<String>) -> Self {
        let raw = raw.into();
        let value = json::read_object(&raw);
        Self { raw, value }
    }

    /// Text that was cut off or never finished: not to be run, whatever it may look like.
    pub fn incomplete(raw: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { raw: raw.into(), value: Err(problem.into()) }
    }

    pub fn from_object(object: Map<String, Value>) -> Self {
        Self { raw: Value::Object(object.clone()).to_string(), value: Ok(object) }
    }

    /// The object, or why there is none (a lowercase fragment for the model to read).
    pub fn value(&self) -> Result<&Map<String, Value>, &str> {
        self.value.as_ref().map_err(String::as_str)
    }

    /// As the model wrote it.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// JSON text of an object in every case, for upstreams that parse the arguments of earlier calls:
    /// the raw text where it is that already, else what it was read as, else `{}`.
    pub fn for_replay(&self) -> String {
        match &self.value {
            Ok(_) if serde_json::from_str::<Map<String, Value>>(&self.raw).is_ok() => self.raw.clone(),
            Ok(object) => serde_json::to_string(object).unwrap_or_else(|_| "{}".to_owned()),
            Err(_) => "{}".to_owned(),
        }
    }
}

/// [`Arguments`] in a journal: the text alone, where it says everything.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Read { raw: String, value: Map<String, Value> },
    Unusable { raw: String, problem: String },
}

impl From<Written> for Arguments {
    fn from(written: Written) -> Self {
        match written {
            Written::Text(raw) => Self::parse(raw),
            Written::Read { raw, value } => Self { raw, value: Ok(value) },
            Written::Unusable { raw, problem } => Self { raw, value: Err(problem) },
        }
    }
}

impl From<Arguments> for Written {
    fn from(Arguments { raw, value }: Arguments) -> Self {
        match value {
            value if value == json::read_object(&raw) => Self::Text(raw),
            Ok(value) => Self::Read { raw, value },
            Err(problem) => Self::Unusable { raw, problem },
        }
    }
}

/// What the model is told about one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    pub call_id: String,
    /// The exposed name of the tool, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub content: Content,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub rest: Map<String, Value>,
    /// What this program ran for it; `None` where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Box<Ran>>,
    /// Where all of it is, of which the content is only the beginning. Never from a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<ResultRef>,
}

impl ToolResult {
    /// What a tool answered to a call, as it came.
    pub fn new(call_id: impl Into<String>, content: impl Into<Content>) -> Self {
        Self {
            call_id: call_id.into(),
            name: None,
            content: content.into(),
            is_error: false,
            rest: Map::new(),
            ran: None,
            kept: None,
        }
    }

    /// An error written for the model to act on.
    pub fn error(call: &ToolCall, text: impl Into<String>) -> Self {
        Self {
            name: Some(call.name.clone()),
            is_error: true,
            ..Self::new(call.id.clone(), Content::Text(text.into()))
        }
    }
}
