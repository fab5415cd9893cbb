//! Of which generation servers turned out to be, for a day; also over restarts of this program, where there is a file
//! for it.
//!
//! It saves the probe, which costs a server that keeps silent about it seconds. It is a guess about the next start: whoever
//! finds it wrong forgets it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lf_core::McpServer;
use lf_core::project::{Generation, Transport};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio_util::task::TaskTracker;

use crate::private_file::replace_private;
use lf_egress::blocking;

/// After which a server is probed again: one that has learnt the newer generation meanwhile is spoken to in it.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// Servers in the file; those that were learnt first go first.
const MAX_KEPT: usize = 512;
/// Largest file that is read.
const MAX_FILE: u64 = 256 * 1024;

/// The generations of servers. Those that cannot be told are not in it.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    known: Mutex<HashMap<String, Known>>,
    file: Option<Arc<PathBuf>>,
}

/// What was learnt of one server. `until` in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Known {
    is_modern: bool,
    until: u64,
}

impl Generations {
    /// What the file holds, if there is one that can be read. Nothing is lost by one that cannot.
    pub(crate) fn kept_in(file: Option<PathBuf>) -> Self {
        let known = file.as_deref().and_then(read).unwrap_or_default();
        Self { known: Mutex::new(known), file: file.map(Arc::new) }
    }

    pub(crate) fn of(&self, server: &McpServer) -> Option<Generation> {
        let known = self.lock().get(&key(server)).filter(|known| now() < known.until)?.is_modern;
        Some(if known { Generation::Modern } else { Generation::Legacy })
    }

    /// What was known already is not known for longer: only a probe tells anew.
    pub(super) fn remember(&self, server: &McpServer, generation: Generation, tracker: &TaskTracker) {
        let is_modern = generation == Generation::Modern;
        let mut known = self.lock();
        if known.len() >= MAX_KEPT {
            let oldest = known.iter().min_by_key(|(_, known)| known.until).map(|(key, _)| key.clone());
            oldest.map(|key| known.remove(&key));
        }
        let entry = known.entry(key(server));
        let entry = entry.or_insert(Known { is_modern, until: 0 });
        if entry.is_modern == is_modern && now() < entry.until {
            return;
        }
        *entry = Known { is_modern, until: now() + KEPT_FOR.as_secs() };
        let learnt = HashMap::from([(key(server), Some(entry.clone()))]);
        drop(known);
        self.keep(learnt, tracker);
    }

    /// Also in the file, by the next time that something is learnt of it.
    pub(crate) fn forget(&self, server: &McpServer) {
        if let Some(known) = self.lock().get_mut(&key(server)) {
            known.until = 0;
        }
    }

    fn keep(&self, learnt: HashMap<String, Option<Known>>, tracker: &TaskTracker) {
        let Some(file) = self.file.clone() else { return };
        let forgotten: Vec<String> =
            self.lock().iter().filter(|(_, known)| known.until == 0).map(|(key, _)| key.clone()).collect();
        let token = tracker.token();
        let started = blocking::start(move || {
            let _running = token;
            // others write to the same file: what they learnt meanwhile stays
            let mut kept = read(&file).unwrap_or_default();
            kept.retain(|key, known| now() < known.until && !forgotten.contains(key));
            kept.extend(learnt.into_iter().filter_map(|(key, known)| Some((key, known?))));
            if kept.len() > MAX_KEPT {
                let mut oldest: Vec<(u64, String)> =
                    kept.iter().map(|(key, known)| (known.until, key.clone())).collect();
                oldest.sort();
                for (_, key) in oldest.iter().take(kept.len() - MAX_KEPT) {
                    kept.remove(key);
                }
            }
            if let Err(error) = write(&file, &kept) {
                tracing::debug!(file = %file.display(), %error, "the generations of servers cannot be kept");
            }
        });
        if let Err(error) = started {
            tracing::debug!(%error, "the generations of servers cannot be kept");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What a server is known by: where it is, and nothing that could be read back.
fn key(server: &McpServer) -> String {
    let mut digest = Sha256::new();
    let mut add = |text: &str| {
        digest.update(text.len().to_le_bytes());
        digest.update(text.as_bytes());
    };
    add("lf generation");
    add(server.transport.name());
    match &server.transport {
        Transport::Stdio(stdio) => {
            add(&stdio.command);
            stdio.args.iter().for_each(|arg| add(arg.expose()));
            add(&stdio.cwd.to_string_lossy());
        }
        Transport::Http(http) | Transport::Sse(http) => add(&http.base_url),
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(file: &Path) -> Option<HashMap<String, Known>> {
    let metadata = std::fs::metadata(file).ok().filter(|metadata| metadata.is_file())?;
    if metadata.len() > MAX_FILE {
        return None;
    }
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// Whole or not at all.
fn write(file: &Path, kept: &HashMap<String, Known>) -> io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    replace_private(file, &serde_json::to_string(kept)?)
}

#[cfg(test)]
mod tests;
