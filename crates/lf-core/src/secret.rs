//! A value that must not be shown.

use std::fmt::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde::{Deserialize, Deserializer};
use zeroize::Zeroize as _;

/// A header value, key or argument that may be confidential. `Debug` and `Display` never show it, and it is overwritten
/// when it is dropped. It can be read, and there is no way to write it by accident.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Secret(Box<str>);

impl Secret {
    pub fn new(value: impl Into<Box<str>>) -> Self {
        Self(value.into())
    }

    /// The value itself: only for handing it to the peer it is meant for.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The value, and how it looks inside of JSON, a URL, hexadecimal and base64: whoever repeats a secret may repeat it
    /// in any of these. Base64 has three looks, by what stands before.
    pub fn forms(&self) -> Vec<Self> {
        let value = self.expose();
        let mut forms = vec![value.to_owned()];
        let json = serde_json::to_string(value).unwrap_or_default();
        forms.push(json.trim_matches('"').to_owned());
        let (mut percent, mut lower, mut upper) = (String::new(), String::new(), String::new());
        for byte in value.bytes() {
            let _ = match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    percent.write_char(char::from(byte))
                }
                other => write!(percent, "%{other:02X}"),
            };
            let _ = write!(lower, "{byte:02x}");
            let _ = write!(upper, "{byte:02X}");
        }
        let others = as_others_write(value, &json, &percent);
        forms.extend([percent, lower, upper]);
        for before in 0..3 {
            let bytes = [&[0; 2][..before], value.as_bytes()].concat();
            // characters that hold nothing of what stands around it
            let (start, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
            for alphabet in [STANDARD, URL_SAFE] {
                forms.extend(alphabet.encode(&bytes).get(start..end).map(str::to_owned));
            }
        }
        forms.extend(others);
        let mut seen: Vec<Self> = Vec::with_capacity(forms.len());
        for form in forms.into_iter().map(Self::from) {
            if !seen.contains(&form) {
                seen.push(form);
            }
        }
        seen
    }
}

/// As PHP and Go write JSON; URLs in lower case, with `/` left as it is, and with `+` for a space.
fn as_others_write(value: &str, json: &str, percent: &str) -> Vec<String> {
    let json = json.trim_matches('"');
    let go = [('&', "\\u0026"), ('<', "\\u003c"), ('>', "\\u003e")];
    let go = go.iter().fold(json.to_owned(), |text, (c, escape)| text.replace(*c, escape));
    let lower = |percent: &str| {
        let mut parts = percent.split('%');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            let (digits, rest) = part.split_at(part.len().min(2));
            format!("{text}%{}{rest}", digits.to_ascii_lowercase())
        })
    };
    let quoted = percent.replace("%2F", "/");
    let form = percent.replace("%20", "+");
    let urls = [lower(percent), lower(&quoted), lower(&form), quoted, form];
    let texts = [json.replace('/', "\\/"), go, value.replace(' ', "+")];
    texts.into_iter().chain(urls).collect()
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self::new(value)
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self::new(value)
    }
}

/// A URL without what may be confidential in it: user and password, and the values of the query.
pub fn shown_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match path.split_once('?') {
        Some((path, query)) => {
            let names: Vec<&str> =
                query.split('&').map(|pair| pair.split('=').next().unwrap_or(pair)).collect();
            format!("{scheme}://{host}{path}?{}", names.join("&"))
        }
        None => format!("{scheme}://{host}{path}"),
    }
}

/// The same without these values, either.
pub fn shown_url_without(url: &str, values: &[Secret]) -> String {
    without(&shown_url(url), &values.iter().map(Secret::expose).collect::<Vec<_>>())
}

/// What of a URL nobody is shown: user and password, and the values of the query.
pub fn hidden_in_url(url: &str) -> Vec<Secret> {
    let Some((_, rest)) = url.split_once("://") else { return Vec::new() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let mut hidden = Vec::new();
    if let Some((credentials, _)) = authority.rsplit_once('@') {
        hidden.push(credentials);
        hidden.extend(credentials.split_once(':').map(|(_, password)| password));
    }
    let query = path.split_once('?').map_or("", |(_, query)| query);
    hidden.extend(query.split(['&', '#']).filter_map(|pair| Some(pair.split_once('=')?.1)));
    hidden.into_iter().map(Secret::from).collect()
}

/// The text with every one of these values taken out. Values of less than 8 bytes are left: they would blank out half
/// of every message.
pub fn without(text: &str, secrets: &[&str]) -> String {
    const SHORTEST: usize = 8;
    secrets
        .iter()
        .filter(|secret| secret.len() >= SHORTEST)
        .fold(text.to_owned(), |text, secret| text.replace(secret, "[secret]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        assert_eq!(shown_url("http://user:pass@host:1/v1?key=abc&v=2#x"), "http://host:1/v1?key&v");
        assert_eq!(shown_url("http://host/v1"), "http://host/v1");
        assert_eq!(shown_url("no url"), "no url");
    }

    #[test]
    fn a_secret_is_known_in_every_form_it_is_repeated_in() {
        let secret = Secret::from("s3cr\"et/+ä key");
        for text in [
            "s3cr\"et/+ä key",
            r#"s3cr\"et/+ä key"#,
            "s3cr%22et%2F%2B%C3%A4%20key",
            "733363722265742f2bc3a4206b6579",
            "733363722265742F2BC3A4206B6579",
            r#"s3cr\"et\/+ä key"#,
            "s3cr%22et%2f%2b%c3%a4%20key",
            "s3cr%22et/%2B%C3%A4%20key",
            "s3cr%22et%2F%2B%C3%A4+key",
        ] {
            assert!(secret.forms().iter().any(|form| form.expose() == text), "{text}");
        }
        assert!(
            Secret::from("a&b<c>d").forms().iter().any(|form| form.expose() == r"a\u0026b\u003cc\u003ed")
        );
        for before in ["", "u", "us", "user:"] {
            for alphabet in [STANDARD, URL_SAFE] {
                let encoded = alphabet.encode(format!("{before}s3cr\"et/+ä key:after"));
                let forms = secret.forms();
                let shown = without(&encoded, &forms.iter().map(Secret::expose).collect::<Vec<_>>());
                assert!(shown.contains("[secret]") && shown.len() < encoded.len(), "{before}: {shown}");
            }
        }
    }

    #[test]
    fn what_a_url_hides_is_known() {
        let hidden = hidden_in_url("http://user:pass@host:1/v1?key=abc&v=2#x");
        assert_eq!(hidden, ["user:pass", "pass", "abc", "2"].map(Secret::from));
        assert_eq!(hidden_in_url("http://host/a@b?c"), []);
    }

    #[test]
    fn known_secrets_are_taken_out_of_texts() {
        assert_eq!(without("bad key sk-12345678.", &["sk-12345678", "a"]), "bad key [secret].");
    }
}
