//! Bodies that name the tool before the JSON of its arguments: `f[ARGS]{…}`, `functions.f:0<…>{…}`, `f` and a fence.

use super::TextEnd;
use super::body::{CUT, Progress, Tail, Window};
use super::format::{Named, NamedHead};
use super::json_body::JsonBody;
use super::literals::is_name;
use super::marks::{self, Seen};
use super::shape::Found;
use super::typed;

/// Bytes before the arguments.
const MAX_HEAD: usize = 512;

#[derive(Debug)]
pub(super) struct NamedBody {
    spec: &'static Named,
    /// Where the head begins.
    start: usize,
    cursor: usize,
    /// Whether a separator was seen.
    separated: bool,
    arguments: Option<JsonBody>,
}

impl NamedBody {
    pub(super) fn new(spec: &'static Named, cursor: usize) -> Self {
        Self { spec, start: cursor, cursor, separated: false, arguments: None }
    }

    pub(super) fn cursor(&self) -> usize {
        self.arguments.as_ref().map_or(self.cursor, JsonBody::cursor)
    }

    pub(super) fn salvage(&mut self) -> Vec<Found> {
        self.arguments.as_mut().map(JsonBody::salvage).unwrap_or_default()
    }

    pub(super) fn broken_from(&self) -> Option<usize> {
        self.arguments.as_ref().and_then(JsonBody::broken_from)
    }

    pub(super) fn advance(&mut self, window: &Window<'_>) -> Progress {
        if self.arguments.is_none()
            && let Some(progress) = self.read_head(window)
        {
            return progress;
        }
        match &mut self.arguments {
            Some(arguments) => arguments.advance(window),
            None => Progress::Prose,
        }
    }

    /// Reads up to where the arguments begin.
    fn read_head(&mut self, window: &Window<'_>) -> Option<Progress> {
        while let Some(character) = window.next(self.cursor) {
            if self.cursor - self.start > MAX_HEAD {
                return Some(Progress::Prose);
            }
            let separators = self.spec.separators.iter();
            match marks::any(separators.map(|separator| marks::starts(window.at(self.cursor), separator))) {
                Seen::Yes(length) => {
                    self.separated = true;
                    self.cursor += length;
                    continue;
                }
                Seen::More if window.ended.is_none() => return Some(Progress::More),
                _ => {}
            }
            let empty = window.text[self.start..self.cursor].trim().is_empty();
            match character {
                '{' | '[' if empty && matches!(self.spec.head, NamedHead::Name { .. }) => {
                    self.arguments = Some(JsonBody::new(self.cursor));
                    return None;
                }
                '{' => return self.end_head(window),
                '\n' if self.spec.head == NamedHead::Line && !empty => return self.end_head(window),
                _ if window.may_mark(character) => match window.tail(self.cursor) {
                    Tail::More => return Some(Progress::More),
                    Tail::Close(_) | Tail::CutClose | Tail::Open if self.separated => {
                        return self.end_head(window);
                    }
                    Tail::Close(_) | Tail::CutClose | Tail::Open => return Some(Progress::Prose),
                    Tail::Other => {}
                },
                _ => {}
            }
            self.cursor += character.len_utf8();
        }
        match window.ended {
            None => Some(Progress::More),
            Some(TextEnd::Clean) if !self.separated => Some(Progress::Prose),
            Some(_) => Some(Progress::Broken(CUT.to_owned())),
        }
    }

    fn end_head(&mut self, window: &Window<'_>) -> Option<Progress> {
        if self.spec.head == NamedHead::Separated && !self.separated {
            return Some(Progress::Prose);
        }
        let (name, id) = self.read_name(window);
        let known = name.len() <= MAX_HEAD && !name.is_empty() && name.chars().all(is_name);
        let missing = self.spec.head == NamedHead::Line && typed::is_undeclared(window.tools, &name);
        if !known || missing {
            return Some(Progress::Prose);
        }
        self.arguments = Some(JsonBody::named(self.cursor, name, id));
        None
    }

    fn read_name(&self, window: &Window<'_>) -> (String, Option<String>) {
        let mut parts = Vec::new();
        let mut rest = &window.text[self.start..self.cursor];
        let mut before = "";
        loop {
            let separators = self.spec.separators.iter();
            let next = separators.filter_map(|separator| Some((rest.find(separator)?, *separator))).min();
            let (part, separator) = match next {
                Some((at, separator)) => (&rest[..at], separator),
                None => (rest, ""),
            };
            let line = part.trim().lines().next().unwrap_or_default();
            parts.push((before, line.split('`').next().unwrap_or_default().trim()));
            if separator.is_empty() {
                break;
            }
            rest = &rest[part.len() + separator.len()..];
            before = separator;
        }
        parts.retain(|(_, part)| !part.is_empty());
        let id_after = match self.spec.head {
            NamedHead::Name { id_after } => id_after,
            _ => "",
        };
        let id = parts.iter().find(|(before, _)| !before.is_empty() && *before == id_after);
        let id = id.map(|(_, id)| (*id).to_owned());
        let named = parts.iter().map(|(_, part)| *part).find(|part| !self.spec.ignored.contains(part));
        let name = named.or_else(|| parts.first().map(|(_, part)| *part)).unwrap_or_default();
        match self.spec.head {
            NamedHead::Id => (name_in_id(window, name), Some(name.to_owned())),
            _ => (name.to_owned(), id),
        }
    }
}

/// The name in `functions.name:3`. Where an id lost its marks (`functionsname3`), the declared name in it.
fn name_in_id(window: &Window<'_>, id: &str) -> String {
    let unnumbered = match id.rsplit_once(':') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => id,
    };
    let name = unnumbered.strip_prefix("functions.").unwrap_or(unnumbered);
    let declared = |name: &&str| !window.tools.is_empty() && !typed::is_undeclared(window.tools, name);
    let bare = id.strip_prefix("functions").unwrap_or(id).trim_start_matches('.');
    let stripped = bare.trim_end_matches(|c: char| c.is_ascii_digit());
    let candidates = [name, unnumbered, bare, stripped.trim_end_matches([':', '_']), stripped];
    candidates.into_iter().find(declared).unwrap_or(name).to_owned()
}
