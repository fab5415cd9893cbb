//! How local servers are confined.

use std::path::PathBuf;

/// What a local server and all it starts may do to the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Sandbox {
    pub profile: SandboxProfile,
    /// Beside the system's programs, libraries and settings, what it may read and run; of the profile `strict`.
    pub read: Vec<PathBuf>,
    /// What it may change as well; of the profile `strict`.
    pub write: Vec<PathBuf>,
    /// Of the profile `strict`.
    pub network: SandboxNetwork,
    /// Whether it is not started where the kernel cannot do all of it. Otherwise it runs with less, which is told.
    pub require: bool,
    /// Whether it may see the processes of the machine, and outlive us where the kernel does not let them be looked for.
    pub shares_processes: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SandboxProfile {
    /// It runs as any program that a person starts.
    Off,
    /// It sees its own processes only, and ends with us. Files and the network are those of its user.
    #[default]
    Default,
    /// And it has the files and the network that the file names, no other.
    Strict,
}

impl SandboxProfile {
    /// As the file writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Default => "default",
            Self::Strict => "strict",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum SandboxNetwork {
    All,
    /// These ports of TCP, on any machine.
    Ports(Vec<u16>),
    #[default]
    None,
}
