//! What models cost, and what they can be shown.

use serde::{Deserialize, Serialize};

use super::Provider;
use crate::model::Usage;

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Price {
    pub input: f64,
    pub output: f64,
    /// Input that came from the upstream's cache.
    pub cached: f64,
    /// Input that was written to it.
    pub cache_written: f64,
}

impl Price {
    /// Of models that run here, and cost nobody anything.
    pub const FREE: Self = Self { input: 0.0, output: 0.0, cached: 0.0, cache_written: 0.0 };

    /// In US dollars.
    pub fn of(&self, usage: &Usage) -> f64 {
        const MILLION: f64 = 1_000_000.0;
        let fresh = usage.input.saturating_sub(usage.cached).saturating_sub(usage.cache_written);
        let each = [
            (fresh, self.input),
            (usage.cached, self.cached),
            (usage.cache_written, self.cache_written),
            (usage.output, self.output),
        ];
        #[expect(clippy::cast_precision_loss, reason = "2^53 tokens are more than anybody pays for")]
        each.iter().map(|(tokens, price)| *tokens as f64 * price / MILLION).sum()
    }
}

/// What the names of models that take images have in them, where a provider serves both kinds.
const SEEING: [&str; 16] = [
    "vision",
    "llava",
    "-vl",
    "vl:",
    "2.5vl",
    "3vl",
    "gemma3",
    "gemma-3",
    "pixtral",
    "minicpm-v",
    "moondream",
    "llama4",
    "llama-4",
    "mistral-small3",
    "gpt-4o",
    "internvl",
];
/// Models of OpenAI's that take text alone.
const BLIND: [&str; 4] = ["gpt-3.5", "o1-mini", "o1-preview", "o3-mini"];

impl Provider {
    /// Whether a model of this name is shown images, where the file does not say. A model that is shown one and takes none
    /// costs the whole request; one that is not shown one is told that there was one.
    pub fn shows_images(self, model: &str) -> bool {
        let model = model.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| model.contains(word));
        match self {
            Self::Openai => !has(&BLIND),
            Self::Anthropic | Self::Gemini | Self::Replay => true,
            Self::Ollama | Self::Universal | Self::Lemonade => has(&SEEING),
            Self::Demo => false,
        }
    }

    /// The price where the file does not say: these ask nobody who could want money.
    pub fn price(self) -> Option<Price> {
        matches!(self, Self::Demo | Self::Replay).then_some(Price::FREE)
    }
}

#[cfg(test)]
mod tests;
