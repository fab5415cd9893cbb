//! What a child and all it starts may use.
//!
//! Memory is bounded for each process by `RLIMIT_DATA`, which counts what is written to and not what is merely reserved:
//! Node.js, Go and Java reserve many times what they use, and a limit on their address space would end them at once.
//! Processes are bounded for the whole tree by a control group where we may make one; elsewhere by `RLIMIT_NPROC`, which
//! counts all processes of the user and does not bind root.

use std::sync::Arc;

use lf_core::project::ProcessLimits;
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, prlimit};

use super::group::Group;
use super::tree;

/// Sets the limits of a child that was started a moment ago. What it starts inherits them. Where a limit cannot be set, the
/// child runs without it: most systems give no control group to those who are not root, and root is under no other limit.
pub(super) fn limit(leader: Pid, limits: ProcessLimits) -> Option<Arc<Group>> {
    if let Some(bytes) = limits.memory {
        set(leader, Resource::Data, bytes);
    }
    let processes = limits.processes?;
    let group = Group::make(leader, processes);
    if group.is_none() && !nix::unistd::geteuid().is_root() {
        set(leader, Resource::Nproc, tree::tasks_of_ours() + u64::from(processes));
    }
    group.map(Arc::new)
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
