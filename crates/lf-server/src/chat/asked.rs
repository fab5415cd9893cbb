//! What a model is asked with: the project's prompts, tools and parameters with those of the request.

use lf_core::message::{Prose, Role};
use lf_core::project::{InlineTool, Provider};
use lf_core::text_calls::{self, TextFormat};
use lf_core::tool_set::Target;
use lf_core::{Content, Message, Model, Part, Project, ToolChoice, ToolResult, ToolSet};
use serde_json::{Map, Value};

use crate::app::Refusal;
use crate::template::{TemplateError, fill};

/// The project's prompts, then the conversation.
pub(super) fn prompted(
    project: &Project,
    model: &Model,
    given: Vec<Message>,
    variables: &Map<String, Value>,
) -> Result<Vec<Message>, Refusal> {
    let mut prompts = Vec::new();
    let mut system = String::new();
    for prompt in model.prompts.iter().filter_map(|name| project.prompts.get(name)) {
        for message in &prompt.messages {
            let text = fill(&message.content, variables).map_err(|error| bad_variable(&error))?;
            if message.role == Role::System {
                if !system.is_empty() {
                    system.push_str("\n\n");
                }
                system.push_str(&text);
            } else {
                prompts.push(prompt_message(message.role, text, message.tool_call_id.clone()));
            }
        }
    }
    Ok(in_order(system, prompts, given))
}

/// System messages first, as most templates want them; the project's system prompt goes into the client's first one,
/// because many take only one.
fn in_order(system: String, prompts: Vec<Message>, mut given: Vec<Message>) -> Vec<Message> {
    let leading = given.iter().take_while(|message| matches!(message, Message::System(_))).count();
    let rest = given.split_off(leading);
    let mut messages = given;
    match messages.first_mut() {
        _ if system.is_empty() => {}
        Some(Message::System(own)) => match &mut own.content {
            Content::Text(text) => *text = format!("{system}\n\n{text}"),
            Content::Parts(parts) => parts.insert(0, Part::Text(format!("{system}\n\n"))),
        },
        _ => messages.push(Message::System(Prose { content: Content::Text(system), ..Prose::default() })),
    }
    messages.extend(prompts);
    messages.extend(rest);
    messages
}

fn prompt_message(role: Role, text: String, call_id: Option<String>) -> Message {
    let content = Content::Text(text);
    match role {
        Role::System => Message::System(Prose { content, rest: Map::new() }),
        Role::User => Message::User(Prose { content, rest: Map::new() }),
        Role::Assistant => Message::Assistant(lf_core::AssistantMessage { content, ..Default::default() }),
        Role::Tool => Message::Tool(ToolResult::new(call_id.unwrap_or_default(), content)),
    }
}

pub(super) fn inline_tools(
    model: &Model,
    variables: &Map<String, Value>,
) -> Result<Vec<InlineTool>, Refusal> {
    let filled = model.tools.iter().map(|tool| {
        let description = fill(&tool.description, variables).map_err(|error| bad_variable(&error))?;
        Ok(InlineTool { description, ..tool.clone() })
    });
    filled.collect()
}

fn bad_variable(error: &TemplateError) -> Refusal {
    Refusal::BadRequest { message: error.to_string(), param: Some("variables".to_owned()) }
}

pub(super) fn tool_choice(choice: Option<ToolChoice>, set: &ToolSet) -> Result<Option<ToolChoice>, Refusal> {
    let bad = |message: String| Refusal::BadRequest { message, param: Some("tool_choice".to_owned()) };
    match choice {
        Some(ToolChoice::Tool(name)) => match set.resolve(&name, None) {
            Ok((exposed, _)) => Ok(Some(ToolChoice::Tool(exposed.to_owned()))),
            Err(unknown) => {
                let known: Vec<&str> = set
                    .iter()
                    .map(|(exposed, target)| match target {
                        Target::Client(name) => name.as_str(),
                        Target::Source(_) => exposed,
                    })
                    .take(20)
                    .collect();
                Err(bad(format!(
                    "`tool_choice` names the tool `{}`, which this request does not have; it has: {}",
                    unknown.name,
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                )))
            }
        },
        Some(ToolChoice::Required) if set.is_empty() => {
            Err(bad("`tool_choice` is `required`, but there are no tools".to_owned()))
        }
        choice => Ok(choice),
    }
}

/// The dialects of the calls that the model may write as text: what the file says, or what its name does.
pub(super) fn text_formats(model: &Model) -> &'static [TextFormat] {
    let named = model.tool_call_format.as_deref().and_then(text_calls::named);
    // the name of a cassette is a file's
    let by_name = || text_calls::for_model(&model.model).filter(|_| model.provider != Provider::Replay);
    named.or_else(by_name).unwrap_or(text_calls::DEFAULT)
}

/// The model's defaults, then the request's fields, then what the file insists on.
pub(super) fn parameters(model: &Model, request: Map<String, Value>) -> Map<String, Value> {
    let mut parameters = model.parameters.clone();
    parameters.extend(request);
    parameters.extend(model.extra_body.iter().map(|(key, value)| (key.clone(), value.clone())));
    parameters
}

#[cfg(test)]
mod tests;
