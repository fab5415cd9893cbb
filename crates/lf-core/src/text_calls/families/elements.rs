//! Rows whose calls have an element an argument.

use super::super::format::{
    Body, Channels, HERMES, Head, Mark, NOTHING, Param, Place, Reasoning, TOOL_USE, Tagged, TextFormat, Trim,
};
use super::json::TOOL_CALLS;

use Mark::{Suffixed, Tag, Word};

pub(super) const QWEN_XML: TextFormat = TextFormat {
    name: "qwen3_coder_xml",
    wrappers: &[Tag("tool_call"), Tag("seed:tool_call"), Tag("tool_calls")],
    open: &[Word("<function=")],
    close: &[Tag("tool_call"), Tag("seed:tool_call"), Tag("tool_calls"), Tag("function")],
    body: Body::Tagged(&QWEN),
    place: Place::Declared,
    reasoning: &[Reasoning {
        open: &[Tag("seed:think")],
        close: &[Tag("seed:think")],
        until: &[],
        may_call: true,
    }],
    ..NOTHING
};

pub(super) static QWEN: Tagged = QWEN_TAGS;

/// The same, whose values have no line breaks of their own.
pub(super) static MIMO: Tagged = Tagged { trim: Trim::Nothing, ..QWEN_TAGS };

pub(super) const QWEN_TAGS: Tagged = Tagged {
    head: Head::Inline,
    param: Param::Inline("<parameter="),
    param_close: &[Tag("parameter")],
    close: &[Tag("function")],
    trim: Trim::LineBreak,
};

pub(super) const FUNCTION_TAG: TextFormat = TextFormat { name: "llama_function_tag", ..QWEN_XML };

pub(super) const GLM: TextFormat = TextFormat {
    name: "glm",
    open: &[Suffixed("tool_call"), Tag("tool_call")],
    close: &[Suffixed("tool_call"), Tag("tool_calls")],
    body: Body::Tagged(&ARG_KEYS),
    dropped: &["<|observation|>", "<|user|>", "<|assistant|>"],
    ..NOTHING
};

pub(super) static ARG_KEYS: Tagged = Tagged {
    head: Head::Line,
    param: Param::Pair { key: Suffixed("arg_key"), value: Suffixed("arg_value") },
    param_close: &[Suffixed("arg_value")],
    close: &[Suffixed("tool_call")],
    trim: Trim::Nothing,
};

/// Since v3 with GLM's keys, and a suffix on every tag that differs from checkpoint to checkpoint.
pub(super) static HUNYUAN: &[TextFormat] = &[
    TextFormat {
        name: "hunyuan_v3",
        wrappers: &[Suffixed("tool_calls")],
        open: &[Suffixed("tool_call")],
        close: &[Suffixed("tool_call"), Suffixed("tool_calls")],
        body: Body::Tagged(&ARG_KEYS),
        reasoning: &[Reasoning {
            open: &[Suffixed("think")],
            close: &[Suffixed("think")],
            until: &[],
            may_call: true,
        }],
        ..NOTHING
    },
    // the keys directly in the outer tag
    TextFormat {
        name: "hunyuan_v3",
        open: &[Suffixed("tool_calls")],
        close: &[Suffixed("tool_calls")],
        body: Body::Tagged(&ARG_KEYS),
        ..TOOL_CALLS
    },
    HERMES,
    TOOL_USE,
];

pub(super) const INVOKE: TextFormat = TextFormat {
    name: "minimax_m2",
    wrappers: &[
        Tag("minimax:tool_call"),
        Tag("function_calls"),
        Tag("dots_function_call"),
        Tag("tool_calls"),
    ],
    open: &[Word("<invoke")],
    close: &[
        Tag("minimax:tool_call"),
        Tag("function_calls"),
        Tag("dots_function_call"),
        Tag("tool_calls"),
        Tag("invoke"),
    ],
    body: Body::Tagged(&Tagged {
        head: Head::Attribute { key: "name", end: ">" },
        param: Param::Attribute { open: "<parameter", key: "name", end: ">" },
        param_close: &[Tag("parameter")],
        close: &[Tag("invoke")],
        trim: Trim::LineBreak,
    }),
    ..NOTHING
};

pub(super) const DSML: TextFormat = TextFormat {
    name: "deepseek",
    wrappers: &[Word("<｜DSML｜function_calls>"), Word("<｜DSML｜tool_calls>")],
    open: &[Word("<｜DSML｜invoke")],
    close: &[
        Tag("｜DSML｜function_calls"),
        Tag("｜DSML｜tool_calls"),
        Tag("｜DSML｜invoke"),
        Word("<｜end▁of▁sentence｜>"),
    ],
    body: Body::Tagged(&Tagged {
        head: Head::Attribute { key: "name", end: ">" },
        param: Param::Attribute { open: "<｜DSML｜parameter", key: "name", end: ">" },
        param_close: &[Tag("｜DSML｜parameter")],
        close: &[Tag("｜DSML｜invoke")],
        trim: Trim::Nothing,
    }),
    ..NOTHING
};

pub(super) const GCML: TextFormat = TextFormat {
    name: "gigachat",
    wrappers: &[Word("<｜GCML｜tool_calls>"), Word("<｜GCML｜function_calls>")],
    open: &[Word("<｜GCML｜invoke")],
    close: &[Tag("｜GCML｜tool_calls"), Tag("｜GCML｜function_calls"), Tag("｜GCML｜invoke")],
    body: Body::Tagged(&Tagged {
        head: Head::Attribute { key: "name", end: ">" },
        param: Param::Attribute { open: "<｜GCML｜parameter", key: "name", end: ">" },
        param_close: &[Tag("｜GCML｜parameter")],
        close: &[Tag("｜GCML｜invoke")],
        trim: Trim::Nothing,
    }),
    ..NOTHING
};

pub(super) const STEP3: TextFormat = TextFormat {
    name: "step3",
    wrappers: &[
        Word("<｜tool_calls_begin｜>"),
        Word("<｜tool_call_begin｜>"),
        Word("function<｜tool_sep｜>"),
        Word("<｜tool▁calls▁begin｜>"),
        Word("<｜tool▁call▁begin｜>"),
        Word("function<｜tool▁sep｜>"),
    ],
    open: &[Word("<steptml:invoke")],
    close: &[
        Word("<｜tool_call_end｜>"),
        Word("<｜tool_calls_end｜>"),
        Word("<｜tool▁call▁end｜>"),
        Word("<｜tool▁calls▁end｜>"),
        Tag("steptml:invoke"),
    ],
    body: Body::Tagged(&Tagged {
        head: Head::Attribute { key: "name", end: ">" },
        param: Param::Attribute { open: "<steptml:parameter", key: "name", end: ">" },
        param_close: &[Tag("steptml:parameter")],
        close: &[Tag("steptml:invoke")],
        trim: Trim::LineBreak,
    }),
    ..NOTHING
};

pub(super) const MUSE: TextFormat = TextFormat {
    name: "muse",
    wrappers: &[Tag("atem:function_calls")],
    open: &[Word("<atem:invoke")],
    close: &[Tag("atem:function_calls"), Tag("atem:invoke"), Word("<|eom|>"), Word("<|eot|>")],
    body: Body::Tagged(&Tagged {
        head: Head::Attribute { key: "name", end: ">" },
        param: Param::Attribute { open: "<atem:parameter", key: "name", end: ">" },
        param_close: &[Tag("atem:parameter")],
        close: &[Tag("atem:invoke")],
        trim: Trim::LineBreak,
    }),
    channels: Some(&Channels {
        open: &["<|start|>"],
        message: "<|message|>",
        reasoning: &Reasoning {
            open: &[],
            close: &[Word("<|eom|>"), Word("<|eot|>")],
            until: &[Word("<|start|>")],
            may_call: false,
        },
        calls: false,
    }),
    dropped: &["<|eom|>", "<|eot|>", "<|message|>"],
    ..NOTHING
};

pub(super) const MINICPM5: TextFormat = TextFormat {
    name: "minicpm5",
    wrappers: &[Tag("tool_call"), Tag("tool_calls")],
    open: &[Word("<function")],
    close: &[Tag("function"), Tag("tool_call"), Tag("tool_calls"), Tag("functions")],
    body: Body::Tagged(&Tagged {
        head: Head::Attribute { key: "name", end: ">" },
        param: Param::Attribute { open: "<param", key: "name", end: ">" },
        param_close: &[Tag("param")],
        close: &[Tag("function")],
        trim: Trim::All,
    }),
    ..NOTHING
};

pub(super) const KIMI_K3: TextFormat = TextFormat {
    name: "kimi_k3",
    wrappers: &[Word("<|open|>tools<|sep|>")],
    open: &[Word("<|open|>call")],
    close: &[Word("<|close|>tools<|sep|>"), Word("<|close|>call<|sep|>")],
    body: Body::Tagged(&Tagged {
        head: Head::Attribute { key: "tool", end: "<|sep|>" },
        param: Param::Attribute { open: "<|open|>argument", key: "key", end: "<|sep|>" },
        param_close: &[Word("<|close|>argument<|sep|>")],
        close: &[Word("<|close|>call<|sep|>")],
        trim: Trim::Nothing,
    }),
    reasoning: &[Reasoning {
        open: &[Word("<|open|>think<|sep|>")],
        close: &[Word("<|close|>think<|sep|>")],
        until: &[],
        may_call: false,
    }],
    dropped: &[
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|close|>message<|sep|>",
        "<|end_of_msg|>",
    ],
    ..NOTHING
};

pub(super) const MINIMAX_M3: TextFormat = TextFormat {
    name: "minimax_m3",
    wrappers: &[Word("]<]minimax[>[<tool_call>"), Word("]<]minimax[>[<minimax:tool_call>")],
    open: &[Word("]<]minimax[>[<invoke")],
    close: &[
        Word("]<]minimax[>[</tool_call>"),
        Word("]<]minimax[>[</minimax:tool_call>"),
        Word("]<]minimax[>[</invoke>"),
    ],
    body: Body::Tagged(&Tagged {
        head: Head::Attribute { key: "name", end: ">" },
        param: Param::Nested("]<]minimax[>["),
        param_close: &[],
        close: &[Word("]<]minimax[>[</invoke>")],
        trim: Trim::Nothing,
    }),
    reasoning: &[Reasoning {
        open: &[Tag("mm:think"), Word("]<]minimax[>[<think>")],
        close: &[Tag("mm:think"), Word("]<]minimax[>[</think>")],
        until: &[],
        may_call: true,
    }],
    ..NOTHING
};
