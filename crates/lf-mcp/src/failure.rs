//! Why a server cannot be used, in words for a person, and what to try.

use std::fmt;

/// What the last start or the end of a session was due to.
///
/// The four causes that the product's manual lists begin `reason` with its exact words: "Connection refused",
/// "Command not found", "Permission denied" and "Server not found".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub reason: String,
    /// What to try, where something is known to help.
    pub hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: None }
    }

    pub(crate) fn hinted(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: Some(hint.into()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// One line of at most `limit` characters without control characters: what a peer sent is shown to people.
pub(crate) fn excerpt(text: &str, limit: usize) -> String {
    let mut clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = clean.by_ref().take(limit).collect();
    if clean.next().is_some() {
        line.push('…');
    }
    line.trim().to_owned()
}
