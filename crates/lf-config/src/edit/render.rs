//! Values as YAML text.

use serde_json::Value as Json;
use serde_yaml::granit_parser::ScalarStyle;

use crate::node::meaning;

/// Words that YAML 1.1 readers take for something else than text.
const OLD_WORDS: [&str; 8] = ["y", "n", "yes", "no", "on", "off", "true", "false"];
/// A list of scalars up to this many bytes stands on one line.
const SHORT: usize = 72;

/// In lines whose first begins at this column; all others are indented to it.
pub(super) fn block(value: &Json, column: usize) -> String {
    let separator = format!("\n{:column$}", "");
    match value {
        Json::Object(map) if !map.is_empty() => {
            let entries =
                map.iter().map(|(name, value)| format!("{}:{}", key(name), after_key(value, column)));
            entries.collect::<Vec<_>>().join(&separator)
        }
        Json::Array(items) if !items.is_empty() => {
            let items = items.iter().map(|item| format!("- {}", block(item, column + 2)));
            items.collect::<Vec<_>>().join(&separator)
        }
        value => inline(value, false),
    }
}

/// What follows the colon of a key at this column.
pub(super) fn after_key(value: &Json, column: usize) -> String {
    let inner = column + 2;
    match value {
        Json::Object(map) if !map.is_empty() => format!("\n{:inner$}{}", "", block(value, inner)),
        Json::Array(items) if !items.is_empty() => {
            let line = inline(value, false);
            let plain = items.iter().all(|item| !item.is_array() && !item.is_object());
            match plain && line.len() <= SHORT {
                true => format!(" {line}"),
                false => format!("\n{:inner$}{}", "", block(value, inner)),
            }
        }
        Json::String(text) => literal(text, column).unwrap_or_else(|| format!(" {}", inline(value, false))),
        value => format!(" {}", inline(value, false)),
    }
}

/// Lines of text as lines, where that loses nothing.
pub(super) fn literal(text: &str, column: usize) -> Option<String> {
    let fits = |line: &str| !line.ends_with([' ', '\t']) && line.chars().all(|c| c == '\t' || printable(c));
    let body = text.strip_suffix('\n').unwrap_or(text);
    if !body.contains('\n') || body.starts_with([' ', '\n', '\t']) || body.ends_with('\n') {
        return None;
    }
    if !body.split('\n').all(fits) {
        return None;
    }
    let mut out = String::from(if body.len() == text.len() { " |-" } else { " |" });
    let inner = column + 2;
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.push_str(&format!("{:inner$}{line}", ""));
        }
    }
    Some(out)
}

/// On one line. `flow`: inside brackets, where more words need quotes.
pub(super) fn inline(value: &Json, flow: bool) -> String {
    match value {
        Json::Null => "null".to_owned(),
        Json::Bool(value) => value.to_string(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => string(text, flow),
        Json::Array(items) => {
            format!("[{}]", items.iter().map(|item| inline(item, true)).collect::<Vec<_>>().join(", "))
        }
        Json::Object(map) => {
            let entries =
                map.iter().map(|(name, value)| format!("{}: {}", string(name, true), inline(value, true)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A scalar in the quotes that the one before it had.
pub(super) fn scalar(value: &Json, style: ScalarStyle, flow: bool) -> String {
    match (value, style) {
        (Json::String(text), ScalarStyle::SingleQuoted) if text.chars().all(printable) => {
            format!("'{}'", text.replace('\'', "''"))
        }
        (Json::String(text), ScalarStyle::DoubleQuoted) => double_quoted(text),
        _ => inline(value, flow),
    }
}

pub(super) fn key(name: &str) -> String {
    string(name, true)
}

fn string(text: &str, flow: bool) -> String {
    if is_plain(text, flow) {
        text.to_owned()
    } else if text.chars().all(printable) && !text.contains('\'') {
        format!("'{text}'")
    } else {
        double_quoted(text)
    }
}

/// Whether it means itself without quotes, to this and to older readers.
fn is_plain(text: &str, flow: bool) -> bool {
    const NEVER_FIRST: &str = "-?:,[]{}#&*!|>'\"%@`=<~ ";
    let (Some(first), Some(last)) = (text.chars().next(), text.chars().last()) else { return false };
    let in_brackets = |c: char| flow && matches!(c, ',' | '[' | ']' | '{' | '}');
    meaning(text).is_string()
        && !OLD_WORDS.contains(&text.to_lowercase().as_str())
        && (!NEVER_FIRST.contains(first)
            || first == '-' && text[1..].starts_with(|c: char| c.is_ascii_alphabetic()))
        && !matches!(last, ' ' | ':')
        && !first.is_ascii_digit()
        && !text.contains(": ")
        && !text.contains(" #")
        && text.chars().all(|c| printable(c) && !in_brackets(c))
}

fn printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
}

pub(super) fn double_quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if printable(c) => out.push(c),
            c if u32::from(c) <= 0xffff => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}
