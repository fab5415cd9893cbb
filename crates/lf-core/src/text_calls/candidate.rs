//! From an opening tag on: text that may be a call, until it is one or is known to be none.

use super::TextEnd;
use super::body::{Done, MAX_CALL, Progress, Tail, Window};
use super::elements::ElementsBody;
use super::format::{self, TextFormat};
use super::json_body::JsonBody;
use super::markdown::{Mask, MaskEnd, mask_end};
use super::shape::Found;

#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) format: &'static TextFormat,
    pub(super) body: Body,
    /// Bytes of the opening tag, and of a wrapper before it.
    pub(super) opener: usize,
    pub(super) mask: Option<Mask>,
    state: CandidateState,
}

#[derive(Debug)]
pub(super) enum Body {
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

#[derive(Debug)]
pub(super) enum Outcome {
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

impl Candidate {
    /// A candidate whose opening tag takes `opener` bytes.
    pub(super) fn new(format: &'static TextFormat, opener: usize, mask: Option<Mask>) -> Self {
        let body = match format.body {
            format::Body::Json => Body::Json(JsonBody::new(opener)),
            format::Body::Elements(children) => Body::Elements(ElementsBody::new(children, opener)),
        };
        Self { format, body, opener, mask, state: CandidateState::Reading }
    }

    pub(super) fn advance(&mut self, window: &Window<'_>) -> Outcome {
        match &mut self.state {
            CandidateState::Reading => self.read_body(window),
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
                match mask_end(window.text, *mask, self.opener, *cursor, window.ended.is_some()) {
                    MaskEnd::More(at) => {
                        *cursor = at;
                        Outcome::Wait
                    }
                    MaskEnd::Closed(end) => Outcome::Shown(end),
                    MaskEnd::Open => {
                        let problem = std::mem::take(problem);
                        let cursor = self.body.broken_from(self.opener, window);
                        self.state = CandidateState::Broken { problem, mask: None, cursor };
                        Outcome::Again
                    }
                }
            }
            CandidateState::Broken { mask: None, cursor, problem } => {
                find_broken_end(window, cursor, problem)
            }
        }
    }

    fn read_body(&mut self, window: &Window<'_>) -> Outcome {
        let progress = match &mut self.body {
            Body::Json(body) => body.advance(window),
            Body::Elements(body) => body.advance(window),
        };
        match (progress, self.mask) {
            (Progress::More, _) => Outcome::Wait,
            (Progress::Prose, _) => Outcome::Prose,
            (Progress::TooLong, _) => Outcome::TooLong,
            (Progress::Done(done), None) => Outcome::Read(done),
            (Progress::Done(done), Some(mask)) => {
                let cursor = if matches!(mask, Mask::Adjacent(_)) { done.end } else { done.value_end };
                self.state = CandidateState::Masked { done, mask, cursor };
                Outcome::Again
            }
            (Progress::Broken(problem), None) => {
                let cursor = self.body.broken_from(self.opener, window);
                self.state = CandidateState::Broken { problem, mask: None, cursor };
                Outcome::Again
            }
            (Progress::Broken(problem), mask) => {
                self.state = CandidateState::Broken { problem, mask, cursor: self.opener };
                Outcome::Again
            }
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

impl Body {
    pub(super) fn cursor(&self) -> usize {
        match self {
            Self::Json(body) => body.cursor(),
            Self::Elements(body) => body.cursor(),
        }
    }

    pub(super) fn salvage(&mut self) -> Vec<Found> {
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
