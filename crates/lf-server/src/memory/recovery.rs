//! Going on with what a daemon left unfinished.

use std::fmt::Display;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use lf_core::audit::{Event, Record, hash_of_json};
use lf_core::policy::Labels;
use lf_core::results::SOURCE;
use lf_core::tool::ToolError;
use lf_core::turn::{Course, Entry, Planned, Setup, Step, Taken};
use lf_core::{ChatEvent, Journal as _, Model, ModelError, Principal, Project, ToolCall, ToolRef, ToolSet};
use lf_models::Otherwise;
use lf_store::{Conversation, Kind, StoreError, TurnJournal, TurnRecord, TurnState};
use serde_json::Map;
use thiserror::Error;
use tokio::sync::OwnedMutexGuard;
use tracing::{info, warn};

use super::endings::Ending;
use super::{Memory, Running};
use crate::app::{App, Refusal};
use crate::approvals::{About, Attendance};
use crate::chat::{may_use, said_of};
use crate::driver::{Approving, Drive};
use crate::failover::{Upstream, Upstreams};
use crate::quotas::{Charge, payers};
use crate::results::Shelf;
use crate::rules::{Became, Check, Told};

/// A turn as its journal tells it.
pub(super) struct Read {
    course: Course,
    pub(super) events: Vec<ChatEvent>,
    pub(super) entries: usize,
    /// The model that answers now, as the file calls it.
    model: String,
    setup: Box<Setup>,
    /// Somebody has stopped it.
    stopped: bool,
}

/// Why a turn cannot go on.
#[derive(Debug, Error)]
enum Hindrance {
    /// It may go on later.
    #[error("{0}")]
    Passing(String),
    #[error("{0}")]
    Lasting(ModelError),
}

impl Hindrance {
    fn lasting(reason: impl Display) -> Self {
        let url = "going on after a restart".to_owned();
        Self::Lasting(ModelError::Failed { url, status: 503, message: reason.to_string(), retry_after: None })
    }
}

impl From<StoreError> for Hindrance {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unreadable { .. } => Self::lasting(error),
            error => Self::Passing(error.to_string()),
        }
    }
}

impl From<Refusal> for Hindrance {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            // a mistake in a file is mended, and the turn is not lost by it
            Refusal::BrokenProject { .. } | Refusal::NoMemory { .. } => Self::Passing(refusal.to_string()),
            Refusal::Model(error) => Self::Lasting(error),
            refusal => Self::lasting(refusal),
        }
    }
}

/// What a turn goes on with.
struct Again {
    running: Arc<Running>,
    course: Course,
    events: Vec<ChatEvent>,
    with: Drive,
}

impl App {
    /// Goes on with every turn that was running when the daemon died, and waits for none. Each that cannot be gone on with
    /// is ended as failed, and says why. While the store cannot be read, that is put off. Where daemons share the store, it
    /// is done again and again, with the turns of those that died.
    pub async fn recover(self: &Arc<Self>) {
        let Ok(memory) = self.memory() else { return };
        if memory.store.is_shared() {
            memory.sharing.spawn(self.clone().share(memory.clone()));
            return;
        }
        let Err(error) = self.take_up_all(memory).await else { return };
        warn!(%error, "cannot read which turns were running; they are gone on with when that is possible");
        let (app, later) = (self.clone(), memory.clone());
        memory
            .tasks
            .spawn(async move { while later.pause().await && app.take_up_all(&later).await.is_err() {} });
    }

    async fn take_up_all(self: &Arc<Self>, memory: &Arc<Memory>) -> Result<(), StoreError> {
        for turn in memory.store.running().await? {
            let mut line = Box::pin(memory.line(&turn.conversation).lock_owned());
            // before any client, and in the order in which they began
            let speaks = poll_fn(|context| Poll::Ready(line.as_mut().poll(context))).await;
            let (app, here) = (self.clone(), memory.clone());
            memory.tasks.spawn(async move {
                let guard = match speaks {
                    Poll::Ready(guard) => guard,
                    Poll::Pending => tokio::select! {
                        () = here.leave.cancelled() => return,
                        guard = line => guard,
                    },
                };
                app.go_on(&here, &turn, guard).await;
            });
        }
        Ok(())
    }

    /// Goes on with a turn that no daemon attends to, and waits for nothing.
    pub(super) fn take_up(
        self: &Arc<Self>,
        memory: &Arc<Memory>,
        turn: TurnRecord,
        guard: OwnedMutexGuard<()>,
    ) {
        let (app, here) = (self.clone(), memory.clone());
        memory.tasks.spawn(async move { app.go_on(&here, &turn, guard).await });
    }

    /// Goes on with a turn, or ends it. Nothing else is said in its conversation before.
    async fn go_on(self: &Arc<Self>, memory: &Arc<Memory>, turn: &TurnRecord, guard: OwnedMutexGuard<()>) {
        let mut told = false;
        let again = loop {
            let reason = match self.again(memory, turn).await {
                Ok(again) => break again,
                Err(Hindrance::Passing(reason)) => reason,
                Err(Hindrance::Lasting(error)) => {
                    warn!(turn = turn.id, %error, "a turn cannot go on after a restart");
                    match give_up(memory, turn, error).await {
                        Ok(lost) => return lost.into_iter().for_each(|record| self.audit.record(record)),
                        Err(reason) => reason.to_string(),
                    }
                }
            };
            if !std::mem::replace(&mut told, true) {
                warn!(turn = turn.id, reason, "a turn cannot go on yet; it is tried again");
            }
            if !memory.pause().await {
                return;
            }
        };
        let Some(Again { running, course, events, with }) = again else { return };
        memory.run(running, course, events, with, guard);
        info!(turn = turn.id, conversation = turn.conversation, "a turn goes on after a restart");
    }

    /// `None` for a turn that is over by now, or gone, or another daemon's.
    async fn again(&self, memory: &Arc<Memory>, turn: &TurnRecord) -> Result<Option<Again>, Hindrance> {
        // nothing of this daemon runs in the conversation: what is not over was left by another
        memory.settle(Some(&turn.conversation)).await?;
        if memory.store.turn(&turn.id).await?.is_none_or(|now| now.state != TurnState::Running) {
            return Ok(None);
        }
        if !memory.store.take_over(&turn.id).await? {
            return Ok(None);
        }
        let Some(conversation) = memory.store.conversation(&turn.conversation).await? else {
            return Ok(None);
        };
        let Read { mut course, mut events, entries, model, setup, stopped } = read(memory, turn).await?;
        let mut journal = memory.store.journal(turn, entries);
        let who = Arc::new(setup.principal.clone());
        if !self.access.is_current(&who) {
            return Err(Hindrance::lasting("the API key that it was asked with was revoked or has expired"));
        }
        let until = self.access.until_revoked(&who).child_token();
        let running = Arc::new(Running::new(turn.id.clone(), turn.conversation.clone(), until));
        if stopped {
            running.stop.cancel();
        }
        let project = self.project_of(&who, &conversation.scope).await?;
        let found = async |name: &str| {
            // a client of the whole daemon may have named it with its project
            let own = name.strip_prefix(&conversation.scope).and_then(|rest| rest.strip_prefix('/'));
            let name = own.filter(|_| !project.models.contains_key(name)).unwrap_or(name);
            self.find_model(&who, Some(&project), Some(name)).await
        };
        // what was asked when the program died was counted by nobody
        let counted = course.spent();
        let asked = found(&setup.model).await.map(|(_, asked)| asked);
        // one that is gone may use nothing, and neither may who answers in its place
        let asked_name = asked.as_ref().map_or(setup.model.clone(), |asked| asked.name.clone());
        let (project, model) = found(&model).await?;
        let upstreams = self.upstreams(&project, &model, (asked.ok(), &setup)).map_err(Hindrance::Lasting)?;
        let attendance = self.attendance_of(turn, &conversation).await?;
        // from here on nothing is in the way: what is put on record is so once
        let check = self.check_of(&who, &project, &model, (&asked_name, &turn.id));
        record_lost(&*check, &course, &model.name, &setup.tools);
        take_up(&mut course, &mut events, &mut journal, &setup.tools);
        let approving = Approving {
            approvals: self.approvals.clone(),
            about: About {
                owner: who.id.clone(),
                project: format!("{}/{}", project.namespace, project.name),
                model: Some(setup.model.clone()),
                turn: Some(turn.id.clone()),
                conversation: Some(turn.conversation.clone()),
            },
            attendance,
            wait: setup.limits.approval_timeout,
        };
        let mut charge = Charge::new(&self.quotas, payers(&project, &who), counted);
        charge.has_used(course.spent());
        let with = Drive {
            upstreams,
            approving,
            tools: self.tools_of(&project, &model),
            check,
            errand: self.errand_of(&who, &project, &model),
            shelf: Shelf::new(&self.results, &setup, Some((memory.store.clone(), turn.conversation.clone()))),
            charge,
            turn_timeout: setup.limits.turn_timeout,
            person: None,
            journal: Some(Box::new(journal)),
            stop: Some(running.stop.clone()),
            remember: Box::new(|_| {}),
        };
        Ok(Some(Again { running, course, events, with }))
    }

    /// Whoever asked may not be there any more, and comes back: to a response for its items, elsewhere with more words.
    async fn attendance_of(
        &self,
        turn: &TurnRecord,
        conversation: &Conversation,
    ) -> Result<Attendance, Hindrance> {
        let store = &self.memory()?.store;
        let id = format!("resp_{}", turn.id);
        let is_response = conversation.kind == Kind::Response
            || store.response("", &id).await?.is_some()
            || store.response(&conversation.scope, &id).await?.is_some();
        Ok(if is_response { Attendance::HandedOver } else { Attendance::Told })
    }

    /// The model that answers now, with the fallbacks that the turn has left: those behind it in the entry of the model
    /// that was asked for.
    fn upstreams(
        &self,
        project: &Project,
        now: &Arc<Model>,
        (asked, setup): (Option<Arc<Model>>, &Setup),
    ) -> Result<Upstreams, ModelError> {
        let others = asked.map_or_else(Vec::new, |asked| {
            let left = match asked.fallback.iter().position(|name| *name == now.name) {
                _ if asked.name == now.name => &asked.fallback[..],
                Some(at) => &asked.fallback[at + 1..],
                None => &[],
            };
            let tools_of = |other: &Model| setup.tools.clone().of_servers(|server| may_use(other, server));
            let said = said_of(&asked, &setup.request.parameters);
            self.stand_ins((&setup.principal, project, &asked), left, &tools_of, &said)
        });
        let otherwise = if others.is_empty() { Otherwise::Nobody } else { Otherwise::Another };
        let provider = lf_models::provider(now, &self.client, otherwise)?;
        let upstream = Upstream { model: now.clone(), provider, stand_in: None };
        Ok(Upstreams::new(upstream, others, self.circuits.clone()))
    }

    /// The project of a conversation.
    pub(crate) async fn project_of(&self, who: &Principal, scope: &str) -> Result<Arc<Project>, Refusal> {
        let (namespace, name) = scope.split_once('/').unwrap_or((scope, ""));
        self.find_project(who, namespace, name).await
    }
}

/// Ends a turn with what it did so far. Gives back what is to be put on record of it.
async fn give_up(memory: &Memory, turn: &TurnRecord, error: ModelError) -> Result<Vec<Record>, Hindrance> {
    let read = match read(memory, turn).await {
        Ok(read) => Some(read),
        Err(Hindrance::Passing(reason)) => return Err(Hindrance::Passing(reason)),
        // what cannot be read is not added to
        Err(Hindrance::Lasting(_)) => None,
    };
    let (mut state, mut done, mut on_record) = (TurnState::Failed, None, Vec::new());
    if let Some(Read { mut course, mut events, entries, stopped, model, setup }) = read {
        let lost = lost(&course, &setup.tools).into_iter();
        on_record = lost.map(|(_, call, tool)| given_up(turn, (&setup, &model), call, tool)).collect();
        if !matches!(course.step(), Step::Done(_)) {
            let mut journal = memory.store.journal(turn, entries);
            note(Entry::Failed(error), &mut course, &mut events, &mut journal);
            journal.flush().await.map_err(|error| Hindrance::Passing(error.to_string()))?;
        }
        if matches!(events.last(), Some(ChatEvent::Finished { .. })) {
            state = if stopped { TurnState::Cancelled } else { TurnState::Finished };
        }
        done = course.into_done().ok();
    }
    let (turn, conversation) = (turn.id.clone(), turn.conversation.clone());
    memory.keep(&Ending::new(turn, conversation, state, done)).await?;
    Ok(on_record)
}

/// A call that had begun in a turn that cannot go on: its project may not be there any more, nor its key.
fn given_up(turn: &TurnRecord, (setup, model): (&Setup, &str), call: &ToolCall, tool: &ToolRef) -> Record {
    Record {
        model: Some(model.to_owned()),
        turn: Some(turn.id.clone()),
        server: Some(tool.server.to_string()),
        tool: Some(tool.name.to_string()),
        arguments: call.arguments.value().ok().map(hash_of_json),
        outcome: Some("lost"),
        ..Record::new(Event::Call).of(&setup.principal)
    }
}

fn note(entry: Entry, course: &mut Course, events: &mut Vec<ChatEvent>, journal: &mut TurnJournal) {
    journal.append(&entry);
    if let Err(error) = course.take(entry, events) {
        tracing::error!(%error, "a turn could not be taken up");
    }
}

async fn read(memory: &Memory, turn: &TurnRecord) -> Result<Read, Hindrance> {
    let mut entries = memory.store.entries(turn, 0).await?.into_iter();
    let first = entries.next().ok_or_else(|| Hindrance::lasting("its journal is empty"))?;
    let mut read = Read::begin(first).map_err(Hindrance::lasting)?;
    for entry in entries {
        read.take(entry).map_err(Hindrance::lasting)?;
    }
    Ok(read)
}

impl Read {
    pub(super) fn begin(first: Entry) -> Result<Self, String> {
        let Entry::Begun(setup) = first else { return Err("its journal has no beginning".to_owned()) };
        let mut events = Vec::new();
        let course = Course::new((*setup).clone(), &mut events);
        let model = setup.model.clone();
        Ok(Self { course, events, entries: 1, model, setup, stopped: false })
    }

    pub(super) fn take(&mut self, entry: Entry) -> Result<(), String> {
        let stands_in = match &entry {
            Entry::StoodIn(stand_in) => Some(stand_in.model.clone()),
            _ => None,
        };
        self.stopped |= matches!(entry, Entry::Stopped);
        let taken = self.course.take(entry, &mut self.events).map_err(|error| error.to_string())?;
        if let Some(stands_in) = stands_in.filter(|_| taken == Taken::AsksAgain) {
            self.model = stands_in;
        }
        self.entries += 1;
        Ok(())
    }
}

/// Calls that had begun when the program died, and may have had their effect: those of repeatable tools are not among them.
fn lost<'a>(course: &'a Course, tools: &'a ToolSet) -> Vec<(usize, &'a ToolCall, &'a ToolRef)> {
    // a look into a result changes nothing; its tools came to the turn later
    let repeatable =
        |id: &ToolRef| &*id.server == SOURCE || tools.tool(id).is_some_and(|tool| tool.repeatable);
    let Step::RunTools(run) = course.step() else { return Vec::new() };
    let begun = run.open().filter(|(_, _, begun)| *begun);
    let lost = begun.filter_map(|(at, planned, _)| match &planned.plan {
        Planned::Run(tool) if !repeatable(tool) => Some((at, &planned.call, tool)),
        _ => None,
    });
    lost.collect()
}

/// The process that ran them could put nothing of them on record.
fn record_lost(check: &dyn Check, course: &Course, model: &str, tools: &ToolSet) {
    let empty = Map::new();
    for (_, call, tool) in lost(course, tools) {
        let arguments = call.arguments.value().unwrap_or(&empty);
        check.record(&Told::new(Some(model), tool, arguments), &Became::lost());
    }
}

/// Brings a turn to where it can go on. A call that had begun may have had its effect: unless its tool is repeatable, it
/// is not run a second time, and the model is told that its outcome is unknown.
fn take_up(course: &mut Course, events: &mut Vec<ChatEvent>, journal: &mut TurnJournal, tools: &ToolSet) {
    let entries: Vec<Entry> = match course.step() {
        Step::AskModel(_) => vec![Entry::Interrupted],
        _ => lost(course, tools)
            .into_iter()
            .map(|(call, _, tool)| Entry::Settled {
                call,
                outcome: Err(ToolError::Lost {
                    server: tool.server.to_string(),
                    tool: tool.name.to_string(),
                    reason: "this daemon was restarted".to_owned(),
                }),
                labels: Labels::default(),
                elapsed: std::time::Duration::ZERO,
            })
            .collect(),
    };
    for entry in entries {
        note(entry, course, events, journal);
    }
}

/// The events of a turn that does not run, from its journal. `None` where they were deleted with a message.
pub(crate) async fn events(memory: &Memory, turn: &TurnRecord) -> Result<Option<Vec<ChatEvent>>, String> {
    if !memory.store.has_entries(&turn.id).await.map_err(|error| error.to_string())? {
        return Ok(None);
    }
    let Read { mut events, .. } = read(memory, turn).await.map_err(|hindrance| hindrance.to_string())?;
    if turn.state != TurnState::Running {
        events.extend(cut_off(&events));
    }
    Ok(Some(events))
}

/// What is told at last of a turn that is over, where its journal could not be written any more and its end could.
pub(super) fn cut_off(events: &[ChatEvent]) -> Option<ChatEvent> {
    if events.last().is_some_and(ChatEvent::is_last) {
        return None;
    }
    let (url, message) = ("the turn".to_owned(), "what else happened in it was not kept".to_owned());
    Some(ChatEvent::Failed(ModelError::Failed { url, status: 503, message, retry_after: None }))
}

#[cfg(test)]
mod tests;
