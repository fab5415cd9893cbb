//! Where a daemon may keep conversations: the file that it is started with says it, as far as that file is trusted.

use std::path::Path;

use lf_core::Project;
use lf_core::operator::Operator;
use lf_core::project::{Disabled, Storage};

use super::granted::Granted;
use super::{Stored, read};

/// The storage of the project that the program is started in. A stored project is no more trusted for being the working
/// directory, and the operator's word counts for every file.
///
/// # Errors
/// When the file's own is not available, and when what it asks for is not permitted.
pub fn storage_of(project: &Project, data_dir: &Path, operator: &Operator) -> Result<Storage, Disabled> {
    let grants = match stored_name(&project.root, data_dir) {
        Some(full) => read(&data_dir.join("approvals.json")).map(|stored: Stored| stored.grants(&full)),
        None => Ok(None),
    };
    let may_connect = matches!(grants, Ok(None));
    Granted { operator, grants, may_connect }.storage(project)
}

/// Under which name a directory of the data directory is a project, whatever its file says.
fn stored_name(root: &Path, data_dir: &Path) -> Option<String> {
    let stored = data_dir.join("projects").canonicalize().ok()?;
    let root = root.canonicalize().ok()?;
    Some(root.strip_prefix(stored).ok()?.to_string_lossy().into_owned())
}
