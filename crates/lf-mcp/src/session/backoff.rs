//! How long a server that keeps failing is left alone.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio::time::Instant;

use crate::record::Circuit;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// Failures within [`FORGIVEN_AFTER`] that open the circuit.
const OPEN_AFTER: usize = 5;
/// What ran, or was left alone, this long starts with a clean slate.
pub(super) const FORGIVEN_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Backoff {
    in_a_row: u32,
    /// The last failures, at most [`OPEN_AFTER`].
    recent: VecDeque<Instant>,
    started: Option<Instant>,
    circuit: Circuit,
}

impl Backoff {
    pub(super) fn circuit(&self) -> Circuit {
        self.circuit
    }

    /// A start is tried.
    pub(super) fn trying(&mut self) {
        if self.circuit == Circuit::Open {
            self.circuit = Circuit::HalfOpen;
        }
    }

    pub(super) fn started(&mut self) {
        self.started = Some(Instant::now());
    }

    /// Counts a start that failed. Returns how long to wait before the next.
    pub(super) fn failed_to_start(&mut self) -> Duration {
        if self.recent.back().is_some_and(|last| last.elapsed() > FORGIVEN_AFTER) {
            self.in_a_row = 0;
        }
        self.count();
        self.pause(self.in_a_row)
    }

    /// Counts the end of a session that had been ready. The first in a row is mended at once.
    pub(super) fn died(&mut self) -> Duration {
        if self.started.is_some_and(|started| started.elapsed() >= FORGIVEN_AFTER) {
            self.forgive();
        }
        self.count();
        match self.circuit {
            Circuit::Closed if self.in_a_row == 1 => Duration::ZERO,
            _ => self.pause(self.in_a_row - 1),
        }
    }

    /// What was is forgotten: a session lasted.
    pub(super) fn forgive(&mut self) {
        *self = Self { started: self.started, ..Self::default() };
    }

    fn count(&mut self) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.recent.retain(|failure| failure.elapsed() <= FORGIVEN_AFTER);
        while self.recent.len() >= OPEN_AFTER {
            self.recent.pop_front();
        }
        self.recent.push_back(Instant::now());
        // a probe that fails opens it again, whatever else there was
        if self.circuit == Circuit::HalfOpen || self.recent.len() == OPEN_AFTER {
            self.circuit = Circuit::Open;
        }
    }

    fn pause(&self, failures: u32) -> Duration {
        jittered(match self.circuit {
            Circuit::Open => LONGEST,
            Circuit::Closed | Circuit::HalfOpen => delay(failures),
        })
    }
}

fn delay(failures: u32) -> Duration {
    (FIRST * 2u32.saturating_pow(failures.saturating_sub(1).min(16))).min(LONGEST)
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
