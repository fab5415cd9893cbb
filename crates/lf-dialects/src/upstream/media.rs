//! What the parts of a message hold, whatever dialect they came in, for APIs that take data and addresses apart.

use std::borrow::Cow;

use lf_core::{Content, ModelError, Part};
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece<'a> {
    /// As it was given, or a note in place of what an API does not take.
    Text(Cow<'a, str>),
    Media(Media<'a>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Media<'a> {
    /// The MIME type: told, or guessed from the address.
    pub(crate) kind: Cow<'a, str>,
    pub(crate) source: Source<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// In base64.
    Data(&'a str),
    Url(&'a str),
}

impl Piece<'_> {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }
}

impl Media<'_> {
    /// What a person calls it.
    pub(crate) fn noun(&self) -> &'static str {
        match self.kind.split('/').next() {
            Some("image") => "image",
            Some("audio") => "audio",
            Some("video") => "video",
            _ => "file",
        }
    }
}

/// The parts of a tool's result. What the API does not take becomes a note: nothing that a tool returns may cost the
/// request.
pub(crate) fn shown<'a>(content: &'a Content, takes: impl Fn(&Media<'_>) -> bool) -> Vec<Piece<'a>> {
    let parts = match content {
        Content::Text(text) => return vec![Piece::Text(Cow::Borrowed(text))],
        Content::Parts(parts) => parts,
    };
    let shown = parts.iter().map(|part| match piece(part) {
        Ok(Piece::Media(media)) if !takes(&media) => Piece::Text(Cow::Owned(note(part))),
        Ok(piece) => piece,
        Err(_) => Piece::Text(Cow::Owned(note(part))),
    });
    shown.filter(|piece| !piece.is_empty()).collect()
}

/// What a model is told in place of a part that it cannot be shown.
pub(crate) fn note(part: &Part) -> String {
    match piece(part) {
        Ok(Piece::Text(text)) => text.into_owned(),
        Ok(Piece::Media(Media { kind, source: Source::Data(data) })) => {
            let size = decoded_length(data);
            format!("[{kind}, {size} bytes: this model cannot be shown it]")
        }
        Ok(Piece::Media(Media { kind, source: Source::Url(url) })) => {
            format!("[{kind} at {url}: this model cannot be shown it]")
        }
        Err(_) => {
            let kind = match part {
                Part::Other(value) => value["type"].as_str().unwrap_or("unknown"),
                Part::Text(_) | Part::Image { .. } => "unknown",
            };
            format!("[content of type `{kind}`, which this model cannot be shown]")
        }
    }
}

/// What is told of the media of a result: their types, and their sizes where they came with it.
pub(crate) fn listed(content: &Content) -> Vec<Value> {
    let Content::Parts(parts) = content else { return Vec::new() };
    let media = parts.iter().filter_map(|part| match piece(part) {
        Ok(Piece::Media(media)) => Some(media),
        Ok(Piece::Text(_)) | Err(_) => None,
    });
    media
        .map(|media| match media.source {
            Source::Data(data) => json!({"mime_type": media.kind, "bytes": decoded_length(data)}),
            Source::Url(url) => json!({"mime_type": media.kind, "url": url}),
        })
        .collect()
}

fn decoded_length(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

/// The pieces of a content, without empty texts.
///
/// # Errors
/// [`ModelError::Unsupported`] for a part that is neither text nor media.
pub(crate) fn pieces(content: &Content) -> Result<Vec<Piece<'_>>, ModelError> {
    let mut pieces = match content {
        Content::Text(text) => vec![Piece::Text(Cow::Borrowed(text))],
        Content::Parts(parts) => parts.iter().map(piece).collect::<Result<_, _>>()?,
    };
    pieces.retain(|piece| !piece.is_empty());
    Ok(pieces)
}

fn piece(part: &Part) -> Result<Piece<'_>, ModelError> {
    let value = match part {
        Part::Text(text) => return Ok(Piece::Text(Cow::Borrowed(text))),
        Part::Image { url, .. } => return media(url, "image/jpeg"),
        Part::Other(value) => value,
    };
    let kind = value["type"].as_str().unwrap_or_default();
    let within = |key: &str| value[kind][key].as_str();
    match kind {
        "text" | "refusal" => Ok(Piece::Text(value[kind].as_str().unwrap_or_default().into())),
        "image_url" => match within("url").or_else(|| value["image_url"].as_str()) {
            Some(url) => media(url, "image/jpeg"),
            None => Err(unreadable(kind)),
        },
        "video_url" => within("url").map_or_else(|| Err(unreadable(kind)), |url| media(url, "video/mp4")),
        "input_audio" => match (within("data"), within("format")) {
            (Some(data), format) => {
                let kind = Cow::Owned(format!("audio/{}", format.unwrap_or("wav")));
                Ok(Piece::Media(Media { kind, source: Source::Data(data) }))
            }
            (None, _) => Err(unreadable(kind)),
        },
        "file" => match within("file_data") {
            Some(data) if data.contains(':') => media(data, "application/pdf"),
            // some clients send the bare base64
            Some(data) if within("filename").is_some() => {
                let kind = guess(within("filename").unwrap_or_default()).unwrap_or("application/pdf");
                Ok(Piece::Media(Media { kind: kind.into(), source: Source::Data(data) }))
            }
            _ => Err(ModelError::Unsupported(
                "a `file` part is only taken with its content: send `file_data` as a `data:` URL".to_owned(),
            )),
        },
        _ => Err(unreadable(kind)),
    }
}

fn unreadable(kind: &str) -> ModelError {
    ModelError::Unsupported(format!("a content part of type `{kind}` has no counterpart for this model"))
}

/// `usual` is the type of an address that does not show its own.
fn media<'a>(url: &'a str, usual: &'static str) -> Result<Piece<'a>, ModelError> {
    let Some(rest) = url.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("data:")).map(|_| &url[5..])
    else {
        let kind = guess(url).unwrap_or(usual).into();
        return Ok(Piece::Media(Media { kind, source: Source::Url(url) }));
    };
    let (head, data) = rest.split_once(',').unwrap_or((rest, ""));
    let Some(head) = head.strip_suffix(";base64") else {
        let message = "a `data:` URL is only taken in base64: write `data:TYPE;base64,…`";
        return Err(ModelError::Unsupported(message.to_owned()));
    };
    let kind = head.split(';').next().filter(|kind| !kind.is_empty()).unwrap_or(usual);
    Ok(Piece::Media(Media { kind: kind.into(), source: Source::Data(data) }))
}

/// The MIME type that the ending of a name or address says.
fn guess(name: &str) -> Option<&'static str> {
    let path = name.split(['?', '#']).next().unwrap_or_default();
    let (_, ending) = path.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "heic" => "image/heic",
        "heif" => "image/heif",
        "pdf" => "application/pdf",
        "txt" | "md" => "text/plain",
        "html" | "htm" => "text/html",
        "csv" => "text/csv",
        "json" => "application/json",
        "wav" => "audio/wav",
        "mp3" => "audio/mp3",
        "ogg" => "audio/ogg",
        "flac" => "audio/flac",
        "mp4" => "video/mp4",
        "mov" => "video/mov",
        "webm" => "video/webm",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
