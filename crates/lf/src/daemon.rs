//! `lf chat --server`: the turns run in a daemon, which is an OpenAI-compatible endpoint like any other, and tells what its
//! tools do in an extra field.

mod kept;

use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, Stream};
use lf_core::model::ChatRequest;
use lf_core::project::Provider;
use lf_core::tool::{Person, Question, Reply, ToolProgress};
use lf_core::turn::{Ask, Decision};
use lf_core::{
    Arguments, ChatEvent, Model, ModelDelta, ModelRequest, Secret, ToolCall, ToolRef, ToolResult, Usage,
};
use lf_dialects::sse::SseDecoder;
use lf_dialects::{AnswerDecoder, Dialect};
use lf_models::{ByteStream, Client, Timeouts};
use serde_json::{Map, Value, json};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::args::Common;
use crate::exit::Trouble;
use crate::remote::{Door, HERE, Remote};

pub(crate) use kept::Kept;

/// Where a daemon answers for `project`, which is `namespace/project`; without one, for the project it was started in.
pub(crate) fn base_url(server: &str, project: Option<&str>) -> Result<String, Trouble> {
    let server = root(server)?;
    match project {
        Some(project) if project.split('/').count() == 2 => Ok(format!("{server}/v1/projects/{project}")),
        Some(project) => Err(Trouble::usage(format!("`{project}` is not `namespace/project`"))),
        None => Ok(format!("{server}/v1")),
    }
}

/// Where all of a daemon answers.
pub(crate) fn root(server: &str) -> Result<&str, Trouble> {
    let server = server.trim_end_matches('/');
    match server.starts_with("http://") || server.starts_with("https://") {
        true => Ok(server),
        false => Err(Trouble::usage(format!("`--server {server}` is not an http or https URL"))
            .hint(format!("such as {HERE}"))),
    }
}

pub(crate) struct Daemon {
    base_url: String,
    key: Option<Secret>,
    client: Client,
    /// Beside the models: whatever else the daemon is asked.
    remote: Remote,
}

impl Daemon {
    /// `project` is `namespace/project`; without one, the project the daemon was started in.
    pub(crate) fn new(common: &Common, server: &str, project: Option<&str>) -> Result<Self, Trouble> {
        let Door { base_url, key } = Door::to(common, base_url(server, project)?);
        let roots = crate::roots::roots(&crate::environment());
        let client = Client::trusting(Timeouts::default(), &roots);
        let client = client.map_err(|error| Trouble::failure(error.to_string()))?;
        Ok(Self { base_url, key, client, remote: Remote::new(common, server, None)? })
    }

    /// The answer as events. `person` is asked what has to be approved; others may decide meanwhile.
    pub(crate) fn events(
        &self,
        request: ChatRequest,
        person: Option<Arc<dyn Person>>,
    ) -> BoxStream<'static, ChatEvent> {
        // an empty name means the default model
        let upstream_name = request.model.unwrap_or_default();
        let mut model = Model::new(&upstream_name, Provider::Openai, &upstream_name, &self.base_url);
        model.api_key.clone_from(&self.key);
        let mut parameters = request.parameters;
        if !request.variables.is_empty() {
            parameters.insert("variables".to_owned(), Value::Object(request.variables));
        }
        let ask = ModelRequest {
            messages: request.messages,
            parameters,
            stream: request.stream,
            ..ModelRequest::default()
        };
        let bytes = lf_models::ask_for_bytes(&Arc::new(model), &self.client, &ask);
        let events = events_of(bytes, self.base_url.clone());
        match person {
            Some(person) => attended(events, person, self.remote.clone()).boxed(),
            None => events.boxed(),
        }
    }
}

/// Asks the person what has to be approved, while the answer goes on.
fn attended(
    events: impl Stream<Item = ChatEvent> + Send,
    person: Arc<dyn Person>,
    remote: Remote,
) -> impl Stream<Item = ChatEvent> + Send {
    stream! {
        let mut events = std::pin::pin!(events);
        let tasks = TaskTracker::new();
        let mut waiting: Vec<(Ask, AbortOnDropHandle<()>)> = Vec::new();
        while let Some(event) = events.next().await {
            match &event {
                ChatEvent::ApprovalNeeded(ask) => {
                    let asking = decide((**ask).clone(), person.clone(), remote.clone());
                    waiting.push(((**ask).clone(), AbortOnDropHandle::new(tasks.spawn(asking))));
                }
                ChatEvent::ApprovalDecided(decided) => waiting.retain(|(ask, _)| ask.id != decided.id),
                _ => {}
            }
            yield event;
        }
    }
}

async fn decide(ask: Ask, person: Arc<dyn Person>, remote: Remote) {
    let id = ask.id.clone();
    let Reply::Result(said) = person.ask(Question::approval(&ask)).await else { return };
    let body = json!({"decision": said["decision"], "by": "the person at the terminal"});
    if let Err(trouble) = remote.post_json(&format!("/approvals/{id}"), &body).await {
        // the turn waits on, and says how else it can be approved
        trouble.print();
    }
}

/// The daemon's chunks as events: what the model says through the decoder that every upstream has, what the daemon's
/// tools do from the extra field `lf`.
fn events_of(mut bytes: ByteStream, url: String) -> impl Stream<Item = ChatEvent> + Send {
    stream! {
        let mut answer = AnswerDecoder::new(Dialect::OpenaiChat, url);
        let mut chunks = SseDecoder::new();
        let (mut deltas, mut events) = (Vec::new(), Vec::new());
        let mut fold = Fold::default();
        while !answer.is_over() {
            let read = match bytes.next().await {
                Some(Ok(bytes)) => {
                    let _ = chunks.push(&bytes, &mut events);
                    for told in events.drain(..).filter_map(|event| fold.told(&event.data)) {
                        yield told;
                    }
                    answer.push(&bytes, &mut deltas)
                }
                Some(Err(error)) => Err(error),
                None => answer.finish(&mut deltas),
            };
            for delta in deltas.drain(..) {
                for event in fold.said(delta) {
                    yield event;
                }
            }
            if let Err(error) = read {
                yield ChatEvent::Failed(error);
                return;
            }
        }
    }
}

#[derive(Default)]
struct Fold {
    started: bool,
    calls: Vec<ToolCall>,
    /// Not decided yet.
    asks: Vec<Ask>,
    usage: Usage,
    rounds: u32,
    /// Results came after the last call: the next call is of another round.
    answered: bool,
}

impl Fold {
    /// What a chunk tells of the daemon's own work.
    fn told(&mut self, data: &str) -> Option<ChatEvent> {
        let chunk: Value = serde_json::from_str(data).ok()?;
        if !std::mem::replace(&mut self.started, true) {
            let text = |key: &str| chunk[key].as_str().unwrap_or_default().to_owned();
            return Some(ChatEvent::Started {
                turn: text("id").trim_start_matches("chatcmpl-").to_owned(),
                model: text("model"),
            });
        }
        let lf = chunk.get("lf")?;
        let text = |key: &str| lf[key].as_str().unwrap_or_default().to_owned();
        let call_id = text("call_id");
        match lf["event"].as_str()? {
            "tool_call" => {
                if self.rounds == 0 || std::mem::take(&mut self.answered) {
                    self.rounds += 1;
                }
                let tool = lf["server"]
                    .as_str()
                    .map(|server| ToolRef { server: server.into(), name: text("tool").into() });
                let arguments = Arguments::parse(text("arguments"));
                let call = ToolCall { id: call_id, name: text("name"), arguments, rest: Map::new() };
                Some(ChatEvent::CallStarted { call, tool })
            }
            "tool_progress" => {
                let message = lf["message"].as_str().map(str::to_owned);
                let progress = ToolProgress {
                    progress: lf["progress"].as_f64().unwrap_or_default(),
                    total: lf["total"].as_f64(),
                    message,
                };
                Some(ChatEvent::CallProgress { call_id, progress })
            }
            "tool_result" => {
                self.answered = true;
                let result = ToolResult {
                    name: Some(text("name")),
                    is_error: lf["is_error"] == true,
                    ..ToolResult::new(call_id, text("text"))
                };
                let elapsed = Duration::from_millis(lf["elapsed_ms"].as_u64().unwrap_or_default());
                Some(ChatEvent::CallFinished { result, elapsed })
            }
            "model" => Some(ChatEvent::Answering { model: text("model") }),
            "notice" | "limit" => Some(ChatEvent::Notice(text("message"))),
            _ => self.asked(lf),
        }
    }

    /// What has to be approved, and what was decided about it.
    fn asked(&mut self, lf: &Value) -> Option<ChatEvent> {
        let text = |key: &str| lf[key].as_str().unwrap_or_default().to_owned();
        match lf["event"].as_str()? {
            "approval_needed" => {
                let call = ToolCall {
                    id: text("call_id"),
                    name: text("tool"),
                    arguments: Arguments::parse(text("arguments")),
                    rest: Map::new(),
                };
                let tool = ToolRef { server: text("server").into(), name: text("tool").into() };
                let ask = Ask {
                    id: text("approval"),
                    call,
                    tool,
                    why: lf["why"].as_str().map(str::to_owned),
                    decision: None,
                };
                self.asks.push(ask.clone());
                Some(ChatEvent::ApprovalNeeded(Box::new(ask)))
            }
            "approval_decided" => {
                let at = self.asks.iter().position(|ask| ask.id == text("approval"))?;
                let mut ask = self.asks.remove(at);
                let verdict = serde_json::from_value(lf["decision"].clone()).ok()?;
                let reason = lf["reason"].as_str().map(str::to_owned);
                ask.decision = Some(Decision { verdict, by: text("by"), reason, who: None });
                Some(ChatEvent::ApprovalDecided(Box::new(ask)))
            }
            _ => None,
        }
    }

    /// What the model said.
    fn said(&mut self, delta: ModelDelta) -> Vec<ChatEvent> {
        match delta {
            ModelDelta::Text(text) => vec![ChatEvent::Text(text)],
            ModelDelta::Reasoning(text) => vec![ChatEvent::Reasoning(text)],
            ModelDelta::Call(call) => {
                self.calls.push(call);
                Vec::new()
            }
            ModelDelta::Usage(usage) => {
                self.usage = usage;
                Vec::new()
            }
            ModelDelta::Notice(text) => vec![ChatEvent::Notice(text)],
            ModelDelta::Native(native) => vec![ChatEvent::Native(native)],
            // the daemon keeps it for us
            ModelDelta::State(_) => Vec::new(),
            ModelDelta::Finish { reason, stop_sequence, .. } => {
                let mut events = Vec::new();
                if !self.calls.is_empty() {
                    events.push(ChatEvent::ClientCalls(std::mem::take(&mut self.calls)));
                }
                let rounds = self.rounds + 1;
                events.push(ChatEvent::Finished { reason, stop_sequence, usage: self.usage, rounds });
                events
            }
        }
    }
}
