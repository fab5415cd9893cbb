//! What tools return, as each dialect shows it to a model.

use lf_core::model::Dialect;
use lf_core::{Arguments, AssistantMessage, Message, ModelRequest, ToolCall, ToolResult};
use serde_json::{Map, Value, json};

use super::*;
use crate::upstream::{UpstreamOptions, encode_whole};

const PIXEL: &str = "iVBORw0KGgo=";

/// The messages of a request in which a tool returned these parts.
fn told(dialect: Dialect, model: &str, parts: Vec<Part>) -> Value {
    let call = ToolCall {
        id: "a".to_owned(),
        name: "look".to_owned(),
        arguments: Arguments::parse("{}"),
        rest: Map::new(),
    };
    let result = ToolResult { name: Some("look".to_owned()), ..ToolResult::new("a", Content::Parts(parts)) };
    let said = AssistantMessage { calls: vec![call], ..AssistantMessage::default() };
    let request = ModelRequest {
        messages: vec![Message::Assistant(said), Message::Tool(result)],
        ..ModelRequest::default()
    };
    encode_whole(dialect, model, &request, &UpstreamOptions::default()).expect("it can be said")
}

fn image(kind: &str) -> Part {
    Part::Image { url: format!("data:{kind};base64,{PIXEL}"), detail: None }
}

fn recording(format: &str) -> Part {
    Part::Other(json!({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": format}}))
}

fn document() -> Part {
    let file = json!({"filename": "r.pdf", "file_data": "data:application/pdf;base64,JVBERg=="});
    Part::Other(json!({"type": "file", "file": file}))
}

fn everything() -> Vec<Part> {
    vec![Part::Text("seen:".to_owned()), image("image/png"), recording("wav"), document()]
}

/// The message after a result that says where what it cannot hold is.
fn after_a_result_in_words(dialect: Dialect, model: &str) -> Value {
    let mut body = told(dialect, model, everything());
    let lines = "seen:\n[image 1: in the next user message]\n[audio/wav, 4 bytes: this model cannot be shown it]\n\
                 [application/pdf, 4 bytes: this model cannot be shown it]";
    assert_eq!(body["messages"][1]["content"], lines);
    body["messages"][2].take()
}

#[test]
fn anthropic_takes_images_and_documents_inside_of_results() {
    let body = told(Dialect::Anthropic, "claude-x", everything());
    let result = &body["messages"].as_array().and_then(|all| all.last()).expect("a message")["content"][0];
    let expected = json!([
        {"type": "text", "text": "seen:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "text", "text": "[audio/wav, 4 bytes: this model cannot be shown it]"},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}, "title": "r.pdf"},
    ]);
    assert_eq!((&result["type"], &result["content"]), (&json!("tool_result"), &expected));
}

#[test]
fn responses_take_images_and_files_inside_of_outputs() {
    let body = told(Dialect::OpenaiResponses, "gpt-x", everything());
    let output = &body["input"].as_array().and_then(|all| all.last()).expect("an item")["output"];
    let expected = json!([
        {"type": "input_text", "text": "seen:"},
        {"type": "input_image", "image_url": format!("data:image/png;base64,{PIXEL}"), "detail": "auto"},
        {"type": "input_text", "text": "[audio/wav, 4 bytes: this model cannot be shown it]"},
        {"type": "input_file", "filename": "r.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
    ]);
    assert_eq!(*output, expected);
}

#[test]
fn chat_completions_take_media_in_the_next_message_where_the_model_knows_them() {
    let next = after_a_result_in_words(Dialect::OpenaiChat, "llama");
    assert_eq!(next["content"].as_array().map(Vec::len), Some(2));
    let kinds = |model: &str| -> Vec<String> {
        let body = told(Dialect::OpenaiChat, model, everything());
        let parts = body["messages"][2]["content"].as_array().cloned().unwrap_or_default();
        let kinds = parts.iter().filter_map(|part| part["type"].as_str());
        kinds.filter(|kind| *kind != "text").map(str::to_owned).collect()
    };
    assert_eq!(kinds("gpt-audio"), ["image_url", "input_audio"]);
    assert_eq!(kinds("openai/gpt-5.1"), ["image_url", "file"]);
    assert_eq!(kinds("google/gemini-3-pro"), ["image_url", "input_audio", "file"]);
}

#[test]
fn gemini_takes_media_inside_of_results_from_its_third_version_on() {
    let body = told(Dialect::Gemini, "gemini-3-pro", everything());
    let contents = body["contents"].as_array().and_then(|all| all.last()).expect("a content");
    let response = &contents["parts"][0]["functionResponse"];
    assert_eq!(response["parts"].as_array().map(Vec::len), Some(2));
    let sound = json!({"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}});
    assert!(contents["parts"].as_array().is_some_and(|parts| parts.contains(&sound)), "{contents}");
    let older = told(Dialect::Gemini, "gemini-2.5-flash", vec![image("image/png"), image("image/gif")]);
    let contents = older["contents"].as_array().and_then(|all| all.last()).expect("a content");
    let output = &contents["parts"][0]["functionResponse"]["response"]["output"];
    assert_eq!(*output, "[image 1: below]\n[image/gif, 8 bytes: this model cannot be shown it]");
    assert_eq!(contents["parts"][2]["inlineData"]["data"], PIXEL);
}

#[test]
fn ollama_takes_images_in_the_next_message() {
    let next = after_a_result_in_words(Dialect::Ollama, "llava");
    assert_eq!(next["images"], json!([PIXEL]));
}

#[test]
fn a_part_of_an_unknown_kind_costs_no_request_in_any_dialect() {
    let dialects =
        [Dialect::OpenaiChat, Dialect::OpenaiResponses, Dialect::Anthropic, Dialect::Gemini, Dialect::Ollama];
    for dialect in dialects {
        let odd = vec![Part::Other(json!({"type": "hologram"})), image("image/png")];
        let body = told(dialect, "m", odd).to_string();
        assert!(body.contains("[content of type `hologram`, which this model cannot be shown]"), "{body}");
        assert!(!body.contains(r#""type":"hologram""#), "{body}");
    }
}

#[test]
fn what_is_told_of_a_result_lists_its_media() {
    let content = Content::Parts(everything());
    let expected = [
        json!({"mime_type": "image/png", "bytes": 8}),
        json!({"mime_type": "audio/wav", "bytes": 4}),
        json!({"mime_type": "application/pdf", "bytes": 4}),
    ];
    assert_eq!(listed(&content), expected);
    assert!(listed(&"text".into()).is_empty());
}
