//! Results that were too large for a model: the tools with which it looks further into them.
//!
//! What a model is shown of such a result ends with its handle. [`tools`] are offered from then on, and [`Look`] is what a call
//! of them asks for; where the whole texts are kept is for whoever runs the tools.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::tool::{Tool, ToolRef};

mod search;

/// In the place of a server's name; no server can be called so.
pub const SOURCE: &str = "lf:results";
pub const READ: &str = "result_read";
pub const SEARCH: &str = "result_search";
/// Bytes of one result that are kept; the result says so where there were more.
pub const MAX_KEPT: usize = 8 * 1024 * 1024;
/// What the line over an excerpt takes at most.
const HEADING: usize = 160;

/// Which result of which turn is kept whole.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResultRef {
    pub turn: String,
    /// What the model calls it: `result-1`, `result-2`, … in its conversation.
    pub handle: String,
}

/// A result that was cut for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptResult {
    pub id: ResultRef,
    /// All of its text, as it would have been shown; at most [`MAX_KEPT`] bytes.
    pub text: Arc<str>,
}

/// What a result may take of a model's context: whichever is reached first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub bytes: usize,
    /// Quarters of a token, by the estimate of [`Room::fits`].
    pub quarters: usize,
}

impl Room {
    pub fn new(tokens: usize, bytes: usize) -> Self {
        Self { bytes, quarters: tokens.saturating_mul(4) }
    }

    /// How many bytes of a text fit, to a whole character. The usual estimate: four bytes of ASCII are a token; of other
    /// scripts each character is about one.
    pub fn fits(self, text: &str) -> usize {
        let near = &text[..text.floor_char_boundary(self.bytes)];
        let mut left = self.quarters;
        for (at, character) in near.char_indices() {
            let cost = quarters(character);
            if cost > left {
                return at;
            }
            left -= cost;
        }
        near.len()
    }

    /// What is left of it after a text that fits.
    pub fn take(&mut self, text: &str) {
        self.bytes = self.bytes.saturating_sub(text.len());
        self.quarters = self.quarters.saturating_sub(text.chars().map(quarters).sum());
    }
}

fn quarters(character: char) -> usize {
    if character.is_ascii() { 1 } else { character.len_utf8() + 1 }
}

/// The tools that are offered once something was cut.
pub fn tools() -> [Tool; 2] {
    let tool = |name: &str, description: &str, schema: Value| {
        let id = ToolRef { server: SOURCE.into(), name: name.into() };
        let mut tool = Tool::new(id, Some(description.into()), Arc::new(schema));
        tool.repeatable = true;
        tool
    };
    let handle = json!({"type": "string", "description": "The handle that stands where the result was cut."});
    [
        tool(
            READ,
            "Reads a part of an earlier tool result that was too large to be shown whole.",
            json!({
                "type": "object",
                "properties": {
                    "handle": handle,
                    "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Where to begin: so many bytes, or lines, are skipped."},
                    "length": {"type": "integer", "minimum": 1, "description": "How much to read; without it, as much as can be shown."},
                    "unit": {"type": "string", "enum": ["bytes", "lines"], "default": "bytes", "description": "What offset and length count."},
                },
                "required": ["handle"],
            }),
        ),
        tool(
            SEARCH,
            "Finds places in an earlier tool result that was too large to be shown whole. Each match is told with its byte offset, for result_read.",
            json!({
                "type": "object",
                "properties": {
                    "handle": handle,
                    "pattern": {"type": "string", "minLength": 1, "maxLength": search::LONGEST, "description": "The text to find, or a regular expression."},
                    "regex": {"type": "boolean", "default": false, "description": "The pattern is a regular expression (no look-around, no back-references)."},
                    "ignore_case": {"type": "boolean", "default": false},
                    "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "Begin after so many bytes."},
                    "max_matches": {"type": "integer", "minimum": 1, "maximum": search::MOST, "default": search::USUAL},
                },
                "required": ["handle", "pattern"],
            }),
        ),
    ]
}

/// What a call asks for. Its arguments were checked by the tool's schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub handle: String,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Bytes { offset: usize, length: usize },
    Lines { offset: usize, length: usize },
    Search(search::Search),
}

impl Look {
    /// # Errors
    /// What is wrong with the call, for the model to read.
    pub fn parse(tool: &str, arguments: &Map<String, Value>) -> Result<Self, String> {
        let text = |key: &str| arguments.get(key).and_then(Value::as_str);
        let number = |key: &str, default: usize| match arguments.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())
                .ok_or_else(|| format!("`{key}` is no whole number of at least 0")),
        };
        let handle = text("handle").ok_or("`handle` is missing: it stands where the result was cut")?;
        let offset = number("offset", 0)?;
        let what = match tool {
            READ => {
                let length = number("length", usize::MAX)?.max(1);
                match text("unit") {
                    Some("lines") => What::Lines { offset, length },
                    _ => What::Bytes { offset, length },
                }
            }
            SEARCH => {
                What::Search(search::Search::parse(arguments, offset, number("max_matches", search::USUAL)?)?)
            }
            other => return Err(format!("there is no tool `{other}` here")),
        };
        Ok(Self { handle: handle.trim().to_owned(), what })
    }

    /// What is there, within this room.
    ///
    /// # Errors
    /// Why there is nothing, for the model to read.
    pub fn at(&self, text: &str, room: Room) -> Result<String, String> {
        let room = Room {
            bytes: room.bytes.saturating_sub(HEADING),
            quarters: room.quarters.saturating_sub(HEADING),
        };
        match &self.what {
            What::Bytes { offset, length } => self.bytes(text, *offset, *length, room),
            What::Lines { offset, length } => self.lines(text, *offset, *length, room),
            What::Search(search) => search.run(&self.handle, text, room),
        }
    }

    fn bytes(&self, text: &str, offset: usize, length: usize, room: Room) -> Result<String, String> {
        let (handle, size) = (&self.handle, text.len());
        if offset >= size {
            return Err(format!("{handle} has {size} bytes; there is nothing at offset {offset}"));
        }
        let begin = text.floor_char_boundary(offset);
        let wanted =
            &text[begin..text.floor_char_boundary(begin.saturating_add(length).max(begin + 4).min(size))];
        let end = begin + room.fits(wanted).max(first_character(wanted));
        let line = line_of(text, begin);
        let next = next(end, size);
        Ok(format!(
            "[{handle}: bytes {begin} to {end} of {size}, from line {line}{next}]\n{}",
            &text[begin..end]
        ))
    }

    fn lines(&self, text: &str, offset: usize, length: usize, mut room: Room) -> Result<String, String> {
        let handle = &self.handle;
        let all = text.split_inclusive('\n').count();
        let mut excerpt = String::new();
        let mut told = 0;
        for line in text.split_inclusive('\n').skip(offset).take(length) {
            if room.fits(line) < line.len() {
                break;
            }
            room.take(line);
            excerpt.push_str(line);
            told += 1;
        }
        let end = offset.saturating_add(told);
        if told > 0 {
            return Ok(format!("[{handle}: lines {offset} to {end} of {all}{}]\n{excerpt}", next(end, all)));
        }
        let Some(line) = text.split_inclusive('\n').nth(offset) else {
            return Err(format!("{handle} has {all} lines; there is nothing after line {offset}"));
        };
        let begin: usize = text.split_inclusive('\n').take(offset).map(str::len).sum();
        Err(format!(
            "the line has {} bytes, more than can be shown at once: read it by bytes, from offset {begin}",
            line.len()
        ))
    }
}

fn first_character(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

/// From 1.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn next(end: usize, size: usize) -> String {
    if end < size { format!("; the next offset is {end}") } else { "; this is the end".to_owned() }
}

#[cfg(test)]
mod tests;
