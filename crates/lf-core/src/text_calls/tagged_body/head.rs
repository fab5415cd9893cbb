//! What stands between the opening tag of a call and its arguments: the name of the tool.

use super::super::TextEnd;
use super::super::body::{CUT, MAX_TRAILING, Progress, Window};
use super::super::format::{Head, Place};
use super::super::json_body::JsonBody;
use super::super::literals::is_name;
use super::super::marks::{self, Seen};
use super::super::tag::{MAX_TAG, attribute, near};
use super::super::typed;
use super::{Phase, TaggedBody};

impl TaggedBody {
    pub(super) fn read_head(&mut self, window: &Window<'_>) -> Option<Progress> {
        let opener = self.end;
        self.unwrapped = marks::any(window.format.open.iter().map(|&mark| marks::opens(window.text, mark)))
            == Seen::Yes(opener);
        let line = matches!(self.spec.head, Head::Line);
        if line {
            // not from the opener again: with each push that brings a blank, all before it would be read once more
            self.cursor = window.text.len() - window.at(self.cursor).trim_start().len();
            if self.cursor - opener > MAX_TRAILING {
                return Some(Progress::Prose);
            }
        }
        let start = self.cursor;
        let rest = window.at(start);
        let (length, after) = match self.spec.head {
            Head::Attribute { end, .. } => match near(rest, end).find(end) {
                Some(at) => (at, at + end.len()),
                // `end` may have begun before the limit
                None if (MAX_TAG + 1..MAX_TAG + end.len()).contains(&rest.len()) => {
                    return self.wait(window, Phase::Head, Progress::Prose);
                }
                None => (rest.len(), rest.len()),
            },
            Head::Inline => {
                let at = rest.find(['>', '\n', '<', '{']).unwrap_or(rest.len());
                (at, if rest[at..].starts_with('>') { at + 1 } else { at })
            }
            Head::Line if rest.starts_with(['{', '[']) => {
                self.phase = Phase::Json(Box::new(JsonBody::new(start)));
                return None;
            }
            Head::Line => {
                let at = rest.find(['\n', '<', '{']).unwrap_or(rest.len());
                (at, at)
            }
        };
        if length > MAX_TAG {
            return Some(Progress::Prose);
        }
        if length == rest.len() && window.ended != Some(TextEnd::Clean) {
            let cut = if self.unwrapped { Progress::Prose } else { Progress::Broken(CUT.to_owned()) };
            return self.wait(window, Phase::Head, cut);
        }
        let text = &rest[..length];
        let name = match self.spec.head {
            Head::Attribute { key, .. } => attribute(text, key).unwrap_or_default(),
            Head::Inline => text.trim().trim_end_matches('=').trim().trim_matches(['"', '\'']).to_owned(),
            Head::Line => text.trim().to_owned(),
        };
        if name.is_empty() || !name.chars().all(is_name) {
            return Some(Progress::Prose);
        }
        let declared_only = window.format.place == Place::Declared && self.unwrapped;
        if declared_only && typed::is_undeclared(window.tools, &name) {
            return Some(Progress::Prose);
        }
        self.name = name;
        self.cursor = start + after;
        self.end = self.cursor;
        None
    }
}
