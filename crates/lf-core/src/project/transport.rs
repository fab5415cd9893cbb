//! How a tool server is reached.

use std::fmt;
use std::path::PathBuf;

use super::{Auth, Sandbox};
use crate::Secret;
use crate::place::Reach;
use crate::secret::shown_url_without;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Transport {
    Stdio(StdioServer),
    /// Streamable HTTP.
    Http(HttpServer),
    /// HTTP+SSE of revision 2024-11-05.
    Sse(HttpServer),
}

impl Transport {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Http(_) => "http",
            Self::Sse(_) => "sse",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StdioServer {
    pub command: String,
    pub args: Vec<Secret>,
    /// Set on top of the safe list and `inherit_env`.
    pub env: Vec<(String, Secret)>,
    /// Names taken over from our own environment beyond the safe list.
    pub inherit_env: Vec<String>,
    pub cwd: PathBuf,
    pub limits: ProcessLimits,
    pub sandbox: Sandbox,
    /// The SHA-256 of its program, in hexadecimal, when a person approved it: no other is started.
    pub pin: Option<String>,
    /// What the file says of the process that it becomes, with variables by their names: the same for the same command.
    pub written: Secret,
}

impl StdioServer {
    /// A program with nothing of our environment but the safe list, in the directory `/`.
    pub fn new(command: impl Into<String>, args: &[&str]) -> Self {
        Self {
            command: command.into(),
            args: args.iter().map(|arg| Secret::from(*arg)).collect(),
            env: Vec::new(),
            inherit_env: Vec::new(),
            cwd: PathBuf::from("/"),
            limits: ProcessLimits::default(),
            sandbox: Sandbox::default(),
            pin: None,
            written: Secret::default(),
        }
    }
}

/// What a local server and all it starts may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessLimits {
    /// Bytes of memory that each process may write to; what is only reserved does not count. Default 4 GiB.
    pub memory: Option<u64>,
    /// Processes at the same time, threads counted. Default 1024.
    pub processes: Option<u32>,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self { memory: Some(4 << 30), processes: Some(1024) }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HttpServer {
    /// `http` or `https`; used as it is, nothing appended.
    pub base_url: String,
    /// What variables hold of `base_url`: not shown.
    pub in_url: Vec<Secret>,
    pub headers: Vec<(String, Secret)>,
    /// `None`: the headers alone, and a token that a person agreed to where the server asks for one and no header is one.
    pub auth: Option<Auth>,
    /// Which addresses may be behind `base_url`.
    pub reach: Reach,
}

impl HttpServer {
    /// Without headers of its own.
    pub fn new(base_url: impl Into<String>) -> Self {
        let (in_url, headers) = (Vec::new(), Vec::new());
        Self { base_url: base_url.into(), in_url, headers, auth: None, reach: Reach::Named }
    }
}

/// Without what the URL hides.
impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base_url, in_url, headers, auth, reach } = self;
        let mut shown = f.debug_struct("HttpServer");
        shown.field("base_url", &shown_url_without(base_url, in_url)).field("headers", headers);
        shown.field("auth", auth).field("reach", reach).finish()
    }
}
