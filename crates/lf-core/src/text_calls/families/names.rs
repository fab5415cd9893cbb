//! Rows whose calls begin with a name: its arguments in JSON, or in literals.

use super::super::format::{
    Body, Channels, HERMES, Mark, NOTHING, Named, NamedHead, Place, Reasoning, TOOL_USE, TextFormat,
};

use Mark::{Tag, Word};

pub(super) const MISTRAL: TextFormat = TextFormat {
    name: "mistral",
    open: &[Word("[TOOL_CALLS]")],
    body: Body::Named(&Named {
        separators: &["[CALL_ID]", "[ARGS]"],
        ignored: &[],
        head: NamedHead::Name { id_after: "[CALL_ID]" },
    }),
    reasoning: &[Reasoning {
        open: &[Word("[THINK]")],
        close: &[Word("[/THINK]")],
        until: &[],
        may_call: true,
    }],
    invented: &[Word("[TOOL_RESULTS]")],
    ..NOTHING
};

pub(super) const DEEPSEEK: TextFormat = TextFormat {
    name: "deepseek",
    wrappers: &[
        Word("<｜tool▁calls▁begin｜>"),
        Word("<｜tool_calls_begin｜>"),
        Word("<｜tool calls begin｜>"),
    ],
    open: &[Word("<｜tool▁call▁begin｜>"), Word("<｜tool_call_begin｜>"), Word("<｜tool call begin｜>")],
    close: &[
        Word("<｜tool▁call▁end｜>"),
        Word("<｜tool▁calls▁end｜>"),
        Word("<｜tool_call_end｜>"),
        Word("<｜tool_calls_end｜>"),
        Word("<｜tool call end｜>"),
        Word("<｜tool calls end｜>"),
        Word("<｜end▁of▁sentence｜>"),
    ],
    body: Body::Named(&DEEPSEEK_HEAD),
    dropped: &[
        "<｜end▁of▁sentence｜>",
        "<｜begin▁of▁sentence｜>",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
    ],
    invented: &[Word("<｜tool▁outputs▁begin｜>"), Word("<｜tool▁output▁begin｜>")],
    ..NOTHING
};

/// Without the mark before each call.
pub(super) const DEEPSEEK_HEADLESS: TextFormat =
    TextFormat { open: &[Word("function<｜tool▁sep｜>"), Word("function<｜tool_sep｜>")], ..DEEPSEEK };

pub(super) static DEEPSEEK_HEAD: Named = Named {
    separators: &["<｜tool▁sep｜>", "<｜tool_sep｜>", "<｜tool sep｜>"],
    ignored: &["function"],
    head: NamedHead::Name { id_after: "" },
};

pub(super) const KIMI_K2: TextFormat = TextFormat {
    name: "kimi_k2",
    wrappers: &[Word("<|tool_calls_section_begin|>"), Word("<|tool_call_section_begin|>")],
    open: &[Word("<|tool_call_begin|>")],
    close: &[
        Word("<|tool_call_end|>"),
        Word("<|tool_calls_section_end|>"),
        Word("<|tool_call_section_end|>"),
    ],
    body: Body::Named(&Named {
        separators: &["<|tool_call_argument_begin|>"],
        ignored: &[],
        head: NamedHead::Id,
    }),
    reasoning: &[Reasoning {
        open: &[Word("◁think▷")],
        close: &[Word("◁/think▷")],
        until: &[],
        may_call: true,
    }],
    dropped: &["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"],
    ..NOTHING
};

pub(super) const PLAMO: TextFormat = TextFormat {
    name: "plamo3",
    wrappers: &[Word("<|plamo:begin_tool_requests:plamo|>")],
    open: &[Word("<|plamo:begin_tool_request:plamo|>")],
    close: &[
        Word("<|plamo:end_tool_request:plamo|>"),
        Word("<|plamo:end_tool_requests:plamo|>"),
        Word("<|plamo:end_tool_arguments:plamo|>"),
    ],
    body: Body::Named(&Named {
        separators: &[
            "<|plamo:begin_tool_name:plamo|>",
            "<|plamo:end_tool_name:plamo|>",
            "<|plamo:begin_tool_arguments:plamo|>",
            "<|plamo:constrain|>",
            "<|plamo:msg|>",
        ],
        ignored: &["json"],
        head: NamedHead::Name { id_after: "" },
    }),
    reasoning: &[Reasoning {
        open: &[Word("<|plamo:begin_think:plamo|>")],
        close: &[Word("<|plamo:end_think:plamo|>")],
        until: &[],
        may_call: true,
    }],
    dropped: &["<|plamo:op|>", "<|plamo:eot|>", "<|plamo:msg|>"],
    ..NOTHING
};

pub(super) const FUNCTIONARY: TextFormat = TextFormat {
    name: "functionary",
    open: &[Word(">>>")],
    body: Body::Named(&Named { separators: &[], ignored: &[], head: NamedHead::Line }),
    dropped: &[">>>all\n"],
    ..NOTHING
};

pub(super) const REACT: TextFormat = TextFormat {
    name: "react",
    open: &[Word("Action:")],
    body: Body::Named(&Named {
        separators: &["Action Input:", "Action input:"],
        ignored: &[],
        head: NamedHead::Separated,
    }),
    place: Place::LineStart,
    invented: &[Word("Observation:")],
    ..NOTHING
};

pub(super) const HARMONY: TextFormat = TextFormat {
    name: "harmony",
    close: &[Word("<|call|>"), Word("<|end|>"), Word("<|return|>")],
    channels: Some(&Channels {
        open: &["<|start|>", "<|channel|>"],
        message: "<|message|>",
        reasoning: &Reasoning {
            open: &[],
            close: &[Word("<|end|>"), Word("<|return|>"), Word("<|call|>")],
            until: &[Word("<|start|>"), Word("<|channel|>")],
            may_call: false,
        },
        calls: true,
    }),
    dropped: &["<|end|>", "<|return|>", "<|call|>", "<|message|>", "<|constrain|>"],
    ..NOTHING
};

pub(super) static PYTHONIC: &[TextFormat] = &[
    TextFormat {
        name: "pythonic",
        open: &[Word("<|python_start|>"), Word("<|python_tag|>")],
        close: &[Word("<|python_end|>")],
        body: Body::Python,
        dropped: &["<|python_start|>", "<|python_end|>"],
        ..NOTHING
    },
    TextFormat { name: "pythonic", open: &[Word("[")], body: Body::Python, place: Place::Bare, ..NOTHING },
    HERMES,
    TOOL_USE,
];

pub(super) const LFM2: TextFormat = TextFormat {
    name: "lfm2",
    open: &[Word("<|tool_call_start|>")],
    close: &[Word("<|tool_call_end|>")],
    body: Body::Python,
    ..NOTHING
};

pub(super) const OLMO3: TextFormat = TextFormat {
    name: "olmo3",
    open: &[Tag("function_calls")],
    close: &[Tag("function_calls")],
    body: Body::Python,
    ..NOTHING
};

pub(super) const TOOL_CODE: TextFormat = TextFormat {
    name: "gemma",
    open: &[Word("```tool_code"), Word("```tool_call")],
    close: &[Word("```")],
    body: Body::Python,
    place: Place::LineStart,
    ..NOTHING
};

pub(super) const FUNCTION_GEMMA: TextFormat = TextFormat {
    name: "functiongemma",
    open: &[Word("<start_function_call>")],
    close: &[Word("<end_function_call>")],
    body: Body::Gemma(&["<escape>"]),
    invented: &[Word("<start_function_response>")],
    ..NOTHING
};

pub(super) const GEMMA4: TextFormat = TextFormat {
    name: "gemma4",
    open: &[Word("<|tool_call>")],
    close: &[Word("<tool_call|>")],
    body: Body::Gemma(&["<|\"|>", "<escape>"]),
    reasoning: &[Reasoning {
        open: &[Word("<|channel>thought")],
        close: &[Word("<channel|>")],
        until: &[],
        may_call: true,
    }],
    dropped: &["<turn|>", "<|turn>model\n"],
    invented: &[Word("<|tool_response>")],
    ..NOTHING
};
