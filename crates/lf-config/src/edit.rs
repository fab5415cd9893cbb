//! Changing a file without losing what a person put into it: comments, order, quotes, blank lines.
//!
//! The new value is compared with the file's own tree, and only the text of what differs is replaced. What comes out
//! is read again before it is given to anybody: where it does not say what was wanted, the smallest subtree for which
//! it does is written anew.

use serde_json::Value as Json;
use thiserror::Error;

use crate::diagnostic::{Rejected, Report, Source};
use crate::node;

mod diff;
mod render;
mod tree;

/// How far down single changes are made, in the order of trying: below it a changed subtree is written anew.
const DEPTHS: [usize; 5] = [64, 4, 3, 2, 1];

#[derive(Debug, Error)]
pub enum EditError {
    #[error("a TOML file is changed by hand only")]
    Toml,
    /// What is there now cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Rejected),
    #[error("the new value cannot be written as YAML")]
    Unwritable,
}

/// The value of the file as it is written: older shapes kept, nothing expanded, nothing masked.
///
/// # Errors
/// When it is no YAML, JSON or TOML; what it means is not looked at.
pub fn stored(source: &Source) -> Result<Json, Rejected> {
    let mut report = Report::new(source);
    match node::read(&mut report) {
        Some(tree) if !report.has_errors() => Ok(tree.to_json()),
        _ => Err(report.reject()),
    }
}

/// The text with this value, changed only where the value differs.
///
/// # Errors
/// [`EditError`]; nothing is ever written lossily.
pub fn edit(source: &Source, wanted: &Json) -> Result<String, EditError> {
    if source.path.extension().is_some_and(|extension| extension == "toml") {
        return Err(EditError::Toml);
    }
    let now = stored(source)?;
    if same(&now, wanted) {
        return Ok(source.text.clone());
    }
    let holds = |text: &String| {
        let source = Source { path: source.path.clone(), text: text.clone() };
        stored(&source).is_ok_and(|value| same(&value, wanted))
    };
    if let Some(root) = tree::read(&source.text) {
        let fine = DEPTHS.iter().filter_map(|depth| diff::apply(&source.text, &root, wanted, *depth));
        if let Some(text) = fine.into_iter().find(holds) {
            return Ok(text);
        }
    }
    Some(whole(&source.text, wanted)).filter(holds).ok_or(EditError::Unwritable)
}

/// A new text with this value.
///
/// # Errors
/// [`EditError::Unwritable`]
pub fn write(value: &Json) -> Result<String, EditError> {
    let source = Source { path: "llamafarm.yaml".into(), text: whole("", value) };
    match stored(&source).is_ok_and(|read| same(&read, value)) {
        true => Ok(source.text),
        false => Err(EditError::Unwritable),
    }
}

/// Whether the text holds what looks like a comment.
pub fn has_comments(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with('#') || line.contains(" #"))
}

/// Written anew, below the comments at the head of the old text.
fn whole(old: &str, wanted: &Json) -> String {
    let head: String = old
        .split_inclusive('\n')
        .take_while(|line| line.starts_with('#') || line.trim().is_empty())
        .collect();
    if old.trim_start().starts_with('{') {
        return format!("{wanted:#}\n");
    }
    format!("{head}{}\n", render::block(wanted, 0))
}

/// Equal as values: the order of keys and the spelling of numbers make no difference.
fn same(one: &Json, other: &Json) -> bool {
    match (one, other) {
        (Json::Number(one), Json::Number(other)) => {
            one == other || (one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64()
        }
        (Json::Array(one), Json::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Json::Object(one), Json::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests;
