//! Bodies with one child element a field. It looks like XML and is none: the arguments are JSON as it comes, with its
//! own `<` and `&`, so the children are read in the order of the text and JSON ends where JSON ends.

use serde_json::Value;

use super::TextCall;
use super::TextEnd;
use super::body::{Done, FieldKind, Lead, Led, MAX_CALL, Progress, Tail, Window, is_left_over};
use super::format::Mark;
use super::json_body::JsonBody;
use super::marks::{self, Seen};
use super::shape::{self, Found};
use crate::Arguments;
use crate::json::{Push, Reader};

/// Bytes of a server's or tool's name.
const MAX_NAME: usize = 1024;

#[derive(Debug)]
pub(super) struct ElementsBody {
    children: &'static [(&'static str, FieldKind)],
    phase: Phase,
    cursor: usize,
    server: Option<String>,
    tool: Option<String>,
    /// A tool that was named without a server, as some prompts ask for.
    name: Option<String>,
    id: Option<String>,
    arguments: Option<ArgumentsRead>,
    reader: Reader,
    balanced: bool,
    end: usize,
}

#[derive(Debug)]
struct ArgumentsRead {
    value: Value,
    raw: Option<String>,
}

#[derive(Debug)]
enum Phase {
    Children,
    Field {
        kind: FieldKind,
        start: usize,
    },
    BeforeArguments(Lead),
    Arguments {
        start: usize,
    },
    AfterArguments,
    /// In an element that is none of the fields.
    Unknown {
        closing: String,
    },
    /// A body that turned out to be JSON.
    Json(Box<JsonBody>),
}

impl ElementsBody {
    pub(super) fn new(children: &'static [(&'static str, FieldKind)], cursor: usize) -> Self {
        Self {
            children,
            phase: Phase::Children,
            cursor,
            server: None,
            tool: None,
            name: None,
            id: None,
            arguments: None,
            reader: Reader::new(),
            balanced: true,
            end: cursor,
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
            let step = match &mut self.phase {
                Phase::Json(body) => Some(body.advance(window)),
                Phase::Children => self.read_children(window),
                Phase::Field { kind, start } => {
                    let (kind, start) = (*kind, *start);
                    self.read_field(window, kind, start)
                }
                Phase::BeforeArguments(lead) => {
                    let led = lead.skip(window, self.cursor);
                    self.start_arguments(window, led)
                }
                Phase::Arguments { start } => {
                    let start = *start;
                    self.read_arguments(window, start)
                }
                Phase::AfterArguments => self.read_after_arguments(window),
                Phase::Unknown { closing } => {
                    let closing = std::mem::take(closing);
                    self.read_unknown(window, closing)
                }
            };
            if let Some(progress) = step {
                return progress;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.server.is_none()
            && self.tool.is_none()
            && self.name.is_none()
            && self.id.is_none()
            && self.arguments.is_none()
    }

    fn read_children(&mut self, window: &Window<'_>) -> Option<Progress> {
        while let Some(character) = window.next(self.cursor) {
            match character {
                '<' => return self.read_tag(window),
                '{' | '[' if self.is_empty() => {
                    self.phase = Phase::Json(Box::new(JsonBody::new(self.cursor)));
                    return None;
                }
                _ if character.is_whitespace() || character == '\u{feff}' => {
                    self.cursor += character.len_utf8();
                }
                _ if self.is_empty() => return Some(Progress::Prose),
                _ => return Some(Progress::Broken("text between the elements of the call".to_owned())),
            }
            if self.cursor > MAX_CALL {
                return Some(Progress::TooLong);
            }
        }
        match window.ended {
            None => Some(Progress::More),
            Some(TextEnd::Clean) if self.is_empty() => Some(Progress::Prose),
            Some(TextEnd::Clean) if self.arguments.is_some() => Some(self.done(self.end, false)),
            Some(_) => Some(Progress::Broken("the call is cut off".to_owned())),
        }
    }

    fn read_tag(&mut self, window: &Window<'_>) -> Option<Progress> {
        let tail = window.tail(self.cursor);
        match tail {
            Tail::More => return Some(Progress::More),
            Tail::Close(_) | Tail::CutClose | Tail::Open if self.is_empty() => return Some(Progress::Prose),
            Tail::Close(length) => return Some(self.done(self.cursor + length, false)),
            Tail::CutClose if self.arguments.is_some() => return Some(self.done(window.text.len(), false)),
            Tail::Open if self.arguments.is_some() => return Some(self.done(self.cursor, true)),
            Tail::Open => return Some(Progress::Broken("the call is not closed".to_owned())),
            Tail::CutClose | Tail::Other => {}
        }
        match self.child(window) {
            (Seen::Yes(length), kind) => {
                self.cursor += length;
                self.phase = match kind {
                    FieldKind::Arguments => Phase::BeforeArguments(Lead::default()),
                    _ => Phase::Field { kind, start: self.cursor },
                };
                return None;
            }
            (Seen::More, _) if window.ended.is_none() => return Some(Progress::More),
            _ => {}
        }
        match self.empty_child(window) {
            Seen::Yes(length) => {
                self.cursor += length;
                self.finish_arguments(Value::Null, None);
                return None;
            }
            Seen::More if window.ended.is_none() => return Some(Progress::More),
            _ => {}
        }
        let rest = window.at(self.cursor);
        match (marks::any_closing_tag(rest), marks::any_opening_tag(rest)) {
            (Seen::Yes(length), _) => {
                self.cursor += length;
                self.end = self.cursor;
                None
            }
            (_, (Seen::Yes(length), name)) => {
                self.cursor += length;
                self.phase = Phase::Unknown { closing: format!("</{name}>") };
                None
            }
            (Seen::More, _) | (_, (Seen::More, _)) if window.ended.is_none() => Some(Progress::More),
            (Seen::More, _) if window.ended == Some(TextEnd::Clean) && self.arguments.is_some() => {
                Some(self.done(window.text.len(), false))
            }
            _ if self.is_empty() => Some(Progress::Prose),
            _ if window.ended == Some(TextEnd::Cut) => {
                Some(Progress::Broken("the call is cut off".to_owned()))
            }
            _ => Some(Progress::Broken("an unknown element in the call".to_owned())),
        }
    }

    fn read_unknown(&mut self, window: &Window<'_>, closing: String) -> Option<Progress> {
        while let Some(offset) = window.at(self.cursor).find('<') {
            self.cursor += offset;
            match marks::starts(window.at(self.cursor), &closing) {
                Seen::Yes(length) => {
                    self.cursor += length;
                    self.phase = Phase::Children;
                    return None;
                }
                Seen::More if window.ended.is_none() => break,
                _ => self.cursor += 1,
            }
            if self.cursor > MAX_CALL {
                return Some(Progress::TooLong);
            }
        }
        if window.ended.is_none() {
            if !window.at(self.cursor).starts_with('<') {
                self.cursor = window.text.len();
            }
            self.phase = Phase::Unknown { closing };
            return Some(Progress::More);
        }
        Some(if self.is_empty() {
            Progress::Prose
        } else {
            Progress::Broken("an unknown element in the call does not end".to_owned())
        })
    }

    /// The child element that opens here.
    fn child(&self, window: &Window<'_>) -> (Seen, FieldKind) {
        let mut seen = (Seen::No, FieldKind::Id);
        for &(name, kind) in self.children {
            match marks::opens(window.at(self.cursor), Mark::Tag(name)) {
                yes @ Seen::Yes(_) => return (yes, kind),
                Seen::More => seen.0 = Seen::More,
                Seen::No => {}
            }
        }
        seen
    }

    /// An element without arguments: `<arguments/>`.
    fn empty_child(&self, window: &Window<'_>) -> Seen {
        let names = self.children.iter().filter(|(_, kind)| *kind == FieldKind::Arguments);
        marks::any(names.map(|(name, _)| marks::is_empty_element(window.at(self.cursor), name)))
    }

    /// A name ends at any tag: its own closing tag, or where that is missing, the next one.
    fn read_field(&mut self, window: &Window<'_>, kind: FieldKind, start: usize) -> Option<Progress> {
        let rest = window.at(self.cursor);
        let length = rest.find('<').unwrap_or(rest.len());
        self.cursor += length;
        if self.cursor - start > MAX_NAME {
            self.cursor = start;
            return Some(Progress::Broken("a name in the call is too long".to_owned()));
        }
        if self.cursor == window.text.len() {
            return Some(match window.ended {
                None => Progress::More,
                Some(_) => Progress::Broken("the call is cut off".to_owned()),
            });
        }
        let text = window.text[start..self.cursor].trim();
        let field = match kind {
            FieldKind::Server => &mut self.server,
            FieldKind::Tool => &mut self.tool,
            FieldKind::Name => &mut self.name,
            FieldKind::Id | FieldKind::Arguments => &mut self.id,
        };
        field.get_or_insert_with(|| text.to_owned());
        self.end = self.cursor;
        self.phase = Phase::Children;
        None
    }

    fn start_arguments(&mut self, window: &Window<'_>, led: Led) -> Option<Progress> {
        let at = match led {
            Led::More => return Some(Progress::More),
            Led::End => return Some(Progress::Broken("the call is cut off".to_owned())),
            Led::At(at) => at,
        };
        self.cursor = at;
        if window.next(at) == Some('<') {
            self.finish_arguments(Value::Null, None);
        } else {
            self.reader = Reader::new();
            self.phase = Phase::Arguments { start: at };
        }
        None
    }

    fn read_arguments(&mut self, window: &Window<'_>, start: usize) -> Option<Progress> {
        for (offset, character) in window.at(self.cursor).char_indices() {
            let at = self.cursor + offset;
            if at > MAX_CALL {
                self.cursor = at;
                return Some(Progress::TooLong);
            }
            let end = match self.reader.push(character) {
                Push::More => continue,
                Push::Done => at + character.len_utf8(),
                Push::DoneBefore => at,
                Push::Invalid(problem) => {
                    self.cursor = at;
                    return self.refuse_arguments(window, start, problem);
                }
            };
            self.end_arguments(window, start, end);
            return None;
        }
        self.cursor = window.text.len();
        window
            .ended
            .map_or(Some(Progress::More), |_| Some(Progress::Broken("the call is cut off".to_owned())))
    }

    fn refuse_arguments(&mut self, window: &Window<'_>, start: usize, problem: &str) -> Option<Progress> {
        if window.next(self.cursor) == Some('<') {
            match marks::any_closing_tag(window.at(self.cursor)) {
                Seen::More if window.ended.is_none() => return Some(Progress::More),
                Seen::Yes(_) if self.reader.finish(1).is_ok() => {
                    self.end_arguments(window, start, self.cursor);
                    return None;
                }
                _ => {}
            }
        }
        let position = window.text[start..self.cursor].chars().count() + 1;
        Some(Progress::Broken(format!("{problem} at character {position} of the arguments")))
    }

    fn end_arguments(&mut self, window: &Window<'_>, start: usize, end: usize) {
        let raw = (!self.reader.repaired()).then(|| window.text[start..end].to_owned());
        self.balanced = self.reader.balanced();
        let value = self.reader.take();
        self.cursor = end;
        self.finish_arguments(value, raw);
    }

    fn finish_arguments(&mut self, value: Value, raw: Option<String>) {
        self.arguments.get_or_insert(ArgumentsRead { value, raw });
        self.end = self.cursor;
        self.phase = Phase::AfterArguments;
    }

    fn read_after_arguments(&mut self, window: &Window<'_>) -> Option<Progress> {
        while let Some(character) = window.next(self.cursor) {
            match character {
                '<' => {
                    self.phase = Phase::Children;
                    return None;
                }
                '}' | ']' if !self.balanced => {
                    return Some(Progress::Broken("brackets do not match".to_owned()));
                }
                _ if is_left_over(character) && character != ',' => self.cursor += character.len_utf8(),
                _ => return Some(Progress::Broken("text after the arguments".to_owned())),
            }
            if self.cursor > MAX_CALL {
                return Some(Progress::TooLong);
            }
        }
        match window.ended {
            None => Some(Progress::More),
            Some(TextEnd::Clean) => Some(self.done(self.cursor, false)),
            Some(TextEnd::Cut) => Some(Progress::Broken("the call is cut off".to_owned())),
        }
    }

    fn done(&mut self, end: usize, at_opener: bool) -> Progress {
        Progress::Done(Done { calls: vec![self.call()], value_end: self.end, end, at_opener })
    }

    fn call(&mut self) -> Found {
        let nonempty = |field: Option<String>| field.filter(|text| !text.is_empty());
        let server = nonempty(self.server.take());
        let name = match (nonempty(self.tool.take()), nonempty(self.name.take())) {
            (Some(tool), _) if server.is_some() => tool,
            (_, Some(name)) => name,
            (Some(_), None) => return Err("the call names no server".to_owned()),
            (None, None) => return Err("the call names no tool".to_owned()),
        };
        let arguments = match self.arguments.take() {
            Some(read) => shape::arguments(&name, read.value, read.raw.as_deref())?,
            None => Arguments::from_object(serde_json::Map::new()),
        };
        Ok(TextCall { name, server, id: nonempty(self.id.take()), arguments })
    }
}
