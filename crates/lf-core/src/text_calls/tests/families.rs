//! The dialects of model families, each as its model writes it, and with the damage that is seen.

use std::sync::Arc;

use super::super::for_model;
use super::*;
use crate::model::ToolSpec;

mod cuts;
mod forms;
mod values;

/// `weather`, `run`, `search` and `list`: what untyped values are typed by.
pub(super) fn tools() -> Arc<[ToolSpec]> {
    let tool = |name: &str, properties: Value| ToolSpec {
        name: name.to_owned(),
        description: None,
        schema: Arc::new(
            json!({"type": "object", "properties": properties, "$defs": {"Size": {"type": "integer"}}}),
        ),
        rest: serde_json::Map::new(),
    };
    Arc::from([
        tool(
            "weather",
            json!({"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}}),
        ),
        tool("run", json!({"code": {"type": "string"}, "ratio": {"type": "number"}})),
        tool(
            "search",
            json!({
                "query": {"type": "string"},
                "tags": {"type": "array"},
                "filter": {"type": "object", "properties": {"max": {"type": "integer"}}},
                "site": {"type": ["string", "null"]},
                "size": {"$ref": "#/$defs/Size"},
                "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "free": {},
            }),
        ),
        tool("list", json!({})),
        tool("ns.get", json!({"id": {"type": "integer"}})),
    ])
}

fn scan_as(format: &str, tools: Arc<[ToolSpec]>, text: &str, size: usize, end: TextEnd) -> Vec<Piece> {
    let formats = named(format).unwrap_or_else(|| panic!("no dialect {format}"));
    let mut scanner = TextScanner::new(formats).with_tools(tools);
    let mut pieces = Vec::new();
    let characters: Vec<char> = text.chars().collect();
    for part in characters.chunks(size) {
        pieces.extend(scanner.push(&part.iter().collect::<String>()));
    }
    pieces.extend(scanner.finish(end));
    joined(pieces)
}

/// The pieces, which are the same however the text is cut.
fn read_with(tools: &Arc<[ToolSpec]>, format: &str, text: &str, end: TextEnd) -> Vec<Piece> {
    let whole = scan_as(format, tools.clone(), text, usize::MAX, end);
    for size in [1, 2, 3, 7] {
        let cut = scan_as(format, tools.clone(), text, size, end);
        assert_eq!(cut, whole, "{format}, {size} characters at a time: {text}");
    }
    whole
}

fn read(format: &str, text: &str) -> Vec<Piece> {
    read_with(&tools(), format, text, TextEnd::Clean)
}

/// The calls and the text of a whole answer.
fn gives(format: &str, written: &str, expected: &[&str], shown: &str) {
    let pieces = read(format, written);
    assert_eq!(calls(&pieces), expected, "{format}: {written}\n{pieces:?}");
    assert_eq!(text(&pieces).trim(), shown, "{format}: {written}");
    assert_eq!(problems(&pieces), [] as [&str; 0], "{format}: {written}");
}

/// No call: all of it is text.
fn is_text(format: &str, written: &str) {
    assert_eq!(read(format, written), [Piece::Text(written.to_owned())], "{format}");
}

/// A call that is reported and not run.
fn is_refused(format: &str, written: &str, end: TextEnd) {
    let pieces = read_with(&tools(), format, written, end);
    assert_eq!(calls(&pieces), [] as [&str; 0], "{format}: {written}");
    assert_eq!(problems(&pieces).len(), 1, "{format}: {written}\n{pieces:?}");
}

const OSLO: &str = r#"weather {"city":"Oslo"}"#;
const LIST: &str = "list {}";

#[test]
fn a_call_that_the_limit_cut_is_not_run() {
    for (format, written) in [
        ("qwen3_coder_xml", "<tool_call>\n<function=weather>\n<parameter=city>\nOs"),
        ("qwen3_coder_xml", "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n"),
        ("qwen3_coder_xml", "<tool_call>\n<function=run>\n<parameter=code>\nprint('</function>')"),
        ("qwen3_coder_xml", "<tool_call>\n<function=wea"),
        ("glm", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Os"),
        ("glm", "<tool_call>weather\n<arg_key>ci"),
        ("minimax_m2", "<invoke name=\"weather\">\n<parameter name=\"city\">Os"),
        ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Os"),
        ("deepseek", "<｜DSML｜invoke name=\"weather\"><｜DSML｜parameter name=\"city\" string=\"true\">Os"),
        ("kimi_k2", "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": "),
        ("kimi_k2", "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"),
        (
            "kimi_k3",
            "<|open|>call tool=\"weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>Os",
        ),
        ("harmony", "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Os"),
        ("harmony", "<|channel|>commentary to=functions.wea"),
        ("mistral", "[TOOL_CALLS]weather[ARGS]{\"city\": \"Os"),
        ("lfm2", "<|tool_call_start|>[weather(city=\"Os"),
        ("gemma4", "<|tool_call>call:weather{city:<|\"|>Os"),
        ("minimax_m3", "]<]minimax[>[<invoke name=\"weather\">]<]minimax[>[<city>Os"),
        ("llama_function_tag", "<function=weather>{\"city\": \"Os"),
        (
            "plamo3",
            "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>weather<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>{\"city\": \"Os",
        ),
    ] {
        is_refused(format, written, TextEnd::Cut);
    }
    let pieces = read_with(&tools(), "pythonic", "[list(), weather(city=\"Os", TextEnd::Cut);
    assert_eq!((calls(&pieces), problems(&pieces).len()), (vec![LIST.to_owned()], 1));
    let cut = "[TOOL_CALLS][{\"name\": \"list\", \"arguments\": {}}, {\"name\": \"wea";
    let pieces = read_with(&tools(), "mistral", cut, TextEnd::Cut);
    assert_eq!((calls(&pieces), problems(&pieces).len()), (vec![LIST.to_owned()], 1));
}

#[test]
fn a_broken_call_is_reported_and_does_not_take_a_good_one_with_it() {
    let pieces = read(
        "kimi_k2",
        "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\" \"x\"}<|tool_call_end|><|tool_call_begin|>functions.list:1<|tool_call_argument_begin|>{}<|tool_call_end|>",
    );
    assert_eq!((calls(&pieces), problems(&pieces).len()), (vec![LIST.to_owned()], 1));
    is_refused("harmony", "<|channel|>commentary to=python<|message|>print(1)<|call|>", TextEnd::Clean);
    for arguments in ["{}<|call|>", "<|message|>{}<|call|>", "<|message|><|call|>"] {
        is_refused("harmony", &format!("<|channel|>commentary to=functions.{arguments}"), TextEnd::Clean);
    }
    is_refused("olmo3", "<function_calls>\nweather(Oslo)\n</function_calls>", TextEnd::Clean);
    is_refused("qwen3_coder_xml", "<tool_call>\n<function=weather>\n<parameter=city>\nOslo", TextEnd::Clean);
}

#[test]
fn a_list_that_another_bracket_closes_is_reported() {
    is_refused("functiongemma", "<start_function_call>call:list{a:[1)}<end_function_call>", TextEnd::Clean);
    is_refused(
        "functiongemma",
        "<start_function_call>call:list{a:[1$ 2)}</r>{\"<end_function_call>",
        TextEnd::Clean,
    );
    is_refused("gemma4", "<|tool_call>call:list{a:[{b:[}]}}<tool_call|>", TextEnd::Clean);
    is_refused("gemma4", "<|tool_call>call:list{a:]}<tool_call|>", TextEnd::Clean);
    let listed = "[list(a=[1}]), list(b={)]";
    is_refused("pythonic", &format!("<|python_start|>{listed}<|python_end|>"), TextEnd::Clean);
    is_refused("lfm2", &format!("<|tool_call_start|>{listed}<|tool_call_end|>"), TextEnd::Clean);
    // no mark says that it is a call
    is_text("pythonic", listed);
    // what has an end of its own before it is a call
    let pieces = read("lfm2", "<|tool_call_start|>[list(), list(a=[)]<|tool_call_end|>");
    assert_eq!((calls(&pieces), problems(&pieces).len()), (vec![LIST.to_owned()], 1));
    assert_eq!(text(&pieces), "");
}

#[test]
fn a_mention_of_a_familys_marks_is_text() {
    for (format, prose) in [
        ("qwen3_coder_xml", "<function=no_such> is not declared"),
        ("qwen3_coder_xml", "Wrap it in <tool_call> and <function=weather> tags."),
        ("glm", "the <tool_call> tag"),
        ("glm", "<tool_call>no_such</tool_call>"),
        ("minimax_m2", "an <invoke> element and <invoke name=\"\">"),
        ("mistral", "[TOOL"),
        ("mistral", "a list [1] and [TOOL_CALL]"),
        ("functionary", ">>> print(1)"),
        ("react", "Action: think hard"),
        ("react", "The Action: weather\nAction Input: {}"),
        ("cohere", "Action: none"),
        ("kimi_k3", "<|open|>calls"),
        ("gemma4", "<|tool_call>"),
        ("olmo3", "<function_calls> is a tag"),
    ] {
        is_text(format, prose);
    }
}

#[test]
fn a_line_of_backticks_is_no_fence_around_a_call() {
    let call = r#"{"name": "weather", "arguments": {"city": "Oslo"}}"#;
    for count in [0, 1, 3, 4, 31, 32, 33, 100] {
        let fence = "`".repeat(count);
        let written = format!("<tool_call>{fence}json\n{call}\n{fence}</tool_call>");
        match count {
            0..=32 => gives("hermes", &written, &[OSLO], ""),
            _ => is_text("hermes", &written),
        }
        // whatever it is taken for, it is the same however it is cut, and nothing of it is lost
        let bare = format!("{fence}json\n[{call}]\n{fence}");
        let pieces = read("xlam", &bare);
        assert!(calls(&pieces) == [OSLO] || text(&pieces) == bare, "{count}: {pieces:?}");
    }
}

#[test]
fn react_is_read_up_to_an_invented_observation() {
    let written = "Thought: look\nAction: weather\nAction Input: {\"city\": \"Oslo\"}\nObservation: sunny\nFinal Answer: sun";
    gives("react", written, &[OSLO], "Thought: look");
}

#[test]
fn reasoning_has_its_own_channel() {
    for (format, written, thought, shown) in [
        ("mistral", "[THINK]a [1] b[/THINK]Hi", "a [1] b", "Hi"),
        (
            "harmony",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>",
            "hm",
            "Hi",
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>hm<|start|>assistant<|channel|>final<|message|>```\nHi\n```<|return|>",
            "hm",
            "```\nHi\n```",
        ),
        (
            "muse",
            "<|start|>assistant to=self<|message|>hm <atem:invoke name=\"list\"></atem:invoke><|eom|><|start|>assistant to=user<|message|>Hi<|eom|>",
            "hm <atem:invoke name=\"list\"></atem:invoke>",
            "Hi",
        ),
        (
            "kimi_k3",
            "<|open|>think<|sep|>hm<|close|>think<|sep|><|open|>response<|sep|>Hi<|close|>response<|sep|>",
            "hm",
            "Hi",
        ),
        (
            "inkling",
            "<|message_model|><|content_thinking|>hm<|end_message|><|message_model|><|content_text|>Hi<|end_message|>",
            "hm",
            "Hi",
        ),
        ("apertus", "<|inner_prefix|>hm<|inner_suffix|>Hi<|assistant_end|>", "hm", "Hi"),
        ("seed_oss", "<seed:think>hm</seed:think>Hi", "hm", "Hi"),
        ("gemma4", "<|channel>thought\nhm<channel|>Hi<turn|>", "hm", "Hi"),
        ("kimi_k2", "◁think▷hm◁/think▷Hi", "hm", "Hi"),
        ("glm", "<think>hm</think>Hi", "hm", "Hi"),
    ] {
        let pieces = read(format, written);
        let reasoning: String = pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Reasoning(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!((reasoning.trim(), text(&pieces).trim()), (thought, shown), "{format}: {pieces:?}");
        assert_eq!(calls(&pieces), [] as [&str; 0], "{format}");
    }
    gives(
        "hunyuan",
        "<think>x <tool_calls>[{\"name\":\"list\",\"arguments\":{}}]</tool_calls></think>",
        &[],
        "",
    );
    gives(
        "harmony",
        "<|channel|>commentary<|message|>I look it up.<|end|><|start|>assistant<|channel|>commentary to=functions.list<|message|>{}<|call|>",
        &[LIST],
        "I look it up.",
    );
}

#[test]
fn results_that_a_model_invents_are_left_out() {
    gives("kimi_k2", "Hi<|tool_calls_section_begin|><|tool_calls_section_end|>", &[], "Hi");
    let written = "<|channel|>commentary to=functions.list<|message|>{}<|call|><|start|>functions.list to=assistant<|channel|>commentary<|message|>[]<|end|>";
    gives("harmony", written, &[LIST], "");
}

#[test]
fn a_model_is_known_by_a_part_of_its_name() {
    for (model, format) in [
        ("openai/gpt-oss-120b", "harmony"),
        ("Qwen/Qwen3-Coder-30B-A3B", "qwen3_coder_xml"),
        ("qwen3:8b", "hermes"),
        ("zai-org/GLM-4.6", "glm"),
        ("moonshotai/Kimi-K2-Instruct", "kimi_k2"),
        ("mistral-small3.2", "mistral"),
        ("DeepSeek-R1-Distill-Qwen-7B", "hermes"),
        ("MiniMaxAI/MiniMax-M2", "minimax_m2"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3_json"),
    ] {
        let known = for_model(model).unwrap_or_else(|| panic!("{model}"));
        assert!(std::ptr::eq(known, named(format).unwrap()), "{model}");
    }
    assert!(for_model("my-own-model").is_none());
    assert!(named("Qwen3-Coder").is_some());
}
