//! The one place where child processes start and end.
//!
//! Every child gets a cleared environment, its own process group and a drained stderr. It is stopped politely, and
//! whatever it left behind is killed: `npx` and `uvx` do not pass signals on to what they start.

mod browser;
mod environment;
mod group;
mod keeping;
mod limits;
mod orphans;
mod pin;
mod tail;
mod trouble;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lf_core::project::{ProcessLimits, Sandbox, SandboxProfile, StdioServer};
use lf_keeper::tree::{self, Member};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio_util::either::Either;
use tokio_util::task::TaskTracker;

use crate::failure::{Cause, Failure};
use crate::record::Record;
use crate::secrets::Secrets;
pub use browser::open_in_browser;
pub use environment::DEPTH_VARIABLE;
pub(crate) use environment::child_environment;
use environment::{LookupError, lookup};
use group::Group;
use keeping::Keeping;
use lf_egress::blocking;
use lf_keeper::{KEEPERS, Missing};
use limits::Bounds;
pub use orphans::adopt_orphans;
use orphans::{While, kill_orphans};
pub(crate) use pin::Mark;
use tail::Tail;
use trouble::{check_directory, denied, not_found, spawn_failure};

/// From closed stdin to SIGTERM.
const STDIN_GRACE: Duration = Duration::from_secs(2);
/// From SIGTERM to SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(3);
/// For its program and directory to be found, and the process to be there: file systems may be on a network.
const START_LIMIT: Duration = Duration::from_secs(20);
/// For the kernel to hand over the status of a killed process.
const REAP_GRACE: Duration = Duration::from_secs(1);
/// For what keeps a child to end with all that it keeps, which the kernel kills; then it is killed itself.
const GUARD_LIMIT: Duration = Duration::from_secs(2);
/// For one look through `/proc` and the signals that follow from it; it goes on afterwards, in its own thread.
const SCAN_LIMIT: Duration = Duration::from_secs(1);

/// What to start.
pub(crate) struct Launch {
    pub(crate) command: String,
    pub(crate) args: Vec<OsString>,
    /// The whole environment of the child.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) cwd: PathBuf,
    pub(crate) limits: ProcessLimits,
    pub(crate) sandbox: Sandbox,
    /// Whether this program can be started as a keeper.
    pub(crate) keeps: bool,
    /// What the program was when it was approved.
    pub(crate) pin: Option<String>,
    /// Our own executable, which `command: lf` stands for.
    pub(crate) own_program: PathBuf,
    /// What no log and no message may show.
    pub(crate) secrets: Arc<Secrets>,
    /// Where its stderr is kept.
    pub(crate) record: Arc<Record>,
}

/// A running child and everything it started. Dropping it has the child's group killed at once and the rest in a thread
/// that may block, or in place where there is no runtime or no thread.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    leader: Pid,
    tail: Tail,
    tracker: TaskTracker,
    is_strict: bool,
    /// Its leader is a guard, which ends after all that it keeps.
    is_kept: bool,
}

/// A child that was just started, and the pipes to and from it.
struct Started {
    process: Process,
    stdin: Input,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

/// Where what is said to a child goes.
pub(crate) type Stdin = Either<ChildStdin, OwnedWriteHalf>;

/// The stdin of a child that was just started.
enum Input {
    /// Of the child itself.
    Plain(ChildStdin),
    /// Of its keepers, which wait to be told what to start.
    Kept(Box<Keeping>),
}

/// Starts a child. The failure says what is missing: the program, the permission, the directory or a resource.
/// Dropping the future kills what was started.
pub(crate) async fn spawn(
    launch: Launch,
    tracker: &TaskTracker,
    server: &str,
) -> Result<(Process, Stdin, ChildStdout), Failure> {
    let launch = Arc::new(launch);
    if let Some(ready) = attempt(&launch, tracker, server, &[]).await? {
        return Ok(ready);
    }
    let ready = attempt(&launch, tracker, server, &[Missing::ProcessNamespace]).await?;
    ready.ok_or_else(|| Failure::new("its keepers could not be started").of(Cause::CannotStart))
}

/// One start, without what is `missing`. Nothing where only another one can do.
async fn attempt(
    launch: &Arc<Launch>,
    tracker: &TaskTracker,
    server: &str,
    missing: &'static [Missing],
) -> Result<Option<(Process, Stdin, ChildStdout)>, Failure> {
    let (ours, name, what) = (tracker.clone(), server.to_owned(), launch.clone());
    // Looking for the program and starting it touches file systems, and waits for the kernel. A child does not end with
    // the thread that started it: none is tied to its parent by `PR_SET_PDEATHSIG`.
    let token = tracker.token();
    let starting = blocking::run(move || {
        let _running = token;
        start(&what, ours, &name, missing)
    });
    // What is started after all by then is dropped, and so killed.
    let Ok(started) = tokio::time::timeout(START_LIMIT, starting).await else { return Err(unstarted()) };
    let failed = |error| Err(spawn_failure(&error, &launch.command, Path::new(&launch.command)));
    let Started { mut process, stdin, stdout, stderr } = started.unwrap_or_else(failed)?;
    process.tail = Tail::drain(stderr, tracker, server, launch.secrets.clone(), launch.record.clone());
    let stdin = match stdin {
        Input::Plain(stdin) => Either::Left(stdin),
        Input::Kept(keeping) => {
            let handing = keeping.hand_over(server.to_owned(), launch.record.clone());
            match tokio::time::timeout(START_LIMIT, handing).await {
                Ok(Ok(Some(stdin))) => stdin,
                Ok(Ok(None)) => return Ok(None),
                Ok(Err(failure)) => return Err(failure),
                Err(_) => return Err(unstarted()),
            }
        }
    };
    Ok(Some((process, stdin, stdout)))
}

fn unstarted() -> Failure {
    let reason = format!("could not be started within {START_LIMIT:?}: its files cannot be read");
    Failure::hinted(reason, "is a network drive gone?").of(Cause::CannotStart)
}

/// Blocks.
fn start(
    launch: &Launch,
    tracker: TaskTracker,
    server: &str,
    missing: &[Missing],
) -> Result<Started, Failure> {
    check_directory(&launch.cwd)?;
    let program = program(launch)?;
    pin::check(launch, &program, server)?;
    let failed = |error: io::Error| spawn_failure(&error, &launch.command, &program);
    let (mut command, keeping) = match keeping::is_kept(launch) {
        true => keeping::prepare(launch, &program, missing)
            .map(|(command, keeping)| (command, Some(keeping)))
            .map_err(failed)?,
        false => (plain(launch, &program), None),
    };
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let bounds = Bounds::prepare(launch.limits, if keeping.is_some() { KEEPERS } else { 0 });
    let is_kept = keeping.is_some();
    // Under the lock, so that no sweep takes the new child for an orphan.
    let (mut child, leader) = with_registry(|registry| {
        let child = command.spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).ok_or(io::ErrorKind::NotFound)?;
        registry.insert(leader, Entry { is_kept, ..Entry::default() });
        Ok((child, Pid::from_raw(leader)))
    })
    .map_err(failed)?;
    let group = bounds.bind(leader);
    with_registry(|registry| registry.entry(leader.as_raw()).or_default().group = group);
    let stdin = match keeping {
        Some(keeping) => Some(Input::Kept(Box::new(keeping))),
        None => child.stdin.take().map(Input::Plain),
    };
    let is_strict = launch.keeps && launch.sandbox.profile == SandboxProfile::Strict;
    let pipes = (stdin, child.stdout.take(), child.stderr.take());
    let process = Process { child, leader, tail: Tail::default(), tracker, is_strict, is_kept };
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(Failure::new("its pipes could not be opened"));
    };
    Ok(Started { process, stdin, stdout, stderr })
}

/// The program itself, which nobody keeps.
fn plain(launch: &Launch, program: &Path) -> Command {
    #[expect(clippy::disallowed_methods, reason = "this is the one place where children start")]
    let mut command = Command::new(program);
    command
        .args(&launch.args)
        .arg0(&launch.command)
        .env_clear()
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&launch.cwd)
        .stdin(Stdio::piped());
    command
}

impl Process {
    /// Notes which processes belong to this child now, so that one that leaves the group later is still found.
    pub(crate) async fn remember_descendants(&self) {
        self.aside(|leader| {
            remember(leader);
            orphans::reap(&[]);
        })
        .await;
    }

    /// Waits for the child itself to end. Dropping the future changes nothing.
    pub(crate) async fn exited(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// Whether it has only the files and the network that it was given.
    pub(crate) fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// The last lines of stderr, after a short wait for what is still in the pipe.
    pub(crate) async fn last_lines(&self) -> Vec<String> {
        self.tail.last_lines().await
    }

    /// Ends the child and all it started, at most 6 s after its stdin was closed by the caller, and what its looks
    /// through `/proc` take. Dropping the future kills them.
    pub(crate) async fn stop(mut self) {
        self.remember_descendants().await;
        if tokio::time::timeout(STDIN_GRACE, self.child.wait()).await.is_err() {
            self.aside(|leader| signal_tree(leader, Signal::SIGTERM)).await;
            let _ = tokio::time::timeout(TERM_GRACE, self.child.wait()).await;
        }
        self.aside(kill_tree).await;
        let _ = tokio::time::timeout(REAP_GRACE, self.child.wait()).await;
    }

    /// Runs what reads `/proc` in a thread that may block, and waits for it within [`SCAN_LIMIT`]; in place where there
    /// is no thread for it, as nothing may be left running then either.
    async fn aside(&self, work: impl Fn(Pid) + Copy + Send + 'static) {
        let (leader, token) = (self.leader, self.tracker.token());
        let started = blocking::start(move || {
            let _running = token;
            work(leader);
        });
        match started {
            Ok(done) => drop(tokio::time::timeout(SCAN_LIMIT, done).await),
            Err(_) => work(leader),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_kept {
            lf_keeper::tell_to_end(self.leader);
        } else {
            // Gone already is fine.
            let _ = killpg(self.leader, Signal::SIGKILL);
        }
        let remains = Remains(self.leader);
        match Handle::try_current() {
            // Where there is no thread for it, it is dropped right here.
            Ok(_) => {
                let token = self.tracker.token();
                drop(blocking::start(move || drop((remains, token))));
            }
            Err(_) => drop(remains),
        }
        self.tail.end();
    }
}

/// What a child left behind. Killed when dropped, so also where there is no thread for it.
struct Remains(Pid);

impl Drop for Remains {
    fn drop(&mut self) {
        kill_tree(self.0);
        let is_last = with_registry(|registry| {
            registry.remove(&self.0.as_raw());
            registry.is_empty()
        });
        // With no server left, every orphan is one that a server left behind.
        if is_last {
            kill_orphans(While::NoServerRuns);
        }
    }
}

/// Whether `limits.processes` binds here.
#[cfg(test)]
pub(crate) fn bounds_processes() -> bool {
    group::is_possible() || !nix::unistd::geteuid().is_root()
}

/// Kills every child of this process and all they started, at once: for the second signal and for a panicking exit.
pub fn kill_all() {
    let leaders: Vec<i32> = with_registry(|registry| {
        let guards = registry.iter().filter(|(_, entry)| entry.is_kept);
        // all at once, before any is waited for
        guards.for_each(|(leader, _)| lf_keeper::tell_to_end(Pid::from_raw(*leader)));
        registry.keys().copied().collect()
    });
    for leader in leaders {
        kill_tree(Pid::from_raw(leader));
    }
    kill_orphans(While::Exiting);
}

/// How a child ended, such as "exited with status 1" or "was killed by SIGKILL".
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal().map(Signal::try_from)) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(Ok(signal))) => format!("was killed by {signal}"),
        (None, _) => "ended".to_owned(),
    }
}

/// Process group leaders that were started and not yet taken down.
/// A static, because the second signal must find them without any other part still working.
static REGISTRY: Mutex<BTreeMap<i32, Entry>> = Mutex::new(BTreeMap::new());

/// What is known of a child and all it started.
#[derive(Default)]
struct Entry {
    members: Vec<Member>,
    group: Option<Arc<Group>>,
    is_kept: bool,
}

fn with_registry<T>(action: impl FnOnce(&mut BTreeMap<i32, Entry>) -> T) -> T {
    action(&mut REGISTRY.lock().unwrap_or_else(PoisonError::into_inner))
}

fn remember(leader: Pid) -> Vec<Member> {
    let known = with_registry(|registry| {
        registry.get(&leader.as_raw()).map(|entry| entry.members.clone()).unwrap_or_default()
    });
    let members = tree::members(leader.as_raw(), &known);
    with_registry(|registry| {
        if let Some(entry) = registry.get_mut(&leader.as_raw()) {
            entry.members.clone_from(&members);
        }
    });
    members
}

fn group_of(leader: Pid) -> Option<Arc<Group>> {
    with_registry(|registry| registry.get(&leader.as_raw())?.group.clone())
}

fn signal_tree(leader: Pid, signal: Signal) {
    // Gone already is fine: there is nothing left to end.
    let _ = killpg(leader, signal);
    for member in tree::members(leader.as_raw(), &remember(leader)) {
        let _ = kill(Pid::from_raw(member.pid), signal);
    }
    for pid in group_of(leader).map(|group| group.members()).unwrap_or_default() {
        let _ = kill(pid, signal);
    }
}

/// Blocks. What kept it goes last: killed with it, it would leave what it knows of and we do not.
fn kill_tree(leader: Pid) {
    let group = group_of(leader);
    if let Some(group) = &group {
        group.close();
    }
    let mut seen = remember(leader);
    if with_registry(|registry| registry.get(&leader.as_raw()).is_some_and(|entry| entry.is_kept)) {
        lf_keeper::tell_to_end(leader);
        // else it was stopped, or killed: what follows does without it
        let _ = lf_keeper::has_ended_within(leader, GUARD_LIMIT);
    }
    if let Some(group) = &group {
        group.kill();
    }
    kill_members(leader, &mut seen);
    orphans::reap(&seen);
}

/// Repeated, because a process may fork between the look and the signal.
fn kill_members(leader: Pid, seen: &mut Vec<Member>) {
    const PASSES: usize = 4;
    for _ in 0..PASSES {
        let members = remember(leader);
        let _ = killpg(leader, Signal::SIGKILL);
        if members.is_empty() {
            return;
        }
        for member in &members {
            let _ = kill(Pid::from_raw(member.pid), Signal::SIGKILL);
        }
        seen.extend(members);
    }
}

/// The program that a server's command would run; `None` where there is none.
pub(crate) fn program_of(
    server: &StdioServer,
    environment: &[(String, String)],
    own_program: &Path,
) -> Option<PathBuf> {
    if server.command == "lf" {
        return Some(own_program.to_owned());
    }
    let environment = child_environment(environment, server);
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_str());
    lookup(&server.command, path, &server.cwd).ok()
}

fn program(launch: &Launch) -> Result<PathBuf, Failure> {
    if launch.command == "lf" {
        return Ok(launch.own_program.clone());
    }
    let path = launch.environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_str());
    lookup(&launch.command, path, &launch.cwd).map_err(|error| match error {
        LookupError::NotFound => not_found(&launch.command),
        LookupError::Denied(path) => denied(&path),
    })
}

#[cfg(test)]
mod tests;
