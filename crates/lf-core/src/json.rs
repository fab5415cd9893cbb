//! The tolerant JSON reader: finds the end of a JSON value by reading it, says whether it repaired something, and
//! never completes what was cut.
//!
//! Models write JSON that is nearly right. What has one reading is read: single or typographic quotes, Python
//! literals, trailing commas, raw line breaks in strings, unquoted keys, comments, and one closer too many or too
//! few. What has more than one (an unescaped quote inside a string, a missing comma, a bare word, `NaN`) is refused,
//! with its position, so that the model can say it again.

mod reader;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use reader::{Push, Reader};

/// A value that was read, and how much of the text it took.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    pub value: Value,
    /// The byte after the value.
    pub end: usize,
    /// Whether the text was anything else than JSON.
    pub repaired: bool,
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The text ended first; more of it could still make a value.
    #[error("the text ends {}", if *in_string { "inside a string" } else { "before the value does" })]
    Incomplete { in_string: bool },
    /// No continuation makes this a value. `at` is the byte that does not fit.
    #[error("{problem}")]
    Invalid { at: usize, problem: &'static str },
}

/// Reads the value at the start of `text` (leading white space is skipped) and stops at its end.
///
/// # Errors
/// [`Unreadable::Incomplete`] when more text is needed (nothing is closed on the writer's behalf here),
/// [`Unreadable::Invalid`] when no continuation would help.
pub fn read_value(text: &str) -> Result<Reading, Unreadable> {
    let mut reader = Reader::new();
    for (at, character) in text.char_indices() {
        let end = match reader.push(character) {
            Push::More => continue,
            Push::Done => at + character.len_utf8(),
            Push::DoneBefore => at,
            Push::Invalid(problem) => return Err(Unreadable::Invalid { at, problem }),
        };
        return Ok(Reading { value: reader.take(), end, repaired: reader.repaired() });
    }
    reader.finish(0)?;
    Ok(Reading { value: reader.take(), end: text.len(), repaired: reader.repaired() })
}

/// Reads the complete argument text of a call: nothing and `null` mean `{}`, an object inside a JSON string is
/// unwrapped once, what has one reading is repaired.
///
/// # Errors
/// A lowercase fragment for the model to read, with the character position (from 1) where there is one. Text that is
/// cut inside a string is refused, as is anything that is not an object.
pub fn read_object(raw: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(raw) {
        Ok(object) => Ok(object),
        Err(_) => object_of(raw, Wrapping::Allowed),
    }
}

#[derive(Clone, Copy)]
enum Wrapping {
    Allowed,
    Removed,
}

fn object_of(raw: &str, wrapping: Wrapping) -> Result<Map<String, Value>, String> {
    let text = without_fence(raw);
    if text.is_empty() {
        return Ok(Map::new());
    }
    match (read_whole(text)?, wrapping) {
        (Value::Object(object), _) => Ok(object),
        (Value::Null, _) => Ok(Map::new()),
        (Value::String(inner), Wrapping::Allowed) => object_of(&inner, Wrapping::Removed)
            .map_err(|problem| format!("the arguments are a string that holds no JSON object: {problem}")),
        (other, _) => Err(format!("expected a JSON object, got {}", kind(&other))),
    }
}

/// One value that takes the whole text, with at most one closer missing or any number of them left over.
fn read_whole(text: &str) -> Result<Value, String> {
    let mut reader = Reader::new();
    for (at, character) in text.char_indices() {
        let end = match reader.push(character) {
            Push::More => continue,
            Push::Done => at + character.len_utf8(),
            Push::DoneBefore => at,
            Push::Invalid(problem) => return Err(format!("{problem} at character {}", position(text, at))),
        };
        let rest = text[end..]
            .trim_start_matches(|c: char| c.is_whitespace() || (reader.balanced() && is_closer(c)));
        return match rest.chars().next() {
            None => Ok(reader.take()),
            Some(_) => {
                let at = position(text, text.len() - rest.len());
                Err(format!("unexpected text after the value at character {at}"))
            }
        };
    }
    match reader.finish(1) {
        Ok(()) => Ok(reader.take()),
        Err(unreadable) => Err(format!("{unreadable}, after character {}", text.chars().count())),
    }
}

/// The text without white space and the code fence around it.
fn without_fence(raw: &str) -> &str {
    let text = raw.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let Some(inner) = text.strip_prefix("```").and_then(|inner| inner.strip_suffix("```")) else {
        return text;
    };
    inner.trim_start_matches(|c: char| c.is_ascii_alphanumeric()).trim()
}

fn is_closer(character: char) -> bool {
    matches!(character, '}' | ']')
}

fn position(text: &str, at: usize) -> usize {
    text[..at].chars().count() + 1
}

/// What a value is, with its article, for messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
