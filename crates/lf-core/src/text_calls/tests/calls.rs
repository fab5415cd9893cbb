//! `<tool_call>`: what is a call, what is a broken one.

use super::*;

fn reads_as(body: &str, expected: &[&str]) {
    let text = format!("<tool_call>{body}</tool_call>");
    assert_eq!(calls(&scan(&text)), expected, "{text}");
}

fn is_reported(body: &str) {
    let pieces = scan(&format!("<tool_call>{body}</tool_call>"));
    assert_eq!(calls(&pieces), [] as [&str; 0], "{body}");
    assert_eq!(problems(&pieces).len(), 1, "{body}");
}

#[test]
fn a_name_that_nobody_knows_is_a_call_too() {
    reads_as(r#"{"name": "no.such tool", "arguments": {"x": 1}}"#, &[r#"no.such tool {"x":1}"#]);
}

#[test]
fn tags_and_braces_in_a_string_are_data() {
    reads_as(
        r#"{"name": "w", "arguments": {"t": "</tool_call><tool_call>{}}</think>"}}"#,
        &[r#"w {"t":"</tool_call><tool_call>{}}</think>"}"#],
    );
}

#[test]
fn other_spellings_are_taken_inside_a_tag() {
    for body in [
        r#"{"name": "f", "parameters": {"x": 1}}"#,
        r#"{"name": "f", "args": {"x": 1}}"#,
        r#"{"tool": "f", "input": {"x": 1}}"#,
        r#"{"function": "f", "arguments": {"x": 1}}"#,
        r#"{"type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}"#,
        r#"{"tool_calls": [{"name": "f", "arguments": {"x": 1}}]}"#,
        r#"[{"name": "f", "arguments": {"x": 1}}]"#,
        r#"{"name": "f", "x": 1}"#,
        r#"{"name": " f ", "arguments": "{\"x\": 1}"}"#,
        r#"{{"name": "f", "arguments": {"x": 1}}}"#,
        "\n```json\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n```\n",
        "```tool\n{'name': 'f', 'arguments': {'x': 1}}```",
        r#"`{"name": "f", "arguments": {"x": 1}}`"#,
        r#"json {"name": "f", "arguments": {"x": 1}}"#,
        r#"<tool_call>{"name": "f", "arguments": {"x": 1}}"#,
        r#"{"name": "f", "arguments": {"x": 1}"#,
        r#"{"name": "f", "arguments": {"x": 1}}}}"#,
        r#"{"name": "f", "arguments": {"x": 1}} and that is it."#,
    ] {
        reads_as(body, &[r#"f {"x":1}"#]);
    }
}

#[test]
fn missing_arguments_are_no_arguments() {
    for arguments in
        ["", r#", "arguments": {}"#, r#", "arguments": null"#, r#", "arguments": """#, r#", "arguments": []"#]
    {
        reads_as(&format!(r#"{{"name": "f"{arguments}}}"#), &["f {}"]);
    }
}

#[test]
fn several_objects_in_a_tag_are_several_calls() {
    for between in ["\n", ", ", "", ";"] {
        reads_as(&format!(r#"{{"name": "f"}}{between}{{"name": "g"}}"#), &["f {}", "g {}"]);
    }
}

#[test]
fn a_call_without_a_name_or_an_object_is_reported() {
    for body in [
        r#"{"arguments": {"foo": "bar"}}"#,
        r#"{"name": null, "arguments": {}}"#,
        r#"{"name": 5, "arguments": {}}"#,
        r#"{"name": "", "arguments": {}}"#,
        r#"{"name": "f", "arguments": [1, 2]}"#,
        r#"{"name": "f", "arguments": "Oslo"}"#,
        r#"{"name": "f", "arguments": 5}"#,
        r#"{"name": "f", "arguments": {"a": "5" tall"}}"#,
        r#"{"name": "f", "arguments": {"a": NaN}}"#,
        r#"{"name": "f"}, "arguments": {"a": 1}}"#,
        r#"{"name": "f", "arguments": {"a": [1, 2}, "b": 3}}"#,
        "[]",
    ] {
        is_reported(body);
    }
}

#[test]
fn a_problem_is_told_to_the_model_in_a_fragment() {
    let pieces = scan(r#"<tool_call>{"name": "f", "arguments": [1]}</tool_call>"#);
    assert_eq!(problems(&pieces), ["the arguments of `f` must be a JSON object, not an array"]);
    let pieces = scan(r#"<tool_call>{"name": "f", "arguments": {"a": 5" }}</tool_call>"#);
    assert_eq!(
        problems(&pieces),
        ["expected `,` or a closing bracket after the value at character 35 of the call"]
    );
}

#[test]
fn a_closing_tag_may_be_missing_doubled_or_wrong() {
    let open = r#"<tool_call>{"name": "f", "arguments": {}}"#;
    for close in [
        "",
        "</tool_call></tool_call>",
        "</function_call>",
        "</tool_calls>",
        "</tool>",
        "<tool_call>",
        "</tool_c",
        "<",
        "<|im_end|>",
        "</s>",
        "</tool_call><|im_end|>\n",
        "</ TOOL_CALL >",
        "\n\n",
    ] {
        let pieces = scan(&format!("{open}{close}"));
        assert_eq!(calls(&pieces), ["f {}"], "{close}");
        assert_eq!(text(&pieces), "", "{close}");
    }
    let pieces = scan(&format!("{open}\n\nNow we wait."));
    assert_eq!((calls(&pieces).len(), text(&pieces).trim()), (1, "Now we wait."));
    assert_eq!(calls(&scan(&format!("{open}\n{open}</tool_call>"))), ["f {}", "f {}"]);
    assert_eq!(calls(&scan(&format!("<tool_calls>\n{open}</tool_call>\n</tool_calls>"))), ["f {}"]);
}

#[test]
fn a_bad_call_does_not_take_a_good_neighbour_with_it() {
    for bad in [
        r#"<tool_call>{"name": "x", "arguments": {"q": "5" tall"}}</tool_call>"#,
        r#"<tool_call>{"name": "x", "arguments": {"q": "open}}</tool_call>"#,
        r#"<tool_call>{"name": "x" "arguments": {}}</tool_call>"#,
        r#"<tool_call>{"name": "x", "arguments": {"a": oops"#,
        r#"<tool_call>{"arguments": {}}</tool_call>"#,
        "<tool_use><server>x</server></tool_use>",
    ] {
        let pieces = scan(&format!("{bad}\n{WEATHER}"));
        assert_eq!(calls(&pieces), [r#"weather {"city":"Oslo"}"#], "{bad}");
        assert_eq!(problems(&pieces).len(), 1, "{bad}");
        let pieces = scan(&format!("{WEATHER}\n{bad}"));
        assert_eq!((calls(&pieces).len(), problems(&pieces).len()), (1, 1), "{bad}");
    }
    let pieces = scan(r#"<tool_call>[{"name": "f"}, {"nom": "g"}, {"name": "h"}]</tool_call>"#);
    assert_eq!((calls(&pieces).len(), problems(&pieces).len()), (2, 1));
    let pieces = scan(r#"<tool_call>{"name": "f"}{"name": oops}</tool_call>"#);
    assert_eq!((calls(&pieces).len(), problems(&pieces).len()), (1, 1));
}

#[test]
fn what_the_limit_cut_is_never_run() {
    let whole = r#"<tool_call>{"name": "f", "arguments": {"q": "a </tool_call> b", "n": [1, 2]}}"#;
    for (end, _) in whole.char_indices().skip("<tool_call>".len()) {
        let pieces = scan_pieces([&whole[..end]], TextEnd::Cut);
        assert_eq!(calls(&pieces), [] as [&str; 0], "{}", &whole[..end]);
    }
    assert_eq!(calls(&scan_pieces([whole], TextEnd::Cut)), [] as [&str; 0]);
    let pieces = scan_pieces([WEATHER, "\n", whole], TextEnd::Cut);
    assert_eq!((calls(&pieces).len(), problems(&pieces).len()), (1, 1));
    // the closing tag had begun: the call itself was complete
    assert_eq!(calls(&scan_pieces([whole, "</tool"], TextEnd::Cut)).len(), 1);
    assert_eq!(calls(&scan_pieces([whole, "<"], TextEnd::Cut)).len(), 0);
}

#[test]
fn the_complete_calls_of_a_cut_array_are_kept() {
    let text = r#"<tool_call>[{"name": "f"}, {"name": "g", "argum"#;
    assert_eq!(calls(&scan_pieces([text], TextEnd::Cut)), ["f {}"]);
}

#[test]
fn a_value_cut_inside_a_string_is_never_completed() {
    let text = r#"<tool_call>{"name": "rm", "arguments": {"path": "/home"#;
    let pieces = scan(text);
    assert_eq!((calls(&pieces).len(), problems(&pieces).len()), (0, 1));
}
