//! Collects pieces, and keeps back white space that a call may still swallow.

use super::{Piece, TextCall};

/// Bytes of white space that are kept back.
const MAX_GAP: usize = 1024;
/// Bytes of shown text that are remembered, to see that two of its parts do not make a tag together.
const TAIL: usize = 300;

#[derive(Debug, Default)]
pub(super) struct Output {
    pieces: Vec<Piece>,
    /// White space at the end of the text so far.
    gap: String,
    /// White space before what was taken out last.
    before: Option<String>,
    /// Whether text was shown at all.
    started: bool,
    /// Whether a `<` without its `>` is near the end of the shown text.
    open_angle: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Text,
    Reasoning,
}

impl Output {
    pub(super) fn take(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.pieces)
    }

    pub(super) fn push(&mut self, channel: Channel, character: char) {
        match channel {
            Channel::Reasoning => append(&mut self.pieces, channel, character),
            Channel::Text if character.is_whitespace() => {
                self.gap.push(character);
                if self.gap.len() >= MAX_GAP {
                    self.flush_gap();
                }
            }
            Channel::Text => {
                self.flush_gap();
                self.show(character);
            }
        }
    }

    pub(super) fn call(&mut self, call: TextCall) {
        self.removed();
        self.pieces.push(Piece::Call(call));
    }

    pub(super) fn malformed(&mut self, raw: &str, problem: String) {
        self.removed();
        self.pieces.push(Piece::Malformed { raw: raw.to_owned(), problem });
    }

    /// Something was taken out of the text here.
    pub(super) fn removed(&mut self) {
        let gap = std::mem::take(&mut self.gap);
        match &mut self.before {
            // only white space since the last thing that was taken out
            Some(_) => {}
            None => self.before = Some(gap),
        }
    }

    /// White space at the end is the text's own, unless it only led to a call.
    pub(super) fn finish(&mut self) {
        if self.before.is_none() {
            self.flush_gap();
        }
        self.gap.clear();
    }

    /// Text goes on: one of the gaps around what was taken out is shown.
    fn flush_gap(&mut self) {
        let mut gap = std::mem::take(&mut self.gap);
        if let Some(before) = self.before.take() {
            if !self.started {
                gap.clear();
            } else if gap.is_empty() {
                gap = before;
            }
            if gap.is_empty() && self.open_angle.is_some() {
                gap.push('\n');
            }
        }
        for character in gap.chars() {
            self.show(character);
        }
    }

    fn show(&mut self, character: char) {
        self.started |= !character.is_whitespace();
        self.open_angle = match (character, self.open_angle) {
            ('<', _) => Some(0),
            ('>' | '\n', _) => None,
            (_, Some(distance)) if distance < TAIL => Some(distance + 1),
            _ => None,
        };
        append(&mut self.pieces, Channel::Text, character);
    }
}

fn append(pieces: &mut Vec<Piece>, channel: Channel, character: char) {
    match (pieces.last_mut(), channel) {
        (Some(Piece::Text(text)), Channel::Text) | (Some(Piece::Reasoning(text)), Channel::Reasoning) => {
            text.push(character);
        }
        (_, Channel::Text) => pieces.push(Piece::Text(character.to_string())),
        (_, Channel::Reasoning) => pieces.push(Piece::Reasoning(character.to_string())),
    }
}
