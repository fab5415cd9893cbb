//! What a child sees of our environment, and where its program is looked for.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lf_core::project::StdioServer;

/// What every child may see of our own environment: the list of the official SDKs, and two that tools need to
/// speak the user's language and to find a writable place.
const SAFE: [&str; 8] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR"];

/// Tells a child how many processes of this program are above it.
pub const DEPTH_VARIABLE: &str = "LF_MCP_DEPTH";

/// What `execvp` searches when there is no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The whole environment of a server: the safe list, what it inherits by name, and what the file sets on top.
pub(crate) fn child_environment(ours: &[(String, String)], server: &StdioServer) -> Vec<(String, String)> {
    let mut environment: Vec<(String, String)> = ours
        .iter()
        .filter(|(name, _)| SAFE.contains(&name.as_str()) || server.inherit_env.contains(name))
        .cloned()
        .collect();
    for (name, value) in &server.env {
        environment.retain(|(known, _)| known != name);
        environment.push((name.clone(), value.expose().to_owned()));
    }
    let above = ours.iter().find(|(name, _)| name == DEPTH_VARIABLE);
    let above: u32 = above.and_then(|(_, depth)| depth.parse().ok()).unwrap_or(0);
    environment.retain(|(name, _)| name != DEPTH_VARIABLE);
    environment.push((DEPTH_VARIABLE.to_owned(), above.saturating_add(1).to_string()));
    environment
}

#[derive(Debug, PartialEq)]
pub(super) enum LookupError {
    NotFound,
    /// The best candidate, which this user may not run.
    Denied(PathBuf),
}

/// Finds the program as the child would: a name with a slash from its directory, any other on its PATH.
pub(super) fn lookup(command: &str, path: Option<&str>, cwd: &Path) -> Result<PathBuf, LookupError> {
    let candidates: Vec<PathBuf> = if command.contains('/') {
        vec![cwd.join(command)]
    } else {
        let path = path.unwrap_or(DEFAULT_PATH);
        std::env::split_paths(path).map(|directory| cwd.join(directory).join(command)).collect()
    };
    let mut denied = None;
    for candidate in candidates {
        match std::fs::metadata(&candidate) {
            Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => {
                return Ok(candidate);
            }
            Ok(metadata) if metadata.is_dir() && !command.contains('/') => {}
            Ok(_) => denied = denied.or(Some(candidate)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                // A directory of the PATH that nobody may enter says nothing about a plain name.
                if command.contains('/') {
                    denied = Some(candidate);
                }
            }
            Err(_) => {}
        }
    }
    Err(denied.map_or(LookupError::NotFound, LookupError::Denied))
}
