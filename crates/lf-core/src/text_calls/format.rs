//! The table of text dialects: what opens a call, what closes it, how its body is read.

use super::body::FieldKind;

/// One text dialect. A new dialect is a row of the table; a new way of writing bodies is a variant of [`Body`].
#[derive(Debug)]
pub struct TextFormat {
    /// What the configuration calls it.
    pub name: &'static str,
    /// Tags that may stand around calls; dropped when a call follows directly.
    pub wrappers: &'static [Mark],
    pub open: &'static [Mark],
    /// The first is the proper one, the rest are known slips. Empty: the end of the body is the end of the call.
    pub close: &'static [Mark],
    pub body: Body,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// `<name>` and `</name>`, in any case, the opening one with or without attributes.
    Tag(&'static str),
    /// The text itself.
    Word(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// JSON that names the tool: one object, several, or an array of them.
    Json,
    /// One child element a field, in any order.
    Elements(&'static [(&'static str, FieldKind)]),
}

const HERMES: TextFormat = TextFormat {
    name: "hermes",
    wrappers: &[Mark::Tag("tool_calls")],
    open: &[Mark::Tag("tool_call")],
    close: &[
        Mark::Tag("tool_call"),
        Mark::Tag("tool_calls"),
        Mark::Tag("function_call"),
        Mark::Tag("toolcall"),
    ],
    body: Body::Json,
};

const TOOL_USE: TextFormat = TextFormat {
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
};

/// The formats that are read without being asked for: their tags mean nothing else.
pub static DEFAULT: &[TextFormat] = &[HERMES, TOOL_USE];

/// Formats that are read only where the configuration names them, because their marks may be meant otherwise or cost
/// a look at every bracket.
pub static NAMED: &[TextFormat] = &[
    json_format("longcat", &[Mark::Tag("longcat_tool_call")], &[Mark::Tag("longcat_tool_call")]),
    json_format("hunyuan", &[Mark::Tag("tool_calls")], &[Mark::Tag("tool_calls")]),
    json_format("nemotron", &[Mark::Tag("TOOLCALL")], &[Mark::Tag("TOOLCALL")]),
    json_format("lmstudio", &[Mark::Word("[TOOL_REQUEST]")], &[Mark::Word("[END_TOOL_REQUEST]")]),
    json_format("granite", &[Mark::Word("<|tool_call|>")], &[]),
    TextFormat {
        name: "cline",
        wrappers: &[],
        open: &[Mark::Tag("use_mcp_tool")],
        close: &[Mark::Tag("use_mcp_tool")],
        body: Body::Elements(&[
            ("server_name", FieldKind::Server),
            ("tool_name", FieldKind::Tool),
            ("arguments", FieldKind::Arguments),
        ]),
    },
];

const fn json_format(name: &'static str, open: &'static [Mark], close: &'static [Mark]) -> TextFormat {
    TextFormat { name, wrappers: &[], open, close, body: Body::Json }
}

/// The formats to read for a dialect's name: the one it names, or `None` for an unknown name.
pub fn named(name: &str) -> Option<&'static [TextFormat]> {
    DEFAULT.iter().chain(NAMED).find(|format| format.name == name).map(std::slice::from_ref)
}

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

pub(super) static THINK: &[Mark] = &[Mark::Tag("think"), Mark::Tag("thinking")];
