//! Waiting for the end of what was started here, or of whoever it is kept for.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::{TOLD, tree};

/// Between two looks, where the kernel has no descriptors of processes (before Linux 5.3, or in an old container).
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Looks for what is to be killed; each finds what the processes killed before had started.
const SWEEPS: u32 = 200;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(5);
/// Shells say so that a signal ended a program: with its number on top of this.
pub(crate) const BY_SIGNAL: i32 = 128;

/// What there is nothing to wait for any more after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With its status, as a shell would say it.
    Child(i32),
    /// Whoever it is kept for is gone, or wants it ended.
    Kept,
}

/// Waits for the end of `child`, and reaps all else that ends. `parent`: who is not outlived by it, where somebody has to
/// look. The signals of this process have to be held back.
pub(crate) fn until_end(child: Pid, parent: Option<&Parent>) -> io::Result<End> {
    let mut awaited = SigSet::empty();
    awaited.add(Signal::SIGCHLD);
    awaited.add(TOLD);
    let signals = SignalFd::with_flags(&awaited, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
    let is_watched = parent.is_none_or(|parent| parent.descriptor.is_some()) && signals.is_ok();
    loop {
        // before the look at what has ended: what ends after it is signalled again
        let is_told = signals.as_ref().is_ok_and(was_told);
        if let Some(status) = reap(child) {
            return Ok(End::Child(status));
        }
        if parent.is_some_and(|parent| is_told || parent.has_ended()) {
            return Ok(End::Kept);
        }
        let ends = parent.and_then(|parent| parent.descriptor.as_ref()).map(OwnedFd::as_fd);
        let ends: Vec<BorrowedFd<'_>> =
            ends.into_iter().chain(signals.as_ref().ok().map(SignalFd::as_fd)).collect();
        let mut ends: Vec<PollFd<'_>> =
            ends.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
        match poll(&mut ends, (!is_watched).then_some(&LOOK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes all signals that came.
fn was_told(signals: &SignalFd) -> bool {
    let mut is_told = false;
    while let Ok(Some(signal)) = signals.read_signal() {
        is_told |= signal.ssi_signo == (TOLD as i32).unsigned_abs();
    }
    is_told
}

/// Reaps what has ended; the child's status, where it is among that.
fn reap(child: Pid) -> Option<i32> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => return Some(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                return Some(BY_SIGNAL + signal as i32);
            }
            Ok(WaitStatus::StillAlive) => return None,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return Some(BY_SIGNAL + Signal::SIGKILL as i32),
        }
    }
}

/// Whoever started this process, and is not to be outlived.
pub(crate) struct Parent {
    pid: i32,
    descriptor: Option<OwnedFd>,
}

impl Parent {
    /// `None` where it has ended already.
    pub(crate) fn new(pid: i32) -> Option<Self> {
        let id = rustix::process::Pid::from_raw(pid);
        let parent = Self { pid, descriptor: id.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok()) };
        // only from here on it is known whom the descriptor is of
        (nix::unistd::getppid().as_raw() == pid).then_some(parent)
    }

    fn has_ended(&self) -> bool {
        // it has another parent from its end on, also where it is not reaped yet
        nix::unistd::getppid().as_raw() != self.pid
    }
}

/// Kills all that descends from this process, and what becomes ours by that. What cannot be killed is left to the kernel.
pub(crate) fn sweep() {
    for _ in 0..SWEEPS {
        let mut left = tree::members(getpid().as_raw(), &[]);
        left.retain(|member| member.pid != getpid().as_raw());
        for member in &left {
            let _ = kill(Pid::from_raw(member.pid), Signal::SIGKILL);
        }
        while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status.pid().is_some()) {}
        if left.is_empty() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}
