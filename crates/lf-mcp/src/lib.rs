//! MCP sessions: one pool of connections to tool servers, three transports, and the built-in file server.
//!
//! Only this crate speaks MCP. The rest of the program sees a [`SessionPool`], which is one for the whole process,
//! and the [`ProjectTools`] it gives out, which are a [`lf_core::ToolSource`].

mod failure;

mod secrets;

mod spawn;

mod tap;

mod stdio;

mod http;

mod sse;

mod connection;

mod session;

mod open_session;

mod pool;

mod project_tools;

mod files;

pub mod endpoint;

pub use failure::Failure;
pub use files::{FilesError, serve_files};
pub use open_session::OpenSession;
pub use pool::{PeerName, PoolOptions, ServerState, SessionPool};
pub use project_tools::{ProjectTools, ServerReport};
pub use spawn::{DEPTH_VARIABLE, adopt_orphans, kill_all};

#[cfg(test)]
mod tests;
