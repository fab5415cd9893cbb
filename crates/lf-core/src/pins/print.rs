//! Hashes of what a server says, that are the same however it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::visible;

/// SHA-256.
pub type Hash = [u8; 32];

/// Whole numbers that a float has exactly, as RFC 8785 writes them.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// What a server says of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Peer {
    /// `serverInfo`: `name`, `version`, and what else there is.
    pub info: Map<String, Value>,
    pub instructions: Option<String>,
}

impl Peer {
    /// Out of a server's answer to `initialize` or `server/discover`.
    pub fn of(said: &Value) -> Self {
        let info = said["serverInfo"].as_object().cloned().unwrap_or_default();
        let info = info.into_iter().filter(|(_, value)| !value.is_null()).collect();
        Self { info, instructions: said["instructions"].as_str().map(str::to_owned) }
    }

    /// Its name and version, for people.
    pub(super) fn called(&self) -> String {
        let text = |key: &str| self.info.get(key).and_then(Value::as_str).map(visible::line);
        match (text("name"), text("version")) {
            (Some(name), Some(version)) => format!("`{name}` {version}"),
            (Some(name), None) => format!("`{name}`"),
            _ => "without a name".to_owned(),
        }
    }
}

/// What a tool is as its server says it, in a form that can be held against another.
#[derive(Debug, Clone, PartialEq)]
pub struct Print {
    pub peer: Arc<Peer>,
    /// All of its definition but the name.
    pub(super) fields: BTreeMap<String, Hash>,
}

impl Print {
    /// Of a definition as it came, hidden characters and all. A field that is null is not there.
    pub fn of(definition: &Value, peer: Arc<Peer>) -> Self {
        let fields = definition.as_object().into_iter().flatten();
        let fields = fields.filter(|(key, value)| *key != "name" && !value.is_null());
        Self { peer, fields: fields.map(|(key, value)| (key.clone(), hash(value))).collect() }
    }

    /// Another number where it says anything else: to tell apart within this process alone.
    pub fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.fields.hash(&mut hasher);
        hasher.finish()
    }

    /// The fields that are not the same.
    pub(super) fn differing<'a>(&'a self, other: &'a Self) -> Vec<&'a str> {
        let all: BTreeSet<&String> = self.fields.keys().chain(other.fields.keys()).collect();
        let differing = all.into_iter().filter(|key| self.fields.get(*key) != other.fields.get(*key));
        differing.map(String::as_str).collect()
    }
}

/// Of the value, whatever the order of its keys and the spelling of its numbers.
pub fn hash(value: &Value) -> Hash {
    let mut text = String::new();
    write(value, &mut text);
    Sha256::digest(text.as_bytes()).into()
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (at, key) in keys.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(&fields[key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
                out.push_str(&format!("{float:.0}"));
            }
            _ => out.push_str(&number.to_string()),
        },
        other => out.push_str(&other.to_string()),
    }
}
