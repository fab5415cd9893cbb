//! Outside of the namespace: watches the daemon, and ends with the child's status.
//!
//! The daemon tells it to end, and it takes the child along: it is the last to go, so that nothing of the child is left
//! behind and nobody else has to reap it. When the daemon is gone, however it ended, it sees that at its descriptor and does
//! the same. The kernel's signal for that (`PR_SET_PDEATHSIG`) would not do: it comes when the thread ends that started us.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ExitCode};

use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::unistd::{Pid, getpid};

use crate::order::{Doing, Missing, Order, Report};
use crate::watch::{BY_SIGNAL, End, Parent, sweep, until_end};
use crate::{INSIDE, TOLD, command, inherit, let_go_of_pipes, namespaces};

pub(crate) fn run(name: &OsString) -> ExitCode {
    // The daemon signals the whole group when it stops a child: we stay until that has ended. As long as there is none, we
    // end where we are told to.
    let mut held = SigSet::all();
    held.remove(TOLD);
    let _ = held.thread_block();
    let status = io::stdin().as_fd().try_clone_to_owned().and_then(|control| keep(control, name));
    match status {
        Ok(status) => end_as(status),
        Err(_) => ExitCode::FAILURE,
    }
}

fn keep(control: OwnedFd, name: &OsString) -> io::Result<i32> {
    let mut control = File::from(control);
    let order = Order::read(&mut control)?;
    let _ = SigSet::all().thread_block();
    let mut tell = |report: &Report, error: io::Error| {
        // nobody may be left to be told
        let _ = report.write(&order.word, &mut control);
        error
    };
    let parent = Parent::new(order.parent).ok_or(io::ErrorKind::NotConnected)?;
    let missing = match order.namespaces {
        true => namespaces::enter(&order).map_err(|half| tell(&Report::Again, half.into()))?,
        false => order.missing.clone(),
    };
    if order.require && !missing.is_empty() {
        return Err(tell(&Report::Refused { missing }, io::ErrorKind::Unsupported.into()));
    }
    let is_inside = order.namespaces && !missing.contains(&Missing::ProcessNamespace);
    if !is_inside {
        // what its parents leave behind becomes ours, wherever it goes
        let _ = nix::sys::prctl::set_child_subreaper(true);
    }
    let child = start(name, is_inside, &missing)
        .map_err(|error| tell(&Report::failed(Doing::Keeping, &error), error))?;
    drop(control);
    drop(order);
    let_go_of_pipes()?;
    let child = i32::try_from(child.id()).map(Pid::from_raw).map_err(io::Error::other)?;
    let end = until_end(child, Some(&parent));
    if end.as_ref().ok().is_none_or(|end| *end == End::Kept) {
        let _ = kill(child, Signal::SIGKILL);
    }
    if !is_inside {
        sweep();
    }
    match end? {
        End::Child(status) => Ok(status),
        // all of its namespace has ended when it can be waited for
        End::Kept => match until_end(child, None)? {
            End::Child(status) => Ok(status),
            End::Kept => Ok(BY_SIGNAL + Signal::SIGKILL as i32),
        },
    }
}

fn start(name: &OsString, is_inside: bool, missing: &[Missing]) -> io::Result<Child> {
    let mut init = command(name, std::env::var_os("HOME").as_ref());
    init.arg(INSIDE).arg(if is_inside { "own" } else { "shared" }).arg(getpid().to_string());
    init.arg(serde_json::to_string(missing)?);
    inherit(&mut init).spawn()
}

/// As the child ended, a signal that ended it included: who waits for us waits for the child.
fn end_as(status: i32) -> ExitCode {
    if let Some(signal) = deadly(status) {
        // its memory was not ours to keep
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        // no other: what stopped the child waits for us as well
        let _ = SigSet::from(signal).thread_unblock();
        let _ = raise(signal);
    }
    u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The signal that a status speaks of, where it ends who gets it: a program may end with such a number by itself, and
/// those that stop a process would have us wait for ever.
fn deadly(status: i32) -> Option<Signal> {
    use Signal::{SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH};
    let signal = Signal::try_from(status - BY_SIGNAL).ok()?;
    let is_deadly =
        !matches!(signal, SIGCHLD | SIGCONT | SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU | SIGURG | SIGWINCH);
    is_deadly.then_some(signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_numbers_above_128_only_those_of_signals_that_end_a_process_are_taken_for_signals() {
        for status in [0, 1, 127, 128, 145, 146, 147, 148, 149, 150, 151, 156, 200, 255] {
            assert_eq!(deadly(status), None, "{status}");
        }
        assert_eq!(deadly(137), Some(Signal::SIGKILL));
        assert_eq!(deadly(134), Some(Signal::SIGABRT));
    }
}
