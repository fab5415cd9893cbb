//! What a turn may call as the configuration is now, whatever it was when the turn began: what was taken away since is
//! not called any more.

use std::sync::Arc;

use lf_core::project::ToolFilter;
use lf_core::tool::Approval;
use lf_core::{McpServer, Model, Project, ToolError, ToolRef, ToolSource as _};
use lf_mcp::{ProjectTools, SessionPool};

use super::reader::{Key, Reader};

/// Of a turn that no file decides about, such as one that is played from a recording: as the turn began.
#[derive(Clone, Default)]
pub(crate) struct Standing(Option<Arc<Began>>);

/// What a turn began with.
#[derive(Clone)]
struct Began {
    reader: Arc<Reader>,
    pool: SessionPool,
    /// Its project, whatever that is called by now.
    key: Option<Key>,
    project: Arc<Project>,
    /// The model that was asked, and the one that answers in its place: both must have the server.
    models: Vec<String>,
}

impl Standing {
    pub(super) fn new(reader: Arc<Reader>, pool: SessionPool, project: Arc<Project>, model: &Model) -> Self {
        let key = reader.key_of(&project.namespace, &project.name);
        let models = vec![model.name.clone()];
        Self(Some(Arc::new(Began { reader, pool, key, project, models })))
    }

    /// The same while this model answers.
    pub(crate) fn answered_by(&self, model: &str) -> Self {
        let Some(began) = self.0.as_ref().filter(|began| !began.models.iter().any(|name| name == model))
        else {
            return self.clone();
        };
        let mut began = Began::clone(began);
        began.models.push(model.to_owned());
        Self(Some(Arc::new(began)))
    }

    /// Where a call runs: with `None` where the turn would have it run, otherwise on the server as it is configured now.
    ///
    /// # Errors
    /// [`ToolError::Denied`] when it must not run any more.
    pub(crate) async fn source(&self, tool: &ToolRef) -> Result<Option<ProjectTools>, ToolError> {
        let Some(began) = &self.0 else { return Ok(None) };
        // what is no server of the file is not the file's to take away
        let Some(then) = began.project.servers.get(&*tool.server) else { return Ok(None) };
        let denied = |reason: String| ToolError::Denied {
            server: tool.server.to_string(),
            tool: tool.name.to_string(),
            reason,
        };
        let now = began.server(&tool.server).map_err(denied)?;
        let then = match then {
            Ok(then) if **then == *now => return Ok(None),
            Ok(then) => Some(then),
            Err(_) => None,
        };
        let tools = began.pool.tools([(tool.server.to_string(), Ok(now.clone()))]);
        if !then.is_some_and(|then| asks_alike(then, &now)) && asks(&tools, tool).await {
            let reason =
                "since the configuration changed, a person has to approve it, which a new turn asks for";
            return Err(denied(reason.to_owned()));
        }
        Ok(Some(tools))
    }
}

impl Began {
    /// The server of this name, if the models may still use it.
    fn server(&self, name: &str) -> Result<Arc<McpServer>, String> {
        let project = self.key.as_ref().and_then(|key| self.reader.current(key));
        let project = project.ok_or("its project is not there any more")?;
        for model in &self.models {
            match project.models.get(model) {
                Some(Ok(entry)) if entry.servers.iter().any(|server| server == name) => {}
                Some(Ok(_)) => return Err(format!("model `{model}` may not use `{name}` any more")),
                Some(Err(disabled)) => return Err(disabled.reason.clone()),
                None => return Err(format!("model `{model}` is not in the configuration any more")),
            }
        }
        match project.servers.get(name) {
            Some(Ok(server)) => Ok(server.clone()),
            Some(Err(disabled)) => Err(disabled.reason.clone()),
            None => Err(format!("`{name}` is not in `mcp.servers` any more")),
        }
    }
}

/// Whether both have the same rules for approvals, so that what was decided by the one holds for the other.
fn asks_alike(one: &McpServer, other: &McpServer) -> bool {
    let rules =
        |server: &McpServer| ToolFilter { approval: server.tools.approval.clone(), ..ToolFilter::default() };
    rules(one) == rules(other)
}

async fn asks(tools: &ProjectTools, tool: &ToolRef) -> bool {
    let listed = tools.list(&[tool.server.to_string()]).await.tools;
    listed.iter().any(|listed| listed.id == *tool && listed.approval == Approval::Ask)
}
