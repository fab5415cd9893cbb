use serde_json::{Map, Value as Json, json};

use super::*;
use crate::policy::{Earlier, Label, Labels};
use crate::tool::tests::own_time;
use crate::tool::{Hints, ToolRef};

fn tool() -> ToolRef {
    ToolRef { server: "disk".into(), name: "wipe".into() }
}

fn holds_at(text: &str, arguments: &Json, end: Instant) -> Result<bool, String> {
    let Json::Object(arguments) = arguments else { panic!("arguments are an object") };
    let tool = tool();
    let read = ToolRef { server: "mail".into(), name: "read".into() };
    let earlier = [Earlier {
        tool: read,
        labels: [Label::Private].into_iter().collect(),
        arguments: Arc::new(Map::from_iter([("id".to_owned(), json!(7))])),
        is_done: true,
        is_silent: false,
        has_failed: false,
    }];
    let case = Case {
        model: Some("assistant"),
        key: Some("ci"),
        tool: &tool,
        hints: Hints::default(),
        labels: [Label::Egress].into_iter().collect(),
        arguments,
        earlier: &earlier,
        seen: Labels::default(),
    };
    Condition::compile(text).unwrap_or_else(|mistake| panic!("{text}: {mistake:?}")).holds(&case, end)
}

fn holds(text: &str, arguments: &Json) -> Result<bool, String> {
    holds_at(text, arguments, Instant::now() + Duration::from_secs(60))
}

#[test]
fn conditions_look_at_all_that_is_known_of_a_call() {
    for text in [
        "args.path.startsWith('/etc/')",
        "args.path.matches('^/[a-z]+/')",
        "args.count > 2 && args.count < 4.5",
        "args['nested'].list.exists(x, x == 'b')",
        "args.nested.list.all(x, size(x) == 1)",
        "args.nested.list.map(x, x + x) == ['aa', 'bb']",
        "args.nested.list.filter(x, x != 'a').size() == 1",
        "!has(args.other) && args.none == null",
        "model == 'assistant' && key == 'ci' && server == 'disk' && tool in ['wipe', 'rm']",
        "'egress' in labels && !('private' in labels)",
        "annotations.destructive && annotations.openWorld && !annotations.readOnly && !annotations.idempotent",
        "earlier.exists(c, c.server == 'mail' && c.tool == 'read' && c.done && !c.failed && 'private' in c.labels)",
        "earlier[0].args.id == 7",
        "args.count == 3 ? true : false",
    ] {
        let arguments =
            json!({"path": "/etc/passwd", "count": 3, "nested": {"list": ["a", "b"]}, "none": null});
        assert_eq!(holds(text, &arguments), Ok(true), "{text}");
    }
}

#[test]
fn what_cannot_be_decided_says_why() {
    for (text, why) in [
        ("args.path == 'x'", "No such key: path"),
        ("args.count", "it gives a value of type int"),
        ("args.count > 'x'", "no matching overload"),
        ("args.count / 0 == 1", "Division by zero"),
    ] {
        let error = holds(text, &json!({"count": 3})).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}

/// It is told to the model and to the approver, and logged.
#[test]
fn why_it_cannot_be_decided_has_no_value_of_an_argument_in_it() {
    let secret = "hunter2";
    let arguments =
        json!({"text": secret, "list": [secret], "map": {secret: secret}, "long": 9_007_199_254_740_993_i64});
    for text in [
        "args.text + 1 == 2",
        "args.text - args.text == 1",
        "args.list + args.map == 1",
        "args.text < 1",
        "-args.text == 1",
        "!args.text",
        "args.list < args.map",
        "{'a': 1}[args.text] == 1",
        "args.map[args.list] == 1",
        "args.list[args.text] == 1",
        "int(args.text) == 1",
        "double(args.text) == 1.0",
        "args.long * args.long == 1",
        "args.long / 0 == 1",
        "args.list[args.long] == 1",
        "args.text.size(args.text) == 1",
        "args.text ? true : false",
        "args.text",
        "args.text.nope == 1",
        "args.text in args.text",
        "size(args.long) == 1",
    ] {
        match holds(text, &arguments) {
            Ok(_) => {}
            Err(error) => {
                assert!(!error.contains(secret) && !error.contains("9007199254740993"), "{text}: {error}");
                assert!(!error.is_empty(), "{text}");
            }
        }
    }
}

#[test]
fn a_mistake_has_its_place() {
    for (text, at, why) in [
        ("args.path ==", "", "something is missing at its end"),
        ("arg.path == 'x'", "arg", "there is no variable `arg`"),
        ("server == 'x' && frob(tool)", "", "there is no function `frob`"),
        ("tool.matches('(')", "'('", "the pattern cannot be read"),
        ("tool.matches(server)", "server", "must be a text as it stands"),
        ("annotations.readonly", "", "there is no annotation `readonly`"),
        ("Thing{a: 1} == tool", "", "there are no types"),
        ("y == 1 && args.list.exists(y, y == 1)", "y", "there is no variable `y`"),
    ] {
        let mistake = Condition::compile(text).unwrap_err();
        assert!(mistake.message.contains(why), "{text}: {mistake:?}");
        assert!(text[mistake.span.clone()].contains(at), "{text}: {mistake:?}");
    }
    // the place is of bytes, whatever stands before it
    let text = "tool == 'äöü' && nope";
    assert_eq!(&text[Condition::compile(text).unwrap_err().span], "nope");
}

#[test]
fn what_is_too_large_is_not_compiled() {
    let at_the_limit = format!("tool == '{}'", "x".repeat(MAX_TEXT - 10));
    assert_eq!(at_the_limit.len(), MAX_TEXT);
    assert!(Condition::compile(&at_the_limit).is_ok());
    let deep = |depth: usize| format!("{}1{} == 1", "(".repeat(depth), ")".repeat(depth));
    assert!(Condition::compile(&deep(MAX_DEPTH)).is_ok());
    for (text, why) in [
        (format!("{at_the_limit} "), "at most 2000"),
        (deep(MAX_DEPTH + 1), "more than 24 levels"),
        (deep(900), "more than 24 levels"),
        (format!("{}true", "!".repeat(1900)), "more than 24 levels"),
        (format!("{}1 == 1", "- ".repeat(900)), "more than 24 levels"),
        (format!("1{} == 1", "+1".repeat(900)), "more than 40 levels"),
        (format!("args{} == 1", ".a".repeat(900)), "more than 40 levels"),
        (format!("{}1", "true?1:".repeat(200)), "more than 24 levels"),
        (vec!["tool == 'x'"; 120].join(" || "), "more than 256 parts"),
        ("[1].map(a, a).map(b, b).map(c, c).map(d, d).size() == 1".to_owned(), "more than 3 of"),
    ] {
        let mistake = Condition::compile(&text).unwrap_err();
        assert!(mistake.message.contains(why), "{mistake:?}");
    }
}

#[test]
fn what_costs_too_much_is_not_decided() {
    let began = own_time();
    let numbers: Vec<usize> = (0..3000).collect();
    let long = "x".repeat(100_000);
    for (text, arguments, why) in [
        ("args.list.all(x, args.list.all(y, x + y >= 0))", json!({"list": numbers}), "more than 10000 steps"),
        ("args.s.size() > 0", json!({"s": "x".repeat(300_000)}), "more than 262144 bytes"),
        ("args.list.size() > 0", json!({"list": (0..20_000).collect::<Vec<usize>>()}), "10000 values"),
        ("(args.s + args.s + args.s).size() > 0", json!({"s": long}), "the result is too large"),
        (
            "[args.s].map(a, a + a + a + a).map(b, b + b + b + b).size() > 0",
            json!({"s": "x".repeat(50_000)}),
            "the result is too large",
        ),
    ] {
        let error = holds(text, &arguments).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
    let past = Instant::now() - Duration::from_millis(1);
    assert!(holds_at("true", &json!({}), past).unwrap_err().contains("longer than"));
    assert!(own_time() - began < Duration::from_secs(20), "{:?}", own_time() - began);
}

#[test]
fn an_error_does_not_repeat_a_long_argument() {
    let error = holds("args.s > 3", &json!({"s": "secret ".repeat(1000)})).unwrap_err();
    assert!(error.len() < 400, "{error}");
}

#[test]
fn what_a_loop_searches_and_puts_together_has_a_bound_in_all() {
    let list: Vec<usize> = (0..5_000).collect();
    let arguments = json!({"list": list, "body": "x".repeat(150_000)});
    let began = Instant::now();
    let end = began + TIME;
    let error =
        holds_at("args.list.exists(i, args.body.matches('[w-x]{3}[^x]'))", &arguments, end).unwrap_err();
    assert!(error.contains("more than 100ms"), "{error}");
    let error = holds("args.list.map(i, args.body + 'x').size() == 1", &arguments).unwrap_err();
    assert!(error.contains("too large"), "{error}");
    assert_eq!(holds("(args.body + 'x').size() == 150001", &arguments), Ok(true));
}
