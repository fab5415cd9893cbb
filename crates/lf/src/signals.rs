//! Signals: the first asks to stop, the second leaves at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Trouble;

pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Trouble> {
        let listen = |kind| {
            signal(kind).map_err(|error| Trouble::failure(format!("cannot listen to signals: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The next of SIGINT, SIGTERM and SIGHUP. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
