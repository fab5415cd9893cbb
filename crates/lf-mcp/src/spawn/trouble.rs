//! Why a child could not be started, in words.

use std::io;
use std::path::Path;

use nix::errno::Errno;

use crate::failure::{Cause, Failure};

pub(super) fn check_directory(cwd: &Path) -> Result<(), Failure> {
    match std::fs::metadata(cwd) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Failure::hinted(
            format!("Permission denied: working directory `{}`", cwd.display()),
            "let this user enter the directory, or set another `cwd`",
        )
        .of(Cause::CannotStart)),
        _ => Err(Failure::hinted(
            format!("working directory `{}` is not a directory", cwd.display()),
            "create it, or set another `cwd`",
        )
        .of(Cause::CannotStart)),
    }
}

pub(super) fn not_found(command: &str) -> Failure {
    let name = Path::new(command).file_name().map_or(command.into(), |name| name.to_string_lossy());
    let hint = match name.as_ref() {
        "npx" | "npm" | "node" => "install Node.js, which brings `npx`, or put it on the PATH".to_owned(),
        "uvx" | "uv" => "install uv, which brings `uvx`, or put it on the PATH".to_owned(),
        "docker" => "install Docker, or put it on the PATH".to_owned(),
        _ => format!("install the package that brings `{name}`, put it on the PATH, or give its full path"),
    };
    Failure::hinted(format!("Command not found: `{command}`"), hint).of(Cause::CannotStart)
}

pub(super) fn denied(path: &Path) -> Failure {
    Failure::hinted(
        format!("Permission denied: `{}` cannot be run", path.display()),
        format!("make it executable (`chmod +x {}`) and let this user reach its directory", path.display()),
    )
    .of(Cause::CannotStart)
}

pub(super) fn spawn_failure(error: &io::Error, command: &str, program: &Path) -> Failure {
    let lacking = |hint: &str| {
        let reason = format!("`{command}` could not be started for lack of resources: {error}");
        Failure::hinted(reason, hint).of(Cause::NoResources)
    };
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN) => lacking(
            "too many processes run for this user or on this machine: end some, or raise the limit (`ulimit -u`)",
        ),
        Some(Errno::ENOMEM) => lacking("the machine is out of memory"),
        Some(Errno::EMFILE | Errno::ENFILE) => {
            lacking("too many files and connections are open: raise the limit (`ulimit -n`)")
        }
        // The file was there a moment ago: what is missing is the interpreter its first line names.
        Some(Errno::ENOENT) => Failure::hinted(
            format!("Command not found: the interpreter of `{command}`"),
            format!("install the interpreter that the first line of {} names", program.display()),
        )
        .of(Cause::CannotStart),
        Some(Errno::EACCES | Errno::EPERM) => denied(program),
        _ => Failure::new(format!("`{command}` could not be started: {error}")).of(Cause::CannotStart),
    }
}
