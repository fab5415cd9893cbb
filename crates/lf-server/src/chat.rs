//! From a decoded request to a running turn.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, PoisonError};

use futures_core::Stream;
use lf_core::message::{Prose, Role};
use lf_core::model::ChatRequest;
use lf_core::project::InlineTool;
use lf_core::text_calls::{self, TextFormat};
use lf_core::tool_set::Target;
use lf_core::turn::{Setup, answer_in_order, check_answers, put_back, start};
use lf_core::{
    Catalogue, ChatEvent, Content, Message, Model, ModelRequest, Part, Project, ToolChoice, ToolResult,
    ToolSet, ToolSource,
};
use serde_json::{Map, Value};

use crate::app::{App, Refusal};
use crate::driver::{Drive, drive};
use crate::template::{TemplateError, fill};

impl App {
    /// Starts a turn. What can be said to be wrong before the model is asked is a [`Refusal`]; all else is an event.
    /// Dropping the stream cancels the turn.
    ///
    /// # Errors
    /// [`Refusal`], one variant per status.
    pub async fn chat(
        &self,
        scope: Option<&Arc<Project>>,
        request: ChatRequest,
    ) -> Result<impl Stream<Item = ChatEvent> + Send + 'static + use<>, Refusal> {
        let (project, model) = self.find_model(scope, request.model.as_deref())?;
        let provider = lf_models::provider(&model, &self.client)?;
        let tools = self.tools_of(&project, &model);
        let catalogue = tools.list(&model.servers).await;
        if let Some(down) = catalogue.down.iter().find(|down| down.required) {
            return Err(Refusal::RequiredServerDown {
                server: down.server.clone(),
                reason: down.reason.clone(),
            });
        }
        let inline = inline_tools(&model, &request.variables)?;
        let set = ToolSet::new(&catalogue, &inline, &request.tools);
        self.log_tools(&project, &model, &catalogue, &set);
        let tool_choice = tool_choice(request.tool_choice, &set)?;
        let mut messages = self.messages(&project, &model, request.messages, &request.variables)?;
        set.expose_history(&mut messages);
        let setup = Setup {
            id: uuid::Uuid::new_v4().simple().to_string(),
            model: model.name.clone(),
            request: ModelRequest {
                messages,
                tools: [].into(),
                tool_choice,
                parameters: parameters(&model, request.parameters),
                stream: request.stream,
            },
            tools: set,
            strategy: model.strategy,
            text_formats: text_formats(&model),
            limits: model.limits.clone(),
        };
        let mut events = Vec::new();
        let ask = start(setup, &mut events);
        for down in &catalogue.down {
            events.push(ChatEvent::Notice(format!("MCP server `{}` is down: {}", down.server, down.reason)));
        }
        let resumes = self.resumes.clone();
        let remember = Box::new(move |resume| resumes.remember(resume));
        let turn_timeout = model.limits.turn_timeout;
        let name = model.name.clone();
        Ok(drive(events, ask, Drive { model: name, provider, tools, turn_timeout, remember }))
    }

    /// The tools this model may use: its own servers', and no others.
    pub(crate) fn tools_of(&self, project: &Project, model: &Model) -> Arc<dyn ToolSource> {
        let servers =
            model.servers.iter().filter_map(|name| Some((name.clone(), project.servers.get(name)?.clone())));
        Arc::new(self.pool.tools(servers))
    }

    /// The project's prompts, then the client's messages with what the server remembers of them put back.
    fn messages(
        &self,
        project: &Project,
        model: &Model,
        mut given: Vec<Message>,
        variables: &Map<String, Value>,
    ) -> Result<Vec<Message>, Refusal> {
        check_answers(&given)
            .map_err(|message| Refusal::BadRequest { message, param: Some("messages".to_owned()) })?;
        answer_in_order(&mut given);
        let ids = given.iter().filter_map(|message| match message {
            Message::Assistant(said) => Some(said.calls.iter().map(|call| call.id.clone())),
            _ => None,
        });
        let known: HashMap<_, _> = self.resumes.find(ids.flatten());
        if !known.is_empty() {
            put_back(&mut given, |id| known.get(id).cloned());
        }
        let mut messages = Vec::with_capacity(given.len() + 2);
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
                    messages.push(prompt_message(message.role, text, message.tool_call_id.clone()));
                }
            }
        }
        add_system(&mut given, &mut messages, system);
        messages.extend(given);
        Ok(messages)
    }

    fn log_tools(&self, project: &Project, model: &Model, catalogue: &Catalogue, set: &ToolSet) {
        let mut hasher = DefaultHasher::new();
        let down: Vec<&str> = catalogue.down.iter().map(|down| down.server.as_str()).collect();
        let names: Vec<&str> = set.iter().map(|(name, _)| name).collect();
        (&down, &names).hash(&mut hasher);
        let key = format!("{}/{}/{}", project.namespace, project.name, model.name);
        let seen =
            self.seen_tools.lock().unwrap_or_else(PoisonError::into_inner).insert(key, hasher.finish());
        if seen == Some(hasher.finish()) {
            return;
        }
        let up: Vec<&str> =
            model.servers.iter().map(String::as_str).filter(|name| !down.contains(name)).collect();
        tracing::info!(target: "tools.mcp_tool", servers = listed(&up), total_tools = catalogue.tools.len(), "Created all MCP tools");
        for server in &catalogue.down {
            tracing::warn!(server = server.server, error = server.reason, "MCP server is down");
        }
        tracing::info!(target: "agents.chat_orchestrator", tool_count = set.len(), tool_names = listed(&names), "MCP tools loaded");
    }
}

/// `['a', 'b']`, as the troubleshooting guide of these projects shows it.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 50;
    let mut text = String::from("[");
    for (at, name) in names.iter().take(SHOWN).enumerate() {
        text.push_str(if at == 0 { "'" } else { ", '" });
        text.push_str(name);
        text.push('\'');
    }
    if names.len() > SHOWN {
        text.push_str(", …");
    }
    text.push(']');
    text
}

/// The project's system prompt goes into the client's first system message, because many templates take only one.
fn add_system(given: &mut Vec<Message>, messages: &mut Vec<Message>, system: String) {
    if system.is_empty() {
        return;
    }
    let mut prose = Prose::default();
    match given.first_mut() {
        Some(Message::System(own)) => {
            prose = std::mem::take(own);
            given.remove(0);
            match &mut prose.content {
                Content::Text(text) => *text = format!("{system}\n\n{text}"),
                Content::Parts(parts) => parts.insert(0, Part::Text(format!("{system}\n\n"))),
            }
        }
        _ => prose.content = Content::Text(system),
    }
    messages.insert(0, Message::System(prose));
}

fn prompt_message(role: Role, text: String, call_id: Option<String>) -> Message {
    let content = Content::Text(text);
    match role {
        Role::System => Message::System(Prose { content, rest: Map::new() }),
        Role::User => Message::User(Prose { content, rest: Map::new() }),
        Role::Assistant => Message::Assistant(lf_core::AssistantMessage { content, ..Default::default() }),
        Role::Tool => Message::Tool(ToolResult {
            call_id: call_id.unwrap_or_default(),
            name: None,
            content,
            is_error: false,
            rest: Map::new(),
        }),
    }
}

fn inline_tools(model: &Model, variables: &Map<String, Value>) -> Result<Vec<InlineTool>, Refusal> {
    let filled = model.tools.iter().map(|tool| {
        let description = fill(&tool.description, variables).map_err(|error| bad_variable(&error))?;
        Ok(InlineTool { description, ..tool.clone() })
    });
    filled.collect()
}

fn bad_variable(error: &TemplateError) -> Refusal {
    Refusal::BadRequest { message: error.to_string(), param: Some("variables".to_owned()) }
}

fn tool_choice(choice: Option<ToolChoice>, set: &ToolSet) -> Result<Option<ToolChoice>, Refusal> {
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
fn text_formats(model: &Model) -> &'static [TextFormat] {
    let named = model.tool_call_format.as_deref().and_then(text_calls::named);
    named.or_else(|| text_calls::for_model(&model.model)).unwrap_or(text_calls::DEFAULT)
}

/// The model's defaults, then the request's fields, then what the file insists on.
fn parameters(model: &Model, request: Map<String, Value>) -> Map<String, Value> {
    let mut parameters = model.parameters.clone();
    parameters.extend(request);
    parameters.extend(model.extra_body.iter().map(|(key, value)| (key.clone(), value.clone())));
    parameters
}

#[cfg(test)]
mod tests;
