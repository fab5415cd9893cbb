//! Finding places in a result.

use regex::RegexBuilder;
use serde_json::{Map, Value};

use super::{Room, line_of};

/// Bytes of a pattern.
pub(super) const LONGEST: usize = 200;
/// Matches that one call tells.
pub(super) const MOST: usize = 100;
pub(super) const USUAL: usize = 20;
/// Bytes that a compiled pattern may take: what is larger is slow, too.
const COMPILED: usize = 64 * 1024;
/// Bytes that one call looks through with a regular expression, so that no pattern takes longer than seconds.
const LOOKED_THROUGH: usize = 2 * 1024 * 1024;
/// Bytes after those, for a match that begins in them to end.
const BEYOND: usize = 64 * 1024;
/// Bytes around a match that are told, on each side.
const AROUND: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Search {
    pattern: String,
    is_regex: bool,
    ignores_case: bool,
    offset: usize,
    most: usize,
}

impl Search {
    pub(super) fn parse(arguments: &Map<String, Value>, offset: usize, most: usize) -> Result<Self, String> {
        let flag = |key: &str| arguments.get(key).and_then(Value::as_bool).unwrap_or_default();
        let pattern = arguments.get("pattern").and_then(Value::as_str).unwrap_or_default();
        if pattern.is_empty() || pattern.len() > LONGEST {
            return Err(format!("`pattern` must have 1 to {LONGEST} bytes; it has {}", pattern.len()));
        }
        Ok(Self {
            pattern: pattern.to_owned(),
            is_regex: flag("regex"),
            ignores_case: flag("ignore_case"),
            offset,
            most: most.clamp(1, MOST),
        })
    }

    pub(super) fn run(&self, handle: &str, text: &str, mut room: Room) -> Result<String, String> {
        let pattern = if self.is_regex { self.pattern.clone() } else { regex::escape(&self.pattern) };
        let regex = RegexBuilder::new(&pattern)
            .case_insensitive(self.ignores_case)
            .multi_line(true)
            .size_limit(COMPILED)
            .dfa_size_limit(1024 * 1024)
            .build()
            .map_err(|error| format!("the pattern cannot be used: {error}"))?;
        let size = text.len();
        if self.offset >= size {
            return Err(format!("{handle} has {size} bytes; there is nothing at offset {}", self.offset));
        }
        let begin = text.floor_char_boundary(self.offset);
        let end = match self.is_regex {
            true => text.floor_char_boundary(begin.saturating_add(LOOKED_THROUGH).min(size)),
            false => size,
        };
        let seen = &text[..text.floor_char_boundary(end.saturating_add(BEYOND).min(size))];
        let (mut told, mut found, mut went_to) = (String::new(), 0, end);
        let (mut line, mut counted) = (line_of(text, begin), begin);
        let mut next = begin;
        while next < end
            && let Some(place) = regex.find_at(seen, next).filter(|place| place.start() < end)
        {
            next = match place.is_empty() {
                true => seen.ceil_char_boundary(place.end() + 1),
                false => place.end(),
            };
            line += text.as_bytes()[counted..place.start()].iter().filter(|byte| **byte == b'\n').count();
            counted = place.start();
            let entry = format!(
                "byte {}, line {line}: {}\n",
                place.start(),
                excerpt(text, place.start(), place.end())
            );
            if found == self.most || room.fits(&entry) < entry.len() {
                went_to = place.start();
                break;
            }
            room.take(&entry);
            told.push_str(&entry);
            found += 1;
            went_to = end.max(next).min(size);
        }
        let more = if went_to < size { format!("; go on with offset {went_to}") } else { String::new() };
        Ok(format!("[{handle}: {found} match(es) in bytes {begin} to {went_to} of {size}{more}]\n{told}"))
    }
}

/// The match with what stands around it, in one line.
fn excerpt(text: &str, start: usize, end: usize) -> String {
    let from = text.ceil_char_boundary(start.saturating_sub(AROUND));
    let to = text.floor_char_boundary(end.min(start + 2 * AROUND).saturating_add(AROUND).min(text.len()));
    let before = if from > 0 { "…" } else { "" };
    let after = if to < text.len() { "…" } else { "" };
    format!("{before}{}{after}", text[from..to].replace(['\n', '\r'], " "))
}
