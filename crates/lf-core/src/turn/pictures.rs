//! Images, where a model takes none: a note stands in their place.

use crate::event::ChatEvent;
use crate::message::{Content, Message, Part};

use super::Turn;

/// Characters of an address that a note repeats.
const SHOWN: usize = 200;

impl Turn {
    /// Says so once where an image is not shown.
    pub(super) fn notice_pictures(&mut self, has: bool, events: &mut Vec<ChatEvent>) {
        if has && !self.images {
            self.notice(
                "the model is shown a note in the place of images: it is taken to read text only, unless its entry says \
                 `input: [text, image]`"
                    .to_owned(),
                events,
            );
        }
    }
}

pub(super) fn any(messages: &[Message]) -> bool {
    messages.iter().any(|message| has(content(message)))
}

pub(super) fn has(content: &Content) -> bool {
    matches!(content, Content::Parts(parts) if parts.iter().any(|part| matches!(part, Part::Image { .. })))
}

/// Puts a note in the place of every image.
pub(super) fn as_notes(messages: &mut [Message]) {
    for message in messages {
        let content = match message {
            Message::System(prose) | Message::User(prose) => &mut prose.content,
            Message::Assistant(said) => &mut said.content,
            Message::Tool(result) => &mut result.content,
        };
        let Content::Parts(parts) = content else { continue };
        for part in parts.iter_mut() {
            if let Part::Image { url, .. } = part {
                *part = Part::Text(note(url));
            }
        }
    }
}

fn content(message: &Message) -> &Content {
    match message {
        Message::System(prose) | Message::User(prose) => &prose.content,
        Message::Assistant(said) => &said.content,
        Message::Tool(result) => &result.content,
    }
}

fn note(url: &str) -> String {
    let Some((head, data)) = url.strip_prefix("data:").and_then(|data| data.split_once(',')) else {
        let shown: String = url.chars().take(SHOWN).collect();
        return format!("[an image at {shown}, which this model cannot be shown]");
    };
    let kind = head.split(';').next().filter(|kind| !kind.is_empty()).unwrap_or("image");
    let kind: String = kind.chars().take(SHOWN).collect();
    let padding = data.bytes().rev().take(2).filter(|byte| *byte == b'=').count();
    let size = match head.ends_with(";base64") {
        true => (data.len() / 4 * 3).saturating_sub(padding),
        false => data.len(),
    };
    format!("[an image ({kind}, {size} bytes), which this model cannot be shown]")
}

#[cfg(test)]
mod tests;
