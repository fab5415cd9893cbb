//! The files of stored projects: where they are, and writing them so that a crash leaves the old or the new one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Only its owner may read it; after a crash it is the old or the new.
pub(super) use lf_mcp::replace_private as write;
use sha2::{Digest as _, Sha256};

/// File names of a project, in the order they are tried.
pub(super) const FILES: [&str; 4] = ["llamafarm.yaml", "llamafarm.yml", "llamafarm.toml", "llamafarm.json"];

/// `[A-Za-z0-9][A-Za-z0-9._-]{0,62}`
pub(super) fn is_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

/// The directory of a project; the only way from names to a path. `None` for what is no name, and for what a symbolic
/// link would lead out of the data directory.
pub(super) fn place(data_dir: &Path, namespace: &str, name: &str) -> Option<PathBuf> {
    if !(is_name(namespace) && is_name(name)) {
        return None;
    }
    let mut path = data_dir.join("projects");
    for part in [namespace, name] {
        path.push(part);
        if is_link(&path) {
            return None;
        }
    }
    Some(path)
}

/// The file of a project, which is no symbolic link.
pub(super) fn file_in(directory: &Path) -> Option<PathBuf> {
    let path = FILES.iter().map(|file| directory.join(file)).find(|path| path.symlink_metadata().is_ok())?;
    (!is_link(&path)).then_some(path)
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink())
}

/// Of a text, in hexadecimal.
pub(super) fn revision(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Of a file of any size.
pub(super) fn hash_of(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(path)?, &mut HashWriter(&mut hasher))?;
    Ok(hexadecimal(&hasher.finalize()))
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Held by whoever changes something below the data directory, in this process or another. Released when dropped.
pub(super) fn lock(data_dir: &Path) -> io::Result<File> {
    std::fs::create_dir_all(data_dir)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(data_dir.join("write.lock"))?;
    file.lock()?;
    Ok(file)
}

/// Removes what writers left behind that were cut off. Nobody writes meanwhile who holds the [`lock`], as all do.
pub(super) fn tidy(data_dir: &Path, projects: &[PathBuf]) -> io::Result<()> {
    let _lock = lock(data_dir)?;
    for directory in projects.iter().map(PathBuf::as_path).chain([data_dir]) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_ours = name.starts_with(".llamafarm.") || name.starts_with(".approvals.json.");
            if is_ours && name.ends_with(".tmp") {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_left_is_removed_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("projects/ns/one");
        std::fs::create_dir_all(&project).unwrap();
        let left = [".llamafarm.yaml.1-2.tmp", ".llamafarm.yaml.bak.1-2.tmp"].map(|name| project.join(name));
        let others = ["llamafarm.yaml", "llamafarm.yaml.bak", ".env", "x.tmp"].map(|name| project.join(name));
        left.iter().chain(&others).for_each(|path| std::fs::write(path, "").unwrap());
        std::fs::write(home.path().join(".approvals.json.3.tmp"), "").unwrap();
        tidy(home.path(), std::slice::from_ref(&project)).unwrap();
        assert_eq!(std::fs::read_dir(&project).unwrap().count(), others.len());
        assert!(
            others.iter().all(|path| path.exists()) && !home.path().join(".approvals.json.3.tmp").exists()
        );
    }
}
