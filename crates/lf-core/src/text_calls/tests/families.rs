//! The dialects of model families, each as its model writes it, and with the damage that is seen.

use std::sync::Arc;

use super::super::for_model;
use super::*;
use crate::model::ToolSpec;

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
fn json_that_names_its_tool_is_read_between_the_marks_of_each_family() {
    let call = r#"{"name": "weather", "arguments": {"city": "Oslo"}}"#;
    for (format, before, after) in [
        ("hermes", "<tool_call>\n", "\n</tool_call>"),
        ("longcat", "<longcat_tool_call>\n", "\n</longcat_tool_call>"),
        ("ernie", "<response>\n</response>\n<tool_call>\n", "\n</tool_call>\n"),
        ("jamba", "<tool_calls>[\n", "\n]</tool_calls>"),
        ("apriel", "<tool_calls>[", "]</tool_calls>"),
        ("nemotron", "<TOOLCALL>[", "]</TOOLCALL>"),
        ("hunyuan", "<answer></answer><tool_calls>[", "]</tool_calls>"),
        ("lmstudio", "[TOOL_REQUEST]", "[END_TOOL_REQUEST]"),
        ("tool_call", "[TOOL_CALL]\n", "\n[/TOOL_CALL]"),
        ("granite", "<|tool_call|>[", "]"),
        ("granite", "<|tool_call|> [", "]<|end_of_text|>"),
        ("granite", "<tool_call>[", "]"),
        ("granite", "<function_call> ", ""),
        ("internlm", "<|action_start|><|plugin|>", "<|action_end|>"),
        ("internlm", "<|action_start|> <|plugin|>\n", "<|action_end|>\n"),
        ("phi4_mini", "functools[", "]"),
        ("phi4_mini", "functools [", "]<|end|>"),
        ("phi4_mini", "<|tool_call|>[", "]<|/tool_call|>"),
        ("apertus", "<|tools_prefix|>[", "]<|tools_suffix|>"),
        ("gigachat", "<|function_call|>", ""),
        ("gigachat", "function call<|role_sep|>\n", "</s>"),
        ("inkling", "<|message_model|><|content_invoke_tool_json|>", "<|end_message|>"),
        ("sarashina", "<|tool_calls|>[", "]"),
        ("xlam", "[", "]"),
        ("xlam", "```json\n[", "]\n```"),
        ("xlam", "```\n[", "]\n```\n"),
        ("xlam", "<think>\nhm</think>\n[", "]"),
        ("llama3_json", "", ""),
        ("llama3_json", "<|python_tag|>", "<|eom_id|>"),
        ("mistral", "[TOOL_CALLS][", "]"),
        ("mistral", "[TOOL_CALLS] [", "]</s>"),
        ("mistral", "[TOOL_CALLS]", ""),
        (
            "deepseek",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
            "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
        ("glm", "<tool_call>", "</tool_call>"),
        ("qwen3_coder_xml", "<tool_call>\n", "\n</tool_call>"),
    ] {
        gives(format, &format!("{before}{call}{after}"), &[OSLO], "");
        let pieces = read(format, &format!("Wait.\n{before}{call}{after}"));
        assert_eq!((calls(&pieces), text(&pieces)), (vec![OSLO.to_owned()], "Wait.".to_owned()), "{format}");
    }
}

#[test]
fn json_by_other_names_is_read() {
    gives(
        "apertus",
        r#"<|tools_prefix|>[{"weather": {"city": "Oslo"}}, {"list": {}}]<|tools_suffix|>"#,
        &[OSLO, LIST],
        "",
    );
    let action = r#"[{"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Oslo"}}]"#;
    gives("cohere", &format!("Action: ```json\n{action}\n```"), &[OSLO], "");
    let thought = format!("<|START_THINKING|>go<|END_THINKING|><|START_ACTION|>{action}<|END_ACTION|>");
    let pieces = read("cohere", &thought);
    let [Piece::Reasoning(reasoning), Piece::Call(call)] = pieces.as_slice() else { panic!("{pieces:?}") };
    assert_eq!((reasoning.as_str(), call.id.as_deref()), ("go", Some("0")));
    gives("cohere", "<|START_RESPONSE|>Hi<|END_RESPONSE|>", &[], "Hi");
    gives(
        "inkling",
        "<|content_invoke_tool_json|>{\"name\":\"weather\",\"args\":{\"city\":\"Oslo\"}}<|end_message|>",
        &[OSLO],
        "",
    );
}

#[test]
fn bare_json_is_a_call_for_a_declared_tool_only() {
    let call = r#"{"name": "weather", "parameters": {"city": "Oslo"}}"#;
    gives("llama3_json", &format!("{call}; {{\"name\": \"list\", \"parameters\": {{}}}}"), &[OSLO, LIST], "");
    gives("llama3_json", &format!("{call}\n{call}"), &[OSLO, OSLO], "");
    gives("llama3_json", &format!("Let me see: {call} done"), &[OSLO], "Let me see: done");
    gives("llama3_json", "{\"type\": \"function\", \"name\": \"list\", \"parameters\": {}}", &[LIST], "");
    for prose in [
        "so `{\"name\": \"weather\", \"parameters\": {}}` is its form",
        "{\"name\": \"no_such\", \"parameters\": {}}",
        "{\"name\": \"list\", \"age\": 3}",
        "{\"city\": \"Oslo\"}",
        "{not json}",
        "{\"name\": \"weather\", \"parameters\": {\"city\": \"Os",
        "```json\n{\"name\": \"weather\", \"parameters\": {}}\n```",
    ] {
        is_text("llama3_json", prose);
    }
    is_text("xlam", "[1, 2]");
    is_text("xlam", "```json\n[1]\n```");
    // without declarations any name is as good as another
    let pieces =
        read_with(&Arc::from([]), "llama3_json", "{\"name\": \"f\", \"parameters\": {}}", TextEnd::Clean);
    assert_eq!(calls(&pieces), ["f {}"]);
}

#[test]
fn the_word_functools_is_only_a_word() {
    is_text("phi4_mini", "Use functools.lru_cache, or import functools [sic].");
    is_text("phi4_mini", "functools");
}

/// One call of `weather`, its arguments in JSON.
const AFTER_A_NAME: &[(&str, &str)] = &[
    ("mistral", r#"[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}"#),
    ("mistral", r#"[TOOL_CALLS] weather {"city": "Oslo"}"#),
    ("mistral", r#"[TOOL_CALLS]weather[CALL_ID]aB3456789[ARGS]{"city": "Oslo"}</s>"#),
    (
        "deepseek",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Oslo\"}\n```<｜tool▁call▁end｜>",
    ),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Oslo\"}```<｜tool▁calls▁end｜>",
    ),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Oslo\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
    ),
    ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Oslo\"}"),
    (
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    (
        "kimi_k2",
        "<|tool_call_begin|> functionsweather5 <|tool_call_argument_begin|> {\"city\": \"Oslo\"} <|tool_call_end|>",
    ),
    ("kimi_k2", "<|tool_call_begin|>weather<|tool_call_argument_begin|>{\"city\": \"Oslo\"}"),
    (
        "plamo3",
        "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>weather<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>{\"city\": \"Oslo\"}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>",
    ),
    ("functionary", ">>>weather\n{\"city\": \"Oslo\"}"),
    ("functionary", ">>>all\n>>>weather\n{\"city\": \"Oslo\"}"),
    ("llama_function_tag", "<function=weather>{\"city\": \"Oslo\"}</function>"),
    ("llama_function_tag", "<function=weather={\"city\": \"Oslo\"}</function>"),
    ("llama_function_tag", "<function=weather{\"city\": \"Oslo\"}</function>"),
    ("llama_function_tag", "<function=weather>{\"city\": \"Oslo\"}<|eom_id|>"),
    (
        "harmony",
        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>",
    ),
    ("harmony", "<|channel|>commentary to=functions.weather<|channel|>json<|message|>{\"city\": \"Oslo\"}"),
    (
        "harmony",
        "<|start|>assistant<|channel|>commentary to=weather json<|message|>{\"city\": \"Oslo\"}<|call|>",
    ),
    (
        "harmony",
        "<|start|>assistant to=functions.weather<|channel|>analysis code<|message|>{\"city\": \"Oslo\"}<|end|>",
    ),
    ("harmony", "<|channel|>commentary to=functions.weather json{\"city\": \"Oslo\"}<|call|>"),
];

#[test]
fn a_name_before_its_arguments_is_read() {
    for &(format, written) in AFTER_A_NAME {
        gives(format, written, &[OSLO], "");
    }
    gives(
        "mistral",
        "Two.[TOOL_CALLS]weather[ARGS]{\"city\": \"Oslo\"}[TOOL_CALLS]list[ARGS]{}",
        &[OSLO, LIST],
        "Two.",
    );
    gives("harmony", "<|channel|>commentary to=functions.list<|message|><|call|>", &[LIST], "");
    gives(
        "kimi_k2",
        "<|tool_call_begin|>functions.list:0<|tool_call_argument_begin|><|tool_call_end|>",
        &[LIST],
        "",
    );
    gives(
        "harmony",
        "<|channel|>commentary to=functions.ns.get<|message|>{\"id\": 1}<|call|>",
        &["ns.get {\"id\":1}"],
        "",
    );
}

#[test]
fn an_id_that_is_written_is_kept() {
    for (format, written, expected) in [
        ("mistral", "[TOOL_CALLS]list[CALL_ID]aB3456789[ARGS]{}", "aB3456789"),
        (
            "kimi_k2",
            "<|tool_call_begin|>functions.list:12<|tool_call_argument_begin|>{}<|tool_call_end|>",
            "functions.list:12",
        ),
        (
            "mistral",
            "[TOOL_CALLS][{\"name\": \"list\", \"arguments\": {}, \"id\": \"123456789\"}]",
            "123456789",
        ),
    ] {
        let pieces = read(format, written);
        let [Piece::Call(call)] = pieces.as_slice() else { panic!("{pieces:?}") };
        assert_eq!((call.name.as_str(), call.id.as_deref()), ("list", Some(expected)));
    }
}

/// One call of `weather`, its arguments in elements.
const IN_ELEMENTS: &[(&str, &str)] = &[
    (
        "qwen3_coder_xml",
        "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "qwen3_coder_xml",
        "<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
    ),
    ("qwen3_coder_xml", "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</function>\n</tool_call>"),
    ("qwen3_coder_xml", "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</tool_call>"),
    (
        "qwen3_coder_xml",
        "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</tool_call>",
    ),
    (
        "qwen3_coder_xml",
        "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</parameter>\n</function>\n</function>\n</tool_call>\n</tool_call>",
    ),
    (
        "qwen3_coder_xml",
        "<tool_call>\n<function=weather\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "qwen3_coder_xml",
        "<tool_call>\n<tool_call>\n<function=weather>\n<parameter=city>Oslo</parameter></function>",
    ),
    (
        "qwen3_coder_xml",
        "<tool_call>\n<function=weather>\n<parameter=city\nOslo\n</parameter>\n</function>\n</tool_call>",
    ),
    (
        "seed_oss",
        "<seed:tool_call>\n<function=weather>\n<parameter=city>Oslo</parameter>\n</function>\n</seed:tool_call>",
    ),
    ("glm", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>"),
    ("glm", "<tool_call>weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>"),
    ("glm", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</tool_call>"),
    ("glm", "<tool_call>weather\n<arg_key>city\n<arg_value>Oslo</arg_value>"),
    (
        "hunyuan_v3",
        "<tool_calls:x9Z><tool_call:x9Z>weather<tool_sep:x9Z>\n<arg_key:x9Z>city</arg_key:x9Z>\n<arg_value:x9Z>Oslo</arg_value:x9Z>\n</tool_call:x9Z></tool_calls:x9Z>",
    ),
    (
        "hunyuan_v3",
        "<tool_calls:ab><tool_call>weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call></tool_calls:ab>",
    ),
    (
        "hunyuan_v3",
        "<tool_calls:ab>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_calls:ab>",
    ),
    (
        "minimax_m2",
        "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Oslo</parameter>\n</invoke>\n</minimax:tool_call>",
    ),
    (
        "claude",
        "<function_calls>\n<invoke name=\"weather\">\n<parameter name=\"city\">Oslo</parameter>\n</invoke>\n</function_calls>",
    ),
    (
        "dots",
        "<dots_function_call>\n<invoke name='weather'>\n<parameter name='city'>Oslo</parameter>\n</invoke>\n</dots_function_call>",
    ),
    (
        "minimax_m2",
        "<invoke name=\"weather\">\n<parameter name=\"city\">Oslo\n</invoke>\n</minimax:tool_call>",
    ),
    (
        "deepseek",
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Oslo</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    (
        "deepseek",
        "<｜DSML｜tool_calls><｜DSML｜invoke name=\"weather\">{\"city\": \"Oslo\"}</｜DSML｜invoke></｜DSML｜tool_calls>",
    ),
    (
        "gigachat",
        "<｜GCML｜tool_calls><｜GCML｜invoke name=\"weather\"><｜GCML｜parameter name=\"city\" string=\"true\">Oslo</｜GCML｜parameter></｜GCML｜invoke></｜GCML｜tool_calls><|message_sep|>",
    ),
    (
        "step3",
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"weather\"><steptml:parameter name=\"city\">Oslo</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
    ),
    ("minicpm5", "<function name=\"weather\"><param name=\"city\"><![CDATA[Oslo]]></param></function>"),
    (
        "muse",
        "<|start|>assistant to=weather<|message|><atem:function_calls>\n<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\">Oslo</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>",
    ),
    (
        "kimi_k3",
        "<|open|>tools<|sep|><|open|>call tool=\"weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>Oslo<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    ),
    (
        "minimax_m3",
        "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"weather\">\n]<]minimax[>[<city>Oslo]<]minimax[>[</city>\n]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    ),
];

#[test]
fn an_element_an_argument_is_read() {
    for &(format, written) in IN_ELEMENTS {
        gives(format, written, &[OSLO], "");
    }
}

/// A call of `weather`, and one of `list`.
const SEVERAL: &[(&str, &str)] = &[
    (
        "minimax_m2",
        "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Oslo</parameter>\n</invoke>\n<invoke name=\"list\">\n</invoke>\n</minimax:tool_call>",
    ),
    (
        "qwen3_coder_xml",
        "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</function>\n</tool_call>\n<tool_call>\n<function=list>\n</function>\n</tool_call>",
    ),
    (
        "qwen3_coder_xml",
        "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<function=list>\n</function>\n</tool_call>",
    ),
    (
        "glm",
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>\n<tool_call>list</tool_call>",
    ),
    (
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_begin|>functions.list:1<|tool_call_argument_begin|>{}<|tool_call_end|>",
    ),
    (
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Oslo\"}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>list<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    ("pythonic", "[weather(city=\"Oslo\"), list()]"),
    ("olmo3", "<function_calls>\nweather(city='Oslo')\nlist()\n</function_calls>"),
    (
        "gemma4",
        "<|tool_call>call:weather{city:<|\"|>Oslo<|\"|>}<tool_call|><|tool_call>call:list{}<tool_call|>",
    ),
    (
        "harmony",
        "<|channel|>commentary to=functions.weather<|message|>{\"city\": \"Oslo\"}<|call|><|start|>assistant<|channel|>commentary to=functions.list<|message|>{}<|call|>",
    ),
    ("functionary", ">>>weather\n{\"city\": \"Oslo\"}>>>list\n{}"),
    (
        "minimax_m3",
        "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"weather\">]<]minimax[>[<city>Oslo]<]minimax[>[</city>]<]minimax[>[</invoke>]<]minimax[>[<invoke name=\"list\">]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
    ),
];

#[test]
fn several_calls_in_one_wrapper_are_several() {
    for &(format, written) in SEVERAL {
        gives(format, written, &[OSLO, LIST], "");
    }
}

#[test]
fn a_value_is_typed_by_its_tool() {
    let value = |key: &str, text: &str| {
        let written = format!(
            "<tool_call><function=search><parameter={key}>\n{text}\n</parameter></function></tool_call>"
        );
        let pieces = read("qwen3_coder_xml", &written);
        let [Piece::Call(call)] = pieces.as_slice() else { panic!("{pieces:?}") };
        call.arguments.value().unwrap()[key].clone()
    };
    for (key, written, expected) in [
        ("query", "42", json!("42")),
        ("query", "null", json!("null")),
        ("query", "\n two\n", json!("\n two\n")),
        ("site", "null", json!(null)),
        ("site", "a.org", json!("a.org")),
        ("tags", "[\"a\", 1]", json!(["a", 1])),
        ("tags", "['a', True]", json!(["a", true])),
        ("tags", "no list", json!("no list")),
        ("filter", "{\"max\": 1}", json!({"max": 1})),
        ("size", "7", json!(7)),
        ("either", "7", json!(7)),
        ("either", "seven", json!("seven")),
        ("free", "7", json!("7")),
        ("unknown", "true", json!("true")),
    ] {
        assert_eq!(value(key, written), expected, "{key}: {written}");
    }
    let numbers =
        "<function=weather><parameter=days>3</parameter><parameter=exact>True</parameter></function>";
    gives("qwen3_coder_xml", numbers, &[r#"weather {"days":3,"exact":true}"#], "");
    let typed = "<｜DSML｜invoke name=\"search\"><｜DSML｜parameter name=\"query\" string=\"true\">7</｜DSML｜parameter><｜DSML｜parameter name=\"free\" string=\"false\">{\"a\": [1, null]}</｜DSML｜parameter></｜DSML｜invoke>";
    gives("deepseek", typed, &[r#"search {"query":"7","free":{"a":[1,null]}}"#], "");
    let typed = "<|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>1.5<|close|>argument<|sep|><|open|>argument key=\"b&quot;&amp;\" type=\"object\"<|sep|>{\"x\": false}<|close|>argument<|sep|><|open|>argument key=\"c\" type=\"null\"<|sep|>null<|close|>argument<|sep|><|close|>call<|sep|>";
    gives("kimi_k3", typed, &[r#"f {"a":1.5,"b\"&":{"x":false},"c":null}"#], "");
    gives(
        "gemma4",
        "<|tool_call>call:weather{city:7,days:<|\"|>2<|\"|>,free:<|\"|>2<|\"|>,x:3,y:true,z:plain}<tool_call|>",
        &[r#"weather {"city":"7","days":2,"free":"2","x":3,"y":true,"z":"plain"}"#],
        "",
    );
    gives(
        "gemma4",
        "<|tool_call>call:search{tags:[<|\"|>a, b<|\"|>,2],filter:{max:1,note:<|\"|>}<|\"|>}}<tool_call|>",
        &[r#"search {"tags":["a, b",2],"filter":{"max":1,"note":"}"}}"#],
        "",
    );
    let nested = "]<]minimax[>[<invoke name=\"search\">]<]minimax[>[<filter>]<]minimax[>[<max>3]<]minimax[>[</max>]<]minimax[>[<note>3]<]minimax[>[</note>]<]minimax[>[</filter>]<]minimax[>[<tags>]<]minimax[>[<item>a]<]minimax[>[</item>]<]minimax[>[<item>b]<]minimax[>[</item>]<]minimax[>[</tags>]<]minimax[>[</invoke>";
    gives("minimax_m3", nested, &[r#"search {"filter":{"max":3,"note":"3"},"tags":["a","b"]}"#], "");
}

#[test]
fn marks_inside_a_value_are_data() {
    let code = "if a < b:\n    print('</function>', \"</tool_call>\")";
    let written = format!(
        "<tool_call>\n<function=run>\n<parameter=code>\n{code}\n</parameter>\n</function>\n</tool_call>"
    );
    gives("qwen3_coder_xml", &written, &[&format!("run {}", json!({"code": code}))], "");
    let code = "x = '</invoke>' + \"<b>\"";
    let written = format!("<invoke name=\"run\"><parameter name=\"code\">{code}</parameter></invoke> ok");
    gives("minimax_m2", &written, &[&format!("run {}", json!({"code": code}))], "ok");
    gives("pythonic", "[run(code=\"print(')]', [1])\")]", &[r#"run {"code":"print(')]', [1])"}"#], "");
    gives(
        "mistral",
        "[TOOL_CALLS]run[ARGS]{\"code\": \"[TOOL_CALLS]}\"}",
        &[r#"run {"code":"[TOOL_CALLS]}"}"#],
        "",
    );
    // a call inside another's value is none
    let inner = "<|tool_call_begin|>functions.list:0";
    let written = format!(
        "<|tool_call_begin|>functions.run:0<|tool_call_argument_begin|>{{\"code\": \"{inner}\"}}<|tool_call_end|>"
    );
    gives("kimi_k2", &written, &[&format!("run {{\"code\":\"{inner}\"}}")], "");
}

#[test]
fn a_list_of_calls_may_hold_literals_of_python_and_of_json() {
    for (written, expected) in [
        ("[f(a=1, b=-2.5, c=1_000, d=.5)]", r#"f {"a":1,"b":-2.5,"c":1000,"d":0.5}"#),
        ("[f(a=True, b=false, c=None, d=null)]", r#"f {"a":true,"b":false,"c":null,"d":null}"#),
        ("[f(a=[1, 'x', (2, 3)], b={'k': {\"l\": []}})]", r#"f {"a":[1,"x",[2,3]],"b":{"k":{"l":[]}}}"#),
        (
            r#"[f(a="q\"uo\te\n", b='it\'s', c="\u00e9\x41")]"#,
            "f {\"a\":\"q\\\"uo\\te\\n\",\"b\":\"it's\",\"c\":\"éA\"}",
        ),
        ("[f(a='''three\n'quotes' ''', b=\"x\" \"y\")]", r#"f {"a":"three\n'quotes' ","b":"xy"}"#),
        ("[a.b-c_d(x = 1,)]", r#"a.b-c_d {"x":1}"#),
        ("[ f( ) ]", "f {}"),
        (r"[f(a=r'\d+')]", r#"f {"a":"\\d+"}"#),
    ] {
        let pieces = read_with(&Arc::from([]), "pythonic", written, TextEnd::Clean);
        assert_eq!(calls(&pieces), [expected], "{written}\n{pieces:?}");
    }
    gives("pythonic", "[weather(\"Oslo\")]", &[OSLO], "");
    gives("pythonic", "<|python_start|>[weather(city=\"Oslo\")]<|python_end|>", &[OSLO], "");
    gives("pythonic", "[weather(city=\"Oslo\")", &[OSLO], "");
    gives(
        "lfm2",
        "<|tool_call_start|>[weather(city=\"Oslo\")]<|tool_call_end|>Let me see.",
        &[OSLO],
        "Let me see.",
    );
    gives("gemma", "```tool_code\nweather(city=\"Oslo\")\n```", &[OSLO], "");
    gives(
        "functiongemma",
        "<start_function_call>call:weather{city:<escape>Oslo<escape>}<end_function_call><start_function_response>",
        &[OSLO],
        "",
    );
    for prose in [
        "[1,2]",
        "[see](http://a.b)",
        "[f(x)](y)",
        "[weather(city=Oslo)]",
        "[no_such(a=1)]",
        "[weather (city='a')]",
        "as in `[weather(city='a')]`",
        "[ ]",
        "[don't]",
        "[weather(city=\"Os",
    ] {
        is_text("pythonic", prose);
    }
}

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
fn a_word_without_quotes_may_hold_parentheses() {
    for city in ["Oslo (Norway)", "Oslo :)", "(Oslo"] {
        let expected = format!("weather {}", json!({"city": city}));
        gives("gemma4", &format!("<|tool_call>call:weather{{city:{city}}}<tool_call|>"), &[&expected], "");
    }
    // where a word holds a brace, its end is not known
    is_refused("gemma4", "<|tool_call>call:run{code:f() { x }}<tool_call|>", TextEnd::Clean);
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
fn a_limit_counts_alike_however_the_text_is_cut() {
    let mut odd = Vec::new();
    for (limit, format, before, filler, after) in [
        (512, "kimi_k3", "<|open|>call tool=\"list\" index=\"", "1", "\"<|sep|><|close|>call<|sep|>"),
        (
            512,
            "kimi_k3",
            "<|open|>call tool=\"list\"<|sep|><|open|>argument key=\"a\" type=\"",
            "t",
            "\"<|sep|>v<|close|>argument<|sep|><|close|>call<|sep|>",
        ),
        (512, "qwen3_coder_xml", "<tool_call><function=", "f", "></function></tool_call>"),
        (512, "glm", "<tool_call>weather\n<arg_key>", "k", "</arg_key><arg_value>v</arg_value></tool_call>"),
        (
            256,
            "minimax_m3",
            "]<]minimax[>[<invoke name=\"list\">]<]minimax[>[<a>v]<]minimax[>[</a",
            " ",
            ">]<]minimax[>[</invoke>",
        ),
        (512, "harmony", "<|channel|>commentary to=functions.list ", "c", "<|message|>{}<|call|>"),
        (
            2048,
            "llama3_json",
            "{\"name\": \"list\", \"parameters\": {}};",
            " ",
            "{\"name\": \"list\", \"parameters\": {}}",
        ),
    ] {
        // a mark that begins before the limit may end after it; white space has no marks
        let early = if format == "llama3_json" { 2 } else { 60 };
        for length in limit - early..limit + 4 {
            let text = format!("{before}{}{after}", filler.repeat(length));
            let whole = scan_as(format, tools(), &text, usize::MAX, TextEnd::Clean);
            if scan_as(format, tools(), &text, 1, TextEnd::Clean) != whole {
                odd.push((format, length));
            }
        }
    }
    assert_eq!(odd, []);
}

#[test]
fn what_a_fuzzer_found_is_read_alike_however_it_is_cut() {
    let hermes = r#"<tool_call>{"name": "weather", "arguments": {"city": "A"}}"#;
    for (format, text) in [
        ("hermes", &*format!("{hermes}</t{hermes}</tool_call></toolool_call></tool_call>")),
        (
            "kimi_k3",
            "<|open|>call tool=\"run\" index=\"1\"<|sep1\"<|sep|><|open|>argument key=\"code\" type=\"s<|sep|>x<|close\\>",
        ),
        ("kimi_k3", "<|open|>call tool=\"list\"<|sep|><|close|>argument<|sep|>"),
        (
            "functiongemma",
            "<start_function_call>call:list{a\": [1$ 2)}</r>{\"\n<escape>b<escape>}<end_function_call>",
        ),
    ] {
        for end in [TextEnd::Clean, TextEnd::Cut] {
            read_with(&tools(), format, text, end);
        }
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

/// What the families have to tell apart.
const MARKS: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<function=weather>",
    "<function=weather",
    "</function>",
    "<parameter=city>",
    "</parameter>",
    "weather",
    "\n",
    " ",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "Oslo",
    "(",
    ")",
    "city=",
    ",",
    ";",
    "{\"city\": \"Oslo\"}",
    "{\"name\": \"list\", \"parameters\": {}}",
    "[weather(city=\"Oslo\")]",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<invoke name=\"list\">",
    "</invoke>",
    "<parameter name=\"city\">",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "[THINK]",
    "[/THINK]",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "function<｜tool▁sep｜>",
    "```json\n",
    "```",
    "<|tool_call_begin|>",
    "functions.list:0",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|channel|>",
    "<|start|>",
    "assistant",
    "analysis",
    "final",
    " to=functions.list",
    " to=self",
    "<|message|>",
    "<|call|>",
    "<|end|>",
    "<|tool_call>",
    "call:list{",
    "<|\"|>",
    "<tool_call|>",
    "]<]minimax[>[",
    "<invoke name=\"list\">",
    "<a>",
    "</a>",
    "Action:",
    " list\n",
    "Action Input:",
    "Observation:",
    ">>>",
    "functools",
    "<think>",
    "</think>",
    "<|open|>call tool=\"list\"<|sep|>",
    "<|open|>argument key=\"a\" type=\"string\"<|sep|>",
    "<|close|>argument<|sep|>",
    "<|close|>call<|sep|>",
    "<tool_calls:x>",
    "<tool_call:x>",
    "</tool_call:x>",
    "<|python_start|>",
    "<|python_end|>",
    "é",
    "<|eom_id|>",
    "<![CDATA[",
    "<",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_familys_text_gives_the_same_however_it_is_cut(
        name in prop::sample::select(names().collect::<Vec<_>>()),
        fragments in prop::collection::vec(prop::sample::select(MARKS), 0..16),
        end in any_end(),
        size in 1_usize..9,
    ) {
        let text = fragments.concat();
        let whole = scan_as(name, tools(), &text, usize::MAX, end);
        prop_assert_eq!(&scan_as(name, tools(), &text, 1, end), &whole);
        prop_assert_eq!(scan_as(name, tools(), &text, size, end), whole);
    }

    /// Parts of what a model writes, in any order.
    #[test]
    fn a_damaged_call_gives_the_same_however_it_is_cut(
        sample in prop::sample::select([AFTER_A_NAME, IN_ELEMENTS, SEVERAL].concat()),
        parts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..5),
        end in any_end(),
        size in 2_usize..9,
    ) {
        let (name, written) = sample;
        let place = |index: prop::sample::Index| written.floor_char_boundary(index.index(written.len() + 1));
        let part = |(one, other): (prop::sample::Index, prop::sample::Index)| {
            let (one, other) = (place(one), place(other));
            &written[one.min(other)..one.max(other)]
        };
        let text: String = parts.into_iter().map(part).collect();
        let whole = scan_as(name, tools(), &text, usize::MAX, end);
        prop_assert_eq!(&scan_as(name, tools(), &text, 1, end), &whole);
        prop_assert_eq!(scan_as(name, tools(), &text, size, end), whole);
    }
}
