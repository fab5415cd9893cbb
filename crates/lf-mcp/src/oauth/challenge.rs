//! What a server says along with 401 or 403 about the access it wants (RFC 6750, section 3; RFC 9728, section 5.1).

/// Longer headers are not read.
const MAX_HEADER: usize = 8 * 1024;
const MAX_SCOPES: usize = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(super) error: Option<String>,
    pub(super) scopes: Option<Vec<String>>,
    pub(super) resource_metadata: Option<String>,
    /// A token is what the server wants.
    pub(crate) is_bearer: bool,
}

impl Challenge {
    /// The `Bearer` challenge in a `WWW-Authenticate` header. What cannot be read says nothing.
    pub(crate) fn parse(header: &str) -> Self {
        let mut challenge = Self::default();
        if header.len() > MAX_HEADER {
            return challenge;
        }
        let mut is_bearer = false;
        let mut rest = Rest(header);
        while let Some(word) = rest.word() {
            let Some(value) = rest.value() else {
                is_bearer = word.eq_ignore_ascii_case("bearer");
                challenge.is_bearer |= is_bearer;
                continue;
            };
            if !is_bearer {
                continue;
            }
            match word.to_ascii_lowercase().as_str() {
                "error" => challenge.error = Some(value),
                "scope" => challenge.scopes = Some(scopes(&value)).filter(|scopes| !scopes.is_empty()),
                "resource_metadata" => challenge.resource_metadata = Some(value),
                _ => {}
            }
        }
        challenge
    }

    pub(super) fn wants_scopes(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// The words of a `scope`, each once, in their order (RFC 6749, section 3.3).
pub(super) fn scopes(text: &str) -> Vec<String> {
    let mut scopes: Vec<String> = Vec::new();
    let allowed = |word: &&str| word.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e));
    for word in text.split_whitespace().filter(allowed).take(MAX_SCOPES) {
        if !scopes.iter().any(|scope| scope == word) {
            scopes.push(word.to_owned());
        }
    }
    scopes
}

/// What is left to read.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn word(&mut self) -> Option<&'a str> {
        let text = self.0.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ',' | '=' | '"'));
        let end =
            text.find(|c: char| c.is_whitespace() || matches!(c, ',' | '=' | '"')).unwrap_or(text.len());
        self.0 = &text[end..];
        (end > 0).then(|| &text[..end])
    }

    /// What follows `=`, if that is next.
    fn value(&mut self) -> Option<String> {
        let text = self.0.trim_start().strip_prefix('=')?.trim_start();
        let Some(quoted) = text.strip_prefix('"') else {
            let end = text.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(text.len());
            self.0 = &text[end..];
            return Some(text[..end].to_owned());
        };
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    self.0 = &quoted[at + 1..];
                    return Some(value);
                }
                '\\' => value.extend(characters.next().map(|(_, c)| c)),
                c => value.push(c),
            }
        }
        self.0 = "";
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_challenge_is_found_among_others_and_quotes_are_taken_off() {
        let header = r#"Basic realm="a, Bearer scope=\"no\"", Bearer error="insufficient_scope", scope="a b a", resource_metadata="https://x/y", Digest qop=auth, scope=z"#;
        let challenge = Challenge::parse(header);
        assert!(challenge.wants_scopes() && challenge.is_bearer);
        assert!(!Challenge::parse("Basic realm=x").is_bearer);
        assert_eq!(challenge.scopes, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(challenge.resource_metadata.as_deref(), Some("https://x/y"));
    }

    #[test]
    fn what_cannot_be_read_says_nothing() {
        for header in
            ["", "Bearer", "Bearer =", "Bearer scope=", "Bearer scope=\"", "\"", "Basic YWJj==", "Bearer,,"]
        {
            let told = Challenge { is_bearer: false, ..Challenge::parse(header) };
            assert_eq!(told, Challenge::default(), "{header}");
        }
        assert_eq!(Challenge::parse(&format!("Bearer error=\"{}\"", "x".repeat(9000))), Challenge::default());
        assert_eq!(Challenge::parse("bearer Scope=read").scopes, Some(vec!["read".to_owned()]));
    }
}
