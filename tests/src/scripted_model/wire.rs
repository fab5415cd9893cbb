//! Which API a request is for.

/// One model API, told by the path alone, as the real ones are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    /// OpenAI Chat Completions: `…/chat/completions`.
    Chat,
    /// OpenAI Responses: `…/responses`.
    Responses,
    /// Anthropic Messages: `…/v1/messages`.
    Messages,
    /// Gemini: `…/models/MODEL:generateContent` and `…:streamGenerateContent`.
    Gemini,
    /// Ollama's own: `…/api/chat`.
    Ollama,
}

impl Wire {
    /// `None` where no API lives; `path` may have a query.
    pub fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        let last = path.rsplit('/').next().unwrap_or_default();
        if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else if path.ends_with("/responses") {
            Some(Self::Responses)
        } else if path.ends_with("/v1/messages") {
            Some(Self::Messages)
        } else if path.ends_with("/api/chat") {
            Some(Self::Ollama)
        } else if path.contains("/models/")
            && (last.ends_with(":generateContent") || last.ends_with(":streamGenerateContent"))
        {
            Some(Self::Gemini)
        } else {
            None
        }
    }
}
