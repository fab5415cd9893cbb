//! Bodies that are JSON: one object, several, or an array of calls.

use serde_json::{Map, Value};

use super::TextCall;
use super::TextEnd;
use super::body::{CUT, Done, Lead, Led, MAX_CALL, MAX_TRAILING, Progress, Tail, Window, is_left_over};
use super::format::Place;
use super::marks::{self, Seen};
use super::shape::{self, Found, Style};
use crate::Arguments;
use crate::json::{Push, Reader};

/// Opening tags that may be written again. Each is read again as text if no call follows.
const MAX_DOUBLED: usize = 2;

#[derive(Debug)]
pub(super) struct JsonBody {
    /// The call whose arguments the body is: its name and id. Without, the body says them.
    call: Option<(String, Option<String>)>,
    phase: Phase,
    /// The next byte to read.
    cursor: usize,
    lead: Lead,
    /// Opening tags after the first.
    doubled: usize,
    reader: Reader,
    value_start: usize,
    calls: Vec<Found>,
    value_end: usize,
    /// The byte after what belongs to the call, its closing tag apart.
    end: usize,
    comma: bool,
    balanced: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Lead,
    Value,
    /// After a value: a closing tag, another value, or something else.
    Between,
    /// After a value and words that are none of it.
    Trailing,
}

impl JsonBody {
    /// A body that holds the arguments of the call `name`.
    pub(super) fn named(cursor: usize, name: String, id: Option<String>) -> Self {
        Self { call: Some((name, id)), ..Self::new(cursor) }
    }

    pub(super) fn new(cursor: usize) -> Self {
        Self {
            call: None,
            phase: Phase::Lead,
            cursor,
            lead: Lead::default(),
            doubled: 0,
            reader: Reader::new(),
            value_start: cursor,
            calls: Vec::new(),
            value_end: cursor,
            end: cursor,
            comma: false,
            balanced: true,
        }
    }

    /// How far the text has been read.
    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    /// The calls before the value that broke.
    pub(super) fn salvage(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.calls)
    }

    /// Where the value that broke begins, if calls came before it.
    pub(super) fn broken_from(&self) -> Option<usize> {
        (!self.calls.is_empty()).then_some(self.value_start)
    }

    pub(super) fn advance(&mut self, window: &Window<'_>) -> Progress {
        loop {
            let step = match self.phase {
                Phase::Lead => self.read_lead(window),
                Phase::Value => self.read_value(window),
                Phase::Between => self.read_between(window),
                Phase::Trailing => self.read_trailing(window),
            };
            if let Some(progress) = step {
                return progress;
            }
        }
    }

    fn read_lead(&mut self, window: &Window<'_>) -> Option<Progress> {
        let led = self.lead.skip(window, self.cursor);
        if self.call.is_some() && !matches!(led, Led::More) {
            return self.lead_to_arguments(window, led);
        }
        match led {
            Led::More => return Some(Progress::More),
            Led::End if window.ended == Some(TextEnd::Cut) => {
                return Some(Progress::Broken("the call is cut off before it begins".to_owned()));
            }
            Led::End => return Some(Progress::Prose),
            Led::At(at) => match window.next(at) {
                // doubled braces: the second pair's closer is left over after the value
                Some('{') => match window.next(at + 1) {
                    None if window.ended.is_none() => return Some(Progress::More),
                    Some('{') => self.start_value(at + 1),
                    _ => self.start_value(at),
                },
                Some('[') => self.start_value(at),
                Some('<') if self.doubled < MAX_DOUBLED => match window.own_opener(at) {
                    // an opening tag that is written twice
                    Seen::Yes(length) => {
                        self.doubled += 1;
                        self.cursor = at + length;
                        self.lead = Lead::default();
                    }
                    Seen::More if window.ended.is_none() => return Some(Progress::More),
                    _ => return Some(Progress::Prose),
                },
                _ => return Some(Progress::Prose),
            },
        }
        None
    }

    /// Where the arguments of a call begin whose name is known. None at all are no arguments if the call is closed.
    fn lead_to_arguments(&mut self, window: &Window<'_>, led: Led) -> Option<Progress> {
        let Led::At(at) = led else { return Some(Progress::Broken(CUT.to_owned())) };
        match window.next(at) {
            Some('{') => {
                self.start_value(at);
                return None;
            }
            Some(character) if window.may_mark(character) => match window.tail(at) {
                Tail::More => return Some(Progress::More),
                Tail::Close(length) => return Some(self.without_arguments(at, at + length, false)),
                Tail::Open => return Some(self.without_arguments(at, at, true)),
                Tail::CutClose | Tail::Other => {}
            },
            _ => {}
        }
        Some(match window.format.place {
            Place::LineStart => Progress::Prose,
            _ => Progress::Broken("the arguments of the call are no JSON object".to_owned()),
        })
    }

    fn without_arguments(&mut self, at: usize, end: usize, at_opener: bool) -> Progress {
        self.value_end = at;
        if let Some((name, id)) = &self.call {
            self.calls.push(named_call(name, id.as_deref(), Ok(Arguments::from_object(Map::new()))));
        }
        self.done(end, at_opener)
    }

    fn start_value(&mut self, at: usize) {
        self.cursor = at;
        self.value_start = at;
        self.reader = Reader::new();
        self.comma = false;
        self.phase = Phase::Value;
    }

    fn read_value(&mut self, window: &Window<'_>) -> Option<Progress> {
        for (offset, character) in window.at(self.cursor).char_indices() {
            let at = self.cursor + offset;
            if at > MAX_CALL {
                self.cursor = at;
                return Some(Progress::TooLong);
            }
            match self.reader.push(character) {
                Push::More => {}
                Push::Done => {
                    self.end_value(window, at + character.len_utf8());
                    return None;
                }
                Push::DoneBefore => {
                    self.end_value(window, at);
                    return None;
                }
                Push::Invalid(problem) => {
                    self.cursor = at;
                    // the machine does not move on what it refuses
                    return self.refuse(window, character, problem);
                }
            }
        }
        self.cursor = window.text.len();
        let Some(ended) = window.ended else { return Some(Progress::More) };
        self.end_inside_value(window, ended)
    }

    fn end_value(&mut self, window: &Window<'_>, end: usize) {
        let value = self.reader.take();
        let raw = (!self.reader.repaired()).then(|| &window.text[self.value_start..end]);
        match &self.call {
            Some((name, id)) => {
                self.calls.push(named_call(name, id.as_deref(), shape::arguments(name, value, raw)));
            }
            None => self.calls.extend(shape::calls(value, raw, Style::of(window.format))),
        }
        self.balanced &= self.reader.balanced();
        self.cursor = end;
        self.value_end = end;
        self.end = end;
        self.phase = Phase::Between;
    }

    /// A character that is not JSON: a closing tag after a value with one brace too few, a word that stands for a
    /// value in an explanation, or a mistake.
    fn refuse(&mut self, window: &Window<'_>, character: char, problem: &str) -> Option<Progress> {
        if character == '<' {
            let tail = window.tail(self.cursor);
            if tail == Tail::More {
                // asked again with more text: the reader's state is as before
                return Some(Progress::More);
            }
            let closing = match tail {
                Tail::Other => marks::any_closing_tag(window.at(self.cursor)),
                _ => Seen::Yes(0),
            };
            match closing {
                Seen::More if window.ended.is_none() => return Some(Progress::More),
                Seen::Yes(_) if self.reader.finish(1).is_ok() => {
                    self.end_value(window, self.cursor);
                    return None;
                }
                _ => {}
            }
        }
        let placeholder = matches!(character, '<' | '.' | '…') && self.reader.expects_item();
        let unnamed = self.call.is_none() || window.format.place == Place::LineStart;
        if unnamed && self.calls.is_empty() && (placeholder || !self.reader.has_key()) {
            return Some(Progress::Prose);
        }
        let position = window.text[self.value_start..self.cursor].chars().count() + 1;
        Some(Progress::Broken(format!("{problem} at character {position} of the call")))
    }

    fn end_inside_value(&mut self, window: &Window<'_>, ended: TextEnd) -> Option<Progress> {
        match ended {
            TextEnd::Clean if self.reader.finish(1).is_ok() => {
                self.end_value(window, window.text.len());
                return None;
            }
            TextEnd::Clean if self.call.is_none() && self.calls.is_empty() && !self.reader.has_key() => {
                return Some(Progress::Prose);
            }
            TextEnd::Clean => {}
            TextEnd::Cut => {
                let leading = std::mem::take(&mut self.calls);
                let elements = match self.call {
                    Some(_) => Vec::new(),
                    None => {
                        let elements = Value::Array(self.reader.leading_elements());
                        shape::calls(elements, None, Style::of(window.format))
                    }
                };
                self.calls = leading.into_iter().chain(elements).collect();
                if !self.calls.is_empty() {
                    self.calls.push(Err(CUT.to_owned()));
                    return Some(self.done(window.text.len(), false));
                }
            }
        }
        Some(Progress::Broken(CUT.to_owned()))
    }

    fn read_between(&mut self, window: &Window<'_>) -> Option<Progress> {
        if window.format.close.is_empty() {
            return self.read_next(window);
        }
        while let Some(character) = window.next(self.cursor) {
            if self.cursor - self.value_end > MAX_TRAILING {
                return Some(self.done(self.end, false));
            }
            match character {
                '{' | '[' if !self.is_mark(window) => {
                    if self.call.is_some() {
                        return Some(self.done(self.end, false));
                    }
                    self.start_value(self.cursor);
                    return None;
                }
                '"' if self.comma => {
                    return Some(self.misread("the call's object ends before its last member"));
                }
                '}' | ']' if !self.balanced => return Some(self.misread("brackets do not match")),
                ',' => self.comma = true,
                _ if window.may_mark(character) => match self.read_tail(window) {
                    Some(progress) => return Some(progress),
                    None if self.phase == Phase::Between => continue,
                    None => return None,
                },
                _ if is_left_over(character) => {}
                _ => {
                    self.phase = Phase::Trailing;
                    return None;
                }
            }
            self.cursor += character.len_utf8();
            if !character.is_whitespace() {
                self.end = self.cursor;
            }
        }
        self.end_without_tag(window)
    }

    /// In a format without a closing mark: another object after a separator, or the end.
    fn read_next(&mut self, window: &Window<'_>) -> Option<Progress> {
        let rest = window.at(self.value_end);
        let is_between = |c: char| c.is_whitespace() || matches!(c, ';' | ',');
        let next = rest.find(|c: char| !is_between(c)).unwrap_or(rest.len());
        let between = &rest[..next];
        let separated = between.contains([';', ',']) && self.call.is_none();
        if next == rest.len() && next < MAX_TRAILING && window.ended.is_none() && self.call.is_none() {
            return Some(Progress::More);
        }
        if separated && next < MAX_TRAILING && rest[next..].starts_with('{') {
            self.start_value(self.value_end + next);
            return None;
        }
        Some(self.done(self.end, false))
    }

    /// Whether a mark begins here, or may.
    fn is_mark(&self, window: &Window<'_>) -> bool {
        let character = window.next(self.cursor).unwrap_or(' ');
        window.may_mark(character) && window.tail(self.cursor) != Tail::Other
    }

    /// At a `<` (or what else may begin a mark) directly after a value.
    fn read_tail(&mut self, window: &Window<'_>) -> Option<Progress> {
        match window.tail(self.cursor) {
            Tail::More => return Some(Progress::More),
            Tail::Close(length) => return Some(self.done(self.cursor + length, false)),
            Tail::CutClose => return Some(self.done(window.text.len(), false)),
            Tail::Open => return Some(self.done(self.cursor, true)),
            Tail::Other => {}
        }
        match marks::any_closing_tag(window.at(self.cursor)) {
            // any closing tag directly after a value is a slip for the right one
            Seen::Yes(length) => Some(self.done(self.cursor + length, false)),
            Seen::More if window.ended.is_none() => Some(Progress::More),
            _ => {
                self.phase = Phase::Trailing;
                None
            }
        }
    }

    fn read_trailing(&mut self, window: &Window<'_>) -> Option<Progress> {
        while let Some(character) = window.next(self.cursor) {
            if self.cursor - self.value_end > MAX_TRAILING {
                return Some(self.done(self.end, false));
            }
            if window.may_mark(character) {
                match window.tail(self.cursor) {
                    Tail::More => return Some(Progress::More),
                    Tail::Close(length) => return Some(self.done(self.cursor + length, false)),
                    Tail::Open => return Some(self.done(self.end, false)),
                    Tail::CutClose | Tail::Other => {}
                }
            }
            self.cursor += character.len_utf8();
        }
        self.end_without_tag(window)
    }

    fn end_without_tag(&mut self, window: &Window<'_>) -> Option<Progress> {
        match window.ended {
            None => Some(Progress::More),
            Some(TextEnd::Clean) => Some(self.done(self.end, false)),
            Some(TextEnd::Cut) => {
                // what came before the last value ended when the next one began
                self.calls.pop();
                if self.calls.is_empty() {
                    return Some(Progress::Broken(CUT.to_owned()));
                }
                self.calls.push(Err(CUT.to_owned()));
                Some(self.done(window.text.len(), false))
            }
        }
    }

    /// What was read so far was read wrongly.
    fn misread(&mut self, problem: &str) -> Progress {
        self.calls.clear();
        Progress::Broken(problem.to_owned())
    }

    fn done(&mut self, end: usize, at_opener: bool) -> Progress {
        Progress::Done(Done {
            calls: std::mem::take(&mut self.calls),
            value_end: self.value_end,
            end,
            at_opener,
        })
    }
}

/// A call whose name stands before its arguments. A header may say that a tool is meant and not which.
fn named_call(name: &str, id: Option<&str>, arguments: Result<Arguments, String>) -> Found {
    if name.is_empty() {
        return Err("the call names no tool".to_owned());
    }
    let (name, id) = (name.to_owned(), id.map(str::to_owned));
    Ok(TextCall { name, server: None, id, arguments: arguments? })
}
