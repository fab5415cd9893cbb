//! OpenAI Chat Completions and everything that follows it, as a client.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use lf_core::secret::{shown_url, without};
use lf_core::{DeltaStream, Model, ModelError, ModelProvider, ModelRequest};
use lf_dialects::openai_chat::{self, CallIds, EncodeOptions};
use lf_dialects::{AnswerDecoder, Dialect};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use tracing::{debug, warn};

use crate::http::{Client, next_chunk, reason, retry_after, whole_body};

/// Attempts after the first one; none is made once a byte of an answer has arrived.
const RETRIES: u32 = 2;
/// An upstream that wants a longer pause is taken at its word: the error goes to the caller, with the pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Takes nobody without a key: asking it would only say so later.
const OPENAI: &str = "https://api.openai.com/";
/// Bytes of one answer: nobody reads more, and a model that never ends must not fill the memory.
const ANSWER_LIMIT: usize = 64 * 1024 * 1024;
/// Reading the body of an error.
const ERROR_WAIT: Duration = Duration::from_secs(10);

/// Bytes of an answer, in order; ends after the first error.
pub type ByteStream = Pin<Box<dyn futures_core::Stream<Item = Result<bytes::Bytes, ModelError>> + Send>>;

pub(crate) struct OpenAiChat {
    model: Arc<Model>,
    client: Client,
    url: Arc<str>,
    /// The same for errors and logs.
    shown: Arc<str>,
    options: EncodeOptions,
}

impl OpenAiChat {
    pub(crate) fn new(model: Arc<Model>, client: Client) -> Self {
        let url = endpoint(&model.base_url);
        let shown = shown_url(&url).into();
        let options = options(&model);
        Self { model, client, url: url.into(), shown, options }
    }
}

impl ModelProvider for OpenAiChat {
    fn stream(&self, request: &ModelRequest) -> DeltaStream {
        Box::pin(self.ask(request).answer())
    }
}

impl OpenAiChat {
    /// The bytes of the answer as they come: for who reads more in them than a model's answer.
    pub(crate) fn bytes(&self, request: &ModelRequest) -> ByteStream {
        Box::pin(self.ask(request).bytes())
    }

    fn ask(&self, request: &ModelRequest) -> Ask {
        let body = openai_chat::encode_request(&self.model.model, request, self.options).to_string();
        Ask {
            model: self.model.clone(),
            client: self.client.clone(),
            url: self.url.clone(),
            shown: self.shown.clone(),
            body: body.into(),
            stops: openai_chat::stops_to_cut(&request.parameters),
            streamed: request.stream,
        }
    }
}

/// What is known of an upstream by its name: DeepSeek's thinking models demand their reasoning back inside a tool
/// loop, Mistral takes only ids of its own form.
fn options(model: &Model) -> EncodeOptions {
    let names = |word: &str| model.base_url.contains(word) || model.model.to_lowercase().contains(word);
    EncodeOptions {
        replay_reasoning: names("deepseek"),
        call_ids: if model.base_url.contains("mistral.ai") {
            CallIds::NineAlphanumeric
        } else {
            CallIds::AtMost40
        },
    }
}

struct Ask {
    model: Arc<Model>,
    client: Client,
    url: Arc<str>,
    shown: Arc<str>,
    body: bytes::Bytes,
    /// Stop sequences that the body does not carry.
    stops: Vec<String>,
    streamed: bool,
}

impl Ask {
    fn answer(self) -> impl futures_core::Stream<Item = Result<lf_core::ModelDelta, ModelError>> + Send {
        stream! {
            let mut response = match self.send_with_retries().await {
                Ok(response) => response,
                Err(error) => {
                    yield Err(self.scrubbed(error));
                    return;
                }
            };
            let timeouts = self.client.timeouts;
            let mut decoder = AnswerDecoder::new(Dialect::OpenaiChat, &*self.shown).cut_at(self.stops.clone());
            let mut deltas = Vec::new();
            let (mut what, mut limit) = match self.streamed {
                true => ("begin its answer", timeouts.first_byte),
                false => ("finish its answer", timeouts.whole),
            };
            let mut received = 0;
            loop {
                let read = match next_chunk(&mut response, &self.shown, what, limit).await {
                    Ok(Some(bytes)) => {
                        received += bytes.len();
                        match received > ANSWER_LIMIT {
                            true => Err(self.endless()),
                            false => decoder.push(&bytes, &mut deltas),
                        }
                    }
                    Ok(None) => decoder.finish(&mut deltas),
                    // everything that matters has been said: a connection that is left open is no failure
                    Err(_) if decoder.has_finish_reason() => decoder.finish(&mut deltas),
                    Err(error) => Err(error),
                };
                for delta in deltas.drain(..) {
                    yield Ok(delta);
                }
                if let Err(error) = read {
                    yield Err(self.scrubbed(error));
                    return;
                }
                if decoder.is_over() {
                    return;
                }
                (what, limit) = match (decoder.has_finish_reason(), self.streamed) {
                    (true, _) => ("end its answer", timeouts.end),
                    (false, true) => ("go on with its answer", timeouts.idle),
                    (false, false) => (what, limit),
                };
            }
        }
    }

    fn bytes(self) -> impl futures_core::Stream<Item = Result<bytes::Bytes, ModelError>> + Send {
        stream! {
            let mut response = match self.send_with_retries().await {
                Ok(response) => response,
                Err(error) => {
                    yield Err(self.scrubbed(error));
                    return;
                }
            };
            let idle = self.client.timeouts.idle;
            loop {
                match next_chunk(&mut response, &self.shown, "go on with its answer", idle).await {
                    Ok(Some(bytes)) => yield Ok(bytes),
                    Ok(None) => return,
                    Err(error) => {
                        yield Err(self.scrubbed(error));
                        return;
                    }
                }
            }
        }
    }

    async fn send_with_retries(&self) -> Result<reqwest::Response, ModelError> {
        let mut pause = self.client.timeouts.retry_pause;
        let mut attempt = 0;
        loop {
            let error = match self.send().await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let wanted = match &error {
                ModelError::Unreachable { .. } if attempt == 0 => None,
                ModelError::RateLimited { retry_after, .. } => *retry_after,
                ModelError::Failed { retry_after, status: 500 | 502 | 503 | 504 | 529, .. } => *retry_after,
                _ => return Err(error),
            };
            if attempt == RETRIES || wanted.is_some_and(|wanted| wanted > LONGEST_PAUSE) {
                return Err(error);
            }
            attempt += 1;
            let wait = wanted.unwrap_or(pause);
            pause *= 2;
            let error = self.scrubbed(error);
            warn!(model = self.model.name, %error, ?wait, attempt, "asking the model again");
            tokio::time::sleep(wait).await;
        }
    }

    async fn send(&self) -> Result<reqwest::Response, ModelError> {
        if self.model.api_key.is_none() && self.url.starts_with(OPENAI) {
            return Err(ModelError::Unauthorized {
                url: self.shown.to_string(),
                status: 401,
                message: format!(
                    "model `{}` has no `api_key`, and OPENAI_API_KEY is not set",
                    self.model.name
                ),
            });
        }
        let mut request = self
            .client
            .inner
            .post(&*self.url)
            .header(CONTENT_TYPE, "application/json")
            .header(
                ACCEPT,
                if self.streamed { "text/event-stream, application/json" } else { "application/json" },
            )
            .body(self.body.clone());
        if let Some(key) = &self.model.api_key {
            request = request.bearer_auth(key.expose());
        }
        debug!(model = self.model.name, url = &*self.shown, bytes = self.body.len(), "asking the model");
        let timeouts = self.client.timeouts;
        let limit = if self.streamed { timeouts.first_byte } else { timeouts.whole };
        let response = match tokio::time::timeout(limit, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreachable(&error)),
            Err(_) => {
                return Err(ModelError::Timeout {
                    url: self.shown.to_string(),
                    what: "begin its answer",
                    limit,
                });
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let pause = retry_after(response.headers());
        let body = whole_body(response, &self.shown, ERROR_WAIT).await.unwrap_or_default();
        Err(openai_chat::error_body(status.as_u16(), &body, &self.shown, pause))
    }

    fn unreachable(&self, error: &reqwest::Error) -> ModelError {
        ModelError::Unreachable { url: self.shown.to_string(), reason: reason(error) }
    }

    fn endless(&self) -> ModelError {
        ModelError::Garbled {
            url: self.shown.to_string(),
            expected: "answer of at most 64 MiB",
            found: format!("more than {ANSWER_LIMIT} bytes"),
        }
    }

    /// Upstreams repeat the key that they refuse; whoever asks us need not be who owns it.
    fn scrubbed(&self, mut error: ModelError) -> ModelError {
        let Some(key) = &self.model.api_key else { return error };
        let clean = |text: &mut String| *text = without(text, &[key.expose()]);
        match &mut error {
            ModelError::Unauthorized { message, .. }
            | ModelError::RateLimited { message, .. }
            | ModelError::Failed { message, .. } => clean(message),
            ModelError::Rejected { message, body, .. } => {
                clean(message);
                if let Some(body) = body.as_mut().filter(|body| body.to_string().contains(key.expose())) {
                    **body = serde_json::Value::Null;
                }
            }
            ModelError::Garbled { found, .. } => clean(found),
            ModelError::Unreachable { .. } | ModelError::Timeout { .. } | ModelError::Unsupported(_) => {}
        }
        error
    }
}

/// The path goes before a query: gateways carry versions and keys in one.
fn endpoint(base_url: &str) -> String {
    match base_url.split_once('?') {
        Some((base, query)) => format!("{}/chat/completions?{query}", base.trim_end_matches('/')),
        None => format!("{base_url}/chat/completions"),
    }
}

#[cfg(test)]
mod tests;
