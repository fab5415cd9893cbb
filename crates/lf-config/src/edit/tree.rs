//! The text as a tree that knows where each value begins and ends. Unlike the tree of the loader it keeps the extent
//! of collections, and knows aliases and merges for what they are.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};
use serde_yaml::granit_parser::{Event, Options, Parser, ScalarStyle, StructureStyle};

use crate::diagnostic::Span;
use crate::node::meaning;

/// As the loader's, so that what it refuses is not worked on.
const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct Node {
    /// With aliases and merges followed.
    pub(super) value: Json,
    pub(super) kind: Kind,
    /// From its first to its last character; white space after it is not part of it.
    pub(super) span: Span,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Scalar(ScalarStyle),
    /// An alias, or what has an anchor or tag: only replaced as a whole.
    Opaque,
    List {
        items: Vec<Node>,
        flow: bool,
    },
    Map {
        entries: Vec<Entry>,
        flow: bool,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Span,
    pub(super) node: Node,
}

impl Node {
    /// Nothing is written for it: `key:` alone.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.kind, Kind::Scalar(_)) && self.span.is_empty()
    }
}

/// `None` for what cannot be edited in place. The text has been read by the loader before.
pub(super) fn read(text: &str) -> Option<Node> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    let mut builder = Builder { text, open: Vec::new(), anchors: HashMap::new(), root: None };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.ok()?;
        builder.event(event, span.byte_range()?)?;
    }
    builder.root
}

struct Builder<'t> {
    text: &'t str,
    open: Vec<Open>,
    anchors: HashMap<usize, Json>,
    root: Option<Node>,
}

struct Open {
    start: usize,
    flow: bool,
    anchor: usize,
    opaque: bool,
    is_map: bool,
    items: Vec<Node>,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let absent = span.is_empty() && style == ScalarStyle::Plain;
                let value = match style {
                    _ if absent => Json::Null,
                    ScalarStyle::Plain if tag.is_none() => meaning(&text),
                    ScalarStyle::Plain
                        if !tag.as_ref().is_some_and(|tag| tag.is_yaml_core_schema_tag("str")) =>
                    {
                        meaning(&text)
                    }
                    _ => Json::String(text.into_owned()),
                };
                if anchor > 0 {
                    self.anchors.insert(anchor, value.clone());
                }
                let opaque = anchor > 0 || tag.is_some();
                let kind = if opaque { Kind::Opaque } else { Kind::Scalar(style) };
                let end = span.start + self.text.get(span.clone())?.trim_end().len();
                self.place(Node { value, kind, span: span.start..end });
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor)?.clone();
                self.place(Node { value, kind: Kind::Opaque, span });
            }
            Event::SequenceStart(style, anchor, tag) => {
                self.begin(span.start, style == StructureStyle::Flow, anchor, tag.is_some(), false);
            }
            Event::MappingStart(style, anchor, tag) => {
                self.begin(span.start, style == StructureStyle::Flow, anchor, tag.is_some(), true);
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(&span)?,
            _ => {}
        }
        Some(())
    }

    fn begin(&mut self, start: usize, flow: bool, anchor: usize, tagged: bool, is_map: bool) {
        let opaque = anchor > 0 || tagged;
        self.open.push(Open { start, flow, anchor, opaque, is_map, items: Vec::new() });
    }

    fn end(&mut self, span: &Span) -> Option<()> {
        let Open { start, flow, anchor, opaque, is_map, items } = self.open.pop()?;
        let end = match items.last() {
            _ if flow => span.end,
            Some(last) => last.span.end.max(start),
            None => start,
        };
        let (kind, value) = if is_map {
            map(items, flow)?
        } else {
            let value = Json::Array(items.iter().map(|item| item.value.clone()).collect());
            (Kind::List { items, flow }, value)
        };
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
        let kind = if opaque { Kind::Opaque } else { kind };
        self.place(Node { value, kind, span: start..end });
        Some(())
    }

    fn place(&mut self, node: Node) {
        match self.open.last_mut() {
            Some(open) => open.items.push(node),
            None => self.root = Some(node),
        }
    }
}

/// From keys and values in turn. Merged keys are in the value and not among the entries.
fn map(nodes: Vec<Node>, flow: bool) -> Option<(Kind, Json)> {
    let mut entries = Vec::new();
    let mut value = Map::new();
    let mut merges = Vec::new();
    let mut nodes = nodes.into_iter();
    while let (Some(key), Some(node)) = (nodes.next(), nodes.next()) {
        let name = match key.value {
            Json::String(name) => name,
            Json::Array(_) | Json::Object(_) => return None,
            // the loader takes a key as it is written
            _ => return None,
        };
        if name == "<<" {
            merges.push(node);
            continue;
        }
        value.insert(name.clone(), node.value.clone());
        entries.push(Entry { key: name, key_span: key.span, node });
    }
    for merge in merges {
        let sources = match merge.value {
            Json::Array(sources) => sources,
            one => vec![one],
        };
        for source in sources {
            let Json::Object(source) = source else { return None };
            for (key, merged) in source {
                value.entry(key).or_insert(merged);
            }
        }
    }
    Some((Kind::Map { entries, flow }, Json::Object(value)))
}
