use super::*;

fn ask(schema: &Value) -> Reply {
    answer(&json!({"message": "well?", "requestedSchema": schema}))
}

#[test]
fn defaults_of_every_type_are_taken_when_no_required_field_is_left() {
    let reply = ask(&json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "hay"},
            "count": {"type": "integer", "default": 3},
            "share": {"type": "number", "default": 0.5},
            "sure": {"type": "boolean", "default": false},
            "kinds": {"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a"]},
            "note": {"type": "string"},
        },
        "required": ["name", "sure"],
    }));
    let expected =
        json!({"name": "hay", "count": 3, "share": 0.5, "sure": false, "kinds": ["a"]}).as_object().cloned();
    assert_eq!(reply, Reply::Accept(expected.unwrap()));
    assert_eq!(reply.to_json()["action"], "accept");
}

#[test]
fn a_required_field_without_a_default_declines_the_whole() {
    let properties = json!({"name": {"type": "string"}, "sure": {"type": "boolean", "default": true}});
    assert_eq!(ask(&json!({"properties": properties, "required": ["name"]})), Reply::Decline);
}

#[test]
fn what_only_a_person_can_decide_is_declined() {
    assert_eq!(ask(&json!({"type": "object", "properties": {}})), Reply::Decline);
    assert_eq!(ask(&json!({"properties": {"note": {"type": "string", "default": null}}})), Reply::Decline);
    assert_eq!(answer(&json!({})), Reply::Decline);
    let url = json!({"mode": "url", "url": "https://x.example", "requestedSchema": {
        "properties": {"a": {"default": 1}}
    }});
    assert_eq!(answer(&url).to_json(), json!({"action": "decline"}));
}
