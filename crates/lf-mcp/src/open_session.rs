//! A session of the pool in the hands of one who knows what generation of the protocol it needs.

use std::sync::Arc;
use std::time::Duration;

use lf_core::McpServer;
use lf_core::project::Generation;
use lf_core::tool::Tool;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::session::Live;

/// A connection that was ready when it was given out. Cheap to clone; it may end at any time, so it is asked for anew
/// for each use.
#[derive(Clone)]
pub struct OpenSession(pub(crate) Arc<Live>);

impl OpenSession {
    pub fn generation(&self) -> Generation {
        self.0.link.about.generation
    }

    /// The revision that is spoken, such as `2025-11-25`.
    pub fn protocol(&self) -> &str {
        &self.0.link.about.protocol
    }

    /// The tools that the file lets through, listed anew when they are older than `oldest`, than the server wants them
    /// to be, or known to have changed.
    ///
    /// # Errors
    /// When the server does not list them.
    pub async fn tools(&self, server: &McpServer, oldest: Duration) -> Result<Arc<Vec<Tool>>, Failure> {
        let _in_use = self.0.use_it();
        let tools = self.0.tools(server, oldest).await;
        tools.map_err(|error| self.0.link.failure_of(error, "`tools/list`"))
    }

    /// A number that grows whenever the list of tools turns out to be another. Its sender is gone once the session is.
    pub fn tool_changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }
}
