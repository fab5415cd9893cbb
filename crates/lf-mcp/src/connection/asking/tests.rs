use serde_json::json;

use super::*;

fn decided(policy: Elicitation, params: &Value) -> Value {
    match by_policy(policy, Question::ELICITATION, params) {
        Reply::Result(result) => result,
        other => panic!("{other:?}"),
    }
}

fn form(properties: &Value, required: &[&str]) -> Value {
    json!({"message": "well?", "requestedSchema": {
        "type": "object", "properties": properties, "required": required,
    }})
}

#[test]
fn defaults_are_taken_when_no_required_field_is_left_and_the_file_does_not_say_otherwise() {
    let asked = form(
        &json!({
            "name": {"type": "string", "default": "hay"},
            "kinds": {"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a"]},
            "note": {"type": "string"},
        }),
        &["name"],
    );
    let taken = json!({"action": "accept", "content": {"name": "hay", "kinds": ["a"]}});
    assert_eq!(decided(Elicitation::Defaults, &asked), taken);
    assert_eq!(decided(Elicitation::Decline, &asked), json!({"action": "decline"}));
}

#[test]
fn what_only_a_person_can_decide_is_declined() {
    let declined = json!({"action": "decline"});
    let some = json!({"name": {"type": "string"}, "sure": {"type": "boolean", "default": true}});
    assert_eq!(decided(Elicitation::Defaults, &form(&some, &["name"])), declined);
    assert_eq!(decided(Elicitation::Defaults, &form(&json!({}), &[])), declined);
    assert_eq!(decided(Elicitation::Defaults, &json!({})), declined);
    let url = json!({"mode": "url", "url": "https://x.example", "message": "log in"});
    assert_eq!(decided(Elicitation::Defaults, &url), declined);
}

#[test]
fn sampling_and_roots_are_refused_in_words() {
    for (method, said) in [("sampling/createMessage", "sampling"), ("roots/list", "roots"), ("x/y", "`x/y`")]
    {
        let Reply::Refused { code, message } = by_policy(Elicitation::Defaults, method, &Value::Null) else {
            panic!("{method}")
        };
        assert_eq!(code, -32_601);
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn only_web_addresses_are_shown_to_a_person() {
    let url = |url: &str| is_sound(&json!({"mode": "url", "url": url, "message": "m"}));
    assert!(url("https://a.example/login") && url("http://127.0.0.1:9/x"));
    assert!(!url("javascript:alert(1)") && !url("file:///etc/passwd") && !url(""));
}

#[test]
fn what_is_told_names_the_fields_and_not_what_was_filled_in() {
    let params = form(&json!({"shelf": {"type": "string"}, "pass\u{1b}[2J": {"type": "string"}}), &[]);
    let question = Question {
        server: "books".into(),
        tool: Some("add".into()),
        method: Question::ELICITATION.to_owned(),
        params,
    };
    let reply = Reply::Result(json!({"action": "accept", "content": {"shelf": "secret"}}));
    let told = told(&question, outcome(&reply), "by whoever was asked");
    assert!(told.starts_with("MCP server `books` during `add` asks \"well?\" (shelf, pass"), "{told}");
    assert!(told.ends_with("accepted with values, by whoever was asked"), "{told}");
    assert!(!told.contains("secret") && !told.contains('\u{1b}'), "{told}");
}

#[tokio::test]
async fn a_question_finds_its_call_or_nobody() {
    let signals = Arc::new(Signals::default());
    let number = RequestId::Number;
    assert_eq!(signals.questions.ask(None, "m", &Value::Null).await, None);
    let (one, other) = (|_: lf_core::tool::ToolProgress| {}, |_: lf_core::tool::ToolProgress| {});
    let mut first = signals.attend(&one);
    first.sent(&number(1));
    let asking = async {
        let asked = first.waiting.recv().await.expect("the only call is asked");
        asked.reply.send(Reply::Result(json!(1))).expect("it waits");
    };
    let (reply, ()) = tokio::join!(signals.questions.ask(None, "m", &Value::Null), asking);
    assert_eq!(reply, Some(Reply::Result(json!(1))));
    // two calls of unlike parties: only the transport can say which is meant
    let second = signals.attend(&other);
    second.sent(&number(2));
    assert_eq!(signals.questions.ask(None, "m", &Value::Null).await, Some(Reply::Nobody));
    assert_eq!(signals.questions.ask(Some(&number(9)), "m", &Value::Null).await, None);
    let named = number(1);
    let asking = async {
        let asked = first.waiting.recv().await.expect("the named call is asked");
        drop(asked.reply);
    };
    let (reply, ()) = tokio::join!(signals.questions.ask(Some(&named), "m", &Value::Null), asking);
    assert_eq!(reply, Some(Reply::Nobody));
    drop(first);
    drop(second);
    assert_eq!(signals.questions.ask(None, "m", &Value::Null).await, None);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_answer_is_waited_for_no_longer_than_ten_minutes() {
    struct Nobody;
    impl Attendant for Nobody {
        fn progress(&self, _: lf_core::tool::ToolProgress) {}
        fn ask(&self, _: Question) -> lf_core::tool::BoxFuture<'_, Reply> {
            Box::pin(std::future::pending())
        }
    }
    let asked = async |method: &str| {
        let (method, params) = (method.to_owned(), Value::Null);
        ask_in_time(&Nobody, Question { server: "s".into(), tool: None, method, params }).await
    };
    let begun = Instant::now();
    assert_eq!(asked(Question::ELICITATION).await, Reply::Result(json!({"action": "cancel"})));
    assert!(matches!(asked("roots/list").await, Reply::Refused { .. }));
    assert_eq!(begun.elapsed(), ANSWER_LIMIT * 2);
}
