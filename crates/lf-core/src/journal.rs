//! Where what happens in a turn is kept before it is acted on or shown.

use thiserror::Error;

use crate::tool::BoxFuture;
use crate::turn::Entry;

/// Keeps the entries of one turn, in order.
pub trait Journal: Send {
    /// Takes the next entry, which is safe once [`Self::flush`] has returned.
    fn append(&mut self, entry: &Entry);

    /// Returns when everything appended is kept for good.
    fn flush(&mut self) -> BoxFuture<'_, Result<(), JournalError>>;
}

/// The entries could not be kept: what was not flushed must not be acted on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot write {place}: {reason}")]
pub struct JournalError {
    /// The file or the database.
    pub place: String,
    pub reason: String,
}
