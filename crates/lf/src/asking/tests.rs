use super::*;

fn field(schema: &Value, required: bool) -> Field {
    let names: &[&str] = if required { &["f"] } else { &[] };
    let schema = json!({"type": "object", "properties": {"f": schema}, "required": names});
    let mut form = Form::read(&json!({"message": "m", "requestedSchema": schema})).expect("a form");
    form.fields.remove(0)
}

#[test]
fn a_field_is_shown_with_its_kind_its_default_and_its_choices() {
    let plain = field(&json!({"type": "string", "format": "email", "title": "Your\u{1b}[2J address"}), true);
    assert_eq!(described(&plain), "  Your address (text, email)");
    let count = field(&json!({"type": "integer", "default": 3, "description": "How\nmany"}), true);
    assert_eq!(described(&count), "  f (whole number, default 3)\n    How\nmany");
    let sure = field(&json!({"type": "boolean"}), false);
    assert_eq!(described(&sure), "  f (yes or no, may be left out)");
    let colour = json!({"type": "string", "default": "r", "oneOf": [
        {"const": "r", "title": "Red"}, {"const": "blue", "title": "blue"},
    ]});
    assert_eq!(described(&field(&colour, true)), "  f (one of, default r)\n    1 Red (r)\n    2 blue");
    let many: Vec<String> = (0..60).map(|at| at.to_string()).collect();
    let many = field(&json!({"type": "array", "items": {"enum": many}}), true);
    assert!(described(&many).ends_with("\n    50 49\n    … and 10 more"));
}

#[tokio::test]
async fn only_forms_and_urls_are_asked_of_a_person() {
    let (person, mut questions) = AtTheTerminal::new();
    let question = |method: &str| Question {
        server: "s".into(),
        tool: None,
        method: method.to_owned(),
        params: Value::Null,
    };
    assert_eq!(person.ask(question("sampling/createMessage")).await, Reply::Nobody);
    let answering = async {
        let (_, reply) = questions.recv().await.expect("it is asked");
        reply.send(Reply::Result(json!({"action": "cancel"}))).expect("it is waited for");
    };
    let (reply, ()) = tokio::join!(person.ask(question(Question::ELICITATION)), answering);
    assert_eq!(reply, Reply::Result(json!({"action": "cancel"})));
    // who asks after the conversation is over finds nobody
    drop(questions);
    assert_eq!(person.ask(question(Question::ELICITATION)).await, Reply::Nobody);
}
