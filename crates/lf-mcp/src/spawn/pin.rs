//! Whether a program is the one that was approved, or at least the one that was started before.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::Launch;
use crate::failure::{Cause, Failure};

/// How a file is told from the one that took its place, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Mark {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// Refuses a program that is not the approved one; of others, tells when they have changed since the last start: an update
/// is nothing to be kept from, and nothing to go unnoticed. Blocks.
pub(super) fn check(launch: &Launch, program: &Path, server: &str) -> Result<(), Failure> {
    let Ok(metadata) = std::fs::metadata(program) else { return Ok(()) };
    if launch.command == "lf" {
        return Ok(());
    }
    if let Some(pin) = &launch.pin
        && hash(program).ok().as_ref() != Some(pin)
    {
        return Err(Failure::hinted(
            format!("not started: `{}` is not the program that was approved", program.display()),
            "it was replaced on disk; look at it, and run `lf config approve` to let it run",
        )
        .of(Cause::Changed));
    }
    let mark = Mark::of(&metadata);
    if launch.record.started_as(mark).is_some_and(|before| before != mark) {
        let program = program.display();
        tracing::warn!(server, %program, "the program of an MCP server was replaced on disk since its last start");
    }
    Ok(())
}

fn hash(program: &Path) -> io::Result<String> {
    let mut file = File::open(program)?;
    let mut hasher = Sha256::new();
    let mut block = vec![0; 64 * 1024];
    loop {
        match file.read(&mut block)? {
            0 => break,
            count => hasher.update(&block[..count]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
