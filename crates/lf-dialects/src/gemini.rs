//! Asks Gemini's `generateContent` and `streamGenerateContent`, and reads their answers.
//!
//! The URL says the model and whether to stream; the body says neither.

mod answer;
mod contents;
mod request;

pub(crate) use answer::read_chunk;
pub(crate) use request::{encode, tools};

/// Must come back on the part it came with, or the next request is refused.
const SIGNATURE: &str = "thoughtSignature";
/// Key of a call's `rest`: what only this API knows of it.
const GEMINI_ONLY: &str = "$gemini";

#[cfg(test)]
mod tests;
