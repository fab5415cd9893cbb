use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Push, Reader, Unreadable, read_object, read_value};

fn object(raw: &str) -> Value {
    match read_object(raw) {
        Ok(object) => Value::Object(object),
        Err(problem) => Value::String(problem),
    }
}

#[test]
fn nothing_and_null_are_no_arguments() {
    for raw in ["", "  \n", "null", "{}", "\"\"", "\"{}\"", "\u{feff}{}"] {
        assert_eq!(object(raw), json!({}), "{raw:?}");
    }
}

#[test]
fn an_object_in_a_string_is_unwrapped_once() {
    assert_eq!(object(r#""{\"city\": \"Oslo\"}""#), json!({"city": "Oslo"}));
    let twice = json!(json!(json!({"city": "Oslo"}).to_string()).to_string()).to_string();
    assert!(read_object(&twice).is_err());
    // a value that looks like JSON is a string all the same
    assert_eq!(object(r#"{"body": "{\"a\": 1}"}"#), json!({"body": "{\"a\": 1}"}));
}

#[test]
fn what_has_one_reading_is_repaired() {
    let read = [
        ("{'city': 'Oslo', 'now': True, 'until': None}", json!({"city": "Oslo", "now": true, "until": null})),
        (r#"{"a": 1, "b": [1, 2,],}"#, json!({"a": 1, "b": [1, 2]})),
        ("{\"code\": \"a\n\tb\"}", json!({"code": "a\n\tb"})),
        ("{city: \"Oslo\", $n: +1, f: .5}", json!({"city": "Oslo", "$n": 1, "f": 0.5})),
        (r#"{"a": {"b": 1}"#, json!({"a": {"b": 1}})),
        (r#"{"a": {"b": 1}}}"#, json!({"a": {"b": 1}})),
        (r#"{"a": [1, 2}"#, json!({"a": [1, 2]})),
        (r#"{"a": [1, 2]], "b": 3}"#, json!({"a": [1, 2], "b": 3})),
        (r#"{“a”: “b”}"#, json!({"a": "b"})),
        (r#"{"pattern": "\d+\w"}"#, json!({"pattern": "\\d+\\w"})),
        ("{\"a\": 1, // one\n \"b\": /* two */ 2}", json!({"a": 1, "b": 2})),
        ("```json\n{\"a\": 1}\n```", json!({"a": 1})),
        (r#"{"smile": "\ud83d\ude00", "half": "\ud83d!"}"#, json!({"smile": "😀", "half": "\u{fffd}!"})),
        (r#"{"path": "C:\users\u12"}"#, json!({"path": "C:\\users\\u12"})),
    ];
    for (raw, expected) in read {
        assert_eq!(object(raw), expected, "{raw}");
    }
}

#[test]
fn what_has_no_reading_or_two_is_refused() {
    let refused = [
        r#"{"a": "cut"#,
        r#"{"a": 'cut}"#,
        r#"{"a": "#,
        r#"{"a": 1,"#,
        r#"{"a""#,
        r#"{"a": {"b": {"c": 1}"#,
        r#"{"a": "5" tall"}"#,
        r#"{"a": 1 "b": 2}"#,
        r#"{"a": NaN}"#,
        r#"{"a": Oslo}"#,
        r#"{"a": 007}"#,
        r#"{"a": {"b": [1, 2}, "c": 3}}"#,
        r#"{"a": 1}, "b": 2}"#,
        "[1, 2]",
        "42",
        "\"Oslo\"",
        "true",
        "Oslo",
    ];
    for raw in refused {
        assert!(read_object(raw).is_err(), "{raw}");
    }
}

#[test]
fn a_refusal_says_what_and_where() {
    assert_eq!(
        object(r#"{"ä": "5" tall"}"#),
        "expected `,` or a closing bracket after the value at character 11"
    );
    assert_eq!(object(r#"{"a": "cut"#), "the text ends inside a string, after character 10");
    assert_eq!(object("[1]"), "expected a JSON object, got an array");
    assert_eq!(object("{} {}"), "unexpected text after the value at character 4");
}

#[test]
fn reading_stops_where_the_value_ends() {
    let reading = read_value(r#" {"a": "}"} tail"#).unwrap();
    assert_eq!((reading.value, reading.end, reading.repaired), (json!({"a": "}"}), 11, false));
    let number = read_value("12 tail").unwrap();
    assert_eq!((number.value, number.end), (json!(12), 2));
    assert_eq!(read_value("{\"a"), Err(Unreadable::Incomplete { in_string: true }));
    assert_eq!(read_value("{\"a\": 1"), Err(Unreadable::Incomplete { in_string: false }));
    assert_eq!(
        read_value("{]"),
        Err(Unreadable::Invalid { at: 1, problem: "expected a key in quotes or `}`" })
    );
}

#[test]
fn of_equal_keys_the_last_wins_as_in_plain_json() {
    assert_eq!(object(r#"{"a": 1, "a": 3}"#), json!({"a": 3}));
    assert_eq!(object("{'a': 1, 'a': 3}"), json!({"a": 3}));
}

#[test]
fn nesting_has_a_limit() {
    assert!(read_value(&"[".repeat(100_000)).is_err());
    let nested = |depth: usize| read_value(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
    assert!(nested(127).is_ok());
    assert!(nested(128).is_err() && nested(12_800).is_err());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn plain_json_is_read_as_it_is_and_not_repaired(value in any_json(), pretty: bool) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        let reading = read_value(&text).unwrap();
        prop_assert_eq!(reading.value, value);
        prop_assert_eq!((reading.end, reading.repaired), (text.len(), false));
    }

    #[test]
    fn a_cut_object_is_never_completed(value in any_json(), cut in any::<prop::sample::Index>()) {
        let text = json!({ "value": value }).to_string();
        let cut = text.floor_char_boundary(cut.index(text.len()));
        let read = read_value(&text[..cut]);
        let incomplete = matches!(read, Err(Unreadable::Incomplete { .. }));
        prop_assert!(incomplete);
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in r#"[\[\]{}:,'"“”\\/*a-fu0-9 .+-]{0,60}"#) {
        let _ = read_object(&text);
        let mut reader = Reader::new();
        for character in text.chars() {
            if reader.push(character) != Push::More {
                break;
            }
        }
        let _ = reader.finish(1);
    }
}
