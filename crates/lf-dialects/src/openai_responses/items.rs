//! Reads the items of `input`, and makes one message of each turn of the assistant.

use lf_core::{Arguments, AssistantMessage, Content, Message, Prose, ToolCall, ToolResult};
use serde_json::{Map, Value, json};

use super::compaction;
use super::ids::is_own;
use super::parts::{self, string};
use super::tools::{self, INPUT, SEARCH, full_name, is_clients_search};
use super::{ITEMS, PARAGRAPH, RESPONSES_ONLY, WITH_TOOLS};
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

/// What a client did or allowed for a tool that only this API has, and items that steer its servers: kept like those, but
/// other models miss something without them.
pub(super) const CLIENT_SIDE: [&str; 15] = [
    "apply_patch_call",
    "apply_patch_call_output",
    "computer_call",
    "computer_call_output",
    "configuration_update",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "program",
    "program_output",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "tool_search_output",
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
    let mut reader = Reader { before, answers: Vec::new(), said: Vec::new(), turn: None, tools: Vec::new() };
    for (at, item) in list.into_iter().enumerate() {
        reader.item(&format!("input[{at}]"), item, resolve)?;
    }
    reader.end_turn();
    let mut messages = reader.answers;
    messages.append(&mut reader.said);
    // with what was said, which is kept: system prompts are of their request alone
    let said = messages.iter().rposition(|message| !matches!(message, Message::System(_)));
    let with_tools = said.unwrap_or(messages.len().saturating_sub(1));
    if let Some(last) = messages.get_mut(with_tools).filter(|_| !reader.tools.is_empty()) {
        rest_of(last).insert(WITH_TOOLS.to_owned(), reader.tools.into());
    }
    Ok(messages)
}

struct Reader {
    before: Before,
    /// Results of calls in the stored conversation: nothing may stand between the two.
    answers: Vec<Message>,
    said: Vec<Message>,
    turn: Option<Turn>,
    /// Items that bring tools.
    tools: Vec<Value>,
}

pub(super) fn rest_of(message: &mut Message) -> &mut Map<String, Value> {
    match message {
        Message::System(prose) | Message::User(prose) => &mut prose.rest,
        Message::Assistant(said) => &mut said.rest,
        Message::Tool(result) => &mut result.rest,
    }
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
        mut item: Value,
        resolve: &dyn Fn(&str) -> Option<Value>,
    ) -> Result<(), RequestError> {
        match kind(path, &item)?.to_owned().as_str() {
            "message" => self.message(path, item),
            "function_call" => {
                let arguments = arguments(path, &item)?;
                self.turn().call(path, &item, arguments)
            }
            "custom_tool_call" => {
                let input = custom_input(path, &item)?;
                self.turn().call(path, &item, input)
            }
            "function_call_output" | "custom_tool_call_output" => self.output(path, &item),
            "tool_search_call" if is_clients_search(&item) => {
                let arguments = arguments(path, &item)?;
                item["name"] = SEARCH.into();
                self.turn().call(path, &item, arguments)
            }
            "tool_search_output" if is_clients_search(&item) => {
                item["output"] = tools::found(&item["tools"]).into();
                self.output(path, &item)?;
                self.tools.push(item);
                Ok(())
            }
            "agent_message" => self.agent_message(path, &item),
            // read with the other tools
            "additional_tools" => {
                self.tools.push(item);
                Ok(())
            }
            "reasoning" => {
                self.turn().reasoning(item);
                Ok(())
            }
            "compaction" => {
                let summary = compaction::read(path, &item)?;
                self.end_turn();
                self.said.push(summary);
                Ok(())
            }
            kind if HOSTED.contains(&kind) || CLIENT_SIDE.contains(&kind) => {
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

    /// What one of Codex's agents wrote to another. The sealed part is what its model gave as an argument, which is
    /// plain text where that model was asked through this program.
    fn agent_message(&mut self, path: &str, item: &Value) -> Result<(), RequestError> {
        let mut content = item["content"].clone();
        for part in content.as_array_mut().into_iter().flatten() {
            if part["type"] == "encrypted_content" {
                *part = json!({"type": "input_text", "text": part["encrypted_content"]});
            }
        }
        let (content, rest) = parts::content(&format!("{path}.content"), &content)?;
        self.end_turn();
        self.said.push(Message::User(Prose { content, rest }));
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
        let mut result = ToolResult { rest, ..ToolResult::new(call_id, content) };
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

fn arguments(path: &str, item: &Value) -> Result<Arguments, RequestError> {
    Ok(match &item["arguments"] {
        Value::Null => Arguments::parse(""),
        Value::String(raw) => Arguments::parse(raw.as_str()),
        Value::Object(object) => Arguments::from_object(object.clone()),
        other => {
            let what = "a string that holds a JSON object";
            return Err(RequestError::expected(&format!("{path}.arguments"), what, other));
        }
    })
}

/// The text of a call as the argument that the model gave it in.
fn custom_input(path: &str, item: &Value) -> Result<Arguments, RequestError> {
    let Value::String(text) = &item[INPUT] else {
        return Err(RequestError::expected(&format!("{path}.{INPUT}"), "a string", &item[INPUT]));
    };
    let mut arguments = Map::new();
    arguments.insert(INPUT.to_owned(), text.as_str().into());
    Ok(Arguments::from_object(arguments))
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

    fn call(&mut self, path: &str, item: &Value, arguments: Arguments) -> Result<(), RequestError> {
        const TOLD: [&str; 9] =
            ["type", "id", "call_id", "name", "namespace", "arguments", INPUT, "execution", "status"];
        let id = string(path, item, "call_id")?;
        let name = full_name(item["namespace"].as_str(), &string(path, item, "name")?);
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
