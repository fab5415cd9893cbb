//! Upstreams that keep failing are left alone for a while, where another model can answer in their place.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures in a row that open a circuit.
const FAILURES: u32 = 3;
/// How long an open circuit lets nobody through; then one request tries.
const OPEN: Duration = Duration::from_secs(30);

/// One circuit for each upstream model, by a name of its own.
#[derive(Debug, Default)]
pub struct Circuits {
    states: Mutex<HashMap<String, State>>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Nobody is let through before; the one who is then moves it on, so that nobody else tries meanwhile.
    open_until: Option<Instant>,
}

impl Circuits {
    /// Whether this upstream may be asked. Where the time of an open circuit has passed, the caller is the one who tries.
    pub fn permits(&self, name: &str, now: Instant) -> bool {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = states.get_mut(name) else { return true };
        match state.open_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                state.open_until = Some(now + OPEN);
                true
            }
        }
    }

    pub fn answered(&self, name: &str) {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    pub fn failed(&self, name: &str, now: Instant) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states.entry(name.to_owned()).or_default();
        state.failures = state.failures.saturating_add(1);
        if state.failures >= FAILURES {
            state.open_until = Some(now + OPEN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_open_it_one_request_tries_and_an_answer_closes_it() {
        let circuits = Circuits::default();
        let start = Instant::now();
        for _ in 0..FAILURES {
            assert!(circuits.permits("a", start));
            circuits.failed("a", start);
        }
        assert!(!circuits.permits("a", start + OPEN / 2));
        assert!(circuits.permits("b", start), "another upstream is another circuit");
        let later = start + OPEN;
        assert!(circuits.permits("a", later), "one tries");
        assert!(!circuits.permits("a", later), "and only one");
        circuits.failed("a", later);
        assert!(!circuits.permits("a", later + OPEN / 2), "a failed try opens it again");
        assert!(circuits.permits("a", later + OPEN));
        circuits.answered("a");
        assert!(circuits.permits("a", later + OPEN));
        circuits.failed("a", later + OPEN);
        assert!(circuits.permits("a", later + OPEN), "the count began anew");
    }
}
