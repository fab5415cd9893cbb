use std::sync::Arc;

use lf_core::model::{Dialect, ToolSpec};
use lf_core::{
    Arguments, AssistantMessage, Content, Message, ModelDelta, ModelError, ModelRequest, Part, Prose,
    ToolCall, ToolChoice, ToolResult,
};
use serde_json::{Map, Value, json};

use crate::answer::AnswerDecoder;
use crate::upstream::{Encoded, UpstreamOptions, encode, encode_whole, tools};

const OLD: &str = "gemini-2.5-flash";
const NEW: &str = "gemini-3-pro-preview";

fn user(text: &str) -> Message {
    Message::User(Prose { content: text.into(), ..Prose::default() })
}

fn system(text: &str) -> Message {
    Message::System(Prose { content: text.into(), ..Prose::default() })
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: Arguments::parse(arguments),
        rest: Map::new(),
    }
}

fn called(calls: Vec<ToolCall>) -> Message {
    Message::Assistant(AssistantMessage { calls, ..AssistantMessage::default() })
}

fn spec(name: &str, schema: Value) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: Some("d".into()),
        schema: Arc::new(schema),
        rest: Map::new(),
    }
}

fn body(model: &str, messages: Vec<Message>) -> String {
    let request = ModelRequest { messages, ..ModelRequest::default() };
    encode_whole(Dialect::Gemini, model, &request, &UpstreamOptions::default()).unwrap().to_string()
}

fn with(model: &str, parameters: Value) -> Result<Encoded, ModelError> {
    let Value::Object(parameters) = parameters else { panic!("no object") };
    let request = ModelRequest { messages: vec![user("x")], parameters, ..ModelRequest::default() };
    encode(Dialect::Gemini, model, &request, &UpstreamOptions::default())
}

fn config(model: &str, parameters: Value) -> String {
    let encoded = with(model, parameters).unwrap();
    encoded.fields.get("generationConfig").unwrap_or(&Value::Null).to_string()
}

fn refused(parameters: Value) -> String {
    match with(OLD, parameters) {
        Err(ModelError::Unsupported(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn decode(reads: &[&[u8]]) -> Vec<ModelDelta> {
    let mut decoder = AnswerDecoder::new(Dialect::Gemini, "http://up");
    let mut deltas = Vec::new();
    for read in reads {
        decoder.push(read, &mut deltas).unwrap();
    }
    decoder.finish(&mut deltas).unwrap();
    deltas
}

#[test]
fn a_conversation_is_written_in_contents() {
    let messages = vec![
        system("Be brief."),
        system("Be kind."),
        user("Weather?"),
        Message::Assistant(AssistantMessage {
            content: "Let me look.".into(),
            reasoning: Some("thoughts stay here".to_owned()),
            calls: vec![call("a", "look", r#"{"q": 1}"#), call("b", "9look", "")],
            rest: Map::new(),
        }),
        Message::Tool(ToolResult::new("a", "sun")),
        Message::Tool(ToolResult { is_error: true, ..ToolResult::new("b", "no such place") }),
        system("Only today."),
        user(""),
    ];
    insta::assert_snapshot!(body(OLD, messages), @r#"{"systemInstruction":{"parts":[{"text":"Be brief."},{"text":"Be kind."}]},"contents":[{"role":"user","parts":[{"text":"Weather?"}]},{"role":"model","parts":[{"text":"Let me look."},{"functionCall":{"name":"look","args":{"q":1}}},{"functionCall":{"name":"_9look","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"look","response":{"output":"sun"}}},{"functionResponse":{"name":"_9look","response":{"error":"no such place"}}}]},{"role":"user","parts":[{"text":"<system-reminder>\nOnly today.\n</system-reminder>"}]},{"role":"user","parts":[{"text":"(nothing)"}]}]}"#);
}

#[test]
fn the_first_content_is_a_users_and_two_of_the_models_are_one() {
    let said = |text: &str| {
        Message::Assistant(AssistantMessage { content: text.into(), ..AssistantMessage::default() })
    };
    insta::assert_snapshot!(body(OLD, vec![system("s")]), @r#"{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","parts":[{"text":"(nothing)"}]}]}"#);
    insta::assert_snapshot!(body(OLD, vec![said("Hi."), called(vec![call("a", "look", "{}")]), said("")]), @r#"{"contents":[{"role":"user","parts":[{"text":"(nothing)"}]},{"role":"model","parts":[{"text":"Hi."},{"functionCall":{"name":"look","args":{}}}]}]}"#);
}

#[test]
fn what_a_call_came_with_goes_back_on_its_part() {
    let answer = json!([{"candidates": [{"content": {"parts": [
        {"text": "On it."},
        {"functionCall": {"id": "g1", "name": "_9look", "args": {"q": 1}}, "thoughtSignature": "sig"},
        {"functionCall": {"name": "read"}},
    ]}, "finishReason": "STOP"}]}]);
    let deltas = decode(&[answer.to_string().as_bytes()]);
    let mut calls: Vec<ToolCall> = deltas
        .into_iter()
        .filter_map(|delta| match delta {
            ModelDelta::Call(call) => Some(call),
            _ => None,
        })
        .collect();
    assert_eq!(calls[0].name, "9look");
    // what the core makes of ids that are missing or taken
    calls[0].id = "call_1".to_owned();
    calls[1].id = "call_2".to_owned();
    let results = [ToolResult::new("call_1", "one"), ToolResult::new("call_2", "two")].map(Message::Tool);
    let mut messages = vec![user("x"), called(calls)];
    messages.extend(results);
    insta::assert_snapshot!(body(NEW, messages), @r#"{"contents":[{"role":"user","parts":[{"text":"x"}]},{"role":"model","parts":[{"functionCall":{"name":"_9look","args":{"q":1},"id":"g1"},"thoughtSignature":"sig"},{"functionCall":{"name":"read","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"_9look","response":{"output":"one"},"id":"g1"}},{"functionResponse":{"name":"read","response":{"output":"two"}}}]}]}"#);
}

#[test]
fn calls_of_another_model_get_the_documented_stand_in_where_signatures_are_demanded() {
    let history = || vec![user("x"), called(vec![call("a", "one", "{}"), call("b", "two", "{}")])];
    for model in [NEW, "models/gemini-3.1-flash", "google/gemini-flash-latest", "gemini-10-pro"] {
        let body = body(model, history());
        assert_eq!(body.matches("skip_thought_signature_validator").count(), 1, "{model}");
        assert!(body.contains(r#""name":"one","args":{}},"thoughtSignature""#), "{body}");
    }
    for model in [OLD, "gemini-2.0-flash", "gemma-3-27b-it", "gemini-robotics-er-1.5-preview"] {
        assert!(!body(model, history()).contains("thoughtSignature"), "{model}");
    }
}

#[test]
fn a_signature_that_came_through_googles_other_api_is_used() {
    let mut signed = call("a", "one", "{}");
    signed.rest.insert("extra_content".to_owned(), json!({"google": {"thought_signature": "s"}}));
    assert!(body(NEW, vec![user("x"), called(vec![signed])]).contains(r#""thoughtSignature":"s""#));
}

#[test]
fn media_go_inline_or_by_address() {
    let image = |url: &str| Part::Image { url: url.to_owned(), detail: None };
    let parts = vec![
        Part::Text("See:".to_owned()),
        Part::Text(String::new()),
        image("data:image/png;charset=x;base64,AAAA"),
        image("https://x.test/cat.WEBP?size=1"),
        image("https://x.test/cat"),
        Part::Other(
            json!({"type": "file", "file": {"file_data": "data:application/pdf;base64,UERG", "filename": "a.pdf"}}),
        ),
        Part::Other(json!({"type": "input_audio", "input_audio": {"data": "UklG", "format": "mp3"}})),
        Part::Other(json!({"type": "text", "text": "More.", "cache_control": {}})),
    ];
    let message = Message::User(Prose { content: Content::Parts(parts), ..Prose::default() });
    insta::assert_snapshot!(body(OLD, vec![message]), @r#"{"contents":[{"role":"user","parts":[{"text":"See:"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"fileData":{"mimeType":"image/webp","fileUri":"https://x.test/cat.WEBP?size=1"}},{"fileData":{"mimeType":"image/jpeg","fileUri":"https://x.test/cat"}},{"inlineData":{"mimeType":"application/pdf","data":"UERG"}},{"inlineData":{"mimeType":"audio/mp3","data":"UklG"}},{"text":"More."}]}]}"#);
}

#[test]
fn content_that_cannot_be_sent_is_refused_by_name() {
    let refused = |part: Part| {
        let message = Message::User(Prose { content: Content::Parts(vec![part]), ..Prose::default() });
        let request = ModelRequest { messages: vec![message], ..ModelRequest::default() };
        encode(Dialect::Gemini, OLD, &request, &UpstreamOptions::default()).unwrap_err().to_string()
    };
    let told = [
        refused(Part::Other(json!({"type": "hologram"}))),
        refused(Part::Other(json!({"type": "file", "file": {"file_id": "f"}}))),
        refused(Part::Image { url: "data:image/svg+xml,<svg/>".to_owned(), detail: None }),
    ];
    insta::assert_snapshot!(told.join("\n"), @r#"
    a content part of type `hologram` has no counterpart for this model
    a `file` part is only taken with its content: send `file_data` as a `data:` URL
    a `data:` URL is only taken in base64: write `data:TYPE;base64,…`
    "#);
}

#[test]
fn images_of_results_go_inside_or_after_all_results_of_the_round() {
    let picture = || {
        Content::Parts(vec![
            Part::Text("Here:".to_owned()),
            Part::Image { url: "data:image/png;base64,AAAA".to_owned(), detail: None },
        ])
    };
    let history = || {
        vec![
            user("x"),
            called(vec![call("a", "draw", "{}"), call("b", "look", "{}")]),
            Message::Tool(ToolResult::new("a", picture())),
            Message::Tool(ToolResult::new("b", "ok")),
        ]
    };
    insta::assert_snapshot!(body(OLD, history()), @r#"{"contents":[{"role":"user","parts":[{"text":"x"}]},{"role":"model","parts":[{"functionCall":{"name":"draw","args":{}}},{"functionCall":{"name":"look","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"draw","response":{"output":"Here:\n[image 1: below]"}}},{"functionResponse":{"name":"look","response":{"output":"ok"}}},{"text":"[image 1 of a result of draw]"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}]}"#);
    insta::assert_snapshot!(body(NEW, history()), @r#"{"contents":[{"role":"user","parts":[{"text":"x"}]},{"role":"model","parts":[{"functionCall":{"name":"draw","args":{}},"thoughtSignature":"skip_thought_signature_validator"},{"functionCall":{"name":"look","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"name":"draw","response":{"output":"Here:\n[image 1: attached]"},"parts":[{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}},{"functionResponse":{"name":"look","response":{"output":"ok"}}}]}]}"#);
}

#[test]
fn parameters_become_the_generation_config() {
    let parameters = json!({
        "temperature": 0.2, "top_p": 0.9, "top_k": 40, "max_tokens": 5, "max_completion_tokens": 10, "seed": 7,
        "presence_penalty": 0.1, "frequency_penalty": 0.2, "logprobs": true, "top_logprobs": 3, "n": 1, "logit_bias": {},
        "stop": ["1", "2", "3", "4", "5", "6"], "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
        "user": null, "stream_options": {"include_usage": true}, "parallel_tool_calls": false, "metadata": {"a": 1},
        "safetySettings": [], "generationConfig": {"topK": 1, "mediaResolution": "LOW"}, "$responses": {"truncation": "auto"},
        "$anthropic": {"metadata": {"user_id": "u"}, "context_management": {}},
    });
    let encoded = with(OLD, parameters).unwrap();
    insta::assert_snapshot!(encoded.body(""), @r#"{"contents":[{"role":"user","parts":[{"text":"x"}]}],"generationConfig":{"temperature":0.2,"topP":0.9,"topK":1,"maxOutputTokens":10,"seed":7,"presencePenalty":0.1,"frequencyPenalty":0.2,"responseLogprobs":true,"logprobs":3,"stopSequences":["1","2","3","4","5"],"responseMimeType":"application/json","responseJsonSchema":{"type":"object"},"mediaResolution":"LOW"},"safetySettings":[]}"#);
    assert_eq!(encoded.stops, ["6"]);
    assert_eq!(encoded.left_out, ["parallel_tool_calls", "metadata", "context_management"]);
    assert_eq!(config(OLD, json!({"stop": "END"})), r#"{"stopSequences":["END"]}"#);
    assert_eq!(
        config(OLD, json!({"response_format": {"type": "json_object"}})),
        r#"{"responseMimeType":"application/json"}"#
    );
    assert_eq!(config(OLD, json!({"response_format": {"type": "text"}})), "null");
}

#[test]
fn efforts_become_budgets_or_levels() {
    let told = |model: &str, effort: &str| config(model, json!({"reasoning_effort": effort}));
    let mut lines = Vec::new();
    for model in [OLD, "gemini-2.5-pro", NEW, "gemini-3-flash-preview"] {
        for effort in ["none", "minimal", "low", "medium", "high", "xhigh"] {
            lines.push(format!("{model} {effort}: {}", told(model, effort)));
        }
    }
    insta::assert_snapshot!(lines.join("\n"), @r#"
    gemini-2.5-flash none: {"thinkingConfig":{"thinkingBudget":0}}
    gemini-2.5-flash minimal: {"thinkingConfig":{"thinkingBudget":1024,"includeThoughts":true}}
    gemini-2.5-flash low: {"thinkingConfig":{"thinkingBudget":1024,"includeThoughts":true}}
    gemini-2.5-flash medium: {"thinkingConfig":{"thinkingBudget":8192,"includeThoughts":true}}
    gemini-2.5-flash high: {"thinkingConfig":{"thinkingBudget":24576,"includeThoughts":true}}
    gemini-2.5-flash xhigh: {"thinkingConfig":{"thinkingBudget":24576,"includeThoughts":true}}
    gemini-2.5-pro none: {"thinkingConfig":{"thinkingBudget":128}}
    gemini-2.5-pro minimal: {"thinkingConfig":{"thinkingBudget":1024,"includeThoughts":true}}
    gemini-2.5-pro low: {"thinkingConfig":{"thinkingBudget":1024,"includeThoughts":true}}
    gemini-2.5-pro medium: {"thinkingConfig":{"thinkingBudget":8192,"includeThoughts":true}}
    gemini-2.5-pro high: {"thinkingConfig":{"thinkingBudget":24576,"includeThoughts":true}}
    gemini-2.5-pro xhigh: {"thinkingConfig":{"thinkingBudget":24576,"includeThoughts":true}}
    gemini-3-pro-preview none: {"thinkingConfig":{"thinkingLevel":"low"}}
    gemini-3-pro-preview minimal: {"thinkingConfig":{"thinkingLevel":"low","includeThoughts":true}}
    gemini-3-pro-preview low: {"thinkingConfig":{"thinkingLevel":"low","includeThoughts":true}}
    gemini-3-pro-preview medium: {"thinkingConfig":{"thinkingLevel":"medium","includeThoughts":true}}
    gemini-3-pro-preview high: {"thinkingConfig":{"thinkingLevel":"high","includeThoughts":true}}
    gemini-3-pro-preview xhigh: {"thinkingConfig":{"thinkingLevel":"high","includeThoughts":true}}
    gemini-3-flash-preview none: {"thinkingConfig":{"thinkingLevel":"minimal"}}
    gemini-3-flash-preview minimal: {"thinkingConfig":{"thinkingLevel":"minimal","includeThoughts":true}}
    gemini-3-flash-preview low: {"thinkingConfig":{"thinkingLevel":"low","includeThoughts":true}}
    gemini-3-flash-preview medium: {"thinkingConfig":{"thinkingLevel":"medium","includeThoughts":true}}
    gemini-3-flash-preview high: {"thinkingConfig":{"thinkingLevel":"high","includeThoughts":true}}
    gemini-3-flash-preview xhigh: {"thinkingConfig":{"thinkingLevel":"high","includeThoughts":true}}
    "#);
    assert_eq!(with(NEW, json!({"reasoning_effort": "none"})).unwrap().left_out, ["reasoning_effort: none"]);
    assert_eq!(with(OLD, json!({"reasoning_effort": "none"})).unwrap().left_out, [] as [&str; 0]);
    // such a model does not think
    assert_eq!(told("gemini-2.0-flash", "none"), "null");
}

#[test]
fn the_budget_of_an_anthropic_client_counts_as_it_is() {
    let asked = |model: &str, thinking: Value| {
        config(model, json!({"reasoning_effort": "high", "$anthropic": {"thinking": thinking}}))
    };
    let enabled = json!({"type": "enabled", "budget_tokens": 31_999});
    insta::assert_snapshot!(asked("gemini-2.5-pro", enabled.clone()), @r#"{"thinkingConfig":{"thinkingBudget":31999,"includeThoughts":true}}"#);
    insta::assert_snapshot!(asked(OLD, enabled.clone()), @r#"{"thinkingConfig":{"thinkingBudget":24576,"includeThoughts":true}}"#);
    insta::assert_snapshot!(asked(NEW, enabled), @r#"{"thinkingConfig":{"thinkingLevel":"high","includeThoughts":true}}"#);
    let disabled = json!({"$anthropic": {"thinking": {"type": "disabled"}}});
    insta::assert_snapshot!(config(OLD, disabled), @r#"{"thinkingConfig":{"thinkingBudget":0}}"#);
}

#[test]
fn what_the_api_has_no_word_for_is_refused_by_name() {
    insta::assert_snapshot!(refused(json!({"logit_bias": {"1": 2}})), @"`logit_bias` is nothing that the Gemini API knows, so this model cannot answer as asked; leave it out, or use another model");
    for parameters in [
        json!({"n": 2}),
        json!({"modalities": ["text", "audio"]}),
        json!({"web_search_options": {}}),
        json!({"response_format": {"type": "grammar"}}),
        json!({"reasoning_effort": "ultra"}),
    ] {
        let key = parameters.as_object().unwrap().keys().next().unwrap().clone();
        assert!(refused(parameters).contains(&key));
    }
}

#[test]
fn all_tools_are_declared_in_one_element() {
    let schema = json!({"type": "object", "properties": {"q": {"type": ["string", "null"]}}, "additionalProperties": false});
    let mut native = spec("only_theirs", json!({}));
    native.rest.insert(ToolSpec::NATIVE.to_owned(), json!({}));
    let specs = [spec("9look", schema), spec("stop", json!({"type": "object"})), native];
    insta::assert_snapshot!(tools(Dialect::Gemini, &specs), @r#"{"functionDeclarations":[{"name":"_9look","description":"d","parameters":{"type":"object","properties":{"q":{"type":"string","nullable":true}}}},{"name":"stop","description":"d"}]}"#);
    assert_eq!(tools(Dialect::Gemini, &[]), "");
    let choose = |choice: ToolChoice| {
        let messages = vec![user("x")];
        let request = ModelRequest {
            messages,
            tools: specs.to_vec().into(),
            tool_choice: Some(choice),
            ..ModelRequest::default()
        };
        let encoded = encode(Dialect::Gemini, OLD, &request, &UpstreamOptions::default()).unwrap();
        assert_eq!(encoded.left_out, ["only_theirs"]);
        encoded.fields["toolConfig"]["functionCallingConfig"].to_string()
    };
    assert_eq!(choose(ToolChoice::Auto), r#"{"mode":"AUTO"}"#);
    assert_eq!(choose(ToolChoice::None), r#"{"mode":"NONE"}"#);
    assert_eq!(choose(ToolChoice::Required), r#"{"mode":"ANY"}"#);
    let named = choose(ToolChoice::Tool("9look".to_owned()));
    assert_eq!(named, r#"{"mode":"ANY","allowedFunctionNames":["_9look"]}"#);
}

#[test]
fn any_split_of_a_stream_gives_the_same_answer() {
    let chunks = [
        json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "Hm", "thought": true}]}, "index": 0}], "usageMetadata": {"promptTokenCount": 5}}),
        json!({"candidates": [{"content": {"parts": [{"text": "天😀"}, {"text": "", "thoughtSignature": "t"}]}}]}),
        json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": "look", "args": {"é": 1}, "id": "g"}, "thoughtSignature": "s"}]}}]}),
        json!({"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 5, "toolUsePromptTokenCount": 2, "candidatesTokenCount": 2, "thoughtsTokenCount": 3, "cachedContentTokenCount": 4}}),
    ];
    let stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect();
    let whole = decode(&[stream.as_bytes()]);
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
                id: "g",
                name: "look",
                arguments: Arguments {
                    raw: "{\"é\":1}",
                    value: Ok(
                        {
                            "é": Number(1),
                        },
                    ),
                },
                rest: {
                    "thoughtSignature": String("s"),
                    "$gemini": Object {
                        "id": String("g"),
                    },
                },
            },
        ),
        Usage(
            Usage {
                input: 7,
                output: 5,
                cached: 4,
                cache_written: 0,
                reasoning: 3,
            },
        ),
        Finish {
            reason: ToolCalls,
            raw: Some(
                "STOP",
            ),
            stop_sequence: None,
        },
    ]
    "#);
    for at in 0..stream.len() {
        let (first, second) = stream.as_bytes().split_at(at);
        assert_eq!(decode(&[first, second]), whole, "{at}");
    }
    let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
    assert_eq!(decode(&bytes), whole);
}

#[test]
fn what_the_apis_own_tools_did_is_shown() {
    let answer = json!({"candidates": [{"content": {"parts": [
        {"executableCode": {"language": "PYTHON", "code": "print(`1`)\n"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "```"}},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"toolCall": {"toolType": "GOOGLE_SEARCH"}},
    ]}, "finishReason": "STOP"}]});
    insta::assert_debug_snapshot!(decode(&[answer.to_string().as_bytes()]), @r#"
    [
        Text(
            "\n```python\nprint(`1`)\n```\n",
        ),
        Text(
            "\n```\n1\n```\n",
        ),
        Text(
            "\nOUTCOME_FAILED\n",
        ),
        Text(
            "\n````\n```\n````\n",
        ),
        Notice(
            "the model answered with data of type `image/png`",
        ),
        Native(
            Native {
                dialect: Gemini,
                item: Object {
                    "inlineData": Object {
                        "mimeType": String("image/png"),
                        "data": String("AAAA"),
                    },
                },
            },
        ),
        Native(
            Native {
                dialect: Gemini,
                item: Object {
                    "toolCall": Object {
                        "toolType": String("GOOGLE_SEARCH"),
                    },
                },
            },
        ),
        Finish {
            reason: Stop,
            raw: Some(
                "STOP",
            ),
            stop_sequence: None,
        },
    ]
    "#);
}

#[test]
fn names_lead_back_to_those_they_were_made_of() {
    use crate::schema::{SchemaTarget, own_name_at_gemini};
    for name in ["look", "_look", "__x", "_", "9look", "_9look", "__9look", "-x", "_-x"] {
        let written = SchemaTarget::Gemini.name(name);
        assert!(written.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic()));
        assert_eq!(own_name_at_gemini(&written), name);
    }
}
