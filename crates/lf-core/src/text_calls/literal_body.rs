//! Bodies of literals: the end of the calls is found as the text comes, and what is before it is read at once.

use super::TextEnd;
use super::body::{CUT, Done, MAX_CALL, Progress, Tail, Window};
use super::literals::{Literals, MAX_DEPTH, is_name};
use super::marks::{self, Seen};
use super::shape::Found;

/// Bytes of a tool's name.
const MAX_NAME: usize = 256;

#[derive(Debug)]
pub(super) struct LiteralBody {
    /// Tokens around strings, in the dialect that has them.
    quotes: Option<&'static [&'static str]>,
    start: usize,
    cursor: usize,
    /// The byte after the last complete call.
    end: usize,
    phase: Phase,
    /// Whether the calls stand in brackets.
    listed: bool,
    calls: usize,
    /// What closes the brackets that are open, the innermost last.
    closers: Vec<char>,
    /// The calls before one that broke.
    before: Vec<Found>,
    /// The last character that was no white space.
    previous: char,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Before,
    Name { start: usize },
    Arguments,
    Text { quote: char, triple: bool },
    Token { token: &'static str },
}

impl LiteralBody {
    pub(super) fn new(quotes: Option<&'static [&'static str]>, cursor: usize) -> Self {
        Self {
            quotes,
            start: cursor,
            cursor,
            end: cursor,
            phase: Phase::Before,
            listed: false,
            calls: 0,
            closers: Vec::new(),
            before: Vec::new(),
            previous: ' ',
        }
    }

    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    /// The calls before one that broke.
    pub(super) fn salvage(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.before)
    }

    /// The byte after them, if there are any.
    pub(super) fn broken_from(&self) -> Option<usize> {
        (self.calls > 0).then_some(self.end)
    }

    pub(super) fn advance(&mut self, window: &Window<'_>) -> Progress {
        while let Some(character) = window.next(self.cursor) {
            if self.cursor > MAX_CALL {
                return Progress::TooLong;
            }
            let step = match self.phase {
                Phase::Before => self.read_before(window, character),
                Phase::Name { start } => self.read_name(window, character, start),
                Phase::Arguments => self.read_arguments(window, character),
                Phase::Text { quote, triple } => self.read_text(window, character, quote, triple),
                Phase::Token { token } => self.read_token(window, token),
            };
            if let Some(progress) = step {
                return progress;
            }
        }
        match window.ended {
            None => Progress::More,
            Some(ended) => self.end_of_text(window, ended),
        }
    }

    fn step(&mut self, character: char) {
        self.cursor += character.len_utf8();
        if !character.is_whitespace() {
            self.previous = character;
        }
    }

    /// Before a call, or after one.
    fn read_before(&mut self, window: &Window<'_>, character: char) -> Option<Progress> {
        match character {
            _ if character.is_whitespace() => self.step(character),
            ',' | ';' if self.calls > 0 && self.quotes.is_none() => self.step(character),
            '[' if self.calls == 0 && !self.listed && self.quotes.is_none() => {
                self.listed = true;
                self.step(character);
            }
            ']' if self.listed && self.calls > 0 => {
                self.step(character);
                self.end = self.cursor;
                return Some(self.done(window, self.cursor, false));
            }
            _ if is_name(character) => self.phase = Phase::Name { start: self.cursor },
            _ if window.may_mark(character) => match window.tail(self.cursor) {
                Tail::More => return Some(Progress::More),
                Tail::Close(length) if self.calls > 0 => {
                    return Some(self.done(window, self.cursor + length, false));
                }
                Tail::CutClose if self.calls > 0 => return Some(self.done(window, window.text.len(), false)),
                Tail::Open if self.calls > 0 => return Some(self.done(window, self.cursor, true)),
                _ => return Some(self.stop(window)),
            },
            _ => return Some(self.stop(window)),
        }
        None
    }

    /// Something that is no call.
    fn stop(&mut self, window: &Window<'_>) -> Progress {
        match self.calls {
            0 => Progress::Prose,
            _ => self.done(window, self.end, false),
        }
    }

    fn read_name(&mut self, window: &Window<'_>, character: char, start: usize) -> Option<Progress> {
        if is_name(character) && self.cursor - start < MAX_NAME {
            self.step(character);
            return None;
        }
        let (opens, closes) = if self.quotes.is_some() { ('{', '}') } else { ('(', ')') };
        if character != opens {
            self.cursor = start;
            // what was read is no call; what came before it may be
            return Some(if self.calls == 0 {
                Progress::Prose
            } else {
                self.broken(window, "the list of calls is not closed")
            });
        }
        self.step(character);
        self.closers.push(closes);
        self.phase = Phase::Arguments;
        None
    }

    fn read_arguments(&mut self, window: &Window<'_>, character: char) -> Option<Progress> {
        for &token in self.quotes.unwrap_or_default() {
            match marks::starts(window.at(self.cursor), token) {
                Seen::Yes(length) => {
                    self.cursor += length;
                    self.phase = Phase::Token { token };
                    return None;
                }
                Seen::More if window.ended.is_none() => return Some(Progress::More),
                _ => {}
            }
        }
        match character {
            // there, a word may hold it
            '(' | ')' if self.quotes.is_some() => {}
            '(' | '[' | '{' if self.closers.len() > MAX_DEPTH + 1 => {
                return Some(self.broken(window, "the arguments are nested too deeply"));
            }
            '(' => self.closers.push(')'),
            '[' => self.closers.push(']'),
            '{' => self.closers.push('}'),
            ')' | ']' | '}' => return self.close(window, character),
            '"' | '\'' if self.quotes.is_none() => {
                let rest = window.at(self.cursor);
                if rest.len() < 3 && rest.chars().all(|next| next == character) && window.ended.is_none() {
                    return Some(Progress::More);
                }
                let triple = rest.chars().take(3).filter(|&next| next == character).count() == 3;
                self.cursor += if triple { 3 } else { 1 };
                self.phase = Phase::Text { quote: character, triple };
                return None;
            }
            '"' if ":,[{".contains(self.previous) => {
                self.step(character);
                self.phase = Phase::Text { quote: character, triple: false };
                return None;
            }
            _ => {}
        }
        self.step(character);
        None
    }

    /// A bracket that closes the one opened last.
    fn close(&mut self, window: &Window<'_>, bracket: char) -> Option<Progress> {
        if self.closers.pop() != Some(bracket) {
            return Some(self.broken(window, "brackets do not match"));
        }
        self.step(bracket);
        if !self.closers.is_empty() {
            return None;
        }
        self.calls += 1;
        self.end = self.cursor;
        self.phase = Phase::Before;
        self.quotes.is_some().then(|| self.done(window, self.cursor, false))
    }

    fn read_text(
        &mut self,
        window: &Window<'_>,
        character: char,
        quote: char,
        triple: bool,
    ) -> Option<Progress> {
        if character == '\\' {
            let Some(escaped) = window.next(self.cursor + 1) else {
                self.cursor += if window.ended.is_some() { 1 } else { 0 };
                return window.ended.is_none().then_some(Progress::More);
            };
            self.cursor += 1 + escaped.len_utf8();
            return None;
        }
        if character == quote {
            let run = window.at(self.cursor).chars().take(3).take_while(|&next| next == quote).count();
            if triple && run < 3 && self.cursor + run == window.text.len() && window.ended.is_none() {
                return Some(Progress::More);
            }
            if !triple || run == 3 {
                self.cursor += if triple { 3 } else { 1 };
                self.previous = quote;
                self.phase = Phase::Arguments;
                return None;
            }
        }
        self.cursor += character.len_utf8();
        None
    }

    fn read_token(&mut self, window: &Window<'_>, token: &'static str) -> Option<Progress> {
        let rest = window.at(self.cursor);
        if let Some(offset) = rest.find(token) {
            self.cursor += offset + token.len();
            self.phase = Phase::Arguments;
            return None;
        }
        let kept = if window.ended.is_some() { 0 } else { token.len() - 1 };
        let searched = rest.floor_char_boundary(rest.len().saturating_sub(kept));
        self.cursor += searched;
        window.ended.is_none().then_some(Progress::More)
    }

    fn end_of_text(&mut self, window: &Window<'_>, ended: TextEnd) -> Progress {
        let complete = matches!(self.phase, Phase::Before);
        if ended == TextEnd::Clean && complete {
            return match self.calls {
                0 => Progress::Prose,
                _ => self.done(window, self.end, false),
            };
        }
        if self.calls == 0 {
            return match self.phase {
                Phase::Before | Phase::Name { .. } if ended == TextEnd::Clean => Progress::Prose,
                _ => Progress::Broken(CUT.to_owned()),
            };
        }
        if complete && !self.listed {
            return self.done(window, self.end, false);
        }
        let mut done = self.read(window, window.text.len(), false);
        done.calls.push(Err(CUT.to_owned()));
        Progress::Done(done)
    }

    /// The calls before this one are as good as they were.
    fn broken(&mut self, window: &Window<'_>, problem: &str) -> Progress {
        if self.calls > 0 {
            self.before = self.read(window, self.end, false).calls;
        }
        Progress::Broken(problem.to_owned())
    }

    fn done(&self, window: &Window<'_>, end: usize, at_opener: bool) -> Progress {
        Progress::Done(self.read(window, end, at_opener))
    }

    /// Reads the complete calls.
    fn read(&self, window: &Window<'_>, end: usize, at_opener: bool) -> Done {
        let text = &window.text[self.start..self.end];
        let calls: Vec<Found> = match self.quotes {
            Some(quotes) => vec![Literals::new(text, window.tools, quotes).gemma_call()],
            None => Literals::new(text, window.tools, &[]).python_calls(),
        };
        Done { calls, value_end: self.end, end, at_opener }
    }
}
