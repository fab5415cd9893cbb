use std::path::PathBuf;

use thiserror::Error;

/// Why something is not stored or not found: one variant per thing that can be done about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// Another process has the directory.
    #[error("`{}` is in use by another daemon", path.display())]
    InUse { path: PathBuf },
    /// Made by a later version of this program.
    #[error("`{place}` has schema version {found}, and this program knows up to {known}")]
    TooNew { place: String, found: i64, known: i64 },
    /// The file is damaged. It is left as it is.
    #[error("`{}` is damaged: {reason}", path.display())]
    Corrupt { path: PathBuf, reason: String },
    /// There is no room for what was to be kept.
    #[error("no space is left for `{place}`")]
    Full { place: String },
    /// It cannot be written or read now (read-only, locked, gone, not reached, …); it may be possible later.
    #[error("cannot use `{place}`: {reason}")]
    Unavailable { place: String, reason: String },
    /// Another daemon was faster: it runs the turn, or something was said in the conversation meanwhile.
    #[error("{what} `{id}` was gone on with by another daemon")]
    Overtaken { what: &'static str, id: String },
    #[error("there is no {what} `{id}`")]
    NotFound { what: &'static str, id: String },
    /// What is stored cannot be read by this program.
    #[error("{what} `{id}` cannot be read: {reason}")]
    Unreadable { what: &'static str, id: String, reason: String },
}

impl StoreError {
    /// What to try. Nothing of it needs a restart.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::InUse { .. } => Some(
                "one daemon serves all projects; `--data-dir DIR` (LF_DATA_DIR) gives a second one its own memory",
            ),
            Self::TooNew { .. } => Some(
                "use the program that made it, or another place: `--storage` (LF_STORAGE), `--data-dir` (LF_DATA_DIR)",
            ),
            Self::Corrupt { .. } => Some(
                "it is left as it is: put a backup in its place, or move it away together with its `-wal` and `-shm`",
            ),
            Self::Full { .. } => Some("make room on its disk"),
            Self::Unavailable { .. }
            | Self::Overtaken { .. }
            | Self::NotFound { .. }
            | Self::Unreadable { .. } => None,
        }
    }
}
