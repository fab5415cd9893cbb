//! Signals: the first asks to stop, the second leaves at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Trouble;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caught {
    /// SIGINT, which is ctrl-c: stop what is being done.
    Interrupt,
    /// SIGTERM or SIGHUP: end.
    End,
}

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
    pub(crate) async fn next(&mut self) -> Caught {
        tokio::select! {
            _ = self.interrupt.recv() => Caught::Interrupt,
            _ = self.terminate.recv() => Caught::End,
            _ = self.hangup.recv() => Caught::End,
        }
    }
}

/// Signals that mean nothing to a daemon, and would end it: SIGUSR1 and SIGUSR2. SIGPIPE is ignored from the beginning.
pub(crate) fn let_be() -> Result<(), Trouble> {
    for kind in [SignalKind::user_defined1(), SignalKind::user_defined2()] {
        // once it is listened to, it ends nothing for as long as the process lives
        drop(signal(kind).map_err(|error| Trouble::failure(format!("cannot listen to signals: {error}")))?);
    }
    Ok(())
}
