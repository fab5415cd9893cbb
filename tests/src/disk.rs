//! File systems that are small, full, read-only, or without power. They are mounted, so the tests that use them need root.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::wait::eventually;

/// A mounted file system; unmounted with this value.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
}

impl Mount {
    /// A file system in memory of this size (`4m`), at this directory.
    pub fn memory(point: &Path, size: &str) -> Self {
        mount(&["-t", "tmpfs", "-o", &format!("size={size}"), "none"], point)
    }

    /// The ext4 file system of this image, at this directory. It writes nothing by itself for as long as a test takes: what
    /// nobody synced is only in memory.
    pub fn image(image: &Path, point: &Path) -> Self {
        mount(&["-o", "loop,noatime,commit=300", &image.display().to_string()], point)
    }

    /// A file at the place of another one.
    pub fn bind(file: &Path, point: &Path) -> Self {
        mount(&["--bind", &file.display().to_string()], point)
    }

    /// Changes how it is mounted: `ro`, `rw`, `size=8m`.
    pub fn remount(&self, options: &str) {
        let point = self.point.display().to_string();
        run("mount", &["-o", &format!("remount,{options}"), &point]);
    }

    /// Unmounts it, once nobody has a file of it open any more.
    pub fn unmount(self) {
        eventually("the file system to be let go of", || {
            let done = Command::new("umount").arg(&self.point).output().expect("`umount` can be started");
            done.status.success().then_some(())
        });
        std::mem::forget(self);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // of a failed test: whoever still uses it keeps it
        let _ = Command::new("umount").arg("--lazy").arg(&self.point).output();
    }
}

/// An image of a new ext4 file system of so many megabytes.
pub fn new_image(path: &Path, megabytes: u64) {
    let file = std::fs::File::create(path).expect("the image can be made");
    file.set_len(megabytes << 20).expect("the image can be made");
    // all of it now: what is put off would be written in the background
    let options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    run("mkfs.ext4", &[&options[..], &[&path.display().to_string()]].concat());
}

/// What has reached the disk by now.
pub fn copy_image(from: &Path, to: &Path) {
    run("cp", &["--sparse=always", &from.display().to_string(), &to.display().to_string()]);
}

fn mount(what: &[&str], point: &Path) -> Mount {
    if !point.exists() {
        std::fs::create_dir_all(point).expect("the mount point can be made");
    }
    let point = point.canonicalize().expect("the mount point was made");
    run("mount", &[what, &[&point.display().to_string()]].concat());
    Mount { point }
}

fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output();
    let said = match done {
        Ok(done) if done.status.success() => return,
        Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    panic!(
        "`{program} {}` failed: {said}\nThis test makes and mounts file systems: run it as root on Linux with util-linux, \
         e2fsprogs and loop devices (in a container: `--privileged`; `modprobe loop` where there is no /dev/loop-control)",
        arguments.join(" ")
    );
}
