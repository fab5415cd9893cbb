//! Asks models: the adapters behind the [`ModelProvider`] port. Wire formats are `lf-dialects`'; here are
//! connections, timeouts and retries. And [`demo`] and [`replay`], which are no models at
//! all.

pub mod http;

mod endpoint;

mod tool_texts;

mod refused;

mod over_http;

pub mod circuit;

pub mod demo;

pub mod replay;

use std::sync::Arc;

use lf_core::project::Provider;
use lf_core::{Model, ModelError, ModelProvider, ModelRequest};

pub use http::{Client, Timeouts};
pub use lf_egress::Egress;
pub use over_http::ByteStream;

/// Attempts after the first one, where nobody else can answer.
const RETRIES: u32 = 2;

/// Who else can be asked when an upstream has trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// Nobody: the same one is asked again, twice, after a pause.
    Nobody,
    /// Another model, at once.
    Another,
}

/// The provider that asks this model. Nothing is connected yet.
///
/// # Errors
/// [`ModelError::Unsupported`] for a model that has no way to answer.
pub fn provider(
    model: &Arc<Model>,
    client: &Client,
    otherwise: Otherwise,
) -> Result<Arc<dyn ModelProvider>, ModelError> {
    match model.provider {
        Provider::Demo => Ok(Arc::new(demo::Demo)),
        Provider::Replay => match &model.cassette {
            Some(path) => Ok(Arc::new(replay::Replay::new(path.clone(), &model.model))),
            None => Err(ModelError::Unsupported(format!("model `{}` names no cassette", model.name))),
        },
        _ => {
            let retries = if otherwise == Otherwise::Nobody { RETRIES } else { 0 };
            Ok(Arc::new(over_http::OverHttp::new(model.clone(), client.clone(), retries)))
        }
    }
}

/// Asks an OpenAI-compatible endpoint and gives the bytes of its answer, undecoded: our own daemon tells more in them than
/// a model's answer.
pub fn ask_for_bytes(model: &Arc<Model>, client: &Client, request: &ModelRequest) -> ByteStream {
    over_http::OverHttp::new(model.clone(), client.clone(), RETRIES).bytes(request)
}
