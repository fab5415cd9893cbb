//! The changes that make one value out of another, as replaced stretches of the text.

use serde_json::{Map, Value as Json};
use serde_yaml::granit_parser::ScalarStyle;

use super::render::{self, inline};
use super::same;
use super::tree::{Entry, Kind, Node};
use crate::diagnostic::Span;

/// Lists with more pairs than this are compared item by item in their order.
const MAX_PAIRS: usize = 250_000;

/// The text after the changes; `None` where no way was found.
pub(super) fn apply(text: &str, root: &Node, wanted: &Json, depth: usize) -> Option<String> {
    let json = text.trim_start().starts_with(['{', '[']);
    let mut changes = Changes { text, json, edits: Vec::new(), depth };
    let place = Place { after: root.span.start, column: 0, kind: PlaceKind::Root };
    changes.change(&place, root, wanted, 0).ok()?;
    let mut edits = changes.edits;
    // what is put in stands before what is taken out at the same place
    edits.sort_by_key(|edit| (edit.0.start, edit.0.end));
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (span, new) in edits {
        out.push_str(text.get(at..span.start)?);
        out.push_str(&new);
        at = span.end;
    }
    out.push_str(text.get(at..)?);
    Some(out)
}

/// Only the value around it can be written.
struct TooFine;

type Outcome = Result<(), TooFine>;

struct Changes<'t> {
    text: &'t str,
    /// Strings get the quotes of JSON.
    json: bool,
    edits: Vec<(Span, String)>,
    depth: usize,
}

/// Where a value stands.
struct Place {
    /// Behind the colon or dash before it.
    after: usize,
    /// Of the key or dash.
    column: usize,
    kind: PlaceKind,
}

#[derive(Clone, Copy, PartialEq)]
enum PlaceKind {
    Root,
    /// The value of a key.
    Key,
    Item,
    /// Inside brackets.
    Flow,
}

impl Changes<'_> {
    fn change(&mut self, place: &Place, node: &Node, wanted: &Json, depth: usize) -> Outcome {
        if same(&node.value, wanted) {
            return Ok(());
        }
        let made = self.edits.len();
        let fine = match (&node.kind, wanted) {
            _ if depth >= self.depth => Err(TooFine),
            (Kind::Map { entries, flow }, Json::Object(wanted)) => {
                self.change_map(node, entries, *flow, wanted, depth)
            }
            (Kind::List { items, flow }, Json::Array(wanted)) => {
                self.change_list(node, items, *flow, wanted, depth)
            }
            _ => Err(TooFine),
        };
        fine.or_else(|TooFine| {
            self.edits.truncate(made);
            self.replace(place, node, wanted)
        })
    }

    fn replace(&mut self, place: &Place, node: &Node, wanted: &Json) -> Outcome {
        let is_scalar = !wanted.is_array() && !wanted.is_object();
        let flow = place.kind == PlaceKind::Flow;
        if let (Kind::Scalar(style), false) = (&node.kind, node.is_absent())
            && (is_scalar || flow)
            && !matches!(style, ScalarStyle::Literal | ScalarStyle::Folded)
        {
            // a text that got more lines is more than one scalar can show well
            let lines = matches!((wanted, place.kind), (Json::String(text), PlaceKind::Key)
                if *style == ScalarStyle::Plain && render::literal(text, place.column).is_some());
            if !lines {
                let new = self.scalar(wanted, *style, flow);
                self.edits.push((node.span.clone(), new));
                return Ok(());
            }
        }
        let new = match place.kind {
            PlaceKind::Root => return Err(TooFine),
            PlaceKind::Flow => format!(" {}", self.inline(wanted)),
            PlaceKind::Key => render::after_key(wanted, place.column),
            PlaceKind::Item => format!(" {}", render::block(wanted, place.column + 2)),
        };
        let (start, new) = match place.kind {
            // brackets may be close to what they hold
            PlaceKind::Flow if !node.span.is_empty() && !matches!(node.kind, Kind::Opaque) => {
                (node.span.start, new.trim_start().to_owned())
            }
            _ => (place.after, new),
        };
        self.edits.push((start..node.span.end.max(start), new));
        Ok(())
    }

    fn scalar(&self, value: &Json, style: ScalarStyle, flow: bool) -> String {
        if self.json { value.to_string() } else { render::scalar(value, style, flow) }
    }

    fn inline(&self, value: &Json) -> String {
        if self.json { value.to_string() } else { inline(value, true) }
    }

    fn change_map(
        &mut self,
        node: &Node,
        entries: &[Entry],
        flow: bool,
        wanted: &Map<String, Json>,
        depth: usize,
    ) -> Outcome {
        let own = |key: &str| entries.iter().any(|entry| entry.key == key);
        let has = node.value.as_object().ok_or(TooFine)?;
        // what a merge brings cannot be taken out here
        if has.keys().any(|key| !own(key) && !wanted.contains_key(key)) {
            return Err(TooFine);
        }
        let kept: Vec<bool> = entries.iter().map(|entry| wanted.contains_key(&entry.key)).collect();
        let last = kept.iter().rposition(|kept| *kept).ok_or(TooFine)?;
        let column = self.column(node.span.start);
        for entry in entries {
            let Some(wanted) = wanted.get(&entry.key) else { continue };
            if !same(&entry.node.value, wanted) {
                let kind = if flow { PlaceKind::Flow } else { PlaceKind::Key };
                let place = Place { after: self.after_colon(entry)?, column, kind };
                self.change(&place, &entry.node, wanted, depth + 1)?;
            }
        }
        let added: Vec<(&String, &Json)> = wanted
            .iter()
            .filter(|(key, value)| !own(key) && !has.get(*key).is_some_and(|merged| same(merged, value)))
            .collect();
        let extents: Vec<Span> = entries.iter().map(|one| one.key_span.start..self.end_of(one)).collect();
        if flow {
            self.remove_flow(&extents, &kept);
            let separator = self.separator(&extents);
            for (key, value) in added {
                let key = if self.json { Json::from(key.as_str()).to_string() } else { render::key(key) };
                let new = format!("{separator}{key}: {}", self.inline(value));
                self.edits.push((extents[last].end..extents[last].end, new));
            }
            return Ok(());
        }
        self.remove_lines(&extents, &kept)?;
        let at = self.line_end(extents[last].end);
        for (key, value) in added {
            let new = format!("\n{:column$}{}:{}", "", render::key(key), render::after_key(value, column));
            self.edits.push((at..at, new));
        }
        Ok(())
    }

    fn change_list(
        &mut self,
        node: &Node,
        items: &[Node],
        flow: bool,
        wanted: &[Json],
        depth: usize,
    ) -> Outcome {
        let pairs = pair(items, wanted);
        let kept: Vec<bool> = (0..items.len()).map(|at| pairs.iter().any(|pair| pair.0 == at)).collect();
        if !kept.contains(&true) {
            return Err(TooFine);
        }
        let column = self.column(node.span.start);
        let mut extents = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let start = match flow {
                true => item.span.start,
                false => self.dash(node, items, at)?,
            };
            extents.push(start..item.span.end.max(start + usize::from(!flow)));
        }
        for (at, new) in &pairs {
            let kind = if flow { PlaceKind::Flow } else { PlaceKind::Item };
            let after = extents[*at].start + usize::from(!flow);
            self.change(&Place { after, column, kind }, &items[*at], &wanted[*new], depth + 1)?;
        }
        let mut before = None;
        let mut pairs = pairs.into_iter().peekable();
        let separator = self.separator(&extents);
        for (at, value) in wanted.iter().enumerate() {
            if let Some((old, _)) = pairs.next_if(|pair| pair.1 == at) {
                before = Some(old);
                continue;
            }
            let edit = match (before, flow) {
                (Some(old), true) => {
                    let end = extents[old].end;
                    (end..end, format!("{separator}{}", self.inline(value)))
                }
                (None, true) => {
                    let separator = separator.trim_start_matches(',');
                    (extents[0].start..extents[0].start, format!("{},{separator}", self.inline(value)))
                }
                (Some(old), false) => {
                    let end = self.line_end(extents[old].end);
                    (end..end, format!("\n{:column$}- {}", "", render::block(value, column + 2)))
                }
                (None, false) => {
                    let start = extents[0].start;
                    (start..start, format!("- {}\n{:column$}", render::block(value, column + 2), ""))
                }
            };
            self.edits.push(edit);
        }
        match flow {
            true => self.remove_flow(&extents, &kept),
            false => self.remove_lines(&extents, &kept)?,
        }
        Ok(())
    }

    fn remove_flow(&mut self, extents: &[Span], kept: &[bool]) {
        for at in (0..extents.len()).filter(|at| !kept[*at]) {
            let span = match kept[..at].contains(&true) {
                true => extents[at - 1].end..extents[at].end,
                false => extents[at].start..extents[at + 1].start,
            };
            self.edits.push((span, String::new()));
        }
    }

    /// Takes entries out with their lines and the comments right above them. At least one is kept.
    fn remove_lines(&mut self, extents: &[Span], kept: &[bool]) -> Outcome {
        let first = kept.iter().position(|kept| *kept).ok_or(TooFine)?;
        let mut from = 0;
        if first > 0 && !self.is_first_on_line(extents[0].start) {
            // the first one shares its line with a dash
            let (start, end) = (extents[0].start, extents[first].start);
            let last = self.line_end(extents[first - 1].end);
            let comments = self.text[last.min(end)..end].contains('#');
            self.edits.push((start..if comments { last } else { end }, String::new()));
            from = first;
        }
        for at in (from..extents.len()).filter(|at| !kept[*at]) {
            let extent = &extents[at];
            if !self.is_first_on_line(extent.start) {
                return Err(TooFine);
            }
            let start = self.with_comments(self.line_start(extent.start));
            let end = self.line_end(extent.end);
            if end < self.text.len() {
                self.edits.push((start..end + 1, String::new()));
            } else {
                // the last line has no end to take away
                self.edits.push((start.saturating_sub(1)..end, String::new()));
            }
        }
        Ok(())
    }

    /// Between two entries in brackets, as those that are there have it.
    fn separator(&self, extents: &[Span]) -> String {
        let between = extents.windows(2).find_map(|two| self.text.get(two[0].end..two[1].start));
        match between.filter(|between| between.contains('\n')) {
            Some(between) => {
                let indent = between.rsplit('\n').next().unwrap_or_default();
                format!(",\n{indent}")
            }
            None => ", ".to_owned(),
        }
    }

    fn end_of(&self, entry: &Entry) -> usize {
        match entry.node.is_absent() {
            true => self.after_colon(entry).unwrap_or(entry.key_span.end),
            false => entry.node.span.end,
        }
    }

    fn after_colon(&self, entry: &Entry) -> Result<usize, TooFine> {
        let rest = self.text.get(entry.key_span.end..).ok_or(TooFine)?;
        let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        match rest[blank..].starts_with(':') {
            true => Ok(entry.key_span.end + blank + 1),
            false => Err(TooFine),
        }
    }

    /// Where the dash of an item is.
    fn dash(&self, list: &Node, items: &[Node], at: usize) -> Result<usize, TooFine> {
        if at == 0 {
            return Ok(list.span.start);
        }
        let column = self.column(list.span.start);
        let lowest = items[at - 1].span.end;
        let mut line = self.line_start(items[at].span.start);
        while line + column >= lowest {
            let indented = self.text[line..].bytes().take(column).all(|byte| byte == b' ');
            if indented && self.text.as_bytes().get(line + column) == Some(&b'-') {
                return Ok(line + column);
            }
            line = self.line_start(line.checked_sub(1).ok_or(TooFine)?);
        }
        Err(TooFine)
    }

    fn line_start(&self, at: usize) -> usize {
        self.text[..at].rfind('\n').map_or(0, |end| end + 1)
    }

    fn line_end(&self, at: usize) -> usize {
        self.text[at..].find('\n').map_or(self.text.len(), |length| at + length)
    }

    fn column(&self, at: usize) -> usize {
        at - self.line_start(at)
    }

    fn is_first_on_line(&self, at: usize) -> bool {
        self.text[self.line_start(at)..at].bytes().all(|byte| byte == b' ')
    }

    /// The start of the lines with nothing but comments right above a line, of its own indentation.
    fn with_comments(&self, line: usize) -> usize {
        let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
        let own = indent(&self.text[line..]);
        let mut start = line;
        while start > 0 {
            let above = self.line_start(start - 1);
            let shown = &self.text[above..start];
            if !shown.trim_start().starts_with('#') || indent(shown) != own {
                break;
            }
            start = above;
        }
        start
    }
}

/// Which old item becomes which new one: equal ones and those of one name in their order, and between these one after
/// the other.
fn pair(items: &[Node], wanted: &[Json]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let (mut old, mut new) = (0, 0);
    let between = |pairs: &mut Vec<(usize, usize)>, old: (usize, usize), new: (usize, usize)| {
        pairs.extend((old.0..old.1).zip(new.0..new.1));
    };
    for (at, to) in common(items, wanted) {
        between(&mut pairs, (old, at), (new, to));
        pairs.push((at, to));
        (old, new) = (at + 1, to + 1);
    }
    between(&mut pairs, (old, items.len()), (new, wanted.len()));
    pairs
}

/// The longest common subsequence.
fn common(items: &[Node], wanted: &[Json]) -> Vec<(usize, usize)> {
    let (rows, columns) = (items.len(), wanted.len());
    if rows * columns > MAX_PAIRS {
        return Vec::new();
    }
    let alike = |at: usize, to: usize| {
        let (one, other) = (&items[at].value, &wanted[to]);
        same(one, other) || one["name"].is_string() && one["name"] == other["name"]
    };
    let mut best = vec![vec![0_usize; columns + 1]; rows + 1];
    for at in (0..rows).rev() {
        for to in (0..columns).rev() {
            best[at][to] = match alike(at, to) {
                true => best[at + 1][to + 1] + 1,
                false => best[at + 1][to].max(best[at][to + 1]),
            };
        }
    }
    let (mut at, mut to, mut pairs) = (0, 0, Vec::new());
    while at < rows && to < columns {
        if alike(at, to) {
            pairs.push((at, to));
            (at, to) = (at + 1, to + 1);
        } else if best[at + 1][to] >= best[at][to + 1] {
            at += 1;
        } else {
            to += 1;
        }
    }
    pairs
}
