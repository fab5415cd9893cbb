//! What git has of a file.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;

/// For git to answer.
const WAIT: Duration = Duration::from_secs(10);
/// As for any file of a project.
const LONGEST: u64 = 1024 * 1024;

/// The text of the file in the last commit. Dropping the future ends git.
///
/// # Errors
/// Why there is none, as a fragment.
pub(super) async fn committed(path: &Path) -> Result<String, String> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    #[expect(
        clippy::disallowed_methods,
        reason = "git is asked by a person's command, and is none of our servers"
    )]
    let mut git = tokio::process::Command::new("git");
    // `cat-file` runs no filter that the repository names
    git.arg("-C").arg(directory).args(["cat-file", "blob", &format!("HEAD:./{name}")]);
    git.env_clear().envs(["PATH", "HOME"].iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    git.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = git.spawn().map_err(|error| format!("git cannot be started: {error}"))?;
    let mut text = Vec::new();
    let read = async {
        if let Some(stdout) = child.stdout.take() {
            let read = stdout.take(LONGEST + 1).read_to_end(&mut text).await;
            read.map_err(|error| format!("what git has of it cannot be read: {error}"))?;
        }
        // with the rest of it, git would wait for a reader
        if text.len() as u64 > LONGEST {
            return Err(format!("what git has of it is larger than {LONGEST} bytes"));
        }
        child.wait().await.map_err(|error| format!("git failed: {error}"))
    };
    let status = tokio::time::timeout(WAIT, read)
        .await
        .map_err(|_| format!("git did not answer within {WAIT:?}"))??;
    match status.success() {
        true => String::from_utf8(text).map_err(|_| "what git has of it is not UTF-8 text".to_owned()),
        false => Err("git has no earlier version of it".to_owned()),
    }
}
