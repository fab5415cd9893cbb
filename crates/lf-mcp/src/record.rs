//! What happened with one server, over all its connections: counters, the end of its stderr, and what it wrote to
//! stdout that is no message. Kept as long as the server is in a project's file.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use lf_core::McpServer;

use crate::failure::{Failure, excerpt};
use crate::spawn::Mark;

/// Bytes of stderr kept, over all starts.
const STDERR: usize = 64 * 1024;
/// Lines of noise kept, the last ones,
const NOISE: usize = 5;
/// and characters of each.
const NOISE_WIDTH: usize = 200;

/// The records of all servers that were ever wanted and are still in a file.
#[derive(Debug, Default)]
pub(crate) struct Records(Mutex<HashMap<Arc<McpServer>, Arc<Record>>>);

impl Records {
    /// The record of this server, begun where there is none.
    pub(crate) fn of(&self, server: &McpServer) -> Arc<Record> {
        let mut records = self.lock();
        if let Some(record) = records.get(server) {
            return record.clone();
        }
        records.entry(Arc::new(server.clone())).or_default().clone()
    }

    pub(crate) fn known(&self, server: &McpServer) -> Option<Arc<Record>> {
        self.lock().get(server).cloned()
    }

    pub(crate) fn forget(&self, server: &McpServer) {
        self.lock().remove(server);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<McpServer>, Arc<Record>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record of one server.
#[derive(Debug, Default)]
pub(crate) struct Record(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    counters: Counters,
    circuit: Circuit,
    state_since: SystemTime,
    last_failure: Option<(SystemTime, Failure)>,
    doubt: Option<Failure>,
    program: Option<Mark>,
    /// What its sandbox does without.
    lacks: String,
    noise: VecDeque<String>,
    stderr: VecDeque<String>,
    stderr_bytes: usize,
}

impl Default for Inner {
    fn default() -> Self {
        let now = SystemTime::now();
        Self {
            counters: Counters { since: now, ..Counters::default() },
            circuit: Circuit::default(),
            state_since: now,
            last_failure: None,
            doubt: None,
            program: None,
            lacks: String::new(),
            noise: VecDeque::new(),
            stderr: VecDeque::new(),
            stderr_bytes: 0,
        }
    }
}

/// What was counted since a point in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    pub since: SystemTime,
    /// Connects, and starts of the program, that were tried.
    pub starts: u64,
    /// Those among them that followed another.
    pub restarts: u64,
    /// Calls of tools, and what else was passed on for a client.
    pub calls: u64,
    /// Those that got no answer. An error that a tool reports is an answer.
    pub failed_calls: u64,
    /// Starts that failed, and connections that were lost.
    pub failures: u64,
    /// Lines on stdout that were no messages.
    pub garbage: u64,
    /// Notifications that nobody asked for, and reports of progress that came faster than they were taken.
    pub dropped: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            since: SystemTime::UNIX_EPOCH,
            starts: 0,
            restarts: 0,
            calls: 0,
            failed_calls: 0,
            failures: 0,
            garbage: 0,
            dropped: 0,
        }
    }
}

/// Whether a server that keeps failing is tried at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Circuit {
    /// It is tried whenever it is needed, with growing pauses after failures.
    #[default]
    Closed,
    /// It failed five times in a minute: no try for half a minute.
    Open,
    /// It is being tried once more; another failure opens the circuit again.
    HalfOpen,
}

impl Circuit {
    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// What is known of the past of one server.
#[derive(Debug, Clone, PartialEq)]
pub struct Activity {
    pub counters: Counters,
    pub circuit: Circuit,
    /// Since when it is in its state.
    pub state_since: SystemTime,
    /// The last failed start or lost connection, also when all is well again.
    pub last_failure: Option<(SystemTime, Failure)>,
    /// Why a server that is connected may not be there any more, while that is being found out.
    pub doubt: Option<Failure>,
    /// The last lines on stdout that were no messages, without secrets.
    pub noise: Vec<String>,
    /// The last lines on stderr, without secrets: at most 64 KiB.
    pub stderr: Vec<String>,
}

impl Record {
    /// A try to connect begins.
    pub(crate) fn started(&self) {
        let mut inner = self.lock();
        inner.counters.restarts += u64::from(inner.counters.starts > 0);
        inner.counters.starts += 1;
    }

    /// Notes which program is started. Returns what it was the last time.
    pub(crate) fn started_as(&self, program: Mark) -> Option<Mark> {
        self.lock().program.replace(program)
    }

    /// Notes without what it was started. Returns whether that is news.
    pub(crate) fn lacks(&self, what: &str) -> bool {
        let mut inner = self.lock();
        let is_news = inner.lacks != what;
        what.clone_into(&mut inner.lacks);
        is_news
    }

    pub(crate) fn failed(&self, failure: &Failure) {
        let mut inner = self.lock();
        inner.counters.failures += 1;
        inner.last_failure = Some((SystemTime::now(), failure.clone()));
    }

    pub(crate) fn called(&self) {
        self.lock().counters.calls += 1;
    }

    pub(crate) fn call_failed(&self) {
        self.lock().counters.failed_calls += 1;
    }

    pub(crate) fn dropped(&self) {
        self.lock().counters.dropped += 1;
    }

    /// Notes a line on stdout that is no message; `line` without secrets.
    pub(crate) fn garbage(&self, line: &str) {
        let mut inner = self.lock();
        inner.counters.garbage += 1;
        if inner.noise.len() == NOISE {
            inner.noise.pop_front();
        }
        inner.noise.push_back(excerpt(line, NOISE_WIDTH));
    }

    /// Keeps a line of stderr, which holds no secrets.
    pub(crate) fn stderr(&self, line: &str) {
        let mut inner = self.lock();
        inner.stderr_bytes += line.len() + 1;
        inner.stderr.push_back(line.to_owned());
        while inner.stderr_bytes > STDERR {
            let Some(oldest) = inner.stderr.pop_front() else { break };
            inner.stderr_bytes -= oldest.len() + 1;
        }
    }

    pub(crate) fn state_changed(&self) {
        self.lock().state_since = SystemTime::now();
    }

    pub(crate) fn set_circuit(&self, circuit: Circuit) {
        self.lock().circuit = circuit;
    }

    pub(crate) fn set_doubt(&self, doubt: Option<Failure>) {
        self.lock().doubt = doubt;
    }

    pub(crate) fn activity(&self) -> Activity {
        let inner = self.lock();
        Activity {
            counters: inner.counters.clone(),
            circuit: inner.circuit,
            state_since: inner.state_since,
            last_failure: inner.last_failure.clone(),
            doubt: inner.doubt.clone(),
            noise: inner.noise.iter().cloned().collect(),
            stderr: inner.stderr.iter().cloned().collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
