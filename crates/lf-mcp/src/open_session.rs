//! A session of the pool in the hands of one who knows what generation of the protocol it needs.

use std::sync::Arc;
use std::time::Duration;

use lf_core::McpServer;
use lf_core::project::Generation;
use lf_core::tool::{Tool, ToolProgress};
use rmcp::model::{ClientRequest, CustomRequest};
use serde_json::Value;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::relay::{Age, List};
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
    pub async fn tools(&self, oldest: Duration) -> Result<Arc<Vec<Tool>>, Failure> {
        let _in_use = self.0.use_it();
        let tools = self.0.tools(oldest).await;
        tools.map_err(|error| self.0.link.failure_of(error, "`tools/list`"))
    }

    /// What the server said of itself when it was greeted: `capabilities`, `serverInfo`, `instructions`.
    pub fn about(&self) -> &Value {
        &self.0.link.about.said
    }

    /// Everything in one of the server's lists, asked for anew, as it was sent; nothing where it has no such list.
    ///
    /// # Errors
    /// When the server does not list it.
    pub async fn items(&self, server: &McpServer, list: List) -> Result<Arc<Vec<Value>>, Failure> {
        let _in_use = self.0.use_it();
        let age = Age { oldest: Duration::ZERO, hinted: false };
        let items = self.0.link.catalogue(server, list, age).await;
        let items = items.map(|(items, _)| items);
        items.map_err(|error| self.0.link.failure_of(error, &format!("`{}`", list.method())))
    }

    /// Asks the server for anything but a tool, and gives its result as it came but for secrets. Dropping the future tells
    /// the server that nobody waits any more.
    ///
    /// # Errors
    /// The server's own, or why there is no answer.
    pub async fn ask(&self, server: &McpServer, method: &str, params: Value) -> Result<Value, Failure> {
        let link = &self.0.link;
        let _in_use = self.0.use_it();
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, Some(params)));
        let limits = (server.timeout, server.max_timeout);
        let answer = link.ask_with(request, limits, &|_: ToolProgress| {}, None).await;
        let answer = answer.map_err(|error| link.failure_of(error, &format!("`{method}`")))?;
        Ok(link.signals.secrets.value(serde_json::to_value(&answer).unwrap_or_default()))
    }

    /// A number that grows whenever the list of tools turns out to be another. Its sender is gone once the session is.
    pub fn tool_changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }
}
