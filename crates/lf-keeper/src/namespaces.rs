//! Namespaces of the kernel: what is in one sees nothing of what is outside, and ends with it.

use std::fs;
use std::io;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities};

use crate::order::{Missing, Network, Order};

/// Lets what is started from here on be in a process namespace with mounts of its own, and what is confined in further
/// ones. Gives what cannot be had.
pub(crate) fn enter(order: &Order) -> Vec<Missing> {
    if make().is_err() {
        return vec![Missing::ProcessNamespace];
    }
    // what is mounted outside is still seen, nothing is seen outside of what is mounted here
    let _ = mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>);
    let mut missing = Vec::new();
    if let Some(confinement) = &order.confinement {
        if unshare(CloneFlags::CLONE_NEWIPC).is_err() {
            missing.push(Missing::IpcNamespace);
        }
        if confinement.network == Network::None && unshare(CloneFlags::CLONE_NEWNET).is_err() {
            missing.push(Missing::NetworkNamespace);
        }
    }
    missing
}

fn make() -> nix::Result<()> {
    let both = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    // root needs no user namespace, and has all its rights only without
    if geteuid().is_root() && unshare(both).is_ok() {
        return Ok(());
    }
    let (user, group) = (geteuid(), getegid());
    unshare(both | CloneFlags::CLONE_NEWUSER)?;
    // everybody stays who they are
    let mapped = fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("{user} {user} 1")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("{group} {group} 1")))
        .and_then(|()| keep_rights());
    // without, it runs as nobody: the order is not followed then
    mapped.map_err(|_| nix::errno::Errno::EPERM)
}

/// The right to mount, and to give it up, for the first process of the namespace: it loses them when it is started
/// otherwise, and they end with the start of the child.
fn keep_rights() -> io::Result<()> {
    let kept = [CapabilitySet::SYS_ADMIN, CapabilitySet::SETPCAP];
    let mut sets = capabilities(None)?;
    sets.inheritable = kept[0] | kept[1];
    set_capabilities(None, sets)?;
    for right in kept {
        configure_capability_in_ambient_set(right, true)?;
    }
    Ok(())
}

/// Shows the processes of this namespace, and no others.
pub(crate) fn mount_proc() -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mounted = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>);
    // the child has no use for what is left of our rights
    let _ = rustix::thread::clear_ambient_capability_set();
    Ok(mounted?)
}
