//! Where tokens are kept: one file for each server and client, readable by its owner alone.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::private_file::replace_private;

/// For another process to be done with a refresh.
const LOCK_LIMIT: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// Of one file, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// What was agreed on with one authorization server for one tool server. No `Debug`: all of it is confidential.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Grant {
    /// The tool server, for whoever looks into the file.
    pub(super) server: String,
    pub(super) resource: String,
    /// Whose tokens these are; they are sent to nobody else.
    pub(super) issuer: String,
    pub(super) token_endpoint: String,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) client: Client,
    /// The scopes that were asked for.
    pub(super) asked: Vec<String>,
    /// Those that the server wanted besides since then.
    pub(super) wanted: Vec<String>,
    pub(super) access_token: Option<String>,
    pub(super) refresh_token: Option<String>,
    /// Seconds since 1970; `None` where nothing was said.
    pub(super) expires_at: Option<u64>,
    pub(super) renew_at: Option<u64>,
}

/// Who we are to the authorization server.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Client {
    pub(super) id: String,
    /// Of a registration that we made; the file's own secret is not written down again.
    pub(super) secret: Option<String>,
    pub(super) method: String,
    pub(super) redirect_uri: Option<String>,
    pub(super) is_registered: bool,
    pub(super) secret_expires_at: Option<u64>,
}

/// A state of one file: another one means that another process has written it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(Option<(SystemTime, u64, u64)>);

/// Cheap to clone.
#[derive(Clone)]
pub(super) enum Store {
    Directory(Arc<PathBuf>),
    /// For a process that leaves nothing behind.
    Memory(Arc<Mutex<HashMap<String, Grant>>>),
}

/// Held by whoever changes one file, in this process or another. Released when dropped.
pub(super) struct Held(#[expect(dead_code, reason = "closing it releases the lock")] Option<File>);

impl Store {
    pub(super) fn new(directory: Option<PathBuf>) -> Self {
        directory
            .map_or_else(|| Self::Memory(Arc::default()), |directory| Self::Directory(Arc::new(directory)))
    }

    pub(super) fn stamp(&self, key: &str) -> Stamp {
        match self {
            Self::Directory(directory) => {
                let metadata = place(directory, key).symlink_metadata().ok();
                Stamp(metadata.and_then(|file| Some((file.modified().ok()?, file.len(), file.ino()))))
            }
            Self::Memory(_) => Stamp(None),
        }
    }

    /// What is kept; a file that cannot be read is none.
    pub(super) fn load(&self, key: &str) -> Option<Grant> {
        match self {
            Self::Directory(directory) => match read(&place(directory, key)) {
                Ok(grant) => Some(grant),
                Err(error) => {
                    if error.kind() != io::ErrorKind::NotFound {
                        tracing::warn!(%error, "kept tokens cannot be read");
                    }
                    None
                }
            },
            Self::Memory(grants) => lock(grants).get(key).cloned(),
        }
    }

    /// Replaces what is kept, as a whole: after a crash it is the old or the new.
    pub(super) async fn save(&self, key: &str, grant: &Grant) -> Result<(), Failure> {
        match self {
            Self::Directory(directory) => {
                let path = place(directory, key);
                let text = serde_json::to_string_pretty(grant).unwrap_or_default();
                blocking(move || write(&path, &text)).await
            }
            Self::Memory(grants) => {
                lock(grants).insert(key.to_owned(), grant.clone());
                Ok(())
            }
        }
    }

    pub(super) async fn remove(&self, key: &str) -> Result<(), Failure> {
        match self {
            Self::Directory(directory) => {
                let path = place(directory, key);
                blocking(move || match std::fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                })
                .await
            }
            Self::Memory(grants) => {
                lock(grants).remove(key);
                Ok(())
            }
        }
    }

    /// Waits until no other process changes what is kept under this key; at most 30 s.
    pub(super) async fn hold(&self, key: &str) -> Result<Held, Failure> {
        let Self::Directory(directory) = self else { return Ok(Held(None)) };
        let path = directory.join(format!("{key}.lock"));
        let end = Instant::now() + LOCK_LIMIT;
        loop {
            let path = path.clone();
            match blocking(move || try_lock(&path)).await? {
                Some(file) => return Ok(Held(Some(file))),
                None if Instant::now() >= end => {
                    return Err(Failure::new("another process is busy with its tokens for too long"));
                }
                None => sleep(LOCK_PAUSE).await,
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place(directory: &Path, key: &str) -> PathBuf {
    directory.join(format!("{key}.json"))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let done = lf_egress::blocking::run(work).await.unwrap_or_else(Err);
    done.map_err(|error| Failure::new(format!("its tokens cannot be kept in the data directory: {error}")))
}

fn read(path: &Path) -> io::Result<Grant> {
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(path)?;
    if file.metadata()?.len() > MAX_FILE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // the parser's own error would show what it read
    serde_json::from_reader(file).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn make_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    // one that was there, or was made with other rights
    if directory.metadata()?.permissions().mode() & 0o777 != 0o700 {
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o700))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    make_directory_of(path)?;
    replace_private(path, text)
}

/// `None` when another process has it.
fn try_lock(path: &Path) -> io::Result<Option<File>> {
    make_directory_of(path)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW);
    let file = options.open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests;
