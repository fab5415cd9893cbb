use std::time::Duration;

use nix::time::ClockId;
use serde_json::json;

use super::*;

fn problems(schema: Value, arguments: &Value) -> Vec<String> {
    let id = ToolRef { server: "s".into(), name: "t".into() };
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    Tool::new(id, None, Arc::new(schema)).problems(&arguments)
}

#[test]
fn a_schema_that_refers_to_itself_is_checked_as_deep_as_the_arguments_are() {
    let schema = json!({
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"below": {"$ref": "#/$defs/node"}}}},
    });
    assert!(problems(schema.clone(), &json!({"tree": {"below": {"below": {}}}})).is_empty());
    assert_eq!(problems(schema, &json!({"tree": {"below": {"below": 7}}})).len(), 1);
    let endless =
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
    let _ = problems(endless, &json!({"x": 1}));
}

#[test]
fn a_schema_that_lies_elsewhere_or_is_none_checks_nothing() {
    for schema in [
        json!({"type": "object", "$ref": "http://127.0.0.1:9/schema"}),
        json!({"properties": {"a": {"$ref": "https://schema.example/a.json#/x"}}}),
        json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}),
        json!({"type": "objekt"}),
        json!({"properties": []}),
        json!({"properties": {"a": {"pattern": "("}}}),
    ] {
        let started = own_time();
        assert_eq!(problems(schema.clone(), &json!({"a": 1})), Vec::<String>::new(), "{schema}");
        assert!(own_time() - started < Duration::from_secs(2), "{schema}");
    }
}

/// For which this thread had a processor: how busy the machine is otherwise does not count.
pub(crate) fn own_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap().into()
}

#[test]
fn no_pattern_takes_for_ever() {
    let long = format!("{}!", "a".repeat(5_000));
    for pattern in [
        "^(a+)+$",
        "^(a|aa)+$",
        "^(?=(a+)+$)x",
        "^(?:(a+)+)\\1$",
        "(a*)*b",
        "^((a{1,50}){1,50}){1,50}$",
        "(?<=(a+)+)b",
    ] {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}});
        let started = own_time();
        let _ = problems(schema, &json!({"a": long}));
        let took = own_time() - started;
        assert!(took < Duration::from_secs(10), "{pattern} took {took:?}");
    }
    // what is wrong is told, and not with all that was sent
    let told = problems(json!({"properties": {"a": {"pattern": "^b"}}}), &json!({"a": long}));
    assert!(told.len() == 1 && told[0].len() < 600, "{told:?}");
}
