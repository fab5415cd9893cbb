//! YAML (and with it JSON) into the tree.
//!
//! Built from the parser's events and not through serde, because only the events know whether a scalar was quoted
//! and where a key stands, and because each duplicate key can be told and the reading goes on.

use std::collections::{HashMap, HashSet};

use serde_yaml::granit_parser::{self, ErrorKind, Event, Parser, ScalarStyle, ScanError, Tag};

use super::{Entry, MAX_ALIASES, MAX_DEPTH, MAX_NODES, Node, Value};
use crate::diagnostic::{Report, Span, quote};

pub(super) fn read(text: &str, report: &mut Report<'_>) -> Option<Node> {
    let mut options = granit_parser::Options::default();
    options.set_emit_comments(false);
    options.emit_unresolved_aliases = true;
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    let mut builder = Builder::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = match event {
            Ok((event, span)) => (event, span.byte_range().unwrap_or(0..0)),
            Err(error) => {
                syntax_error(text, &error, report);
                return None;
            }
        };
        match builder.event(event, span, report) {
            Progress::More => {}
            Progress::Enough => return None,
        }
    }
    builder.root
}

enum Progress {
    More,
    /// Reading on would serve nobody.
    Enough,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
    aliases: usize,
    /// By the parser's number; with the count of nodes inside.
    anchors: HashMap<usize, (Node, usize)>,
}

struct Open {
    collection: Collection,
    span: Span,
    anchor: usize,
    nodes_before: usize,
}

enum Collection {
    List(Vec<Node>),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<Entry>,
    seen: HashSet<String>,
    key: Option<Key>,
    merges: Vec<Node>,
}

enum Key {
    Usable(String, Span),
    Merge,
    /// Already told; its value is read and dropped.
    Broken,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span, report: &mut Report<'_>) -> Progress {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    report
                        .error(&span, "the file holds more than one YAML document")
                        .label("a second one starts here");
                    return Progress::Enough;
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(text.into_owned(), style, tag.as_deref(), &span, report);
                return self.leaf(Node { value, span }, anchor, report);
            }
            Event::SequenceStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), &span, report);
                return self.begin(Collection::List(Vec::new()), span, anchor, report);
            }
            Event::MappingStart(_, anchor, tag) => {
                check_tag(tag.as_deref(), &span, report);
                return self.begin(Collection::Map(OpenMap::default()), span, anchor, report);
            }
            Event::SequenceEnd | Event::MappingEnd => return self.end(&span, report),
            Event::Alias(anchor) => return self.alias(anchor, span, report),
            Event::UnresolvedAlias(name) => {
                report.error(
                    &span,
                    format!("the alias {} names no anchor above it", quote(&format!("*{name}"))),
                );
                return self.leaf(Node::text("", span), 0, report);
            }
            _ => {}
        }
        Progress::More
    }

    fn count(&mut self, nodes: usize, span: &Span, report: &mut Report<'_>) -> Progress {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            report
                .error(span, format!("the file holds more than {MAX_NODES} values"))
                .label("the limit is reached here");
            return Progress::Enough;
        }
        Progress::More
    }

    fn leaf(&mut self, node: Node, anchor: usize, report: &mut Report<'_>) -> Progress {
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), 1));
        }
        let progress = self.count(1, &node.span, report);
        self.place(node, report);
        progress
    }

    fn begin(
        &mut self,
        collection: Collection,
        span: Span,
        anchor: usize,
        report: &mut Report<'_>,
    ) -> Progress {
        if self.open.len() >= MAX_DEPTH {
            report.error(&span, format!("nested more than {MAX_DEPTH} levels deep"));
            return Progress::Enough;
        }
        let nodes_before = self.nodes;
        let progress = self.count(1, &span, report);
        self.open.push(Open { collection, span, anchor, nodes_before });
        progress
    }

    fn end(&mut self, end: &Span, report: &mut Report<'_>) -> Progress {
        let Some(Open { collection, span, anchor, nodes_before }) = self.open.pop() else {
            return Progress::More;
        };
        let node = match collection {
            Collection::List(items) => {
                let start = if span.is_empty() {
                    items.first().map_or(span.start, |item| item.span.start)
                } else {
                    span.start
                };
                Node::list(items, start..end.end.max(start))
            }
            Collection::Map(map) => close_map(map, span, report),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - nodes_before));
        }
        self.place(node, report);
        Progress::More
    }

    fn alias(&mut self, anchor: usize, span: Span, report: &mut Report<'_>) -> Progress {
        self.aliases += 1;
        if self.aliases > MAX_ALIASES {
            report.error(&span, format!("the file holds more than {MAX_ALIASES} aliases"));
            return Progress::Enough;
        }
        let Some(size) = self.anchors.get(&anchor).map(|(_, size)| *size) else {
            report.error(&span, "an alias stands inside the value it repeats");
            return self.leaf(Node::text("", span), 0, report);
        };
        // counted before it is copied
        if let Progress::Enough = self.count(size, &span, report) {
            return Progress::Enough;
        }
        if let Some(node) = self.anchors.get(&anchor).map(|(node, _)| node.clone()) {
            if self.open.len() + depth(&node) > MAX_DEPTH {
                report.error(&span, format!("nested more than {MAX_DEPTH} levels deep"));
                return Progress::Enough;
            }
            self.place(node, report);
        }
        Progress::More
    }

    fn place(&mut self, node: Node, report: &mut Report<'_>) {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        match &mut open.collection {
            Collection::List(items) => items.push(node),
            Collection::Map(map) => match map.key.take() {
                None => map.key = Some(read_key(node, &mut map.seen, report)),
                Some(Key::Usable(key, key_span)) => map.entries.push(Entry { key, key_span, node }),
                Some(Key::Merge) => map.merges.push(node),
                Some(Key::Broken) => {}
            },
        }
    }
}

fn read_key(node: Node, seen: &mut HashSet<String>, report: &mut Report<'_>) -> Key {
    let key = match node.value {
        Value::Plain(key) if key == "<<" => return Key::Merge,
        Value::Plain(key) | Value::Text(key) => key,
        Value::List(_) | Value::Map(_) => {
            report
                .error(&node.span, "a key must be a plain word")
                .hint("a value that starts with `{` or `[` needs quotes");
            return Key::Broken;
        }
    };
    if !seen.insert(key.clone()) {
        report
            .error(&node.span, format!("the key {} is given twice", quote(&key)))
            .label("the second one")
            .hint("keep one of the two");
        return Key::Broken;
    }
    Key::Usable(key, node.span)
}

/// Keys that the mapping has itself win over merged ones, and earlier merges over later ones.
fn close_map(map: OpenMap, span: Span, report: &mut Report<'_>) -> Node {
    let OpenMap { mut entries, mut seen, merges, .. } = map;
    let start = entries.first().map_or(span.start, |entry| entry.key_span.start);
    let end = entries.first().map_or(span.end, |entry| entry.key_span.end);
    for merge in merges {
        let sources = match merge.value {
            Value::List(items) => items,
            _ => vec![merge],
        };
        for source in sources {
            let Value::Map(merged) = source.value else {
                report.error(&source.span, "`<<` takes a mapping, or a list of mappings");
                continue;
            };
            entries.extend(merged.into_iter().filter(|entry| seen.insert(entry.key.clone())));
        }
    }
    // a mapping is pointed at by its first key: its whole extent would underline half the file
    Node::map(entries, start..end)
}

fn depth(node: &Node) -> usize {
    let children: &mut dyn Iterator<Item = &Node> = match &node.value {
        Value::List(items) => &mut items.iter(),
        Value::Map(entries) => &mut entries.iter().map(|entry| &entry.node),
        Value::Plain(_) | Value::Text(_) => return 0,
    };
    1 + children.map(depth).max().unwrap_or(0)
}

fn scalar(
    text: String,
    style: ScalarStyle,
    tag: Option<&Tag>,
    span: &Span,
    report: &mut Report<'_>,
) -> Value {
    check_tag(tag, span, report);
    let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
    if style == ScalarStyle::Plain && !is_text { Value::Plain(text) } else { Value::Text(text) }
}

fn check_tag(tag: Option<&Tag>, span: &Span, report: &mut Report<'_>) {
    let Some(tag) = tag else { return };
    if tag.core_suffix().is_none() && tag.to_string() != "!" {
        report.error(span, format!("the tag {} has no meaning here", quote(&tag.to_string())));
    }
}

fn syntax_error(text: &str, error: &ScanError, report: &mut Report<'_>) {
    let at = error.marker().byte_offset().unwrap_or(0).min(text.len());
    if *error.kind() == ErrorKind::RecursionLimitExceeded {
        report.error(&(at..at), format!("nested more than {MAX_DEPTH} levels deep"));
        return;
    }
    let info = error.info();
    let (span, hint) = match unquoted_reference(text, at) {
        Some(span) => {
            let reference = &text[span.clone()];
            (span, Some(format!("quote it: '{reference}'")))
        }
        None => (at..at, syntax_hint(text, at, &info)),
    };
    report.error(&span, format!("not valid YAML: {info}")).maybe_hint(hint);
}

/// A `${…}` without quotes inside `[…]` or `{…}` near a syntax error: YAML reads its brace as a mapping.
fn unquoted_reference(text: &str, at: usize) -> Option<Span> {
    let at = (0..=at).rev().find(|&at| text.is_char_boundary(at))?;
    let first =
        text[..at].char_indices().rev().filter(|(_, c)| *c == '\n').nth(1).map_or(0, |(at, _)| at + 1);
    let end = text[at..].find('\n').map_or(text.len(), |length| at + length);
    let mut quote = None;
    let mut flow = 0_usize;
    for (offset, c) in text[first..end].char_indices() {
        let here = first + offset;
        match (quote, c) {
            (Some(mark), _) if mark == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '\n') => flow = 0,
            (None, '[' | '{') => flow += 1,
            (None, ']' | '}') => flow = flow.saturating_sub(1),
            (None, '$') if flow > 0 && text[here..end].starts_with("${") => {
                let length = text[here..end].find('}').map_or(2, |length| length + 1);
                return Some(here..here + length);
            }
            (None, _) => {}
        }
    }
    None
}

fn syntax_hint(text: &str, at: usize, info: &str) -> Option<String> {
    let at = (0..=at).rev().find(|&at| text.is_char_boundary(at))?;
    let start = text[..at].rfind('\n').map_or(0, |at| at + 1);
    let line = text[start..].lines().next().unwrap_or("");
    if line.trim_start_matches(' ').starts_with('\t') {
        return Some("indent with spaces: YAML does not allow tabs there".to_owned());
    }
    if info.contains("mapping values") {
        return Some("put quotes around a value that contains `: `".to_owned());
    }
    if line.contains(['@', '`', '%']) {
        return Some("a value that starts with `@`, `%` or a backtick needs quotes".to_owned());
    }
    None
}
