//! Where a model's API is, and what each dialect wants beside the body.

use std::sync::Arc;

use lf_core::model::Dialect;
use lf_core::secret::shown_url_without;
use lf_core::{Model, ModelError, ModelRequest};
use lf_dialects::openai_chat::CallIds;
use lf_dialects::upstream::UpstreamOptions;

/// The version of Anthropic's API that is spoken where the client names none.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Hosts that take nobody without a key, with the variable that usually has it: asking them would only say so later.
const WANT_KEY: [(&str, &str); 3] = [
    ("https://api.openai.com/", "OPENAI_API_KEY"),
    ("https://api.anthropic.com/", "ANTHROPIC_API_KEY"),
    ("https://generativelanguage.googleapis.com/", "GEMINI_API_KEY"),
];

/// The most tools that a request to these may have; other upstreams say so themselves.
///
/// OpenAI and Azure answer `array_above_max_length`, Groq "maximum number of items is 128" (`ha-groq#25`), xAI takes 200
/// (`opencode#28911`), Gemini 512 (`gemini-cli#19083`).
const MOST_TOOLS: [(&str, usize); 5] = [
    ("api.openai.com", 128),
    ("openai.azure.com", 128),
    ("api.groq.com", 128),
    ("api.x.ai", 200),
    ("generativelanguage.googleapis.com", 512),
];

/// One model's URL for one way of asking.
pub(crate) struct Endpoint {
    dialect: Dialect,
    pub(crate) url: Arc<str>,
    /// The same for errors and logs.
    pub(crate) shown: Arc<str>,
}

impl Endpoint {
    pub(crate) fn of(model: &Model, streamed: bool) -> Self {
        let url = url(model, streamed);
        let shown = shown_url_without(&url, &model.in_url).into();
        Self { dialect: model.dialect, url: url.into(), shown }
    }

    /// What is known of an upstream by its name: DeepSeek's thinking models demand their reasoning back inside a tool
    /// loop, Mistral takes only ids of its own form.
    pub(crate) fn options(&self, model: &Model) -> UpstreamOptions {
        let names = |word: &str| model.base_url.contains(word) || model.model.to_lowercase().contains(word);
        UpstreamOptions {
            replay_reasoning: names("deepseek"),
            call_ids: match model.base_url.contains("mistral.ai") {
                true => CallIds::NineAlphanumeric,
                false => CallIds::AtMost40,
            },
            // others check the shape of OpenAI's own answers; OpenAI refuses ids that it has not stored
            message_ids: self.dialect == Dialect::OpenaiResponses
                && !["api.openai.com", "azure.com"].iter().any(|host| model.base_url.contains(host)),
            ..UpstreamOptions::default()
        }
    }

    /// Says before asking what is sure to be refused.
    pub(crate) fn check(&self, model: &Model, request: &ModelRequest) -> Result<(), ModelError> {
        let count = request.tools.len();
        match MOST_TOOLS.iter().find(|(host, most)| count > *most && self.url.contains(host)) {
            None => Ok(()),
            Some((host, most)) => Err(ModelError::Unsupported(format!(
                "model `{}`: {host} takes at most {most} tools in one request, and this one has {count}; list fewer \
                 `mcp_servers` for the model, or narrow a server's `tools: {{allow: […]}}`",
                model.name
            ))),
        }
    }

    pub(crate) fn check_key(&self, model: &Model) -> Result<(), ModelError> {
        let missing = WANT_KEY.iter().find(|(host, _)| model.api_key.is_none() && self.url.starts_with(host));
        match missing {
            None => Ok(()),
            Some((_, variable)) => Err(ModelError::Unauthorized {
                url: self.shown.to_string(),
                status: 401,
                message: format!("model `{}` has no `api_key`, and {variable} is not set", model.name),
            }),
        }
    }

    pub(crate) fn accept(&self, streamed: bool) -> &'static str {
        match (streamed, self.dialect) {
            (false, _) => "application/json",
            (true, Dialect::Ollama) => "application/x-ndjson, application/json",
            (true, _) => "text/event-stream, application/json",
        }
    }

    /// The key, the API's version, and what the client sent for an upstream of its own dialect.
    pub(crate) fn headers(&self, model: &Model, given: &[(String, String)]) -> Vec<(String, String)> {
        let mut headers = Vec::with_capacity(2 + given.len());
        if let Some(key) = &model.api_key {
            headers.push(match self.dialect {
                Dialect::Anthropic => ("x-api-key".to_owned(), key.expose().to_owned()),
                Dialect::Gemini => ("x-goog-api-key".to_owned(), key.expose().to_owned()),
                _ => ("authorization".to_owned(), format!("Bearer {}", key.expose())),
            });
        }
        headers.extend(given.iter().cloned());
        if self.dialect == Dialect::Anthropic && !given.iter().any(|(name, _)| name == "anthropic-version") {
            headers.push(("anthropic-version".to_owned(), ANTHROPIC_VERSION.to_owned()));
        }
        headers
    }
}

/// The path goes before a query: gateways carry versions and keys in one.
fn url(model: &Model, streamed: bool) -> String {
    let (base, query) = match model.base_url.split_once('?') {
        Some((base, query)) => (base.trim_end_matches('/'), Some(query)),
        None => (model.base_url.as_str(), None),
    };
    let (path, own_query) = match model.dialect {
        Dialect::OpenaiChat | Dialect::AiSdk => ("/chat/completions".to_owned(), None),
        Dialect::OpenaiResponses => ("/responses".to_owned(), None),
        // SDKs of this API name the host alone, gateways often with its version
        Dialect::Anthropic if base.ends_with("/v1") => ("/messages".to_owned(), None),
        Dialect::Anthropic => ("/v1/messages".to_owned(), None),
        Dialect::Gemini => {
            let name = model.model.strip_prefix("models/").unwrap_or(&model.model);
            let model = if name.contains('/') { name.to_owned() } else { format!("models/{name}") };
            match streamed {
                true => (format!("/{model}:streamGenerateContent"), Some("alt=sse")),
                false => (format!("/{model}:generateContent"), None),
            }
        }
        Dialect::Ollama => ("/api/chat".to_owned(), None),
    };
    let base = match model.dialect {
        // the compatible endpoint's base, which is the provider's default
        Dialect::Ollama => base.strip_suffix("/v1").unwrap_or(base),
        _ => base,
    };
    let query: Vec<&str> = query.into_iter().chain(own_query).collect();
    match query.is_empty() {
        true => format!("{base}{path}"),
        false => format!("{base}{path}?{}", query.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use lf_core::project::Provider;

    use super::*;

    fn url_of(provider: Provider, dialect: Dialect, base: &str, streamed: bool) -> String {
        let model = Model { dialect, ..Model::new("m", provider, "big", base) };
        url(&model, streamed)
    }

    #[test]
    fn every_dialect_has_its_path() {
        let cases = [
            (Provider::Openai, Dialect::OpenaiChat, "https://a/v1", "https://a/v1/chat/completions"),
            (
                Provider::Openai,
                Dialect::OpenaiChat,
                "https://a/v1/?version=1",
                "https://a/v1/chat/completions?version=1",
            ),
            (Provider::Openai, Dialect::OpenaiResponses, "https://a/v1", "https://a/v1/responses"),
            (Provider::Anthropic, Dialect::Anthropic, "https://a", "https://a/v1/messages"),
            (Provider::Anthropic, Dialect::Anthropic, "https://a/v1", "https://a/v1/messages"),
            (
                Provider::Gemini,
                Dialect::Gemini,
                "https://a/v1beta?key=k",
                "https://a/v1beta/models/big:streamGenerateContent?key=k&alt=sse",
            ),
            (Provider::Ollama, Dialect::Ollama, "http://a:11434/v1", "http://a:11434/api/chat"),
        ];
        for (provider, dialect, base, expected) in cases {
            assert_eq!(url_of(provider, dialect, base, true), expected);
        }
        let whole = url_of(Provider::Gemini, Dialect::Gemini, "https://a/v1beta", false);
        assert_eq!(whole, "https://a/v1beta/models/big:generateContent");
    }

    #[test]
    fn more_tools_than_the_api_takes_are_refused_by_number() {
        let model = Model::new("m", Provider::Openai, "gpt", "https://api.openai.com/v1");
        let spec = lf_core::model::ToolSpec {
            name: "t".to_owned(),
            description: None,
            schema: lf_core::tool_set::empty_schema(),
            rest: serde_json::Map::new(),
        };
        let request =
            |count| ModelRequest { tools: vec![spec.clone(); count].into(), ..ModelRequest::default() };
        let endpoint = Endpoint::of(&model, true);
        assert_eq!(endpoint.check(&model, &request(128)), Ok(()));
        let refusal = endpoint.check(&model, &request(129)).expect_err("too many").to_string();
        assert!(refusal.contains("at most 128") && refusal.contains("129"), "{refusal}");
        let local = Model::new("m", Provider::Openai, "gpt", "http://127.0.0.1:1234/v1");
        assert_eq!(Endpoint::of(&local, true).check(&local, &request(500)), Ok(()));
    }
}
