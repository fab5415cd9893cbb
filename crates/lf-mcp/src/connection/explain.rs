//! Why a start failed, in words.

use std::time::Duration;

use tokio::time::timeout;

use super::EXIT_GRACE;
use super::greeting::Opening;
use crate::failure::Failure;
use crate::spawn::{self, Process};

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
}

/// Adds what a child that failed to start wrote last, and how it ended.
pub(super) async fn explain(broken: Broken, process: Option<Process>, limit: Duration) -> Failure {
    let Broken { mut failure, is_silent, .. } = broken;
    failure.reason = failure.reason.replace("in time", &format!("within {limit:?}"));
    let Some(mut process) = process else { return failure };
    let status = match is_silent {
        true => timeout(EXIT_GRACE, process.exited()).await.ok().flatten(),
        false => None,
    };
    let lines = process.last_lines().await;
    let Some(status) = status else { return with_lines(failure, &lines) };
    let ending = spawn::ending(status);
    let is_denied = lines.iter().any(|line| {
        let line = line.to_lowercase();
        line.contains("permission denied") || line.contains("eacces")
    });
    // A shell says with 126 and 127 that it could not run the command it was given.
    let described = match status.code() {
        Some(127) => Failure::hinted(
            format!("Command not found: {ending}"),
            "install what the command starts, or correct the command",
        ),
        Some(code) if code == 126 || is_denied => Failure::hinted(
            format!("Permission denied: {ending}"),
            "check the permissions of the files and directories that the command uses",
        ),
        _ => Failure::new(ending),
    };
    with_lines(described, &lines)
}

pub(super) fn with_lines(failure: Failure, lines: &[String]) -> Failure {
    if lines.is_empty() {
        return failure;
    }
    Failure { reason: format!("{}; stderr: {}", failure.reason, lines.join(" | ")), hint: failure.hint }
}
