use proptest::prelude::*;
use serde_json::{Value, json};

use super::{DEFAULT, Piece, TextEnd, TextScanner, Utf8Joiner, named, names};

mod calls;
mod families;
mod growth;
mod shown;
mod tool_use;

const WEATHER: &str = r#"<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>"#;

fn scan_pieces<'a>(parts: impl IntoIterator<Item = &'a str>, end: TextEnd) -> Vec<Piece> {
    let mut scanner = TextScanner::new(DEFAULT);
    let mut pieces = Vec::new();
    for part in parts {
        pieces.extend(scanner.push(part));
    }
    pieces.extend(scanner.finish(end));
    joined(pieces)
}

/// Adjacent text, and adjacent reasoning, in one piece.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut result: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (result.last_mut(), piece) {
            (Some(Piece::Text(text)), Piece::Text(more)) => text.push_str(&more),
            (Some(Piece::Reasoning(text)), Piece::Reasoning(more)) => text.push_str(&more),
            (_, piece) => result.push(piece),
        }
    }
    result
}

fn scan(text: &str) -> Vec<Piece> {
    scan_pieces([text], TextEnd::Clean)
}

/// `name {arguments}` of each call.
fn calls(pieces: &[Piece]) -> Vec<String> {
    pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Call(call) => {
                let arguments = Value::Object(call.arguments.value().unwrap().clone());
                let server = call.server.as_ref().map(|server| format!("{server}/")).unwrap_or_default();
                Some(format!("{server}{} {arguments}", call.name))
            }
            _ => None,
        })
        .collect()
}

fn text(pieces: &[Piece]) -> String {
    pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

fn problems(pieces: &[Piece]) -> Vec<&str> {
    pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Malformed { problem, .. } => Some(problem.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_character_at_a_time_a_call_waits_for_its_closing_tag_and_text_for_nothing() {
    let mut scanner = TextScanner::new(DEFAULT);
    assert_eq!(scanner.push("Hello"), [Piece::Text("Hello".to_owned())]);
    assert_eq!(scanner.push(" <"), []);
    assert_eq!(scanner.push("b"), [Piece::Text(" <b".to_owned())]);
    assert_eq!(scanner.push("> \n<tool_c"), [Piece::Text(">".to_owned())]);
    assert_eq!(scanner.push(r#"all>{"name": "f", "arguments": {}}"#), []);
    assert_eq!(calls(&scanner.push("</tool_call>")), ["f {}"]);
    assert_eq!(scanner.push("\n bye "), [Piece::Text("\n bye".to_owned())]);
    assert_eq!(scanner.finish(TextEnd::Clean), [Piece::Text(" ".to_owned())]);
    assert_eq!(scanner.push("late"), []);
}

#[test]
fn a_call_keeps_its_arguments_as_they_were_written() {
    let raw = r#"{"n": 123456789012345678901234567890,  "m": 1.0}"#;
    let pieces = scan(&format!(r#"<tool_call>{{"name": "f", "arguments": {raw}}}</tool_call>"#));
    let [Piece::Call(call)] = pieces.as_slice() else { panic!("{pieces:?}") };
    assert_eq!(call.arguments.raw(), raw);
}

#[test]
fn other_formats_are_read_only_when_they_are_named() {
    for (name, text) in [
        ("longcat", r#"<longcat_tool_call>{"name":"f","arguments":{}}</longcat_tool_call>"#),
        ("lmstudio", r#"[TOOL_REQUEST]{"name":"f","arguments":{}}[END_TOOL_REQUEST]"#),
        ("granite", r#"<|tool_call|>[{"name":"f","arguments":{}}]"#),
        ("hunyuan", r#"<tool_calls>[{"name":"f","arguments":{}}]</tool_calls>"#),
    ] {
        let mut scanner = TextScanner::new(named(name).unwrap());
        let mut pieces = Vec::new();
        for character in text.chars() {
            pieces.extend(scanner.push(&character.to_string()));
        }
        pieces.extend(scanner.finish(TextEnd::Clean));
        assert_eq!(calls(&pieces), ["f {}"], "{name}");
        assert_eq!(calls(&scan(text)), [] as [&str; 0], "{name}");
    }
    assert!(named("no such dialect").is_none());
    assert!(names().all(|name| named(name).is_some()));
}

#[test]
fn a_call_beyond_the_limit_is_reported_and_nothing_after_it_is_run() {
    let long = "x".repeat(2 << 20);
    let text = format!(r#"<tool_call>{{"name": "f", "arguments": {{"a": "{long}"}}}}</tool_call> {WEATHER}"#);
    let pieces = scan(&text);
    assert_eq!(calls(&pieces), [] as [&str; 0]);
    assert_eq!(problems(&pieces), ["the call is longer than 1048576 bytes"]);
}

#[test]
fn bytes_are_joined_to_characters() {
    let text = "aé€😀z";
    for size in 1..6 {
        let mut joiner = Utf8Joiner::new();
        let mut result: String = text.as_bytes().chunks(size).map(|bytes| joiner.push(bytes)).collect();
        result.push_str(&joiner.finish());
        assert_eq!(result, text);
    }
    let mut joiner = Utf8Joiner::new();
    assert_eq!(joiner.push(b"a\xff\xe2\x82"), "a\u{fffd}");
    assert_eq!(joiner.push(b"b\xf0"), "\u{fffd}b");
    assert_eq!(joiner.finish(), "\u{fffd}");
}

/// What the scanner has to tell apart.
const PLAIN: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<tool_calls>",
    "</function_call>",
    "<TOOL_CALL id=\"1\">",
    "< tool_call >",
    "</tool_use>",
    "s",
    "</server>",
    "<tool>",
    "</tool>",
    "<arguments>",
    "</arguments>",
    "<arguments/>",
    "<x>",
    "</x>",
    "<think>",
    "</think>",
    "</thinking>",
    "<|im_end|>",
    "</s>",
    "<tool_response>",
    "\n",
    " ",
    "}",
    "]",
    ",",
    ":",
    "json",
    "<![CDATA[",
    "]]>",
    "é",
    "prose",
    "null",
    "/*",
    "<tool_",
    "call>",
    "<",
    "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
    "<tool_use><server>s</server><tool>t</tool><arguments>{\"a\": 1}</arguments></tool_use>",
];

/// What shows tags without meaning them, and what could be the body of a tag it does not belong to.
const MASKING: &[&str] = &[
    "<name>",
    "<tool_use>",
    "{",
    "{{",
    "[",
    "\"name\": \"f\"",
    "{\"name\": \"f\", \"arguments\": {\"a\": \"`\"}}",
    "<server>",
    "<!--",
    "-->",
    "`",
    "``",
    "```",
    "```xml\n",
    "~~~\n",
    "\n\n",
    "> ",
    "\"",
    "'",
    "“",
    "”",
    "\\",
    "{'name': 'g'}",
    "😀",
    "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"",
];

fn text_of(fragments: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(fragments), 0..24).prop_map(|fragments| fragments.concat())
}

fn nasty_text() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        6 => prop::sample::select(PLAIN).prop_map(str::to_owned),
        3 => prop::sample::select(MASKING).prop_map(str::to_owned),
        1 => "<[a-z_/ |]{0,4}",
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(fragment, 0..24).prop_map(|fragments| fragments.concat())
}

fn any_end() -> impl Strategy<Value = TextEnd> {
    prop_oneof![Just(TextEnd::Clean), Just(TextEnd::Cut)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_text_gives_the_same_however_it_is_cut(
        text in nasty_text(),
        end in any_end(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let whole = scan_pieces([text.as_str()], end);
        let characters: Vec<String> = text.chars().map(String::from).collect();
        prop_assert_eq!(&scan_pieces(characters.iter().map(String::as_str), end), &whole);
        let mut places: Vec<usize> =
            cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let parts = places.windows(2).map(|window| &text[window[0]..window[1]]);
        prop_assert_eq!(scan_pieces(parts, end), whole);
    }

    #[test]
    fn what_is_left_holds_no_further_call(text in text_of(PLAIN), end in any_end()) {
        let first = scan_pieces([text.as_str()], end);
        let shown = super::tests::text(&first);
        prop_assert_eq!(calls(&scan_pieces([shown.as_str()], end)), Vec::<String>::new(), "{}", shown);
    }

    #[test]
    fn text_without_angle_brackets_is_left_alone(text in "[^<]{0,200}") {
        prop_assert_eq!(super::tests::text(&scan(&text)), text);
    }

    #[test]
    fn every_value_comes_back_as_it_went_in(city in any::<String>(), around in "[a-z ]{0,9}") {
        let body = json!({"name": "weather", "arguments": {"city": city}});
        let pieces = scan(&format!("{around}<tool_call>\n{body}\n</tool_call>"));
        prop_assert_eq!(calls(&pieces), [format!("weather {}", body["arguments"])]);
    }
}
