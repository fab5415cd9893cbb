//! What the arguments are.

use super::*;

#[test]
fn a_value_is_typed_by_its_tool() {
    let value = |key: &str, text: &str| {
        let written = format!(
            "<tool_call><function=search><parameter={key}>\n{text}\n</parameter></function></tool_call>"
        );
        let pieces = read("qwen3_coder_xml", &written);
        let [Piece::Call(call)] = pieces.as_slice() else { panic!("{pieces:?}") };
        call.arguments.value().unwrap()[key].clone()
    };
    for (key, written, expected) in [
        ("query", "42", json!("42")),
        ("query", "null", json!("null")),
        ("query", "\n two\n", json!("\n two\n")),
        ("site", "null", json!(null)),
        ("site", "a.org", json!("a.org")),
        ("tags", "[\"a\", 1]", json!(["a", 1])),
        ("tags", "['a', True]", json!(["a", true])),
        ("tags", "no list", json!("no list")),
        ("filter", "{\"max\": 1}", json!({"max": 1})),
        ("size", "7", json!(7)),
        ("either", "7", json!(7)),
        ("either", "seven", json!("seven")),
        ("free", "7", json!("7")),
        ("unknown", "true", json!("true")),
    ] {
        assert_eq!(value(key, written), expected, "{key}: {written}");
    }
    let numbers =
        "<function=weather><parameter=days>3</parameter><parameter=exact>True</parameter></function>";
    gives("qwen3_coder_xml", numbers, &[r#"weather {"days":3,"exact":true}"#], "");
    let typed = "<｜DSML｜invoke name=\"search\"><｜DSML｜parameter name=\"query\" string=\"true\">7</｜DSML｜parameter><｜DSML｜parameter name=\"free\" string=\"false\">{\"a\": [1, null]}</｜DSML｜parameter></｜DSML｜invoke>";
    gives("deepseek", typed, &[r#"search {"query":"7","free":{"a":[1,null]}}"#], "");
    let typed = "<|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"number\"<|sep|>1.5<|close|>argument<|sep|><|open|>argument key=\"b&quot;&amp;\" type=\"object\"<|sep|>{\"x\": false}<|close|>argument<|sep|><|open|>argument key=\"c\" type=\"null\"<|sep|>null<|close|>argument<|sep|><|close|>call<|sep|>";
    gives("kimi_k3", typed, &[r#"f {"a":1.5,"b\"&":{"x":false},"c":null}"#], "");
    gives(
        "gemma4",
        "<|tool_call>call:weather{city:7,days:<|\"|>2<|\"|>,free:<|\"|>2<|\"|>,x:3,y:true,z:plain}<tool_call|>",
        &[r#"weather {"city":"7","days":2,"free":"2","x":3,"y":true,"z":"plain"}"#],
        "",
    );
    gives(
        "gemma4",
        "<|tool_call>call:search{tags:[<|\"|>a, b<|\"|>,2],filter:{max:1,note:<|\"|>}<|\"|>}}<tool_call|>",
        &[r#"search {"tags":["a, b",2],"filter":{"max":1,"note":"}"}}"#],
        "",
    );
    let nested = "]<]minimax[>[<invoke name=\"search\">]<]minimax[>[<filter>]<]minimax[>[<max>3]<]minimax[>[</max>]<]minimax[>[<note>3]<]minimax[>[</note>]<]minimax[>[</filter>]<]minimax[>[<tags>]<]minimax[>[<item>a]<]minimax[>[</item>]<]minimax[>[<item>b]<]minimax[>[</item>]<]minimax[>[</tags>]<]minimax[>[</invoke>";
    gives("minimax_m3", nested, &[r#"search {"filter":{"max":3,"note":"3"},"tags":["a","b"]}"#], "");
}

#[test]
fn marks_inside_a_value_are_data() {
    let code = "if a < b:\n    print('</function>', \"</tool_call>\")";
    let written = format!(
        "<tool_call>\n<function=run>\n<parameter=code>\n{code}\n</parameter>\n</function>\n</tool_call>"
    );
    gives("qwen3_coder_xml", &written, &[&format!("run {}", json!({"code": code}))], "");
    let code = "x = '</invoke>' + \"<b>\"";
    let written = format!("<invoke name=\"run\"><parameter name=\"code\">{code}</parameter></invoke> ok");
    gives("minimax_m2", &written, &[&format!("run {}", json!({"code": code}))], "ok");
    gives("pythonic", "[run(code=\"print(')]', [1])\")]", &[r#"run {"code":"print(')]', [1])"}"#], "");
    gives(
        "mistral",
        "[TOOL_CALLS]run[ARGS]{\"code\": \"[TOOL_CALLS]}\"}",
        &[r#"run {"code":"[TOOL_CALLS]}"}"#],
        "",
    );
    // a call inside another's value is none
    let inner = "<|tool_call_begin|>functions.list:0";
    let written = format!(
        "<|tool_call_begin|>functions.run:0<|tool_call_argument_begin|>{{\"code\": \"{inner}\"}}<|tool_call_end|>"
    );
    gives("kimi_k2", &written, &[&format!("run {{\"code\":\"{inner}\"}}")], "");
}

#[test]
fn a_list_of_calls_may_hold_literals_of_python_and_of_json() {
    for (written, expected) in [
        ("[f(a=1, b=-2.5, c=1_000, d=.5)]", r#"f {"a":1,"b":-2.5,"c":1000,"d":0.5}"#),
        ("[f(a=True, b=false, c=None, d=null)]", r#"f {"a":true,"b":false,"c":null,"d":null}"#),
        ("[f(a=[1, 'x', (2, 3)], b={'k': {\"l\": []}})]", r#"f {"a":[1,"x",[2,3]],"b":{"k":{"l":[]}}}"#),
        (
            r#"[f(a="q\"uo\te\n", b='it\'s', c="\u00e9\x41")]"#,
            "f {\"a\":\"q\\\"uo\\te\\n\",\"b\":\"it's\",\"c\":\"éA\"}",
        ),
        ("[f(a='''three\n'quotes' ''', b=\"x\" \"y\")]", r#"f {"a":"three\n'quotes' ","b":"xy"}"#),
        ("[a.b-c_d(x = 1,)]", r#"a.b-c_d {"x":1}"#),
        ("[ f( ) ]", "f {}"),
        (r"[f(a=r'\d+')]", r#"f {"a":"\\d+"}"#),
    ] {
        let pieces = read_with(&Arc::from([]), "pythonic", written, TextEnd::Clean);
        assert_eq!(calls(&pieces), [expected], "{written}\n{pieces:?}");
    }
    gives("pythonic", "[weather(\"Oslo\")]", &[OSLO], "");
    gives("pythonic", "<|python_start|>[weather(city=\"Oslo\")]<|python_end|>", &[OSLO], "");
    gives("pythonic", "[weather(city=\"Oslo\")", &[OSLO], "");
    gives(
        "lfm2",
        "<|tool_call_start|>[weather(city=\"Oslo\")]<|tool_call_end|>Let me see.",
        &[OSLO],
        "Let me see.",
    );
    gives("gemma", "```tool_code\nweather(city=\"Oslo\")\n```", &[OSLO], "");
    gives(
        "functiongemma",
        "<start_function_call>call:weather{city:<escape>Oslo<escape>}<end_function_call><start_function_response>",
        &[OSLO],
        "",
    );
    for prose in [
        "[1,2]",
        "[see](http://a.b)",
        "[f(x)](y)",
        "[weather(city=Oslo)]",
        "[no_such(a=1)]",
        "[weather (city='a')]",
        "as in `[weather(city='a')]`",
        "[ ]",
        "[don't]",
        "[weather(city=\"Os",
    ] {
        is_text("pythonic", prose);
    }
}

#[test]
fn a_word_without_quotes_may_hold_parentheses() {
    for city in ["Oslo (Norway)", "Oslo :)", "(Oslo"] {
        let expected = format!("weather {}", json!({"city": city}));
        gives("gemma4", &format!("<|tool_call>call:weather{{city:{city}}}<tool_call|>"), &[&expected], "");
    }
    // where a word holds a brace, its end is not known
    is_refused("gemma4", "<|tool_call>call:run{code:f() { x }}<tool_call|>", TextEnd::Clean);
}
