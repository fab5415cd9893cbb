//! The families of models and their dialects, as data. They are read only where the configuration or a model's name
//! asks for them, because their marks may be meant otherwise or cost a look at every bracket.

use super::body::FieldKind;
use super::format::{
    Body, Channels, DEFAULT, HERMES, Head, Mark, NOTHING, Named, NamedHead, Param, Place, Reasoning,
    TOOL_USE, Tagged, TextFormat, Trim,
};

use Mark::{Suffixed, Tag, Word};

/// A dialect's names, the first of which is shown, and the formats to read.
#[derive(Debug)]
struct Family {
    names: &'static [&'static str],
    formats: &'static [TextFormat],
}

/// The formats to read for a dialect's name, or `None` for an unknown name. Case, `-` and `.` do not matter.
pub fn named(name: &str) -> Option<&'static [TextFormat]> {
    let name: String = name
        .chars()
        .map(|c| if matches!(c, '-' | '.' | ' ') { '_' } else { c.to_ascii_lowercase() })
        .collect();
    FAMILIES.iter().find(|family| family.names.contains(&name.as_str())).map(|family| family.formats)
}

/// The names that [`named`] knows, one for each dialect.
pub fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().filter_map(|family| family.names.first().copied())
}

/// The formats that a model of this name is known to write. `None` for a model that is not known, or one that writes
/// what is read anyway.
pub fn for_model(model: &str) -> Option<&'static [TextFormat]> {
    let model = model.to_ascii_lowercase();
    let (_, name) = MODELS.iter().find(|(part, _)| model.contains(part))?;
    named(name)
}

/// Parts of models' names, the particular before the general, and their dialects.
static MODELS: &[(&str, &str)] = &[
    ("hermes", "hermes"),
    ("distill", "hermes"),
    ("mimo", "mimo"),
    ("nemotron-3", "qwen3_coder_xml"),
    ("nemotron", "nemotron"),
    ("qwen3-coder", "qwen3_coder_xml"),
    ("qwen3_coder", "qwen3_coder_xml"),
    ("qwen3.5", "qwen3_coder_xml"),
    ("qwen3.6", "qwen3_coder_xml"),
    ("qwen3.7", "qwen3_coder_xml"),
    ("qwen3.8", "qwen3_coder_xml"),
    ("qwen4", "qwen3_coder_xml"),
    ("seed-oss", "seed_oss"),
    ("step-3.5", "qwen3_coder_xml"),
    ("step3p5", "qwen3_coder_xml"),
    ("step-3", "step3"),
    ("step3", "step3"),
    ("qwen", "hermes"),
    ("xlam", "xlam"),
    ("functionary", "functionary"),
    ("llama-4", "pythonic"),
    ("llama4", "pythonic"),
    ("llama-3", "llama3_json"),
    ("llama3", "llama3_json"),
    ("lfm2", "lfm2"),
    ("olmo-3", "olmo3"),
    ("olmo3", "olmo3"),
    ("mistral", "mistral"),
    ("ministral", "mistral"),
    ("magistral", "mistral"),
    ("devstral", "mistral"),
    ("mixtral", "mistral"),
    ("codestral", "mistral"),
    ("deepseek", "deepseek"),
    ("kimi-k3", "kimi_k3"),
    ("kimi_k3", "kimi_k3"),
    ("kimi", "kimi_k2"),
    ("glm-", "glm"),
    ("glm4", "glm"),
    ("glm5", "glm"),
    ("ling-3", "glm"),
    ("ling3", "glm"),
    ("poolside", "glm"),
    ("minimax-m3", "minimax_m3"),
    ("minimax", "minimax_m2"),
    ("dots", "dots"),
    ("muse", "muse"),
    ("gpt-oss", "harmony"),
    ("gpt_oss", "harmony"),
    ("functiongemma", "functiongemma"),
    ("gemma-4", "gemma4"),
    ("gemma4", "gemma4"),
    ("granite-20b", "granite"),
    ("granite", "granite"),
    ("jamba", "jamba"),
    ("apriel", "jamba"),
    ("hunyuan", "hunyuan"),
    ("hy-v3", "hunyuan_v3"),
    ("apertus", "apertus"),
    ("internlm", "internlm"),
    ("intern-s1", "internlm"),
    ("phi-4", "phi4_mini"),
    ("phi4", "phi4_mini"),
    ("firefunction", "phi4_mini"),
    ("command", "cohere"),
    ("gigachat", "gigachat"),
    ("inkling", "inkling"),
    ("plamo", "plamo3"),
    ("minicpm5", "minicpm5"),
    ("minicpm4", "minicpm5"),
    ("sarashina", "sarashina"),
    ("longcat", "longcat"),
    ("ernie", "ernie"),
];

static FAMILIES: &[Family] = &[
    Family { names: &["hermes", "qwen", "qwen2_5", "qwen3", "qwen25", "qwen_json"], formats: &[HERMES] },
    Family { names: &["tool_use", "cherry", "cherry_studio", "a700"], formats: &[TOOL_USE] },
    Family { names: &["default", "auto"], formats: DEFAULT },
    Family { names: &["longcat"], formats: &[LONGCAT] },
    Family { names: &["ernie", "ernie45", "ernie_x1"], formats: &[ERNIE] },
    Family {
        names: &[
            "qwen3_coder_xml",
            "qwen3_coder",
            "qwen3_xml",
            "qwen3_5",
            "qwen_xml",
            "nemotron3",
            "nemotron_3",
            "nemotron_v3",
            "step3p5",
            "step3_5",
        ],
        formats: &[QWEN_XML, HERMES],
    },
    Family {
        names: &["mimo"],
        formats: &[TextFormat { name: "mimo", body: Body::Tagged(&MIMO), ..QWEN_XML }, HERMES],
    },
    Family { names: &["seed_oss", "seed"], formats: &[QWEN_XML, HERMES] },
    Family {
        names: &["llama3_json", "llama_json", "llama3", "llama3_1", "llama3_2", "llama4_json"],
        formats: LLAMA_JSON,
    },
    Family {
        names: &["llama_function_tag", "function_tag", "groq", "llama_groq", "functionary_v3_1"],
        formats: &[FUNCTION_TAG, HERMES],
    },
    Family { names: &["pythonic", "llama4", "llama4_pythonic", "llama_pythonic"], formats: PYTHONIC },
    Family { names: &["lfm2"], formats: &[LFM2] },
    Family { names: &["olmo3"], formats: &[OLMO3] },
    Family { names: &["mistral", "magistral", "ministral", "devstral"], formats: &[MISTRAL] },
    Family {
        names: &[
            "deepseek",
            "deepseek_v3",
            "deepseek_r1",
            "deepseek_v31",
            "deepseek_v3_1",
            "deepseek_v32",
            "deepseek_v3_2",
            "deepseek_v4",
            "deepseek_dsml",
            "dsml",
        ],
        formats: &[DSML, DEEPSEEK, DEEPSEEK_HEADLESS],
    },
    Family { names: &["kimi_k2", "kimi"], formats: &[KIMI_K2] },
    Family { names: &["kimi_k3", "xtml"], formats: &[KIMI_K3] },
    Family {
        names: &[
            "glm",
            "glm4",
            "glm45",
            "glm46",
            "glm47",
            "glm4_5",
            "glm4_7",
            "ling3",
            "poolside",
            "poolside_v1",
        ],
        formats: &[GLM],
    },
    Family { names: &["hunyuan_v3", "hunyuan_v4", "hy_v3", "hy_v4"], formats: HUNYUAN },
    Family { names: &["hunyuan", "hunyuan_a13b"], formats: HUNYUAN },
    Family { names: &["jamba", "apriel"], formats: &[TextFormat { name: "jamba", ..TOOL_CALLS }] },
    Family { names: &["nemotron", "nemotron_json"], formats: &[NEMOTRON] },
    Family {
        names: &["minimax_m2", "minimax", "claude", "anthropic", "legacy_claude", "claude_xml", "invoke"],
        formats: &[INVOKE],
    },
    Family { names: &["dots"], formats: &[TextFormat { name: "dots", ..INVOKE }] },
    Family { names: &["minimax_m3"], formats: &[MINIMAX_M3, INVOKE] },
    Family { names: &["muse", "muse_glimmer", "atem"], formats: &[MUSE] },
    Family { names: &["step3"], formats: &[STEP3] },
    Family { names: &["minicpm5", "minicpm", "minicpm4"], formats: &[MINICPM5] },
    Family { names: &["harmony", "gpt_oss", "openai"], formats: &[HARMONY] },
    Family { names: &["functiongemma"], formats: &[FUNCTION_GEMMA] },
    Family { names: &["gemma4"], formats: &[GEMMA4] },
    Family { names: &["gemma", "gemma3", "tool_code"], formats: &[TOOL_CODE] },
    Family { names: &["granite", "granite3", "granite_20b_fc", "granite_20b", "granite4"], formats: GRANITE },
    Family { names: &["apertus"], formats: &[APERTUS] },
    Family { names: &["internlm", "internlm2", "intern_s1"], formats: &[INTERNLM] },
    Family { names: &["xlam"], formats: XLAM },
    Family { names: &["phi4_mini", "phi4", "phi4_mini_json", "functools", "firefunction"], formats: PHI },
    Family { names: &["cohere", "command_r", "command_r7b", "command_a", "cohere_command"], formats: COHERE },
    Family { names: &["gigachat", "gigachat3", "gigachat35"], formats: &[GIGACHAT, GCML] },
    Family {
        names: &["functionary", "functionary_v3_2", "functionary_3_2"],
        formats: &[FUNCTIONARY, FUNCTION_TAG],
    },
    Family { names: &["inkling"], formats: &[INKLING] },
    Family { names: &["plamo3", "plamo"], formats: &[PLAMO] },
    Family { names: &["sarashina", "sarashina2", "sarashina2_2"], formats: SARASHINA },
    Family { names: &["lmstudio", "lm_studio"], formats: &[LMSTUDIO] },
    Family { names: &["tool_call", "tool_call_brackets", "bracket"], formats: &[BRACKETS] },
    Family { names: &["cline", "roo", "roo_code"], formats: &[CLINE] },
    Family { names: &["react"], formats: &[REACT] },
];

const fn json(name: &'static str, open: &'static [Mark], close: &'static [Mark]) -> TextFormat {
    TextFormat { name, open, close, ..NOTHING }
}

// ---- JSON that names the tool

const LONGCAT: TextFormat = TextFormat {
    reasoning: &[Reasoning {
        open: &[Tag("longcat_think")],
        close: &[Tag("longcat_think")],
        until: &[],
        may_call: true,
    }],
    ..json("longcat", &[Tag("longcat_tool_call")], &[Tag("longcat_tool_call")])
};

const ERNIE: TextFormat = TextFormat { name: "ernie", dropped: &["<response>", "</response>"], ..HERMES };

const TOOL_CALLS: TextFormat = TextFormat {
    dropped: &["<answer>", "</answer>"],
    ..json("hunyuan", &[Tag("tool_calls")], &[Tag("tool_calls")])
};

const NEMOTRON: TextFormat = json("nemotron", &[Tag("TOOLCALL")], &[Tag("TOOLCALL")]);

const LMSTUDIO: TextFormat =
    json("lmstudio", &[Word("[TOOL_REQUEST]")], &[Word("[END_TOOL_REQUEST]"), Word("[/TOOL_REQUEST]")]);

const BRACKETS: TextFormat =
    json("tool_call", &[Word("[TOOL_CALL]")], &[Word("[/TOOL_CALL]"), Word("[END_TOOL_CALL]")]);

static LLAMA_JSON: &[TextFormat] = &[
    TextFormat { dropped: &["<|python_tag|>"], ..json("llama3_json", &[Word("<|python_tag|>")], &[]) },
    TextFormat { place: Place::Bare, ..json("llama3_json", &[Word("{")], &[]) },
    FUNCTION_TAG,
];

static XLAM: &[TextFormat] = &[
    json("xlam", &[Word("[TOOL_CALLS]")], &[]),
    TextFormat { place: Place::Bare, ..json("xlam", &[Word("```json"), Word("```")], &[Word("```")]) },
    TextFormat { place: Place::Bare, ..json("xlam", &[Word("["), Word("{")], &[]) },
    HERMES,
];

static PHI: &[TextFormat] = &[
    json("phi4_mini", &[Word("functools")], &[]),
    json("phi4_mini", &[Word("<|tool_call|>")], &[Word("<|/tool_call|>"), Word("</|tool_call|>")]),
];

static GRANITE: &[TextFormat] = &[
    TextFormat {
        dropped: &["<|start_of_role|>", "<|end_of_role|>"],
        ..json("granite", &[Word("<|tool_call|>")], &[])
    },
    json("granite", &[Tag("function_call")], &[Tag("function_call")]),
    HERMES,
];

static SARASHINA: &[TextFormat] = &[
    json(
        "sarashina",
        &[Word("<|tool_calls|>"), Word("<|tool_call|>")],
        &[Word("<|/tool_calls|>"), Word("<|/tool_call|>")],
    ),
    TOOL_CALLS,
    HERMES,
];

const APERTUS: TextFormat = TextFormat {
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

const INTERNLM: TextFormat = TextFormat {
    wrappers: &[Word("<|action_start|>")],
    ..json("internlm", &[Word("<|plugin|>"), Word("<|interpreter|>")], &[Word("<|action_end|>")])
};

static COHERE: &[TextFormat] = &[
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
];

const GIGACHAT: TextFormat = TextFormat {
    dropped: &["<|message_sep|>", "<|role_sep|>"],
    ..json(
        "gigachat",
        &[Word("<|function_call|>"), Word("function call<|role_sep|>"), Word("function_call<|role_sep|>")],
        &[Word("<|message_sep|>"), Word("</s>")],
    )
};

const INKLING: TextFormat = TextFormat {
    reasoning: &[Reasoning {
        open: &[Word("<|content_thinking|>")],
        close: &[Word("<|end_message|>"), Word("<|content_model_end_sampling|>")],
        until: &[Word("<|message_model|>")],
        may_call: true,
    }],
    dropped: &[
        "<|message_model|>",
        "<|content_text|>",
        "<|end_message|>",
        "<|content_model_end_sampling|>",
        "<|content_invoke_tool_text|>",
        "<|content_tool_error|>",
    ],
    wrappers: &[Word("<|message_model|>")],
    ..json(
        "inkling",
        &[Word("<|content_invoke_tool_json|>")],
        &[Word("<|end_message|>"), Word("<|content_model_end_sampling|>")],
    )
};

// ---- a name, then the JSON of its arguments

const MISTRAL: TextFormat = TextFormat {
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

const DEEPSEEK: TextFormat = TextFormat {
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
    dropped: &["<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>"],
    invented: &[Word("<｜tool▁outputs▁begin｜>"), Word("<｜tool▁output▁begin｜>")],
    ..NOTHING
};

/// Without the mark before each call.
const DEEPSEEK_HEADLESS: TextFormat =
    TextFormat { open: &[Word("function<｜tool▁sep｜>"), Word("function<｜tool_sep｜>")], ..DEEPSEEK };

static DEEPSEEK_HEAD: Named = Named {
    separators: &["<｜tool▁sep｜>", "<｜tool_sep｜>", "<｜tool sep｜>"],
    ignored: &["function"],
    head: NamedHead::Name { id_after: "" },
};

const KIMI_K2: TextFormat = TextFormat {
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
    ..NOTHING
};

const PLAMO: TextFormat = TextFormat {
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

const FUNCTIONARY: TextFormat = TextFormat {
    name: "functionary",
    open: &[Word(">>>")],
    body: Body::Named(&Named { separators: &[], ignored: &[], head: NamedHead::Line }),
    dropped: &[">>>all\n"],
    ..NOTHING
};

const REACT: TextFormat = TextFormat {
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

const HARMONY: TextFormat = TextFormat {
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

// ---- an element an argument

const QWEN_XML: TextFormat = TextFormat {
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

static QWEN: Tagged = QWEN_TAGS;

/// The same, whose values have no line breaks of their own.
static MIMO: Tagged = Tagged { trim: Trim::Nothing, ..QWEN_TAGS };

const QWEN_TAGS: Tagged = Tagged {
    head: Head::Inline,
    param: Param::Inline("<parameter="),
    param_close: &[Tag("parameter")],
    close: &[Tag("function")],
    trim: Trim::LineBreak,
};

const FUNCTION_TAG: TextFormat = TextFormat { name: "llama_function_tag", ..QWEN_XML };

const GLM: TextFormat = TextFormat {
    name: "glm",
    open: &[Suffixed("tool_call"), Tag("tool_call")],
    close: &[Suffixed("tool_call"), Tag("tool_calls")],
    body: Body::Tagged(&ARG_KEYS),
    dropped: &["<|observation|>", "<|user|>", "<|assistant|>"],
    ..NOTHING
};

static ARG_KEYS: Tagged = Tagged {
    head: Head::Line,
    param: Param::Pair { key: Suffixed("arg_key"), value: Suffixed("arg_value") },
    param_close: &[Suffixed("arg_value")],
    close: &[Suffixed("tool_call")],
    trim: Trim::Nothing,
};

/// Since v3 with GLM's keys, and a suffix on every tag that differs from checkpoint to checkpoint.
static HUNYUAN: &[TextFormat] = &[
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
];

const INVOKE: TextFormat = TextFormat {
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

const DSML: TextFormat = TextFormat {
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

const GCML: TextFormat = TextFormat {
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

const STEP3: TextFormat = TextFormat {
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

const MUSE: TextFormat = TextFormat {
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

const MINICPM5: TextFormat = TextFormat {
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

const KIMI_K3: TextFormat = TextFormat {
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

const MINIMAX_M3: TextFormat = TextFormat {
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

// ---- literals

static PYTHONIC: &[TextFormat] = &[
    TextFormat {
        name: "pythonic",
        open: &[Word("<|python_start|>"), Word("<|python_tag|>")],
        close: &[Word("<|python_end|>")],
        body: Body::Python,
        dropped: &["<|python_start|>", "<|python_end|>"],
        ..NOTHING
    },
    TextFormat { name: "pythonic", open: &[Word("[")], body: Body::Python, place: Place::Bare, ..NOTHING },
];

const LFM2: TextFormat = TextFormat {
    name: "lfm2",
    open: &[Word("<|tool_call_start|>")],
    close: &[Word("<|tool_call_end|>")],
    body: Body::Python,
    ..NOTHING
};

const OLMO3: TextFormat = TextFormat {
    name: "olmo3",
    open: &[Tag("function_calls")],
    close: &[Tag("function_calls")],
    body: Body::Python,
    ..NOTHING
};

const TOOL_CODE: TextFormat = TextFormat {
    name: "gemma",
    open: &[Word("```tool_code"), Word("```tool_call")],
    close: &[Word("```")],
    body: Body::Python,
    place: Place::LineStart,
    ..NOTHING
};

const FUNCTION_GEMMA: TextFormat = TextFormat {
    name: "functiongemma",
    open: &[Word("<start_function_call>")],
    close: &[Word("<end_function_call>")],
    body: Body::Gemma(&["<escape>"]),
    invented: &[Word("<start_function_response>")],
    ..NOTHING
};

const GEMMA4: TextFormat = TextFormat {
    name: "gemma4",
    open: &[Word("<|tool_call>")],
    close: &[Word("<tool_call|>")],
    body: Body::Gemma(&["<|\"|>", "<escape>"]),
    reasoning: &[Reasoning {
        open: &[Word("<|channel>thought\n"), Word("<|channel>thought")],
        close: &[Word("<channel|>")],
        until: &[],
        may_call: true,
    }],
    dropped: &["<turn|>", "<|turn>model\n"],
    invented: &[Word("<|tool_response>")],
    ..NOTHING
};

// ---- elements with JSON

const CLINE: TextFormat = TextFormat {
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
