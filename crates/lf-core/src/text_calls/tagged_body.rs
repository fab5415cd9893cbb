//! Bodies with one element an argument, whose values are plain text. A value ends at its own closing tag; where that
//! is missing, at the next argument, or at the end of the call if no closing tag comes before the next call.

mod head;

use serde_json::{Map, Value};

use super::TextCall;
use super::TextEnd;
use super::body::{CUT, Done, MAX_CALL, Progress, Tail, Window};
use super::format::{Head, Param, Tagged};
use super::json_body::JsonBody;
use super::marks::{self, Seen};
use super::nested::{self, Nested};
use super::shape::Found;
use super::tag::{MAX_TAG, attribute, tag_until, trimmed};
use super::typed::{self, Kind};
use crate::Arguments;

#[derive(Debug)]
pub(super) struct TaggedBody {
    spec: &'static Tagged,
    phase: Phase,
    cursor: usize,
    name: String,
    arguments: Map<String, Value>,
    /// The byte after the last thing that belongs to the call.
    end: usize,
    /// Whether the opener stands without its wrapper.
    unwrapped: bool,
}

#[derive(Debug)]
enum Phase {
    Head,
    /// Outside of arguments.
    Between,
    /// In the element of a key.
    Key {
        start: usize,
    },
    /// After a key's element.
    BeforeValue {
        key: String,
    },
    Value {
        key: String,
        kind: Kind,
        start: usize,
        /// Where the call closes inside the value, should the value have no end of its own.
        fallback: Option<usize>,
    },
    Nested(Nested),
    Json(Box<JsonBody>),
}

/// What begins at a mark.
enum Here {
    Param,
    Close(usize),
    Open,
    More,
    Other,
}

impl TaggedBody {
    pub(super) fn new(spec: &'static Tagged, cursor: usize) -> Self {
        Self {
            spec,
            phase: Phase::Head,
            cursor,
            name: String::new(),
            arguments: Map::new(),
            end: cursor,
            unwrapped: false,
        }
    }

    pub(super) fn cursor(&self) -> usize {
        match &self.phase {
            Phase::Json(body) => body.cursor(),
            _ => self.cursor,
        }
    }

    pub(super) fn salvage(&mut self) -> Vec<Found> {
        match &mut self.phase {
            Phase::Json(body) => body.salvage(),
            _ => Vec::new(),
        }
    }

    pub(super) fn broken_from(&self) -> Option<usize> {
        match &self.phase {
            Phase::Json(body) => body.broken_from(),
            _ => None,
        }
    }

    pub(super) fn advance(&mut self, window: &Window<'_>) -> Progress {
        loop {
            if self.cursor > MAX_CALL {
                return Progress::TooLong;
            }
            let phase = std::mem::replace(&mut self.phase, Phase::Between);
            let step = match phase {
                Phase::Head => self.read_head(window),
                Phase::Between => self.read_between(window),
                Phase::Key { start } => self.read_key(window, start),
                Phase::BeforeValue { key } => self.read_before_value(window, key),
                Phase::Value { key, kind, start, fallback } => {
                    self.read_value(window, key, kind, start, fallback)
                }
                Phase::Nested(nested) => self.read_nested(window, nested),
                Phase::Json(mut body) => {
                    let progress = body.advance(window);
                    self.phase = Phase::Json(body);
                    Some(progress)
                }
            };
            if let Some(progress) = step {
                return progress;
            }
        }
    }

    /// Waits in this phase, or at the end of the text gives `at_end`.
    fn wait(&mut self, window: &Window<'_>, phase: Phase, at_end: Progress) -> Option<Progress> {
        if window.ended.is_some() {
            return Some(at_end);
        }
        self.phase = phase;
        Some(Progress::More)
    }

    fn read_between(&mut self, window: &Window<'_>) -> Option<Progress> {
        while let Some(character) = window.next(self.cursor) {
            if character == '{' && self.arguments.is_empty() {
                self.phase = Phase::Json(Box::new(JsonBody::named(self.cursor, self.name.clone(), None)));
                return None;
            }
            if self.may_mark(character) {
                return self.read_tag(window);
            }
            if !character.is_whitespace() && self.arguments.is_empty() {
                return Some(if self.unwrapped || matches!(self.spec.head, Head::Line) {
                    Progress::Prose
                } else {
                    Progress::Broken("text where an argument of the call was expected".to_owned())
                });
            }
            self.cursor += character.len_utf8();
        }
        match window.ended {
            None => Some(Progress::More),
            Some(TextEnd::Clean) => Some(self.done(window, self.end, false)),
            Some(TextEnd::Cut) => Some(Progress::Broken(CUT.to_owned())),
        }
    }

    fn may_mark(&self, character: char) -> bool {
        character == '<' || matches!(self.spec.param, Param::Nested(token) if token.starts_with(character))
    }

    /// What begins at a `<`, outside of arguments or in one.
    fn place(&self, window: &Window<'_>, cursor: usize) -> Here {
        let rest = window.at(cursor);
        let waiting = window.ended.is_none();
        match self.opens_param(rest) {
            Seen::Yes(_) => return Here::Param,
            Seen::More if waiting => return Here::More,
            _ => {}
        }
        match marks::any(self.spec.close.iter().map(|&mark| marks::closes(rest, mark))) {
            Seen::Yes(length) => return Here::Close(length),
            Seen::More if waiting => return Here::More,
            Seen::More if rest.len() > "</".len() => return Here::Close(rest.len()),
            _ => {}
        }
        match window.tail(cursor) {
            Tail::Close(length) => Here::Close(length),
            Tail::CutClose => Here::Close(rest.len()),
            Tail::Open => Here::Open,
            Tail::More => Here::More,
            Tail::Other => Here::Other,
        }
    }

    fn read_tag(&mut self, window: &Window<'_>) -> Option<Progress> {
        let rest = window.at(self.cursor);
        match self.place(window, self.cursor) {
            Here::More => return Some(Progress::More),
            Here::Param => return self.start_param(window),
            Here::Close(length) => return Some(self.done(window, self.cursor + length, false)),
            Here::Open => return Some(self.done(window, self.cursor, true)),
            Here::Other => {}
        }
        if let Param::Nested(token) = self.spec.param {
            return match marks::starts(rest, token) {
                Seen::More if window.ended.is_none() => Some(Progress::More),
                Seen::Yes(_) => match Nested::new(self.cursor, rest, token) {
                    Some(nested) => {
                        self.phase = Phase::Nested(nested);
                        None
                    }
                    None if window.ended.is_none() && rest.len() < MAX_TAG => Some(Progress::More),
                    None => Some(Progress::Broken("an argument of the call cannot be read".to_owned())),
                },
                _ => {
                    self.cursor += 1;
                    None
                }
            };
        }
        // a closer too many, or a mark between the name and the arguments
        let stray = marks::any(self.spec.param_close.iter().map(|&mark| marks::closes(rest, mark)));
        let tag = marks::any([marks::any_closing_tag(rest), marks::any_opening_tag(rest).0]);
        match (stray, tag) {
            // the closer may begin with what would be a tag by itself
            (Seen::More, _) | (Seen::No, Seen::More) if window.ended.is_none() => {
                return Some(Progress::More);
            }
            (Seen::Yes(length), _) | (_, Seen::Yes(length)) => self.cursor += length,
            _ => self.cursor += 1,
        }
        None
    }

    fn opens_param(&self, rest: &str) -> Seen {
        match self.spec.param {
            Param::Inline(open) => {
                tag_until(rest, open, ">").map_or_else(|seen| seen, |(_, after)| Seen::Yes(after))
            }
            Param::Attribute { open, end, .. } => {
                tag_until(rest, open, end).map_or_else(|seen| seen, |(_, after)| Seen::Yes(after))
            }
            Param::Pair { key, .. } => marks::opens(rest, key),
            Param::Nested(_) => Seen::No,
        }
    }

    fn start_param(&mut self, window: &Window<'_>) -> Option<Progress> {
        let rest = window.at(self.cursor);
        let (key, kind, after) = match self.spec.param {
            Param::Inline(open) => match tag_until(rest, open, ">") {
                Ok((inner, after)) => {
                    (inner.trim().trim_matches(['"', '\'']).to_owned(), Kind::Schema, after)
                }
                Err(_) => return Some(Progress::Prose),
            },
            Param::Attribute { open, key, end } => match tag_until(rest, open, end) {
                Ok((inner, after)) => {
                    let kind = match (attribute(inner, "string").as_deref(), attribute(inner, "type")) {
                        (Some("true"), _) => Kind::Text,
                        (Some(_), _) => Kind::Json,
                        (None, Some(kind)) => Kind::Named(kind),
                        (None, None) => Kind::Schema,
                    };
                    (attribute(inner, key).unwrap_or_default(), kind, after)
                }
                Err(_) => return Some(Progress::Prose),
            },
            Param::Pair { key, .. } => match marks::opens(rest, key) {
                Seen::Yes(length) => {
                    self.cursor += length;
                    self.phase = Phase::Key { start: self.cursor };
                    return None;
                }
                _ => return Some(Progress::Prose),
            },
            Param::Nested(_) => return Some(Progress::Prose),
        };
        if key.is_empty() {
            return Some(Progress::Broken("an argument of the call has no name".to_owned()));
        }
        self.cursor += after;
        self.phase = Phase::Value { key, kind, start: self.cursor, fallback: None };
        None
    }

    /// A key ends at its closing tag, or where that is missing, at the next tag.
    fn read_key(&mut self, window: &Window<'_>, start: usize) -> Option<Progress> {
        let rest = window.at(start);
        let found = rest.find('<');
        if found.unwrap_or(rest.len()) > MAX_TAG {
            return Some(Progress::Broken("a name in the call is too long".to_owned()));
        }
        let Some(length) = found else {
            return self.wait(window, Phase::Key { start }, Progress::Broken(CUT.to_owned()));
        };
        let key = rest[..length].trim().to_owned();
        if key.is_empty() {
            return Some(Progress::Broken("an argument of the call has no name".to_owned()));
        }
        self.cursor = start + length;
        self.phase = Phase::BeforeValue { key };
        None
    }

    fn read_before_value(&mut self, window: &Window<'_>, key: String) -> Option<Progress> {
        let Param::Pair { value, key: key_mark } = self.spec.param else { return Some(Progress::Prose) };
        let rest = window.at(self.cursor);
        let text = rest.trim_start();
        // blanks are looked at once, and count towards the limit
        self.cursor += rest.len() - text.len();
        match (marks::opens(text, value), marks::closes(text, key_mark)) {
            (Seen::Yes(length), _) => {
                self.cursor += length;
                self.phase = Phase::Value { key, kind: Kind::Schema, start: self.cursor, fallback: None };
                None
            }
            (_, Seen::Yes(length)) => {
                self.cursor += length;
                self.phase = Phase::BeforeValue { key };
                None
            }
            (Seen::More, _) | (_, Seen::More) => {
                self.wait(window, Phase::BeforeValue { key }, Progress::Broken(CUT.to_owned()))
            }
            _ => Some(Progress::Broken(format!("the argument `{key}` has no value"))),
        }
    }

    fn read_value(
        &mut self,
        window: &Window<'_>,
        key: String,
        kind: Kind,
        start: usize,
        mut fallback: Option<usize>,
    ) -> Option<Progress> {
        while let Some(offset) = window.at(self.cursor).find('<') {
            let at = self.cursor + offset;
            self.cursor = at;
            if at > MAX_CALL {
                return Some(Progress::TooLong);
            }
            let rest = window.at(at);
            match marks::any(self.spec.param_close.iter().map(|&mark| marks::closes(rest, mark))) {
                Seen::Yes(length) => {
                    self.set(window, key, &kind, start, at);
                    self.cursor = at + length;
                    self.end = self.cursor;
                    return None;
                }
                Seen::More if window.ended.is_none() => {
                    self.phase = Phase::Value { key, kind, start, fallback };
                    return Some(Progress::More);
                }
                Seen::More if window.ended == Some(TextEnd::Clean) && rest.len() > "</".len() => {
                    self.set(window, key, &kind, start, at);
                    self.cursor = window.text.len();
                    return None;
                }
                _ => {}
            }
            match (self.place(window, at), fallback) {
                (Here::More, _) => {
                    self.phase = Phase::Value { key, kind, start, fallback };
                    return Some(Progress::More);
                }
                (Here::Param, None) => {
                    self.set(window, key, &kind, start, at);
                    return None;
                }
                (Here::Param | Here::Open, Some(end)) => {
                    self.set(window, key, &kind, start, end);
                    self.cursor = end;
                    return None;
                }
                (Here::Close(_), None) => fallback = Some(at),
                _ => {}
            }
            self.cursor += 1;
        }
        self.cursor = window.text.len();
        match (window.ended, fallback) {
            (None, _) => {
                self.phase = Phase::Value { key, kind, start, fallback };
                Some(Progress::More)
            }
            (Some(TextEnd::Cut), Some(end)) if !self.only_closers(window, end) => {
                Some(Progress::Broken(CUT.to_owned()))
            }
            (Some(_), Some(end)) => {
                self.set(window, key, &kind, start, end);
                self.cursor = end;
                None
            }
            (Some(_), None) => Some(Progress::Broken(CUT.to_owned())),
        }
    }

    /// Whether nothing but closing marks follows.
    fn only_closers(&self, window: &Window<'_>, from: usize) -> bool {
        let mut rest = window.at(from).trim_start();
        while !rest.is_empty() {
            let closers = self.spec.close.iter().chain(window.format.close);
            match marks::any(closers.map(|&mark| marks::closes(rest, mark))) {
                Seen::Yes(length) => rest = rest[length..].trim_start(),
                Seen::More => return true,
                Seen::No => return false,
            }
        }
        true
    }

    fn read_nested(&mut self, window: &Window<'_>, mut nested: Nested) -> Option<Progress> {
        match nested.advance(window.text) {
            nested::Step::Done { end } => {
                let (schema, root) = match typed::parameter(window.tools, &self.name, nested.name()) {
                    Some((root, schema)) => (Some(schema), Some(root)),
                    None => (None, None),
                };
                let value = nested.value(window.text, root, schema);
                self.arguments.insert(nested.name().to_owned(), value);
                self.cursor = end;
                self.end = end;
                None
            }
            nested::Step::More => self.wait(window, Phase::Nested(nested), Progress::Broken(CUT.to_owned())),
            nested::Step::Broken => {
                Some(Progress::Broken("the elements of the call do not match".to_owned()))
            }
        }
    }

    fn set(&mut self, window: &Window<'_>, key: String, kind: &Kind, start: usize, end: usize) {
        let text = trimmed(&window.text[start..end], self.spec.trim);
        let value = kind.value(window.tools, &self.name, &key, text);
        self.arguments.insert(key, value);
        self.end = end;
    }

    fn done(&mut self, window: &Window<'_>, end: usize, at_opener: bool) -> Progress {
        let name_only = self.arguments.is_empty() && matches!(self.spec.head, Head::Line);
        if name_only && typed::is_undeclared(window.tools, &self.name) {
            return Progress::Prose;
        }
        let arguments = Arguments::from_object(std::mem::take(&mut self.arguments));
        let call = TextCall { name: std::mem::take(&mut self.name), server: None, id: None, arguments };
        Progress::Done(Done { calls: vec![Ok(call)], value_end: self.end.min(end), end, at_opener })
    }
}
