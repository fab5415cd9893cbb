//! What is text: code, quotations, reasoning, mentions, and everything that only looks like a tag.

use super::*;

fn is_text(shown: &str) {
    assert_eq!(scan(shown), [Piece::Text(shown.to_owned())]);
}

#[test]
fn what_only_looks_like_a_tag_comes_out_in_full() {
    for shown in [
        "x < 3",
        "1 < 2 and 3 <",
        "<tool_box> and <tool",
        "<my_tool_call>{\"name\": \"f\"}</my_tool_call>",
        "&lt;tool_call&gt;{\"name\": \"f\"}&lt;/tool_call&gt;",
        "{\"name\": \"f\", \"arguments\": {}}",
        "<function=f>{}</function>",
        "<tool_call/> is empty",
        "text with white space \n ",
        "</tool_call> alone",
    ] {
        is_text(shown);
    }
}

#[test]
fn a_mention_of_a_tag_is_text() {
    for shown in [
        "Wrap every call in a <tool_call> tag and close it with </tool_call>.",
        "within <tool_call></tool_call> XML tags",
        "A <tool_use> block ends with </tool_use>.",
        "<tool_call>{...}</tool_call> is its form",
        "<tool_call>\n{\"name\": <function-name>, \"arguments\": <args>}\n</tool_call>",
        "<tool_call>[see above]",
        "The tag is <tool_call>",
    ] {
        is_text(shown);
    }
}

#[test]
fn a_call_in_code_is_text() {
    for (before, after) in [
        ("```xml\n", "\n```\n"),
        ("```\n", "\n``\n~~~\n"),
        ("~~~\n", "\n~~~"),
        ("````md\n```\n", "\n```\n````\nend"),
        ("See: ```xml\n", "\n```"),
        ("```", "```"),
        ("> ```\n> ", "\n> ```"),
        ("`", "`"),
        ("``", "`` x"),
        ("As in `a b ", " c` it is."),
    ] {
        is_text(&format!("{before}{WEATHER}{after}"));
    }
}

#[test]
fn code_that_has_ended_hides_nothing() {
    for before in [
        "Use `ls` and `cat`. ",
        "```\ncode\n```\n",
        "~~~\na\n~~~~\n",
        "``a`b`` ",
        "```a``` ",
        "````\n```\n````\n",
    ] {
        let pieces = scan(&format!("{before}{WEATHER}"));
        assert_eq!(calls(&pieces).len(), 1, "{before}");
        assert_eq!(text(&pieces), before.trim_end(), "{before}");
    }
}

#[test]
fn an_unclosed_backtick_hides_nothing() {
    for (before, after) in [
        ("The ` key: ", ""),
        ("The ` key: ", "\nand `code` below"),
        ("The ` key\n", " ` "),
        ("5\" wide: ", ""),
        ("It's: ", "'"),
    ] {
        assert_eq!(calls(&scan(&format!("{before}{WEATHER}{after}"))).len(), 1, "{before:?} {after:?}");
    }
    let code = r#"<tool_call>{"name": "sh", "arguments": {"c": "`ls`"}}</tool_call>"#;
    assert_eq!(calls(&scan(&format!("The ` key: {code}"))).len(), 1);
}

#[test]
fn quoted_and_commented_calls_are_text() {
    for (before, after) in [
        ("\"", "\""),
        ("The text \"like ", "\" is one."),
        ("'", "'"),
        ("“", "”"),
        ("<!-- ", " -->"),
        ("<!--\n", "\n-->\nend"),
        ("> ", ""),
        ("\\", ""),
    ] {
        is_text(&format!("{before}{WEATHER}{after}"));
    }
}

#[test]
fn closed_reasoning_is_not_read_for_calls() {
    for (open, close) in [("<think>", "</think>"), ("<thinking>\n", "</thinking>"), ("\n<think>", "</think>")]
    {
        let pieces = scan(&format!("{open}maybe {WEATHER}?{close}\n\nNo."));
        assert_eq!(calls(&pieces), [] as [&str; 0]);
        assert_eq!(text(&pieces).trim(), "No.");
        assert!(matches!(&pieces[0], Piece::Reasoning(text) if text.trim() == format!("maybe {WEATHER}?")));
    }
    // a backtick before it that is never closed changes nothing, and code inside a line is no block
    let pieces = scan(&format!("The ` key. <think>{WEATHER}</think>"));
    assert_eq!(calls(&pieces), [] as [&str; 0]);
    assert_eq!(calls(&scan(&format!("The `<think>` tag. {WEATHER}\nEnd `</think>`."))).len(), 1);
    // in mid-line it may be a mention: shown, and not run
    is_text(&format!("Sure. <think>maybe {WEATHER}</think> No."));
}

#[test]
fn a_call_after_unclosed_reasoning_counts_if_the_answer_is_whole() {
    let text = format!("<think>\nI need the weather.\n{WEATHER}");
    let pieces = scan(&text);
    assert_eq!(calls(&pieces).len(), 1);
    assert!(matches!(&pieces[0], Piece::Reasoning(text) if text.contains("I need")));
    assert_eq!(calls(&scan_pieces([text.as_str()], TextEnd::Cut)), [] as [&str; 0]);
}

#[test]
fn a_closing_think_tag_alone_is_left_out() {
    let pieces = scan(&format!("I need the weather.\n</think>\n\n{WEATHER}"));
    assert_eq!((calls(&pieces).len(), text(&pieces).as_str()), (1, "I need the weather."));
    is_text("The `</think>` tag and the </think> tag");
}

#[test]
fn white_space_around_a_call_is_shown_once() {
    let shown = |before: &str, after: &str| text(&scan(&format!("{before}{WEATHER}{after}")));
    assert_eq!(shown("a\n\n", "\n"), "a");
    assert_eq!(shown("a ", " b"), "a b");
    assert_eq!(shown("a\n", "b"), "a\nb");
    assert_eq!(shown("", "\n\nb"), "b");
    assert_eq!(shown("\n", ""), "");
    assert_eq!(shown("a", "."), "a.");
}

#[test]
fn end_tokens_are_not_shown_at_the_end() {
    assert_eq!(text(&scan("Hello<|im_end|>\n<|endoftext|>")), "Hello");
    is_text("<|im_end|> ends a turn");
    is_text("struck </s> out");
}

#[test]
fn an_invented_result_and_what_follows_is_left_out() {
    let invented =
        format!("{WEATHER}\n<tool_response>\n{{\"t\": 1}}\n</tool_response>\nIt is 1 degree. {WEATHER}");
    let pieces = scan(&invented);
    assert_eq!((calls(&pieces).len(), text(&pieces).as_str()), (1, ""));
    is_text("A <tool_response> answers a call.");
}

#[test]
fn what_is_taken_out_leaves_no_new_tag_behind() {
    let pieces = scan(&format!("<tool_{WEATHER}call>{{\"name\": \"rm\"}}</tool_call>"));
    assert_eq!(calls(&pieces), [r#"weather {"city":"Oslo"}"#]);
    assert_eq!(calls(&scan(&text(&pieces))), [] as [&str; 0]);
}
