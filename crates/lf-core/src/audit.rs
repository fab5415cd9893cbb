//! The audit record: what was run, refused, decided and changed, one JSON line each. Every line holds the hash of the one
//! before it, so that a line that was changed, left out or put in later is found.
//!
//! The chain has no secret: whoever may write the files can write them all anew. A hash that was noted elsewhere
//! (`lf audit verify` shows the last) finds that, too.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::principal::Principal;

/// What the first line names as the one before it.
const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// Longest detail, in characters; what is longer is cut.
const MOST_DETAIL: usize = 500;
/// Longest name, in characters. Servers and clients make them up.
const MOST_NAME: usize = 256;
/// Between what is hashed and the hash.
const SEAL: &str = r#","hash":""#;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A tool was run.
    Call,
    /// A call was not run.
    Denied,
    /// A person decided, or nobody did in time.
    Approval,
    /// A configuration took effect, was changed, or was refused.
    Configuration,
    /// Somebody was not let in.
    Authentication,
    /// A key was made or revoked.
    Key,
    /// Records that could not be written.
    Lost,
}

impl Event {
    pub const ALL: [Self; 7] = [
        Self::Call,
        Self::Denied,
        Self::Approval,
        Self::Configuration,
        Self::Authentication,
        Self::Key,
        Self::Lost,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Denied => "denied",
            Self::Approval => "approval",
            Self::Configuration => "configuration",
            Self::Authentication => "authentication",
            Self::Key => "key",
            Self::Lost => "lost",
        }
    }
}

/// One thing that happened. Of arguments and results only hashes are kept; short ones can be guessed from them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Record {
    pub event: Event,
    /// On whose behalf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The same for programs: names of keys are given anew, ids are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who_id: Option<String>,
    /// `namespace/name`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// `sha256:` and hexadecimal digits
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// In a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    /// Whose decision it was: an id as in `who_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// How long it took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Record {
    pub fn new(event: Event) -> Self {
        Self {
            event,
            who: None,
            who_id: None,
            project: None,
            model: None,
            turn: None,
            server: None,
            tool: None,
            arguments: None,
            result: None,
            outcome: None,
            decided_by: None,
            ms: None,
            detail: None,
        }
    }

    /// The same of somebody.
    #[must_use]
    pub fn of(self, who: &Principal) -> Self {
        let who_id = Some(who.id.clone()).filter(|id| !id.is_empty());
        Self { who: Some(who.name.clone()), who_id, ..self }
    }

    /// Names may be of any length, and hold what nobody sees: of such a one the beginning is kept, with a hash of all of it.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let Self { who, project, model, turn, server, tool, .. } = &mut self;
        for name in [who, project, model, turn, server, tool].into_iter().flatten() {
            let end = name.char_indices().nth(MOST_NAME).map_or(name.len(), |(at, _)| at);
            let shown = crate::visible::line(&name[..end]);
            if shown != *name {
                *name = format!("{shown}… ({})", hash_of(name.as_bytes()));
            }
        }
        self
    }

    /// Words of strangers may be in it: one line of at most 500 characters, without what a terminal obeys.
    #[must_use]
    pub fn detail(mut self, detail: &str) -> Self {
        self.detail = Some(crate::visible::line(detail).chars().take(MOST_DETAIL).collect());
        self
    }
}

/// The hash of a value as it is written in a record.
pub fn hash_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hexadecimal(bytes))
}

/// The same of a value as JSON, without a copy of it.
pub fn hash_of_json(value: &(impl Serialize + ?Sized)) -> String {
    struct Hashed(Sha256);
    impl std::io::Write for Hashed {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut hashed = Hashed(Sha256::new());
    match serde_json::to_writer(&mut hashed, value) {
        Ok(()) => format!("sha256:{}", digits(&hashed.0.finalize())),
        // values of this program have a JSON form
        Err(_) => hash_of(&[]),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    digits(&Sha256::digest(bytes))
}

fn digits(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// How far a record has come: what the next line is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// Of the last line; lines are counted from 1.
    pub number: u64,
    /// Of the last line, 64 hexadecimal digits.
    pub hash: String,
}

impl Default for Chain {
    fn default() -> Self {
        Self { number: 0, hash: NOTHING.to_owned() }
    }
}

/// Why a line does not go on from the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Broken {
    #[error("it is no line of an audit record")]
    NoRecord,
    #[error("it was changed: its hash is not that of its text")]
    Changed,
    #[error("it is number {found}, after number {last}")]
    Gap { last: u64, found: u64 },
    #[error("it does not go on from the line before it: one was changed, left out or put in")]
    Foreign,
}

impl Chain {
    /// The next line, without its end. `time`: in RFC 3339.
    pub fn add(&mut self, record: &Record, time: &str) -> String {
        self.number += 1;
        // the names are the record's own, and a value of strings and numbers has a JSON form
        let fields = serde_json::to_string(record).unwrap_or_else(|_| "{}".to_owned());
        let fields = fields.trim_start_matches('{').trim_end_matches('}');
        let mut line =
            format!(r#"{{"number":{},"time":"{time}",{fields},"previous":"{}""#, self.number, self.hash);
        self.hash = hexadecimal(line.as_bytes());
        let _ = write!(line, r#"{SEAL}{}"}}"#, self.hash);
        line
    }

    /// Goes on to a line that was written.
    ///
    /// # Errors
    /// [`Broken`]
    pub fn follow(&mut self, line: &str) -> Result<(), Broken> {
        let (found, value) = Self::read(line)?;
        if found.number != self.number + 1 {
            return Err(Broken::Gap { last: self.number, found: found.number });
        }
        if value["previous"] != self.hash.as_str() {
            return Err(Broken::Foreign);
        }
        *self = found;
        Ok(())
    }

    /// The chain up to a line, whatever was before it: its older files may have been put away.
    ///
    /// # Errors
    /// When its hash is not its own.
    pub fn at(line: &str) -> Result<Self, Broken> {
        Self::read(line).map(|(chain, _)| chain)
    }

    fn read(line: &str) -> Result<(Self, Value), Broken> {
        let (hashed, seal) = line.rsplit_once(SEAL).ok_or(Broken::NoRecord)?;
        let hash = seal.strip_suffix("\"}").ok_or(Broken::NoRecord)?;
        let value: Value = serde_json::from_str(line).map_err(|_| Broken::NoRecord)?;
        let number = value["number"].as_u64().ok_or(Broken::NoRecord)?;
        if hexadecimal(hashed.as_bytes()) != hash {
            return Err(Broken::Changed);
        }
        Ok((Self { number, hash: hash.to_owned() }, value))
    }
}

#[cfg(test)]
mod tests;
