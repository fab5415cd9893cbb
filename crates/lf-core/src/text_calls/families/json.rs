//! Rows whose calls are JSON that names the tool.

use super::super::body::FieldKind;
use super::super::format::{Body, HERMES, Mark, NOTHING, Place, Reasoning, TOOL_USE, TextFormat};
use super::elements::FUNCTION_TAG;

use Mark::{Tag, Word};

const fn json(name: &'static str, open: &'static [Mark], close: &'static [Mark]) -> TextFormat {
    TextFormat { name, open, close, ..NOTHING }
}

pub(super) const LONGCAT: TextFormat = TextFormat {
    reasoning: &[Reasoning {
        open: &[Tag("longcat_think")],
        close: &[Tag("longcat_think")],
        until: &[],
        may_call: true,
    }],
    ..json("longcat", &[Tag("longcat_tool_call")], &[Tag("longcat_tool_call")])
};

pub(super) const ERNIE: TextFormat =
    TextFormat { name: "ernie", dropped: &["<response>", "</response>"], ..HERMES };

pub(super) const TOOL_CALLS: TextFormat = TextFormat {
    dropped: &["<answer>", "</answer>"],
    ..json("hunyuan", &[Tag("tool_calls")], &[Tag("tool_calls")])
};

pub(super) const NEMOTRON: TextFormat = json("nemotron", &[Tag("TOOLCALL")], &[Tag("TOOLCALL")]);

pub(super) const LMSTUDIO: TextFormat = json(
    "lmstudio",
    &[Word("[TOOL_REQUEST]")],
    &[Word("[END_TOOL_REQUEST]"), Word("[/TOOL_REQUEST]"), Word("[END_TOOL_RESULT]")],
);

pub(super) const BRACKETS: TextFormat =
    json("tool_call", &[Word("[TOOL_CALL]")], &[Word("[/TOOL_CALL]"), Word("[END_TOOL_CALL]")]);

pub(super) static LLAMA_JSON: &[TextFormat] = &[
    TextFormat { dropped: &["<|python_tag|>"], ..json("llama3_json", &[Word("<|python_tag|>")], &[]) },
    TextFormat { place: Place::Bare, ..json("llama3_json", &[Word("{")], &[]) },
    FUNCTION_TAG,
    HERMES,
    TOOL_USE,
];

pub(super) static XLAM: &[TextFormat] = &[
    json("xlam", &[Word("[TOOL_CALLS]")], &[]),
    TextFormat { place: Place::Bare, ..json("xlam", &[Word("```json"), Word("```")], &[Word("```")]) },
    TextFormat { place: Place::Bare, ..json("xlam", &[Word("["), Word("{")], &[]) },
    HERMES,
    TOOL_USE,
];

pub(super) static PHI: &[TextFormat] = &[
    json("phi4_mini", &[Word("functools")], &[]),
    json("phi4_mini", &[Word("<|tool_call|>")], &[Word("<|/tool_call|>"), Word("</|tool_call|>")]),
    HERMES,
    TOOL_USE,
];

pub(super) static GRANITE: &[TextFormat] = &[
    TextFormat {
        dropped: &["<|start_of_role|>", "<|end_of_role|>"],
        ..json("granite", &[Word("<|tool_call|>")], &[])
    },
    json("granite", &[Tag("function_call")], &[Tag("function_call")]),
    HERMES,
    TOOL_USE,
];

pub(super) static SARASHINA: &[TextFormat] = &[
    json(
        "sarashina",
        &[Word("<|tool_calls|>"), Word("<|tool_call|>")],
        &[Word("<|/tool_calls|>"), Word("<|/tool_call|>")],
    ),
    TOOL_CALLS,
    HERMES,
    TOOL_USE,
];

pub(super) const APERTUS: TextFormat = TextFormat {
    body: Body::KeyedJson,
    reasoning: &[Reasoning {
        open: &[Word("<|inner_prefix|>")],
        close: &[Word("<|inner_suffix|>")],
        until: &[Word("<|tools_prefix|>")],
        may_call: false,
    }],
    dropped: &["<|assistant_end|>", "<|assistant_start|>"],
    ..json("apertus", &[Word("<|tools_prefix|>")], &[Word("<|tools_suffix|>")])
};

pub(super) const INTERNLM: TextFormat = TextFormat {
    wrappers: &[Word("<|action_start|>")],
    ..json("internlm", &[Word("<|plugin|>"), Word("<|interpreter|>")], &[Word("<|action_end|>")])
};

pub(super) static COHERE: &[TextFormat] = &[
    TextFormat {
        reasoning: &[Reasoning {
            open: &[Word("<|START_THINKING|>")],
            close: &[Word("<|END_THINKING|>")],
            until: &[],
            may_call: true,
        }],
        dropped: &[
            "<|START_RESPONSE|>",
            "<|END_RESPONSE|>",
            "<|START_TEXT|>",
            "<|END_TEXT|>",
            "<|END_OF_TURN_TOKEN|>",
        ],
        invented: &[Word("<|START_TOOL_RESULT|>")],
        ..json("cohere", &[Word("<|START_ACTION|>")], &[Word("<|END_ACTION|>")])
    },
    TextFormat { place: Place::LineStart, ..json("cohere", &[Word("Action:")], &[Word("```")]) },
    HERMES,
    TOOL_USE,
];

pub(super) const GIGACHAT: TextFormat = TextFormat {
    dropped: &["<|message_sep|>", "<|role_sep|>"],
    ..json(
        "gigachat",
        &[Word("<|function_call|>"), Word("function call<|role_sep|>"), Word("function_call<|role_sep|>")],
        &[Word("<|message_sep|>"), Word("</s>")],
    )
};

pub(super) const INKLING: TextFormat = TextFormat {
    reasoning: &[
        Reasoning {
            open: &[Word("<|content_thinking|>")],
            close: INKLING_ENDS,
            until: &[Word("<|message_model|>")],
            may_call: true,
        },
        // a tool's name may stand between this mark and the next: not for the reader
        Reasoning {
            open: &[Word("<|message_model|>")],
            close: INKLING_ENDS,
            until: INKLING_BEGINS,
            may_call: false,
        },
    ],
    dropped: &[
        "<|content_text|>",
        "<|end_message|>",
        "<|content_model_end_sampling|>",
        "<|content_invoke_tool_text|>",
        "<|content_tool_error|>",
    ],
    ..json("inkling", &[Word("<|content_invoke_tool_json|>")], INKLING_ENDS)
};

pub(super) const INKLING_ENDS: &[Mark] = &[Word("<|end_message|>"), Word("<|content_model_end_sampling|>")];

pub(super) const INKLING_BEGINS: &[Mark] = &[
    Word("<|content_text|>"),
    Word("<|content_thinking|>"),
    Word("<|content_invoke_tool_json|>"),
    Word("<|content_invoke_tool_text|>"),
    Word("<|content_tool_error|>"),
];

pub(super) const CLINE: TextFormat = TextFormat {
    name: "cline",
    open: &[Tag("use_mcp_tool")],
    close: &[Tag("use_mcp_tool")],
    body: Body::Elements(&[
        ("server_name", FieldKind::Server),
        ("tool_name", FieldKind::Tool),
        ("arguments", FieldKind::Arguments),
    ]),
    ..NOTHING
};
