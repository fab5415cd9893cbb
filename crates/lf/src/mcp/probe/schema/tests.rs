use super::*;

#[test]
fn a_definition_without_fault_has_no_problems() {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let tool = json!({"name": "read_file", "description": "Reads a file", "inputSchema": schema});
    assert_eq!(problems(&tool), Vec::<String>::new());
}

#[test]
fn each_problem_of_a_definition_is_told_with_its_place() {
    let schema = json!({
        "type": "object",
        "properties": {
            "list": {"type": "array"},
            "any": true,
            "far": {"$ref": "https://example.com/schema.json"},
            "deep": {"type": "object", "properties": {"inner": {"type": "array"}}},
        },
    });
    let found = problems(&json!({"name": "näme", "description": " ", "inputSchema": schema}));
    for part in [
        "its name",
        "no description",
        "inputSchema.list is an array without `items`",
        "inputSchema.any is a bare",
        "inputSchema.far refers to `https://example.com/schema.json`",
        "inputSchema.deep.inner is an array",
        "cannot be used to check arguments",
    ] {
        assert!(found.iter().any(|problem| problem.contains(part)), "{part}: {found:#?}");
    }
    assert!(problems(&json!({"name": "a", "inputSchema": []})).iter().any(|it| it.contains("not an object")));
}

#[test]
fn the_least_arguments_fit_the_schema_that_they_are_made_from() {
    let schema = json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 6},
            "place": {"type": "string", "format": "uri"},
            "count": {"type": "integer", "minimum": 3},
            "kind": {"enum": ["one", "two"]},
            "inner": {"$ref": "#/$defs/inner"},
            "either": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "list": {"type": "array", "items": {"type": "number"}, "minItems": 2},
            "preset": {"type": "string", "default": "as it is"},
            "left_out": {"type": "string"},
        },
        "required": ["text", "place", "count", "kind", "inner", "either", "list"],
        "$defs": {"inner": {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}},
    });
    let arguments = least(&schema);
    assert_eq!(
        Value::Object(arguments.clone()),
        json!({
            "text": "textxx",
            "place": "https://example.com/",
            "count": 3,
            "kind": "one",
            "inner": {"yes": true},
            "either": true,
            "list": [1.0, 1.0],
            "preset": "as it is",
        })
    );
    let id = ToolRef { server: "s".into(), name: "t".into() };
    assert_eq!(Tool::new(id, None, Arc::new(schema)).problems(&arguments), Vec::<String>::new());
}

#[test]
fn a_schema_that_refers_to_itself_ends_somewhere() {
    let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]});
    assert!(least(&schema).contains_key("next"));
    assert_eq!(least(&json!(true)), Map::new());
}
