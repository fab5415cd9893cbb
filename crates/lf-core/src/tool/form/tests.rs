use serde_json::json;

use super::*;

fn form(properties: impl Into<Value>, required: &[&str]) -> Form {
    let properties = properties.into();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    Form::read(&json!({"message": "m", "requestedSchema": schema})).expect("a form")
}

fn field(schema: impl Into<Value>) -> Field {
    let schema = schema.into();
    form(json!({"f": schema}), &[]).fields.remove(0)
}

#[test]
fn the_defaults_are_an_answer_only_when_every_required_field_has_one() {
    let properties = json!({
        "name": {"type": "string", "default": "Ada"},
        "age": {"type": "integer", "default": 30},
        "note": {"type": "string"},
    });
    let expected = json!({"name": "Ada", "age": 30});
    assert_eq!(form(properties.clone(), &["name"]).defaults().map(Value::Object), Some(expected));
    assert_eq!(form(properties, &["name", "note"]).defaults(), None);
    assert_eq!(form(json!({"sure": {"type": "boolean"}}), &[]).defaults(), None);
    assert_eq!(form(json!({}), &[]).defaults(), None);
}

#[test]
fn a_default_that_does_not_fit_its_own_field_is_none() {
    assert_eq!(field(json!({"type": "integer", "default": "many"})).default, None);
    assert_eq!(field(json!({"type": "string", "enum": ["a"], "default": "b"})).default, None);
    assert_eq!(field(json!({"type": "string", "default": null})).default, None);
    assert_eq!(field(json!({"type": "number", "maximum": 1, "default": 2.5})).default, None);
    let many = json!({"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a", "b"]});
    assert_eq!(field(many).default, Some(json!(["a", "b"])));
}

#[test]
fn what_is_typed_is_read_as_the_field_says() {
    let cases = [
        (json!({"type": "string"}), " two words ", Ok(json!(" two words "))),
        (json!({"type": "string", "minLength": 3}), "ab", Err(())),
        (json!({"type": "string", "format": "email"}), "ada@example.com", Ok(json!("ada@example.com"))),
        (json!({"type": "string", "format": "email"}), "ada", Err(())),
        (json!({"type": "string", "format": "date"}), "2026-02-30", Err(())),
        (json!({"type": "string", "format": "uri"}), "https://a.example/x", Ok(json!("https://a.example/x"))),
        (json!({"type": "integer", "minimum": 1, "maximum": 9}), " 7 ", Ok(json!(7))),
        (json!({"type": "integer"}), "7.5", Err(())),
        (json!({"type": "integer", "maximum": 9}), "10", Err(())),
        (json!({"type": "number"}), "7.5", Ok(json!(7.5))),
        (json!({"type": "number"}), "NaN", Err(())),
        (json!({"type": "boolean"}), "Yes", Ok(json!(true))),
        (json!({"type": "boolean"}), "perhaps", Err(())),
        (json!({"type": "string", "enum": ["red", "2"]}), "2", Ok(json!("2"))),
        (json!({"type": "string", "enum": ["red", "blue"]}), "2", Ok(json!("blue"))),
        (json!({"type": "string", "enum": ["r", "b"], "enumNames": ["Red", "Blue"]}), "blue", Ok(json!("b"))),
        (json!({"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}), "Red", Ok(json!("r"))),
        (json!({"type": "string", "enum": ["red"]}), "0", Err(())),
        (
            json!({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}}),
            "A, 2",
            Ok(json!(["a", "b"])),
        ),
        (json!({"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["a"]}}), "", Err(())),
        (json!({"type": "array", "maxItems": 1, "items": {"enum": ["a", "b"]}}), "a,b", Err(())),
    ];
    for (schema, typed, expected) in cases {
        let read = field(schema.clone()).parse(typed);
        assert_eq!(read.map_err(|_| ()), expected, "{schema} {typed}");
    }
}

#[test]
fn what_is_no_form_of_the_protocol_is_none() {
    let read = |properties: Value| {
        Form::read(&json!({"requestedSchema": {"type": "object", "properties": properties}}))
    };
    assert_eq!(read(json!({"a": {"type": "object", "properties": {}}})), None);
    assert_eq!(read(json!({"a": {"type": "array", "items": {"type": "string"}}})), None);
    assert_eq!(read(json!({"a": true})), None);
    assert_eq!(Form::read(&json!({"mode": "url", "url": "https://a.example", "message": "m"})), None);
    assert_eq!(Form::read(&json!({"message": "m"})), None);
    let many: Map<String, Value> = (0..65).map(|at| (at.to_string(), json!({"type": "string"}))).collect();
    assert_eq!(read(many.into()), None);
}

#[test]
fn a_pattern_is_never_run() {
    let field =
        field(json!({"type": "string", "pattern": "^(a+)+$", "default": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"}));
    assert!(field.default.is_some());
}
