//! Anthropic Messages, both ways.
//!
//! Upstream side: [`crate::upstream`] and [`crate::AnswerDecoder`]. Served side: [`decode_request`], [`EventEncoder`] for
//! a streamed answer, [`Completion`] for a whole one, [`error_reply`] and its neighbours, [`count_tokens`].
//!
//! What only Anthropic's own servers can use of a request is kept apart, under one reserved key, and reaches no other
//! upstream: `check_foreign` says what that leaves out, or refuses. From an Anthropic client to an Anthropic upstream
//! a request arrives as it was sent, but for this: fields that are null, false where that is the default, or empty are
//! not sent; a message that is a string is sent as one block of text, a system prompt of one plain block and a result of
//! one plain text as a string; texts without any words are not sent; what reached us wrong (results in the wrong place, ids
//! used twice, calls without a result) is put right. Facts are from Anthropic's API reference and from its guide for gateways.

mod answer;
mod blocks;
mod count;
mod encode;
mod encode_messages;
mod encode_parameters;
mod errors;
mod foreign;
mod gather;
mod history;
mod models;
mod parameters;
mod reply;
mod request;
mod shown;
mod stream;
mod thinking;

pub(crate) use answer::read_event;
pub use count::count_tokens;
pub(crate) use encode::{encode, is_native, tools};
pub use errors::{error_reply, internal_error_reply, request_error_reply, unknown_model_reply};
pub(crate) use foreign::check_foreign;
pub(crate) use gather::Gathered;
pub use models::{model, models};
pub use reply::Completion;
pub use request::{MessagesView, ThinkingView, decode_count_request, decode_request, keep_headers};
pub use stream::EventEncoder;

/// Key of every `rest` map, and of the parameters, for what only an Anthropic upstream takes. No other dialect sends it.
pub(crate) const ANTHROPIC_ONLY: &str = "$anthropic";

/// Key of [`ANTHROPIC_ONLY`] in the parameters for headers of the client's request that an Anthropic upstream gets: an
/// object of strings.
const HEADERS: &str = "headers";

/// Key of [`ANTHROPIC_ONLY`] in the parameters for the type of a tool that the request is about.
const NEEDED: &str = "$needed";

/// The signature of thinking blocks that no Anthropic model signed: clients demand one, Anthropic refuses this one.
const OWN_SIGNATURE: &str = "lf-unsigned";

#[cfg(test)]
mod tests;
