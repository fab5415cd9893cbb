//! Who may use the daemon: keys, the owner's token, and what is let in without either.

mod announced;
mod keys;

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, header};
use lf_core::Principal;
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

pub use announced::{Announced, announce, own_daemons};
pub(crate) use keys::random;
pub use keys::{Key, Keys, KeysError, NewKey};

use crate::app::disk;
use keys::Stored;

/// The owner's token is in this file of the data directory.
pub const OWNER_FILE: &str = "owner-token";
const OWNER_PREFIX: &str = "lfo_";
/// Between two looks for keys that were revoked or have expired while their holders' turns run.
const LOOK: Duration = Duration::from_millis(250);

/// The keys of a daemon as it goes by them. One per process.
pub struct Access {
    keys: Keys,
    /// Hash of the owner's token, where one was made.
    owner: OnceLock<String>,
    known: Mutex<Known>,
}

/// What was last read of the file of keys.
#[derive(Default)]
struct Known {
    mark: Option<Mark>,
    /// It could not be read, and that was said.
    is_unusable: bool,
    stored: Stored,
    /// By principal: cancelled when its key is gone.
    until: HashMap<String, CancellationToken>,
}

/// Changes with every replacement of the file.
type Mark = (SystemTime, u64, u64);

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// No key was given where one is needed.
    Without,
    Wrong,
    Expired,
}

impl Stranger {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Without => {
                "no API key was given: send one as `Authorization: Bearer …` or `x-api-key` (`lf keys create` makes one)"
            }
            Self::Wrong => "this API key is wrong, or was revoked",
            Self::Expired => "this API key has expired",
        }
    }
}

impl Access {
    /// Reads nothing yet.
    pub fn new(data_dir: &Path) -> Self {
        Self { keys: Keys::at(data_dir), owner: OnceLock::new(), known: Mutex::default() }
    }

    /// Takes the owner's token from its file, which is made where there is none.
    ///
    /// # Errors
    /// When the file cannot be read or made, or others can read it.
    pub fn take_owner(&self, data_dir: &Path) -> io::Result<()> {
        let text = owner_token(data_dir)?;
        let _ = self.owner.set(keys::hash(&text));
        Ok(())
    }

    /// Whether there is a key that somebody could use now.
    ///
    /// # Errors
    /// When the keys cannot be read.
    pub fn has_keys(&self) -> Result<bool, KeysError> {
        Ok(self.keys.list()?.iter().any(|key| !key.is_expired()))
    }

    /// Who sends these headers. On a daemon that only its own machine reaches, what does not look like a key of ours is
    /// none: SDKs insist on sending something.
    pub(crate) fn who(&self, headers: &HeaderMap, loopback: bool) -> Result<Arc<Principal>, Stranger> {
        let given = credentials(headers);
        let mut ours = given.iter().copied().filter(|text| is_ours(text));
        let Some(text) = ours.next() else {
            return match (loopback, given.is_empty()) {
                (true, _) => Ok(Arc::new(Principal::local())),
                (false, true) => Err(Stranger::Without),
                (false, false) => Err(Stranger::Wrong),
            };
        };
        if ours.any(|other| other != text) {
            return Err(Stranger::Wrong);
        }
        if text.starts_with(OWNER_PREFIX) {
            let hash = keys::hash(text);
            let is_owner =
                self.owner.get().is_some_and(|owner| bool::from(owner.as_bytes().ct_eq(hash.as_bytes())));
            return if is_owner { Ok(Arc::new(Principal::owner())) } else { Err(Stranger::Wrong) };
        }
        let known = self.fresh();
        match known.stored.find(text) {
            None => Err(Stranger::Wrong),
            Some(key) if key.is_expired() => Err(Stranger::Expired),
            Some(key) => Ok(Arc::new(key.principal())),
        }
    }

    /// A principal as it is now: what its key says at this moment. `None` where that is gone.
    pub(crate) fn now(&self, principal: &Principal) -> Option<Principal> {
        if principal.is_key() { self.fresh().find(&principal.id) } else { Some(principal.clone()) }
    }

    /// Whether a principal's key is still there.
    pub(crate) fn is_current(&self, principal: &Principal) -> bool {
        self.now(principal).is_some()
    }

    /// Is cancelled when the principal's key is revoked or has expired, within [`LOOK`].
    pub(crate) fn until_revoked(&self, principal: &Principal) -> CancellationToken {
        if !principal.is_key() {
            return CancellationToken::new();
        }
        let mut known = self.fresh();
        let until = known.until.entry(principal.id.clone()).or_default().clone();
        if known.find(&principal.id).is_none() {
            until.cancel();
        }
        until
    }

    /// Ends what runs for keys that are gone, until dropped.
    pub(crate) async fn watch(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.fresh().let_go();
        }
    }

    fn fresh(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // a look at one local file: so short that it is not worth another thread
        let mark = mark(&self.keys.path());
        if mark != known.mark {
            match self.keys.read() {
                Ok(stored) => (known.stored, known.mark, known.is_unusable) = (stored, mark, false),
                Err(error) => {
                    if !std::mem::replace(&mut known.is_unusable, true) {
                        tracing::error!(%error, "no key is let in");
                    }
                    // it is tried again with the next look
                    (known.stored, known.mark) = (Stored::default(), None);
                }
            }
        }
        known
    }
}

impl Known {
    fn find(&self, id: &str) -> Option<Principal> {
        let valid = self.stored.keys.iter().filter(|key| !key.is_expired());
        valid.map(Key::principal).find(|principal| principal.id == id)
    }

    fn let_go(&mut self) {
        let Self { stored, until, .. } = self;
        until.retain(|id, until| {
            let is_there = stored.keys.iter().any(|key| !key.is_expired() && key.principal().id == *id);
            if !is_there {
                until.cancel();
            }
            is_there
        });
    }
}

/// The owner's token of a data directory, which is made where there is none.
///
/// # Errors
/// When it cannot be read or made, or others can read it.
pub fn owner_token(data_dir: &Path) -> io::Result<String> {
    let path = data_dir.join(OWNER_FILE);
    if let Some(text) = read_owner_token(&path)? {
        return Ok(text);
    }
    let _lock = disk::lock(data_dir)?;
    // another process may have been quicker
    if let Some(text) = read_owner_token(&path)? {
        return Ok(text);
    }
    let text = format!("{OWNER_PREFIX}{}", random::<32>()?);
    disk::write(&path, &text)?;
    Ok(text)
}

/// `None` where there is none.
fn read_owner_token(path: &PathBuf) -> io::Result<Option<String>> {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let wrong = |what: &str| io::Error::other(format!("{} {what}", path.display()));
    if !metadata.is_file() {
        return Err(wrong("is no file: delete it, and a new one is made"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(wrong("can be read by others: delete it, and a new one is made"));
    }
    let text = std::fs::read_to_string(path)?.trim().to_owned();
    match text.strip_prefix(OWNER_PREFIX).map(str::len) {
        Some(64) => Ok(Some(text)),
        _ => Err(wrong("holds no token: delete it, and a new one is made")),
    }
}

fn is_ours(text: &str) -> bool {
    text.starts_with(keys::PREFIX) || text.starts_with(OWNER_PREFIX)
}

/// Everything that is given as a key.
fn credentials(headers: &HeaderMap) -> Vec<&str> {
    // what is no text is no key of anybody's
    let of = |name| headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"));
    let bearer = of(header::AUTHORIZATION.as_str()).map(|value| match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => value,
    });
    bearer.chain(of("x-api-key").map(str::trim)).filter(|text| !text.is_empty()).collect()
}

fn mark(path: &Path) -> Option<Mark> {
    let metadata = path.metadata().ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

#[cfg(test)]
mod tests;
