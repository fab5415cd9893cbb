//! OpenAI Chat Completions, both ways.
//!
//! Upstream side: [`crate::upstream`] and [`crate::AnswerDecoder`]. Served side: [`decode_request`], [`ChunkEncoder`]
//! for a streamed answer, [`Completion`] for a whole one. Errors: [`error_body`] reads an upstream's,
//! [`error_reply`] and its neighbours write ours.

mod chunk;
mod errors;
mod reply;
mod request;
mod served;
mod served_message;
mod usage;
mod wire;

pub(crate) use chunk::read_chunk;
pub(crate) use errors::upstream_error;
pub use errors::{
    ErrorReply, error_body, error_reply, internal_error_reply, request_error_reply, unknown_model_reply,
};
pub use reply::{ChunkEncoder, Completion, LfEvents, call_progress, lf_event, models};
pub use request::CallIds;
pub(crate) use request::{encode, tools};
pub(crate) use served::{EXAMPLE, body_object, boolean};
pub use served::{RequestError, ViewOptions, decode_request};

#[cfg(test)]
mod tests;
