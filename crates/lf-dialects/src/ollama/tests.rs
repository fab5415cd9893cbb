use std::sync::Arc;

use lf_core::model::{Dialect, ToolSpec};
use lf_core::{
    Arguments, AssistantMessage, Content, Message, ModelDelta, ModelError, ModelRequest, Part, Prose,
    ToolCall, ToolChoice, ToolResult,
};
use serde_json::{Map, Value, json};

use crate::answer::AnswerDecoder;
use crate::upstream::{Encoded, UpstreamOptions, encode, tools};

fn user(text: &str) -> Message {
    Message::User(Prose { content: text.into(), ..Prose::default() })
}

fn image(url: &str) -> Part {
    Part::Image { url: url.to_owned(), detail: None }
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: Arguments::parse(arguments),
        rest: Map::new(),
    }
}

fn spec(name: &str, schema: Value) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: None, schema: Arc::new(schema), rest: Map::new() }
}

fn write(request: &ModelRequest) -> Result<Encoded, ModelError> {
    encode(Dialect::Ollama, "qwen3", request, &UpstreamOptions::default())
}

fn messages(messages: Vec<Message>) -> String {
    let request = ModelRequest { messages, ..ModelRequest::default() };
    write(&request).unwrap().fields["messages"].to_string()
}

fn with(parameters: Value) -> Result<Encoded, ModelError> {
    let Value::Object(parameters) = parameters else { panic!("no object") };
    write(&ModelRequest { messages: vec![user("x")], parameters, stream: true, ..ModelRequest::default() })
}

fn decode(reads: &[&[u8]]) -> Result<Vec<ModelDelta>, ModelError> {
    let mut decoder = AnswerDecoder::new(Dialect::Ollama, "http://up");
    let mut deltas = Vec::new();
    for read in reads {
        decoder.push(read, &mut deltas)?;
    }
    decoder.finish(&mut deltas)?;
    Ok(deltas)
}

#[test]
fn a_conversation_is_written_in_messages() {
    let mut unread = call("b", "", "not json");
    unread.rest.insert("thoughtSignature".to_owned(), "s".into());
    let developer = Prose {
        content: "Be brief.".into(),
        rest: json!({"role": "developer"}).as_object().unwrap().clone(),
    };
    let history = vec![
        Message::System(developer),
        Message::User(Prose {
            content: Content::Parts(vec![
                Part::Text("See".to_owned()),
                image("data:image/png;base64,AAAA"),
                Part::Text("this".to_owned()),
            ]),
            ..Prose::default()
        }),
        Message::Assistant(AssistantMessage {
            content: "Hm.".into(),
            reasoning: Some("R".to_owned()),
            calls: vec![call("a", "look", r#"{"z": 1, "a": 123456789012345678}"#), unread],
            rest: Map::new(),
        }),
        Message::Tool(ToolResult::new(
            "a",
            Content::Parts(vec![Part::Text("1".to_owned()), image("data:;base64,BBBB")]),
        )),
        Message::Tool(ToolResult {
            is_error: true,
            name: Some("other".to_owned()),
            ..ToolResult::new("b", "no such tool")
        }),
        Message::Assistant(AssistantMessage {
            content: "Done.".into(),
            reasoning: Some("is not sent".to_owned()),
            ..AssistantMessage::default()
        }),
    ];
    insta::assert_snapshot!(messages(history), @r#"[{"role":"system","content":"Be brief."},{"role":"user","content":"See\nthis","images":["AAAA"]},{"role":"assistant","content":"Hm.","thinking":"R","tool_calls":[{"function":{"name":"look","arguments":{"z":1,"a":123456789012345678}},"id":"a"},{"function":{"name":"unknown","arguments":{}},"id":"b"}]},{"role":"tool","content":"1\n[image 1: in the next user message]","tool_name":"look","tool_call_id":"a"},{"role":"tool","content":"Error: no such tool","tool_name":"other","tool_call_id":"b"},{"role":"user","content":"[image 1 of the result of call a]","images":["BBBB"]},{"role":"assistant","content":"Done."}]"#);
}

#[test]
fn content_that_cannot_be_sent_is_refused_by_name() {
    let refused = |part: Part| {
        let message = Message::User(Prose { content: Content::Parts(vec![part]), ..Prose::default() });
        write(&ModelRequest { messages: vec![message], ..ModelRequest::default() }).unwrap_err().to_string()
    };
    let told = [
        refused(image("https://x.test/cat.png")),
        refused(Part::Other(
            json!({"type": "file", "file": {"file_data": "data:application/pdf;base64,UERG"}}),
        )),
        refused(Part::Other(json!({"type": "hologram"}))),
    ];
    insta::assert_snapshot!(told.join("\n"), @r#"
    Ollama fetches no images from URLs; send the image itself as a `data:` URL
    Ollama takes text and images, and no content of type `application/pdf`; send its text instead
    a content part of type `hologram` has no counterpart for this model
    "#);
}

#[test]
fn parameters_become_options() {
    let parameters = json!({
        "temperature": 0.2, "top_p": 0.9, "top_k": 40, "max_tokens": 5, "seed": 7, "presence_penalty": 0.1,
        "frequency_penalty": 0.2, "repeat_penalty": 1.1, "stop": "END", "num_ctx": 8192, "keep_alive": "5m",
        "options": {"temperature": 0.5, "num_gpu": 1}, "reasoning_effort": "low", "logprobs": true, "top_logprobs": 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
        "n": 1, "logit_bias": {}, "user": "u", "parallel_tool_calls": false, "min_p": null, "stream_options": {},
        "$anthropic": {"thinking": {"type": "disabled"}, "tools": [{"type": "web_search"}], "metadata": {}},
    });
    let encoded = with(parameters).unwrap();
    insta::assert_snapshot!(encoded.body(""), @r#"{"model":"qwen3","messages":[{"role":"user","content":"x"}],"stream":true,"think":"low","options":{"temperature":0.5,"top_p":0.9,"top_k":40,"num_predict":5,"seed":7,"presence_penalty":0.1,"frequency_penalty":0.2,"repeat_penalty":1.1,"stop":["END"],"num_ctx":8192,"num_gpu":1},"keep_alive":"5m","logprobs":true,"top_logprobs":2,"format":{"type":"object"}}"#);
    assert_eq!(encoded.left_out, ["user", "parallel_tool_calls", "tools.web_search"]);
    let json = with(json!({"response_format": {"type": "json_object"}})).unwrap();
    assert_eq!(json.fields["format"], "json");
    let own = json!({"format": {"a": 1}, "response_format": {"type": "json_object"}, "reasoning_effort": "high", "think": true});
    let own = with(own).unwrap();
    assert_eq!((&own.fields["format"], &own.fields["think"]), (&json!({"a": 1}), &json!(true)));
}

#[test]
fn efforts_become_what_ollama_makes_of_them_itself() {
    let think = |parameters: Value| with(parameters).unwrap().fields.get("think").cloned();
    let told = ["none", "minimal", "low", "medium", "high", "xhigh"]
        .map(|effort| think(json!({"reasoning_effort": effort})).unwrap().to_string());
    assert_eq!(told, ["false", r#""low""#, r#""low""#, r#""medium""#, r#""high""#, r#""max""#]);
    assert_eq!(think(json!({"$anthropic": {"thinking": {"type": "disabled"}}})), Some(json!(false)));
    assert_eq!(think(json!({})), None);
}

#[test]
fn what_ollama_has_no_word_for_is_refused_by_name() {
    for parameters in [json!({"n": 2}), json!({"logit_bias": {"1": 2}}), json!({"audio": {}})] {
        let key = parameters.as_object().unwrap().keys().next().unwrap().clone();
        let message = with(parameters).unwrap_err().to_string();
        assert!(message.contains(&format!("`{key}`")) && message.contains("Ollama"), "{message}");
    }
}

#[test]
fn a_choice_of_tools_is_kept_by_showing_none_or_refused() {
    let specs = [spec("look", json!({"type": "object"}))];
    let chosen = |choice: Option<ToolChoice>| {
        let messages = vec![user("x")];
        let request = ModelRequest {
            messages,
            tools: specs.to_vec().into(),
            tool_choice: choice,
            ..ModelRequest::default()
        };
        write(&request).map(|encoded| encoded.body(&tools(Dialect::Ollama, &specs)))
    };
    insta::assert_snapshot!(chosen(None).unwrap(), @r#"{"model":"qwen3","messages":[{"role":"user","content":"x"}],"stream":false,"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{}}}}]}"#);
    assert_eq!(chosen(Some(ToolChoice::Auto)), chosen(None));
    insta::assert_snapshot!(chosen(Some(ToolChoice::None)).unwrap(), @r#"{"model":"qwen3","messages":[{"role":"user","content":"x"}],"stream":false}"#);
    let refused = chosen(Some(ToolChoice::Required)).unwrap_err().to_string();
    insta::assert_snapshot!(refused, @"`tool_choice` cannot make this model call a tool: Ollama's own API has no such thing; use `auto` or `none`, or another model");
    assert_eq!(chosen(Some(ToolChoice::Tool("look".to_owned()))).unwrap_err().to_string(), refused);
}

#[test]
fn schemas_say_all_that_ollama_reads() {
    let plain = json!({"type": "object", "properties": {"q": {"type": ["string", "null"], "format": "uri"}}, "required": ["q"]});
    let told = tools(Dialect::Ollama, &[spec("a", plain.clone())]);
    assert!(told.contains(&plain.to_string()), "{told}");
    let nested = json!({"type": "object", "$defs": {"p": {"type": "object", "properties": {"x": {"type": "number"}}}}, "properties": {
        "p": {"$ref": "#/$defs/p"}, "any": true, "k": {"oneOf": [{"const": "a"}, {"type": "integer"}]},
    }});
    insta::assert_snapshot!(tools(Dialect::Ollama, &[spec("a", nested)]), @r#"{"type":"function","function":{"name":"a","parameters":{"type":"object","properties":{"p":{"type":"object","properties":{"x":{"type":"number"}}},"any":{},"k":{"anyOf":[{"type":"string","enum":["a"]},{"type":"integer"}]}}}}}"#);
}

#[test]
fn any_split_of_the_lines_gives_the_same_answer() {
    let lines = [
        json!({"model": "m", "message": {"role": "assistant", "content": "", "thinking": "Hm"}, "done": false}),
        json!({"message": {"content": "天😀"}, "done": false}),
        json!({"message": {"content": "", "tool_calls": [{"id": "call_1", "function": {"index": 0, "name": "look", "arguments": {"é": 1}}}]}, "done": false}),
        json!({"message": {"content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]}, "done": false}),
        json!({"message": {"content": ""}, "done": true, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4}),
    ];
    let stream: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let whole = decode(&[stream.as_bytes()]).unwrap();
    insta::assert_debug_snapshot!(whole, @r#"
    [
        Reasoning(
            "Hm",
        ),
        Text(
            "天😀",
        ),
        Call(
            ToolCall {
                id: "call_1",
                name: "look",
                arguments: Arguments {
                    raw: "{\"é\":1}",
                    value: Ok(
                        {
                            "é": Number(1),
                        },
                    ),
                },
                rest: {},
            },
        ),
        Call(
            ToolCall {
                id: "",
                name: "look",
                arguments: Arguments {
                    raw: "{}",
                    value: Ok(
                        {},
                    ),
                },
                rest: {},
            },
        ),
        Usage(
            Usage {
                input: 3,
                output: 4,
                cached: 0,
                cache_written: 0,
                reasoning: 0,
            },
        ),
        Finish {
            reason: ToolCalls,
            raw: Some(
                "stop",
            ),
            stop_sequence: None,
        },
    ]
    "#);
    for at in 0..stream.len() {
        let (first, second) = stream.as_bytes().split_at(at);
        assert_eq!(decode(&[first, second]).unwrap(), whole, "{at}");
    }
}

#[test]
fn an_answer_that_was_not_streamed_is_read_by_the_same_decoder() {
    let answer = json!({"model": "m", "message": {"role": "assistant", "content": "Hi", "thinking": "T", "tool_calls": [
        {"id": "call_1", "function": {"name": "look", "arguments": {"q": 1}}},
    ]}, "done": true, "done_reason": "length", "prompt_eval_count": 3});
    insta::assert_debug_snapshot!(decode(&[answer.to_string().as_bytes()]).unwrap(), @r#"
    [
        Reasoning(
            "T",
        ),
        Text(
            "Hi",
        ),
        Call(
            ToolCall {
                id: "call_1",
                name: "look",
                arguments: Arguments {
                    raw: "{\"q\":1}",
                    value: Ok(
                        {
                            "q": Number(1),
                        },
                    ),
                },
                rest: {},
            },
        ),
        Usage(
            Usage {
                input: 3,
                output: 0,
                cached: 0,
                cache_written: 0,
                reasoning: 0,
            },
        ),
        Finish {
            reason: Length,
            raw: Some(
                "length",
            ),
            stop_sequence: None,
        },
    ]
    "#);
}

#[test]
fn errors_keep_their_status() {
    let told = |line: &str| decode(&[line.as_bytes()]).unwrap_err().to_string();
    insta::assert_snapshot!(told(r#"{"error":"model crashed"}"#), @"http://up failed (200): model crashed");
    insta::assert_snapshot!(told(r#"{"error":"too long","status":400}"#), @"http://up rejected the request (400): too long");
    insta::assert_snapshot!(told(r#"{"StatusCode":429,"Status":"x","error":"slow down"}"#), @"http://up is limiting requests (429): slow down");
    insta::assert_snapshot!(told(r#"{"message":{"content":"a"},"done":false}"#), @"http://up answered with something that is no whole answer: a stream that ended without a finish reason");
}

#[test]
fn an_answers_calls_go_back_with_the_ids_they_came_with() {
    let line = json!({"message": {"content": "", "thinking": "T", "tool_calls": [{"id": "call_1", "function": {"name": "look", "arguments": {"q": 1}}}]}, "done": true, "done_reason": "stop"});
    let deltas = decode(&[line.to_string().as_bytes()]).unwrap();
    let calls: Vec<ToolCall> = deltas
        .into_iter()
        .filter_map(|delta| match delta {
            ModelDelta::Call(call) => Some(call),
            _ => None,
        })
        .collect();
    let said = AssistantMessage { calls, reasoning: Some("T".to_owned()), ..AssistantMessage::default() };
    let history = vec![user("x"), Message::Assistant(said), Message::Tool(ToolResult::new("call_1", "one"))];
    insta::assert_snapshot!(messages(history), @r#"[{"role":"user","content":"x"},{"role":"assistant","content":"","thinking":"T","tool_calls":[{"function":{"name":"look","arguments":{"q":1}},"id":"call_1"}]},{"role":"tool","content":"one","tool_name":"look","tool_call_id":"call_1"}]"#);
}
