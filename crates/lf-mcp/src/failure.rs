//! Why a server cannot be used, in words for a person, and what to try.

use std::fmt;

use lf_core::visible;

/// What the last start or the end of a session was due to.
///
/// The four causes that the product's manual lists begin `reason` with its exact words: "Connection refused",
/// "Command not found", "Permission denied" and "Server not found".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub reason: String,
    /// What to try, where something is known to help.
    pub hint: Option<String>,
    pub cause: Cause,
}

/// What kind of failure it is, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    /// None of the others: `unavailable`.
    #[default]
    Unavailable,
    /// The program, its interpreter or its directory is missing or may not be used: `cannot_start`.
    CannotStart,
    /// The system has no room for another process or file right now: `no_resources`.
    NoResources,
    /// The child ended: `exited`.
    Exited,
    /// It, or what it started, reached the limit on its memory: `out_of_memory`.
    OutOfMemory,
    /// It did not answer in time, or stopped answering: `unresponsive`.
    Unresponsive,
    /// Nobody knows its host: `host_not_found`.
    HostNotFound,
    /// No connection to it: `unreachable`.
    Unreachable,
    /// No agreement on TLS, or a certificate that is not trusted: `tls`.
    Tls,
    /// It answers with a status that is no answer: `http_status`.
    HttpStatus,
    /// What it sends is not the protocol: `protocol_error`.
    ProtocolError,
    /// Its program is not the one that was approved: `changed`.
    Changed,
    /// Somebody has to log in first: `auth_required`.
    AuthRequired,
    /// It has too many requests: `rate_limited`.
    RateLimited,
    /// Its session was taken down on request: `restarted`.
    Restarted,
}

impl Cause {
    /// The word for JSON; it does not change.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::CannotStart => "cannot_start",
            Self::NoResources => "no_resources",
            Self::Exited => "exited",
            Self::OutOfMemory => "out_of_memory",
            Self::Unresponsive => "unresponsive",
            Self::HostNotFound => "host_not_found",
            Self::Unreachable => "unreachable",
            Self::Tls => "tls",
            Self::HttpStatus => "http_status",
            Self::ProtocolError => "protocol_error",
            Self::Changed => "changed",
            Self::AuthRequired => "auth_required",
            Self::RateLimited => "rate_limited",
            Self::Restarted => "restarted",
        }
    }
}

impl Failure {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: None, cause: Cause::default() }
    }

    pub(crate) fn hinted(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: Some(hint.into()), cause: Cause::default() }
    }

    pub(crate) fn of(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// One line of at most `limit` characters without control characters: what a peer sent is shown to people.
pub(crate) fn excerpt(text: &str, limit: usize) -> String {
    // however long it is, no more of it is looked at than can be shown
    let near = &text[..text.floor_char_boundary(limit.saturating_mul(8).saturating_add(64))];
    let clean = visible::line(near);
    let mut characters = clean.trim().chars();
    let mut line: String = characters.by_ref().take(limit).collect();
    if characters.next().is_some() || near.len() < text.len() {
        line.push('…');
    }
    line.trim().to_owned()
}
