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
    /// It cannot be written or read now (full, read-only, locked, not reached, …); it may be possible later.
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
