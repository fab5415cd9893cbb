//! Asks Ollama's own `/api/chat`, and reads its answers.

mod answer;
mod messages;
mod request;

pub(crate) use answer::read_line;
pub(crate) use request::{encode, tools};

#[cfg(test)]
mod tests;
