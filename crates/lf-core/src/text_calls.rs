//! Tool calls that a model writes as text.
//!
//! One push parser reads a stream and a whole answer alike. It owes its callers three things: no part of a tag is
//! shown before it is known to be none; what is no call comes out as text, in full; and a call that is cut or cannot
//! be read is reported, neither completed nor lost. Dialects are rows of a table ([`TextFormat`]).

mod body;
pub(crate) mod by_name;
mod candidate;
mod elements;
mod families;
mod format;
mod json_body;
mod literal_body;
mod literals;
mod markdown;
mod marks;
mod named_body;
mod nested;
mod output;
mod scanner;
mod shape;
mod tag;
mod tagged_body;
#[cfg(test)]
mod tests;
mod typed;
mod utf8;

use crate::Arguments;

pub use body::FieldKind;
pub use families::{for_model, named, names};
pub use format::{
    Body, Channels, DEFAULT, Head, Mark, Named, NamedHead, Param, Place, Reasoning, Tagged, TextFormat, Trim,
};
pub use scanner::TextScanner;
pub use utf8::Utf8Joiner;

/// A part of an answer, in the order of the text.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// To be shown.
    Text(String),
    /// The content of a `<think>` block that begins a line.
    Reasoning(String),
    Call(TextCall),
    /// Meant as a call, and not to be run. `problem` is a lowercase fragment for the model to read.
    Malformed {
        raw: String,
        problem: String,
    },
}

/// A call as it was written. Its arguments are always an object; what has no object is [`Piece::Malformed`].
#[derive(Debug, Clone, PartialEq)]
pub struct TextCall {
    pub name: String,
    /// The MCP server, in dialects that name it.
    pub server: Option<String>,
    /// The call's id, in dialects that give one. Not unique by itself.
    pub id: Option<String>,
    pub arguments: Arguments,
}

/// How the answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEnd {
    /// The model was finished: what can be read of an unclosed call is read.
    Clean,
    /// `length`, an error or a missing end: an unclosed call is not runnable.
    Cut,
}
