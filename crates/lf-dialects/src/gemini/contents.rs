//! Writes the messages of a request.

use std::collections::HashMap;

use lf_core::{AssistantMessage, Content, Message, ModelError, ToolCall, ToolResult};
use serde_json::{Value, json};

use super::{GEMINI_ONLY, SIGNATURE};
use crate::schema::SchemaTarget;
use crate::upstream::media::{Media, Piece, Source, pieces, shown};

/// The first content must be a user's, and none may be without parts.
const NOTHING: &str = "(nothing)";

/// In place of a signature, for calls that another model made: Google's documentation of thought signatures names it
/// for this, because Gemini 3 refuses a step whose first call has none.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// `None` where nothing is said.
pub(super) fn system(messages: &[Message]) -> Option<Value> {
    let texts = messages.iter().filter_map(|message| match message {
        Message::System(prose) => Some(prose.content.text()).filter(|text| !text.is_empty()),
        _ => None,
    });
    let parts: Vec<Value> = texts.map(|text| json!({ "text": text })).collect();
    (!parts.is_empty()).then(|| json!({ "parts": parts }))
}

/// `signed` models refuse calls without a signature, and take media inside of results.
pub(super) fn contents(messages: &[Message], signed: bool) -> Result<Vec<Value>, ModelError> {
    let mut writer = Writer { signed, out: Vec::with_capacity(messages.len() + 1), earlier: HashMap::new() };
    let same_round = |a: &Message, b: &Message| matches!((a, b), (Message::Tool(_), Message::Tool(_)));
    for run in messages.chunk_by(same_round) {
        match &run[0] {
            Message::Tool(_) => writer.results(run),
            Message::User(prose) => {
                let parts = content(&prose.content)?;
                writer.push("user", parts);
            }
            Message::System(prose) => {
                let text = format!("<system-reminder>\n{}\n</system-reminder>", prose.content.text());
                writer.push("user", vec![json!({ "text": text })]);
            }
            Message::Assistant(said) => writer.assistant(said)?,
        }
    }
    if writer.out.is_empty() {
        writer.push("user", Vec::new());
    }
    Ok(writer.out)
}

struct Writer<'a> {
    signed: bool,
    out: Vec<Value>,
    /// Calls by id; of those that share one the latest.
    earlier: HashMap<&'a str, &'a ToolCall>,
}

impl<'a> Writer<'a> {
    fn push(&mut self, role: &str, mut parts: Vec<Value>) {
        if parts.is_empty() && role == "model" {
            return;
        }
        if parts.is_empty() {
            parts.push(json!({ "text": NOTHING }));
        }
        match self.out.last_mut() {
            // a call is refused after a content that is the model's as well
            Some(last) if role == "model" && last["role"] == "model" => {
                if let Value::Array(earlier) = &mut last["parts"] {
                    earlier.extend(parts);
                }
                return;
            }
            None if role == "model" => self.push("user", Vec::new()),
            _ => {}
        }
        self.out.push(json!({"role": role, "parts": parts}));
    }

    fn assistant(&mut self, said: &'a AssistantMessage) -> Result<(), ModelError> {
        let mut parts = content(&said.content)?;
        for (at, call) in said.calls.iter().enumerate() {
            let mut part = json!({"functionCall": function_call(call)});
            match signature(call) {
                Some(signature) => part[SIGNATURE] = signature.clone(),
                None if at == 0 && self.signed => part[SIGNATURE] = NO_SIGNATURE.into(),
                None => {}
            }
            parts.push(part);
            self.earlier.insert(&call.id, call);
        }
        self.push("model", parts);
        Ok(())
    }

    /// All results of a round are one content.
    fn results(&mut self, run: &'a [Message]) {
        let mut parts = Vec::with_capacity(run.len());
        let mut beside = Beside::default();
        for message in run {
            if let Message::Tool(result) = message {
                parts.push(self.result(result, &mut beside));
            }
        }
        parts.extend(beside.parts);
        self.push("user", parts);
    }

    fn result(&self, result: &ToolResult, beside: &mut Beside) -> Value {
        let call = self.earlier.get(result.call_id.as_str());
        let name = result.name.as_deref().or_else(|| call.map(|call| call.name.as_str()));
        let name = wire_name(name.unwrap_or_default());
        let mut lines: Vec<String> = Vec::new();
        let mut inside: Vec<Value> = Vec::new();
        for part in shown(&result.content, is_read) {
            match part {
                Piece::Text(text) => lines.push(text.into_owned()),
                Piece::Media(media) if self.signed && fits_inside(&media) => {
                    inside.push(self::media(&media));
                    lines.push(format!("[{} {}: attached]", media.noun(), inside.len()));
                }
                Piece::Media(media) => lines.push(beside.add(&name, &media)),
            }
        }
        let key = if result.is_error { "error" } else { "output" };
        let mut response = json!({"name": name, "response": {key: lines.join("\n")}});
        if let Some(id) = call.and_then(|call| own_id(call)) {
            response["id"] = id.clone();
        }
        if !inside.is_empty() {
            response["parts"] = inside.into();
        }
        json!({"functionResponse": response})
    }
}

/// What results hold and older models cannot take inside of them: it stands behind all results of the round.
#[derive(Default)]
struct Beside {
    parts: Vec<Value>,
    count: usize,
}

impl Beside {
    /// Keeps it and gives the text that points to it.
    fn add(&mut self, name: &str, attached: &Media<'_>) -> String {
        self.count += 1;
        let (noun, count) = (attached.noun(), self.count);
        self.parts.push(json!({"text": format!("[{noun} {count} of a result of {name}]")}));
        self.parts.push(media(attached));
        format!("[{noun} {count}: below]")
    }
}

/// What these models read: other types are refused with the whole request.
fn is_read(media: &Media<'_>) -> bool {
    match media.noun() {
        "image" => !matches!(&*media.kind, "image/gif" | "image/svg+xml" | "image/bmp" | "image/tiff"),
        "audio" | "video" => true,
        _ => media.kind == "application/pdf" || media.kind.starts_with("text/"),
    }
}

/// Of media, results take these kinds, and no addresses.
fn fits_inside(media: &Media<'_>) -> bool {
    let kind = media.kind.as_ref();
    let known = matches!(kind, "image/png" | "image/jpeg" | "image/webp" | "application/pdf" | "text/plain");
    known && matches!(media.source, Source::Data(_))
}

fn content(content: &Content) -> Result<Vec<Value>, ModelError> {
    let parts = pieces(content)?.into_iter().map(|piece| match piece {
        Piece::Text(text) => json!({ "text": text }),
        Piece::Media(media) => self::media(&media),
    });
    Ok(parts.collect())
}

fn media(media: &Media<'_>) -> Value {
    match media.source {
        Source::Data(data) => json!({"inlineData": {"mimeType": media.kind, "data": data}}),
        Source::Url(url) => json!({"fileData": {"mimeType": media.kind, "fileUri": url}}),
    }
}

fn function_call(call: &ToolCall) -> Value {
    let args = call.arguments.value().cloned().unwrap_or_default();
    let mut out = json!({"name": wire_name(&call.name), "args": args});
    if let Some(id) = own_id(call) {
        out["id"] = id.clone();
    }
    out
}

/// A call without a name was answered with an error; it does not go back without one.
fn wire_name(name: &str) -> String {
    SchemaTarget::Gemini.name(if name.is_empty() { "unknown" } else { name })
}

/// The id that the API gave the call itself.
fn own_id(call: &ToolCall) -> Option<&Value> {
    call.rest.get(GEMINI_ONLY)?.get("id")
}

/// Google's OpenAI-compatible API keeps signatures elsewhere.
fn signature(call: &ToolCall) -> Option<&Value> {
    let elsewhere = || call.rest.get("extra_content")?.get("google")?.get("thought_signature");
    call.rest.get(SIGNATURE).or_else(elsewhere).filter(|signature| signature.is_string())
}
