//! Namespaces of the kernel: what is in one sees nothing of what is outside, and ends with it.

use std::fs;
use std::io;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities};

use crate::mounts;
use crate::order::{Missing, Network, Order};

/// This process is nobody in a namespace that is of no use to what it would start.
pub(crate) struct HalfMade;

impl From<HalfMade> for io::Error {
    fn from(_: HalfMade) -> Self {
        io::ErrorKind::Unsupported.into()
    }
}

/// Lets what is started from here on be in a process namespace with mounts of its own, and what is confined in further
/// ones. Gives what cannot be had.
pub(crate) fn enter(order: &Order) -> Result<Vec<Missing>, HalfMade> {
    if !make()? {
        return Ok(vec![Missing::ProcessNamespace]);
    }
    let mut missing = Vec::new();
    let is_apart = change("/", MsFlags::MS_REC | MsFlags::MS_SLAVE);
    // where the root directory is the root of no file system (`chroot`), `/proc` is
    if !is_apart && !change("/proc", MsFlags::MS_PRIVATE) {
        missing.push(Missing::OwnProc);
    }
    if let Some(confinement) = &order.confinement {
        if !is_apart || mounts::keep_unchanged_but(&confinement.write).is_err() {
            missing.push(Missing::ReadOnlyMounts);
        }
        if unshare(CloneFlags::CLONE_NEWIPC).is_err() {
            missing.push(Missing::IpcNamespace);
        }
        if confinement.network == Network::None && unshare(CloneFlags::CLONE_NEWNET).is_err() {
            missing.push(Missing::NetworkNamespace);
        }
    }
    Ok(missing)
}

/// Whether there is one. As Ubuntu does it since 23.10, a system may let everybody have a user namespace and nobody do
/// anything in it, so that who they are there cannot be said.
fn make() -> Result<bool, HalfMade> {
    let both = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    // root needs no user namespace, and has all its rights only without
    if geteuid().is_root() && unshare(both).is_ok() {
        return Ok(true);
    }
    let (user, group) = (geteuid(), getegid());
    if unshare(both | CloneFlags::CLONE_NEWUSER).is_err() {
        return Ok(false);
    }
    // everybody stays who they are
    fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("{user} {user} 1")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("{group} {group} 1")))
        .and_then(|()| keep_rights())
        .map_or(Err(HalfMade), |()| Ok(true))
}

/// How what is mounted here and outside is seen on the other side. Nothing of what is mounted here may be seen outside.
fn change(path: &str, flags: MsFlags) -> bool {
    mount(None::<&str>, path, None::<&str>, flags, None::<&str>).is_ok()
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

/// From the first process of the namespace: shows its processes and no others, where that may be mounted, and gives up
/// what is left of our rights, which the child has no use for. False where it could not be mounted.
pub(crate) fn finish(may_mount: bool) -> bool {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let is_shown = !may_mount || mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>).is_ok();
    let _ = rustix::thread::clear_ambient_capability_set();
    is_shown
}
