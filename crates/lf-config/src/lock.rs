//! `llamafarm.lock`: text in, a [`Lock`] or the place of a mistake out, and back. It is made to be read in a diff: texts in
//! full, schemas as indented JSON with sorted keys, hidden characters escaped, and a hash for each entry, so that what was
//! changed by hand or merged wrongly is noticed.

mod write;

use std::io;
use std::path::{Path, PathBuf};

use lf_core::pins::{Hash, Lock, Origin, Peer, Pinned, hash};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use toml::Spanned;

use crate::load::{LoadError, read_up_to};
pub use write::{shown as shown_pin, write as write_lock};

/// Of what is written here.
const VERSION: i64 = 1;
/// A thousand tools of 64 KiB would be more, and nobody would look at them.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Where the lock of a project's file is: beside it, under its name.
pub fn lock_path(file: &Path) -> PathBuf {
    file.with_extension("lock")
}

/// The lock of a project's file; `None` where there is none. Reads at most 16 MiB.
///
/// # Errors
/// When it cannot be read, is damaged, or was written by a newer version.
pub fn read_lock(file: &Path) -> Result<Option<Lock>, LoadError> {
    let path = lock_path(file);
    // `llamafarm.lock` as the project's own file has none
    if path == file {
        return Ok(None);
    }
    let text = match read_up_to(&path, MAX_BYTES) {
        Err(LoadError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        text => text?,
    };
    parse_lock(&text).map(Some).map_err(|mistake| mistake.at(path, &text))
}

/// What is wrong with a lock, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockMistake {
    /// In bytes from the beginning.
    pub at: usize,
    pub reason: String,
}

impl LockMistake {
    fn new(at: usize, reason: impl Into<String>) -> Self {
        Self { at, reason: reason.into() }
    }

    fn at(self, path: PathBuf, text: &str) -> LoadError {
        let before = &text[..text.floor_char_boundary(self.at)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        LoadError::Lock { path, line, column, reason: self.reason }
    }
}

#[derive(Deserialize)]
struct Head {
    version: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(rename = "version")]
    _version: i64,
    #[serde(default)]
    server: Vec<Spanned<RawServer>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    name: String,
    sha256: Spanned<String>,
    origin: Origin,
    info: Map<String, Value>,
    instructions: Option<String>,
    #[serde(default)]
    tool: Vec<Spanned<RawTool>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTool {
    name: String,
    sha256: Spanned<String>,
    description: Option<String>,
    definition: Spanned<String>,
}

/// The text of a lock.
///
/// # Errors
/// The first mistake.
pub fn parse_lock(text: &str) -> Result<Lock, LockMistake> {
    let wrong = |error: toml::de::Error| {
        LockMistake::new(error.span().map_or(0, |span| span.start), format!("damaged: {}", error.message()))
    };
    let head: Head = toml::from_str(text).map_err(wrong)?;
    match head.version {
        Some(version) if *version.get_ref() > VERSION => {
            let reason = format!(
                "written by a newer lf: it has version {}, and this program knows {VERSION}",
                version.get_ref()
            );
            return Err(LockMistake::new(version.span().start, reason));
        }
        Some(version) if *version.get_ref() == VERSION => {}
        Some(version) => {
            return Err(LockMistake::new(version.span().start, "damaged: there is no such version"));
        }
        None => return Err(LockMistake::new(0, "damaged: `version` is missing")),
    }
    let raw: Raw = toml::from_str(text).map_err(wrong)?;
    let mut lock = Lock::default();
    for server in raw.server {
        let at = server.span().start;
        let server = server.into_inner();
        let name = server.name.clone();
        if lock.servers.insert(name.clone(), pinned(server)?).is_some() {
            return Err(LockMistake::new(at, format!("damaged: MCP server `{name}` is there twice")));
        }
    }
    Ok(lock)
}

fn pinned(raw: RawServer) -> Result<Pinned, LockMistake> {
    let RawServer { name, sha256, origin, info, instructions, tool } = raw;
    let peer = Peer { info, instructions };
    let what = format!("MCP server `{name}`");
    confirmed(&sha256, server_hash(&name, &origin, &peer), &what)?;
    let mut definitions: Vec<Value> = Vec::with_capacity(tool.len());
    for tool in tool {
        let at = tool.span().start;
        let definition = definition(tool.into_inner(), &name)?;
        if definitions.iter().any(|other| other["name"] == definition["name"]) {
            let reason =
                format!("damaged: tool {} of MCP server `{name}` is there twice", definition["name"]);
            return Err(LockMistake::new(at, reason));
        }
        definitions.push(definition);
    }
    Ok(Pinned::new(origin, peer, definitions))
}

fn definition(raw: RawTool, server: &str) -> Result<Value, LockMistake> {
    let RawTool { name, sha256, description, definition } = raw;
    let what = format!("tool `{name}` of MCP server `{server}`");
    let fields: Map<String, Value> = serde_json::from_str(definition.get_ref()).map_err(|error| {
        let reason = format!("damaged: the definition of {what} is not a JSON object: {error}");
        LockMistake::new(definition.span().start, reason)
    })?;
    let mut all = Map::from_iter([("name".to_owned(), Value::from(name))]);
    all.extend(description.map(|text| ("description".to_owned(), Value::from(text))));
    all.extend(fields);
    let definition = Value::Object(all);
    confirmed(&sha256, hash(&definition), &what)?;
    Ok(definition)
}

fn confirmed(written: &Spanned<String>, is: Hash, what: &str) -> Result<(), LockMistake> {
    if *written.get_ref() == hexadecimal(&is) {
        return Ok(());
    }
    let reason = format!(
        "damaged: {what} is not what `sha256` was made of, so it was changed by hand or merged wrongly"
    );
    Err(LockMistake::new(written.span().start, reason))
}

/// Of everything about a server but its tools.
fn server_hash(name: &str, origin: &Origin, peer: &Peer) -> Hash {
    hash(&json!({"name": name, "origin": origin, "info": peer.info, "instructions": peer.instructions}))
}

fn hexadecimal(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
