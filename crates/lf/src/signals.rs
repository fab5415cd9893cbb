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

/// What a signal asks a daemon for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGINT or SIGTERM, or SIGHUP because the terminal is gone that the daemon was started at.
    End,
}

pub(crate) struct Signals {
    has_terminal: bool,
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
            has_terminal: terminal_is_there(),
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

    /// The same for a daemon. Cancel-safe.
    pub(crate) async fn told(&mut self) -> Told {
        tokio::select! {
            _ = self.interrupt.recv() => Told::End,
            _ = self.terminate.recv() => Told::End,
            _ = self.hangup.recv() => match self.has_terminal && !terminal_is_there() {
                true => Told::End,
                false => Told::Reload,
            },
        }
    }
}

/// Whether this process has a terminal that can end it.
fn terminal_is_there() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Signals that mean nothing to a daemon, and would end it: SIGUSR1 and SIGUSR2. SIGPIPE is ignored from the beginning.
pub(crate) fn let_be() -> Result<(), Trouble> {
    for kind in [SignalKind::user_defined1(), SignalKind::user_defined2()] {
        // once it is listened to, it ends nothing for as long as the process lives
        drop(signal(kind).map_err(|error| Trouble::failure(format!("cannot listen to signals: {error}")))?);
    }
    Ok(())
}
