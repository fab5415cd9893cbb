//! What the model has sealed: reasoning that only it can read, and that must come back as it was.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::asked::{Asked, Called};
use super::reply::Answer;
use super::wire::Wire;

/// Opaque to everybody else, and different for different texts.
pub(super) fn seal(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    STANDARD.encode(format!("sealed {:016x}", hasher.finish()))
}

/// Whether a seal is one of ours, not one that a client brought along.
pub(super) fn is_ours(text: &str) -> bool {
    STANDARD.decode(text).is_ok_and(|bytes| bytes.starts_with(b"sealed "))
}

/// The seal on Gemini's calls; the first call of each answer has one.
pub(super) fn call_seal(name: &str, arguments: &str) -> String {
    seal(&format!("{name} {arguments}"))
}

/// By API and call, the seal that has to come back with the call.
#[derive(Default)]
pub(super) struct Memory(HashMap<(Wire, String), String>);

impl Memory {
    /// Keeps what an answer seals; its names are resolved and its ids are filled in.
    pub(super) fn keep(&mut self, wire: Wire, answer: &Answer) {
        match wire {
            Wire::Chat | Wire::Ollama => {}
            Wire::Responses | Wire::Messages => {
                if !answer.reasoning.is_empty() {
                    let seals =
                        answer.calls.iter().map(|call| ((wire, call.id.clone()), seal(&answer.reasoning)));
                    self.0.extend(seals);
                }
            }
            Wire::Gemini => {
                if let Some(call) = answer.calls.first() {
                    let seal = call_seal(&call.name, &call.arguments);
                    self.0.insert((wire, format!("{} {}", call.name, call.arguments)), seal);
                }
            }
        }
    }

    /// What a request does not bring back.
    pub(super) fn problems(&self, wire: Wire, asked: &Asked) -> Vec<String> {
        let problem = |call: &Called| {
            let key = match wire {
                Wire::Gemini => format!("{} {}", call.name, call.arguments),
                _ => call.id.clone(),
            };
            let seal = self.0.get(&(wire, key))?;
            (call.seal.as_ref() != Some(seal)).then(|| {
                format!(
                    "the call `{}` of `{}` comes back without the reasoning sealed with it",
                    call.id, call.name
                )
            })
        };
        asked.calls().filter_map(problem).collect()
    }
}
