//! A recorded request, put to another model.

use std::sync::Arc;

use futures_core::Stream;
use lf_core::turn::cassette::Cassette;
use lf_core::turn::{Course, Setup};
use lf_core::{ChatEvent, ModelRequest, Principal, Project, ToolSource};
use lf_models::Otherwise;
use lf_models::replay::RecordedTools;

use super::{With, parameters, text_formats};
use crate::app::{App, Refusal};
use crate::approvals::{About, Attendance};
use crate::authority::Authority;
use crate::driver::{Approving, Drive, drive};
use crate::failover::{Upstream, Upstreams};

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
        let tools: Arc<dyn ToolSource> = match calls {
            Calls::Recorded => Arc::new(RecordedTools::of(cassette.clone())),
            Calls::Run => self.tools_of(&project, &model),
        };
        let recorded = &cassette.setup;
        let setup = Setup {
            id: uuid::Uuid::new_v4().simple().to_string(),
            model: model.name.clone(),
            request: ModelRequest {
                parameters: parameters(&model, recorded.request.parameters.clone()),
                ..recorded.request.clone()
            },
            tools: match calls {
                Calls::Recorded => recorded.tools.clone().as_recorded(),
                Calls::Run => recorded.tools.clone(),
            },
            strategy: model.strategy,
            text_formats: text_formats(&model),
            limits: model.limits.clone(),
            calls_left: recorded.calls_left,
            always: Vec::new(),
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
        let mut events = Vec::new();
        let course = Course::new(setup, &mut events);
        let authority = match calls {
            Calls::Recorded => Authority::of(self.access.clone(), owner),
            Calls::Run => self.authority(&owner, &project, &model),
        };
        let upstream = Upstream { model, provider, stand_in: None };
        let drive_with = Drive {
            upstreams: Upstreams::new(upstream, Vec::new(), self.circuits.clone()),
            tools,
            authority,
            turn_timeout,
            person: with.person,
            approving,
            journal: journal.map(|journal| Box::new(journal) as _),
            stop: None,
            remember: Box::new(drop),
        };
        Ok(drive(course, events, drive_with))
    }
}
