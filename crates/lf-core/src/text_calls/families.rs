//! The families of models and their dialects, as data. They are read only where the configuration or a model's name
//! asks for them, because their marks may be meant otherwise or cost a look at every bracket.

mod elements;
mod json;
mod names;

use super::format::{Body, DEFAULT, HERMES, TOOL_USE, TextFormat};
use elements::{
    DSML, FUNCTION_TAG, GCML, GLM, HUNYUAN, INVOKE, KIMI_K3, MIMO, MINICPM5, MINIMAX_M3, MUSE, QWEN_XML,
    STEP3,
};
use json::{
    APERTUS, BRACKETS, CLINE, COHERE, ERNIE, GIGACHAT, GRANITE, INKLING, INTERNLM, LLAMA_JSON, LMSTUDIO,
    LONGCAT, NEMOTRON, PHI, SARASHINA, TOOL_CALLS, XLAM,
};
use names::{
    DEEPSEEK, DEEPSEEK_HEADLESS, FUNCTION_GEMMA, FUNCTIONARY, GEMMA4, HARMONY, KIMI_K2, LFM2, MISTRAL, OLMO3,
    PLAMO, PYTHONIC, REACT, TOOL_CODE,
};

/// A dialect's names, the first of which is shown, and the formats to read.
#[derive(Debug)]
struct Family {
    names: &'static [&'static str],
    formats: &'static [TextFormat],
}

/// The formats to read for a dialect's name: its own, and after them those of [`DEFAULT`]. `None` for an unknown name.
/// Case does not matter, nor whether words are joined by `_`, `-` or `.`.
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
    let model = model.to_ascii_lowercase().replace('_', "-");
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
    ("kimi", "kimi_k2"),
    ("glm", "glm"),
    ("ling-3", "glm"),
    ("ling3", "glm"),
    ("poolside", "glm"),
    ("minimax-m3", "minimax_m3"),
    ("minimax", "minimax_m2"),
    ("dots.", "dots"),
    ("muse-", "muse"),
    ("gpt-oss", "harmony"),
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
    ("command-r", "cohere"),
    ("command-a", "cohere"),
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
    Family {
        names: &["hermes", "qwen", "qwen2_5", "qwen3", "qwen25", "qwen_json"],
        formats: &[HERMES, TOOL_USE],
    },
    Family { names: &["tool_use", "cherry", "cherry_studio", "a700"], formats: &[TOOL_USE, HERMES] },
    Family { names: &["default", "auto"], formats: DEFAULT },
    Family { names: &["longcat"], formats: &[LONGCAT, HERMES, TOOL_USE] },
    Family { names: &["ernie", "ernie45", "ernie_x1"], formats: &[ERNIE, HERMES, TOOL_USE] },
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
        formats: &[QWEN_XML, HERMES, TOOL_USE],
    },
    Family {
        names: &["mimo"],
        formats: &[TextFormat { name: "mimo", body: Body::Tagged(&MIMO), ..QWEN_XML }, HERMES, TOOL_USE],
    },
    Family { names: &["seed_oss", "seed"], formats: &[QWEN_XML, HERMES, TOOL_USE] },
    Family {
        names: &["llama3_json", "llama_json", "llama3", "llama3_1", "llama3_2", "llama4_json"],
        formats: LLAMA_JSON,
    },
    Family {
        names: &["llama_function_tag", "function_tag", "groq", "llama_groq", "functionary_v3_1"],
        formats: &[FUNCTION_TAG, HERMES, TOOL_USE],
    },
    Family { names: &["pythonic", "llama4", "llama4_pythonic", "llama_pythonic"], formats: PYTHONIC },
    Family { names: &["lfm2"], formats: &[LFM2, HERMES, TOOL_USE] },
    Family { names: &["olmo3"], formats: &[OLMO3, HERMES, TOOL_USE] },
    Family {
        names: &["mistral", "magistral", "ministral", "devstral"],
        formats: &[MISTRAL, HERMES, TOOL_USE],
    },
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
        formats: &[DSML, DEEPSEEK, DEEPSEEK_HEADLESS, HERMES, TOOL_USE],
    },
    Family { names: &["kimi_k2", "kimi"], formats: &[KIMI_K2, HERMES, TOOL_USE] },
    Family { names: &["kimi_k3", "xtml"], formats: &[KIMI_K3, HERMES, TOOL_USE] },
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
        formats: &[GLM, HERMES, TOOL_USE],
    },
    Family { names: &["hunyuan_v3", "hunyuan_v4", "hy_v3", "hy_v4"], formats: HUNYUAN },
    Family { names: &["hunyuan", "hunyuan_a13b"], formats: HUNYUAN },
    Family {
        names: &["jamba", "apriel"],
        formats: &[TextFormat { name: "jamba", ..TOOL_CALLS }, HERMES, TOOL_USE],
    },
    Family { names: &["nemotron", "nemotron_json"], formats: &[NEMOTRON, HERMES, TOOL_USE] },
    Family {
        names: &["minimax_m2", "minimax", "claude", "anthropic", "legacy_claude", "claude_xml", "invoke"],
        formats: &[INVOKE, HERMES, TOOL_USE],
    },
    Family { names: &["dots"], formats: &[TextFormat { name: "dots", ..INVOKE }, HERMES, TOOL_USE] },
    Family { names: &["minimax_m3"], formats: &[MINIMAX_M3, INVOKE, HERMES, TOOL_USE] },
    Family { names: &["muse", "muse_glimmer", "atem"], formats: &[MUSE, HERMES, TOOL_USE] },
    Family { names: &["step3"], formats: &[STEP3, HERMES, TOOL_USE] },
    Family { names: &["minicpm5", "minicpm", "minicpm4"], formats: &[MINICPM5, HERMES, TOOL_USE] },
    Family { names: &["harmony", "gpt_oss", "openai"], formats: &[HARMONY, HERMES, TOOL_USE] },
    Family { names: &["functiongemma"], formats: &[FUNCTION_GEMMA, HERMES, TOOL_USE] },
    Family { names: &["gemma4"], formats: &[GEMMA4, HERMES, TOOL_USE] },
    Family { names: &["gemma", "gemma3", "tool_code"], formats: &[TOOL_CODE, HERMES, TOOL_USE] },
    Family { names: &["granite", "granite3", "granite_20b_fc", "granite_20b", "granite4"], formats: GRANITE },
    Family { names: &["apertus"], formats: &[APERTUS, HERMES, TOOL_USE] },
    Family { names: &["internlm", "internlm2", "intern_s1"], formats: &[INTERNLM, HERMES, TOOL_USE] },
    Family { names: &["xlam"], formats: XLAM },
    Family { names: &["phi4_mini", "phi4", "phi4_mini_json", "functools", "firefunction"], formats: PHI },
    Family { names: &["cohere", "command_r", "command_r7b", "command_a", "cohere_command"], formats: COHERE },
    Family { names: &["gigachat", "gigachat3", "gigachat35"], formats: &[GIGACHAT, GCML, HERMES, TOOL_USE] },
    Family {
        names: &["functionary", "functionary_v3_2", "functionary_3_2"],
        formats: &[FUNCTIONARY, FUNCTION_TAG, HERMES, TOOL_USE],
    },
    Family { names: &["inkling"], formats: &[INKLING, HERMES, TOOL_USE] },
    Family { names: &["plamo3", "plamo"], formats: &[PLAMO, HERMES, TOOL_USE] },
    Family { names: &["sarashina", "sarashina2", "sarashina2_2"], formats: SARASHINA },
    Family { names: &["lmstudio", "lm_studio"], formats: &[LMSTUDIO, HERMES, TOOL_USE] },
    Family { names: &["tool_call", "tool_call_brackets", "bracket"], formats: &[BRACKETS, HERMES, TOOL_USE] },
    Family { names: &["cline", "roo", "roo_code"], formats: &[CLINE, HERMES, TOOL_USE] },
    Family { names: &["react"], formats: &[REACT, HERMES, TOOL_USE] },
];
