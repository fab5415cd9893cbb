//! Outside of the namespace: watches the daemon, and ends with the child's status.
//!
//! The daemon kills it to kill the child: what is inside is told by the kernel. When the daemon is gone, however it ended,
//! it sees that at its descriptor, and takes the child along. The kernel's signal for that (`PR_SET_PDEATHSIG`) would not
//! do: it comes when the thread ends that started us.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ExitCode, ExitStatus};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::unistd::{Pid, getpid, getppid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::order::{Doing, Missing, Order, Report};
use crate::{INSIDE, command, inherit, let_go_of_pipes, namespaces, tree};

/// Between two looks, where the kernel has no descriptors of processes (before Linux 5.3, or in an old container).
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Looks for what is to be killed; each finds what the processes killed before had started.
const SWEEPS: u32 = 200;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(5);
/// Shells say so that a signal ended a program: with its number on top of this.
const BY_SIGNAL: i32 = 128;

pub(crate) fn run(name: &OsString) -> ExitCode {
    // The daemon signals the whole group when it stops a child: we stay until that has ended.
    let _ = SigSet::all().thread_block();
    let status = io::stdin().as_fd().try_clone_to_owned().and_then(|control| keep(control, name));
    match status {
        Ok(status) => end_as(status),
        Err(_) => ExitCode::FAILURE,
    }
}

fn keep(control: OwnedFd, name: &OsString) -> io::Result<ExitStatus> {
    let mut control = File::from(control);
    let order = Order::read(&mut control)?;
    let parent = Watched::new(order.parent);
    if getppid().as_raw() != order.parent {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let missing = if order.namespaces { namespaces::enter(&order) } else { Vec::new() };
    if order.require && !missing.is_empty() {
        Report::Refused { missing }.write(&mut control)?;
        return Err(io::ErrorKind::Unsupported.into());
    }
    let is_inside = order.namespaces && !missing.contains(&Missing::ProcessNamespace);
    if !is_inside {
        // what its parents leave behind becomes ours, wherever it goes
        let _ = nix::sys::prctl::set_child_subreaper(true);
    }
    let mut child = match start(name, is_inside, &missing) {
        Ok(child) => child,
        Err(error) => {
            Report::failed(Doing::Keeping, &error).write(&mut control)?;
            return Err(error);
        }
    };
    drop(control);
    drop(order);
    let_go_of_pipes()?;
    let status = watch(&parent, &mut child)?;
    if status.is_none() {
        let _ = child.kill();
    }
    if !is_inside {
        sweep();
    }
    status.map_or_else(|| child.wait(), Ok)
}

fn start(name: &OsString, is_inside: bool, missing: &[Missing]) -> io::Result<Child> {
    let mut init = command(name, std::env::var_os("HOME").as_ref());
    init.arg(INSIDE).arg(if is_inside { getpid().to_string() } else { String::new() });
    init.arg(serde_json::to_string(missing)?);
    inherit(&mut init).spawn()
}

/// Waits for the end of either. The child's status, where it is the child that ended.
fn watch(parent: &Watched, child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let inside = Watched::new(i32::try_from(child.id()).unwrap_or_default());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if parent.has_ended() || getppid().as_raw() != parent.pid {
            return Ok(None);
        }
        let descriptors: Vec<&OwnedFd> =
            [parent, &inside].iter().filter_map(|it| it.descriptor.as_ref()).collect();
        let mut ends: Vec<PollFd<'_>> =
            descriptors.iter().map(|descriptor| PollFd::new(*descriptor, PollFlags::IN)).collect();
        let limit = (ends.len() < 2).then_some(&LOOK);
        match poll(&mut ends, limit) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A process that may end.
struct Watched {
    pid: i32,
    descriptor: Option<OwnedFd>,
}

impl Watched {
    fn new(pid: i32) -> Self {
        let id = rustix::process::Pid::from_raw(pid);
        Self { pid, descriptor: id.and_then(|id| pidfd_open(id, PidfdFlags::empty()).ok()) }
    }

    fn has_ended(&self) -> bool {
        const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Some(descriptor) = &self.descriptor else { return false };
        poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&NOW)).is_ok_and(|ready| ready > 0)
    }
}

/// Kills all that became ours, and what becomes ours by that.
fn sweep() {
    for _ in 0..SWEEPS {
        let left = tree::children_of_ours();
        if left.is_empty() {
            return;
        }
        for member in left {
            let _ = kill(Pid::from_raw(member.pid), Signal::SIGKILL);
        }
        std::thread::sleep(PAUSE);
        while nix::sys::wait::waitpid(None, Some(nix::sys::wait::WaitPidFlag::WNOHANG))
            .is_ok_and(|status| status.pid().is_some())
        {}
    }
}

/// As the child ended, a signal that ended it included: who waits for us waits for the child.
fn end_as(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or(BY_SIGNAL + Signal::SIGKILL as i32);
    if let Ok(signal) = Signal::try_from(code - BY_SIGNAL) {
        // its memory was not ours to keep
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        // no other: what stopped the child waits for us as well
        let _ = SigSet::from(signal).thread_unblock();
        let _ = raise(signal);
    }
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}
