//! `/mcp`: what is there, and a whole turn as one tool.

mod projects;
mod shelf;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use lf_core::policy::{Labels, OWN};
use lf_core::tool::{Attendant, BoxFuture, Hints, ToolContent, ToolProgress};
use lf_core::{ChatEvent, Project, ToolOutput, ToolRef};
use lf_dialects::openai_chat::{self, LfEvents};
use lf_mcp::endpoint::{Caller, Channel, Offer, Refused, Request, tool_result};
use serde_json::{Map, Value, json};

use crate::app::{App, StoredProject};
use crate::approvals::{About, No};
use crate::rules::{Asked, Facts, Rules, permit};
use crate::view;

const NO_PROJECT: &str = "the daemon was started in no project: name one as `project`";

/// The daemon's own tools.
pub(crate) struct Own {
    app: Arc<App>,
    /// Whether this daemon asks itself: a model that calls `chat_completions`.
    asks_itself: bool,
    /// Whether the daemon listens on this machine alone.
    loopback: bool,
}

impl Own {
    pub(crate) fn new(app: Arc<App>, asks_itself: bool, loopback: bool) -> Self {
        Self { app, asks_itself, loopback }
    }

    fn leave(&self) -> projects::Leave {
        projects::leave(self.asks_itself, self.loopback)
    }

    /// The rules of the project that the daemon was started in speak of these tools, too.
    async fn may_run(&self, name: &str, arguments: &Map<String, Value>) -> Result<(), String> {
        let Some(project) = self.app.project().filter(|project| !project.policy.is_empty()) else {
            return Ok(());
        };
        let definitions = definitions(self.leave());
        // a tool that there is not is told so
        let Some(definition) = definitions.iter().find(|tool| tool["name"] == name) else { return Ok(()) };
        let tool = ToolRef { server: OWN.into(), name: name.into() };
        let facts = Facts::alone(tool, Hints::of(definition), Labels::default());
        let rules = Rules::of_own_tools(self.app.active(&project));
        let about = About::alone(&project, None);
        match self.app.approvals.may_run(&rules, (facts, arguments), about).await {
            // a person may have taken minutes: the rules of now count
            Ok(facts) => permit(&rules, &Asked { model: None, facts: &facts, arguments }),
            Err(No::Tool) => Ok(()),
            Err(No::Said(why)) => Err(why),
        }
    }

    async fn run(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        attendant: &dyn Attendant,
    ) -> Result<Result<ToolOutput, String>, Refused> {
        let known: &[&str] = match name {
            "models_list" => &[],
            "project_get" | "mcp_servers" => &["namespace", "project"],
            "chat_completions" => &["project", "model", "message", "messages"],
            _ => match projects::arguments(name) {
                Some(arguments) => arguments,
                None => return Err(Refused::UnknownTool(name.to_owned())),
            },
        };
        if let Some(unknown) = arguments.keys().find(|key| !known.contains(&key.as_str())) {
            return Ok(Err(format!(
                "`{unknown}` is not an argument of `{name}`; it takes: {}",
                known.join(", ")
            )));
        }
        Ok(match name {
            "models_list" => Ok(shown(&self.models().await)),
            "project_get" => self.show(arguments).await,
            "mcp_servers" => self.project(arguments).await.map(|project| {
                let servers: Vec<Value> =
                    self.app.servers_of(&project).reports().iter().map(view::server).collect();
                shown(&json!({"servers": servers}))
            }),
            "chat_completions" => self.chat(arguments, attendant).await,
            _ => projects::run(&self.app, name, arguments, self.leave()).await,
        })
    }

    async fn models(&self) -> Value {
        let models = self.app.model_names(None).await;
        let default = self.app.project().and_then(|project| project.default_model.clone());
        json!({"models": models, "default": default})
    }

    /// A project as it is loaded, and as its file is.
    async fn show(&self, arguments: &Map<String, Value>) -> Result<ToolOutput, String> {
        let (namespace, name) = match (projects::named(arguments)?, self.app.project()) {
            (Some(named), _) => named,
            (None, Some(main)) => (main.namespace.clone(), main.name.clone()),
            (None, None) => return Err(NO_PROJECT.to_owned()),
        };
        let stored = self.app.show_project(namespace.clone(), name.clone()).await;
        let mut view = stored_view(&stored.map_err(|refusal| projects::told(&refusal))?);
        // one whose file is wrong is shown as the file has it
        if let Ok(project) = self.app.find_project(&namespace, &name).await
            && let (Some(view), Value::Object(loaded)) = (view.as_object_mut(), project_view(&project))
        {
            view.extend(loaded);
        }
        Ok(shown(&view))
    }

    /// The project that is named as `namespace/name`, or the one the daemon was started in.
    async fn project(&self, arguments: &Map<String, Value>) -> Result<Arc<Project>, String> {
        match projects::named(arguments)? {
            None => self.app.project().ok_or_else(|| NO_PROJECT.to_owned()),
            Some((namespace, name)) => {
                self.app.find_project(&namespace, &name).await.map_err(|refusal| refusal.to_string())
            }
        }
    }

    async fn chat(
        &self,
        arguments: &Map<String, Value>,
        attendant: &dyn Attendant,
    ) -> Result<ToolOutput, String> {
        // each level of a model that asks itself holds one, so that there is a last level
        let _nested = match self.asks_itself.then(|| self.app.nested.try_acquire()).transpose() {
            Ok(nested) => nested,
            Err(_) => return Err("models of this daemon already ask each other too deeply".to_owned()),
        };
        let scope = match arguments.contains_key("project") {
            true => Some(self.project(arguments).await?),
            false => None,
        };
        let messages = match (arguments.get("message"), arguments.get("messages")) {
            (Some(Value::String(text)), None) => json!([{"role": "user", "content": text}]),
            (None, Some(messages)) => messages.clone(),
            _ => return Err("give either `message`, a text, or `messages`".to_owned()),
        };
        let mut body = json!({"messages": messages});
        if let Some(model) = arguments.get("model").filter(|model| !model.is_null()) {
            body["model"] = model.clone();
        }
        let (request, _) =
            openai_chat::decode_request(body.to_string().as_bytes()).map_err(|error| error.message)?;
        let events = self.app.chat(scope.as_ref(), request).await.map_err(|refusal| refusal.to_string())?;
        let mut events = std::pin::pin!(events);
        let mut completion = None;
        let mut steps = Steps { count: 0, attendant };
        while let Some(event) = events.next().await {
            if let ChatEvent::Started { turn, model } = &event {
                let id = format!("chatcmpl-{turn}");
                completion = Some(openai_chat::Completion::new(&id, now(), model, LfEvents::Hidden));
            }
            steps.tell(&event);
            if let Some(completion) = &mut completion {
                completion.push(&event);
            }
        }
        let completion = completion.ok_or("the turn did not start")?;
        let answer = completion.finish().map_err(|error| {
            error.body["error"]["message"].as_str().unwrap_or("the model gave no answer").to_owned()
        })?;
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned();
        let content = vec![ToolContent::Text(text)];
        Ok(ToolOutput { content, structured: Some(answer), is_error: false })
    }
}

impl Offer for Own {
    fn about<'a>(&'a self, _caller: &'a Caller) -> BoxFuture<'a, Result<Value, Refused>> {
        let mut capabilities = shelf::capabilities();
        capabilities["tools"] = json!({});
        let about = json!({
            "capabilities": capabilities,
            "serverInfo": {"name": "lf", "version": env!("CARGO_PKG_VERSION")},
            "instructions":
                "Models and projects of a LlamaFarm daemon. `chat_completions` asks a model, which runs its own tools.",
        });
        Box::pin(std::future::ready(Ok(about)))
    }

    fn answer<'a>(
        &'a self,
        request: Request,
        _caller: &'a Caller,
        channel: &'a Channel,
    ) -> BoxFuture<'a, Result<Map<String, Value>, Refused>> {
        Box::pin(async move {
            match request.method.as_str() {
                "tools/list" => Ok(Map::from_iter([("tools".to_owned(), definitions(self.leave()).into())])),
                "tools/call" => {
                    let arguments = match request.params.get("arguments") {
                        Some(Value::Object(arguments)) => arguments.clone(),
                        _ => Map::new(),
                    };
                    let name = request.param("name");
                    if let Err(why) = self.may_run(name, &arguments).await {
                        return Ok(tool_result(&failed(why)));
                    }
                    let ran = self.run(name, &arguments, channel).await?;
                    Ok(tool_result(&ran.unwrap_or_else(failed)))
                }
                _ => shelf::answer(&self.app, &request).await,
            }
        })
    }
}

fn failed(text: String) -> ToolOutput {
    ToolOutput { content: vec![ToolContent::Text(text)], is_error: true, ..ToolOutput::default() }
}

/// Tells what a turn does, for a client that waits for its end.
struct Steps<'a> {
    count: u32,
    attendant: &'a dyn Attendant,
}

impl Steps<'_> {
    fn tell(&mut self, event: &ChatEvent) {
        let message = match event {
            ChatEvent::CallStarted { call, .. } => format!("running {}", call.name),
            ChatEvent::CallProgress { progress, .. } => match &progress.message {
                Some(message) => message.clone(),
                None => format!("progress {}", progress.progress),
            },
            ChatEvent::CallFinished { result, .. } => {
                let how = if result.is_error { "failed" } else { "done" };
                format!("{} {how}", result.name.as_deref().unwrap_or("tool"))
            }
            ChatEvent::Notice(notice) => notice.clone(),
            ChatEvent::Limited(limit) => format!("the turn has reached {limit}"),
            _ => return,
        };
        self.attendant.note(message.clone());
        self.count += 1;
        let progress = f64::from(self.count);
        self.attendant.progress(ToolProgress { progress, total: None, message: Some(message) });
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// For clients with and without structured results.
fn shown(value: &Value) -> ToolOutput {
    let content = vec![ToolContent::Text(value.to_string())];
    ToolOutput { content, structured: Some(value.clone()), is_error: false }
}

fn stored_view(project: &StoredProject) -> Value {
    crate::routes::projects::shown(project)
}

fn project_view(project: &Project) -> Value {
    let models: Vec<Value> = project.models.iter().map(|(name, model)| view::model(name, model)).collect();
    json!({
        "namespace": project.namespace,
        "name": project.name,
        "default_model": project.default_model,
        "models": models,
        "mcp_servers": project.servers.keys().collect::<Vec<_>>(),
        "prompts": project.prompts.keys().collect::<Vec<_>>(),
    })
}

fn definitions(leave: projects::Leave) -> Vec<Value> {
    let project =
        json!({"type": "string", "description": "`namespace/name`; without it the daemon's main project."});
    let nothing = json!({});
    let of_project = json!({"project": project});
    let chat = json!({
        "project": {"type": "string", "description": "`namespace/name` of the project whose model is meant."},
        "model": {"type": "string", "description": "A name of `models_list`; without it the default model."},
        "message": {"type": "string", "description": "What the user says."},
        "messages": {
            "type": "array",
            "items": {"type": "object"},
            "description": "A whole conversation in OpenAI's form, instead of `message`.",
        },
    });
    let mut tools = vec![
        reading("models_list", "List models", "Lists the models that can be asked.", &nothing, &[]),
        reading(
            "project_get",
            "Show a project",
            "Shows a project's models, MCP servers and prompts, and its file with secrets masked.",
            &of_project,
            &[],
        ),
        reading(
            "mcp_servers",
            "Show MCP servers",
            "Tells how the MCP servers of a project are.",
            &of_project,
            &[],
        ),
        definition(
            "chat_completions",
            "Ask a model",
            "Asks a model, which may use its own tools, and gives its answer. Tools may change things.",
            &chat,
            &[],
            &json!({"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true}),
        ),
    ];
    tools.extend(projects::definitions(leave));
    tools
}

fn reading(name: &str, title: &str, description: &str, properties: &Value, required: &[&str]) -> Value {
    let annotations = json!({"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false});
    definition(name, title, description, properties, required, &annotations)
}

fn definition(
    name: &str,
    title: &str,
    description: &str,
    properties: &Value,
    required: &[&str],
    annotations: &Value,
) -> Value {
    let mut tool = json!({
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "additionalProperties": false},
        "annotations": annotations,
    });
    if !required.is_empty() {
        tool["inputSchema"]["required"] = json!(required);
    }
    tool
}
