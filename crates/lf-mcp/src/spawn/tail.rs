//! The end of what a child wrote to stderr. The pipe is always drained: a full one would stop the child.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::failure::excerpt;
use crate::secrets::Secrets;

/// Bytes kept.
const CAPACITY: usize = 64 * 1024;
/// Lines shown when a start fails.
const SHOWN_LINES: usize = 6;
/// Characters shown of one of them.
const SHOWN_WIDTH: usize = 240;
/// Lines logged per second; a child may write gigabytes.
const LOGGED_LINES: usize = 50;
/// For what the child wrote last to come through the pipe.
const SETTLE: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Default)]
pub(super) struct Tail {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    secrets: Arc<Secrets>,
    drained: CancellationToken,
    /// Nobody reads on behalf of a child that is over, even if something it left behind holds the pipe.
    over: CancellationToken,
}

impl Tail {
    /// Reads `stderr` to its end in a task of its own.
    pub(super) fn drain(
        stderr: impl AsyncRead + Unpin + Send + 'static,
        tracker: &TaskTracker,
        server: &str,
        secrets: Arc<Secrets>,
    ) -> Self {
        let tail = Self { secrets, ..Self::default() };
        let task = tail.clone();
        let server = server.to_owned();
        tracker.spawn(async move {
            let over = task.over.clone();
            over.run_until_cancelled(task.read(stderr, &server)).await;
        });
        tail
    }

    async fn read(&self, mut stderr: impl AsyncRead + Unpin, server: &str) {
        let mut buffer = vec![0; 8 * 1024];
        let mut log = LineLog { server, secrets: &self.secrets, second: Instant::now(), lines: 0 };
        while let Ok(count) = stderr.read(&mut buffer).await {
            if count == 0 {
                break;
            }
            log.write(&buffer[..count]);
            let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            bytes.extend(&buffer[..count]);
            let surplus = bytes.len().saturating_sub(CAPACITY);
            bytes.drain(..surplus);
        }
        self.drained.cancel();
    }

    /// Ends the reading.
    pub(super) fn end(&self) {
        self.over.cancel();
    }

    pub(super) async fn last_lines(&self) -> Vec<String> {
        let _ = tokio::time::timeout(SETTLE, self.drained.cancelled()).await;
        let bytes: Vec<u8> =
            self.bytes.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        // before the lines are cut: the half of a secret is not found any more
        let text = self.secrets.message(&String::from_utf8_lossy(&bytes));
        let lines = text.lines().map(|line| excerpt(line, SHOWN_WIDTH)).filter(|line| !line.is_empty());
        let mut last: Vec<String> = lines.rev().take(SHOWN_LINES).collect();
        last.reverse();
        last
    }
}

struct LineLog<'a> {
    server: &'a str,
    secrets: &'a Secrets,
    second: Instant,
    lines: usize,
}

impl LineLog<'_> {
    fn write(&mut self, bytes: &[u8]) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        if self.second.elapsed() > Duration::from_secs(1) {
            *self = Self { second: Instant::now(), lines: 0, ..*self };
        }
        for line in String::from_utf8_lossy(bytes).lines() {
            self.lines += 1;
            if self.lines > LOGGED_LINES {
                return;
            }
            let line = self.secrets.message(line);
            tracing::debug!(server = self.server, line = excerpt(&line, SHOWN_WIDTH), "stderr");
        }
    }
}
