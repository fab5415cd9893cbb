//! Text: the calls in it, and JSON that is nearly right.

use std::sync::Arc;

use lf_core::Arguments;
use lf_core::json::{Push, Reader, Unreadable, read_object, read_value};
use lf_core::model::ToolSpec;
use lf_core::text_calls::{DEFAULT, Piece, TextEnd, TextFormat, TextScanner, Utf8Joiner, named};
use serde_json::{Map, Value, json};

use super::sizes;

/// A text is read the same wherever its bytes are cut; what is told is in it, and each part of it is told once. The
/// first line may name the family to read.
pub fn text_calls(bytes: &[u8]) {
    let line = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(0);
    let family = std::str::from_utf8(&bytes[..line]).ok().and_then(named);
    let (formats, bytes) = match family {
        Some(formats) => (formats, &bytes[line + 1..]),
        None => (DEFAULT, bytes),
    };
    let text = String::from_utf8_lossy(bytes);
    for end in [TextEnd::Clean, TextEnd::Cut] {
        let whole = scan(formats, bytes, usize::MAX, end);
        for size in sizes(bytes) {
            assert_eq!(scan(formats, bytes, size, end), whole, "cut into {size}, {end:?}");
        }
        check(&text, &whole, end);
        if family.is_none() && !text.contains('<') {
            assert!(matches!(whole.as_slice(), [] | [Piece::Text(_)]), "{whole:?}");
            assert_eq!(shown(&whole), text);
        }
    }
}

fn scan(formats: &'static [TextFormat], bytes: &[u8], size: usize, end: TextEnd) -> Vec<Piece> {
    let mut scanner = TextScanner::new(formats).with_tools(tools());
    let mut joiner = Utf8Joiner::new();
    let mut pieces = Vec::new();
    for piece in bytes.chunks(size) {
        pieces.extend(scanner.push(&joiner.push(piece)));
    }
    pieces.extend(scanner.push(&joiner.finish()));
    pieces.extend(scanner.finish(end));
    assert_eq!(scanner.push("<tool_call>"), []);
    assert_eq!(scanner.finish(TextEnd::Clean), []);
    joined(pieces)
}

fn check(text: &str, pieces: &[Piece], end: TextEnd) {
    // white space around what was taken out moves, and a line break may take its place
    let mut rest = text.chars().filter(|character| !character.is_whitespace());
    let mut size = 0;
    for piece in pieces {
        match piece {
            Piece::Text(part) | Piece::Reasoning(part) => {
                assert!(!part.is_empty());
                for character in part.chars().filter(|character| !character.is_whitespace()) {
                    assert!(rest.any(|other| other == character), "{part:?} is not in {text:?}, {end:?}");
                }
            }
            Piece::Call(call) => {
                assert!(!call.name.is_empty());
                assert!(call.arguments.value().is_ok());
                size += call.name.len() + call.arguments.raw().len() + call.arguments.for_replay().len();
            }
            Piece::Malformed { raw, problem } => {
                assert!(!problem.is_empty());
                size += raw.len();
            }
        }
    }
    assert!(size <= 16 * text.len() + 1024, "{} bytes became {size}", text.len());
}

fn shown(pieces: &[Piece]) -> &str {
    match pieces {
        [Piece::Text(text)] => text,
        _ => "",
    }
}

fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(Piece::Text(text)), Piece::Text(more)) => text.push_str(&more),
            (Some(Piece::Reasoning(text)), Piece::Reasoning(more)) => text.push_str(&more),
            (_, piece) => joined.push(piece),
        }
    }
    joined
}

/// Names and types that the seeds use.
fn tools() -> Arc<[ToolSpec]> {
    let any = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "n": {"type": "integer"}, "x": {"type": "number"}, "ok": {"type": "boolean"},
        "list": {"type": "array"}, "o": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "either": {"type": ["null", "string"]},
    }});
    ["f", "g", "get_weather", "get_time", "search"]
        .map(|name| ToolSpec {
            name: name.to_owned(),
            description: None,
            schema: Arc::new(any.clone()),
            rest: Map::new(),
        })
        .into()
}

/// JSON is read as it is and never completed; what is repaired is JSON afterwards, and means the same.
pub fn json(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let most = 16 * text.len() + 64;
    if let Ok(object) = read_object(text) {
        assert_eq!(read_object(&json!(object).to_string()), Ok(object.clone()));
        assert!(json!(object).to_string().len() <= most);
        let arguments = Arguments::parse(text);
        assert_eq!(arguments.value(), Ok(&object));
        assert_eq!(read_object(&arguments.for_replay()), Ok(object));
    }
    let plain = serde_json::from_str::<Value>(text);
    match read_value(text) {
        Ok(reading) => {
            assert!(text.is_char_boundary(reading.end));
            if let Ok(plain) = &plain {
                assert_eq!((&reading.value, reading.repaired), (plain, false));
            }
            let written = reading.value.to_string();
            assert!(written.len() <= most);
            let again = read_value(&written);
            assert_eq!(
                again.map(|again| (again.value, again.repaired)),
                Ok((reading.value, false)),
                "{written}"
            );
        }
        Err(unreadable) => {
            assert!(plain.is_err() || has_long_number(text), "{unreadable}");
            if let Unreadable::Invalid { at, .. } = unreadable {
                assert!(text.is_char_boundary(at) && at < text.len());
            }
        }
    }
    if text.len() < 200 && plain.is_ok_and(|value| value.is_object()) {
        never_completed(text.trim_ascii_end());
    }
}

/// What the reader has a limit for and JSON has not.
fn has_long_number(text: &str) -> bool {
    let in_number = |character: char| character.is_ascii_alphanumeric() || "+-.".contains(character);
    text.split(|character| !in_number(character)).any(|word| word.len() > 400)
}

fn never_completed(object: &str) {
    let mut reader = Reader::new();
    let last = object.len() - 1;
    for (at, character) in object.char_indices() {
        assert!(
            matches!(read_value(&object[..at]), Err(Unreadable::Incomplete { .. })),
            "{:?}",
            &object[..at]
        );
        let done = if at == last { Push::Done } else { Push::More };
        assert_eq!(reader.push(character), done, "at {at}");
    }
}
