//! `lf chat --server`: the turns run in a daemon, which is an OpenAI-compatible endpoint like any other.

use std::sync::Arc;

use async_stream::stream;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use lf_core::model::ChatRequest;
use lf_core::project::{Limits, Provider, ToolCallStrategy};
use lf_core::{ChatEvent, Model, ModelDelta, ModelRequest, Usage};
use lf_models::{Client, Timeouts};
use serde_json::{Map, Value};

use crate::exit::Trouble;

pub(crate) struct Daemon {
    base_url: String,
    client: Client,
}

impl Daemon {
    /// `project` is `namespace/project`; without one, the project the daemon was started in.
    pub(crate) fn new(server: &str, project: Option<&str>) -> Result<Self, Trouble> {
        let server = server.trim_end_matches('/');
        if !(server.starts_with("http://") || server.starts_with("https://")) {
            return Err(Trouble::usage(format!("`--server {server}` is not an http or https URL"))
                .hint("such as http://127.0.0.1:14345"));
        }
        let base_url = match project {
            Some(project) => format!("{server}/v1/projects/{project}"),
            None => format!("{server}/v1"),
        };
        let client = Client::new(Timeouts::default()).map_err(|error| Trouble::failure(error.to_string()))?;
        Ok(Self { base_url, client })
    }

    /// The answer as events. What the daemon's own tools do is the daemon's business; only their effect is seen.
    pub(crate) fn events(&self, request: ChatRequest) -> Result<BoxStream<'static, ChatEvent>, Trouble> {
        let model = Model {
            name: request.model.clone().unwrap_or_else(|| "the daemon's default".to_owned()),
            description: None,
            provider: Provider::Openai,
            // an empty name means the default model
            model: request.model.unwrap_or_default(),
            base_url: self.base_url.clone(),
            api_key: None,
            strategy: ToolCallStrategy::NativeApi,
            servers: Vec::new(),
            tools: Vec::new(),
            prompts: Vec::new(),
            parameters: Map::new(),
            extra_body: Map::new(),
            limits: Limits::default(),
        };
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
        let name = model.name.clone();
        let provider = lf_models::provider(&Arc::new(model), &self.client)
            .map_err(|error| Trouble::failure(error.to_string()))?;
        let mut deltas = provider.stream(&ask);
        Ok(stream! {
            yield ChatEvent::Started { turn: String::new(), model: name };
            let mut calls = Vec::new();
            let mut usage = Usage::default();
            while let Some(delta) = deltas.next().await {
                match delta {
                    Ok(ModelDelta::Text(text)) => yield ChatEvent::Text(text),
                    Ok(ModelDelta::Reasoning(text)) => yield ChatEvent::Reasoning(text),
                    Ok(ModelDelta::Call(call)) => calls.push(call),
                    Ok(ModelDelta::Usage(counted)) => usage = counted,
                    Ok(ModelDelta::Finish { reason, stop_sequence, .. }) => {
                        if !calls.is_empty() {
                            yield ChatEvent::ClientCalls(std::mem::take(&mut calls));
                        }
                        yield ChatEvent::Finished { reason, usage, rounds: 1, stop_sequence };
                    }
                    Err(error) => yield ChatEvent::Failed(error),
                }
            }
        }
        .boxed())
    }
}
