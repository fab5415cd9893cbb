//! A recorded request, put to another model.

use std::sync::Arc;

use futures_core::Stream;
use lf_core::tool::Hints;
use lf_core::turn::cassette::Cassette;
use lf_core::turn::{Course, Setup};
use lf_core::{Catalogue, ChatEvent, Model, ModelRequest, Principal, Project, Tool, ToolSet, ToolSource};
use lf_models::Otherwise;
use lf_models::replay::RecordedTools;
use serde_json::Value;

use super::{With, parameters, text_formats};
use crate::app::{App, Refusal};
use crate::approvals::{About, Attendance};
use crate::authority::Errand;
use crate::driver::{Approving, Drive, drive};
use crate::failover::{Upstream, Upstreams};
use crate::quotas::payers;
use crate::results::Shelf;
use crate::rules::{Check, Recorded};

/// Who runs the calls of a turn that is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Nobody: they have the recorded results.
    Recorded,
    /// The project's servers.
    Run,
}

impl App {
    /// Asks a model of this project what was asked in a recorded turn, with the tools of that turn. The model brings its own
    /// limits and ways; no fallback takes its place. Dropping the stream cancels the turn.
    ///
    /// # Errors
    /// [`Refusal`] when there is no such model, or it cannot be used.
    pub async fn chat_again(
        &self,
        scope: Option<&Arc<Project>>,
        model: &str,
        cassette: &Arc<Cassette>,
        calls: Calls,
        with: With,
    ) -> Result<impl Stream<Item = ChatEvent> + Send + 'static + use<>, Refusal> {
        let owner = Arc::new(Principal::owner());
        let (project, model) = self.find_model(&owner, scope, Some(model)).await?;
        let provider = lf_models::provider(&model, &self.client, Otherwise::Nobody)?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let (check, errand): (Arc<dyn Check>, Errand) = match calls {
            Calls::Recorded => (Arc::new(Recorded), Errand::default()),
            Calls::Run => (
                self.check_of(&owner, &project, &model, (&model.name, &id)),
                self.errand_of(&owner, &project, &model),
            ),
        };
        let recorded = &cassette.setup;
        let (tools, set) = self.tools_again(&project, &model, cassette, calls).await;
        let setup = Setup {
            id,
            model: model.name.clone(),
            request: ModelRequest {
                parameters: parameters(&model, recorded.request.parameters.clone()),
                ..recorded.request.clone()
            },
            tools: set,
            strategy: model.strategy,
            text_formats: text_formats(&model),
            limits: model.limits.clone(),
            price: model.price,
            images: model.images,
            calls_left: recorded.calls_left,
            always: Vec::new(),
            judged: calls == Calls::Run,
            seen: recorded.seen,
            principal: Principal::owner(),
            waiting: None,
        };
        let journal = self.recording(&project, &setup, with.recording);
        let approving = Approving {
            approvals: self.approvals.clone(),
            about: About::turn(&project, &setup, None),
            attendance: Attendance::Nobody,
            wait: setup.limits.approval_timeout,
        };
        let turn_timeout = setup.limits.turn_timeout;
        let shelf = Shelf::new(&self.results, &setup, None);
        let charge = self.quotas.admit(payers(&project, &Principal::owner())).await?;
        let mut events = Vec::new();
        let course = Course::new(setup, &mut events);
        let upstream = Upstream { model, provider, stand_in: None };
        let drive_with = Drive {
            upstreams: Upstreams::new(upstream, Vec::new(), self.circuits.clone()),
            tools,
            check,
            errand,
            shelf,
            charge,
            turn_timeout,
            person: with.person,
            approving,
            journal: journal.map(|journal| Box::new(journal) as _),
            stop: None,
            remember: Box::new(drop),
        };
        Ok(drive(course, events, drive_with))
    }

    /// Who runs the calls, and the tools as the model is shown them.
    async fn tools_again(
        &self,
        project: &Project,
        model: &Model,
        cassette: &Arc<Cassette>,
        calls: Calls,
    ) -> (Arc<dyn ToolSource>, ToolSet) {
        let recorded = cassette.setup.tools.clone();
        match calls {
            Calls::Recorded => {
                (Arc::new(RecordedTools::of(cassette.clone())), recorded.with_tools(Tool::as_recorded))
            }
            Calls::Run => {
                let tools = self.tools_of(project, model);
                let listed = tools.list(&model.servers).await;
                (tools, recorded.with_tools(|tool| as_the_file_says(tool, project, &listed)))
            }
        }
    }
}

/// A recorded tool that is to be run: whether it asks before, and may run twice, is for the project to say and not for the
/// cassette.
fn as_the_file_says(mut tool: Tool, project: &Project, listed: &Catalogue) -> Tool {
    if let Some(now) = listed.tools.iter().find(|now| now.id == tool.id) {
        (tool.approval, tool.repeatable, tool.retries) = (now.approval, now.repeatable, now.retries.clone());
        (tool.hints, tool.labels) = (now.hints, now.labels.and(project.policy.labels_of(&tool.id)));
        return tool;
    }
    // one that is not listed is as dangerous as one that says nothing of itself
    let server = project.servers.get(&*tool.id.server).and_then(|server| server.as_ref().ok());
    tool.approval = server
        .map(|server| server.tools.approval(&tool.id.name, Hints::of(&Value::Null)))
        .unwrap_or_default();
    (tool.repeatable, tool.retries) = (false, None);
    (tool.hints, tool.labels) = (Hints::of(&Value::Null), project.policy.labels_of(&tool.id));
    tool
}

#[cfg(test)]
mod tests;
