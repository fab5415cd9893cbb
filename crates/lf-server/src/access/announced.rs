//! Where the daemons of a data directory listen, for commands of the same owner: they hand his token to those daemons and to
//! nobody who happens to listen at an address of theirs while they do not run.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Holds a file for each daemon, which is named after its address and locked by it. There may be several: those that share
/// a database.
const DIRECTORY: &str = "daemons";

/// A daemon is known for as long as this lives.
pub struct Announced {
    file: File,
    path: PathBuf,
}

/// Tells that a daemon listens here. It must do so already: whoever else was known at this address is about to end.
///
/// # Errors
/// When the file cannot be written.
pub fn announce(data_dir: &Path, address: SocketAddr) -> io::Result<Announced> {
    let directory = data_dir.join(DIRECTORY);
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let path = directory.join(address.to_string());
    // Under a name that is no address until it is locked: a command that looks at it in between would hold the lock for
    // that moment, and this daemon would be known to nobody.
    let begun = directory.join(format!("{address}.{}", std::process::id()));
    match std::fs::remove_file(&begun) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&begun)?;
    file.try_lock().map_err(io::Error::from)?;
    std::fs::rename(&begun, &path)?;
    Ok(Announced { file, path })
}

/// Where the daemons of this data directory listen that have this port; none where none runs.
pub fn own_daemons(data_dir: &Path, port: u16) -> Vec<SocketAddr> {
    let Ok(known) = data_dir.join(DIRECTORY).read_dir() else { return Vec::new() };
    let running = known.filter_map(|entry| {
        let entry = entry.ok()?;
        let address: SocketAddr = entry.file_name().to_str()?.parse().ok()?;
        let is_meant = address.port() == port;
        // whoever can lock it finds that nobody else has
        let file = File::open(entry.path()).ok().filter(|_| is_meant)?;
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)).then_some(address)
    });
    running.collect()
}

impl Drop for Announced {
    fn drop(&mut self) {
        // where the next daemon has the address already, the file is its own
        let is_own = |own: &std::fs::Metadata| self.path.metadata().is_ok_and(|now| now.ino() == own.ino());
        if self.file.metadata().is_ok_and(|own| is_own(&own)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn daemons_are_known_while_they_run() {
        let home = tempfile::tempdir().unwrap();
        let known = |port| own_daemons(home.path(), port);
        assert_eq!(known(14345), []);
        let [one, other] = ["127.0.0.1:14345", "[::1]:14346"].map(|address| address.parse().unwrap());
        let announced = [one, other].map(|address| announce(home.path(), address).unwrap());
        assert_eq!((known(14345), known(14346), known(1)), (vec![one], vec![other], vec![]));
        // as after a crash: the file is there, and nobody has it
        File::create(home.path().join(DIRECTORY).join("127.0.0.2:14345")).unwrap();
        assert_eq!(known(14345), [one]);
        // the next one has the address while the former is about to end
        let next = announce(home.path(), one).unwrap();
        drop(announced);
        assert_eq!((known(14345), known(14346)), (vec![one], vec![]));
        drop(next);
        assert_eq!(known(14345), []);
        assert_eq!(home.path().join(DIRECTORY).read_dir().unwrap().count(), 1, "what the crash left");
    }

    #[test]
    fn a_daemon_is_known_whoever_looks_for_one_meanwhile() {
        let home = tempfile::tempdir().unwrap();
        let address: SocketAddr = "127.0.0.1:14345".parse().unwrap();
        let is_over = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    own_daemons(home.path(), 14345);
                }
            });
            let announced = (0..200).map(|_| announce(home.path(), address));
            let found: Vec<_> =
                announced.map(|announced| announced.map(|_known| own_daemons(home.path(), 14345))).collect();
            is_over.store(true, Ordering::SeqCst);
            found
        });
        for found in found {
            assert_eq!(found.unwrap(), [address]);
        }
    }
}
