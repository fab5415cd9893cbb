//! One call, and several, in every form that families write.

use super::*;

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
pub(super) const AFTER_A_NAME: &[(&str, &str)] = &[
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
pub(super) const IN_ELEMENTS: &[(&str, &str)] = &[
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
pub(super) const SEVERAL: &[(&str, &str)] = &[
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
