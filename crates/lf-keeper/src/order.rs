//! What is said between the daemon and the keepers.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// Longer than any list of arguments and variables that Linux starts a program with (`ARG_MAX` of 2 MiB; each byte takes
/// up to four here).
const LONGEST: u32 = 16 << 20;

/// What to start, and how.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// The process that gives the order, and must not be outlived.
    pub parent: i32,
    /// What reports of it begin with, and nobody else knows: the child can write to where they come from.
    pub word: String,
    pub program: OsString,
    /// What the program is told it was called as.
    pub name: OsString,
    pub args: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub directory: OsString,
    /// Whether to make namespaces. Without, a process that leaves its parents is killed by looking for it.
    pub namespaces: bool,
    /// What is known not to be had: a keeper that was given the order before could not follow it.
    pub missing: Vec<Missing>,
    /// `None`: it may do what its user may do.
    pub confinement: Option<Confinement>,
    /// Start nothing where any of it cannot be had.
    pub require: bool,
}

/// What a confined child may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Files, and directories with all in them, that it may read and run, besides the system's.
    pub read: Vec<OsString>,
    /// The same, to change as well.
    pub write: Vec<OsString>,
    pub network: Network,
}

/// Where a confined child may connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    All,
    /// Ports of TCP, on any machine. Names are looked up over UDP where 53 is one of them.
    Ports(Vec<u16>),
    None,
}

/// What became of an order.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// It runs, without what is missing.
    Started { missing: Vec<Missing> },
    /// It does not, as what is missing is required.
    Refused { missing: Vec<Missing> },
    /// It does not, as the keepers are in namespaces that are of no use: it may without.
    Again,
    Failed {
        doing: Doing,
        /// The system's number of the error.
        errno: i32,
    },
}

/// What failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Doing {
    /// Reading the order, or starting a keeper.
    Keeping,
    Confining,
    /// Starting the program itself.
    Starting,
}

/// What the kernel, or whoever started us, does not let us have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Missing {
    ProcessNamespace,
    OwnProc,
    NetworkNamespace,
    IpcNamespace,
    /// Modes, owners and times of files can be changed where its user may.
    ReadOnlyMounts,
    /// Landlock is not there, or too old for all of it.
    Landlock,
    Seccomp,
}

impl Missing {
    /// In words for a person, to follow "without".
    #[must_use]
    pub fn described(self) -> &'static str {
        match self {
            Self::ProcessNamespace => "a process namespace",
            Self::OwnProc => "a `/proc` of its own",
            Self::NetworkNamespace => "a network namespace",
            Self::IpcNamespace => "an IPC namespace",
            Self::ReadOnlyMounts => "read-only mounts",
            Self::Landlock => "Landlock (files since Linux 6.2, ports since 6.7)",
            Self::Seccomp => "a seccomp filter",
        }
    }
}

/// Without what may be secret: arguments and the environment.
impl fmt::Debug for Order {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Order").field("program", &self.program).finish_non_exhaustive()
    }
}

impl Order {
    /// As both keepers read it, one after the other.
    ///
    /// # Errors
    /// It is longer than 16 MiB.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        let text = serde_json::to_vec(self)?;
        let length = u32::try_from(text.len()).ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or(io::ErrorKind::ArgumentListTooLong)?.to_be_bytes();
        Ok([length.as_slice(), &text, &length, &text].concat())
    }

    /// Reads one, and not a byte more: what follows is for another reader.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = vec![0; length as usize];
        from.read_exact(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

impl Report {
    /// The longest line that a report takes, in bytes.
    pub const LONGEST: u64 = 4096;

    pub(crate) fn failed(doing: Doing, error: &io::Error) -> Self {
        Self::Failed { doing, errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }

    /// `word`: of the order that it is of.
    pub(crate) fn write(&self, word: &str, to: &mut impl Write) -> io::Result<()> {
        let line = format!("{word} {}\n", serde_json::to_string(self)?);
        to.write_all(line.as_bytes())
    }

    /// From the line that was written of the order with this word.
    ///
    /// # Errors
    /// It is none, or of another order.
    pub fn parse(line: &[u8], word: &str) -> io::Result<Self> {
        let rest = line.strip_prefix(word.as_bytes()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(serde_json::from_slice(rest)?)
    }
}

#[cfg(test)]
mod tests;
