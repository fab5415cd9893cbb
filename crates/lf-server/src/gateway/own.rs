//! `/mcp`: what is there, and a whole turn as one tool.

mod itself;
mod projects;
mod shelf;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use lf_core::policy::{Labels, OWN};
use lf_core::tool::{Attendant, BoxFuture, Hints, ToolContent, ToolProgress};
use lf_core::{ChatEvent, Principal, Project, Scope, ToolOutput, ToolRef};
use lf_dialects::openai_chat::{self, LfEvents};
use lf_mcp::endpoint::{Caller, Channel, ON_BEHALF, Offer, Refused, Request, tool_result};
use serde_json::{Map, Value, json};

use crate::admission::needs_scope;
use crate::app::{App, StoredProject};
use crate::approvals::{About, No};
use crate::authority::Granted;
use crate::chat::Conversation;
use crate::rules::{Active, Asked, Became, Check as _, Facts, Rules, Told, Underway, permit};
use crate::view;

const NO_PROJECT: &str = "the daemon was started in no project: name one as `project`";

/// The daemon's own tools.
pub(crate) struct Own {
    app: Arc<App>,
    /// Whether this daemon asks itself: a model that calls `chat_completions`.
    asks_itself: bool,
    who: Arc<Principal>,
}

/// The daemon's own tools, each with the scope that it needs. One that is not here does not exist.
const NEEDS: [(&str, Scope); 8] = [
    ("models_list", Scope::Read),
    ("project_get", Scope::Read),
    ("mcp_servers", Scope::Read),
    ("chat_completions", Scope::Chat),
    ("projects_list", Scope::Read),
    ("project_create", Scope::ConfigWrite),
    ("project_update", Scope::ConfigWrite),
    ("project_delete", Scope::ConfigWrite),
];

impl Own {
    pub(crate) fn new(app: Arc<App>, asks_itself: bool, who: Arc<Principal>) -> Self {
        Self { app, asks_itself, who }
    }

    fn definitions(&self) -> Vec<Value> {
        let mut tools = definitions();
        tools.retain(|tool| {
            tool["name"].as_str().is_some_and(|name| leave(&self.who, self.asks_itself, name).is_ok())
        });
        tools
    }

    /// Who asks in the end, and how far that goes: a model of this daemon asks for somebody, and says so with each call.
    fn asks(&self, request: &Request) -> Result<(Arc<Principal>, Option<Granted>), String> {
        if !self.asks_itself {
            return Ok((self.who.clone(), None));
        }
        let token = request.meta.get(ON_BEHALF).and_then(Value::as_str).unwrap_or_default();
        let granted = self.app.grants.find(token).ok_or(NOT_SAID)?;
        Ok((Arc::new(granted.through(&self.who)?), Some(granted)))
    }

    /// The rules of the project that the daemon was started in speak of these tools, too.
    async fn may_run(
        &self,
        who: &Principal,
        rules: &Rules,
        tool: &ToolRef,
        arguments: &Map<String, Value>,
    ) -> Result<(), String> {
        let Some(project) = self.app.project().filter(|project| !project.policy.is_empty()) else {
            return Ok(());
        };
        let definitions = definitions();
        let Some(definition) = definitions.iter().find(|listed| listed["name"] == *tool.name) else {
            return Ok(());
        };
        let facts = Facts::alone(tool.clone(), Hints::of(definition), Labels::default());
        let about = About::alone(who, &project, None);
        match self.app.approvals.may_run(rules, (facts, arguments), about).await {
            // a person may have taken minutes: the rules of now count
            Ok(facts) => permit(rules, &Asked { model: None, facts: &facts, arguments }).inspect_err(|why| {
                rules.record(&Told::new(None, tool, arguments), &Became::Denied(why));
            }),
            Err(No::Tool) => Ok(()),
            Err(No::Said(why)) => Err(why),
        }
    }

    /// What puts on record what becomes of calls of these tools.
    fn rules_for(&self, who: &Arc<Principal>) -> Rules {
        let active: Active = match self.app.project() {
            Some(project) => self.app.active(&project),
            None => Arc::new(|| None),
        };
        Rules::of_own_tools(active, self.app.authority(who))
    }

    async fn run(
        &self,
        request: &Request,
        arguments: &Map<String, Value>,
        attendant: &dyn Attendant,
    ) -> Result<Result<ToolOutput, String>, Refused> {
        let name = request.param("name");
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
        let allowed = self.asks(request).and_then(|(who, granted)| {
            leave(&who, self.asks_itself, name)?;
            Ok((who, granted))
        });
        let tool = ToolRef { server: OWN.into(), name: name.into() };
        let told = Told::new(None, &tool, arguments);
        let (who, granted) = match allowed {
            Ok(allowed) => allowed,
            Err(refusal) => {
                self.rules_for(&self.who).record(&told, &Became::Denied(&refusal));
                return Ok(Err(refusal));
            }
        };
        let rules = self.rules_for(&who);
        if let Err(why) = self.may_run(&who, &rules, &tool, arguments).await {
            return Ok(Err(why));
        }
        let underway = Underway::handed_over(&rules, told);
        let ran = match granted {
            Some(granted) => itself::run(&self.app, (&who, &granted), name, arguments, attendant).await,
            None => run(&self.app, &who, name, arguments, attendant).await,
        };
        let elapsed = underway.elapsed();
        underway.became(&match &ran {
            Ok(output) => Became::ran("ok", output, elapsed),
            Err(why) => Became::ran("error", why, elapsed),
        });
        Ok(ran)
    }
}

/// Runs one of the tools for whoever has asked for it himself.
async fn run(
    app: &Arc<App>,
    who: &Arc<Principal>,
    name: &str,
    arguments: &Map<String, Value>,
    attendant: &dyn Attendant,
) -> Result<ToolOutput, String> {
    match name {
        "models_list" => Ok(shown(&models(app, who).await)),
        "project_get" => show(app, who, arguments).await,
        "mcp_servers" => project(app, who, arguments).await.map(|project| servers(app, who, &project)),
        "chat_completions" => {
            let scope = match arguments.contains_key("project") {
                true => Some(project(app, who, arguments).await?),
                false => None,
            };
            chat(app, who, scope.as_ref(), arguments, attendant).await
        }
        _ => projects::run((app, who), name, arguments).await,
    }
}

/// Why a request that this daemon sends itself outside of a call is not answered.
const NOT_SAID: &str = "this daemon asks itself only on behalf of somebody, and did not say of whom";

async fn models(app: &App, who: &Principal) -> Value {
    let models = app.model_names(who, None).await;
    let default = app.main_for(who).and_then(|project| project.default_model.clone());
    let default = default.filter(|name| who.reaches_model(name));
    json!({"models": models, "default": default})
}

fn servers(app: &App, who: &Principal, project: &Project) -> ToolOutput {
    let reports = app.reports_for(who, project);
    shown(&json!({"servers": reports.iter().map(view::server).collect::<Vec<_>>()}))
}

/// A project as it is loaded, and as its file is.
async fn show(app: &App, who: &Principal, arguments: &Map<String, Value>) -> Result<ToolOutput, String> {
    let (namespace, name) = match (projects::named(arguments)?, app.main_for(who)) {
        (Some(named), _) => named,
        (None, Some(main)) => (main.namespace.clone(), main.name.clone()),
        (None, None) => return Err(NO_PROJECT.to_owned()),
    };
    let stored = app.show_project(who, namespace.clone(), name.clone()).await;
    let mut view = stored_view(&stored.map_err(|refusal| projects::told(&refusal))?);
    // one whose file is wrong is shown as the file has it
    if let Ok(project) = app.find_project(who, &namespace, &name).await
        && let (Some(view), Value::Object(loaded)) =
            (view.as_object_mut(), project_view(&project, |model| who.reaches_model(model)))
    {
        view.extend(loaded);
    }
    Ok(shown(&view))
}

/// The project that is named as `namespace/name`, or the one the daemon was started in.
async fn project(app: &App, who: &Principal, arguments: &Map<String, Value>) -> Result<Arc<Project>, String> {
    match projects::named(arguments)? {
        None => app.main_for(who).ok_or_else(|| NO_PROJECT.to_owned()),
        Some((namespace, name)) => {
            app.find_project(who, &namespace, &name).await.map_err(|refusal| refusal.to_string())
        }
    }
}

async fn chat(
    app: &App,
    who: &Arc<Principal>,
    scope: Option<&Arc<Project>>,
    arguments: &Map<String, Value>,
    attendant: &dyn Attendant,
) -> Result<ToolOutput, String> {
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
    let events = app.chat_on(who, scope, request, Conversation::default()).await;
    let mut events = std::pin::pin!(events.map_err(|refusal| refusal.to_string())?);
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

/// Whether somebody may use a tool, or why not.
fn leave(who: &Principal, asks_itself: bool, tool: &str) -> Result<(), String> {
    let Some((_, scope)) = NEEDS.iter().find(|(known, _)| *known == tool) else {
        return Err(format!("`{tool}` has no place among the tools"));
    };
    match scope {
        Scope::ConfigWrite if asks_itself => Err(projects::NOT_OF_ITSELF.to_owned()),
        scope if who.has(*scope) => Ok(()),
        scope => Err(needs_scope(who, *scope)),
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
                "tools/list" => Ok(Map::from_iter([("tools".to_owned(), self.definitions().into())])),
                "tools/call" => {
                    let arguments = match request.params.get("arguments") {
                        Some(Value::Object(arguments)) => arguments.clone(),
                        _ => Map::new(),
                    };
                    let ran = self.run(&request, &arguments, channel).await?;
                    Ok(tool_result(&ran.unwrap_or_else(failed)))
                }
                // these are not asked by models, and nobody says for whom
                _ if self.asks_itself => Err(Refused::Invalid(NOT_SAID.to_owned())),
                _ => shelf::answer((&self.app, &self.who), &request).await,
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

fn project_view(project: &Project, reaches_model: impl Fn(&str) -> bool) -> Value {
    let reached = project.models.iter().filter(|(name, _)| reaches_model(name));
    let models: Vec<Value> = reached.map(|(name, model)| view::model(name, model)).collect();
    json!({
        "namespace": project.namespace,
        "name": project.name,
        "default_model": project.default_model,
        "models": models,
        "mcp_servers": project.servers.keys().collect::<Vec<_>>(),
        "prompts": project.prompts.keys().collect::<Vec<_>>(),
    })
}

fn definitions() -> Vec<Value> {
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
    tools.extend(projects::definitions());
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
