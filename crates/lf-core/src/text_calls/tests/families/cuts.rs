//! However the text is cut, and whatever it is, it gives the same.

use super::forms::{AFTER_A_NAME, IN_ELEMENTS, SEVERAL};
use super::*;

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
