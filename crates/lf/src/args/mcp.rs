//! What can be typed after `lf mcp`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use lf_core::Secret;
use lf_core::project::Protocol;

use super::duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// Every server with its state: connects to each, or tells the states in a running daemon
    List {
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: At,
    },
    /// The tools of a server, or of all
    Tools {
        server: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Run one tool
    Call {
        server: String,
        tool: String,
        /// A JSON object
        #[arg(default_value = "{}")]
        arguments: String,
        #[arg(long)]
        json: bool,
    },
    /// Write llamafarm.lock: what the servers and their tools are now. Tools that differ later are held back. Exits 1 where
    /// something differs from the lock that is there, which is shown and not accepted
    Lock {
        /// Only these (default: all)
        servers: Vec<String>,
        /// Accept what differs
        #[arg(long)]
        update: bool,
    },
    /// What differs from llamafarm.lock. Exits 1 where something does
    Diff {
        /// Only these (default: all)
        servers: Vec<String>,
        #[arg(long)]
        json: bool,
    },
    /// Serve the project's tools as one MCP server on stdin and stdout, named `server__tool`
    Serve {
        /// Only the tools that this model may use
        #[arg(long)]
        model: Option<String>,
    },
    /// Like `list`, and exits 1 when a server is down; of one server also what was counted and its last lines on stderr
    Health {
        server: Option<String>,
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: At,
    },
    /// Find out what is wrong with a server: connect, list, call, and tell what happened at each step
    Probe(Probe),
    /// Log in to a remote server that wants it: opens the browser, or prints the address to visit
    Login(Login),
    /// Forget the login to a server, and revoke its token
    Logout(Logout),
    /// Stop a server and start it anew; calls that are running fail. Exits 1 when it does not come up
    Restart {
        server: String,
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Probe {
    /// A URL, or the name of a server of the project
    #[arg(value_name = "URL|NAME")]
    pub target: String,
    /// Call this tool; may be repeated
    #[arg(long = "call", value_name = "TOOL")]
    pub calls: Vec<String>,
    /// The arguments of a call; the first are for the first `--call`, and so on (default: {})
    #[arg(long, value_name = "JSON")]
    pub arguments: Vec<String>,
    /// Call every tool, with the least arguments that its schema takes, get every prompt and read every resource: only
    /// where no tool does harm
    #[arg(long)]
    pub all: bool,
    /// auto, legacy, modern, or a revision such as 2025-11-25 (default: auto, or what the file says)
    #[arg(long, value_parser = protocol)]
    pub protocol: Option<Protocol>,
    /// Read this resource; may be repeated
    #[arg(long = "read", value_name = "URI")]
    pub resources: Vec<String>,
    /// How a URL is spoken to
    #[arg(long, value_enum, default_value_t = RemoteTransport::Http)]
    pub transport: RemoteTransport,
    /// Sent with every HTTP request; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<Secret>,
    /// For connecting, and for each call, such as 30s
    #[arg(long, value_parser = duration)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    pub access: ProbeAccess,
    /// One JSON document instead of text
    #[arg(long)]
    pub json: bool,
}

/// How a server is got into that is probed.
#[derive(Debug, Args)]
pub(crate) struct ProbeAccess {
    /// Log in where the server wants that: opens a browser
    #[arg(long)]
    pub login: bool,
    /// Log in by requesting the authorization page and taking its redirect: for servers where nobody has to look at it, as
    /// in tests
    #[arg(long, conflicts_with = "login")]
    pub follow_authorization: bool,
    /// Get a token for ourselves: needs --client-id, and --client-secret or --private-key
    #[arg(long, requires = "client_id", conflicts_with_all = ["login", "follow_authorization"])]
    pub client_credentials: bool,
    /// Who we are to the authorization server, from a registration made beforehand
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    #[arg(long, value_name = "SECRET")]
    pub client_secret: Option<Secret>,
    /// A file with the PEM of a PKCS #8 key, to sign who we are
    #[arg(long, value_name = "FILE")]
    pub private_key: Option<PathBuf>,
    /// Where a document describes us as a client
    #[arg(long, value_name = "URL")]
    pub client_metadata: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Login {
    /// A server of the project
    pub server: String,
    /// Open no browser: print the address to visit on stdout
    #[arg(long)]
    pub no_browser: bool,
    /// Ask for this besides what the server asks for; may be repeated
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// Request the authorization page and take its redirect: for servers where nobody has to look at it, as in tests
    #[arg(long, conflicts_with = "no_browser")]
    pub follow_authorization: bool,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Logout {
    /// A server of the project
    pub server: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RemoteTransport {
    /// Streamable HTTP
    Http,
    /// The older HTTP with server-sent events
    Sse,
}

fn protocol(text: &str) -> Result<Protocol, String> {
    let named = [Protocol::Auto, Protocol::Legacy, Protocol::Modern].into_iter();
    let mut known = named.chain(Protocol::REVISIONS.into_iter().map(Protocol::Revision));
    known.find(|protocol| protocol.name() == text).ok_or_else(|| {
        format!("`{text}` is none of auto, legacy, modern, {}", Protocol::REVISIONS.join(", "))
    })
}

/// Where servers run that a command is about.
#[derive(Debug, Args)]
pub(crate) struct At {
    /// In a running daemon instead of in this process (also LF_SERVER)
    #[arg(id = "url", long = "server", value_name = "URL", global = true)]
    pub server: Option<String>,
    /// Of this project of the daemon (default: the one it was started in)
    #[arg(long, value_name = "NS/PROJECT", global = true)]
    pub project: Option<String>,
}
