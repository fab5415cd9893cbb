//! Asks models: the adapters behind the [`ModelProvider`] port. Wire formats are `lf-dialects`'; here are
//! connections, timeouts and retries. And [`demo`], which is no model at all.

pub mod http;

mod openai;

pub mod demo;

use std::sync::Arc;

use lf_core::project::Provider;
use lf_core::{Model, ModelError, ModelProvider, ModelRequest};

pub use http::{Client, Timeouts};
pub use openai::ByteStream;

/// The provider that asks this model. Nothing is connected yet.
///
/// # Errors
/// [`ModelError::Unsupported`] for a provider whose API this version does not speak.
pub fn provider(model: &Arc<Model>, client: &Client) -> Result<Arc<dyn ModelProvider>, ModelError> {
    match model.provider {
        Provider::Openai | Provider::Ollama | Provider::Universal | Provider::Lemonade => {
            Ok(Arc::new(openai::OpenAiChat::new(model.clone(), client.clone())))
        }
        Provider::Demo => Ok(Arc::new(demo::Demo)),
        Provider::Anthropic | Provider::Gemini | Provider::Replay => Err(ModelError::Unsupported(format!(
            "model `{}`: provider `{}` cannot be asked by this version; an OpenAI-compatible endpoint of it can, with \
             `provider: openai` and its `base_url`",
            model.name,
            model.provider.name()
        ))),
    }
}

/// Asks an OpenAI-compatible endpoint and gives the bytes of its answer, undecoded: our own daemon tells more in them than
/// a model's answer.
pub fn ask_for_bytes(model: &Arc<Model>, client: &Client, request: &ModelRequest) -> ByteStream {
    openai::OpenAiChat::new(model.clone(), client.clone()).bytes(request)
}
