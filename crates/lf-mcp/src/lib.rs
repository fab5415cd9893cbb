//! MCP sessions: one pool of connections to tool servers, three transports, and the built-in file server.
//!
//! Only this crate speaks MCP. The rest of the program sees a [`SessionPool`], which is one for the whole process,
//! and the [`ProjectTools`] it gives out, which are a [`lf_core::ToolSource`].

mod failure;

mod secrets;

mod record;

mod spawn;

mod tap;

mod stdio;

mod http;

mod oauth;

mod sse;

mod private_file;

mod connection;

mod session;

mod open_session;

mod pool;

mod project_tools;

mod relay;

mod files;

pub mod endpoint;

pub use failure::{Cause, Failure};
pub use files::{FilesError, serve_files};
pub use oauth::{Consent, LoggedIn, LoggedOut, Person};
pub use open_session::OpenSession;
pub use pool::{PeerName, PoolOptions, ServerState, SessionPool};
pub use private_file::{replace, replace_private};
pub use project_tools::{ProjectTools, ServerReport};
pub use record::{Activity, Circuit, Counters};
pub use relay::{List, Prints};
pub use secrets::secrets_of;
pub use spawn::{DEPTH_VARIABLE, adopt_orphans, kill_all, open_in_browser};

#[cfg(test)]
mod tests;
