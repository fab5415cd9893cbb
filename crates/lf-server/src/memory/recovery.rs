//! Going on with what a daemon left unfinished.

use std::sync::Arc;

use lf_core::tool::ToolError;
use lf_core::tool_set::Target;
use lf_core::turn::{Course, Entry, Planned, Setup, Step, Taken};
use lf_core::{ChatEvent, Journal as _, Model, ModelError, Project, ToolRef, ToolSet};
use lf_models::Otherwise;
use lf_store::{TurnJournal, TurnRecord, TurnState};
use tracing::{info, warn};

use super::{Memory, Running};
use crate::app::App;
use crate::approvals::{About, Attendance};
use crate::driver::{Approving, Drive};
use crate::failover::{Upstream, Upstreams};

/// A turn as its journal tells it.
struct Read {
    course: Course,
    events: Vec<ChatEvent>,
    entries: usize,
    /// The model that answers now, as the file calls it.
    model: String,
    setup: Box<Setup>,
    /// Something of the present answer has been read.
    answering: bool,
}

impl App {
    /// Goes on with every turn that was running when the daemon died. Each that cannot be gone on with is ended as
    /// failed, and says why.
    pub async fn recover(self: &Arc<Self>) {
        let Ok(memory) = self.memory() else { return };
        let running = match memory.store.running().await {
            Ok(running) => running,
            Err(error) => {
                warn!(%error, "cannot read which turns were running");
                return;
            }
        };
        for turn in running {
            match self.go_on(memory, &turn).await {
                Ok(()) => {
                    info!(turn = turn.id, conversation = turn.conversation, "a turn goes on after a restart");
                }
                Err(reason) => {
                    warn!(turn = turn.id, reason, "a turn cannot go on after a restart");
                    let ended = memory.store.end(&turn.id, &turn.conversation, TurnState::Failed, &[]).await;
                    if let Err(error) = ended {
                        warn!(turn = turn.id, %error, "its end could not be kept");
                    }
                }
            }
        }
    }

    async fn go_on(self: &Arc<Self>, memory: &Arc<Memory>, turn: &TurnRecord) -> Result<(), String> {
        let conversation = memory.store.conversation(&turn.conversation).await;
        let conversation = conversation.map_err(|error| error.to_string())?;
        let conversation = conversation.ok_or("its conversation is gone")?;
        let Read { mut course, mut events, entries, model, setup, answering } = read(memory, turn).await?;
        let mut journal = memory.store.journal(turn, entries);
        let guard = memory.turn_to_speak(&turn.conversation).await;
        let running = Arc::new(Running::new(turn.id.clone(), turn.conversation.clone()));
        let project = self.project_of(&conversation.scope).await.map_err(|refusal| refusal.to_string())?;
        // a client may have named the project with the model
        let own = model.strip_prefix(&format!("{}/", conversation.scope)).unwrap_or(&model);
        let found = self.find_model(Some(&project), Some(own)).await;
        let (project, model) = found.map_err(|refusal| refusal.to_string())?;
        let upstreams = self.upstream(&model).map_err(|error| error.to_string())?;
        take_up(&mut course, &mut events, &mut journal, (&setup.tools, answering));
        let approving = Approving {
            approvals: self.approvals.clone(),
            about: About {
                project: format!("{}/{}", project.namespace, project.name),
                model: Some(setup.model.clone()),
                turn: Some(turn.id.clone()),
                conversation: Some(turn.conversation.clone()),
            },
            // whoever asked may not be there any more, and comes back
            attendance: Attendance::Told,
            wait: setup.limits.approval_timeout,
        };
        let with = Drive {
            upstreams,
            approving,
            tools: self.tools_of(&project, &model),
            turn_timeout: setup.limits.turn_timeout,
            person: None,
            journal: Some(Box::new(journal)),
            stop: Some(running.stop.clone()),
            remember: Box::new(|_| {}),
        };
        memory.run(running, course, events, with, guard);
        Ok(())
    }

    fn upstream(&self, model: &Arc<Model>) -> Result<Upstreams, ModelError> {
        let provider = lf_models::provider(model, &self.client, Otherwise::Nobody)?;
        let upstream = Upstream { model: model.clone(), provider, stand_in: None };
        Ok(Upstreams::new(upstream, Vec::new(), self.circuits.clone()))
    }

    /// The project of a conversation.
    pub(crate) async fn project_of(&self, scope: &str) -> Result<Arc<Project>, crate::app::Refusal> {
        let (namespace, name) = scope.split_once('/').unwrap_or((scope, ""));
        self.find_project(namespace, name).await
    }
}

async fn read(memory: &Memory, turn: &TurnRecord) -> Result<Read, String> {
    let entries = memory.store.entries(turn).await.map_err(|error| error.to_string())?;
    let count = entries.len();
    let mut entries = entries.into_iter();
    let Some(Entry::Begun(setup)) = entries.next() else {
        return Err("its journal has no beginning".to_owned());
    };
    let mut events = Vec::new();
    let mut model = setup.model.clone();
    let mut answering = false;
    let mut course = Course::new((*setup).clone(), &mut events);
    for entry in entries {
        let stands_in = match &entry {
            Entry::StoodIn(stand_in) => Some(stand_in.model.clone()),
            _ => None,
        };
        answering = matches!(entry, Entry::Delta(_)) || (answering && matches!(entry, Entry::Notice(_)));
        let taken = course.take(entry, &mut events).map_err(|error| error.to_string())?;
        if let Some(stands_in) = stands_in.filter(|_| taken == Taken::AsksAgain) {
            model = stands_in;
        }
    }
    Ok(Read { course, events, entries: count, model, setup, answering })
}

/// Brings a turn to where it can go on. A call that had begun may have had its effect: unless its tool is repeatable, it
/// is not run a second time, and the model is told that its outcome is unknown.
fn take_up(
    course: &mut Course,
    events: &mut Vec<ChatEvent>,
    journal: &mut TurnJournal,
    (tools, answering): (&ToolSet, bool),
) {
    let repeatable = |id: &ToolRef| {
        tools.iter().any(|(_, target)| match target {
            Target::Source(tool) => tool.repeatable && tool.id == *id,
            Target::Client(_) => false,
        })
    };
    let entries: Vec<Entry> = match course.step() {
        Step::AskModel(_) if answering => vec![Entry::Interrupted],
        Step::RunTools(run) => run
            .open()
            .filter(|(_, _, begun)| *begun)
            .filter_map(|(call, planned, _)| match &planned.plan {
                Planned::Run(tool) if !repeatable(tool) => Some(Entry::Settled {
                    call,
                    outcome: Err(ToolError::Lost {
                        server: tool.server.to_string(),
                        tool: tool.name.to_string(),
                        reason: "this daemon was restarted".to_owned(),
                    }),
                    elapsed: std::time::Duration::ZERO,
                }),
                _ => None,
            })
            .collect(),
        Step::AskModel(_) | Step::AskPerson(_) | Step::Done(_) => Vec::new(),
    };
    for entry in entries {
        journal.append(&entry);
        if let Err(error) = course.take(entry, events) {
            tracing::error!(%error, "a turn could not be taken up");
        }
    }
}

/// The events of a turn that is over, from its journal. `None` where they were deleted with a message.
pub(crate) async fn events(memory: &Memory, turn: &TurnRecord) -> Result<Option<Vec<ChatEvent>>, String> {
    let is_kept = memory.store.has_entries(&turn.id).await.map_err(|error| error.to_string())?;
    if is_kept { read(memory, turn).await.map(|read| Some(read.events)) } else { Ok(None) }
}

#[cfg(test)]
mod tests;
