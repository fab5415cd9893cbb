//! What may begin at a `<`: a call, a think block, a comment, or what a model leaves behind after a call.

use super::super::candidate::Candidate;
use super::super::format::{END_TOKENS, INVENTED, Place, Reasoning, THINK, TextFormat};
use super::super::markdown::{MaskEnd, mask_end};
use super::super::marks::{self, Seen};
use super::super::output::Channel;
use super::{Mode, Step, TextScanner};

/// Bytes that are looked at to decide about a token or a wrapper.
const MAX_LOOK: usize = 256;
pub(super) enum Look {
    Taken,
    /// More text could make it one.
    Undecided,
    Other,
}

impl TextScanner {
    /// At a character that may begin a tag.
    pub(super) fn read_mark(&mut self, character: char) -> Step {
        let waiting = self.ended.is_none();
        for look in [
            Self::look_for_channel,
            Self::look_for_call,
            Self::look_for_think,
            Self::look_for_left_over,
            Self::look_for_end_token,
            Self::look_for_dropped,
            Self::look_for_comment,
        ] {
            match look(self) {
                Look::Taken => return Step::On,
                Look::Undecided if waiting => return Step::Wait,
                Look::Undecided | Look::Other => {}
            }
        }
        self.take(Channel::Text, character.len_utf8());
        Step::On
    }

    /// At a character of a code block that may begin a token. A message can end inside one.
    pub(super) fn read_token(&mut self, character: char) -> Step {
        for look in [Self::look_for_channel, Self::look_for_dropped] {
            match look(self) {
                Look::Taken => return Step::On,
                Look::Undecided if self.ended.is_none() => return Step::Wait,
                Look::Undecided | Look::Other => {}
            }
        }
        self.take(Channel::Text, character.len_utf8());
        Step::On
    }

    /// The first format whose opener stands here. One that still may does not give way to a later one.
    fn look_for_call(&mut self) -> Look {
        for format in self.formats {
            if !self.counts_here(format.place) {
                continue;
            }
            match opener(self.rest(), format) {
                Seen::No => {}
                Seen::More if self.ended.is_none() => return Look::Undecided,
                Seen::More => {}
                Seen::Yes(length) => {
                    self.start_candidate(format, length);
                    return Look::Taken;
                }
            }
        }
        Look::Other
    }

    fn counts_here(&self, place: Place) -> bool {
        match place {
            Place::Anywhere | Place::Declared => true,
            Place::LineStart => self.context.at_line_start() && self.context.mask().is_none(),
            Place::Bare => self.context.mask().is_none(),
        }
    }

    fn start_candidate(&mut self, format: &'static TextFormat, opener: usize) {
        let candidate = Candidate::new(format, opener, self.context.mask());
        self.mode = Mode::Candidate(Box::new(candidate));
    }

    fn look_for_think(&mut self) -> Look {
        let formats = self.formats;
        for block in formats.iter().flat_map(|format| format.reasoning) {
            match marks::any(block.open.iter().map(|&mark| marks::opens(self.rest(), mark))) {
                Seen::No => {}
                Seen::More if self.ended.is_none() => return Look::Undecided,
                Seen::More => {}
                Seen::Yes(length) => {
                    self.drop(length);
                    self.think(block);
                    return Look::Taken;
                }
            }
        }
        match marks::any(THINK.open.iter().map(|&mark| marks::opens(self.rest(), mark))) {
            Seen::No => {}
            Seen::More => return Look::Undecided,
            Seen::Yes(length) => {
                return self.unless_in_span(length, |scanner| {
                    let begins = scanner.context.at_line_start() || scanner.after_call;
                    let channel = if begins { Channel::Reasoning } else { Channel::Text };
                    scanner.take_tag(channel, length);
                    scanner.mode = Mode::Think { channel, block: &THINK, may_call: true };
                });
            }
        }
        if self.context.mask().is_some() {
            return Look::Other;
        }
        // the closing tag of a block that the prompt opened; what came before has been shown
        let length = match marks::any(THINK.close.iter().map(|&mark| marks::closes(self.rest(), mark))) {
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

    /// From here on this is reasoning.
    pub(super) fn think(&mut self, block: &'static Reasoning) {
        self.mode = Mode::Think { channel: Channel::Reasoning, block, may_call: block.may_call };
    }

    /// A mark of the format that means nothing to a reader.
    pub(super) fn dropped(&self) -> Seen {
        let protected = self.context.is_protected();
        let is_token = |mark: &str| mark.starts_with("<|") || mark.starts_with("<｜");
        let dropped = self.formats.iter().flat_map(|format| format.dropped);
        let dropped = dropped.filter(|mark| !protected || is_token(mark));
        marks::any(dropped.map(|mark| marks::starts(self.rest(), mark)))
    }

    /// Such a mark, or the end of a block of reasoning that the prompt opened.
    fn look_for_dropped(&mut self) -> Look {
        let blocks = self.formats.iter().flat_map(|format| format.reasoning);
        let close = blocks.flat_map(|block| block.close).map(|&mark| marks::closes(self.rest(), mark));
        match marks::any(close.chain([self.dropped()])) {
            Seen::Yes(length) => {
                let at_line_start = self.context.at_line_start();
                self.drop(length);
                if at_line_start {
                    self.context.restart_line();
                }
                Look::Taken
            }
            Seen::More => Look::Undecided,
            Seen::No => Look::Other,
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
    pub(super) fn take_tag(&mut self, channel: Channel, length: usize) {
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
            let invented = self.formats.iter().flat_map(|format| format.invented).chain(INVENTED);
            match marks::any(invented.map(|&mark| marks::opens(self.rest(), mark))) {
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
}

/// Marks around calls that may stand before an opener.
const MAX_WRAPPERS: usize = 4;

/// An opening tag, with wrappers before it or without.
pub(super) fn opener(text: &str, format: &TextFormat) -> Seen {
    let mut at = 0;
    for _ in 0..=MAX_WRAPPERS {
        let rest = text[at..].trim_start();
        let blank = text.len() - at - rest.len();
        if at == 0 && blank > 0 || blank > MAX_LOOK {
            return Seen::No;
        }
        at += blank;
        let open = marks::any(format.open.iter().map(|&mark| marks::opens(rest, mark)));
        if let Seen::Yes(length) = open {
            return Seen::Yes(at + length);
        }
        match marks::any(format.wrappers.iter().map(|&mark| marks::opens(rest, mark))) {
            Seen::Yes(length) => at += length,
            wrapper => return marks::any([open, wrapper]),
        }
    }
    Seen::No
}
