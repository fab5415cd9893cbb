//! Texts of strangers, shown to people and models: without what neither can see and a terminal would obey.
//!
//! What is taken out are escape sequences, control characters, marks that turn the direction of text, and characters
//! without a shape that can carry a hidden text (the tag block, variation selectors in a row, invisible operators).

use std::borrow::Cow;

use serde_json::{Map, Value};

/// Nesting down to which values are looked at; parsers refuse deeper ones.
const MAX_DEPTH: usize = 128;

/// What a server says of itself and its tools: names, descriptions, errors. Nothing in it is needed to the byte.
pub fn words(text: &str) -> Cow<'_, str> {
    strip(text, Measure::Words)
}

/// What a tool returned: characters without a shape stay where scripts and emoji need them, and so do the ends of lines.
/// Of the control characters above ASCII only they themselves go: UTF-8 that was read as Latin-1 is full of them, and what
/// follows is the text.
pub fn data(text: &str) -> Cow<'_, str> {
    strip(text, Measure::Data)
}

/// As [`words`], in one line: what a log or a table shows.
pub fn line(text: &str) -> String {
    let clean = words(text);
    clean.chars().map(|c| if matches!(c, '\n' | '\t' | '\u{2028}' | '\u{2029}') { ' ' } else { c }).collect()
}

/// As [`line()`], of a text that may be long: so many characters, and how many more there are.
pub fn start(text: &str, limit: usize) -> String {
    let clean = line(text);
    let Some((end, _)) = clean.char_indices().nth(limit) else { return clean };
    format!("{}… ({} characters more)", &clean[..end], clean[end..].chars().count())
}

/// As [`words`], for every text in a value, names of fields included; the value itself where there is nothing to take out.
pub fn value(value: Value) -> Value {
    match is_clean(&value, 0) {
        true => value,
        false => cleaned(value, 0),
    }
}

fn is_clean(value: &Value, depth: usize) -> bool {
    match value {
        _ if depth >= MAX_DEPTH => true,
        Value::String(text) => matches!(words(text), Cow::Borrowed(_)),
        Value::Array(items) => items.iter().all(|item| is_clean(item, depth + 1)),
        Value::Object(fields) => fields
            .iter()
            .all(|(key, value)| matches!(words(key), Cow::Borrowed(_)) && is_clean(value, depth + 1)),
        _ => true,
    }
}

fn cleaned(value: Value, depth: usize) -> Value {
    match value {
        value if depth >= MAX_DEPTH => value,
        Value::String(text) => Value::String(words(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(|item| cleaned(item, depth + 1)).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields = fields.map(|(key, value)| (words(&key).into_owned(), cleaned(value, depth + 1)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other,
    }
}

/// Whether a character is not seen, or is not what it looks like: what has to be escaped for a text to be looked at.
pub fn is_hidden(c: char) -> bool {
    c.is_control() || is_shapeless(c) || (c.is_whitespace() && c != ' ')
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Measure {
    Words,
    Data,
}

fn strip(text: &str, measure: Measure) -> Cow<'_, str> {
    let Some(first) = text.find(is_suspect) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len());
    out.push_str(&text[..first]);
    let mut rest = &text[first..];
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\u{1b}' => after_escape(after),
            '\u{9b}' if measure == Measure::Words => after_control(after),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' if measure == Measure::Words => after_string(after),
            '\r' if measure == Measure::Data => {
                out.push(c);
                after
            }
            '\r' => {
                // the end of a line as others write it
                if !after.starts_with('\n') {
                    out.push('\n');
                }
                after
            }
            '\u{1f3f4}' => match flag(after) {
                Some(length) => {
                    out.push(c);
                    out.push_str(&after[..length]);
                    &after[length..]
                }
                None => {
                    out.push(c);
                    after
                }
            },
            c if is_kept(c, &out, measure) => {
                out.push(c);
                after
            }
            _ => after,
        };
    }
    if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) }
}

/// Whether a character has to be looked at more closely.
fn is_suspect(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        ' '..='~' => false,
        c => c.is_control() || is_shapeless(c) || c == '\u{1f3f4}',
    }
}

/// Characters that are not seen, and more of them than a text needs.
fn is_shapeless(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn is_kept(c: char, before: &str, measure: Measure) -> bool {
    let last = before.chars().next_back();
    match c {
        '\n' | '\t' => true,
        // joiners, between the letters and pictures that they join
        '\u{200c}' | '\u{200d}' => {
            last.is_some_and(|last| !last.is_ascii() && !is_shapeless(last) || is_selector(last))
        }
        // one selector says how the character before it looks; a row of them says something else
        c if is_selector(c) => last.is_some_and(|last| !last.is_whitespace() && !is_shapeless(last)),
        // of no shape, but of use to those who wrote the text
        '\u{ad}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{feff}' | '\u{2060}' => {
            measure == Measure::Data && last.is_none_or(|last| !is_shapeless(last))
        }
        c => !c.is_control() && !is_shapeless(c),
    }
}

fn is_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' | '\u{180b}'..='\u{180d}')
}

/// The length of the tags after a black flag that make it one of a region: two to six letters and the end.
fn flag(after: &str) -> Option<usize> {
    let mut length = 0;
    for (count, c) in after.chars().take(7).enumerate() {
        length += c.len_utf8();
        match c {
            '\u{e0030}'..='\u{e0039}' | '\u{e0061}'..='\u{e007a}' => {}
            '\u{e007f}' if count >= 2 => return Some(length),
            _ => return None,
        }
    }
    None
}

/// What follows an escape sequence whose ESC was read (ECMA-48).
fn after_escape(rest: &str) -> &str {
    match rest.chars().next() {
        Some('[') => after_control(&rest[1..]),
        Some(']' | 'P' | 'X' | '^' | '_') => after_string(&rest[1..]),
        Some(' '..='/') => {
            let end = rest.find(|c: char| !(' '..='/').contains(&c));
            end.map_or("", |end| after_one(&rest[end..]))
        }
        Some('0'..='~') => &rest[1..],
        _ => rest,
    }
}

fn after_one(rest: &str) -> &str {
    match rest.chars().next() {
        Some('0'..='~') => &rest[1..],
        _ => rest,
    }
}

/// Parameters, intermediates and one final byte.
fn after_control(rest: &str) -> &str {
    let end = rest.find(|c: char| !(' '..='?').contains(&c));
    match end.map(|end| &rest[end..]) {
        None => "",
        Some(end) if end.starts_with(|c: char| ('@'..='~').contains(&c)) => &end[1..],
        Some(end) => end,
    }
}

/// A title, a link, what goes into the clipboard: up to its end, or the end of the line where it has none.
fn after_string(rest: &str) -> &str {
    let end = rest.find(['\u{7}', '\u{1b}', '\u{9c}', '\n']);
    let Some(end) = end else { return "" };
    match rest[end..].chars().next() {
        Some('\u{1b}') if rest[end + 1..].starts_with('\\') => &rest[end + 2..],
        Some('\u{7}') => &rest[end + 1..],
        Some('\u{9c}') => &rest[end + '\u{9c}'.len_utf8()..],
        _ => &rest[end..],
    }
}

#[cfg(test)]
mod tests;
