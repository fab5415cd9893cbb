//! How long a server that keeps failing is left alone.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// Failures in a row after which only one try per [`LONGEST`] is made.
const OPEN_AFTER: u32 = 5;
/// What ran, or was left alone, this long starts with a clean slate.
const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    last_failure: Option<Instant>,
    started: Option<Instant>,
}

impl Backoff {
    pub(super) fn started(&mut self) {
        self.started = Some(Instant::now());
    }

    /// Counts a start that failed. Returns how long to wait before the next.
    pub(super) fn failed_to_start(&mut self) -> Duration {
        if self.last_failure.is_some_and(|last| last.elapsed() > FORGIVEN_AFTER) {
            self.failures = 0;
        }
        self.count();
        jittered(delay(self.failures))
    }

    /// Counts the end of a session that had been ready. The first in a row is mended at once.
    pub(super) fn died(&mut self) -> Duration {
        if self.started.is_some_and(|started| started.elapsed() > FORGIVEN_AFTER) {
            self.failures = 0;
        }
        self.count();
        if self.failures == 1 { Duration::ZERO } else { jittered(delay(self.failures - 1)) }
    }

    fn count(&mut self) {
        self.failures = self.failures.saturating_add(1);
        self.last_failure = Some(Instant::now());
    }
}

fn delay(failures: u32) -> Duration {
    if failures >= OPEN_AFTER {
        return LONGEST;
    }
    (FIRST * 2u32.saturating_pow(failures.saturating_sub(1))).min(LONGEST)
}

/// Up to a fifth less, so that servers that failed together are not tried together.
fn jittered(delay: Duration) -> Duration {
    // A fresh hasher is keyed at random: enough for a jitter, without a random number generator.
    let random = RandomState::new().hash_one(0) % 200;
    let share = u32::try_from(random).unwrap_or_default();
    delay * (1000 - share) / 1000
}

#[cfg(test)]
mod tests;
