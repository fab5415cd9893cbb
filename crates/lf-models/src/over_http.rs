//! Models behind an HTTP API, whatever its dialect: one way to ask, to wait, to try again and to read.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use lf_core::secret::without;
use lf_core::{DeltaStream, Model, ModelDelta, ModelError, ModelProvider, ModelRequest, Secret};
use lf_dialects::upstream::{self, Encoded};
use lf_dialects::{AnswerDecoder, openai_chat};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use tracing::{debug, warn};

use crate::endpoint::Endpoint;
use crate::http::{Client, next_chunk, reason, retry_after, whole_body};
use crate::refused::{Field, apply, dispensable};

/// An upstream that wants a longer pause is taken at its word: the error goes to the caller, with the pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Bytes of one answer: nobody reads more, and a model that never ends must not fill the memory.
const ANSWER_LIMIT: usize = 64 * 1024 * 1024;
/// Reading the body of an error.
const ERROR_WAIT: Duration = Duration::from_secs(10);

/// Bytes of an answer, in order; ends after the first error.
pub type ByteStream = Pin<Box<dyn futures_core::Stream<Item = Result<bytes::Bytes, ModelError>> + Send>>;

pub(crate) struct OverHttp {
    model: Arc<Model>,
    client: Client,
    /// Attempts after the first one; none is made once a byte of an answer has arrived.
    retries: u32,
}

impl OverHttp {
    pub(crate) fn new(model: Arc<Model>, client: Client, retries: u32) -> Self {
        Self { model, client, retries }
    }
}

impl ModelProvider for OverHttp {
    fn stream(&self, request: &ModelRequest) -> DeltaStream {
        match self.ask(request) {
            Ok(ask) => Box::pin(ask.answer()),
            Err(error) => Box::pin(futures_util::stream::iter([Err(error)])),
        }
    }
}

impl OverHttp {
    /// The bytes of the answer as they come: for who reads more in them than a model's answer.
    pub(crate) fn bytes(&self, request: &ModelRequest) -> ByteStream {
        match self.ask(request) {
            Ok(ask) => Box::pin(ask.bytes()),
            Err(error) => Box::pin(futures_util::stream::iter([Err(error)])),
        }
    }

    fn ask(&self, request: &ModelRequest) -> Result<Ask, ModelError> {
        let model = &self.model;
        let endpoint = Endpoint::of(model, request.stream);
        endpoint.check(model, request)?;
        let options = endpoint.options(model);
        let mut encoded = upstream::encode(model.dialect, &model.model, request, &options)?;
        let upstream = format!("{}\0{}", endpoint.url, model.model);
        let left_out = self.client.refused.leave_out(&upstream, &mut encoded.fields);
        encoded.left_out.extend(left_out.into_iter().filter_map(Field::left_out).map(str::to_owned));
        Ok(Ask {
            model: model.clone(),
            client: self.client.clone(),
            endpoint,
            upstream,
            tools: self.client.tools.text(model.dialect, &request.tools),
            encoded,
            translated: upstream::is_translated(model.dialect, request),
            streamed: request.stream,
            retries: self.retries,
        })
    }
}

struct Ask {
    model: Arc<Model>,
    client: Client,
    endpoint: Endpoint,
    /// Names what is asked, for what is remembered of it.
    upstream: String,
    tools: Arc<str>,
    encoded: Encoded,
    /// The client speaks another dialect.
    translated: bool,
    streamed: bool,
    retries: u32,
}

impl Ask {
    fn answer(mut self) -> impl futures_core::Stream<Item = Result<ModelDelta, ModelError>> + Send {
        stream! {
            let mut response = match self.send_with_retries().await {
                Ok(response) => response,
                Err(error) => {
                    yield Err(self.scrubbed(error));
                    return;
                }
            };
            if !self.encoded.left_out.is_empty() {
                yield Ok(ModelDelta::Notice(format!(
                    "the model's API has no place for `{}`; sent without",
                    self.encoded.left_out.join("`, `")
                )));
            }
            let timeouts = self.client.timeouts;
            let shown = self.endpoint.shown.clone();
            let mut decoder = AnswerDecoder::new(self.model.dialect, &*shown).cut_at(self.encoded.stops.clone());
            let mut deltas = Vec::new();
            let (mut what, mut limit) = match self.streamed {
                true => ("begin its answer", timeouts.first_byte),
                false => ("finish its answer", timeouts.whole),
            };
            let mut received = 0;
            loop {
                let read = match next_chunk(&mut response, &shown, what, limit).await {
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

    fn bytes(mut self) -> impl futures_core::Stream<Item = Result<bytes::Bytes, ModelError>> + Send {
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
                match next_chunk(&mut response, &self.endpoint.shown, "go on with its answer", idle).await {
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

    async fn send_with_retries(&mut self) -> Result<reqwest::Response, ModelError> {
        let mut pause = self.client.timeouts.retry_pause;
        let mut attempt = 0;
        let mut body = self.body();
        loop {
            let error = match self.send(body.clone()).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            // each time there is one field less, so this comes to an end
            if self.do_without(&error) {
                body = self.body();
                continue;
            }
            let wanted = match &error {
                ModelError::Unreachable { .. } if attempt == 0 => None,
                ModelError::RateLimited { retry_after, .. } => *retry_after,
                ModelError::Failed { retry_after, status: 500 | 502 | 503 | 504 | 529, .. } => *retry_after,
                _ => return Err(error),
            };
            if attempt == self.retries || wanted.is_some_and(|wanted| wanted > LONGEST_PAUSE) {
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

    fn body(&self) -> bytes::Bytes {
        self.encoded.body(&self.tools).into()
    }

    /// Leaves out the field that this error is about, now and in later requests; false where it is needed.
    fn do_without(&mut self, error: &ModelError) -> bool {
        let fields = &mut self.encoded.fields;
        let Some(field) = dispensable(error, fields, self.model.dialect, self.translated) else {
            return false;
        };
        if !apply(field, fields) {
            return false;
        }
        self.client.refused.remember(&self.upstream, field);
        self.encoded.left_out.extend(field.left_out().map(str::to_owned));
        debug!(model = self.model.name, ?field, "the upstream does not take this field; asking without it");
        true
    }

    async fn send(&self, body: bytes::Bytes) -> Result<reqwest::Response, ModelError> {
        self.endpoint.check_key(&self.model)?;
        let bytes = body.len();
        let mut request = self
            .client
            .clients
            .to(&self.endpoint.url, self.model.reach)
            .map_err(|error| self.unreachable_for(error.to_string()))?
            .post(&*self.endpoint.url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, self.endpoint.accept(self.streamed))
            .body(body);
        for (name, value) in self.endpoint.headers(&self.model, &self.encoded.headers) {
            // what cannot be sent is told when it is sent
            let sensitive = HeaderValue::try_from(&value).map(|mut value| {
                value.set_sensitive(true);
                value
            });
            request = match sensitive {
                Ok(value) => request.header(name, value),
                Err(_) => request.header(name, value),
            };
        }
        debug!(model = self.model.name, url = &*self.endpoint.shown, bytes, "asking the model");
        let timeouts = self.client.timeouts;
        let limit = if self.streamed { timeouts.first_byte } else { timeouts.whole };
        let response = match tokio::time::timeout(limit, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreachable(&error)),
            Err(_) => {
                return Err(ModelError::Timeout {
                    url: self.endpoint.shown.to_string(),
                    what: "begin its answer".into(),
                    limit,
                });
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let pause = retry_after(response.headers());
        let body = whole_body(response, &self.endpoint.shown, ERROR_WAIT).await.unwrap_or_default();
        Err(openai_chat::error_body(status.as_u16(), &body, &self.endpoint.shown, pause))
    }

    fn unreachable(&self, error: &reqwest::Error) -> ModelError {
        let refused = lf_egress::Refused::within(error).map(ToString::to_string);
        self.unreachable_for(refused.unwrap_or_else(|| reason(error)))
    }

    fn unreachable_for(&self, reason: String) -> ModelError {
        ModelError::Unreachable { url: self.endpoint.shown.to_string(), reason }
    }

    fn endless(&self) -> ModelError {
        ModelError::Garbled {
            url: self.endpoint.shown.to_string(),
            expected: "answer of at most 64 MiB".into(),
            found: format!("more than {ANSWER_LIMIT} bytes"),
        }
    }

    /// Upstreams repeat the key that they refuse; whoever asks us need not be who owns it.
    fn scrubbed(&self, mut error: ModelError) -> ModelError {
        let mut secrets: Vec<Secret> = self.model.secrets().iter().flat_map(Secret::forms).collect();
        // the longer first: one may hold another
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        let secrets: Vec<&str> = secrets.iter().map(Secret::expose).collect();
        let clean = |text: &mut String| *text = without(text, &secrets);
        match &mut error {
            ModelError::Unauthorized { message, .. }
            | ModelError::RateLimited { message, .. }
            | ModelError::Failed { message, .. } => clean(message),
            ModelError::Rejected { message, body, .. } => {
                clean(message);
                let has_secret = |text: &str| without(text, &secrets) != text;
                if let Some(body) = body.as_mut().filter(|body| has_secret(&body.to_string())) {
                    **body = serde_json::Value::Null;
                }
            }
            ModelError::Garbled { found: text, .. } | ModelError::Unreachable { reason: text, .. } => {
                clean(text);
            }
            ModelError::Timeout { .. } | ModelError::Unsupported(_) => {}
        }
        error
    }
}

#[cfg(test)]
mod tests;
