//! One SQLite file: a thread that writes, with one commit for all who wait, and threads that read.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc as threads;
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, params_from_iter};
use tokio::sync::{mpsc, oneshot};

use crate::error::StoreError;
use crate::schema::STEPS;

/// Batches that wait for the writer; a caller beyond that waits with them.
const QUEUE: usize = 1024;
/// Batches of one commit.
const GROUP: usize = 256;
/// Another program (a backup, a shell) may hold the file's lock so long before a request fails.
const BUSY: Duration = Duration::from_secs(5);
const READERS: usize = 2;

/// A value of a row or a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Param {
    Null,
    Int(i64),
    Text(String),
}

impl From<i64> for Param {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<String> for Param {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&str> for Param {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl<T: Into<Self>> From<Option<T>> for Param {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
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

pub(crate) type Row = Vec<Param>;

#[derive(Debug)]
pub(crate) struct Statement {
    pub sql: &'static str,
    pub params: Vec<Param>,
}

/// Statements of which all are done or none.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    statements: Vec<Statement>,
    /// What it deletes must not be found in the files any more.
    erases: bool,
}

impl Batch {
    /// Of statements that delete what somebody said.
    pub(crate) fn erasing() -> Self {
        Self { erases: true, ..Self::default() }
    }

    pub(crate) fn add(&mut self, sql: &'static str, params: Vec<Param>) {
        self.statements.push(Statement { sql, params });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }
}

/// How many rows each statement of a batch changed.
type Committed = Result<Vec<usize>, StoreError>;
type Write = (Batch, oneshot::Sender<Committed>);
type Read = (Statement, oneshot::Sender<Result<Vec<Row>, StoreError>>);

/// The threads end when the last handle is dropped.
pub(crate) struct Sqlite {
    writes: mpsc::Sender<Write>,
    reads: Vec<threads::SyncSender<Read>>,
    path: Arc<PathBuf>,
    next: std::sync::atomic::AtomicUsize,
    /// Held as long as the database is in use.
    _lock: File,
}

impl Sqlite {
    /// Opens or makes `lf.db` in this directory, and brings it to the present schema. Blocks for as long as that takes.
    ///
    /// # Errors
    /// [`StoreError`]; the file is never deleted or emptied.
    pub(crate) fn open(dir: &Path) -> Result<Self, StoreError> {
        let lock = lock(dir)?;
        let path = dir.join("lf.db");
        // SQLite gives its other files the mode of this one
        drop(private(&path)?);
        let mut connection = connect(&path, true)?;
        migrate(&mut connection, &path)?;
        let path = Arc::new(path);
        let (writes, queue) = mpsc::channel(QUEUE);
        let place = path.clone();
        thread("lf-store-write", &path, move || write(&mut connection, queue, &place))?;
        let mut reads = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let (sender, queue) = threads::sync_channel(QUEUE);
            let connection = connect(&path, false)?;
            let place = path.clone();
            thread("lf-store-read", &path, move || read(&connection, &queue, &place))?;
            reads.push(sender);
        }
        Ok(Self { writes, reads, path, next: Default::default(), _lock: lock })
    }

    /// Returns when the batch is on the disk. Dropping the future does not undo it.
    pub(crate) async fn commit(&self, batch: Batch) -> Committed {
        let (sender, done) = oneshot::channel();
        let gone = || unavailable(&self.path, "its writer has ended");
        self.writes.send((batch, sender)).await.map_err(|_| gone())?;
        done.await.map_err(|_| gone())?
    }

    pub(crate) async fn query(&self, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>, StoreError> {
        let (sender, done) = oneshot::channel();
        let at = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % self.reads.len();
        let gone = |_| unavailable(&self.path, "its readers have ended or are all busy");
        self.reads[at].try_send((Statement { sql, params }, sender)).map_err(|_| gone(()))?;
        done.await.map_err(|_| gone(()))?
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn thread(name: &str, path: &Path, run: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map(drop).map_err(|error| unavailable(path, &error.to_string()))
}

/// One daemon per directory: a second one would answer from a memory that the first one changes.
fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("lf.lock");
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| unavailable(dir, &error.to_string()))?;
    let file = private(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: dir.to_owned() }),
        Err(TryLockError::Error(error)) => Err(unavailable(&path, &error.to_string())),
    }
}

/// Opens or makes a file that nobody else may read: conversations are private.
fn private(path: &Path) -> Result<File, StoreError> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    file.map_err(|error| unavailable(path, &error.to_string()))
}

fn connect(path: &Path, write: bool) -> Result<Connection, StoreError> {
    let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags |= match write {
        true => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        false => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        if write {
            connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
            // NORMAL loses what was acknowledged when the power goes
            connection.pragma_update(None, "synchronous", "full")?;
            // what is deleted is overwritten, and not only forgotten
            connection.pragma_update(None, "secure_delete", true)?;
        }
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    };
    open().map_err(|error| said(&error, path))
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let found: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|error| said(&error, path))?;
    if found > known {
        return Err(StoreError::TooNew { path: path.to_owned(), found, known });
    }
    let missing = STEPS.iter().skip(usize::try_from(found).unwrap_or(0));
    let all = |connection: &mut Connection| {
        let transaction = connection.transaction()?;
        for step in missing {
            transaction.execute_batch(step)?;
        }
        transaction.pragma_update(None, "user_version", known)?;
        transaction.commit()
    };
    if found == known { Ok(()) } else { all(connection).map_err(|error| said(&error, path)) }
}

fn write(connection: &mut Connection, mut queue: mpsc::Receiver<Write>, path: &Path) {
    let mut erased = false;
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP {
            let Ok(next) = queue.try_recv() else { break };
            group.push(next);
        }
        let outcomes = commit(connection, &group);
        erased |= group.iter().any(|(batch, _)| batch.erases);
        if erased {
            erased = !empty_log(connection);
        }
        for (at, (_, sender)) in group.into_iter().enumerate() {
            let outcome = match &outcomes {
                Ok(done) => done[at].clone().map_err(|error| said_in(&error, path)),
                Err(error) => Err(said(error, path)),
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
            // dropped, the savepoint is undone
            Err(error) => outcomes.push(Err((error.sqlite_error_code(), error.to_string()))),
        }
    }
    transaction.commit()?;
    Ok(outcomes)
}

fn read(connection: &Connection, queue: &threads::Receiver<Read>, path: &Path) {
    while let Ok((statement, sender)) = queue.recv() {
        let rows = select(connection, &statement).map_err(|error| said(&error, path));
        let _ = sender.send(rows);
    }
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
        _ => unavailable(path, reason),
    }
}

fn unavailable(path: &Path, reason: &str) -> StoreError {
    StoreError::Unavailable { path: path.to_owned(), reason: reason.to_owned() }
}
