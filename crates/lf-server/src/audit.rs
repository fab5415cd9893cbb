//! The audit record in files: `audit/000001.jsonl` and on, in the data directory, for their owner alone. One thread writes;
//! whoever has something to say never waits for it. Processes that share a data directory share the record.

mod files;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lf_core::Principal;
use lf_core::audit::{Event, Record};

use files::Files;
pub use files::{Fault, Line, Verified, verify, walk};

/// Of the data directory.
pub const DIRECTORY: &str = "audit";
/// Records that wait to be written; what comes beyond them is counted as lost.
const WAITING: usize = 4096;
/// Records that are written, and synced, in one go.
const BATCH: usize = 512;
/// Refusals of one second that are recorded one by one.
const REFUSALS: u32 = 20;
/// Until what could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// What an end waits for what is still to be written.
const AT_THE_END: Duration = Duration::from_secs(2);

/// Takes records. Ends with its last handle, when all is written.
#[derive(Debug)]
pub struct Audit {
    /// `None` where nothing is recorded.
    records: Mutex<Option<SyncSender<Told>>>,
    lost: Arc<AtomicU64>,
    refusals: Mutex<Refusals>,
    /// Tells that the writer is done.
    done: Mutex<Option<Receiver<()>>>,
}

/// What was refused within a second.
#[derive(Debug)]
struct Refusals {
    since: Instant,
    count: u32,
    /// Those that are not on record yet.
    unsaid: u64,
}

impl Default for Refusals {
    fn default() -> Self {
        Self { since: Instant::now(), count: 0, unsaid: 0 }
    }
}

/// A record and when it was made.
struct Told {
    record: Record,
    at: SystemTime,
}

impl Audit {
    /// Records into a directory, which is made with the first record.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn into(directory: &Path) -> std::io::Result<Self> {
        let (records, told) = sync_channel(WAITING);
        let (ended, done) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let mut writer =
            Writer { files: Files::new(directory), lost: lost.clone(), batch: Vec::new(), failing: false };
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || {
            writer.run(&told);
            let _ = ended.send(());
        })?;
        Ok(Self {
            records: Mutex::new(Some(records)),
            lost,
            refusals: Mutex::default(),
            done: Mutex::new(Some(done)),
        })
    }

    /// Nothing is recorded.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self {
            records: Mutex::default(),
            lost: Arc::default(),
            refusals: Mutex::default(),
            done: Mutex::default(),
        }
    }

    /// Adds a record; it is written soon. One that has no room is counted, and the number recorded.
    pub fn record(&self, record: Record) {
        let told = Told { record: record.bounded(), at: SystemTime::now() };
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(records) = &*records
            && records.try_send(told).is_err()
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Somebody was not let in. Whoever tries keys cannot fill the disk: of one second, [`REFUSALS`] are recorded, and how
    /// many more there were with the next.
    pub(crate) fn refused(&self, who: Option<&Principal>, what: &str) {
        let unsaid = {
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            if refusals.since.elapsed() >= Duration::from_secs(1) {
                (refusals.since, refusals.count) = (Instant::now(), 0);
            }
            refusals.count += 1;
            if refusals.count > REFUSALS {
                refusals.unsaid += 1;
                return;
            }
            std::mem::take(&mut refusals.unsaid)
        };
        let more = if unsaid > 0 { format!(" (and {unsaid} more refusals before)") } else { String::new() };
        let record = Record { outcome: Some("refused"), ..Record::new(Event::Authentication) };
        let record = match who {
            Some(who) => record.of(who),
            None => record,
        };
        self.record(record.detail(&format!("{what}{more}")));
    }

    /// Of refusals that were not told one by one, how many there were.
    fn tell_unsaid(&self) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let unsaid = std::mem::take(&mut refusals.unsaid);
        drop(refusals);
        if unsaid > 0 {
            let record = Record { outcome: Some("refused"), ..Record::new(Event::Authentication) };
            self.record(record.detail(&format!("{unsaid} more refusals before")));
        }
    }

    /// Writes what is left, for at most 2 s; nothing is recorded afterwards. It blocks.
    pub fn close(&self) {
        self.close_within(AT_THE_END);
    }

    fn close_within(&self, limit: Duration) {
        self.tell_unsaid();
        drop(self.records.lock().unwrap_or_else(PoisonError::into_inner).take());
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(done) = done
            && done.recv_timeout(limit) == Err(RecvTimeoutError::Timeout)
        {
            tracing::error!("the audit record could not be written to its end");
        }
    }
}

struct Writer {
    files: Files,
    lost: Arc<AtomicU64>,
    /// Not yet written.
    batch: Vec<Told>,
    failing: bool,
}

impl Writer {
    fn run(&mut self, told: &Receiver<Told>) {
        loop {
            let open = self.fill(told);
            let written = self.write();
            if !open && (written || self.batch.is_empty()) {
                return;
            }
            if !open {
                // the end waits 2 s for this at most
                std::thread::sleep(AGAIN / 4);
            }
        }
    }

    /// Takes what waits. False when no more can come.
    fn fill(&mut self, told: &Receiver<Told>) -> bool {
        if self.batch.len() >= BATCH {
            // what cannot be written yet stays, and what comes waits where it is
            std::thread::sleep(AGAIN);
            return true;
        }
        if self.batch.is_empty() && self.lost.load(Ordering::Relaxed) == 0 {
            match told.recv() {
                Ok(first) => self.batch.push(first),
                Err(_) => return false,
            }
        } else {
            match told.recv_timeout(AGAIN) {
                Ok(next) => self.batch.push(next),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        while self.batch.len() < BATCH {
            match told.try_recv() {
                Ok(next) => self.batch.push(next),
                Err(_) => break,
            }
        }
        true
    }

    /// Writes the batch, and how many were lost behind it. False when it stays.
    fn write(&mut self) -> bool {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if self.batch.is_empty() && lost == 0 {
            return true;
        }
        let gap = (lost > 0).then(|| {
            let record = Record::new(Event::Lost);
            Told {
                record: record.detail(&format!("{lost} records could not be written")),
                at: SystemTime::now(),
            }
        });
        let told = self.batch.iter().chain(&gap);
        match self.files.append(told.map(|told| (&told.record, told.at))) {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!(lost, "the audit record is written again");
                }
                self.batch.clear();
                true
            }
            Err(error) => {
                self.lost.fetch_add(lost, Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(%error, directory = %self.files.directory().display(), "the audit record cannot be written");
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
