//! Which processes descend from a child, also those that left its process group. Read from `/proc`; where there is
//! none, the process group is all that is known.

use std::collections::HashSet;

/// A process, told apart from a later one with the same number by when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    pub pid: i32,
    started: u64,
}

/// Everything that descends from `leader` or from what is `known` to, shares a group or session with such a
/// process, and is alive. Our own group and session do not count: a child may have stayed in the session.
pub fn members(leader: i32, known: &[Member]) -> Vec<Member> {
    let all = processes();
    let me = i32::try_from(std::process::id()).unwrap_or_default();
    let own = all.iter().find(|process| process.pid == me).copied();
    let mut pids = HashSet::from([leader]);
    let mut groups = HashSet::from([leader]);
    let mut sessions = HashSet::new();
    loop {
        let before = pids.len();
        for process in &all {
            let remembered = known.contains(&process.member());
            let related = remembered
                || pids.contains(&process.pid)
                || pids.contains(&process.parent)
                || groups.contains(&process.group)
                || sessions.contains(&process.session);
            if !related || process.pid == me {
                continue;
            }
            pids.insert(process.pid);
            if own.is_none_or(|own| own.group != process.group) {
                groups.insert(process.group);
            }
            if own.is_some_and(|own| own.session != process.session) {
                sessions.insert(process.session);
            }
        }
        if pids.len() == before {
            break;
        }
    }
    all.iter().filter(|process| pids.contains(&process.pid) && process.alive).map(Status::member).collect()
}

/// The direct children of this process, also those that have ended and are still to be reaped.
pub fn children_of_ours() -> Vec<Member> {
    children().iter().map(Status::member).collect()
}

/// Those that have ended alone.
pub fn ended_children_of_ours() -> Vec<Member> {
    children().iter().filter(|process| !process.alive).map(Status::member).collect()
}

fn children() -> Vec<Status> {
    let me = i32::try_from(std::process::id()).unwrap_or_default();
    processes().into_iter().filter(|process| process.parent == me).collect()
}

/// Whether a process still is, or has ended and is still to be reaped.
pub fn is_there(member: Member) -> bool {
    status(member.pid).is_some_and(|status| status.member() == member)
}

/// The parent of this process, as `/proc` tells it.
pub(crate) fn parent_of_this() -> Option<i32> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    parse(0, &stat).map(|status| status.parent)
}

/// How many processes this user has, threads counted.
pub fn tasks_of_ours() -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let user = nix::unistd::geteuid().as_raw();
    let is_ours = |pid: i32| std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|file| file.uid() == user);
    processes().iter().filter(|process| is_ours(process.pid)).map(|process| process.threads).sum()
}

#[derive(Debug, Clone, Copy)]
struct Status {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    threads: u64,
    started: u64,
    alive: bool,
}

impl Status {
    fn member(&self) -> Member {
        Member { pid: self.pid, started: self.started }
    }
}

fn processes() -> Vec<Status> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(status)
        .collect()
}

fn status(pid: i32) -> Option<Status> {
    parse(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `proc(5)`: the name in parentheses may hold anything, so the fields are counted from its last parenthesis:
/// state, parent, group, session, …, the number of threads as the 18th, and the start time as the 20th.
fn parse(pid: i32, stat: &str) -> Option<Status> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Status {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        alive: !matches!(fields.first(), Some(&"Z" | &"X")),
    })
}
