//! Processes, seen from outside.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::within;

/// A running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub command: String,
}

impl Process {
    pub fn signal(&self, signal: Signal) {
        // It may be gone already.
        let _ = kill(Pid::from_raw(self.pid), signal);
    }
}

/// Every process whose `HOME` is this directory, zombies left out. A project under test has a `HOME` of its own, and `lf`
/// hands it on to what it starts, so these are `lf` itself and everything that came from it.
pub fn with_home(home: &Path) -> Vec<Process> {
    let wanted = format!("HOME={}", home.display()).into_bytes();
    let all = std::fs::read_dir("/proc").expect("/proc can be read");
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let environment = std::fs::read(proc(*pid, "environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
        })
        .map(|pid| Process { pid, command: command_of(pid) })
        .filter(|process| !process.command.is_empty())
        .collect()
}

/// How many children of this process have ended and were not reaped.
pub fn ended_children_of(parent: u32) -> usize {
    let all = std::fs::read_dir("/proc").expect("/proc can be read");
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let stats = numbers.filter_map(|pid| std::fs::read_to_string(proc(pid, "stat")).ok());
    // behind the name, which may hold anything: its state and its parent
    let ended = format!("Z {parent} ");
    stats.filter(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(&ended))).count()
}

/// Fails when any process of this `HOME` is still there after `limit`.
pub fn assert_none_left(home: &Path, limit: Duration) {
    let mut left = Vec::new();
    within(limit, &format!("the end of every process; see HOME={}", home.display()), || {
        left = with_home(home);
        left.is_empty().then_some(())
    });
}

/// Kills what is left; for the end of a failed test.
pub fn kill_all(home: &Path) {
    for process in with_home(home) {
        process.signal(Signal::SIGKILL);
    }
}

/// Empty for a zombie.
fn command_of(pid: i32) -> String {
    let line = std::fs::read(proc(pid, "cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned()
}

fn proc(pid: i32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}
