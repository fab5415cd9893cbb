//! Stands between the daemon and a child of it, so that nothing of the child outlives either.
//!
//! The program starts itself again twice for each child: as the `guard`, which watches the daemon, and as the `init`
//! of the child's own process namespace, which starts the child, reaps what it orphans, and takes all of it along when it
//! ends. Both hold no memory to speak of, and know nothing but an [`Order`], which the daemon writes to their stdin.
//! That is a socket: the child has it as its own stdin, and what became of the order comes back over it as a [`Report`].
//!
//! No runtime is reached from here, and nothing but the kernel and `/proc` is read.

mod confine;
mod guard;
mod init;
mod mounts;
mod namespaces;
mod order;
mod syscalls;
pub mod tree;
mod watch;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

pub use order::{Confinement, Doing, Missing, Network, Order, Report};

/// The word after which the program is a keeper and not itself.
const WORD: &str = "__keep";
/// The role that is inside of the namespace.
const INSIDE: &str = "inside";
/// The program that runs, however it was called, and also where its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";
/// Tells a guard to end with all that it keeps. Of those signals that are not in use for stopping a child.
const TOLD: Signal = Signal::SIGUSR1;
/// Between two looks whether it has.
const PAUSE: Duration = Duration::from_millis(1);
/// Processes that stand between the daemon and a child.
pub const KEEPERS: u32 = 2;

/// Does a keeper's work, where the program was started as one, and gives the status to end with.
#[must_use]
pub fn run() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    if arguments.next()? != WORD {
        return None;
    }
    Some(match arguments.next() {
        Some(role) if role == INSIDE => init::run(arguments),
        _ => guard::run(&name),
    })
}

/// What starts a keeper. `name` is what it is called in lists of processes; of the environment there is only `HOME`, which
/// tells whose it is: what a child's libraries are told there is not for a process that confines it.
#[must_use]
pub fn command(name: &OsString, home: Option<&OsString>) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "children start in `lf_mcp::spawn`, and this is what it starts"
    )]
    let mut command = Command::new(SELF);
    command.arg0(name).arg(WORD).env_clear();
    if let Some(home) = home {
        command.env("HOME", home);
    }
    command
}

/// Tells a guard, which is a child of this process, to end with all that it keeps.
pub fn tell_to_end(guard: Pid) {
    // gone already is fine
    let _ = kill(guard, TOLD);
}

/// Waits for that, at most for `limit`, and leaves it to others to reap it. Blocks. Whether it has ended.
#[must_use]
pub fn has_ended_within(guard: Pid, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    let how = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(WaitStatus::StillAlive) = waitid(Id::Pid(guard), how) {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Lets go of what the child was given: who reads its output is to see its end.
fn let_go_of_pipes() -> io::Result<()> {
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}

/// A command whose pipes are those of this process.
fn inherit(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit())
}
