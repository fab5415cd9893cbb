//! Where the daemon of a data directory listens, for commands of the same owner: they hand his token to that daemon and to
//! nobody who happens to listen at its address while it does not run.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

const FILE: &str = "daemon.addr";
/// Longest address, in bytes.
const LONGEST: u64 = 100;

/// A daemon is known for as long as this lives.
pub struct Announced(File);

/// Tells where this daemon listens.
///
/// # Errors
/// When the file cannot be written, or another daemon has it.
pub fn announce(data_dir: &Path, address: SocketAddr) -> io::Result<Announced> {
    std::fs::create_dir_all(data_dir)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(data_dir.join(FILE))?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::other("another daemon is running there"),
        TryLockError::Error(error) => error,
    })?;
    file.set_len(0)?;
    file.write_all(address.to_string().as_bytes())?;
    Ok(Announced(file))
}

/// Where the daemon of this data directory listens; `None` where none runs.
pub fn own_daemon(data_dir: &Path) -> Option<SocketAddr> {
    let file = File::open(data_dir.join(FILE)).ok()?;
    // whoever can lock it finds that nobody else has
    let Err(TryLockError::WouldBlock) = file.try_lock_shared() else { return None };
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    text.parse().ok()
}

impl Drop for Announced {
    fn drop(&mut self) {
        // closing it does the same
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_known_while_it_runs() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(own_daemon(home.path()), None);
        let address = "127.0.0.1:14345".parse().unwrap();
        let announced = announce(home.path(), address).unwrap();
        assert_eq!(own_daemon(home.path()), Some(address));
        assert!(announce(home.path(), address).is_err());
        drop(announced);
        assert_eq!(own_daemon(home.path()), None);
    }
}
