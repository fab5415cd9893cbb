//! The table of text dialects: what opens a call, what closes it, how its body is read.

use super::body::FieldKind;

/// One text dialect. A new dialect is a row of the table; a new way of writing bodies is a variant of [`Body`].
#[derive(Debug, Clone, Copy)]
pub struct TextFormat {
    /// What the configuration calls it.
    pub name: &'static str,
    /// Marks that may stand around calls; dropped when a call follows directly.
    pub wrappers: &'static [Mark],
    pub open: &'static [Mark],
    /// The first is the proper one, the rest are known slips. Empty: the end of the body is the end of the call.
    pub close: &'static [Mark],
    pub body: Body,
    /// Where its openers count.
    pub place: Place,
    /// Blocks that hold reasoning, beside `<think>` and `<thinking>`.
    pub reasoning: &'static [Reasoning],
    /// Messages with headers, which say what their text is.
    pub channels: Option<&'static Channels>,
    /// Marks that mean nothing to a reader.
    pub dropped: &'static [&'static str],
    /// What only the other side may say, beside what every format treats so.
    pub invented: &'static [Mark],
}

/// A row to start from: nothing is read.
pub(super) const NOTHING: TextFormat = TextFormat {
    name: "",
    wrappers: &[],
    open: &[],
    close: &[],
    body: Body::Json,
    place: Place::Anywhere,
    reasoning: &[],
    channels: None,
    dropped: &[],
    invented: &[],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// `<name>` and `</name>`, in any case, the opening one with or without attributes.
    Tag(&'static str),
    /// The same with an optional `:suffix` after the name, and without attributes.
    Suffixed(&'static str),
    /// The text itself.
    Word(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// JSON that names the tool: one object, several, or an array of them.
    Json,
    /// The same, where an object may also be `{"name": {arguments}}`.
    KeyedJson,
    /// One child element a field, in any order.
    Elements(&'static [(&'static str, FieldKind)]),
    /// The tool's name, and its arguments as a JSON object.
    Named(&'static Named),
    /// The tool's name, and one element an argument.
    Tagged(&'static Tagged),
    /// `[f(a=1), g()]`
    Python,
    /// `call:f{a:1}`; the tokens stand around strings.
    Gemma(&'static [&'static str]),
}

/// Where an opener begins a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Anywhere,
    /// At the start of a line.
    LineStart,
    /// Anywhere outside of code and quotations, but what opens a call is no mark, only its first character: anything
    /// but a complete call of a declared tool is text.
    Bare,
    /// Anywhere, for declared tools, and at once after a wrapper for any.
    Declared,
}

/// How a name stands before the JSON of its arguments.
#[derive(Debug)]
pub struct Named {
    /// What may stand in the head beside the name.
    pub separators: &'static [&'static str],
    /// Words of the head that are not the name, where another word could be.
    pub ignored: &'static [&'static str],
    pub head: NamedHead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedHead {
    /// The name, and an id after this separator.
    Name { id_after: &'static str },
    /// An id that holds the name: `functions.name:3`.
    Id,
    /// The name, on a line of its own.
    Line,
    /// The name, and one of the separators.
    Separated,
}

/// How a call names its tool and its arguments in elements.
#[derive(Debug)]
pub struct Tagged {
    pub head: Head,
    pub param: Param,
    /// What closes an argument.
    pub param_close: &'static [Mark],
    /// What closes a call; closing marks of the format do too.
    pub close: &'static [Mark],
    pub trim: Trim,
}

#[derive(Debug, Clone, Copy)]
pub enum Head {
    /// `name>` after the opener.
    Inline,
    /// Attributes after the opener, up to the end of its tag.
    Attribute { key: &'static str, end: &'static str },
    /// The name alone, up to a line's end or the next tag.
    Line,
}

#[derive(Debug, Clone, Copy)]
pub enum Param {
    /// The opener, then `key>`.
    Inline(&'static str),
    /// The opener, then attributes up to the end of its tag.
    Attribute { open: &'static str, key: &'static str, end: &'static str },
    /// An element for the key and one for the value.
    Pair { key: Mark, value: Mark },
    /// Elements of the argument's own name; this stands before every tag.
    Nested(&'static str),
}

/// The white space around a value that is none of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trim {
    Nothing,
    /// One line break at each end.
    LineBreak,
    All,
}

/// A block of reasoning.
#[derive(Debug)]
pub struct Reasoning {
    pub open: &'static [Mark],
    pub close: &'static [Mark],
    /// What ends it without being part of it.
    pub until: &'static [Mark],
    /// Whether a call in a block that is never closed is meant.
    pub may_call: bool,
}

/// Messages that begin with a header: `<|start|>role to=recipient<|channel|>name<|message|>`.
#[derive(Debug)]
pub struct Channels {
    /// What begins a header.
    pub open: &'static [&'static str],
    /// What ends a header.
    pub message: &'static str,
    /// How reasoning ends.
    pub reasoning: &'static Reasoning,
    /// Whether a message to a tool is the call itself, its text the arguments.
    pub calls: bool,
}

pub(super) const HERMES: TextFormat = TextFormat {
    name: "hermes",
    wrappers: &[Mark::Tag("tool_calls")],
    open: &[Mark::Tag("tool_call")],
    close: &[
        Mark::Tag("tool_call"),
        Mark::Tag("tool_calls"),
        Mark::Tag("function_call"),
        Mark::Tag("toolcall"),
    ],
    ..NOTHING
};

pub(super) const TOOL_USE: TextFormat = TextFormat {
    name: "tool_use",
    wrappers: &[],
    open: &[Mark::Tag("tool_use")],
    close: &[Mark::Tag("tool_use"), Mark::Tag("tool_uses")],
    body: Body::Elements(&[
        ("server", FieldKind::Server),
        ("tool", FieldKind::Tool),
        ("name", FieldKind::Name),
        ("arguments", FieldKind::Arguments),
        ("id", FieldKind::Id),
        ("server_name", FieldKind::Server),
        ("tool_name", FieldKind::Tool),
        ("parameters", FieldKind::Arguments),
    ]),
    ..NOTHING
};

/// The formats that are read without being asked for: their tags mean nothing else.
pub static DEFAULT: &[TextFormat] = &[HERMES, TOOL_USE];

/// Tokens that end a model's turn: never meant to be read, and as good as a closing tag.
pub(super) static END_TOKENS: &[Mark] = &[
    Mark::Word("<|im_end|>"),
    Mark::Word("<|endoftext|>"),
    Mark::Word("<|end_of_text|>"),
    Mark::Word("<|eot_id|>"),
    Mark::Word("<|eom_id|>"),
    Mark::Word("<|end|>"),
    Mark::Word("<end_of_turn>"),
    Mark::Word("</s>"),
];

/// What only this side may say. A model that writes one of these after its call is inventing the result, and all that
/// follows is built on the invention.
pub(super) static INVENTED: &[Mark] = &[
    Mark::Tag("tool_response"),
    Mark::Tag("tool_result"),
    Mark::Tag("tool_use_result"),
    Mark::Tag("function_results"),
    Mark::Word("<|im_start|>"),
];

pub(super) static THINK: Reasoning =
    Reasoning { open: THINK_TAGS, close: THINK_TAGS, until: &[], may_call: true };

const THINK_TAGS: &[Mark] = &[Mark::Tag("think"), Mark::Tag("thinking")];
