//! One client's requests, of either generation: from the library's types to the offer's, and back.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lf_core::project::Generation;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams, CompleteResult,
    ContentBlock, CustomRequest, CustomResult, DiscoverResult, ErrorCode, GetPromptRequestParams,
    GetPromptResponse, GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams,
    InitializeResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::arrival::{self, Arrival, Whole};
use super::client::{Client, custom};
use super::{Caller, Channel, Listening, Offer, Refused, Request};
use crate::relay::{Asking, Level, META_LEVEL, META_REVISION, Told};

/// Cheap to clone: for each request of a modern client there is one, and one for each session.
#[derive(Clone)]
pub(super) struct Handler(Arc<Inner>);

struct Inner {
    offer: Arc<dyn Offer>,
    tracker: TaskTracker,
    stop: CancellationToken,
    about: OnceLock<Result<ServerConfig, Refused>>,
    tool: Option<Tool>,
    listening: Mutex<Option<Listening>>,
    client: Client,
}

impl Handler {
    pub(super) fn new(offer: Arc<dyn Offer>, tracker: TaskTracker, stop: CancellationToken) -> Self {
        Self(Arc::new(Inner {
            offer,
            tracker,
            stop,
            about: OnceLock::new(),
            tool: None,
            listening: Mutex::new(None),
            client: Client::new(),
        }))
    }

    /// Finds out what the library asks about this request without waiting. Not to be called on a clone.
    pub(super) async fn prepare(&mut self, arrival: &Arrival) {
        let caller = arrival.caller();
        match arrival.method.as_str() {
            "initialize" | "server/discover" => self.prepare_about(&caller).await,
            method if method.starts_with("tasks/") => self.prepare_about(&caller).await,
            "subscriptions/listen" => {
                self.prepare_about(&caller).await;
                let wanted = arrival.params.get("notifications").cloned().unwrap_or_default();
                let wanted: SubscriptionFilter = serde_json::from_value(wanted).unwrap_or_default();
                let listening = Listening::begin(&*self.0.offer, &wanted, &caller).await;
                *self.listening() = Some(listening);
            }
            "tools/call" if caller.is_modern() => {
                let name = arrival.params.get("name").and_then(Value::as_str).unwrap_or_default();
                let tool = self.0.offer.tool(name, &caller).await;
                let tool = tool.and_then(|tool| serde_json::from_value(tool).ok());
                if let Some(inner) = Arc::get_mut(&mut self.0) {
                    inner.tool = tool;
                }
            }
            _ => {}
        }
    }

    pub(super) async fn prepare_about(&mut self, caller: &Caller) {
        let about = self.0.offer.about(caller).await.map(|about| config(&about));
        let _ = self.0.about.set(about);
    }

    fn listening(&self) -> std::sync::MutexGuard<'_, Option<Listening>> {
        self.0.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn caller(context: &RequestContext<RoleServer>) -> Caller {
        let meta = Value::Object(context.meta.0.0.clone());
        if meta[META_REVISION].is_string() {
            return arrival::modern(&meta);
        }
        let info = context.peer.peer_info();
        let said = info.map(|info| serde_json::to_value(&*info).unwrap_or_default()).unwrap_or_default();
        let revision = context.protocol_version().map(|version| version.to_string()).unwrap_or_default();
        Caller::new(Generation::of(&revision), said["capabilities"].clone(), said["clientInfo"].clone())
    }

    fn channel(
        &self,
        context: &RequestContext<RoleServer>,
        caller: &Caller,
    ) -> (Channel, mpsc::Receiver<Told>) {
        let (channel, told) = Channel::new();
        let wanted_level = match caller.is_modern() {
            true => context.meta.0.0.get(META_LEVEL).and_then(Level::parse),
            false => self.0.client.level(),
        };
        // a legacy client that says nothing is told what its server finds worth telling
        let level = wanted_level.or((!caller.is_modern()).then_some(Level::Debug));
        let asking = match caller.is_modern() {
            true => Asking::Never,
            false => Asking::Request(context.peer.clone()),
        };
        let party = (!caller.is_modern()).then_some(self.0.client.party);
        let wants_progress = context.meta.get_progress_token().is_some();
        (Channel { wants_progress, level, wanted_level, asking, party, ..channel }, told)
    }

    /// Has the offer answer, and tells the client what is told meanwhile, in order and before the result.
    async fn ask(
        &self,
        method: &str,
        params: impl Serialize,
        context: RequestContext<RoleServer>,
    ) -> Result<Map<String, Value>, ErrorData> {
        let caller = Self::caller(&context);
        let (channel, mut told) = self.channel(&context, &caller);
        let request = Request {
            method: method.to_owned(),
            params: whole(&context).unwrap_or_else(|| object(&params)),
            meta: context.meta.0.0.clone(),
        };
        let mut answering = self.0.offer.answer(request, &caller, &channel);
        let answer = loop {
            tokio::select! {
                biased;
                Some(said) = told.recv() => tell(&context, said).await,
                answer = &mut answering => break answer,
                // nobody reads this: the request is dropped, and that cancels it
                () = context.ct.cancelled() => {
                    return Err(ErrorData::internal_error("the request was cancelled", None));
                }
            }
        };
        while let Ok(said) = told.try_recv() {
            tell(&context, said).await;
        }
        let mut result = answer.map_err(error)?;
        if caller.is_modern() {
            result.entry("resultType").or_insert_with(|| "complete".into());
        }
        Ok(result)
    }

    async fn typed<T: DeserializeOwned>(
        &self,
        method: &str,
        params: impl Serialize,
        context: RequestContext<RoleServer>,
    ) -> Result<T, ErrorData> {
        read(method, self.ask(method, params, context).await?)
    }
}

/// All parameters of a request, where it came over HTTP.
fn whole(context: &RequestContext<RoleServer>) -> Option<Map<String, Value>> {
    let Whole(params) = context.extensions.get::<http::request::Parts>()?.extensions.get()?;
    let mut params = Map::clone(params);
    params.remove("_meta");
    Some(params)
}

fn object(params: &impl Serialize) -> Map<String, Value> {
    let Ok(Value::Object(mut params)) = serde_json::to_value(params) else { return Map::new() };
    params.remove("_meta");
    params
}

async fn tell(context: &RequestContext<RoleServer>, said: Told) {
    // a client that is gone is told by the end of the request
    let _ = match said {
        Told::Progress(progress) => {
            let Some(token) = context.meta.get_progress_token() else { return };
            let mut params = ProgressNotificationParam::new(token, progress.progress);
            params.total = progress.total;
            params.message = progress.message;
            context.peer.notify_progress(params).await
        }
        Told::Log(message) => {
            context.peer.send_notification(custom("notifications/message", Some(message))).await
        }
    };
}

fn read<T: DeserializeOwned>(method: &str, result: Map<String, Value>) -> Result<T, ErrorData> {
    serde_json::from_value(Value::Object(result)).map_err(|error| {
        ErrorData::internal_error(
            format!("the server answered `{method}` with what MCP does not have: {error}"),
            None,
        )
    })
}

/// Reads one of the three results that may also be questions, or a task.
fn outcome<C, T>(method: &str, result: Map<String, Value>) -> Result<T, ErrorData>
where
    C: DeserializeOwned + Into<T>,
    T: From<rmcp::model::InputRequiredResult>,
{
    match result.get("resultType").and_then(Value::as_str) {
        Some("input_required") => Ok(read::<rmcp::model::InputRequiredResult>(method, result)?.into()),
        _ => Ok(read::<C>(method, result)?.into()),
    }
}

/// A block that this revision of the library does not know comes as the text of its JSON: better than nothing.
fn known_blocks(result: &mut Map<String, Value>) {
    for block in result.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten() {
        if serde_json::from_value::<ContentBlock>(block.clone()).is_err() {
            *block = json!({"type": "text", "text": block.to_string()});
        }
    }
}

/// One wrong definition does not cost the others.
fn known_tools(result: &mut Map<String, Value>) {
    let Some(Value::Array(tools)) = result.get_mut("tools") else { return };
    tools.retain(|tool| match serde_json::from_value::<Tool>(tool.clone()) {
        Ok(_) => true,
        Err(error) => {
            let name = tool["name"].as_str().unwrap_or_default();
            tracing::warn!(tool = name, %error, "a tool cannot be offered over MCP and is left out");
            false
        }
    });
}

fn config(about: &Value) -> ServerConfig {
    let capabilities: ServerCapabilities =
        serde_json::from_value(about["capabilities"].clone()).unwrap_or_default();
    let implementation = serde_json::from_value(about["serverInfo"].clone())
        .unwrap_or_else(|_| Implementation::new("lf", env!("CARGO_PKG_VERSION")));
    let config = ServerConfig::new(capabilities).with_server_info(implementation);
    match about["instructions"].as_str() {
        Some(instructions) => config.with_instructions(instructions),
        None => config,
    }
}

fn error(refused: Refused) -> ErrorData {
    let message = refused.to_string();
    match refused {
        Refused::UnknownTool(name) => ErrorData::invalid_params(message, Some(json!({"tool": name}))),
        Refused::UnknownMethod(_) => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None),
        Refused::Invalid(_) => ErrorData::invalid_params(message, None),
        Refused::Upstream { code, data, .. } => {
            let code = i32::try_from(code).map_or(ErrorCode::INTERNAL_ERROR, ErrorCode);
            ErrorData::new(code, message, data)
        }
        Refused::Forbidden(_) | Refused::Unavailable(_) => ErrorData::internal_error(message, None),
    }
}

type Paged = Option<PaginatedRequestParams>;
type Context = RequestContext<RoleServer>;

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        match self.0.about.get() {
            Some(Ok(about)) => about.clone(),
            _ => ServerConfig::new(ServerCapabilities::default()),
        }
    }

    fn get_tool(&self, _name: &str) -> Option<Tool> {
        self.0.tool.clone()
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: Context,
    ) -> Result<InitializeResult, ErrorData> {
        if let Some(Err(refused)) = self.0.about.get() {
            return Err(error(refused.clone()));
        }
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn discover(&self, _context: Context) -> Result<DiscoverResult, ErrorData> {
        if let Some(Err(refused)) = self.0.about.get() {
            return Err(error(refused.clone()));
        }
        Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), self.get_info()))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.0.client.tell(self.0.offer.news(), context.peer, &self.0.tracker);
    }

    async fn list_tools(&self, request: Paged, context: Context) -> Result<ListToolsResult, ErrorData> {
        let mut result = self.ask("tools/list", request, context).await?;
        known_tools(&mut result);
        read("tools/list", result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut result = self.ask("tools/call", request, context).await?;
        if result.get("resultType").is_some_and(|kind| kind == "task") {
            return Ok(CallToolResponse::Task(read("tools/call", result)?));
        }
        known_blocks(&mut result);
        outcome::<rmcp::model::CallToolResult, _>("tools/call", result)
    }

    async fn list_prompts(&self, request: Paged, context: Context) -> Result<ListPromptsResult, ErrorData> {
        self.typed("prompts/list", request, context).await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        outcome::<rmcp::model::GetPromptResult, _>(
            "prompts/get",
            self.ask("prompts/get", request, context).await?,
        )
    }

    async fn list_resources(
        &self,
        request: Paged,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.typed("resources/list", request, context).await
    }

    async fn list_resource_templates(
        &self,
        request: Paged,
        context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.typed("resources/templates/list", request, context).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let result = self.ask("resources/read", request, context).await?;
        outcome::<rmcp::model::ReadResourceResult, _>("resources/read", result)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        self.typed("completion/complete", request, context).await
    }

    #[expect(deprecated, reason = "clients of the legacy generation set it")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        if Self::caller(&context).is_modern() {
            return Err(error(Refused::UnknownMethod("logging/setLevel".to_owned())));
        }
        let level = Level::parse(&object(&request).remove("level").unwrap_or_default());
        let before = self.0.client.level();
        if let Some(level) = level {
            self.0.client.set_level(level);
        }
        let told = self.ask("logging/setLevel", request, context).await.map(drop);
        if let (Err(_), Some(before)) = (&told, before) {
            self.0.client.set_level(before);
        }
        told
    }

    async fn subscribe(&self, request: SubscribeRequestParams, context: Context) -> Result<(), ErrorData> {
        let caller = Self::caller(&context);
        self.0.client.watch(&*self.0.offer, &request.uri, &caller).await.map_err(error)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        self.0.client.unwatch(&request.uri).await;
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(match &*self.listening() {
            Some(listening) => listening.accepted(requested),
            None => requested.clone(),
        })
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let prepared = self.listening().take();
        let listening = match prepared {
            Some(listening) => listening,
            None => {
                let caller = Self::caller(context.request_context());
                Listening::begin(&*self.0.offer, context.accepted(), &caller).await
            }
        };
        listening.tell(&context, &self.0.stop).await
    }

    async fn get_task(&self, request: GetTaskParams, context: Context) -> Result<GetTaskResult, ErrorData> {
        self.typed("tasks/get", request, context).await
    }

    async fn update_task(&self, request: UpdateTaskParams, context: Context) -> Result<(), ErrorData> {
        self.ask("tasks/update", request, context).await.map(drop)
    }

    async fn cancel_task(&self, request: CancelTaskParams, context: Context) -> Result<(), ErrorData> {
        self.ask("tasks/cancel", request, context).await.map(drop)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: Context,
    ) -> Result<CustomResult, ErrorData> {
        // requests that the library knows come here when it cannot read their parameters
        const LEGACY: [&str; 3] = ["logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
        if LEGACY.contains(&request.method.as_str()) {
            return Err(error(match Self::caller(&context).is_modern() {
                true => Refused::UnknownMethod(request.method),
                false => Refused::Invalid(format!("the parameters of `{}` cannot be read", request.method)),
            }));
        }
        let result = self.ask(&request.method, request.params, context).await?;
        Ok(CustomResult::new(Value::Object(result)))
    }
}
