//! What a provider means where the file is silent.

use lf_core::Secret;
use lf_core::model::Dialect;
use lf_core::project::Provider;
use url::Url;

use crate::raw::{RawApi, RawProvider};
use crate::variables::Variables;

const OLLAMA: &str = "http://localhost:11434";

pub(super) fn provider(raw: RawProvider) -> Provider {
    match raw {
        RawProvider::Openai => Provider::Openai,
        RawProvider::Anthropic => Provider::Anthropic,
        RawProvider::Ollama => Provider::Ollama,
        RawProvider::Gemini => Provider::Gemini,
        RawProvider::Universal => Provider::Universal,
        RawProvider::Lemonade => Provider::Lemonade,
        RawProvider::Demo => Provider::Demo,
        RawProvider::Replay => Provider::Replay,
    }
}

pub(super) fn dialect(raw: RawApi) -> Dialect {
    match raw {
        RawApi::ChatCompletions => Dialect::OpenaiChat,
        RawApi::Responses => Dialect::OpenaiResponses,
        RawApi::Messages => Dialect::Anthropic,
        RawApi::GenerateContent => Dialect::Gemini,
        RawApi::Ollama => Dialect::Ollama,
    }
}

/// `variable` is asked for what the machine says of its providers.
pub(super) fn base_url(provider: Provider, variable: impl Fn(&str) -> Option<String>) -> String {
    match provider {
        Provider::Openai => "https://api.openai.com/v1".to_owned(),
        Provider::Anthropic => "https://api.anthropic.com".to_owned(),
        Provider::Gemini => "https://generativelanguage.googleapis.com/v1beta".to_owned(),
        Provider::Ollama => {
            let host = variable("OLLAMA_HOST").and_then(|host| ollama_host(&host));
            format!("{}/v1", host.as_deref().unwrap_or(OLLAMA))
        }
        Provider::Lemonade => "http://127.0.0.1:11534/api/v1".to_owned(),
        Provider::Universal => "http://127.0.0.1:11540/v1".to_owned(),
        Provider::Demo | Provider::Replay => String::new(),
    }
}

/// Ollama's own reading of its variable: the scheme and the port may be missing, and the address it listens on may be
/// the one that means "every interface".
fn ollama_host(host: &str) -> Option<String> {
    let host = host.trim();
    let (given, has_scheme) = match host.contains("://") {
        true => (host.to_owned(), true),
        false => (format!("http://{host}"), false),
    };
    let mut url = Url::parse(&given).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    if matches!(url.host_str(), Some("0.0.0.0" | "[::]")) {
        url.set_host(Some("localhost")).ok()?;
    }
    // without a scheme the port is Ollama's; with one it is the scheme's
    if !has_scheme && url.port().is_none() && !host.contains(":80") {
        url.set_port(Some(11434)).ok()?;
    }
    Some(url.as_str().trim_end_matches('/').to_owned())
}

/// The variables that usually hold a provider's key.
pub(super) fn variables(provider: Provider) -> &'static [&'static str] {
    match provider {
        Provider::Openai => &["OPENAI_API_KEY"],
        Provider::Anthropic => &["ANTHROPIC_API_KEY"],
        Provider::Gemini => &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        Provider::Ollama => &["OLLAMA_API_KEY"],
        Provider::Lemonade => &["LEMONADE_API_KEY"],
        Provider::Universal => &["UNIVERSAL_API_KEY"],
        Provider::Demo | Provider::Replay => &[],
    }
}

/// What the provider's usual variable holds, with its name, or what a local runtime takes in its place.
pub(super) fn api_key(
    provider: Provider,
    variables: &Variables<'_>,
) -> Option<(Option<&'static str>, Secret)> {
    let fallback = match provider {
        Provider::Ollama => Some("ollama"),
        Provider::Lemonade => Some("lemonade"),
        Provider::Universal => Some("universal"),
        Provider::Openai | Provider::Anthropic | Provider::Gemini | Provider::Demo | Provider::Replay => None,
    };
    let found = self::variables(provider).iter().find_map(|name| Some((Some(*name), variables.usual(name)?)));
    let found = found.filter(|(_, key)| super::is_header_value(key));
    let found = found.or_else(|| Some((None, fallback?.to_owned())));
    found.map(|(name, key)| (name, Secret::from(key)))
}

/// Why this is no URL to talk to, as a fragment.
pub(super) fn url_problem(text: &str) -> Option<String> {
    match Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            Some("its scheme is neither `http` nor `https`".to_owned())
        }
        Ok(url) if url.host_str().is_none_or(str::is_empty) => Some("it names no host".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_host_may_lack_scheme_and_port() {
        let cases = [
            ("127.0.0.1:11435", "http://127.0.0.1:11435"),
            ("gpu-box", "http://gpu-box:11434"),
            ("0.0.0.0", "http://localhost:11434"),
            ("0.0.0.0:8080", "http://localhost:8080"),
            ("gpu-box:80", "http://gpu-box"),
            ("https://ollama.example.com/", "https://ollama.example.com"),
            ("http://ollama.example.com:11434/proxy", "http://ollama.example.com:11434/proxy"),
        ];
        for (given, expected) in cases {
            assert_eq!(ollama_host(given).as_deref(), Some(expected), "{given}");
        }
        assert_eq!(ollama_host("ftp://x"), None);
        assert_eq!(ollama_host(":::"), None);
    }
}
