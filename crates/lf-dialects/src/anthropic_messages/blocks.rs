//! Reads content blocks.

use lf_core::{Content, Part, Prose};
use serde_json::{Map, Value, json};

use super::ANTHROPIC_ONLY;
use crate::openai_chat::RequestError;

/// Begins the block that coding assistants put first: billing facts, new with each request, and nothing for a model.
/// Sent on, they would keep every prefix cache from working.
const ATTRIBUTION: &str = "x-anthropic-billing-header";

/// Key of a mark that is the block as it came; null where a later part of the same block has it.
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
        let marks: Map<String, Value> = block
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, value)| !told.contains(&key.as_str()) && !value.is_null())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !marks.is_empty() {
            self.note(self.parts.len(), marks.into());
        }
    }

    /// Notes the whole block, of which the parts from `start` on are a rendering.
    fn keep(&mut self, start: usize, block: &Value) {
        if self.parts.len() == start {
            self.text(in_words(block));
        }
        self.skip(start);
        self.note(self.parts.len(), json!({WHOLE: block}));
    }

    /// Notes that the last part stands for those from `start` on.
    fn skip(&mut self, start: usize) {
        for count in start + 1..self.parts.len() {
            self.note(count, json!({WHOLE: null}));
        }
    }

    /// Notes that the last part has a title that is not the client's.
    fn without_title(&mut self) {
        if let Some(at) = self.parts.len().checked_sub(1) {
            let mark = self.marks.entry(at.to_string()).or_insert_with(|| json!({}));
            mark["title"] = Value::Null;
        }
    }

    /// Marks the last of that many parts.
    fn note(&mut self, count: usize, mark: Value) {
        if let Some(at) = count.checked_sub(1) {
            self.marks.insert(at.to_string(), mark);
        }
    }

    /// A block that no other dialect can say: it is refused where it would have to be said.
    fn foreign(&mut self, block: &Value) {
        self.push(Part::Other(json!({"type": block["type"], ANTHROPIC_ONLY: block})));
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
        "image" => match image(&format!("{path}.source"), &block["source"])? {
            Some(url) => {
                let start = parts.parts.len();
                parts.push(Part::Image { url, detail: None });
                let plain = if block["source"]["type"] == "url" { 2 } else { 3 };
                if block["source"].as_object().is_some_and(|source| source.len() == plain) {
                    parts.mark(block, &["type", "source"]);
                } else {
                    parts.keep(start, block);
                }
            }
            None => parts.foreign(block),
        },
        "document" => document(path, block, parts)?,
        "search_result" => {
            let found = content(&format!("{path}.content"), block.get("content").cloned())?;
            let word = |key: &str| block[key].as_str().unwrap_or_default();
            let (text, _) = found.finish();
            let start = parts.parts.len();
            parts.text(format!("[{}]({})\n{}", word("title"), word("source"), text.text()));
            parts.keep(start, block);
        }
        _ => parts.keep(parts.parts.len(), block),
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

/// `None` where only Anthropic can get at it.
fn image(path: &str, source: &Value) -> Result<Option<String>, RequestError> {
    let word = |key: &str| blocks_string(path, key, source);
    Ok(match kind(path, source)? {
        "base64" => Some(format!("data:{};base64,{}", word("media_type")?, word("data")?)),
        "url" => Some(word("url")?),
        _ => None,
    })
}

fn blocks_string(path: &str, key: &str, source: &Value) -> Result<String, RequestError> {
    string(&format!("{path}.{key}"), source.get(key).cloned())
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
    let start = parts.parts.len();
    match kind(&source_path, source)? {
        "text" => {
            parts.text(head + &blocks_string(&source_path, "data", source)?);
            parts.keep(start, block);
        }
        "content" => {
            parts.text(head.trim_end());
            let inner = content(&format!("{source_path}.content"), source.get("content").cloned())?;
            parts.parts.extend(inner.parts);
            parts.keep(start, block);
        }
        "base64" => {
            let media = blocks_string(&source_path, "media_type", source)?;
            let data = blocks_string(&source_path, "data", source)?;
            parts.text(block["context"].as_str().unwrap_or_default());
            let name = title.unwrap_or("document.pdf");
            let file = json!({"filename": name, "file_data": format!("data:{media};base64,{data}")});
            parts.push(Part::Other(json!({"type": "file", "file": file})));
            parts.skip(start);
            parts.mark(block, &["type", "source"]);
            if title.is_none() {
                parts.without_title();
            }
        }
        // behind a URL, or stored at Anthropic
        _ => parts.foreign(block),
    }
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
