//! From an opening tag on: text that may be a call, until it is one or is known to be none.

use super::TextEnd;
use super::body::{CUT, Done, MAX_CALL, Progress, Tail, Window};
use super::elements::ElementsBody;
use super::format::{self, Place, TextFormat};
use super::json_body::JsonBody;
use super::literal_body::LiteralBody;
use super::markdown::{Mask, MaskEnd, mask_end};
use super::named_body::NamedBody;
use super::shape::Found;
use super::tagged_body::TaggedBody;
use super::typed;

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
    Named(NamedBody),
    Tagged(Box<TaggedBody>),
    Literal(LiteralBody),
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
        // what opens a bare call is its own first character
        let at = if format.place == Place::Bare { 0 } else { opener };
        let body = match format.body {
            format::Body::Json | format::Body::KeyedJson => Body::Json(JsonBody::new(at)),
            format::Body::Elements(children) => Body::Elements(ElementsBody::new(children, at)),
            format::Body::Named(spec) => Body::Named(NamedBody::new(spec, at)),
            format::Body::Tagged(spec) => Body::Tagged(Box::new(TaggedBody::new(spec, at))),
            format::Body::Python => Body::Literal(LiteralBody::new(None, at)),
            format::Body::Gemma(quotes) => Body::Literal(LiteralBody::new(Some(quotes), at)),
        };
        Self { format, body, opener, mask, state: CandidateState::Reading }
    }

    /// The arguments of a call whose header, of `opener` bytes, names the tool.
    pub(super) fn arguments(format: &'static TextFormat, opener: usize, name: String) -> Self {
        let body = Body::Json(JsonBody::named(opener, name, None));
        Self { format, body, opener, mask: None, state: CandidateState::Reading }
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
            Body::Named(body) => body.advance(window),
            Body::Tagged(body) => body.advance(window),
            Body::Literal(body) => body.advance(window),
        };
        let progress = if self.format.place == Place::Bare { bare(progress, window) } else { progress };
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

/// Without a mark around it, only what is a call without doubt is one: everything else is text. Of a list that is cut,
/// the complete calls are.
fn bare(progress: Progress, window: &Window<'_>) -> Progress {
    let done = match progress {
        Progress::Done(done) => done,
        Progress::Broken(_) | Progress::TooLong => return Progress::Prose,
        other => return other,
    };
    let (last, before) = match done.calls.split_last() {
        Some((Err(problem), before)) if problem == CUT && !before.is_empty() => (None, before),
        Some((last, before)) => (Some(last), before),
        None => return Progress::Prose,
    };
    let declared =
        |call: &Found| call.as_ref().is_ok_and(|call| !typed::is_undeclared(window.tools, &call.name));
    if before.iter().chain(last).all(declared) { Progress::Done(done) } else { Progress::Prose }
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
            Self::Named(body) => body.cursor(),
            Self::Tagged(body) => body.cursor(),
            Self::Literal(body) => body.cursor(),
        }
    }

    pub(super) fn salvage(&mut self) -> Vec<Found> {
        match self {
            Self::Json(body) => body.salvage(),
            Self::Elements(body) => body.salvage(),
            Self::Named(body) => body.salvage(),
            Self::Tagged(body) => body.salvage(),
            Self::Literal(body) => body.salvage(),
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
            Self::Named(body) => body.broken_from(),
            Self::Tagged(body) => body.broken_from(),
            Self::Literal(body) => body.broken_from(),
        }
        .unwrap_or(opener)
    }
}

fn take_done(done: &mut Done) -> Done {
    Done { calls: std::mem::take(&mut done.calls), ..*done }
}
