//! What can be typed to reach a server of one's own choosing.

use std::path::PathBuf;

use clap::Args;
use lf_core::project::Protocol;

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
    pub client_secret: Option<String>,
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

pub(super) fn protocol(text: &str) -> Result<Protocol, String> {
    let named = [Protocol::Auto, Protocol::Legacy, Protocol::Modern].into_iter();
    let mut known = named.chain(Protocol::REVISIONS.into_iter().map(Protocol::Revision));
    known.find(|protocol| protocol.name() == text).ok_or_else(|| {
        format!("`{text}` is none of auto, legacy, modern, {}", Protocol::REVISIONS.join(", "))
    })
}
