//! What is remembered, as the daemon speaks of it.

mod approvals;
mod asks;
mod conversations;
mod leases;
mod messages;
mod parts;
mod responses;
mod resumes;
mod spent;
mod turns;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lf_core::{Secret, ToolRef};

use crate::batch::{Batch, Committed, Param, Row};
use crate::error::StoreError;
use crate::postgres::{Lane, Postgres};
use crate::sqlite::{Durability, Sqlite};

pub use approvals::LeftWaiting;
pub use conversations::{Change, Conversation, Kind, Page};
pub use messages::Kept;
pub use responses::Response;
pub use turns::{Begin, End, Known, TurnJournal, TurnRecord, TurnState};

/// Where conversations and turns are kept. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Database>);

pub(crate) enum Database {
    /// One file, one daemon.
    Sqlite(Sqlite),
    /// Shared by several daemons.
    Postgres(Box<Postgres>),
}

impl Store {
    /// The database of this directory, which is opened with its first use and made if it is not there. Whatever is wrong
    /// with it is the error of what is asked meanwhile; it is tried again with the next request, at most once a second.
    ///
    /// # Errors
    /// When the system has no threads left.
    pub fn at(dir: &Path) -> Result<Self, StoreError> {
        Self::at_with(dir, Durability::Full)
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
        let store = Self::at_with(&dir, durability)?;
        store.ready().await?;
        Ok(store)
    }

    fn at_with(dir: &Path, durability: Durability) -> Result<Self, StoreError> {
        Ok(Self(Arc::new(Database::Sqlite(Sqlite::at(dir, durability)?))))
    }

    /// Opens the database if it is not open; a new one is given its tables.
    ///
    /// # Errors
    /// [`StoreError::InUse`] while another process has it; [`StoreError::Corrupt`] and [`StoreError::TooNew`] leave it as
    /// it is.
    pub async fn ready(&self) -> Result<(), StoreError> {
        match &*self.0 {
            Database::Sqlite(sqlite) => sqlite.ready().await,
            Database::Postgres(postgres) => {
                postgres.query("SELECT 1", Vec::new(), Lane::Common).await.map(drop)
            }
        }
    }

    /// The store of all daemons that use this database, `postgres://user:password@host:port/database`. Nothing is
    /// connected to yet: a database that is not there now is used as soon as it is. With `sslmode=require` it is spoken to
    /// over TLS, where these certificates, in DER, are trusted besides the system's.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when that is no such URL.
    pub fn shared(url: &Secret, roots: &[Vec<u8>]) -> Result<Self, StoreError> {
        Ok(Self::of(Postgres::new(url, roots)?))
    }

    pub(crate) fn of(postgres: Postgres) -> Self {
        Self(Arc::new(Database::Postgres(Box::new(postgres))))
    }

    /// The file, or the database's address without what is secret in it.
    pub fn place(&self) -> String {
        match &*self.0 {
            Database::Sqlite(sqlite) => sqlite.path().display().to_string(),
            Database::Postgres(postgres) => postgres.place().to_owned(),
        }
    }

    async fn commit(&self, batch: Batch) -> Committed {
        match &*self.0 {
            Database::Sqlite(sqlite) => sqlite.commit(batch).await,
            Database::Postgres(postgres) => postgres.commit(&batch, Lane::Common).await,
        }
    }

    async fn query(&self, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>, StoreError> {
        match &*self.0 {
            Database::Sqlite(sqlite) => sqlite.query(sql, params).await,
            Database::Postgres(postgres) => postgres.query(sql, params, Lane::Common).await,
        }
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
