//! Whose API a model is asked through.

use crate::model::Dialect;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    Openai,
    Anthropic,
    Ollama,
    Gemini,
    Universal,
    Lemonade,
    Demo,
    Replay,
}

impl Provider {
    pub const ALL: [Self; 8] = [
        Self::Openai,
        Self::Anthropic,
        Self::Ollama,
        Self::Gemini,
        Self::Universal,
        Self::Lemonade,
        Self::Demo,
        Self::Replay,
    ];

    /// How its API speaks where the file does not say.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Anthropic => Dialect::Anthropic,
            Self::Gemini => Dialect::Gemini,
            Self::Openai | Self::Ollama | Self::Universal | Self::Lemonade | Self::Demo | Self::Replay => {
                Dialect::OpenaiChat
            }
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
            Self::Gemini => "gemini",
            Self::Universal => "universal",
            Self::Lemonade => "lemonade",
            Self::Demo => "demo",
            Self::Replay => "replay",
        }
    }
}
