//! What the readers of call bodies have in common.

use super::TextEnd;
use super::format::{Body, END_TOKENS, Mark, Place, TextFormat};
use super::marks::{self, Seen};
use super::shape::Found;
use crate::model::ToolSpec;

/// Bytes of one call, from its opening tag on. What is longer is no call and is not waited for.
pub(super) const MAX_CALL: usize = 1 << 20;
/// What is said of a call that the end of the text cuts.
pub(super) const CUT: &str = "the call is cut off";
/// Bytes after a complete value in which a closing tag is still looked for, and of blanks before what a call begins with.
pub(super) const MAX_TRAILING: usize = 2048;

/// What a child element holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Server,
    Tool,
    /// The tool of a call that needs no server.
    Name,
    Arguments,
    Id,
}

/// A candidate's text from its first byte to the last that is known.
#[derive(Clone, Copy)]
pub(super) struct Window<'a> {
    pub(super) text: &'a str,
    /// Set when no text follows.
    pub(super) ended: Option<TextEnd>,
    pub(super) format: &'static TextFormat,
    pub(super) formats: &'static [TextFormat],
    pub(super) tools: &'a [ToolSpec],
    /// Whether a code span is open before the candidate.
    pub(super) in_code: bool,
}

#[derive(Debug)]
pub(super) enum Progress {
    More,
    /// What follows the opening tag is no attempt at a call: the tag is text.
    Prose,
    Done(Done),
    /// Meant as a call, but unreadable.
    Broken(String),
    TooLong,
}

#[derive(Debug)]
pub(super) struct Done {
    pub(super) calls: Vec<Found>,
    /// The byte after the last value.
    pub(super) value_end: usize,
    /// The byte after the call.
    pub(super) end: usize,
    /// Whether it ended because another one began.
    pub(super) at_opener: bool,
}

/// What stands at a `<` after or inside a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    More,
    /// A closing tag of the format, of this length.
    Close(usize),
    /// The same, cut by the end of the text.
    CutClose,
    /// The start of another call.
    Open,
    Other,
}

impl<'a> Window<'a> {
    pub(super) fn at(&self, cursor: usize) -> &'a str {
        &self.text[cursor..]
    }

    pub(super) fn next(&self, cursor: usize) -> Option<char> {
        self.at(cursor).chars().next()
    }

    pub(super) fn tail(&self, cursor: usize) -> Tail {
        let rest = self.at(cursor);
        let close = marks::any(
            self.format
                .close
                .iter()
                .map(|&mark| marks::closes(rest, mark))
                .chain(END_TOKENS.iter().map(|&mark| marks::opens(rest, mark))),
        );
        let open = self.opener(cursor);
        match (close, open) {
            (Seen::Yes(length), _) => Tail::Close(length),
            (_, Seen::Yes(_)) => Tail::Open,
            (Seen::More, _) if self.closes_at_end(rest) => Tail::CutClose,
            (Seen::More, _) | (_, Seen::More) if self.ended.is_none() => Tail::More,
            _ => Tail::Other,
        }
    }

    /// Whether the start of a closing tag at the end of the text is one. After a cut it has to be unmistakable.
    fn closes_at_end(&self, rest: &str) -> bool {
        match self.ended {
            None => false,
            Some(TextEnd::Clean) => true,
            Some(TextEnd::Cut) => rest.len() > "</".len(),
        }
    }

    /// An opening tag of any format.
    pub(super) fn opener(&self, cursor: usize) -> Seen {
        let rest = self.at(cursor);
        let formats = self.formats.iter().filter(|format| format.place != Place::Bare);
        let wrappers = match self.format.body {
            Body::Named(_) | Body::Tagged(_) => self.format.wrappers,
            _ => &[],
        };
        let channels =
            self.formats.iter().filter_map(|format| format.channels).flat_map(|channels| channels.open);
        marks::any(
            formats
                .flat_map(|format| format.open)
                .chain(wrappers)
                .map(|&mark| marks::opens(rest, mark))
                .chain(channels.map(|open| marks::starts(rest, open))),
        )
    }

    /// An opening tag of the format itself.
    pub(super) fn own_opener(&self, cursor: usize) -> Seen {
        marks::any(self.format.open.iter().map(|&mark| marks::opens(self.at(cursor), mark)))
    }

    /// Whether a mark may start with this character.
    pub(super) fn may_mark(&self, character: char) -> bool {
        character == '<'
            || self.format.open.iter().chain(self.format.close).any(|mark| match mark {
                Mark::Word(word) => word.starts_with(character),
                Mark::Tag(_) | Mark::Suffixed(_) => false,
            })
    }
}

/// Skips what models put between a tag and its value: blanks, a code fence or backticks, a language's name, `CDATA`.
#[derive(Debug, Default)]
pub(super) struct Lead {
    /// Bytes skipped so far.
    skipped: usize,
    /// Backticks among them.
    backticks: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Led {
    More,
    /// The byte of the first character that is not skipped.
    At(usize),
    /// Nothing follows.
    End,
}

impl Lead {
    pub(super) fn skip(&mut self, window: &Window<'_>, from: usize) -> Led {
        while let Some(character) = window.next(from + self.skipped) {
            let cursor = from + self.skipped;
            if self.skipped > MAX_TRAILING {
                return Led::At(cursor);
            }
            let length = match character {
                '`' if !window.in_code && self.backticks < MAX_BACKTICKS => {
                    self.backticks += 1;
                    Some(1)
                }
                '<' => match marks::starts(window.at(cursor), CDATA) {
                    Seen::Yes(length) => Some(length),
                    Seen::More if window.ended.is_none() => return Led::More,
                    _ => None,
                },
                _ if character.is_whitespace() || character == '\u{feff}' => Some(character.len_utf8()),
                _ if character.is_ascii_alphabetic() => match self.language(window, cursor) {
                    Seen::Yes(length) => Some(length),
                    Seen::More => return Led::More,
                    Seen::No => None,
                },
                _ => None,
            };
            match length {
                Some(length) => self.skipped += length,
                None => return Led::At(cursor),
            }
        }
        if window.ended.is_some() { Led::End } else { Led::More }
    }

    /// The word `json`, or any word directly after a fence and alone on its line.
    fn language(&self, window: &Window<'_>, cursor: usize) -> Seen {
        let rest = window.at(cursor);
        let length = rest.bytes().take_while(|&byte| byte.is_ascii_alphanumeric() || byte == b'_').count();
        if length > MAX_WORD {
            return Seen::No;
        }
        if length == rest.len() && window.ended.is_none() {
            return Seen::More;
        }
        let alone = matches!(rest[length..].chars().next(), Some('\n' | '\r'));
        if rest[..length].eq_ignore_ascii_case("json") || (self.backticks > 0 && alone) {
            Seen::Yes(length)
        } else {
            Seen::No
        }
    }
}

const CDATA: &str = "<![CDATA[";
const MAX_WORD: usize = 16;
/// No fence that is put around a call has more. A line of them is a line, and each would begin another look at all of it.
const MAX_BACKTICKS: usize = 32;

/// Skipped between a value and its closing tag: what a fence, `CDATA` or one brace too many leaves.
pub(super) fn is_left_over(character: char) -> bool {
    character.is_whitespace() || matches!(character, '`' | '}' | ']' | ')' | '>' | ',' | ';' | '\u{feff}')
}
