//! What the entries of a file take along, and where to. The file asks for it; whether it is given is the operator's to say.

use std::fmt;

/// Something of this machine's that an entry wants to have at a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    pub entry: Entry,
    /// The variable whose value goes there; `None` is the connection itself, to a host that only this machine or its
    /// network has.
    pub variable: Option<String>,
    pub to: Destination,
    pub asked: Asked,
    /// Whether there is anything that would go there now: the variable may be missing, or replaced by a default.
    pub is_set: bool,
    /// Whether `to` may be told to whoever asks: not where a variable's value is a part of it.
    pub is_told: bool,
}

/// An entry of the file, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    Model(String),
    Server(String),
    /// A prompt set, which clients can ask for.
    Prompts(String),
    /// `storage`.
    Storage,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// Scheme, host and port, as in `https://api.example.com`: in requests to it, and in nothing that is shown.
    Host(String),
    /// Arguments and environment of the command of the server of this name.
    Command(String),
    /// Names, descriptions, prompts, paths: what models are told and clients are shown.
    Texts,
}

/// How plainly the file asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A provider's own variable, to the provider's own address: there is nobody else it could be for.
    Usual,
    /// The provider's own variable, to another address, and the file does not name it.
    Implied,
    /// The file names it.
    Written,
}

impl Carried {
    /// What one grant is for, as it is stored: the same for every entry that asks for it.
    pub fn grant(&self) -> String {
        format!("{} -> {}", self.variable.as_deref().unwrap_or(""), self.to)
    }
}

/// As in "variable `A` may not go to `https://b`".
impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.variable, &self.to) {
            (Some(variable), Destination::Texts) => {
                write!(f, "variable `{variable}` may not stand in texts that are shown")
            }
            (Some(variable), Destination::Command(server)) => {
                write!(f, "variable `{variable}` may not go to the command of `{server}`")
            }
            (Some(variable), _) if !self.is_told => {
                write!(f, "variable `{variable}` may not go to the host that a variable names")
            }
            (Some(variable), to) => write!(f, "variable `{variable}` may not go to `{to}`"),
            (None, _) if self.entry == Entry::Storage => f.write_str("this database may not be connected to"),
            (None, _) if !self.is_told => f.write_str(
                "the host that a variable names is on this machine or in its network and may not be connected to",
            ),
            (None, to) => {
                write!(f, "`{to}` is on this machine or in its network and may not be connected to")
            }
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(origin) => f.write_str(origin),
            Self::Command(server) => write!(f, "command of {server}"),
            Self::Texts => f.write_str("texts"),
        }
    }
}
