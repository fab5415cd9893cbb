//! The file: its directory's lock, and the connections, which are made again when it is not what it was.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use tracing::{info, warn};

use super::{READERS, said, unavailable};
use crate::error::StoreError;
use crate::schema::STEPS;

/// Another program (a backup, a shell) may hold the file's lock so long before a request fails.
const BUSY: Duration = Duration::from_secs(5);
/// Between two tries to open it: many who ask at once share what came of one, also where each try waits for a lock.
const PAUSE: Duration = Duration::from_secs(1);

/// What of an acknowledged commit is there after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// All of it.
    Full,
    /// All of it after a crash of the program, not after one of the machine. For tests, which show by it that they would
    /// notice.
    Normal,
}

/// Which file is behind a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        path.metadata().ok().map(|file| Self(file.dev(), file.ino()))
    }
}

/// Where the database is.
pub(super) struct Place {
    dir: PathBuf,
    pub(super) path: PathBuf,
    durability: Durability,
    readers: [Mutex<Option<Reader>>; READERS],
}

/// A connection that reads, to one file.
pub(super) struct Reader {
    pub(super) connection: Connection,
    identity: Identity,
}

impl Place {
    pub(super) fn new(dir: &Path, durability: Durability) -> Self {
        Self { dir: dir.to_owned(), path: dir.join("lf.db"), durability, readers: Default::default() }
    }

    /// The place of one reader's connection; empty while the database is not open.
    pub(super) fn reader(&self, at: usize) -> MutexGuard<'_, Option<Reader>> {
        self.readers[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the path still leads to the file of this connection.
    pub(super) fn is_of(&self, reader: &Reader) -> bool {
        Identity::of(&self.path) == Some(reader.identity)
    }

    fn readers_are_open(&self) -> bool {
        // one that is reading just now is open, and is not waited for
        self.readers.iter().all(|reader| match reader.try_lock() {
            Ok(reader) => reader.is_some(),
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Poisoned(reader)) => reader.into_inner().is_some(),
        })
    }
}

/// The side that writes, and that opens for all.
#[derive(Default)]
pub(super) struct Writer {
    lock: Option<(File, Identity)>,
    connection: Option<(Connection, Identity)>,
    failed: Option<(Instant, StoreError)>,
}

impl Writer {
    /// The connection, opened again where the file was moved, deleted or given up. Its schema is the present one.
    ///
    /// # Errors
    /// [`StoreError`]; no file is deleted or emptied. The same one for a second.
    pub(super) fn connection(&mut self, place: &Place) -> Result<&mut Connection, StoreError> {
        let in_place = |(_, identity): &(Connection, Identity)| Identity::of(&place.path) == Some(*identity);
        if !self.connection.as_ref().is_some_and(in_place) || !place.readers_are_open() {
            self.open(place)?;
        }
        match &mut self.connection {
            Some((connection, _)) => Ok(connection),
            None => Err(unavailable(&place.path, "it is not open")),
        }
    }

    fn open(&mut self, place: &Place) -> Result<(), StoreError> {
        if self.connection.is_some() {
            warn!(path = %place.path.display(), "the database was moved or given up and is opened again");
            self.close(place);
        }
        if let Some((at, error)) = &self.failed
            && at.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        let opened = self.hold(place).and_then(|()| open(place));
        match opened {
            Ok(opened) => {
                self.connection = Some(opened);
                if self.failed.take().is_some() {
                    info!(path = %place.path.display(), "the database can be used again");
                }
                Ok(())
            }
            Err(error) => {
                self.close(place);
                self.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Lets go of every connection. SQLite finds the log beside the file by its name: with one connection to a former file
    /// left, the next one would take that file's log for its own.
    pub(super) fn close(&mut self, place: &Place) {
        for at in 0..READERS {
            *place.reader(at) = None;
        }
        self.connection = None;
    }

    /// One daemon per directory: a second one would answer from a memory that the first one changes.
    fn hold(&mut self, place: &Place) -> Result<(), StoreError> {
        let path = place.dir.join("lf.lock");
        if self.lock.as_ref().is_some_and(|(_, identity)| Identity::of(&path) == Some(*identity)) {
            return Ok(());
        }
        self.lock = None;
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&place.dir);
        made.map_err(|error| of_system(&place.dir, &error))?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = file.map_err(|error| of_system(&path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(StoreError::InUse { path: place.dir.clone() });
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(of_system(&path, &error)),
        }
        let identity = Identity::of(&path).ok_or_else(|| unavailable(&path, "it was deleted"))?;
        self.lock = Some((file, identity));
        Ok(())
    }
}

fn open(place: &Place) -> Result<(Connection, Identity), StoreError> {
    let path = &place.path;
    make(path)?;
    let gone = || unavailable(path, "it was deleted");
    let identity = Identity::of(path).ok_or_else(gone)?;
    let mut connection = connect(path, Some(place.durability))?;
    migrate(&mut connection, path)?;
    for at in 0..READERS {
        *place.reader(at) = Some(Reader { connection: connect(path, None)?, identity });
    }
    Ok((connection, identity))
}

/// Makes the file where there is none: nobody else may read it, as conversations are private, and SQLite gives its other
/// files the same mode. One that is there is not opened here: closing it would let go of SQLite's own locks on it.
fn make(path: &Path) -> Result<(), StoreError> {
    if path.exists() {
        return Ok(());
    }
    // SQLite would empty the log that lies beside an empty file
    let log = path.with_extension("db-wal");
    if log.metadata().is_ok_and(|log| log.len() > 0) {
        let reason = format!("it is gone, but its log `{}` is there", log.display());
        return Err(StoreError::Corrupt { path: path.to_owned(), reason });
    }
    match OpenOptions::new().create_new(true).write(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(of_system(path, &error)),
    }
}

/// A connection that writes, or else one that reads.
fn connect(path: &Path, writes: Option<Durability>) -> Result<Connection, StoreError> {
    let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags |= match writes {
        Some(_) => OpenFlags::SQLITE_OPEN_READ_WRITE,
        None => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        if let Some(durability) = writes {
            connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
            let synchronous = match durability {
                Durability::Full => "full",
                Durability::Normal => "normal",
            };
            connection.pragma_update(None, "synchronous", synchronous)?;
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
        return Err(StoreError::TooNew { place: path.display().to_string(), found, known });
    }
    if found > 0 && found < known {
        back_up(connection, path, found).map_err(|error| said(&error, path))?;
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

/// Keeps the database as it is before a newer version changes its tables, as `lf.db.v1` for version 1; an earlier copy of
/// that version is written over. Without room for it, nothing is changed.
fn back_up(connection: &Connection, path: &Path, version: i64) -> rusqlite::Result<()> {
    let copy = path.with_extension(format!("db.v{version}"));
    let _ = std::fs::remove_file(&copy);
    // SQLite writes into an empty file, and would make one that others may read
    let made = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&copy);
    if let Err(error) = made {
        warn!(path = %copy.display(), %error, "the database cannot be copied before it is changed");
    }
    connection.execute("VACUUM INTO ?1", [copy.to_string_lossy()])?;
    info!(path = %copy.display(), version, "the database is kept as it was before this version changes it");
    Ok(())
}

/// Deletes the copies of earlier versions: they have what is now to be forgotten.
pub(super) fn forget_copies(path: &Path) {
    for version in 1..STEPS.len() {
        let copy = path.with_extension(format!("db.v{version}"));
        match std::fs::remove_file(&copy) {
            Ok(()) => info!(path = %copy.display(), "a copy of the database goes with what is deleted"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => warn!(path = %copy.display(), %error, "a copy of the database cannot be deleted"),
        }
    }
}

fn of_system(path: &Path, error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull => StoreError::Full { place: path.display().to_string() },
        _ => unavailable(path, &error.to_string()),
    }
}
