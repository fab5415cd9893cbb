//! A value that must not be shown.

use std::fmt;

/// A header value, key or argument that may be confidential. `Debug` and `Display` never show it.
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
    fn known_secrets_are_taken_out_of_texts() {
        assert_eq!(without("bad key sk-12345678.", &["sk-12345678", "a"]), "bad key [secret].");
    }
}
