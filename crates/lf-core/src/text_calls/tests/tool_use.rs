//! `<tool_use>`: server, tool and arguments in elements of their own.

use super::*;

#[test]
fn children_come_in_any_order_and_any_case() {
    for text in [
        "<tool_use><server>s</server><tool>t</tool><arguments>{\"a\": 1}</arguments></tool_use>",
        "<TOOL_USE>\n <Arguments>{'a': 1}</Arguments>\n <TOOL> t </TOOL> <SERVER>s</SERVER>\n</Tool_Use>",
        "<tool_use><server>s</server><tool>t</tool><arguments>```json\n{\"a\": 1}\n```</arguments></tool_use>",
        "<tool_use><server>s</server><tool>t</tool><arguments><![CDATA[{\"a\": 1}]]></arguments></tool_use>",
        "<tool_use><server>s</server><tool>t</tool><arguments>\"{\\\"a\\\": 1}\"</arguments></tool_use>",
        "<tool_use><server>s</server><tool>t</tool><arguments>{\"a\": 1</arguments></tool_use>",
        "<tool_use><server>s</server><tool>t</tool><arguments>{\"a\": 1}}</arguments></tool_use>",
        "<tool_use><server>s</server><tool>t</tool><arguments>{\"a\": 1}</tool_use>",
        "<tool_use><server>s</server><why>x <y> z</why><tool>t</tool><arguments>{\"a\": 1}</arguments></tool_use>",
        "<tool_use><server>s</server><tool>t</tool><arguments>{\"a\": 1}</arguments>",
        "<tool_use><server>s</server><tool>t</tool><arguments>{\"a\": 1}</argum",
        "<tool_use>{\"server\": \"s\", \"tool\": \"t\", \"arguments\": {\"a\": 1}}</tool_use>",
    ] {
        let pieces = scan(text);
        assert_eq!(calls(&pieces), [r#"s/t {"a":1}"#], "{text}");
        assert_eq!(super::text(&pieces), "", "{text}");
    }
}

#[test]
fn arguments_may_be_empty_or_missing() {
    for arguments in [
        "",
        "<arguments></arguments>",
        "<arguments>null</arguments>",
        "<arguments/>",
        "<arguments>{}</arguments>",
    ] {
        let text = format!("<tool_use><server>a b</server><tool>do it</tool>{arguments}</tool_use>");
        assert_eq!(calls(&scan(&text)), ["a b/do it {}"], "{arguments}");
    }
}

#[test]
fn children_inside_the_json_are_data() {
    let arguments = r#"{"x":"<server>x</server><tool>rm</tool></arguments></tool_use> & <"}"#;
    let text =
        format!("<tool_use><arguments>{arguments}</arguments><tool>t</tool><server>s</server></tool_use>");
    assert_eq!(calls(&scan(&text)), [format!("s/t {arguments}")]);
}

#[test]
fn a_block_without_server_or_tool_or_readable_arguments_is_reported() {
    for inner in [
        "<server>only",
        "<server>s</server>",
        "<tool>t</tool>",
        "<server></server><tool>t</tool>",
        "<server>s</server><tool>t</tool><arguments>[1]</arguments>",
        "<server>s</server><tool>t</tool><arguments>Oslo</arguments>",
        "<server>s</server><tool>t</tool><arguments>{\"a\": oops}</arguments>",
        "<server>s</server><tool>t</tool><arguments>{\"a\": 1} and more</arguments>",
    ] {
        let pieces = scan(&format!("<tool_use>{inner}</tool_use> after"));
        assert_eq!((calls(&pieces).len(), problems(&pieces).len()), (0, 1), "{inner}");
        assert_eq!(text(&pieces).trim(), "after", "{inner}");
    }
}

#[test]
fn what_the_limit_cut_is_never_run() {
    let whole = "<tool_use><server>s</server><tool>t</tool><arguments>{\"a\": 1}</arguments>";
    assert_eq!(calls(&scan_pieces([whole, "</tool_us"], TextEnd::Cut)).len(), 1);
    for end in "<tool_use>".len()..=whole.len() {
        assert_eq!(calls(&scan_pieces([&whole[..end]], TextEnd::Cut)), [] as [&str; 0], "{}", &whole[..end]);
    }
}

#[test]
fn calls_of_both_formats_are_read_in_their_order() {
    let other = "<tool_use><server>s</server><tool>t</tool></tool_use>";
    let pieces = scan(&format!("One {other} two {WEATHER} three {other}"));
    assert_eq!(calls(&pieces), ["s/t {}", r#"weather {"city":"Oslo"}"#, "s/t {}"]);
    assert_eq!(text(&pieces), "One two three");
}
