//! Reads the items of `input`, and makes one message of each turn of the assistant.

use lf_core::{Arguments, AssistantMessage, Content, Message, Prose, ToolCall, ToolResult};
use serde_json::{Map, Value, json};

use super::ids::is_own;
use super::parts::{self, string};
use super::{ITEMS, PARAGRAPH, RESPONSES_ONLY};
use crate::openai_chat::RequestError;

/// What OpenAI's own servers did while they answered. Such an item was told by a Responses upstream, and goes back to
/// one; to other models the answer that came of it says enough.
const HOSTED: [&str; 6] = [
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_list_tools",
    "mcp_call",
];

/// Whether `input` is the whole conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// What came before is stored, and calls in it may be answered here.
    Stored,
    Nothing,
}

pub(super) fn messages(
    list: Vec<Value>,
    before: Before,
    resolve: &dyn Fn(&str) -> Option<Value>,
) -> Result<Vec<Message>, RequestError> {
    let mut reader = Reader { before, answers: Vec::new(), said: Vec::new(), turn: None };
    for (at, item) in list.into_iter().enumerate() {
        reader.item(&format!("input[{at}]"), item, resolve)?;
    }
    reader.end_turn();
    let mut messages = reader.answers;
    messages.append(&mut reader.said);
    Ok(messages)
}

struct Reader {
    before: Before,
    /// Results of calls in the stored conversation: nothing may stand between the two.
    answers: Vec<Message>,
    said: Vec<Message>,
    turn: Option<Turn>,
}

/// Consecutive items of the assistant.
#[derive(Default)]
struct Turn {
    message: AssistantMessage,
    /// As they came, but for what this program made up itself. Calls only mark their places.
    items: Vec<Value>,
    /// The items say more than the message does.
    says_more: bool,
}

impl Reader {
    fn item(
        &mut self,
        path: &str,
        item: Value,
        resolve: &dyn Fn(&str) -> Option<Value>,
    ) -> Result<(), RequestError> {
        match kind(path, &item)? {
            "message" => self.message(path, item),
            "function_call" => self.turn().call(path, &item),
            "function_call_output" => self.output(path, &item),
            "reasoning" => {
                self.turn().reasoning(item);
                Ok(())
            }
            kind if HOSTED.contains(&kind) => {
                let turn = self.turn();
                turn.says_more = true;
                turn.items.push(item);
                Ok(())
            }
            "item_reference" => {
                let id = string(path, &item, "id")?;
                let Some(found) = resolve(&id) else { return Err(not_stored(path, &id)) };
                if matches!(kind(path, &found)?, "item_reference") {
                    return Err(not_stored(path, &id));
                }
                self.item(path, found, resolve)
            }
            other => {
                let path = format!("{path}.type");
                let message =
                    format!("`{path}` is `{other}`: such an item cannot be passed on to a model here");
                let hint = "send `message`, `reasoning`, `function_call` and `function_call_output` items";
                Err(RequestError::unsupported(&path, &message, hint))
            }
        }
    }

    fn turn(&mut self) -> &mut Turn {
        self.turn.get_or_insert_default()
    }

    fn end_turn(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.said.push(Message::Assistant(turn.finish()));
        }
    }

    fn message(&mut self, path: &str, item: Value) -> Result<(), RequestError> {
        const ROLES: &str = "use `user`, `assistant`, `system` or `developer`";
        let role_path = format!("{path}.role");
        let role = string(path, &item, "role")?;
        let (content, rest) = parts::content(&format!("{path}.content"), &item["content"])?;
        let mut prose = Prose { content, rest };
        match role.as_str() {
            "assistant" => {
                self.turn().message(&prose.content, item);
                return Ok(());
            }
            "user" | "system" => {}
            // kept, so that the upstream gets the role the client chose
            "developer" => {
                prose.rest.insert("role".to_owned(), role.as_str().into());
            }
            other => {
                return Err(RequestError::value(&role_path, format!("`{role_path}` is `{other}`"), ROLES));
            }
        }
        self.end_turn();
        self.said.push(if role == "user" { Message::User(prose) } else { Message::System(prose) });
        Ok(())
    }

    /// A result goes directly after the message that makes the call, as every model API demands.
    fn output(&mut self, path: &str, item: &Value) -> Result<(), RequestError> {
        let call_id = string(path, item, "call_id")?;
        let (content, rest) = parts::content(&format!("{path}.output"), &item["output"])?;
        self.end_turn();
        let called = self.said.iter().enumerate().rev().find_map(|(at, message)| match message {
            Message::Assistant(said) => {
                said.calls.iter().find(|call| call.id == call_id).map(|call| (at, call.name.clone()))
            }
            _ => None,
        });
        let mut result = ToolResult { call_id, name: None, content, is_error: false, rest };
        match called {
            Some((at, name)) => {
                result.name = Some(name);
                let results = self.said[at + 1..].iter();
                let place =
                    at + 1 + results.take_while(|message| matches!(message, Message::Tool(_))).count();
                self.said.insert(place, Message::Tool(result));
            }
            None if self.before == Before::Stored => self.answers.push(Message::Tool(result)),
            None => {
                let message = format!(
                    "`{path}` is the output of call `{}`, and no `function_call` before it has this `call_id`",
                    result.call_id
                );
                let hint = "send the call as well, or `previous_response_id`";
                return Err(RequestError::value(&format!("{path}.call_id"), message, hint));
            }
        }
        Ok(())
    }
}

/// The short forms leave the type out.
fn kind<'a>(path: &str, item: &'a Value) -> Result<&'a str, RequestError> {
    match &item["type"] {
        Value::Null if item["role"].is_string() => Ok("message"),
        Value::Null if item["id"].is_string() => Ok("item_reference"),
        _ => parts::kind(path, item, "message"),
    }
}

fn not_stored(path: &str, id: &str) -> RequestError {
    let message = format!("`{path}` refers to the item `{id}`, which is not stored here");
    RequestError::value(&format!("{path}.id"), message, "send the item itself")
}

impl Turn {
    fn message(&mut self, content: &Content, mut item: Value) {
        let mut said = self.message.content.text();
        let text = content.text();
        if !said.is_empty() && !text.is_empty() {
            said.push_str(PARAGRAPH);
        }
        self.message.content = (said + &text).into();
        let own = item["id"].as_str().is_some_and(is_own);
        if let Some(fields) = item.as_object_mut().filter(|_| !text.is_empty()) {
            // the short form leaves it out
            fields.insert("type".to_owned(), "message".into());
            if own {
                // not the model's own word, and not every model takes it
                fields.shift_remove("phase");
            }
            self.says_more |= fields.get("phase").is_some_and(Value::is_string);
            self.items.push(item);
        }
    }

    fn reasoning(&mut self, item: Value) {
        let texts = |key: &str| {
            let parts = item[key].as_array().into_iter().flatten();
            parts.filter_map(|part| part["text"].as_str()).filter(|text| !text.is_empty()).collect::<Vec<_>>()
        };
        let known = self.message.reasoning.take();
        let (open, summary) = (texts("content"), texts("summary"));
        let told = if open.is_empty() { summary } else { open };
        let told: Vec<&str> = known.as_deref().into_iter().chain(told).collect();
        self.message.reasoning = (!told.is_empty()).then(|| told.join(PARAGRAPH));
        // an upstream refuses what it did not give itself
        if !item["id"].as_str().is_some_and(is_own) {
            self.says_more |= item["encrypted_content"].is_string()
                || item["content"].as_array().is_some_and(|content| !content.is_empty());
            self.items.push(item);
        }
    }

    fn call(&mut self, path: &str, item: &Value) -> Result<(), RequestError> {
        const TOLD: [&str; 6] = ["type", "id", "call_id", "name", "arguments", "status"];
        let id = string(path, item, "call_id")?;
        let name = string(path, item, "name")?;
        let arguments = match &item["arguments"] {
            Value::Null => Arguments::parse(""),
            Value::String(raw) => Arguments::parse(raw.as_str()),
            Value::Object(object) => Arguments::from_object(object.clone()),
            other => {
                let what = "a string that holds a JSON object";
                return Err(RequestError::expected(&format!("{path}.arguments"), what, other));
            }
        };
        let further = item.as_object().into_iter().flatten();
        let further: Map<String, Value> = further
            .filter(|(key, value)| !value.is_null() && !TOLD.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let mut rest = Map::new();
        if !further.is_empty() {
            rest.insert(RESPONSES_ONLY.to_owned(), further.into());
        }
        self.message.calls.push(ToolCall { id, name, arguments, rest });
        self.items.push(json!({"type": "function_call"}));
        Ok(())
    }

    fn finish(mut self) -> AssistantMessage {
        if self.says_more {
            self.message.rest.insert(RESPONSES_ONLY.to_owned(), json!({ITEMS: self.items}));
        }
        self.message
    }
}
