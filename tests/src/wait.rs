//! Waiting for something that is known to come: bounded, and without guessing how long it takes.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// How long a test waits for anything before it fails. Generous: it is only ever used up by a failing test.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Asks until the answer is there, and fails with `what` after [`PATIENCE`].
pub fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, ask)
}

/// As [`eventually`], where the time it takes is what is tested.
pub fn within<T>(limit: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Holds a peer up until the test lets it go on.
#[derive(Clone, Debug)]
pub struct Gate {
    open: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    pub fn new() -> Self {
        Self { open: watch::Sender::new(false) }
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }

    pub(crate) async fn passed(&self) {
        let mut open = self.open.subscribe();
        // The sender is `self`, so this cannot fail.
        let _ = open.wait_for(|open| *open).await;
    }
}
