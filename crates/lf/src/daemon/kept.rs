//! `lf chat --conversation` and `--continue`: a conversation that a daemon keeps. Its turns are told as `lf chat --events`
//! prints them.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use lf_core::model::ChatRequest;
use lf_core::tool::{Person, ToolProgress};
use lf_core::{Arguments, ChatEvent, Message, ModelError, ToolCall, ToolRef, ToolResult, Usage};
use lf_dialects::sse::SseDecoder;
use reqwest::{Method, Response};
use serde_json::{Map, Value, json};

use super::{Fold, attended};
use crate::args;
use crate::conversations::{listing, path_of};
use crate::exit::Trouble;
use crate::remote::{HERE, Remote};

pub(crate) struct Kept {
    remote: Remote,
    /// Where approvals are given.
    decisions: Remote,
    project: Option<String>,
    id: String,
}

impl Kept {
    /// The conversation that is meant, which is looked for before anybody types.
    pub(crate) async fn open(chat: &args::Chat, project: Option<&str>) -> Result<Self, Trouble> {
        let server = chat.server.as_deref().unwrap_or(HERE);
        let (remote, decisions) = (Remote::whole(server)?, Remote::new(server, None)?);
        let mut kept = Self { remote, decisions, project: project.map(str::to_owned), id: String::new() };
        match chat.conversation.as_deref() {
            Some("new") => kept.begin_anew().await?,
            Some(id) => {
                kept.remote.get(&path_of(id)?).await.map_err(|trouble| {
                    trouble
                        .hint("`lf conversations list` tells what there is; `--conversation new` begins one")
                })?;
                id.clone_into(&mut kept.id);
            }
            None => {
                let found = kept.remote.get(&listing(project, None, 1)).await?;
                let last = found["conversations"][0]["id"].as_str().ok_or_else(|| {
                    Trouble::usage("there is no conversation to go on with".to_owned())
                        .hint("`lf chat --conversation new` begins one")
                })?;
                last.clone_into(&mut kept.id);
            }
        }
        Ok(kept)
    }

    /// Another conversation from here on.
    pub(crate) async fn begin_anew(&mut self) -> Result<(), Trouble> {
        let wanted = self.project.as_ref().map_or(json!({}), |project| json!({"project": project}));
        let made = self.remote.ask(Method::POST, "/conversations", Some(&wanted)).await?;
        let id = made["conversation"]["id"].as_str();
        self.id =
            id.ok_or_else(|| Trouble::failure("the daemon named no conversation".to_owned()))?.to_owned();
        let _ = writeln!(anstream::stderr(), "conversation {}", self.id);
        self.switch_on_all().await
    }

    /// Every tool of the model, as in any other chat: a conversation begins with none.
    async fn switch_on_all(&self) -> Result<(), Trouble> {
        let tools = format!("/conversations/{}/tools", self.id);
        let mut offered = self.remote.ask(Method::GET, &format!("{tools}/available"), None).await?;
        let Value::Array(offered) = offered["tools"].take() else { return Ok(()) };
        for tool in offered {
            let wanted = json!({"server_id": tool["server_id"], "tool_name": tool["tool_name"]});
            self.remote.ask(Method::POST, &tools, Some(&wanted)).await?;
        }
        Ok(())
    }

    /// Says what the request says last. What came before is the daemon's to know. `person` is asked what has to be
    /// approved.
    pub(crate) async fn events(
        &self,
        request: &ChatRequest,
        person: Option<Arc<dyn Person>>,
    ) -> Result<BoxStream<'static, ChatEvent>, Trouble> {
        let content = match request.messages.last() {
            Some(Message::User(said)) => said.content.text(),
            _ => String::new(),
        };
        let mut body = json!({"content": content, "stream": true});
        if let Some(model) = &request.model {
            body["model"] = json!(model);
        }
        let path = format!("{}/chat", path_of(&self.id)?);
        let events = told(self.remote.tell(&path, &body).await?, self.id.clone());
        Ok(match person {
            Some(person) => attended(events, person, self.decisions.clone()).boxed(),
            None => events,
        })
    }

    /// Ends a turn; without this it goes on, whoever listens.
    pub(crate) async fn cancel(&self, turn: &str) -> Result<(), Trouble> {
        self.remote.post(&format!("/v1/turns/{turn}/cancel")).await.map(drop)
    }
}

fn told(mut response: Response, id: String) -> BoxStream<'static, ChatEvent> {
    let broken = move |message: &str| {
        ChatEvent::Failed(ModelError::Failed {
            url: format!("conversation `{id}`"),
            status: 502,
            message: message.to_owned(),
            retry_after: None,
        })
    };
    stream! {
        let mut decoder = SseDecoder::new();
        let mut events = Vec::new();
        let mut fold = Fold::default();
        loop {
            let read = match response.chunk().await {
                Ok(Some(bytes)) => decoder.push(&bytes, &mut events).map_err(|error| error.to_string()),
                Ok(None) => Err("the stream ended before the turn, which goes on".to_owned()),
                Err(_) => Err("the connection broke off; the turn goes on".to_owned()),
            };
            for told in events.drain(..) {
                let told: Value = serde_json::from_str(&told.data).unwrap_or_default();
                let Some(event) = read_event(&told).or_else(|| fold.asked(&told)) else { continue };
                let is_last = matches!(event, ChatEvent::Finished { .. } | ChatEvent::Failed(_));
                yield event;
                if is_last {
                    return;
                }
            }
            if let Err(message) = read {
                yield broken(&message);
                return;
            }
        }
    }
    .boxed()
}

/// The event behind its view; `None` for one that this program does not know.
fn read_event(event: &Value) -> Option<ChatEvent> {
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    Some(match event["event"].as_str()? {
        "started" => ChatEvent::Started { turn: text("turn"), model: text("model") },
        "text" => ChatEvent::Text(text("text")),
        "reasoning" => ChatEvent::Reasoning(text("text")),
        "model" => ChatEvent::Answering { model: text("model") },
        "tool_call" => {
            let server = event["server"].as_str();
            let tool = server.map(|server| ToolRef { server: server.into(), name: text("tool").into() });
            let arguments = match &event["arguments"] {
                Value::String(raw) => raw.clone(),
                whole => whole.to_string(),
            };
            ChatEvent::CallStarted { call: call(text("call_id"), text("name"), arguments), tool }
        }
        "tool_progress" => ChatEvent::CallProgress {
            call_id: text("call_id"),
            progress: ToolProgress {
                progress: event["progress"].as_f64().unwrap_or_default(),
                total: event["total"].as_f64(),
                message: event["message"].as_str().map(str::to_owned),
            },
        },
        "tool_result" => ChatEvent::CallFinished {
            result: ToolResult {
                name: event["name"].as_str().map(str::to_owned),
                is_error: event["is_error"] == true,
                ..ToolResult::new(text("call_id"), text("result"))
            },
            elapsed: Duration::from_millis(event["elapsed_ms"].as_u64().unwrap_or_default()),
        },
        "client_tool_calls" => {
            let calls = event["calls"].as_array().into_iter().flatten();
            let word = |call: &Value, key: &str| call[key].as_str().unwrap_or_default().to_owned();
            let calls = calls.map(|one| call(word(one, "id"), word(one, "name"), word(one, "arguments")));
            ChatEvent::ClientCalls(calls.collect())
        }
        "notice" => ChatEvent::Notice(text("text")),
        "limit" => ChatEvent::Notice(text("message")),
        "finished" => {
            let tokens = |key: &str| event["usage"][key].as_u64().unwrap_or_default();
            ChatEvent::Finished {
                reason: serde_json::from_value(event["finish_reason"].clone()).ok()?,
                usage: Usage {
                    input: tokens("input_tokens"),
                    output: tokens("output_tokens"),
                    cached: tokens("cached_tokens"),
                    ..Usage::default()
                },
                rounds: event["rounds"].as_u64().and_then(|rounds| rounds.try_into().ok()).unwrap_or(1),
                stop_sequence: None,
            }
        }
        "failed" => ChatEvent::Failed(ModelError::Failed {
            url: "the daemon's model".to_owned(),
            status: 502,
            message: text("error"),
            retry_after: None,
        }),
        _ => return None,
    })
}

fn call(id: String, name: String, arguments: String) -> ToolCall {
    ToolCall { id, name, arguments: Arguments::parse(arguments), rest: Map::new() }
}

#[cfg(test)]
mod tests;
