//! What a child and all it starts may use.
//!
//! Memory is bounded for each process by `RLIMIT_DATA`, which counts what is written to and not what is merely reserved:
//! Node.js, Go and Java reserve many times what they use, and a limit on their address space would end them at once.
//! Processes are bounded for the whole tree by a control group where we may make one; elsewhere by `RLIMIT_NPROC`, which
//! counts all processes of the user and does not bind root.

use std::io;
use std::sync::Arc;

use lf_core::project::ProcessLimits;
use lf_keeper::tree;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, prlimit};

use super::group::Group;

/// Looks for what the child has started meanwhile. What was found is stopped and starts no more.
const PASSES: usize = 8;

/// The limits of a child that is about to be started, with its control group made: nothing is left to do that could take
/// long while the child runs without limits.
pub(super) struct Bounds {
    limits: ProcessLimits,
    group: Option<Group>,
}

impl Bounds {
    /// `keepers` processes of ours are bounded with it, and not counted.
    pub(super) fn prepare(mut limits: ProcessLimits, keepers: u32) -> Self {
        limits.processes = limits.processes.map(|processes| processes.saturating_add(keepers));
        Self { limits, group: limits.processes.and_then(Group::make) }
    }

    /// Sets the limits of a child that was started a moment ago, and of all it has started since: moving one process to a
    /// group takes the kernel milliseconds, in which a fork bomb would get away. So all of them are stopped meanwhile.
    /// What they start later inherits the limits. Where a limit cannot be set, the child runs without it: most systems
    /// give no control group to those who are not root, and root is under no other limit.
    pub(super) fn bind(self, leader: Pid) -> Option<Arc<Group>> {
        let Self { limits, mut group } = self;
        if limits.memory.is_none() && limits.processes.is_none() {
            return None;
        }
        let mut stopped = Stopped::with(leader);
        let is_bound = |group: &Option<Group>| group.is_some() || nix::unistd::geteuid().is_root();
        let tasks = limits.processes.filter(|_| !is_bound(&group)).map(most_tasks);
        for _ in 0..PASSES {
            let added = stopped.look();
            if added.is_empty() {
                break;
            }
            for pid in added {
                if let Some(bytes) = limits.memory {
                    set(pid, Resource::Data, bytes);
                }
                if let Some(Err(error)) = group.as_ref().map(|group| group.add(pid))
                    && !is_gone(&error)
                {
                    tracing::debug!(%error, "no control group for an MCP server");
                    group = None;
                }
                let tasks = tasks.or_else(|| limits.processes.filter(|_| !is_bound(&group)).map(most_tasks));
                if let Some(tasks) = tasks {
                    set(pid, Resource::Nproc, tasks);
                }
            }
        }
        group.map(Arc::new)
    }
}

fn most_tasks(processes: u32) -> u64 {
    tree::tasks_of_ours() + u64::from(processes)
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error().map(Errno::from_raw) == Some(Errno::ESRCH)
}

/// A child and what it started, kept from running until this is dropped.
struct Stopped {
    leader: Pid,
    seen: Vec<Pid>,
}

impl Stopped {
    /// The whole process group at once: no member of it can start another unseen.
    fn with(leader: Pid) -> Self {
        // Gone already is fine, here and below.
        let _ = killpg(leader, Signal::SIGSTOP);
        Self { leader, seen: Vec::new() }
    }

    /// What was not seen before, stopped as well: it may have left the process group.
    fn look(&mut self) -> Vec<Pid> {
        let members = tree::members(self.leader.as_raw(), &[]);
        let mut added: Vec<Pid> = members.into_iter().map(|member| Pid::from_raw(member.pid)).collect();
        added.retain(|pid| !self.seen.contains(pid));
        for pid in &added {
            let _ = kill(*pid, Signal::SIGSTOP);
        }
        self.seen.extend(&added);
        added
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = killpg(self.leader, Signal::SIGCONT);
        for pid in &self.seen {
            let _ = kill(*pid, Signal::SIGCONT);
        }
    }
}

fn set(leader: Pid, resource: Resource, value: u64) {
    let limit = Rlimit { current: Some(value), maximum: Some(value) };
    let set = match rustix::process::Pid::from_raw(leader.as_raw()) {
        Some(pid) => prlimit(Some(pid), resource, limit).map(drop),
        None => Ok(()),
    };
    if let Err(error) = set {
        tracing::debug!(?resource, value, %error, "a limit of an MCP server could not be set");
    }
}
