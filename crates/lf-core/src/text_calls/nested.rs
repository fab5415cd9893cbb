//! Arguments whose elements bear their own names, inside each other: objects, and arrays of `<item>`.

use serde_json::{Map, Value};

use super::typed;

const MAX_DEPTH: usize = 32;
/// Bytes of a tag.
const MAX_TAG: usize = 256;
/// The name of an array's elements.
const ITEM: &str = "item";

/// One argument's element, until it is closed.
#[derive(Debug)]
pub(super) struct Nested {
    /// What stands before every tag.
    token: &'static str,
    name: String,
    /// The byte after its opening tag.
    start: usize,
    /// The byte of its closing tag.
    end: usize,
    cursor: usize,
    depth: usize,
}

pub(super) enum Step {
    More,
    Done { end: usize },
    Broken,
}

/// A tag after its token: its name, whether it closes, and its length.
struct Tag<'a> {
    name: &'a str,
    closes: bool,
    length: usize,
}

impl Nested {
    /// At an opening tag, with `rest` the text from it on; `None` if it is no complete one.
    pub(super) fn new(at: usize, rest: &str, token: &'static str) -> Option<Self> {
        let tag = tag(rest, token)?;
        if tag.closes {
            return None;
        }
        let start = at + tag.length;
        Some(Self { token, name: tag.name.to_owned(), start, end: start, cursor: start, depth: 1 })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn advance(&mut self, text: &str) -> Step {
        while let Some(offset) = text[self.cursor..].find(self.token) {
            let at = self.cursor + offset;
            let rest = &text[at..];
            let Some(tag) = tag(rest, self.token) else {
                self.cursor = at;
                let most = self.token.len() + "</>".len() + MAX_TAG;
                return if rest.len() < most { Step::More } else { Step::Broken };
            };
            self.cursor = at + tag.length;
            self.depth = if tag.closes { self.depth - 1 } else { self.depth + 1 };
            if self.depth == 0 {
                self.end = at;
                return if tag.name == self.name { Step::Done { end: self.cursor } } else { Step::Broken };
            }
            if self.depth > MAX_DEPTH {
                return Step::Broken;
            }
        }
        let kept = self.token.len() - 1;
        self.cursor = self.cursor.max(text.floor_char_boundary(text.len().saturating_sub(kept)));
        Step::More
    }

    pub(super) fn value(&self, text: &str, root: Option<&Value>, schema: Option<&Value>) -> Value {
        value(&text[self.start..self.end], self.token, root, schema)
    }
}

fn value(text: &str, token: &str, root: Option<&Value>, schema: Option<&Value>) -> Value {
    if !text.contains(token) {
        return match (root, schema) {
            (Some(root), Some(schema)) => typed::typed(root, schema, text),
            _ => Value::String(text.to_owned()),
        };
    }
    let children = children(text, token);
    if !children.is_empty() && children.iter().all(|(name, _)| *name == ITEM) {
        let items = schema.and_then(|schema| schema.get("items"));
        return Value::Array(children.into_iter().map(|(_, text)| value(text, token, root, items)).collect());
    }
    let mut members = Map::new();
    for (name, text) in children {
        let member = schema.and_then(|schema| schema.get("properties")?.get(name));
        members.insert(name.to_owned(), value(text, token, root, member));
    }
    Value::Object(members)
}

/// The elements directly in a text: their names and what they hold.
fn children<'a>(text: &'a str, token: &str) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    let mut open: Option<(&str, usize)> = None;
    let mut depth = 0_usize;
    let mut cursor = 0;
    while let Some(offset) = text[cursor..].find(token) {
        let at = cursor + offset;
        let Some(tag) = tag(&text[at..], token) else { break };
        cursor = at + tag.length;
        if tag.closes {
            depth = depth.saturating_sub(1);
            if let (0, Some((name, start))) = (depth, open) {
                found.push((name, &text[start..at]));
                open = None;
            }
        } else {
            if depth == 0 {
                open = Some((tag.name, cursor));
            }
            depth += 1;
        }
    }
    found
}

fn tag<'a>(rest: &'a str, token: &str) -> Option<Tag<'a>> {
    let inner = rest.strip_prefix(token)?.strip_prefix('<')?;
    let closes = inner.starts_with('/');
    let inner = inner.strip_prefix('/').unwrap_or(inner);
    let length = inner.find('>').filter(|&length| length <= MAX_TAG)?;
    let before = rest.len() - inner.len();
    Some(Tag { name: inner[..length].trim(), closes, length: before + length + 1 })
}
