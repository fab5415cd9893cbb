use std::sync::Arc;

use serde_json::json;

use super::*;

fn spec(schema: Value) -> ToolSpec {
    ToolSpec { name: "t".to_owned(), description: None, schema: Arc::new(schema), rest: Map::new() }
}

fn openai(schema: Value) -> String {
    tool_for(SchemaTarget::Openai, &spec(schema))["parameters"].to_string()
}

fn gemini(schema: Value) -> String {
    tool_for(SchemaTarget::Gemini, &spec(schema))["parameters"].to_string()
}

#[test]
fn definitions_and_unions_below_the_root_arrive_intact() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"n": {"oneOf": [{"type": "string"}, {"const": 3}]}},
        "properties": {"a": {"$ref": "#/$defs/n"}, "oneOf": {"allOf": [{"type": "integer"}]}},
        "required": ["a"],
        "additionalProperties": false,
    });
    assert_eq!(openai(schema.clone()), schema.to_string());
}

#[test]
fn the_root_becomes_an_object_with_properties() {
    for schema in [json!({}), json!(true), Value::Null, json!({"type": "string", "enum": ["a"]})] {
        assert_eq!(openai(schema), r#"{"type":"object","properties":{}}"#);
    }
    assert_eq!(
        openai(
            json!({"type": ["object", "null"], "properties": {"l": {"type": "array", "required": null}}, "required": null})
        ),
        r#"{"type":"object","properties":{"l":{"type":"array","items":{}}}}"#
    );
}

#[test]
fn unions_and_references_at_the_root_are_flattened() {
    let schema = json!({
        "$defs": {"b": {"properties": {"kind": {"const": "b"}, "y": {"type": "integer"}}, "required": ["kind", "y"]}},
        "oneOf": [{"properties": {"kind": {"const": "a"}}, "required": ["kind"]}, {"$ref": "#/$defs/b"}],
    });
    insta::assert_snapshot!(openai(schema), @r#"{"$defs":{"b":{"properties":{"kind":{"const":"b"},"y":{"type":"integer"}},"required":["kind","y"]}},"properties":{"kind":{"anyOf":[{"const":"a"},{"const":"b"}]},"y":{"type":"integer"}},"required":["kind"],"type":"object"}"#);
    insta::assert_snapshot!(openai(json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "allOf": [{"$ref": "#/$defs/a"}], "properties": {"x": {}}}}})), @r##"{"$defs":{"a":{"type":"object","allOf":[{"$ref":"#/$defs/a"}],"properties":{"x":{}}}},"properties":{"x":{}},"type":"object"}"##);
}

#[test]
fn strict_mode_closes_objects_and_makes_optional_properties_nullable() {
    let mut spec = spec(json!({"type": "object", "required": ["a"], "properties": {
        "a": {"type": "object", "properties": {"b": {"enum": ["x"]}}},
        "c": {"type": "integer", "default": 1},
    }}));
    spec.rest.insert("strict".to_owned(), true.into());
    let tool = tool_for(SchemaTarget::Openai, &spec);
    insta::assert_snapshot!(tool, @r#"{"name":"t","parameters":{"type":"object","required":["a","c"],"properties":{"a":{"type":"object","properties":{"b":{"enum":["x",null]}},"required":["b"],"additionalProperties":false},"c":{"type":["integer","null"]}},"additionalProperties":false},"strict":true}"#);
    let closed = spec_of(&tool["parameters"]);
    assert_eq!(tool_for(SchemaTarget::Openai, &closed)["parameters"], tool["parameters"]);
}

fn spec_of(schema: &Value) -> ToolSpec {
    let mut spec = spec(schema.clone());
    spec.rest.insert("strict".to_owned(), true.into());
    spec
}

#[test]
fn gemini_gets_its_subset() {
    let schema = json!({
        "$schema": "x", "type": "object", "additionalProperties": false,
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"const": "k"}}}},
        "properties": {
            "a": {"type": ["string", "null"], "minLength": 1, "format": "uri"},
            "b": {"oneOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}], "description": "d"},
            "c": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"enum": [1, 2]}}]},
            "d": {"allOf": [{"$ref": "#/$defs/node"}, {"required": ["v", "ghost"]}]},
            "e": {"type": "object", "properties": {}},
            "f": {"type": "array"},
            "g": {},
            "$ref": {"type": "boolean"},
        },
        "required": ["a", "ghost"],
    });
    insta::assert_snapshot!(gemini(schema), @r##"{"type":"object","properties":{"a":{"type":"string","minLength":1,"nullable":true},"b":{"type":"integer","minimum":1,"nullable":true,"description":"d"},"c":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"integer","description":"one of: 1, 2"}}]},"d":{"type":"object","properties":{"next":{"type":"object","properties":{"next":{"type":"object"},"v":{"type":"string","enum":["k"]}}},"v":{"type":"string","enum":["k"]}},"required":["v"]},"e":{"type":"object"},"f":{"type":"array","items":{"type":"string"}},"g":{"type":"string"},"$ref":{"type":"boolean"}},"required":["a"]}"##);
    assert_eq!(gemini(json!({})), r#"{"type":"object"}"#);
}

#[test]
fn names_fit_their_target() {
    assert_eq!(SchemaTarget::Openai.name("cli.dataset upload"), "cli_dataset_upload");
    assert_eq!(SchemaTarget::Gemini.name("9bad name!"), "_9bad_name_");
    assert!(SchemaTarget::Gemini.name(&"9".repeat(64)).len() <= 64);
}

#[test]
fn what_is_no_schema_costs_no_other_tool_the_request() {
    let schema = json!({
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": "objekt", "description": 5, "minLength": -1, "pattern": ["x"]},
            "b": {"$ref": "https://schema.example/b.json"},
            "c": {"$ref": "#/$defs/missing"},
            "d": {"$ref": "#/$defs/node"},
            "e": "a word",
            "f": {"enum": [], "required": true, "items": 3, "anyOf": []},
            "g": {"type": ["string", "nul"]},
        },
        "$defs": {"node": {"type": "object", "properties": {"below": {"$ref": "#/$defs/node"}}}},
    });
    let expected = json!({
        "type": "object",
        "required": ["a"],
        "properties": {"a": {}, "b": {}, "c": {}, "d": {"$ref": "#/$defs/node"}, "e": {}, "f": {}, "g": {}},
        "$defs": {"node": {"type": "object", "properties": {"below": {"$ref": "#/$defs/node"}}}},
    });
    assert_eq!(openai(schema.clone()), expected.to_string());
    for target in [SchemaTarget::Openai, SchemaTarget::Anthropic, SchemaTarget::Gemini] {
        let told = tool_for(target, &spec(schema.clone())).to_string();
        assert!(!told.contains("schema.example") && !told.contains("objekt"), "{told}");
    }
    assert!(!ollama_parameters(&schema).to_string().contains("schema.example"));
}

#[test]
fn a_reference_is_written_as_a_fragment_of_a_uri() {
    let schema = json!({
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a%20b"}, "c": {"$ref": "#/$defs/c~1d%C3%A9"}, "e": {"$ref": "#/$defs/50%"}},
        "$defs": {"a b": {"type": "integer"}, "c/dé": {"type": "string"}, "50%": {"type": "number"}},
    });
    assert_eq!(openai(schema.clone()), schema.to_string());
    let told: Value = serde_json::from_str(&gemini(schema)).expect("JSON");
    let kinds = ["a", "c", "e"].map(|name| told["properties"][name]["type"].clone());
    assert_eq!(kinds, ["integer", "string", "number"]);
    assert_eq!(
        openai(json!({"properties": {"a": {"$ref": "#/$defs/%ZZ%"}}})),
        openai(json!({"properties": {"a": {}}}))
    );
}

#[test]
fn what_older_drafts_of_json_schema_wrote_is_written_anew() {
    let schema = json!({"type": "object", "properties": {
        "above": {"type": "integer", "minimum": 0, "exclusiveMinimum": true},
        "below": {"type": "number", "maximum": 1, "exclusiveMaximum": true, "minimum": 0, "exclusiveMinimum": false},
        "bare": {"type": "number", "exclusiveMinimum": true},
        "pair": {"type": "array", "items": [{"type": "string"}, {"type": "array"}], "additionalItems": false},
        "open": {"type": "array", "items": [{"type": "string"}]},
        "empty": {"type": "array", "items": []},
        "row": {"type": ["array", "null"], "prefixItems": [{"type": "integer"}]},
    }});
    let expected = json!({"type": "object", "properties": {
        "above": {"type": "integer", "exclusiveMinimum": 0},
        "below": {"type": "number", "exclusiveMaximum": 1, "minimum": 0},
        "bare": {"type": "number"},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "array", "items": {}}], "items": false},
        "open": {"type": "array", "prefixItems": [{"type": "string"}], "items": {}},
        "empty": {"type": "array", "items": {}},
        "row": {"type": ["array", "null"], "prefixItems": [{"type": "integer"}], "items": {}},
    }});
    for target in [SchemaTarget::Openai, SchemaTarget::Anthropic] {
        let told = tool_for(target, &spec(schema.clone()));
        let told = told.get("parameters").or(told.get("input_schema"));
        assert_eq!(told, Some(&expected), "{target:?}");
    }
}

#[test]
fn keywords_of_schemas_hold_schemas() {
    let schema = json!({
        "type": "object",
        "additionalProperties": "no",
        "properties": {
            "a": {"type": "array", "uniqueItems": "yes", "contains": 3, "items": {"not": [], "examples": "x"}},
            "b": {"if": "x", "then": 1, "else": null, "propertyNames": [], "dependentSchemas": {"c": 5}},
            "d": {"type": "array", "prefixItems": ["word"], "items": "any", "deprecated": "soon"},
            "e": {"type": "object", "additionalProperties": false, "patternProperties": {"^x": "y"}},
        },
    });
    let expected = json!({
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {}},
            "b": {"dependentSchemas": {"c": {}}},
            "d": {"type": "array", "items": {}},
            "e": {"type": "object", "additionalProperties": false, "patternProperties": {"^x": {}}},
        },
    });
    assert_eq!(openai(schema), expected.to_string());
}
