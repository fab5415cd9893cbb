//! Inside of the namespace: its first process. The kernel kills all others in it when this one ends.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use crate::order::{Doing, Missing, Order, Report};
use crate::watch::{End, Parent, sweep, until_end};
use crate::{confine, inherit, let_go_of_pipes, namespaces, tree};

/// `arguments`: whether there is a namespace of its own; the guard's process, seen from outside; and what is missing.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let is_inside = arguments.next().is_some_and(|role| role == "own");
    let guard = arguments.next().and_then(|guard| guard.to_str()?.parse().ok());
    let missing = arguments.next().and_then(|missing| serde_json::from_str(missing.to_str()?).ok());
    let (Some(guard), Some(missing)) = (guard, missing) else { return ExitCode::FAILURE };
    // no terminal from here on: what a server wrote to one would come between what we write, unread by us
    let _ = nix::unistd::setsid();
    let parent = if is_inside {
        let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
        // it may have ended before that; `/proc` is still the one outside, and tells parents as they are there
        if tree::parent_of_this() != Some(guard) {
            return ExitCode::FAILURE;
        }
        None
    } else {
        // where somebody ends the guard, what it kept is ours to end
        let _ = nix::sys::prctl::set_child_subreaper(true);
        let Some(parent) = Parent::new(guard) else { return ExitCode::FAILURE };
        Some(parent)
    };
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut control = File::from(control);
    let Ok(order) = Order::read(&mut control) else { return ExitCode::FAILURE };
    let report = |report: &Report, control: &mut File| drop(report.write(&order.word, control));
    let child = match begin(&order, is_inside, missing) {
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
    let Ok(child) = i32::try_from(child.id()).map(Pid::from_raw) else { return ExitCode::FAILURE };
    match until_end(child, parent.as_ref()) {
        Ok(End::Child(status)) => u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from),
        Ok(End::Kept) | Err(_) => {
            sweep();
            ExitCode::FAILURE
        }
    }
}

fn begin(order: &Order, is_inside: bool, mut missing: Vec<Missing>) -> Result<(Child, Vec<Missing>), Report> {
    if is_inside && !namespaces::finish(!missing.contains(&Missing::OwnProc)) {
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
