//! A control group for a child and all it starts, where the system lets us make one. It bounds the number of processes,
//! and knows each of them, whatever session or parent it has moved to.
//!
//! Version 1 has the controller `pids` at a place of its own. In version 2, processes may only be in a group whose parent
//! hands the controller down: below our own group (a service with `Delegate=yes`), or beside it where that directory is
//! this user's (a session under `user@.service`). Both: `Documentation/admin-guide/cgroup-v*` of the kernel.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

/// What our groups are called, followed by our process id and a number.
const PREFIX: &str = "lf-";
/// Looks for processes that are left, each followed by a signal; none can be started meanwhile.
const PASSES: usize = 50;
/// Between two looks.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Group(PathBuf);

impl Group {
    /// A group that nothing is in yet and at most `processes` can be, threads counted.
    pub(super) fn make(processes: u32) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let parent = parent()?;
        sweep(&parent);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        let made = fs::create_dir(&path).and_then(|()| {
            let group = Self(path.clone());
            group.write("pids.max", &processes.to_string())?;
            Ok(group)
        });
        match made {
            Ok(group) => Some(group),
            Err(error) => {
                // a group that was not made need not be removed
                let _ = fs::remove_dir(&path);
                tracing::debug!(%error, "no control group for an MCP server");
                None
            }
        }
    }

    /// Puts a process into it, and with it what that starts from here on. Blocks for some milliseconds.
    pub(super) fn add(&self, pid: Pid) -> io::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// The processes in it.
    pub(super) fn members(&self) -> Vec<Pid> {
        let listed = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        listed.lines().filter_map(|line| line.parse().ok()).map(Pid::from_raw).collect()
    }

    /// None of what is in it starts another process from here on.
    pub(super) fn close(&self) {
        let _ = self.write("pids.max", "0");
    }

    /// Kills all that is in it, once it is closed. Blocks for at most a tenth of a second.
    pub(super) fn kill(&self) {
        for _ in 0..PASSES {
            let members = self.members();
            if members.is_empty() {
                return;
            }
            for pid in members {
                // Gone already is fine.
                let _ = kill(pid, Signal::SIGKILL);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.0.join(file), value)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // One that still has a process which is ending cannot be removed yet.
        for _ in 0..PASSES {
            match fs::remove_dir(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
                _ => return,
            }
        }
    }
}

/// Found out once: tests that ask at the same time would find the groups of each other.
#[cfg(test)]
pub(super) fn is_possible() -> bool {
    static IS_POSSIBLE: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        parent().is_some_and(|parent| {
            let path = parent.join(format!("{PREFIX}{}-probe", std::process::id()));
            let is_made = fs::create_dir(&path).is_ok();
            let _ = fs::remove_dir(path);
            is_made
        })
    });
    *IS_POSSIBLE
}

/// Removes empty groups of processes like this one that are over.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')?.0.parse::<u32>().ok());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner.to_string()).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The directory below which we may make groups.
fn parent() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    version_1(&own, &mounts).or_else(|| version_2(&own, &mounts))
}

fn version_1(own: &str, mounts: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|controller| controller == "pids").then_some(path)
    })?;
    let mount = mount_point(mounts, |kind, options| {
        kind == "cgroup" && options.split(',').any(|option| option == "pids")
    })?;
    Some(below(&mount, path)).filter(|path| path.join("cgroup.procs").exists())
}

fn version_2(own: &str, mounts: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mount_point(mounts, |kind, _| kind == "cgroup2")?;
    let own = below(&mount, path);
    if hands_down_pids(&own) {
        return Some(own);
    }
    let beside = own.parent().filter(|beside| beside.starts_with(&mount))?;
    let is_ours = fs::metadata(beside).is_ok_and(|metadata| metadata.uid() == geteuid().as_raw());
    (is_ours && !geteuid().is_root() && hands_down_pids(beside)).then(|| beside.to_owned())
}

fn hands_down_pids(group: &Path) -> bool {
    let controllers = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    controllers.split_whitespace().any(|controller| controller == "pids")
}

fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

/// `proc_pid_mountinfo(5)`: the fifth field is where it is mounted; after a lone hyphen come the type, the source and
/// the options of the file system.
fn mount_point(mounts: &str, is_it: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (fields, rest) = line.split_once(" - ")?;
        let mut rest = rest.split(' ');
        let (kind, options) = (rest.next()?, rest.nth(1)?);
        is_it(kind, options).then(|| fields.split(' ').nth(4).map(PathBuf::from)).flatten()
    })
}

#[cfg(test)]
mod tests;
