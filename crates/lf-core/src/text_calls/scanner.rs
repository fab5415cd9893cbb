//! The scanner: decides at every character whether a tag begins here, and hands the bodies to their readers.
//!
//! Every decision depends on the text alone, never on how it was cut into pushes: what is not decided yet waits.

mod channels;
mod looks;

use std::sync::Arc;

use super::body::{MAX_CALL, Window};
use super::candidate::{Candidate, Outcome};
use super::format::{DEFAULT, Mark, Place, Reasoning, TextFormat};
use super::markdown::{Context, Mask};
use super::marks::{self, Seen};
use super::output::{Channel, Output};
use super::shape::Found;
use super::{Piece, TextEnd};
use crate::model::ToolSpec;
use looks::opener;

/// Bytes that may be read twice because a call turned out to be broken. Beyond it nothing more is taken for a call.
pub(super) const MAX_REREAD: usize = 4 * MAX_CALL;

/// Reads an answer piece by piece.
#[derive(Debug)]
pub struct TextScanner {
    formats: &'static [TextFormat],
    /// Type untyped values, and say which names are meant where a mark alone does not.
    tools: Arc<[ToolSpec]>,
    /// The characters that marks begin with.
    starts: Vec<char>,
    buffer: String,
    /// The first byte that is not decided.
    at: usize,
    mode: Mode,
    context: Context,
    output: Output,
    /// Only white space since a call.
    after_call: bool,
    /// Whether the last call ended because another opening tag stood there.
    at_opener: bool,
    has_calls: bool,
    pub(super) reread: usize,
    ended: Option<TextEnd>,
    /// Known at the end: no `</think>` follows.
    think_stays_open: bool,
}

#[derive(Debug)]
enum Mode {
    Text,
    Candidate(Box<Candidate>),
    /// In a think block, before anything in it looks like a call, or after that was given up.
    Think {
        channel: Channel,
        block: &'static Reasoning,
        may_call: bool,
    },
    /// In a think block from an opening tag on: a call only if the block is never closed. `cursor` is where to look
    /// for its end.
    Held {
        channel: Channel,
        block: &'static Reasoning,
        cursor: usize,
    },
    /// Text to the end, because a limit was reached.
    Plain,
    /// Nothing to the end, because the model went on to invent the results of its calls.
    Invented,
}

enum Step {
    /// Something was decided.
    On,
    Wait,
}

impl Default for TextScanner {
    fn default() -> Self {
        Self::new(DEFAULT)
    }
}

impl TextScanner {
    /// A scanner for `formats`: [`DEFAULT`], or what [`super::named`] gives.
    pub fn new(formats: &'static [TextFormat]) -> Self {
        Self {
            formats,
            tools: Arc::from([]),
            starts: starts(formats),
            buffer: String::new(),
            at: 0,
            mode: Mode::Text,
            context: Context::new(),
            output: Output::default(),
            after_call: false,
            at_opener: false,
            has_calls: false,
            reread: 0,
            ended: None,
            think_stays_open: false,
        }
    }

    /// With the tools that the model was shown.
    pub fn with_tools(mut self, tools: Arc<[ToolSpec]>) -> Self {
        self.tools = tools;
        self
    }

    /// Takes the next piece of the answer; gives what is decided by it.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        if self.ended.is_none() {
            self.buffer.push_str(text);
            self.run();
        }
        self.output.take()
    }

    /// The answer has ended: decides all that is left. Further pushes are ignored.
    pub fn finish(&mut self, end: TextEnd) -> Vec<Piece> {
        if self.ended.is_none() {
            self.ended = Some(end);
            self.run();
            self.output.finish();
        }
        self.output.take()
    }

    fn run(&mut self) {
        loop {
            let mode = std::mem::replace(&mut self.mode, Mode::Text);
            let step = match mode {
                Mode::Text => self.read_text(),
                Mode::Candidate(candidate) => self.read_candidate(candidate),
                Mode::Think { channel, block, may_call } => self.read_think(channel, block, may_call),
                Mode::Held { channel, block, cursor } => self.read_held(channel, block, cursor),
                Mode::Plain => self.read_plain(),
                Mode::Invented => self.read_invented(),
            };
            if matches!(step, Step::Wait) {
                break;
            }
        }
        self.buffer.drain(..self.at);
        self.at = 0;
    }

    fn rest(&self) -> &str {
        &self.buffer[self.at..]
    }

    /// Takes `length` bytes as they are.
    fn take(&mut self, channel: Channel, length: usize) {
        let end = self.at + length;
        while let Some(character) = self.buffer[self.at..end].chars().next() {
            self.at += character.len_utf8();
            self.context.feed(character);
            self.output.push(channel, character);
            self.after_call &= character.is_whitespace();
        }
    }

    /// Leaves out `length` bytes.
    fn drop(&mut self, length: usize) {
        self.at += length;
        self.context.cut();
        self.output.removed();
    }

    fn read_text(&mut self) -> Step {
        while let Some(character) = self.rest().chars().next() {
            self.context.settle(character);
            let step = if !self.may_mark(character) {
                self.take(Channel::Text, character.len_utf8());
                continue;
            } else if self.context.is_protected() {
                self.read_token(character)
            } else {
                self.read_mark(character)
            };
            match (step, &self.mode) {
                (Step::Wait, _) => return Step::Wait,
                (Step::On, Mode::Text) => {}
                (Step::On, _) => return Step::On,
            }
        }
        Step::Wait
    }

    fn may_mark(&self, character: char) -> bool {
        self.starts.contains(&character)
    }

    fn read_candidate(&mut self, mut candidate: Box<Candidate>) -> Step {
        let window = Window {
            text: &self.buffer[self.at..],
            ended: self.ended,
            format: candidate.format,
            formats: self.formats,
            tools: &self.tools,
            in_code: matches!(candidate.mask, Some(Mask::Backticks(_))),
        };
        let outcome = candidate.advance(&window);
        self.decide(candidate, outcome)
    }

    fn decide(&mut self, mut candidate: Box<Candidate>, outcome: Outcome) -> Step {
        match outcome {
            Outcome::Wait => {
                self.mode = Mode::Candidate(candidate);
                return Step::Wait;
            }
            Outcome::Again => self.mode = Mode::Candidate(candidate),
            Outcome::Prose if self.at_opener && self.after_call => {
                // an opening tag in the place of a closing one
                self.at_opener = false;
                self.drop(candidate.opener);
            }
            Outcome::Prose => {
                if candidate.format.place == Place::Bare {
                    self.count_reread(candidate.body.cursor());
                }
                match self.dropped() {
                    Seen::Yes(length) => self.drop(length),
                    _ => self.take(Channel::Text, candidate.opener),
                }
            }
            Outcome::Shown(length) => {
                self.take(Channel::Text, length);
                self.context.end_span();
            }
            Outcome::Read(done) => {
                if candidate.mask.is_some() {
                    self.context.end_span();
                }
                self.emit(done.calls, done.end);
                self.at_opener = done.at_opener;
            }
            Outcome::BrokenUntil(end, problem) => {
                let mut calls = candidate.body.salvage();
                calls.push(Err(problem));
                self.count_reread(candidate.body.cursor().saturating_sub(end));
                self.emit(calls, end);
            }
            Outcome::TooLong => {
                let end = self.rest().floor_char_boundary(MAX_CALL);
                self.emit(vec![Err(format!("the call is longer than {MAX_CALL} bytes"))], end);
                self.mode = Mode::Plain;
            }
        }
        Step::On
    }

    fn count_reread(&mut self, length: usize) {
        self.reread += length;
        if self.reread > MAX_REREAD {
            self.mode = Mode::Plain;
        }
    }

    /// Gives the calls of a candidate that ends at `length`. Of several, a bad one is reported by itself.
    fn emit(&mut self, calls: Vec<Found>, length: usize) {
        let raw = self.buffer[self.at..self.at + length].trim_end().to_owned();
        self.drop(length);
        self.after_call = true;
        self.has_calls = true;
        self.at_opener = false;
        let good = calls.iter().filter(|call| call.is_ok()).count();
        if calls.is_empty() {
            self.output.malformed(&raw, "the call is empty".to_owned());
        }
        let mut shown = false;
        for call in calls {
            match call {
                Ok(call) => self.output.call(call),
                // the text holds good calls too: showing it again would repeat them
                Err(problem) if good > 0 => self.output.malformed("", problem),
                Err(problem) => {
                    self.output.malformed(if shown { "" } else { &raw }, problem);
                    shown = true;
                }
            }
        }
    }

    fn read_think(&mut self, channel: Channel, block: &'static Reasoning, may_call: bool) -> Step {
        while let Some(character) = self.rest().chars().next() {
            self.context.settle(character);
            if self.may_mark(character) {
                let close = closer(self.rest(), block);
                let call = match may_call && !self.context.is_protected() {
                    true => marks::any(self.formats.iter().map(|format| self.opens_call(format))),
                    false => Seen::No,
                };
                match (close, call) {
                    (Seen::Yes(length), _) => {
                        self.end_think(channel, length);
                        return Step::On;
                    }
                    (_, Seen::Yes(_)) => {
                        self.mode = Mode::Held { channel, block, cursor: 0 };
                        return Step::On;
                    }
                    (Seen::More, _) | (_, Seen::More) if self.ended.is_none() => break,
                    _ => {}
                }
            }
            self.take(channel, character.len_utf8());
        }
        self.mode = Mode::Think { channel, block, may_call };
        Step::Wait
    }

    /// An opener that counts inside a block of reasoning: one that is a mark.
    fn opens_call(&self, format: &TextFormat) -> Seen {
        match format.place {
            Place::Bare | Place::LineStart => Seen::No,
            Place::Anywhere | Place::Declared => opener(self.rest(), format),
        }
    }

    fn end_think(&mut self, channel: Channel, closer: usize) {
        self.take_tag(channel, closer);
        self.context = Context::new();
    }

    /// Looks for the end of the think block that a call was seen in, from `cursor` bytes after it on.
    fn read_held(&mut self, channel: Channel, block: &'static Reasoning, mut cursor: usize) -> Step {
        let mut waits = false;
        while let (false, Some(offset)) =
            (self.think_stays_open, self.rest()[cursor..].find(|character| self.may_mark(character)))
        {
            cursor += offset;
            match closer(&self.rest()[cursor..], block) {
                Seen::Yes(length) => {
                    self.take(channel, cursor);
                    self.end_think(channel, length);
                    return Step::On;
                }
                Seen::More if self.ended.is_none() => {
                    waits = true;
                    break;
                }
                _ => cursor += self.rest()[cursor..].chars().next().map_or(1, char::len_utf8),
            }
        }
        let held = self.rest().len();
        match self.ended {
            None if held <= MAX_CALL => {
                let cursor = if waits { cursor } else { held };
                self.mode = Mode::Held { channel, block, cursor };
                Step::Wait
            }
            Some(TextEnd::Clean) if held <= MAX_CALL => {
                // the call ends the thinking: from here on this is the answer
                self.think_stays_open = true;
                self.context.cut();
                self.output.removed();
                Step::On
            }
            _ => {
                self.mode = Mode::Think { channel, block, may_call: false };
                Step::On
            }
        }
    }

    fn read_plain(&mut self) -> Step {
        self.take(Channel::Text, self.buffer.len() - self.at);
        self.mode = Mode::Plain;
        Step::Wait
    }

    fn read_invented(&mut self) -> Step {
        self.at = self.buffer.len();
        self.mode = Mode::Invented;
        Step::Wait
    }
}

/// What ends a block of reasoning: its closing mark, or something that is no part of it, of length 0.
fn closer(text: &str, block: &Reasoning) -> Seen {
    let close = marks::any(block.close.iter().map(|&mark| marks::closes(text, mark)));
    let until = marks::any(block.until.iter().map(|&mark| marks::opens(text, mark)));
    match (close, until) {
        (Seen::Yes(_), _) => close,
        (_, Seen::Yes(_)) => Seen::Yes(0),
        _ => marks::any([close, until]),
    }
}

fn starts(formats: &[TextFormat]) -> Vec<char> {
    let mut starts = vec!['<'];
    for format in formats {
        let reasoning = format.reasoning.iter().flat_map(|block| block.open.iter().chain(block.close));
        let marks = format.open.iter().chain(format.close).chain(format.wrappers).chain(format.invented);
        let words = marks.chain(reasoning).filter_map(|mark| match mark {
            Mark::Word(word) => Some(*word),
            Mark::Tag(_) | Mark::Suffixed(_) => None,
        });
        let channels = format.channels.iter().flat_map(|channels| channels.open);
        let firsts =
            words.chain(channels.chain(format.dropped).copied()).filter_map(|word| word.chars().next());
        for first in firsts {
            if !starts.contains(&first) {
                starts.push(first);
            }
        }
    }
    starts
}
