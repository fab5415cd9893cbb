//! Anthropic Messages, both ways.
//!
//! Upstream side: [`encode_request`] and [`crate::AnswerDecoder`]. Served side: [`decode_request`], [`EventEncoder`] for
//! a streamed answer, [`Completion`] for a whole one, [`error_reply`] and its neighbours, [`count_tokens`].
//!
//! What only Anthropic's own servers can use of a request is kept apart, under one reserved key, and reaches no other
//! upstream. Facts are from Anthropic's API reference and from its guide for gateways.

mod answer;
mod blocks;
mod count;
mod encode;
mod encode_messages;
mod errors;
mod history;
mod parameters;
mod reply;
mod request;
mod stream;

pub(crate) use answer::read_event;
pub use count::count_tokens;
pub use encode::{EncodeOptions, encode_request};
pub use errors::{error_reply, internal_error_reply, request_error_reply, unknown_model_reply};
pub use reply::Completion;
pub use request::{MessagesView, ThinkingView, decode_count_request, decode_request};
pub use stream::EventEncoder;

/// Key of every `rest` map, and of the parameters, for what only an Anthropic upstream takes. No other dialect sends it.
pub(crate) const ANTHROPIC_ONLY: &str = "$anthropic";

/// The signature of thinking blocks that no Anthropic model signed: clients demand one, Anthropic refuses this one.
const OWN_SIGNATURE: &str = "lf-unsigned";

#[cfg(test)]
mod tests;
