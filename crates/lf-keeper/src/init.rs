//! Inside of the namespace: its first process. The kernel kills all others in it when this one ends.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::order::{Doing, Missing, Order, Report};
use crate::{confine, inherit, let_go_of_pipes, namespaces, tree};

/// As for shells: a signal ended it.
const BY_SIGNAL: i32 = 128;

/// `arguments`: the guard's process, seen from outside, or nothing where there is no namespace; and what is missing.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let guard = arguments.next().and_then(|guard| guard.to_str()?.parse().ok());
    let missing = arguments.next().and_then(|missing| serde_json::from_str(missing.to_str()?).ok());
    let Some(missing) = missing else { return ExitCode::FAILURE };
    if let Some(guard) = guard {
        let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
        // it may have ended before that; `/proc` is still the one outside, and tells parents as they are there
        if tree::parent_of_this() != Some(guard) {
            return ExitCode::FAILURE;
        }
    }
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut control = File::from(control);
    let Ok(order) = Order::read(&mut control) else { return ExitCode::FAILURE };
    let report = |report: &Report, control: &mut File| drop(report.write(control));
    let child = match begin(&order, guard.is_some(), missing) {
        Ok((child, missing)) => {
            report(&Report::Started { missing }, &mut control);
            child
        }
        Err(why) => {
            report(&why, &mut control);
            return ExitCode::FAILURE;
        }
    };
    drop(control);
    drop(order);
    if let_go_of_pipes().is_err() {
        return ExitCode::FAILURE;
    }
    u8::try_from(reap_until(&child)).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn begin(order: &Order, is_inside: bool, mut missing: Vec<Missing>) -> Result<(Child, Vec<Missing>), Report> {
    if is_inside && namespaces::mount_proc().is_err() {
        missing.push(Missing::OwnProc);
    }
    if let Some(confinement) = &order.confinement {
        let lacking = confine::confine(confinement, &order.program)
            .map_err(|error| Report::failed(Doing::Confining, &error))?;
        missing.extend(lacking);
    }
    if order.require && !missing.is_empty() {
        return Err(Report::Refused { missing });
    }
    let child = start(order).map_err(|error| Report::failed(Doing::Starting, &error))?;
    Ok((child, missing))
}

/// From a thread that takes signals, as a program inherits from it which are held back. We hold them back: the daemon
/// signals the whole group when it stops a child.
fn start(order: &Order) -> io::Result<Child> {
    #[expect(clippy::disallowed_methods, reason = "what `lf_mcp::spawn` was asked to start")]
    let mut command = Command::new(&order.program);
    inherit(&mut command)
        .arg0(&order.name)
        .args(&order.args)
        .env_clear()
        .envs(order.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&order.directory)
        .process_group(0);
    let spawn = move || {
        SigSet::all().thread_unblock()?;
        command.spawn()
    };
    let starting = std::thread::Builder::new().stack_size(64 * 1024).spawn(spawn)?;
    starting.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// Reaps whatever ends until it is the child; its status, as a shell would say it.
fn reap_until(child: &Child) -> i32 {
    let id = i32::try_from(child.id()).map(Pid::from_raw);
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if Ok(pid) == id => return code,
            Ok(WaitStatus::Signaled(pid, signal, _)) if Ok(pid) == id => return BY_SIGNAL + signal as i32,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return BY_SIGNAL + Signal::SIGKILL as i32,
        }
    }
}
