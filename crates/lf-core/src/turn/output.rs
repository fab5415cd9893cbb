//! What a tool returned, as the model is told it.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::message::{Content, Part, ToolCall, ToolResult};
use crate::results::{MAX_KEPT, Room};
use crate::tool::media::{self, Media, Unreadable};
use crate::tool::{ToolContent, ToolOutput};
use crate::visible;

/// Base64 of all media of one result, in bytes: several of them still fit the 20 MB that a request to Gemini may have.
const MAX_MEDIA: usize = 10 * 1024 * 1024;
/// Media of one result: as many images as Claude takes in one conversation without reducing them.
const MAX_ITEMS: usize = 20;
/// What every API that takes images takes, or Gemini alone refuses (`image/gif`).
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const RECORDINGS: [&str; 5] = ["audio/wav", "audio/mp3", "audio/ogg", "audio/flac", "audio/aac"];
const PDF: &str = "application/pdf";

/// The text of a result that did not fit.
#[derive(Debug, PartialEq, Eq)]
pub struct Cut {
    /// What there is of it to keep.
    pub whole: String,
    /// Bytes of it that the model is shown.
    pub shown: usize,
    /// Bytes that the tool returned.
    pub size: usize,
    /// Nothing is missing in `whole`.
    pub is_all: bool,
}

/// A tool's output as the result of a call. Text beyond the room for it is cut, which the caller has to say. Images,
/// recordings and PDF documents stay what they are, for dialects that can show them; what is broken, too large or of no
/// type that models know becomes a note in its place.
pub fn result_for_model(call: &ToolCall, output: ToolOutput, room: Room) -> (ToolResult, Option<Cut>) {
    let mut told = Told::within(room);
    let structured = output.structured.filter(|value| !is_told(value, &output.content));
    for content in output.content {
        told.content(content);
    }
    if let Some(structured) = structured {
        told.text(&structured.to_string());
    }
    let (mut parts, cut) = told.finish();
    let content = match parts.len() {
        0 => Content::default(),
        1 => match parts.pop() {
            Some(Part::Text(text)) => Content::Text(text),
            other => Content::Parts(other.into_iter().collect()),
        },
        _ => Content::Parts(parts),
    };
    let result = ToolResult {
        name: Some(call.name.clone()),
        is_error: output.is_error,
        ..ToolResult::new(call.id.clone(), content)
    };
    (result, cut)
}

/// Whether the texts say what the structured content says: the specification (2025-06-18 and later) wants servers to
/// repeat it as JSON, and FastMCP wraps what is no object in a `result`. Where they do not, both are told: some servers
/// put a summary into the text and the facts into the structure.
fn is_told(structured: &Value, content: &[ToolContent]) -> bool {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|content| match content {
            ToolContent::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let wrapped =
        structured.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.get("result"));
    [Some(structured), wrapped].into_iter().flatten().any(|value| match value {
        Value::Array(items) if items.len() == texts.len() && items.len() != 1 => {
            texts.iter().zip(items).all(|(text, item)| says(text, item))
                || texts.iter().any(|text| says(text, value))
        }
        value => texts.iter().any(|text| says(text, value)),
    })
}

fn says(text: &str, value: &Value) -> bool {
    match value {
        Value::String(string) => text == string,
        Value::Null => text.is_empty() || text == "null",
        value => serde_json::from_str::<Value>(text).is_ok_and(|read| read == *value),
    }
}

/// The parts so far.
struct Told {
    parts: Vec<Part>,
    /// What still fits.
    room: Room,
    /// Bytes of text there were.
    seen: usize,
    cut: Option<Cut>,
    items: usize,
    media: usize,
    /// Media that were left out because there were too many.
    left_out: usize,
}

impl Told {
    fn within(room: Room) -> Self {
        Self { parts: Vec::new(), room, seen: 0, cut: None, items: 0, media: 0, left_out: 0 }
    }

    fn content(&mut self, content: ToolContent) {
        match content {
            ToolContent::Text(text) => self.text(&text),
            ToolContent::Image { data, mime_type } => self.media(&data, Some(&mime_type), None),
            ToolContent::Audio { data, mime_type } => self.media(&data, Some(&mime_type), None),
            ToolContent::Resource { uri, text: Some(text), .. } => self.text(&format!("[{uri}]\n{text}")),
            ToolContent::Resource { uri, mime_type, blob: Some(blob), .. } => {
                self.media(&blob, mime_type.as_deref(), Some(&uri));
            }
            ToolContent::Resource { uri, mime_type, .. } => {
                let kind = mime_type.as_deref().unwrap_or("of unknown type");
                self.text(&format!("[{uri}, {kind}: empty]"));
            }
            ToolContent::ResourceLink { uri, name, description, mime_type } => {
                let kind = mime_type.map_or_else(String::new, |kind| format!(" ({kind})"));
                self.text(&match description {
                    Some(description) => format!("[{name}]({uri}){kind}: {description}"),
                    None => format!("[{name}]({uri}){kind}"),
                });
            }
            ToolContent::Other(value) => self.text(&value.to_string()),
        }
    }

    /// Text, as far as it fits. Texts in a row are one.
    fn text(&mut self, text: &str) {
        let is_first = !matches!(self.parts.last(), Some(Part::Text(_)));
        let between = if is_first { "" } else { "\n" };
        self.seen += between.len() + text.len();
        let left = MAX_KEPT.saturating_sub(self.cut.as_ref().map_or(0, |cut| cut.whole.len()));
        // more than can be kept of it is not looked at, however long it is
        let near = &text[..text.floor_char_boundary(left.saturating_mul(2).saturating_add(64))];
        let clean = visible::data(near);
        let is_near = near.len() == text.len();
        if let Some(cut) = &mut self.cut {
            cut.is_all &= is_near;
            cut.add("\n");
            return cut.add(&clean);
        }
        self.room.take(between);
        let keep = self.room.fits(&clean);
        self.room.take(&clean[..keep]);
        if keep == clean.len() || keep > 0 {
            match self.parts.last_mut() {
                Some(Part::Text(before)) => {
                    before.push_str(between);
                    before.push_str(&clean[..keep]);
                }
                _ => self.parts.push(Part::Text(clean[..keep].to_owned())),
            }
        }
        if keep < clean.len() || !is_near {
            let shown: Vec<&str> = self.parts.iter().filter_map(text_of).collect();
            let whole = shown.join("\n");
            let mut cut = Cut { shown: whole.len(), whole, size: 0, is_all: is_near };
            if keep == 0 && cut.shown > 0 {
                cut.add("\n");
            }
            cut.add(&clean[keep..]);
            self.cut = Some(cut);
        }
    }

    /// What is base64, by what it really is.
    fn media(&mut self, data: &str, claimed: Option<&str>, uri: Option<&str>) {
        let claimed = claimed.map(essence);
        let what = claimed.as_deref().unwrap_or("attachment of unknown type");
        let called = uri.map_or_else(String::new, |uri| format!("{uri}, "));
        if self.items >= MAX_ITEMS || self.media + data.len().min(media::MAX_ITEM) > MAX_MEDIA {
            self.left_out += 1;
            return;
        }
        let media = match media::read(data) {
            Ok(media) => media,
            Err(unreadable) => {
                let problem = match unreadable {
                    Unreadable::Empty => "empty".to_owned(),
                    Unreadable::NotBase64 => "broken: what the tool sent is not base64".to_owned(),
                    Unreadable::TooLarge(bytes) => format!("{bytes} bytes, too large to be shown"),
                };
                return self.text(&format!("[{called}{what}: {problem}]"));
            }
        };
        let sniffed = media::sniff(&media.bytes);
        let kind = sniffed.map_or_else(|| claimed.clone().unwrap_or_default(), Cow::Borrowed);
        let size = media.bytes.len();
        if let Some(part) = sniffed.and_then(|kind| part(kind, &media, uri)) {
            self.items += 1;
            self.media += media.base64.len();
            self.parts.push(part);
            return;
        }
        match std::str::from_utf8(&media.bytes) {
            // such as JSON or SVG, which a server may send as a blob
            Ok(text) if sniffed.is_none() && is_text(&kind, text) => {
                let text = text.strip_prefix('\u{feff}').unwrap_or(text);
                match uri {
                    Some(uri) => self.text(&format!("[{uri}]\n{text}")),
                    None => self.text(text),
                }
            }
            _ if is_media(&kind) && sniffed.is_none() => {
                self.text(&format!("[{called}{what}: broken, {size} bytes that are nothing of the kind]"));
            }
            _ => {
                let kind = if kind.is_empty() { what } else { &kind };
                self.text(&format!("[{called}{kind}, {size} bytes: a model cannot be shown this]"));
            }
        }
    }

    fn finish(mut self) -> (Vec<Part>, Option<Cut>) {
        if self.left_out > 0 {
            let note = format!("\n[{} more attachments were left out]", self.left_out);
            match self.parts.iter_mut().rev().find_map(text_mut) {
                Some(text) => text.push_str(&note),
                None => self.parts.push(Part::Text(note.trim_start().to_owned())),
            }
        }
        let seen = self.seen;
        (self.parts, self.cut.map(|cut| Cut { size: seen, ..cut }))
    }
}

impl Cut {
    fn add(&mut self, text: &str) {
        let left = MAX_KEPT.saturating_sub(self.whole.len());
        let fits = text.floor_char_boundary(left);
        self.is_all &= fits == text.len();
        self.whole.push_str(&text[..fits]);
    }
}

/// The part for media that dialects know, in the spelling of OpenAI Chat Completions. `kind` is what the bytes tell.
fn part(kind: &str, media: &Media<'_>, uri: Option<&str>) -> Option<Part> {
    let data = &media.base64;
    if IMAGES.contains(&kind) {
        return Some(Part::Image { url: format!("data:{kind};base64,{data}"), detail: None });
    }
    if RECORDINGS.contains(&kind) {
        let format = kind.trim_start_matches("audio/");
        return Some(Part::Other(
            json!({"type": "input_audio", "input_audio": {"data": data, "format": format}}),
        ));
    }
    (kind == PDF).then(|| {
        let file = json!({"filename": file_name(uri), "file_data": format!("data:{PDF};base64,{data}")});
        Part::Other(json!({"type": "file", "file": file}))
    })
}

/// The last part of a URI, as the name of a file.
fn file_name(uri: Option<&str>) -> String {
    let path = uri.unwrap_or_default().split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let name: String =
        name.chars().filter(|c| c.is_alphanumeric() || "._- ".contains(*c)).take(100).collect();
    match name.trim_matches(['.', ' ']) {
        "" => "document.pdf".to_owned(),
        name if name.to_ascii_lowercase().ends_with(".pdf") => name.to_owned(),
        name => format!("{name}.pdf"),
    }
}

/// Without parameters, in the usual case; `audio/mp3` whatever it is called.
fn essence(mime_type: &str) -> Cow<'_, str> {
    let kind = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "audio/mpeg" | "audio/x-mp3" | "audio/mpeg3" => Cow::Borrowed("audio/mp3"),
        "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => Cow::Borrowed("audio/wav"),
        "image/jpg" => Cow::Borrowed("image/jpeg"),
        _ => Cow::Owned(kind.chars().filter(|c| c.is_ascii_graphic()).take(100).collect()),
    }
}

/// Whether bytes that are text are meant as one.
fn is_text(kind: &str, text: &str) -> bool {
    kind == "image/svg+xml" || !is_media(kind) && !text.contains('\0')
}

fn is_media(kind: &str) -> bool {
    ["image/", "audio/", "video/"].iter().any(|family| kind.starts_with(family)) || kind == PDF
}

fn text_mut(part: &mut Part) -> Option<&mut String> {
    match part {
        Part::Text(text) => Some(text),
        _ => None,
    }
}

fn text_of(part: &Part) -> Option<&str> {
    match part {
        Part::Text(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
