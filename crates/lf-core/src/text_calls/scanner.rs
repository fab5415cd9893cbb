//! The scanner: decides at every character whether a tag begins here, and hands the bodies to their readers.
//!
//! Every decision depends on the text alone, never on how it was cut into pushes: what is not decided yet waits.

use super::body::{Done, MAX_CALL, Progress, Tail, Window};
use super::elements::ElementsBody;
use super::format::{Body, DEFAULT, END_TOKENS, INVENTED, Mark, THINK, TextFormat};
use super::json_body::JsonBody;
use super::markdown::{Context, Mask, MaskEnd, mask_end};
use super::marks::{self, Seen};
use super::output::{Channel, Output};
use super::shape::Found;
use super::{Piece, TextEnd};

/// Bytes that are looked at to decide about a token or a wrapper.
const MAX_LOOK: usize = 256;
/// Bytes that may be read twice because a call turned out to be broken. Beyond it nothing more is taken for a call.
const MAX_REREAD: usize = 4 * MAX_CALL;

/// Reads an answer piece by piece.
#[derive(Debug)]
pub struct TextScanner {
    formats: &'static [TextFormat],
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
    reread: usize,
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
        may_call: bool,
    },
    /// In a think block from an opening tag on: a call only if the block is never closed. `cursor` is where to look
    /// for its end.
    Held {
        channel: Channel,
        cursor: usize,
    },
    /// Text to the end, because a limit was reached.
    Plain,
    /// Nothing to the end, because the model went on to invent the results of its calls.
    Invented,
}

#[derive(Debug)]
struct Candidate {
    format: &'static TextFormat,
    body: Reader,
    /// Bytes of the opening tag, and of a wrapper before it.
    opener: usize,
    mask: Option<Mask>,
    state: CandidateState,
}

#[derive(Debug)]
enum Reader {
    Json(JsonBody),
    Elements(ElementsBody),
}

#[derive(Debug)]
enum CandidateState {
    Reading,
    /// Read; a code span or quotation that was open before may still be closed after it.
    Masked {
        done: Done,
        mask: Mask,
        cursor: usize,
    },
    /// Unreadable: looking for the end of a mask, then for a closing tag.
    Broken {
        problem: String,
        mask: Option<Mask>,
        cursor: usize,
    },
}

enum Look {
    Taken,
    /// More text could make it one.
    Undecided,
    Other,
}

enum Outcome {
    Wait,
    Again,
    /// The opening tag is text.
    Prose,
    /// This many bytes are text: a call that is shown in code or quoted.
    Shown(usize),
    Read(Done),
    /// Unreadable, this many bytes of it.
    BrokenUntil(usize, String),
    TooLong,
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
                Mode::Think { channel, may_call } => self.read_think(channel, may_call),
                Mode::Held { channel, cursor } => self.read_held(channel, cursor),
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
            let step = if self.context.is_protected() || !self.may_mark(character) {
                self.take(Channel::Text, character.len_utf8());
                continue;
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
        character == '<'
            || self
                .formats
                .iter()
                .flat_map(|format| format.open.iter().chain(format.close))
                .any(|mark| matches!(mark, Mark::Word(word) if word.starts_with(character)))
    }

    /// At a character that may begin a tag.
    fn read_mark(&mut self, character: char) -> Step {
        let waiting = self.ended.is_none();
        let mut undecided = false;
        for look in [
            Self::look_for_call,
            Self::look_for_think,
            Self::look_for_left_over,
            Self::look_for_end_token,
            Self::look_for_comment,
        ] {
            match look(self) {
                Look::Taken => return Step::On,
                Look::Undecided => undecided |= waiting,
                Look::Other => {}
            }
        }
        if undecided {
            return Step::Wait;
        }
        self.take(Channel::Text, character.len_utf8());
        Step::On
    }

    fn look_for_call(&mut self) -> Look {
        let mut undecided = false;
        for format in self.formats {
            match opener(self.rest(), format) {
                Seen::No => {}
                Seen::More => undecided = true,
                Seen::Yes(length) => {
                    self.start_candidate(format, length);
                    return Look::Taken;
                }
            }
        }
        if undecided { Look::Undecided } else { Look::Other }
    }

    fn start_candidate(&mut self, format: &'static TextFormat, opener: usize) {
        let body = match format.body {
            Body::Json => Reader::Json(JsonBody::new(opener)),
            Body::Elements(children) => Reader::Elements(ElementsBody::new(children, opener)),
        };
        let mask = self.context.mask();
        let state = CandidateState::Reading;
        self.mode = Mode::Candidate(Box::new(Candidate { format, body, opener, mask, state }));
    }

    fn look_for_think(&mut self) -> Look {
        match marks::any(THINK.iter().map(|&mark| marks::opens(self.rest(), mark))) {
            Seen::No => {}
            Seen::More => return Look::Undecided,
            Seen::Yes(length) => {
                return self.unless_in_span(length, |scanner| {
                    let begins = scanner.context.at_line_start() || scanner.after_call;
                    let channel = if begins { Channel::Reasoning } else { Channel::Text };
                    scanner.take_tag(channel, length);
                    scanner.mode = Mode::Think { channel, may_call: true };
                });
            }
        }
        if self.context.mask().is_some() {
            return Look::Other;
        }
        // the closing tag of a block that the prompt opened; what came before has been shown
        let length = match marks::any(THINK.iter().map(|&mark| marks::closes(self.rest(), mark))) {
            Seen::Yes(length) => length,
            Seen::More => return Look::Undecided,
            Seen::No => return Look::Other,
        };
        match self.rest()[length..].chars().next() {
            None if self.ended.is_none() => Look::Undecided,
            Some(next) if next != '\n' && next != '<' && !self.context.at_line_start() => Look::Other,
            _ => {
                self.drop(length);
                Look::Taken
            }
        }
    }

    /// Does `then` unless the span around this place is closed on the line after a tag of this length.
    fn unless_in_span(&mut self, length: usize, then: impl FnOnce(&mut Self)) -> Look {
        let end = match self.context.mask() {
            Some(mask) => mask_end(self.rest(), mask, length, length, self.ended.is_some()),
            None => MaskEnd::Open,
        };
        match end {
            MaskEnd::More(_) => return Look::Undecided,
            MaskEnd::Closed(_) => return Look::Other,
            MaskEnd::Open => then(self),
        }
        Look::Taken
    }

    /// A tag is shown only where its content is.
    fn take_tag(&mut self, channel: Channel, length: usize) {
        match channel {
            Channel::Text => self.take(channel, length),
            Channel::Reasoning => self.drop(length),
        }
    }

    /// After a call: a second closing tag, or an invented result.
    fn look_for_left_over(&mut self) -> Look {
        if !self.has_calls || self.context.in_span() {
            return Look::Other;
        }
        if self.context.at_line_start() || self.after_call {
            match marks::any(INVENTED.iter().map(|&mark| marks::opens(self.rest(), mark))) {
                Seen::Yes(_) => {
                    self.output.removed();
                    self.mode = Mode::Invented;
                    return Look::Taken;
                }
                Seen::More => return Look::Undecided,
                Seen::No => {}
            }
        }
        if !self.after_call {
            return Look::Other;
        }
        let closers = self.formats.iter().flat_map(|format| format.close.iter().chain(format.wrappers));
        match marks::any(closers.map(|&mark| marks::closes(self.rest(), mark))) {
            Seen::Yes(length) => {
                self.drop(length);
                Look::Taken
            }
            Seen::More => Look::Undecided,
            Seen::No => Look::Other,
        }
    }

    /// A token that ends a turn: after a call, or with nothing but more of its kind behind it.
    fn look_for_end_token(&mut self) -> Look {
        if self.context.in_span() {
            return Look::Other;
        }
        let rest = self.rest();
        let token = |at: usize| marks::any(END_TOKENS.iter().map(|&mark| marks::opens(&rest[at..], mark)));
        let mut end = match token(0) {
            Seen::Yes(length) => length,
            Seen::More => return Look::Undecided,
            Seen::No => return Look::Other,
        };
        if self.after_call {
            self.drop(end);
            return Look::Taken;
        }
        loop {
            let blank = rest[end..].len() - rest[end..].trim_start().len();
            end += blank;
            match token(end) {
                _ if end > MAX_LOOK => return Look::Other,
                _ if end == rest.len() && self.ended.is_none() => return Look::Undecided,
                _ if end == rest.len() => {
                    self.drop(end);
                    return Look::Taken;
                }
                Seen::Yes(length) => end += length,
                Seen::More if self.ended.is_none() => return Look::Undecided,
                _ => return Look::Other,
            }
        }
    }

    fn look_for_comment(&mut self) -> Look {
        match marks::starts(self.rest(), "<!--") {
            Seen::Yes(length) => self.unless_in_span(length, |scanner| {
                scanner.take(Channel::Text, length);
                scanner.context.open_comment();
            }),
            Seen::More => Look::Undecided,
            Seen::No => Look::Other,
        }
    }

    fn read_candidate(&mut self, mut candidate: Box<Candidate>) -> Step {
        let window = Window {
            text: &self.buffer[self.at..],
            ended: self.ended,
            format: candidate.format,
            formats: self.formats,
            in_code: matches!(candidate.mask, Some(Mask::Backticks(_))),
        };
        let step = match &mut candidate.state {
            CandidateState::Reading => read_body(&mut candidate, &window),
            CandidateState::Masked { done, mask, cursor } => {
                match mask_end(window.text, *mask, done.value_end, *cursor, window.ended.is_some()) {
                    MaskEnd::More(at) => {
                        *cursor = at;
                        Outcome::Wait
                    }
                    MaskEnd::Closed(end) => Outcome::Shown(end),
                    MaskEnd::Open => Outcome::Read(take_done(done)),
                }
            }
            CandidateState::Broken { mask: Some(mask), cursor, problem } => {
                match mask_end(window.text, *mask, candidate.opener, *cursor, window.ended.is_some()) {
                    MaskEnd::More(at) => {
                        *cursor = at;
                        Outcome::Wait
                    }
                    MaskEnd::Closed(end) => Outcome::Shown(end),
                    MaskEnd::Open => {
                        let problem = std::mem::take(problem);
                        let cursor = candidate.body.broken_from(candidate.opener, &window);
                        candidate.state = CandidateState::Broken { problem, mask: None, cursor };
                        Outcome::Again
                    }
                }
            }
            CandidateState::Broken { mask: None, cursor, problem } => {
                find_broken_end(&window, cursor, problem)
            }
        };
        self.decide(candidate, step)
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
            Outcome::Prose => self.take(Channel::Text, candidate.opener),
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
                self.reread += candidate.body.cursor().saturating_sub(end);
                if self.reread > MAX_REREAD {
                    self.mode = Mode::Plain;
                }
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

    fn read_think(&mut self, channel: Channel, may_call: bool) -> Step {
        while let Some(character) = self.rest().chars().next() {
            self.context.settle(character);
            if self.may_mark(character) {
                let close = marks::any(THINK.iter().map(|&mark| marks::closes(self.rest(), mark)));
                let call = match may_call && !self.context.is_protected() {
                    true => marks::any(self.formats.iter().map(|format| opener(self.rest(), format))),
                    false => Seen::No,
                };
                match (close, call) {
                    (Seen::Yes(length), _) => {
                        self.end_think(channel, length);
                        return Step::On;
                    }
                    (_, Seen::Yes(_)) => {
                        self.mode = Mode::Held { channel, cursor: 0 };
                        return Step::On;
                    }
                    (Seen::More, _) | (_, Seen::More) if self.ended.is_none() => break,
                    _ => {}
                }
            }
            self.take(channel, character.len_utf8());
        }
        self.mode = Mode::Think { channel, may_call };
        Step::Wait
    }

    fn end_think(&mut self, channel: Channel, closer: usize) {
        self.take_tag(channel, closer);
        self.context = Context::new();
    }

    /// Looks for the end of the think block that a call was seen in, from `cursor` bytes after it on.
    fn read_held(&mut self, channel: Channel, mut cursor: usize) -> Step {
        while let (false, Some(offset)) = (self.think_stays_open, self.rest()[cursor..].find('<')) {
            cursor += offset;
            match marks::any(THINK.iter().map(|&mark| marks::closes(&self.rest()[cursor..], mark))) {
                Seen::Yes(length) => {
                    self.take(channel, cursor);
                    self.end_think(channel, length);
                    return Step::On;
                }
                Seen::More if self.ended.is_none() => break,
                _ => cursor += 1,
            }
        }
        let held = self.rest().len();
        match self.ended {
            None if held <= MAX_CALL => {
                let cursor = if self.rest()[cursor..].starts_with('<') { cursor } else { held };
                self.mode = Mode::Held { channel, cursor };
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
                self.mode = Mode::Think { channel, may_call: false };
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

/// An opening tag, with a wrapper before it or without.
fn opener(text: &str, format: &TextFormat) -> Seen {
    let direct = |text: &str| marks::any(format.open.iter().map(|&mark| marks::opens(text, mark)));
    let seen = direct(text);
    if let Seen::Yes(_) = seen {
        return seen;
    }
    match marks::any(format.wrappers.iter().map(|&mark| marks::opens(text, mark))) {
        Seen::Yes(wrapper) => {
            let inner = text[wrapper..].trim_start();
            let skipped = text.len() - inner.len();
            match direct(inner) {
                _ if skipped > wrapper + MAX_LOOK => Seen::No,
                Seen::Yes(length) => Seen::Yes(skipped + length),
                other => other,
            }
        }
        other => marks::any([seen, other]),
    }
}

fn read_body(candidate: &mut Candidate, window: &Window<'_>) -> Outcome {
    let progress = match &mut candidate.body {
        Reader::Json(body) => body.advance(window),
        Reader::Elements(body) => body.advance(window),
    };
    match (progress, candidate.mask) {
        (Progress::More, _) => Outcome::Wait,
        (Progress::Prose, _) => Outcome::Prose,
        (Progress::TooLong, _) => Outcome::TooLong,
        (Progress::Done(done), None) => Outcome::Read(done),
        (Progress::Done(done), Some(mask)) => {
            let cursor = if matches!(mask, Mask::Adjacent(_)) { done.end } else { done.value_end };
            candidate.state = CandidateState::Masked { done, mask, cursor };
            Outcome::Again
        }
        (Progress::Broken(problem), None) => {
            let cursor = candidate.body.broken_from(candidate.opener, window);
            candidate.state = CandidateState::Broken { problem, mask: None, cursor };
            Outcome::Again
        }
        (Progress::Broken(problem), mask) => {
            candidate.state = CandidateState::Broken { problem, mask, cursor: candidate.opener };
            Outcome::Again
        }
    }
}

/// A broken call ends at the first closing tag, wherever that stands, or at the next opening one: what follows may be
/// a good call.
fn find_broken_end(window: &Window<'_>, cursor: &mut usize, problem: &mut String) -> Outcome {
    while let Some(character) = window.next(*cursor) {
        if *cursor > MAX_CALL {
            return Outcome::TooLong;
        }
        if window.may_mark(character) {
            match window.tail(*cursor) {
                Tail::More => return Outcome::Wait,
                Tail::Close(length) => {
                    return Outcome::BrokenUntil(*cursor + length, std::mem::take(problem));
                }
                Tail::Open => return Outcome::BrokenUntil(*cursor, std::mem::take(problem)),
                Tail::CutClose | Tail::Other => {}
            }
        }
        *cursor += character.len_utf8();
    }
    match window.ended {
        None => Outcome::Wait,
        Some(_) => Outcome::BrokenUntil(window.text.len(), std::mem::take(problem)),
    }
}

impl Reader {
    fn cursor(&self) -> usize {
        match self {
            Self::Json(body) => body.cursor(),
            Self::Elements(body) => body.cursor(),
        }
    }

    fn salvage(&mut self) -> Vec<Found> {
        match self {
            Self::Json(body) => body.salvage(),
            Self::Elements(body) => body.salvage(),
        }
    }

    /// Where to look for the end of what broke: after the calls before it. Of a call that the limit of the answer
    /// cut, nothing is looked at again: what looks like a tag there may be its data.
    fn broken_from(&self, opener: usize, window: &Window<'_>) -> usize {
        if window.ended == Some(TextEnd::Cut) && self.cursor() == window.text.len() {
            return window.text.len();
        }
        match self {
            Self::Json(body) => body.broken_from(),
            Self::Elements(body) => body.broken_from(),
        }
        .unwrap_or(opener)
    }
}

fn take_done(done: &mut Done) -> Done {
    Done { calls: std::mem::take(&mut done.calls), ..*done }
}
