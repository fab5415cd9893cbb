//! Runs the conformance corpus through the decoders that the daemon uses.

mod anthropic;
mod deltas;
mod schemas;
mod text;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// What one line of a corpus file is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Deltas,
    Schemas,
    /// Requests of Anthropic's clients.
    Requests,
    /// Streams for Anthropic's clients.
    Streams,
    /// Whole answers for Anthropic's clients.
    Answers,
    Errors,
}

impl Kind {
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "deltas" => Some(Self::Deltas),
            "schemas" => Some(Self::Schemas),
            "areq" => Some(Self::Requests),
            "astr" => Some(Self::Streams),
            "ares" => Some(Self::Answers),
            "errors" => Some(Self::Errors),
            _ => None,
        }
    }
}

/// The output line for one case. `split` is the number of bytes a decoder is fed at a time; 0 feeds it whole.
///
/// # Errors
/// When the line is no case of this kind.
pub fn run(kind: Kind, line: &str, split: usize) -> Result<String> {
    let case: Value = serde_json::from_str(line).context("the line is not JSON")?;
    if !case["id"].is_string() {
        bail!("the case has no id");
    }
    match kind {
        Kind::Text => text::run(&case, split),
        Kind::Deltas => Ok(deltas::run(&case, split)?.to_string()),
        Kind::Schemas => Ok(schemas::run(&case)?.to_string()),
        Kind::Requests => Ok(anthropic::request(&case)?.to_string()),
        Kind::Streams => Ok(anthropic::stream(&case, split)?.to_string()),
        Kind::Answers => Ok(anthropic::answer(&case, split)?.to_string()),
        Kind::Errors => Ok(anthropic::error(&case)?.to_string()),
    }
}

/// Pieces of `split` bytes; all of it for 0.
pub(crate) fn pieces(bytes: &[u8], split: usize) -> impl Iterator<Item = &[u8]> {
    let size = if split == 0 { bytes.len().max(1) } else { split };
    bytes.chunks(size)
}
