//! Reads our clients' requests.

use lf_core::model::ChatRequest;
use lf_core::{Content, Message, Prose};
use serde_json::{Map, Value};

use super::approvals;
use super::items::{self, Before};
use super::tool_choice::{self, Choice};
use super::view::{Later, ResponsesView};
use super::{EXAMPLE, fields, tools};
use crate::openai_chat::{RequestError, body_object};

/// Reads the body of `POST …/responses`. The values are those of every dialect: parameters in the spelling of OpenAI
/// Chat Completions, one message for each turn of the assistant, results directly after its calls. Fields that only
/// this API knows are kept for a Responses upstream, and so are tools that OpenAI's own servers would run; a request that
/// is about these alone is refused when another upstream is to be asked. What those servers would have to look up is
/// refused here. The size of the body is the caller's concern.
///
/// # Errors
/// What is wrong, and where. A reference to a stored item always is: see [`decode_request_with`].
pub fn decode_request(body: &[u8]) -> Result<(ChatRequest, ResponsesView), RequestError> {
    decode_request_with(body, &|_| None)
}

/// The same, for callers that can look up the output items of earlier responses by their ids, as the client was told
/// them. [`super::response_of_item`] tells which response an id is from.
///
/// # Errors
/// What is wrong, and where.
pub fn decode_request_with(
    body: &[u8],
    item: &dyn Fn(&str) -> Option<Value>,
) -> Result<(ChatRequest, ResponsesView), RequestError> {
    let mut fields = body_object(body, EXAMPLE)?;
    // clients spell out what they leave open
    fields.retain(|_, value| !value.is_null());
    let mut tools = tools::read(&fields)?;
    let mut view = ResponsesView::read(&fields, &tools)?;
    let before = if view.previous_response_id.is_some() || view.conversation.is_some() {
        Before::Stored
    } else {
        Before::Nothing
    };
    for key in ["stream", "background", "previous_response_id", "conversation", "tools"] {
        fields.shift_remove(key);
    }
    let model = match fields.shift_remove("model") {
        None => None,
        Some(Value::String(model)) => Some(model),
        Some(other) => return Err(RequestError::expected("model", "a string", &other)),
    };
    let mut messages = Vec::new();
    match fields.shift_remove("instructions") {
        None => {}
        Some(Value::String(text)) => {
            messages.push(Message::System(Prose { content: text.into(), ..Prose::default() }));
        }
        Some(other) => return Err(RequestError::expected("instructions", "a string", &other)),
    }
    let mut given = fields.shift_remove("input");
    let approvals = approvals::take(&mut given)?;
    // a decision alone says enough
    let before = if approvals.is_empty() { before } else { Before::Stored };
    messages.extend(input(given, before, item)?);
    let choice = fields.shift_remove("tool_choice");
    let choice = match before {
        Before::Nothing => tool_choice::read(choice.as_ref(), &mut tools)?,
        // it may be about tools that are not known yet
        Before::Stored => {
            view.choice = Some(Later(choice));
            Choice::default()
        }
    };
    let variables = match fields.shift_remove("variables") {
        None => Map::new(),
        Some(Value::Object(variables)) => variables,
        Some(other) => return Err(RequestError::expected("variables", "an object", &other)),
    };
    let mut parameters = fields::parameters(fields)?;
    choice.keep(tools.hosted, &mut parameters);
    let request = ChatRequest {
        model,
        messages,
        tools: tools.specs,
        tool_choice: choice.core,
        parameters,
        variables,
        approvals,
        stream: view.stream,
    };
    Ok((request, view))
}

fn input(
    value: Option<Value>,
    before: Before,
    item: &dyn Fn(&str) -> Option<Value>,
) -> Result<Vec<Message>, RequestError> {
    match value {
        Some(Value::String(text)) => {
            Ok(vec![Message::User(Prose { content: Content::Text(text), ..Prose::default() })])
        }
        None if before == Before::Stored => Ok(Vec::new()),
        None => Err(RequestError::missing("input", "a text, or the items of the conversation so far")),
        Some(Value::Array(list)) if list.is_empty() && before == Before::Nothing => {
            Err(RequestError::value("input", "`input` is empty".to_owned(), "send at least one item"))
        }
        Some(Value::Array(list)) => items::messages(list, before, item),
        Some(other) => Err(RequestError::expected("input", "a string or an array of items", &other)),
    }
}
