//! The keys of a daemon, in a file that its owner alone may read. Of a key only a hash is kept.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lf_core::principal::{RESERVED, Reach};
use lf_core::quota::Quota;
use lf_core::{Principal, Scope};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use thiserror::Error;

use crate::app::disk;

/// What every key begins with: what begins so and is none of ours is a wrong key, also where no key is needed.
pub(super) const PREFIX: &str = "lfk_";
const FILE: &str = "keys.json";
/// Keys of one daemon; looking one up compares with all of them.
const MOST: usize = 10_000;
/// Longest name of a key, in bytes.
const LONGEST_NAME: usize = 100;

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Key {
    /// What its holder makes is bound to this.
    pub id: String,
    pub name: String,
    /// SHA-256 of the key, in hexadecimal. The key is 256 random bits: there is nothing to guess that a slow hash would
    /// make slower.
    hash: String,
    pub scopes: Vec<Scope>,
    #[serde(flatten)]
    pub reach: Reach,
    #[serde(default, skip_serializing_if = "Quota::is_none")]
    pub quota: Quota,
    /// Seconds since 1970.
    pub created: u64,
    /// Seconds since 1970; without it the key does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

impl Key {
    pub fn is_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= now())
    }

    pub(super) fn principal(&self) -> Principal {
        Principal {
            id: format!("key:{}", self.id),
            name: self.name.clone(),
            scopes: self.scopes.clone(),
            reach: self.reach.clone(),
            quota: self.quota,
        }
    }
}

/// A key to be.
#[derive(Debug, Clone, Default)]
pub struct NewKey {
    pub name: String,
    pub scopes: Vec<Scope>,
    pub reach: Reach,
    pub quota: Quota,
    /// From now on; without it the key does not expire.
    pub lasts: Option<Duration>,
}

#[derive(Debug, Error)]
pub enum KeysError {
    #[error("{0}")]
    Wrong(String),
    #[error("there is a key `{0}` already")]
    Exists(String),
    #[error("there is no key `{0}`")]
    Unknown(String),
    #[error("the file of keys {} cannot be used: {reason}", path.display())]
    Unusable { path: PathBuf, reason: String },
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    version: u32,
    pub(super) keys: Vec<Key>,
}

/// The version of the file that this program writes. One of a later version may restrict keys in ways unknown here.
const VERSION: u32 = 2;

/// The keys of one data directory.
#[derive(Debug, Clone)]
pub struct Keys {
    data_dir: PathBuf,
}

impl Keys {
    pub fn at(data_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_owned() }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.data_dir.join(FILE)
    }

    /// In the order in which they were made; the expired ones, too.
    ///
    /// # Errors
    /// [`KeysError::Unusable`]
    pub fn list(&self) -> Result<Vec<Key>, KeysError> {
        Ok(self.read()?.keys)
    }

    /// Makes a key and keeps its hash. The key itself is in the result, and nowhere else.
    ///
    /// # Errors
    /// [`KeysError`]
    pub fn create(&self, new: NewKey) -> Result<(Key, String), KeysError> {
        check(&new)?;
        let _lock = disk::lock(&self.data_dir).map_err(|error| self.unusable(&error))?;
        let mut stored = self.read()?;
        if stored.keys.iter().any(|key| key.name == new.name) {
            return Err(KeysError::Exists(new.name));
        }
        if stored.keys.len() >= MOST {
            return Err(KeysError::Wrong(format!("there are {MOST} keys already: revoke some")));
        }
        let id = random::<8>().map_err(|error| self.unusable(&error))?;
        let text = format!("{PREFIX}{id}_{}", random::<32>().map_err(|error| self.unusable(&error))?);
        let created = now();
        let key = Key {
            id,
            name: new.name,
            hash: hash(&text),
            scopes: new.scopes,
            reach: new.reach,
            quota: new.quota,
            created,
            expires: new.lasts.map(|lasts| created.saturating_add(lasts.as_secs())),
        };
        stored.keys.push(key.clone());
        self.write(stored)?;
        Ok((key, text))
    }

    /// Takes a key away, by its name or id. A daemon that runs refuses it from its next request on.
    ///
    /// # Errors
    /// [`KeysError`]
    pub fn revoke(&self, named: &str) -> Result<Key, KeysError> {
        let _lock = disk::lock(&self.data_dir).map_err(|error| self.unusable(&error))?;
        let mut stored = self.read()?;
        let at = stored.keys.iter().position(|key| key.name == named || key.id == named);
        let key = stored.keys.remove(at.ok_or_else(|| KeysError::Unknown(named.to_owned()))?);
        self.write(stored)?;
        Ok(key)
    }

    pub(super) fn read(&self) -> Result<Stored, KeysError> {
        let bytes = match std::fs::read(self.path()) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Stored::default()),
            Err(error) => return Err(self.unusable(&error)),
        };
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| self.unusable(&error))?;
        match stored.version <= VERSION {
            true => Ok(stored),
            false => Err(self.unusable(&format!("it is of version {}, which is newer", stored.version))),
        }
    }

    /// With the lock of [`disk::lock`] held.
    fn write(&self, stored: Stored) -> Result<(), KeysError> {
        let stored = Stored { version: VERSION, ..stored };
        let text = serde_json::to_string_pretty(&stored).map_err(|error| self.unusable(&error))?;
        disk::write(&self.path(), &text).map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, reason: &impl ToString) -> KeysError {
        KeysError::Unusable { path: self.path(), reason: reason.to_string() }
    }
}

impl Stored {
    /// The key that this text is. Compares with every key in the same time, wherever they differ.
    pub(super) fn find(&self, text: &str) -> Option<&Key> {
        let hash = hash(text);
        let mut found = None;
        for key in &self.keys {
            if bool::from(key.hash.as_bytes().ct_eq(hash.as_bytes())) {
                found = Some(key);
            }
        }
        found
    }
}

fn check(new: &NewKey) -> Result<(), KeysError> {
    let NewKey { name, scopes, reach, .. } = new;
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        let what = format!("a key needs a name of at most {LONGEST_NAME} bytes, without control characters");
        return Err(KeysError::Wrong(what));
    }
    // what looks like another name in a list or a record is one
    let plain = lf_core::visible::line(name);
    if plain != *name || name.trim() != name {
        return Err(KeysError::Wrong("the name of a key has nothing that cannot be seen in it".to_owned()));
    }
    if RESERVED.contains(&name.to_lowercase().as_str()) {
        return Err(KeysError::Wrong(format!(
            "`{name}` says that no key was given: give the key another name"
        )));
    }
    if scopes.is_empty() {
        let known: Vec<&str> = Scope::ALL.into_iter().map(Scope::name).collect();
        return Err(KeysError::Wrong(format!("a key needs a scope: {}", known.join(", "))));
    }
    match reach.problem() {
        Some(problem) => Err(KeysError::Wrong(problem)),
        None => Ok(()),
    }
}

pub(super) fn hash(text: &str) -> String {
    hexadecimal(&Sha256::digest(text.as_bytes()))
}

/// So many random bytes, in hexadecimal.
pub(crate) fn random<const N: usize>() -> io::Result<String> {
    let random = ring::rand::generate::<[u8; N]>(&ring::rand::SystemRandom::new());
    let random = random.map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(hexadecimal(&random.expose()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    disk::hexadecimal(bytes)
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
