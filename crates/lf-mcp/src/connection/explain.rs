//! Why a start failed, in words.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::time::timeout;

use super::STATUS_GRACE;
use super::greeting::Opening;
use crate::failure::{Cause, Failure};
use crate::spawn::{self, Process};

/// The number of the signal that nothing survives.
const SIGKILL: i32 = 9;

/// What programs say of files that they may not use; and in a sandbox, of networks and of the kernel.
const REFUSALS: [&str; 7] = [
    "permission denied",
    "eacces",
    "operation not permitted",
    "eperm",
    "network is unreachable",
    "read-only file system",
    "erofs",
];

/// A start that failed.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) failure: Failure,
    /// The connection just ended: how the child ended says more.
    pub(super) is_silent: bool,
    /// How a fresh start may succeed.
    pub(super) next: Option<Opening>,
}

impl Broken {
    pub(super) fn told(failure: Failure) -> Self {
        Self { failure, is_silent: false, next: None }
    }

    pub(super) fn silent(reason: &str) -> Self {
        Self { failure: Failure::new(reason), is_silent: true, next: None }
    }

    pub(super) fn or_else(self, next: Opening) -> Self {
        Self { next: Some(next), ..self }
    }
}

pub(super) fn unanswered(what: &str) -> Failure {
    Failure::hinted(
        format!("did not answer {what} in time"),
        "check that it is an MCP server of this transport, or raise `startup_timeout`",
    )
    .of(Cause::Unresponsive)
}

/// Adds what a child that failed to start wrote last, and how it ended.
pub(super) async fn explain(broken: Broken, process: Option<Process>, limit: Duration) -> Failure {
    let Broken { mut failure, is_silent, .. } = broken;
    failure.reason = failure.reason.replace("in time", &format!("within {limit:?}"));
    let Some(mut process) = process else { return failure };
    let status = match is_silent {
        true => timeout(STATUS_GRACE, process.exited()).await.ok().flatten(),
        false => None,
    };
    let lines = process.last_lines().await;
    let Some(status) = status else { return with_lines(failure, &lines) };
    let ending = spawn::ending(status);
    let is_denied = lines.iter().any(|line| {
        let line = line.to_lowercase();
        let signs: &[&str] = if process.is_strict() { &REFUSALS } else { &REFUSALS[..2] };
        signs.iter().any(|sign| line.contains(sign))
    });
    // A shell says with 126 and 127 that it could not run the command it was given.
    let described = match status.code() {
        Some(127) => Failure::hinted(
            format!("Command not found: {ending}"),
            "install what the command starts, or correct the command",
        )
        .of(Cause::CannotStart),
        Some(code) if code == 126 || is_denied => Failure::hinted(
            format!("Permission denied: {ending}"),
            match process.is_strict() {
                true => "it runs with `sandbox: strict`: name what it needs in `read`, `write` or `network` of its `sandbox`",
                false => "check the permissions of the files and directories that the command uses",
            },
        )
        .of(Cause::CannotStart),
        _ => ended(Some(status)),
    };
    with_lines(described, &lines)
}

/// Of a child that ended by itself.
pub(super) fn ended(status: Option<ExitStatus>) -> Failure {
    let reason = status.map_or_else(|| "ended".to_owned(), spawn::ending);
    let is_killed = status.is_some_and(|status| status.signal() == Some(SIGKILL));
    let hint = is_killed.then(|| "the system kills what takes too much memory; see its log".to_owned());
    Failure { hint, ..Failure::new(reason) }.of(Cause::Exited)
}

/// What languages say of memory that they were not given: Python, Node.js, Go, C++, Rust, and the C library.
fn tells_of_memory(line: &str) -> bool {
    const SIGNS: [&str; 7] = [
        "memoryerror",
        "out of memory",
        "cannot allocate memory",
        "bad_alloc",
        "memory allocation of",
        "allocation failed",
        "enomem",
    ];
    let line = line.to_lowercase();
    SIGNS.iter().any(|sign| line.contains(sign))
}

pub(super) fn with_lines(failure: Failure, lines: &[String]) -> Failure {
    if lines.is_empty() {
        return failure;
    }
    let failure = match failure.cause {
        Cause::Exited if lines.iter().any(|line| tells_of_memory(line)) => Failure::hinted(
            format!("out of memory: {}", failure.reason),
            "each of its processes may use `limits.memory` of the server (4GiB); raise it, or give the server less to do",
        )
        .of(Cause::OutOfMemory),
        _ => failure,
    };
    Failure { reason: format!("{}; stderr: {}", failure.reason, lines.join(" | ")), ..failure }
}
