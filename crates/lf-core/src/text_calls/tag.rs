//! Tags with names and attributes in them.

use super::format::Trim;
use super::marks::{self, Seen};

/// Bytes of a tag with a name in it, and of a key.
pub(super) const MAX_TAG: usize = 512;

/// What stands between `open` and `end`, and the length of all three; or what is known without it. The name of a tag
/// ends where `open` does, so that `<parameters>` is no `<parameter …>`.
pub(super) fn tag_until<'a>(rest: &'a str, open: &str, end: &str) -> Result<(&'a str, usize), Seen> {
    match marks::starts(rest, open) {
        Seen::Yes(length) => {
            let all = &rest[length..];
            let inner = near(all, end);
            let named = open.ends_with('=') || inner.starts_with(char::is_whitespace);
            // an argument's tag whose end is missing ends with its line
            let line = if open.ends_with('=') { inner.find('\n').unwrap_or(usize::MAX) } else { usize::MAX };
            match inner.find(end) {
                _ if !named && !inner.is_empty() => Err(Seen::No),
                Some(at) if at <= MAX_TAG && at < line => Ok((&inner[..at], length + at + end.len())),
                _ if line <= MAX_TAG => Ok((&inner[..line], length + line)),
                // `end` may have begun before the limit
                _ if all.len() >= MAX_TAG + end.len() => Err(Seen::No),
                _ => Err(Seen::More),
            }
        }
        other => Err(other),
    }
}

/// Where an `end` that is near enough must be: what is looked through once for each tag must not be the whole text.
pub(super) fn near<'a>(text: &'a str, end: &str) -> &'a str {
    &text[..text.floor_char_boundary(MAX_TAG + end.len())]
}

/// The value of an attribute, its entities resolved.
pub(super) fn attribute(tag: &str, key: &str) -> Option<String> {
    let mut rest = tag;
    while let Some((name, after)) = rest.split_once('=') {
        let after = after.trim_start();
        let quote = after.chars().next().filter(|quote| matches!(quote, '"' | '\''));
        let (value, next) = match quote {
            Some(quote) => after[1..].split_once(quote)?,
            None => {
                let end = after.find(char::is_whitespace).unwrap_or(after.len());
                after.split_at(end)
            }
        };
        if name.trim() == key {
            return Some(
                value
                    .replace("&quot;", "\"")
                    .replace("&apos;", "'")
                    .replace("&lt;", "<")
                    .replace("&gt;", ">")
                    .replace("&amp;", "&"),
            );
        }
        rest = next;
    }
    None
}

pub(super) fn trimmed(text: &str, trim: Trim) -> &str {
    let text = match trim {
        Trim::Nothing => return text,
        Trim::All => text.trim(),
        Trim::LineBreak => {
            let text = text.strip_prefix("\r\n").or_else(|| text.strip_prefix('\n')).unwrap_or(text);
            text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text)
        }
    };
    let data = text.trim().strip_prefix("<![CDATA[").and_then(|data| data.strip_suffix("]]>"));
    data.unwrap_or(text)
}
