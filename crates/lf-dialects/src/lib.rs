//! Model APIs and the core's values, both directions: pure codecs without IO, clock or runtime.
//!
//! [`openai_chat`] speaks OpenAI Chat Completions as a client (ask a model) and as a server (be asked),
//! [`anthropic_messages`] serves Anthropic Messages. The other dialects read answers so far. [`AnswerDecoder`] is the one way from an upstream's bytes to
//! [`ModelDelta`](lf_core::ModelDelta)s, whether the upstream streamed or not.

pub mod sse;

mod assemble;

pub mod answer;

pub mod openai_chat;

pub mod anthropic_messages;

pub mod openai_responses;

mod gemini;

mod ollama;

mod ai_sdk;

pub mod schema;

pub mod upstream;

#[cfg(test)]
mod any_turn;

pub use answer::{AnswerDecoder, Dialect};
