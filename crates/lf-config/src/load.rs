//! Finding and reading the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lf_core::Secret;
use thiserror::Error;

use crate::lock::{lock_path, read_lock};
use crate::{Loaded, Rejected, Source, Variables, parse};

/// In the order they are tried.
pub const FILE_NAMES: [&str; 4] = ["llamafarm.yaml", "llamafarm.yml", "llamafarm.toml", "llamafarm.json"];

/// A megabyte of configuration is a mistake or an attack.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;

#[derive(Debug, Error)]
pub enum LoadError {
    #[error("no llamafarm.yaml in {} or any directory above it", start.display())]
    NotFound { start: PathBuf },
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is {what}, not a file", path.display())]
    NotAFile { path: PathBuf, what: &'static str },
    #[error("{} is larger than {limit} bytes", path.display())]
    TooLarge { path: PathBuf, limit: usize },
    #[error("{} is not UTF-8 text (byte {at})", path.display())]
    NotText { path: PathBuf, at: usize },
    /// The lock beside it cannot be used.
    #[error("{}:{line}:{column}: {reason}", path.display())]
    Lock { path: PathBuf, line: usize, column: usize, reason: String },
    /// Displays as all diagnostics, rendered.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

/// The nearest file from `start` upward, to the root of the repository (the directory with `.git`) or of the file
/// system. `start` should be absolute: a relative path has no directories above its own.
pub fn find(start: &Path) -> Result<PathBuf, LoadError> {
    for directory in start.ancestors() {
        let found =
            FILE_NAMES.iter().map(|name| directory.join(name)).find(|path| path.symlink_metadata().is_ok());
        if let Some(found) = found {
            return Ok(found);
        }
        if directory.join(".git").exists() {
            break;
        }
    }
    Err(LoadError::NotFound { start: start.to_owned() })
}

/// Reads and parses one file, with the `.env` beside it; `process` gives the variables of the process. Never blocks on
/// a pipe or device, and reads at most 1 MiB.
pub fn load(path: &Path, process: impl Fn(&str) -> Option<String>) -> Result<Loaded, LoadError> {
    load_text(path, read(path)?, process)
}

/// The same with another text in the place of the file's.
pub fn load_text(
    path: &Path,
    text: String,
    process: impl Fn(&str) -> Option<String>,
) -> Result<Loaded, LoadError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let root = directory
        .canonicalize()
        .map_err(|source| LoadError::Unreadable { path: directory.to_owned(), source })?;
    // a virtual environment may have that name, and a password manager may serve it through a pipe
    let (dotenv, problem) = match read(&directory.join(".env")) {
        Ok(text) => (Some(text), None),
        Err(LoadError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => (None, None),
        Err(LoadError::NotAFile { what, .. }) => (None, Some(format!("`.env` is {what} and is not read"))),
        Err(error) => return Err(error),
    };
    let mut variables = Variables::new(dotenv.as_deref(), process);
    if let Some(problem) = problem {
        variables.add_problem(problem);
    }
    let source = Source { path: path.to_owned(), text };
    let mut loaded = parse(&source, &root, &variables)?;
    let pins = Arc::make_mut(&mut loaded.project.pins);
    pins.lock = read_lock(path)?;
    pins.file = lock_path(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Loaded { dotenv: dotenv.map(Secret::from), ..loaded })
}

/// The text of a file. Never blocks on a pipe or device, and reads at most 1 MiB.
pub fn read(path: &Path) -> Result<String, LoadError> {
    read_up_to(path, MAX_BYTES)
}

pub(crate) fn read_up_to(path: &Path, limit: usize) -> Result<String, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let file = open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "a directory" } else { "a pipe or device" };
        return Err(LoadError::NotAFile { path: path.to_owned(), what });
    }
    let mut bytes = Vec::new();
    // the size may change between asking and reading
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > limit {
        return Err(LoadError::TooLarge { path: path.to_owned(), limit });
    }
    String::from_utf8(bytes)
        .map_err(|error| LoadError::NotText { path: path.to_owned(), at: error.utf8_error().valid_up_to() })
}

/// Without waiting for a writer at the other end of a pipe.
#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

#[cfg(test)]
mod tests;
