//! Files that only their owner may read, replaced as a whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Replaces a file: written beside it, synchronised, renamed, so that after a crash it is the old or the new. Only its
/// owner may read it. A symbolic link is replaced, not followed. The directory is there already.
///
/// # Errors
/// Those of the system; nothing is left beside the file.
pub fn replace_private(path: &Path, text: &str) -> io::Result<()> {
    replace_with(path, text, 0o600)
}

/// The same for what everybody may read whom the system lets.
///
/// # Errors
/// As [`replace_private`].
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    replace_with(path, text, 0o666)
}

fn replace_with(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // that of a bare name is empty
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let unique = uuid::Uuid::new_v4().simple();
    let temporary = directory.join(format!(".{}.{unique}.tmp", name.to_string_lossy()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        File::open(directory)?.sync_all()
    })();
    if written.is_err() {
        // gone already where it was renamed
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_for_its_owner_alone_and_a_link_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let (file, other) = (home.path().join("a.json"), home.path().join("other"));
        std::fs::write(&other, "theirs").unwrap();
        std::os::unix::fs::symlink(&other, &file).unwrap();
        for text in ["one", "two"] {
            replace_private(&file, text).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
            assert_eq!(file.symlink_metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        }
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "theirs");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_cannot_be_replaced_stays_and_nothing_is_left_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("a.json");
        std::fs::create_dir_all(directory.join("inside")).unwrap();
        assert!(replace_private(&directory, "text").is_err());
        assert!(directory.join("inside").is_dir());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
        assert_eq!(replace_private(Path::new("/"), "text").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
