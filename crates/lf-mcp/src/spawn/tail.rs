//! The end of what a child wrote to stderr. The pipe is always drained: a full one would stop the child.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::failure::excerpt;
use crate::record::Record;
use crate::secrets::Secrets;

/// Bytes kept of one line; the rest of it is read over.
const LONGEST_LINE: usize = 4 * 1024;
/// Lines shown when a start fails.
const SHOWN_LINES: usize = 6;
/// Characters shown of one of them.
const SHOWN_WIDTH: usize = 240;
/// Lines logged per second; a child may write gigabytes.
const LOGGED_LINES: usize = 50;
/// For what the child wrote last to come through the pipe.
const SETTLE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Default)]
pub(super) struct Tail {
    lines: Arc<Mutex<Lines>>,
    secrets: Arc<Secrets>,
    drained: CancellationToken,
    /// Nobody reads on behalf of a child that is over, even if something it left behind holds the pipe.
    over: CancellationToken,
}

/// Lines are put together before anything is done with them: the halves of a secret that came in two reads are not
/// found any more.
#[derive(Debug, Default)]
struct Lines {
    /// Of this start, as they are shown.
    last: VecDeque<String>,
    /// The one that has not ended yet.
    begun: Vec<u8>,
}

impl Tail {
    /// Reads `stderr` to its end in a task of its own.
    pub(super) fn drain(
        stderr: impl AsyncRead + Unpin + Send + 'static,
        tracker: &TaskTracker,
        server: &str,
        secrets: Arc<Secrets>,
        record: Arc<Record>,
    ) -> Self {
        let tail = Self { secrets, ..Self::default() };
        let task = tail.clone();
        let log = Log { server: server.to_owned(), record, second: Instant::now(), lines: 0 };
        tracker.spawn(async move {
            let over = task.over.clone();
            over.run_until_cancelled(task.read(stderr, log)).await;
        });
        tail
    }

    async fn read(&self, mut stderr: impl AsyncRead + Unpin, mut log: Log) {
        let mut buffer = vec![0; 8 * 1024];
        while let Ok(count) = stderr.read(&mut buffer).await {
            if count == 0 {
                break;
            }
            self.add(&buffer[..count], &mut log);
        }
        self.add(b"\n", &mut log);
        self.drained.cancel();
    }

    fn add(&self, bytes: &[u8], log: &mut Log) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // a carriage return ends a line too: it is how progress is shown
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, is_whole) = match part.split_last() {
                Some((b'\n' | b'\r', text)) => (text, true),
                _ => (part, false),
            };
            let room = LONGEST_LINE.saturating_sub(lines.begun.len());
            lines.begun.extend_from_slice(&text[..text.len().min(room)]);
            if !is_whole {
                continue;
            }
            let line = std::mem::take(&mut lines.begun);
            if line.trim_ascii().is_empty() {
                continue;
            }
            let line = self.secrets.message(&String::from_utf8_lossy(&line));
            log.record.stderr(line.trim_end());
            let shown = excerpt(&line, SHOWN_WIDTH);
            log.write(&shown);
            if lines.last.len() == SHOWN_LINES {
                lines.last.pop_front();
            }
            lines.last.push_back(shown);
        }
    }

    /// Ends the reading.
    pub(super) fn end(&self) {
        self.over.cancel();
    }

    pub(super) async fn last_lines(&self) -> Vec<String> {
        let _ = tokio::time::timeout(SETTLE, self.drained.cancelled()).await;
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = excerpt(&self.secrets.message(&String::from_utf8_lossy(&lines.begun)), SHOWN_WIDTH);
        let begun = Some(begun).filter(|begun| !begun.is_empty());
        lines.last.iter().cloned().chain(begun).collect()
    }
}

/// Where the lines of one child go.
struct Log {
    server: String,
    record: Arc<Record>,
    second: Instant,
    lines: usize,
}

impl Log {
    fn write(&mut self, line: &str) {
        if self.second.elapsed() > Duration::from_secs(1) {
            self.second = Instant::now();
            self.lines = 0;
        }
        self.lines += 1;
        if self.lines <= LOGGED_LINES {
            tracing::debug!(server = self.server, line, "stderr");
        }
    }
}
