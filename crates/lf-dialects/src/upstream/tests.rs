//! What one dialect writes, its other half reads.

use std::sync::Arc;

use lf_core::model::ChatRequest;
use lf_core::{Arguments, AssistantMessage, Content, Message, Part, Prose, ToolCall, ToolChoice, ToolResult};
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The dialects that are asked and served.
const BOTH_WAYS: [Dialect; 3] = [Dialect::OpenaiChat, Dialect::OpenaiResponses, Dialect::Anthropic];

fn decode(dialect: Dialect, body: &Value) -> ModelRequest {
    let bytes = body.to_string().into_bytes();
    let decoded = match dialect {
        Dialect::OpenaiResponses => openai_responses::decode_request(&bytes).map(|(request, _)| request),
        Dialect::Anthropic => anthropic_messages::decode_request(&bytes).map(|(request, _)| request),
        _ => openai_chat::decode_request(&bytes).map(|(request, _)| request),
    };
    let ChatRequest { messages, tools, tool_choice, parameters, stream, .. } =
        decoded.unwrap_or_else(|error| panic!("{dialect:?}: {} in {body}", error.message));
    ModelRequest { messages, tools: tools.into(), tool_choice, parameters, stream }
}

fn encode(dialect: Dialect, request: &ModelRequest) -> Value {
    encode_whole(dialect, "m", request, &UpstreamOptions::default()).unwrap()
}

fn words() -> impl Strategy<Value = String> {
    r#"[a-zé😀 \n"\\{}<]{0,6}[a-z]"#
}

fn prose() -> impl Strategy<Value = Content> {
    let image = prop::sample::select(vec!["https://x/i.png", "data:image/png;base64,AAAA"]);
    let part = prop_oneof![
        words().prop_map(Part::Text),
        image.prop_map(|url| Part::Image { url: url.to_owned(), detail: None }),
    ];
    prop_oneof![words().prop_map(Content::Text), prop::collection::vec(part, 1..4).prop_map(Content::Parts)]
}

/// What the model said, its calls as arguments alone, and the results as texts that may be errors.
type Said = (Option<String>, Vec<(Value, String, bool)>);

fn said() -> impl Strategy<Value = Said> {
    let arguments = prop_oneof![
        Just(json!({})),
        words().prop_map(|text| json!({"q": text, "n": [1.5, null, {"é": -7}]}))
    ];
    let call = (arguments, words(), any::<bool>());
    (prop::option::of(words()), prop::collection::vec(call, 0..3))
        .prop_filter("something must be said", |(text, calls)| text.is_some() || !calls.is_empty())
}

fn conversation() -> impl Strategy<Value = Vec<Message>> {
    let rounds = prop::collection::vec((said(), prose()), 0..4);
    (prop::option::of(words()), prose(), rounds).prop_map(|(system, asked, rounds)| {
        let user = |content| Message::User(Prose { content, rest: Map::new() });
        let system =
            system.map(|text| Message::System(Prose { content: Content::Text(text), rest: Map::new() }));
        let mut messages: Vec<Message> = system.into_iter().chain([user(asked)]).collect();
        let mut count = 0;
        for ((text, told), next) in rounds {
            let (mut calls, mut results) = (Vec::new(), Vec::new());
            for (arguments, result, is_error) in told {
                count += 1;
                let call = ToolCall {
                    id: format!("call_{count}"),
                    name: ["f", "g"][count % 2].to_owned(),
                    arguments: Arguments::parse(arguments.to_string()),
                    rest: Map::new(),
                };
                results.push(Message::Tool(ToolResult {
                    name: Some(call.name.clone()),
                    is_error,
                    ..ToolResult::new(call.id.clone(), Content::Text(result))
                }));
                calls.push(call);
            }
            let content = text.unwrap_or_default().into();
            messages.push(Message::Assistant(AssistantMessage { content, calls, ..Default::default() }));
            messages.extend(results);
            messages.push(user(next));
        }
        messages
    })
}

fn request() -> impl Strategy<Value = ModelRequest> {
    let choice = prop::sample::select(vec![
        None,
        Some(ToolChoice::Auto),
        Some(ToolChoice::None),
        Some(ToolChoice::Required),
        Some(ToolChoice::Tool("f".to_owned())),
    ]);
    let parameters = (prop::option::of(0..9_u64), prop::option::of(1..99_u64), any::<bool>());
    (conversation(), choice, parameters, any::<bool>()).prop_map(
        |(messages, tool_choice, (temperature, max_tokens, parallel), stream)| {
            let tool = |name: &str| ToolSpec {
                name: name.to_owned(),
                description: Some(Arc::from("does it")),
                schema: Arc::new(json!({"type": "object", "properties": {"q": {"type": "string"}}})),
                rest: Map::new(),
            };
            let mut parameters = Map::new();
            if let Some(temperature) = temperature {
                parameters.insert("temperature".to_owned(), json!(0.125 * temperature as f64));
            }
            if let Some(max_tokens) = max_tokens {
                parameters.insert("max_tokens".to_owned(), max_tokens.into());
            }
            // where no tool may be called, Anthropic has no way to say how
            if !parallel && tool_choice != Some(ToolChoice::None) {
                parameters.insert("parallel_tool_calls".to_owned(), false.into());
            }
            ModelRequest { messages, tools: [tool("f"), tool("g")].into(), tool_choice, parameters, stream }
        },
    )
}

/// What a conversation says, whatever form its contents have.
fn meaning(dialect: Dialect, messages: &[Message]) -> Vec<String> {
    let parts = |content: &Content| match content {
        Content::Text(text) => format!("[Text({text:?})]"),
        // its `detail` may become the default's name
        Content::Parts(parts) => {
            let part = |part: &Part| match part {
                Part::Image { url, .. } => format!("Image({url})"),
                part => format!("{part:?}"),
            };
            format!("[{}]", parts.iter().map(part).collect::<Vec<_>>().join(", "))
        }
    };
    let told = |message: &Message| match message {
        Message::System(prose) => format!("system {}", parts(&prose.content)),
        Message::User(prose) => format!("user {}", parts(&prose.content)),
        Message::Assistant(said) => {
            let calls = said.calls.iter().map(|call| (&call.id, &call.name, call.arguments.value().unwrap()));
            format!("assistant {:?} {:?}", said.content.text(), calls.collect::<Vec<_>>())
        }
        // elsewhere the text alone says that it is an error
        Message::Tool(result) if result.is_error && dialect != Dialect::Anthropic => {
            format!("tool {} {:?}", result.call_id, format!("Error: {}", result.content.text()))
        }
        Message::Tool(result) => {
            let failed = if result.is_error { "failed" } else { "" };
            format!("tool {} {:?}{failed}", result.call_id, result.content.text())
        }
    };
    messages.iter().map(told).collect()
}

/// The dialects that are only asked.
const ONE_WAY: [Dialect; 2] = [Dialect::Gemini, Dialect::Ollama];

/// What a message says to a dialect that is only asked: its texts, images, calls and results in order.
fn said_to(dialect: Dialect, message: &Message) -> Vec<String> {
    let content = |content: &Content| -> Vec<String> {
        let parts = match content {
            Content::Text(text) => vec![Part::Text(text.clone())],
            Content::Parts(parts) => parts.clone(),
        };
        let (texts, images): (Vec<Part>, Vec<Part>) = match dialect {
            // one text, and the images beside it
            Dialect::Ollama => parts.into_iter().partition(|part| matches!(part, Part::Text(_))),
            _ => (parts, Vec::new()),
        };
        let told = |part: Part| match part {
            Part::Text(text) => text,
            Part::Image { url, .. } => url.rsplit(',').next().unwrap_or_default().to_owned(),
            part => panic!("{part:?}"),
        };
        let texts: Vec<String> = texts.into_iter().map(told).filter(|text| !text.is_empty()).collect();
        let texts = match dialect {
            Dialect::Ollama => Some(texts.join("\n")).filter(|text| !text.is_empty()).into_iter().collect(),
            _ => texts,
        };
        texts.into_iter().chain(images.into_iter().map(told)).collect()
    };
    match message {
        Message::System(prose) | Message::User(prose) => content(&prose.content),
        Message::Assistant(said) => {
            let calls = said.calls.iter().map(|call| format!("{} {}", call.name, call.arguments.raw()));
            content(&said.content).into_iter().chain(calls).collect()
        }
        Message::Tool(result) => {
            let (name, text) = (result.name.as_deref().unwrap(), result.content.text());
            vec![match (result.is_error, dialect) {
                (true, Dialect::Gemini) => format!("{name} error {text}"),
                (true, _) => format!("{name} output Error: {text}"),
                (false, _) => format!("{name} output {text}"),
            }]
        }
    }
}

/// The same, read from a body.
fn heard(dialect: Dialect, body: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let call = |call: &Value| {
        format!("{} {}", word(&call["name"]).unwrap(), call.get("args").unwrap_or(&call["arguments"]))
    };
    if dialect == Dialect::Ollama {
        let message = |message: &Value| -> Vec<String> {
            let text = word(&message["content"]).unwrap();
            if message["role"] == "tool" {
                return vec![format!("{} output {text}", word(&message["tool_name"]).unwrap())];
            }
            let images = list(&message["images"]).iter().filter_map(word).collect::<Vec<_>>();
            let calls =
                list(&message["tool_calls"]).iter().map(|told| call(&told["function"])).collect::<Vec<_>>();
            Some(text).filter(|text| !text.is_empty()).into_iter().chain(images).chain(calls).collect()
        };
        return list(&body["messages"]).iter().flat_map(message).collect();
    }
    let contents = list(&body["contents"]);
    let parts =
        [&body["systemInstruction"]].into_iter().chain(&contents).flat_map(|content| list(&content["parts"]));
    let part = |part: Value| {
        let result = &part["functionResponse"];
        let told = result["response"].as_object().and_then(|response| response.iter().next());
        word(&part["text"])
            .or_else(|| word(&part["inlineData"]["data"]))
            .or_else(|| word(&part["fileData"]["fileUri"]))
            .or_else(|| part.get("functionCall").map(call))
            .or_else(|| {
                told.map(|(key, text)| {
                    format!("{} {key} {}", word(&result["name"]).unwrap(), word(text).unwrap())
                })
            })
            .unwrap()
    };
    parts.map(part).collect()
}

proptest! {
    /// What is never read here has no decoder; what it must hold is read by the test.
    #[test]
    fn a_request_says_all_that_was_said_to_a_dialect_that_is_only_asked(request in request()) {
        for dialect in ONE_WAY {
            // an image that is a URL cannot be told to Ollama
            let Ok(body) = encode_whole(dialect, "m", &request, &UpstreamOptions::default()) else {
                prop_assert_eq!(dialect, Dialect::Ollama);
                continue;
            };
            let said: Vec<String> = request.messages.iter().flat_map(|message| said_to(dialect, message)).collect();
            prop_assert_eq!(heard(dialect, &body), said, "{:?} {}", dialect, body);
        }
    }

    #[test]
    fn a_request_means_the_same_after_any_dialect_that_is_spoken_both_ways(request in request()) {
        for dialect in BOTH_WAYS {
            let body = encode(dialect, &request);
            let read = decode(dialect, &body);
            prop_assert_eq!(meaning(dialect, &read.messages), meaning(dialect, &request.messages), "{:?} {}", dialect, body);
            // Responses would make a schema strict that nobody says is not
            let declared = |specs: &[ToolSpec]| -> Vec<ToolSpec> {
                specs.iter().map(|spec| ToolSpec { rest: Map::new(), ..spec.clone() }).collect()
            };
            prop_assert_eq!(declared(&read.tools), &*request.tools, "{:?}", dialect);
            let choice = |request: &ModelRequest| request.tool_choice.clone().unwrap_or(ToolChoice::Auto);
            prop_assert_eq!(choice(&read), choice(&request), "{:?}", dialect);
            prop_assert_eq!(read.stream, request.stream);
            for (name, value) in &request.parameters {
                prop_assert_eq!(read.parameters.get(name), Some(value), "{:?} {}", dialect, name);
            }
            // one text may be a part or a string at first, and stays what it became
            let again = encode(dialect, &read);
            prop_assert_eq!(encode(dialect, &decode(dialect, &again)).to_string(), again.to_string());
        }
    }

    /// Prefix caches: what was sent before stays at the beginning, to the byte.
    #[test]
    fn a_longer_conversation_begins_with_the_shorter_one_to_the_byte(request in request(), keep in 1..9_usize) {
        const LISTS: [&str; 3] = ["messages", "input", "contents"];
        let ends = |at: &usize| matches!(request.messages[*at - 1], Message::User(_));
        let keep = (1..=keep.min(request.messages.len())).rev().find(ends).unwrap_or(request.messages.len());
        let shorter = ModelRequest { messages: request.messages[..keep].to_vec(), ..request.clone() };
        for dialect in Dialect::ASKED {
            let list = |request: &ModelRequest| {
                let body = encode_whole(dialect, "m", request, &UpstreamOptions::default()).ok()?;
                let list = LISTS.iter().find_map(|key| body[*key].as_array().cloned()).unwrap();
                Some(list.iter().map(Value::to_string).collect::<Vec<_>>())
            };
            // an image that is a URL cannot be told to Ollama
            let (Some(long), Some(short)) = (list(&request), list(&shorter)) else { continue };
            prop_assert!(long.starts_with(&short), "{:?}\n{:?}\n{:?}", dialect, long, short);
        }
    }
}
