//! Reads content blocks.

use lf_core::{Content, Part, Prose};
use serde_json::{Map, Value, json};

use super::ANTHROPIC_ONLY;
use crate::openai_chat::RequestError;

/// Begins the block that coding assistants put first: billing facts, new with each request, and nothing for a model.
/// Sent on, they would keep every prefix cache from working.
const ATTRIBUTION: &str = "x-anthropic-billing-header";

/// Key of a mark that is the block as it came.
pub(super) const WHOLE: &str = "$block";

/// What a message's content became.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) parts: Vec<Part>,
    /// By index of the part: fields that only Anthropic knows, such as `cache_control`.
    marks: Map<String, Value>,
}

impl Parts {
    pub(super) fn push(&mut self, part: Part) {
        self.parts.push(part);
    }

    pub(super) fn text(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() {
            self.push(Part::Text(text));
        }
    }

    /// Notes the fields of the block that the last part does not say.
    fn mark(&mut self, block: &Value, told: &[&str]) {
        let Some(last) = self.parts.len().checked_sub(1) else { return };
        let marks: Map<String, Value> = block
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, value)| !told.contains(&key.as_str()) && !value.is_null())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !marks.is_empty() {
            self.marks.insert(last.to_string(), marks.into());
        }
    }

    /// Notes the whole block, of which the last part is a rendering.
    fn keep(&mut self, block: &Value) {
        if let Some(last) = self.parts.len().checked_sub(1) {
            self.marks.insert(last.to_string(), json!({WHOLE: block}));
        }
    }

    /// One text is a plain string, which every upstream takes; and the fields for Anthropic.
    pub(super) fn finish(mut self) -> (Content, Map<String, Value>) {
        let mut rest = Map::new();
        if !self.marks.is_empty() {
            rest.insert(ANTHROPIC_ONLY.to_owned(), json!({"marks": self.marks}));
        }
        let content = match self.parts.as_mut_slice() {
            [] => Content::default(),
            [Part::Text(text)] => Content::Text(std::mem::take(text)),
            _ => Content::Parts(self.parts),
        };
        (content, rest)
    }
}

/// A system prompt: text only, its blocks joined. The blocks themselves are kept for Anthropic.
pub(super) fn system(path: &str, value: Value) -> Result<Prose, RequestError> {
    let blocks = match value {
        Value::String(text) => {
            return Ok(Prose { content: without_attribution(&text).into(), ..Prose::default() });
        }
        Value::Array(blocks) => blocks,
        other => return Err(RequestError::expected(path, "a string or an array of blocks", &other)),
    };
    if let Some(at) = blocks.iter().position(|block| !block["text"].is_string()) {
        let path = format!("{path}[{at}].text");
        return Err(RequestError::expected(&path, "a string", &blocks[at]["text"]));
    }
    let content = Content::Text(joined(&blocks).unwrap_or_default());
    let mut rest = Map::new();
    if !blocks.is_empty() {
        rest.insert(ANTHROPIC_ONLY.to_owned(), json!({"content": blocks}));
    }
    Ok(Prose { content, rest })
}

/// The text that is made of a system prompt's blocks; `None` where there is none.
pub(super) fn joined(blocks: &[Value]) -> Option<String> {
    let texts = blocks.iter().filter_map(|block| block["text"].as_str()).map(without_attribution);
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

fn without_attribution(text: &str) -> &str {
    if !text.starts_with(ATTRIBUTION) {
        return text;
    }
    text.split_once('\n').map_or("", |(_, rest)| rest)
}

/// Content that has no calls and no results in it.
pub(super) fn content(path: &str, value: Option<Value>) -> Result<Parts, RequestError> {
    let mut parts = Parts::default();
    match value {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => parts.text(text),
        Some(Value::Array(blocks)) => {
            for (at, block) in blocks.iter().enumerate() {
                read(&format!("{path}[{at}]"), block, &mut parts)?;
            }
        }
        Some(other) => return Err(RequestError::expected(path, "a string or an array of blocks", &other)),
    }
    Ok(parts)
}

/// One block of a user's message or of a tool's result.
pub(super) fn read(path: &str, block: &Value, parts: &mut Parts) -> Result<(), RequestError> {
    match kind(path, block)? {
        "text" => {
            let Value::String(text) = &block["text"] else {
                return Err(RequestError::expected(&format!("{path}.text"), "a string", &block["text"]));
            };
            if !text.is_empty() {
                parts.text(text.as_str());
                parts.mark(block, &["type", "text"]);
            }
        }
        "image" => {
            let url = image(&format!("{path}.source"), &block["source"])?;
            parts.push(Part::Image { url, detail: None });
            parts.mark(block, &["type", "source"]);
        }
        "document" => document(path, block, parts)?,
        "search_result" => {
            let found = content(&format!("{path}.content"), block.get("content").cloned())?;
            let word = |key: &str| block[key].as_str().unwrap_or_default();
            let (text, _) = found.finish();
            parts.text(format!("[{}]({})\n{}", word("title"), word("source"), text.text()));
            parts.keep(block);
        }
        _ => {
            parts.text(in_words(block));
            parts.keep(block);
        }
    }
    Ok(())
}

pub(super) fn kind<'a>(path: &str, block: &'a Value) -> Result<&'a str, RequestError> {
    let kind_path = format!("{path}.type");
    match block.get("type") {
        _ if !block.is_object() => Err(RequestError::expected(path, "an object", block)),
        None => Err(RequestError::missing(&kind_path, "such as `text`")),
        Some(Value::String(kind)) => Ok(kind),
        Some(other) => Err(RequestError::expected(&kind_path, "a string", other)),
    }
}

/// A block that no other dialect knows, for the model to read: new kinds must not stop a conversation. What only
/// Anthropic can read of it is left out.
pub(super) fn in_words(block: &Value) -> String {
    const SEALED: [&str; 5] =
        ["encrypted_content", "encrypted_index", "cache_control", "signature", "citations"];
    fn open(value: &mut Value) {
        match value {
            Value::Object(object) => {
                object.retain(|key, _| !SEALED.contains(&key.as_str()));
                object.values_mut().for_each(open);
            }
            Value::Array(list) => list.iter_mut().for_each(open),
            _ => {}
        }
    }
    let mut block = block.clone();
    open(&mut block);
    format!("[{block}]")
}

fn image(path: &str, source: &Value) -> Result<String, RequestError> {
    let word = |key: &str| blocks_string(path, key, source);
    match kind(path, source)? {
        "base64" => Ok(format!("data:{};base64,{}", word("media_type")?, word("data")?)),
        "url" => word("url"),
        other => Err(stored(path, other)),
    }
}

fn blocks_string(path: &str, key: &str, source: &Value) -> Result<String, RequestError> {
    string(&format!("{path}.{key}"), source.get(key).cloned())
}

fn stored(path: &str, kind: &str) -> RequestError {
    let message = format!("a source of type `{kind}` is stored at Anthropic and cannot be read from here");
    RequestError::unsupported(&format!("{path}.type"), &message, "send the content itself, as `base64`")
}

/// Text documents become text with their title; a PDF becomes a file, which OpenAI takes.
fn document(path: &str, block: &Value, parts: &mut Parts) -> Result<(), RequestError> {
    let source_path = format!("{path}.source");
    let source = &block["source"];
    let title = block["title"].as_str().filter(|title| !title.is_empty());
    let mut head = title.map(|title| format!("[document: {title}]\n")).unwrap_or_default();
    if let Some(context) = block["context"].as_str().filter(|context| !context.is_empty()) {
        head.push_str(context);
        head.push('\n');
    }
    match kind(&source_path, source)? {
        "text" => {
            parts.text(head + &blocks_string(&source_path, "data", source)?);
            parts.keep(block);
            return Ok(());
        }
        "content" => {
            parts.text(head.trim_end());
            let inner = content(&format!("{source_path}.content"), source.get("content").cloned())?;
            parts.parts.extend(inner.parts);
            parts.mark(block, &["type", "source", "title", "context", "citations"]);
            return Ok(());
        }
        "base64" => {
            let media = blocks_string(&source_path, "media_type", source)?;
            let data = blocks_string(&source_path, "data", source)?;
            parts.text(block["context"].as_str().unwrap_or_default());
            let name = title.unwrap_or("document.pdf");
            let file = json!({"filename": name, "file_data": format!("data:{media};base64,{data}")});
            parts.push(Part::Other(json!({"type": "file", "file": file})));
        }
        "url" => {
            let message = "a document behind a URL is not fetched for other models than Anthropic's";
            let hint = "send its content, as `base64` or `text`";
            return Err(RequestError::unsupported(&format!("{source_path}.type"), message, hint));
        }
        other => return Err(stored(&source_path, other)),
    }
    parts.mark(block, &["type", "source"]);
    Ok(())
}

/// A string that is there and not empty.
pub(super) fn string(path: &str, value: Option<Value>) -> Result<String, RequestError> {
    match value {
        Some(Value::String(text)) if text.is_empty() => {
            Err(RequestError::value(path, format!("`{path}` is empty"), ""))
        }
        Some(Value::String(text)) => Ok(text),
        None | Some(Value::Null) => Err(RequestError::missing(path, "a string is needed")),
        Some(other) => Err(RequestError::expected(path, "a string", &other)),
    }
}
