//! What servers leave to this process when their parents end: nobody else kills and reaps it.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lf_keeper::tree::{self, Member};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::with_registry;

/// For killed orphans to be gone. One that the kernel holds on to is left to it.
const ORPHAN_LIMIT: Duration = Duration::from_secs(1);
/// Between two looks for them.
const ORPHAN_PAUSE: Duration = Duration::from_millis(2);

/// Set when orphans are adopted: the children that were there before.
static ADOPTING: OnceLock<Vec<Member>> = OnceLock::new();

/// Makes this process the parent of what servers leave behind by forking twice, and has it killed once the last server
/// is stopped. For a program all of whose later children are MCP servers: any other would be killed as well. Children
/// that a shell left to this process by `exec` are not touched.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    match nix::sys::prctl::set_child_subreaper(true) {
        Ok(()) => drop(ADOPTING.set(tree::children_of_ours())),
        Err(error) => tracing::debug!(%error, "orphans of MCP servers will not be found"),
    }
}

/// When orphans are looked for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum While {
    /// Every orphan is one that a server left behind, until another server is started.
    NoServerRuns,
    /// No child of ours shall be left.
    Exiting,
}

/// Kills and reaps our children that nobody started here, within [`ORPHAN_LIMIT`]. Their own children become ours in
/// turn. Blocks.
pub(super) fn kill_orphans(when: While) {
    let Some(earlier) = ADOPTING.get() else { return };
    let end = Instant::now() + ORPHAN_LIMIT;
    let mut killed: Vec<Pid> = Vec::new();
    loop {
        // Also those that are dead: one that was killed as part of a server's tree, after its parent had left it to us,
        // is reaped by nobody else.
        // In this order: a child that is started after the look is not in it, one that was started before is
        // registered by the time the lock is free.
        let mut orphans = tree::children_of_ours();
        orphans.retain(|member| !earlier.contains(member));
        with_registry(|registry| {
            if when == While::NoServerRuns && !registry.is_empty() {
                orphans.clear();
            }
            for member in &orphans {
                let pid = Pid::from_raw(member.pid);
                let _ = kill(pid, Signal::SIGKILL);
                if !killed.contains(&pid) {
                    killed.push(pid);
                }
            }
        });
        // Reaped here, as nobody else waits for them; never waited for, as a process can take its time to die.
        killed.retain(|pid| {
            matches!(
                waitpid(*pid, Some(WaitPidFlag::WNOHANG)),
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR)
            )
        });
        if (killed.is_empty() && orphans.is_empty()) || Instant::now() >= end {
            return;
        }
        std::thread::sleep(ORPHAN_PAUSE);
    }
}

/// Reaps what servers have left to us and has ended, until none of these is left, within [`ORPHAN_LIMIT`]: a server that is
/// started again and again beside a healthy one must not fill the table of processes. Blocks.
pub(super) fn reap(killed: &[Member]) {
    let Some(earlier) = ADOPTING.get() else { return };
    let end = Instant::now() + ORPHAN_LIMIT;
    loop {
        // in this order, as above
        let mut ended = tree::ended_children_of_ours();
        ended.retain(|member| !earlier.contains(member));
        let is_started_here = |member: &Member| with_registry(|registry| registry.contains_key(&member.pid));
        for member in ended.iter().filter(|member| !is_started_here(member)) {
            let _ = waitpid(Pid::from_raw(member.pid), Some(WaitPidFlag::WNOHANG));
        }
        let is_left = |member: &Member| tree::is_there(*member) && !is_started_here(member);
        if !killed.iter().any(is_left) || Instant::now() >= end {
            return;
        }
        std::thread::sleep(ORPHAN_PAUSE);
    }
}
