//! One SQLite file: a thread that writes, with one commit for all who wait, and threads that read.

mod file;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc as threads;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, params_from_iter};
use tokio::sync::{mpsc, oneshot};

use crate::batch::{Batch, Committed, Param, Row, Statement};
use crate::error::StoreError;

pub use file::Durability;
use file::{Place, Writer};

/// Batches that wait for the writer; a caller beyond that waits with them.
const QUEUE: usize = 1024;
/// Batches of one commit.
const GROUP: usize = 256;
const READERS: usize = 2;

type Write = (Batch, oneshot::Sender<Committed>);
type Read = (Statement, oneshot::Sender<Result<Answer, StoreError>>);

/// What a reader says, or the statement again where nothing is open.
enum Answer {
    Rows(Vec<Row>),
    Closed(Statement),
}

/// The threads end when the last handle is dropped.
pub(crate) struct Sqlite {
    writes: mpsc::Sender<Write>,
    reads: Vec<threads::SyncSender<Read>>,
    place: Arc<Place>,
    next: std::sync::atomic::AtomicUsize,
}

impl Sqlite {
    /// `lf.db` in this directory. It is opened with the first use, and again after trouble with it: what was wrong costs the
    /// requests of that time and not those that come later.
    ///
    /// # Errors
    /// When there are no threads.
    pub(crate) fn at(dir: &Path, durability: Durability) -> Result<Self, StoreError> {
        let place = Arc::new(Place::new(dir, durability));
        let (writes, queue) = mpsc::channel(QUEUE);
        let here = place.clone();
        thread("lf-store-write", &place.path, move || write(queue, &here))?;
        let mut reads = Vec::with_capacity(READERS);
        for at in 0..READERS {
            let (sender, queue) = threads::sync_channel(QUEUE);
            let here = place.clone();
            thread("lf-store-read", &place.path, move || read(at, &queue, &here))?;
            reads.push(sender);
        }
        Ok(Self { writes, reads, place, next: Default::default() })
    }

    /// Opens the database if it is not open.
    ///
    /// # Errors
    /// [`StoreError`]; the file is never deleted or emptied.
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        self.commit(Batch::default()).await.map(drop)
    }

    /// Returns when the batch is on the disk. Dropping the future does not undo it.
    pub(crate) async fn commit(&self, batch: Batch) -> Committed {
        let (sender, done) = oneshot::channel();
        let gone = || unavailable(self.path(), "its writer has ended");
        self.writes.send((batch, sender)).await.map_err(|_| gone())?;
        done.await.map_err(|_| gone())?
    }

    pub(crate) async fn query(&self, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>, StoreError> {
        let statement = match self.ask(Statement { sql, params }).await? {
            Answer::Rows(rows) => return Ok(rows),
            Answer::Closed(statement) => statement,
        };
        self.ready().await?;
        match self.ask(statement).await? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Closed(_) => Err(unavailable(self.path(), "it was moved or given up again")),
        }
    }

    async fn ask(&self, statement: Statement) -> Result<Answer, StoreError> {
        let (sender, done) = oneshot::channel();
        let at = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % self.reads.len();
        let gone = |_| unavailable(self.path(), "its readers have ended or are all busy");
        self.reads[at].try_send((statement, sender)).map_err(|_| gone(()))?;
        done.await.map_err(|_| gone(()))?
    }

    pub(crate) fn path(&self) -> &Path {
        &self.place.path
    }
}

impl rusqlite::ToSql for Param {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        match self {
            Self::Null => rusqlite::types::Null.to_sql(),
            Self::Int(value) => value.to_sql(),
            Self::Text(text) => text.to_sql(),
        }
    }
}

fn thread(name: &str, path: &Path, run: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map(drop).map_err(|error| unavailable(path, &error.to_string()))
}

fn write(mut queue: mpsc::Receiver<Write>, place: &Place) {
    let mut writer = Writer::default();
    let mut erased = false;
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP {
            let Ok(next) = queue.try_recv() else { break };
            group.push(next);
        }
        let outcomes = match writer.connection(place) {
            Ok(connection) => match commit(connection, &group) {
                Ok(done) => {
                    let erases = group.iter().any(|(batch, _)| batch.erases);
                    if erases {
                        file::forget_copies(&place.path);
                    }
                    erased |= erases;
                    if erased {
                        erased = !empty_log(connection);
                    }
                    Ok(done)
                }
                Err(error) => {
                    if is_broken(&error) {
                        writer.close(place);
                    }
                    Err(said(&error, &place.path))
                }
            },
            Err(error) => Err(error),
        };
        for (at, (_, sender)) in group.into_iter().enumerate() {
            let outcome = match &outcomes {
                Ok(done) => done[at].clone().map_err(|error| said_in(&error, &place.path)),
                Err(error) => Err(error.clone()),
            };
            // who does not wait any more has its batch all the same
            let _ = sender.send(outcome);
        }
    }
}

/// Takes what was deleted out of the write-ahead log, too. False while somebody reads in it for longer than [`BUSY`]: then
/// it is done after a later commit, or when the database is closed.
fn empty_log(connection: &Connection) -> bool {
    let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    busy.is_ok_and(|busy| busy == 0)
}

/// Of one batch: the rows that each statement changed, or what SQLite says.
type Outcome = Result<Vec<usize>, (Option<ErrorCode>, String)>;

/// Each batch is done or not by itself; what is done is done at once.
fn commit(connection: &mut Connection, group: &[Write]) -> rusqlite::Result<Vec<Outcome>> {
    if group.iter().all(|(batch, _)| batch.is_empty()) {
        return Ok(vec![Ok(Vec::new()); group.len()]);
    }
    let mut transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let mut outcomes = Vec::with_capacity(group.len());
    for (batch, _) in group {
        let savepoint = transaction.savepoint()?;
        let changed: rusqlite::Result<Vec<usize>> = batch
            .statements
            .iter()
            .map(|statement| {
                savepoint.prepare_cached(statement.sql)?.execute(params_from_iter(&statement.params))
            })
            .collect();
        match changed {
            Ok(changed) => {
                savepoint.commit()?;
                outcomes.push(Ok(changed));
            }
            // a full disk undoes the whole transaction, with what others had done in it
            Err(error) if savepoint.is_autocommit() => return Err(error),
            // dropped, the savepoint is undone
            Err(error) => outcomes.push(Err((error.sqlite_error_code(), error.to_string()))),
        }
    }
    transaction.commit()?;
    Ok(outcomes)
}

fn read(at: usize, queue: &threads::Receiver<Read>, place: &Place) {
    while let Ok((statement, sender)) = queue.recv() {
        let mut open = place.reader(at);
        let rows = match &*open {
            Some(reader) if place.is_of(reader) => select(&reader.connection, &statement),
            _ => {
                let _ = sender.send(Ok(Answer::Closed(statement)));
                continue;
            }
        };
        if rows.as_ref().is_err_and(is_broken) {
            *open = None;
        }
        drop(open);
        let _ = sender.send(rows.map(Answer::Rows).map_err(|error| said(&error, &place.path)));
    }
}

/// Whether a connection that said this is better made anew: what it knows of the file may be wrong by now. A full disk and
/// a lock that another process holds pass by themselves.
fn is_broken(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
        )
    )
}

fn select(connection: &Connection, statement: &Statement) -> rusqlite::Result<Vec<Row>> {
    let mut prepared = connection.prepare_cached(statement.sql)?;
    let columns = prepared.column_count();
    let rows = prepared.query_map(params_from_iter(&statement.params), |row| {
        (0..columns)
            .map(|column| {
                Ok(match row.get_ref(column)? {
                    ValueRef::Integer(value) => Param::Int(value),
                    ValueRef::Text(text) => Param::Text(String::from_utf8_lossy(text).into_owned()),
                    ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => Param::Null,
                })
            })
            .collect()
    })?;
    rows.collect()
}

fn said(error: &rusqlite::Error, path: &Path) -> StoreError {
    said_in(&(error.sqlite_error_code(), error.to_string()), path)
}

fn said_in((code, reason): &(Option<ErrorCode>, String), path: &Path) -> StoreError {
    match code {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt { path: path.to_owned(), reason: reason.clone() }
        }
        Some(ErrorCode::DiskFull) => StoreError::Full { place: path.display().to_string() },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            unavailable(path, "it is locked by another program")
        }
        _ => unavailable(path, reason),
    }
}

fn unavailable(path: &Path, reason: &str) -> StoreError {
    StoreError::Unavailable { place: path.display().to_string(), reason: reason.to_owned() }
}
