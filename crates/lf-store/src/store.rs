//! What is remembered, as the daemon speaks of it.

mod approvals;
mod conversations;
mod messages;
mod parts;
mod responses;
mod resumes;
mod spent;
mod turns;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lf_core::ToolRef;

use crate::error::StoreError;
use crate::sqlite::{Batch, Durability, Param, Row, Sqlite};

pub use approvals::LeftWaiting;
pub use conversations::{Conversation, Kind, Page};
pub use messages::Kept;
pub use responses::Response;
pub use turns::{Begin, TurnJournal, TurnRecord, TurnState};

/// The memory of one data directory. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Sqlite>);

impl Store {
    /// The database of this directory, which is opened with its first use and made if it is not there. Whatever is wrong
    /// with it is the error of what is asked meanwhile; it is tried again with the next request, at most once a second.
    ///
    /// # Errors
    /// When the system has no threads left.
    pub fn at(dir: &Path) -> Result<Self, StoreError> {
        Ok(Self(Arc::new(Sqlite::at(dir, Durability::Full)?)))
    }

    /// The database of this directory, opened.
    ///
    /// # Errors
    /// As of [`Store::ready`].
    pub async fn open(dir: PathBuf) -> Result<Self, StoreError> {
        Self::open_with(dir, Durability::Full).await
    }

    /// Only tests choose.
    #[doc(hidden)]
    pub async fn open_with(dir: PathBuf, durability: Durability) -> Result<Self, StoreError> {
        let store = Self(Arc::new(Sqlite::at(&dir, durability)?));
        store.ready().await?;
        Ok(store)
    }

    /// Opens the database if it is not open.
    ///
    /// # Errors
    /// [`StoreError::InUse`] while another process has it; [`StoreError::Corrupt`] and [`StoreError::TooNew`] leave it as
    /// it is.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.0.ready().await
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    async fn commit(&self, batch: Batch) -> Result<Vec<usize>, StoreError> {
        self.0.commit(batch).await
    }

    async fn query(&self, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>, StoreError> {
        self.0.query(sql, params).await
    }
}

/// Milliseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The columns of a row, in order.
struct Columns(std::vec::IntoIter<Param>);

impl Columns {
    fn of(row: Row) -> Self {
        Self(row.into_iter())
    }

    fn text(&mut self) -> String {
        self.maybe().unwrap_or_default()
    }

    fn maybe(&mut self) -> Option<String> {
        match self.0.next() {
            Some(Param::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn int(&mut self) -> i64 {
        match self.0.next() {
            Some(Param::Int(value)) => value,
            _ => 0,
        }
    }
}

/// Server and name.
fn tool(row: Row) -> ToolRef {
    let mut columns = Columns::of(row);
    ToolRef { server: columns.text().into(), name: columns.text().into() }
}

#[cfg(test)]
mod tests;
