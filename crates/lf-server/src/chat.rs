//! From a decoded request to a running turn.

mod asked;
mod left;
mod rerun;
mod stand_ins;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_stream::stream;
use futures_core::Stream;
use futures_util::StreamExt as _;
use indexmap::IndexMap;
use lf_core::model::ChatRequest;
use lf_core::policy::Labels;
use lf_core::project::Provider;
use lf_core::tool::{Held, Person};
use lf_core::turn::{Course, Done, Entry, Resume, Setup, Waiting, answer_in_order, check_answers, put_back};
use lf_core::{
    Catalogue, ChatEvent, Journal, Message, Model, ModelRequest, Principal, Project, Scope, ToolRef, ToolSet,
    ToolSource, visible,
};
use lf_models::Otherwise;
use lf_models::replay::RecordedTools;

use crate::admission::needs_scope;
use crate::app::{App, Refusal};
use crate::approvals::{About, Attendance};
use crate::authority::{Authority, Errand, Granted, itself};
use crate::driver::{Approving, Drive, drive};
use crate::failover::{Upstream, Upstreams};
use crate::quotas::{Charge, can_pay, payers};
use crate::recording::Recording;
use crate::results::Shelf;
use crate::rules::{Began, Check, Recorded, Rules, record_told};

use asked::{inline_tools, parameters, prompted, text_formats, tool_choice};
pub(crate) use left::take_decisions;
pub use rerun::Calls;
use stand_ins::permitted;
pub(crate) use stand_ins::{may_use, said_of};

/// What goes with a turn besides its request.
#[derive(Default)]
pub struct With {
    /// Who is asked what servers ask in the middle of calls. The turn's time stands still meanwhile.
    pub person: Option<Arc<dyn Person>>,
    /// Where the turn is recorded.
    pub recording: Option<Recording>,
}

/// A conversation that this program keeps for its client.
#[derive(Default)]
pub(crate) struct Conversation {
    /// What was said before the request's own messages.
    pub before: Arc<[Message]>,
    /// So many of the request's first messages are its own and no part of the conversation.
    pub unkept: usize,
    /// The most calls that are run for this request.
    pub calls_left: Option<u64>,
    pub with: With,
    /// The tools that were chosen for it, of those that the model may use.
    pub tools: Option<Vec<ToolRef>>,
    /// Who may approve calls, and what becomes of the turn when nobody does.
    pub attendance: Attendance,
    /// Tools that were approved for all of the conversation.
    pub always: Vec<ToolRef>,
    /// What all that was said in it has brought in, of which the model may be shown a part.
    pub seen: Labels,
    /// Calls of an earlier turn that begin this one.
    pub waiting: Option<Waiting>,
    /// Where what was said is left for whoever keeps it.
    pub leave: Option<Arc<Said>>,
}

/// What one turn adds to a conversation.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The request's own messages; there when the turn begins.
    pub asked: OnceLock<Vec<Message>>,
    /// There at the end of a turn that did not fail.
    pub answered: OnceLock<Vec<Message>>,
}

/// A turn that can begin.
pub(crate) struct Prepared {
    pub project: Arc<Project>,
    pub setup: Setup,
    /// What the request adds to the conversation.
    pub asked: Vec<Message>,
    pub notices: Vec<String>,
    pub upstreams: Upstreams,
    pub tools: Arc<dyn ToolSource>,
    pub check: Arc<dyn Check>,
    pub errand: Errand,
    /// What it is let begin with; dropped before it begins, that is given back.
    pub charge: Charge,
}

impl App {
    /// Starts a turn for whoever runs this program. What can be said to be wrong before the model is asked is a [`Refusal`];
    /// all else is an event. Dropping the stream cancels the turn.
    ///
    /// # Errors
    /// [`Refusal`], one variant per status.
    pub async fn chat_with(
        &self,
        scope: Option<&Arc<Project>>,
        request: ChatRequest,
        with: With,
    ) -> Result<impl Stream<Item = ChatEvent> + Send + 'static + use<>, Refusal> {
        let owner = Arc::new(Principal::owner());
        self.chat_on(&owner, scope, request, Conversation { with, ..Conversation::default() }).await
    }

    /// The same for anybody, in a conversation that this program keeps.
    pub(crate) async fn chat_on(
        &self,
        who: &Arc<Principal>,
        scope: Option<&Arc<Project>>,
        request: ChatRequest,
        mut conversation: Conversation,
    ) -> Result<impl Stream<Item = ChatEvent> + Send + 'static + use<>, Refusal> {
        let leave = conversation.leave.take();
        let With { person, recording } = std::mem::take(&mut conversation.with);
        let attendance = conversation.attendance;
        let left = self.left_for(who, scope, &request).await?;
        let Prepared { project, mut setup, asked, notices, upstreams, tools, check, errand, charge } =
            self.prepare(who, scope, request, conversation).await?;
        if let Some(left) = left {
            // only now: what others decided meanwhile counts
            setup.waiting = Some(self.take_left(left).await?);
        }
        if let Some(leave) = &leave {
            let _ = leave.asked.set(asked);
        }
        let recording = self.recording(&project, &setup, recording);
        let mut journal = recording.map(|recording| Box::new(recording) as Box<dyn Journal>);
        let turn_timeout = setup.limits.turn_timeout;
        let shelf = Shelf::new(&self.results, &setup, None);
        let about = About::turn(&project, &setup, None);
        let approving = Approving {
            approvals: self.approvals.clone(),
            about: about.clone(),
            attendance,
            wait: setup.limits.approval_timeout,
        };
        let approvals = self.approvals.clone();
        let (course, events) = begin(setup, notices, journal.as_mut());
        record_told(&*check, &course, &events, upstreams.name());
        let left: Arc<Mutex<Option<Resume>>> = Arc::default();
        let resume = left.clone();
        let remember = Box::new(move |done: Done| {
            if let Some(leave) = leave.filter(|_| !done.failed) {
                let _ = leave.answered.set(done.said.to_vec());
            }
            *left.lock().unwrap_or_else(PoisonError::into_inner) = done.resume;
            if let Some(waiting) = done.waiting {
                approvals.leave(waiting, about);
            }
        });
        let stop = Some(self.access.until_revoked(who));
        let with = Drive {
            upstreams,
            tools,
            check,
            errand,
            shelf,
            charge,
            turn_timeout,
            person,
            approving,
            journal,
            stop,
            remember,
        };
        let mut events = Box::pin(drive(course, events, with));
        let (resumes, owner) = (self.resumes.clone(), who.id.clone());
        Ok(stream! {
            while let Some(event) = events.next().await {
                // a client that has seen the end may come back at once
                let resume = resume.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(resume) = resume {
                    resumes.remember(Resume { owner: owner.clone(), ..resume }).await;
                }
                yield event;
            }
        })
    }

    /// All that a turn needs, before anything of it happens.
    pub(crate) async fn prepare(
        &self,
        who: &Arc<Principal>,
        scope: Option<&Arc<Project>>,
        request: ChatRequest,
        conversation: Conversation,
    ) -> Result<Prepared, Refusal> {
        self.may_decide(who, &request)?;
        let (project, model) = self.find_model(who, scope, request.model.as_deref()).await?;
        if !can_pay(who, &model) {
            return Err(Refusal::Lacking(unpriced(&model)));
        }
        // clients look for the very name that they sent
        let called = request.model.clone().filter(|name| !name.is_empty());
        let called = called.unwrap_or_else(|| model.name.clone());
        let otherwise = if model.fallback.is_empty() { Otherwise::Nobody } else { Otherwise::Another };
        let provider = lf_models::provider(&model, &self.client, otherwise)?;
        let tools = self.tools_of(&project, &model);
        let id = uuid::Uuid::new_v4().simple().to_string();
        let check = self.check_of(who, &project, &model, (&model.name, &id));
        let mut catalogue = tools.list(&model.servers).await;
        if let Some(down) = catalogue.down.iter().find(|down| down.required) {
            return Err(Refusal::RequiredServerDown {
                server: down.server.clone(),
                reason: down.reason.clone(),
            });
        }
        self.held_back.tell(&*check, &project, Some(&model.name), catalogue.held.iter().map(Into::into));
        catalogue.narrow(who);
        if let Some(chosen) = &conversation.tools {
            catalogue.tools.retain(|tool| chosen.contains(&tool.id));
        }
        for tool in &mut catalogue.tools {
            tool.labels = tool.labels.and(project.policy.labels_of(&tool.id));
        }
        let inline = inline_tools(&model, &request.variables)?;
        let set = ToolSet::new(&catalogue, &inline, &request.tools);
        self.log_tools(&project, &model, &catalogue, &set);
        let tools_of = |other: &Model| ToolSet::new(&permitted(&catalogue, other), &inline, &request.tools);
        let others = self.stand_ins((who, &project, &model), &model.fallback, &tools_of, &request.parameters);
        let tool_choice = tool_choice(request.tool_choice, &set)?;
        let own = |all: &[Message]| all[conversation.unkept.min(all.len())..].to_vec();
        let sent = own(&request.messages);
        let all = self.given(who, request.messages, &conversation).await?;
        // what is put back is said by this request, too
        let asked = if conversation.before.is_empty() { own(&all) } else { sent };
        let mut messages = prompted(&project, &model, all, &request.variables)?;
        set.expose_history(&mut messages);
        let setup = Setup {
            id,
            model: called,
            request: ModelRequest {
                messages,
                tools: [].into(),
                tool_choice,
                parameters: parameters(&model, request.parameters),
                stream: request.stream,
            },
            tools: set,
            strategy: model.strategy,
            text_formats: text_formats(&model),
            limits: model.limits.clone(),
            price: model.price,
            images: model.images,
            calls_left: conversation.calls_left,
            always: conversation.always,
            // a policy may come while the turn runs
            judged: model.provider != Provider::Replay,
            seen: conversation.seen,
            principal: Principal::clone(who),
            waiting: conversation.waiting,
        };
        let notices = notices(&catalogue);
        let errand = self.errand_of(who, &project, &model);
        let first = Upstream { model, provider, stand_in: None };
        let upstreams = Upstreams::new(first, others, self.circuits.clone());
        // last: what is refused for another reason costs nothing
        let charge = self.quotas.admit(payers(&project, who)).await?;
        Ok(Prepared { project, setup, asked, notices, upstreams, tools, check, errand, charge })
    }

    /// The tools this model may use: its own servers', and no others; those of the recorded turn for a cassette.
    pub(crate) fn tools_of(&self, project: &Project, model: &Model) -> Arc<dyn ToolSource> {
        if let (Provider::Replay, Some(path)) = (model.provider, &model.cassette) {
            return Arc::new(RecordedTools::new(path.clone(), &model.model));
        }
        let servers =
            model.servers.iter().filter_map(|name| Some((name.clone(), project.servers.get(name)?.clone())));
        Arc::new(self.pool.tools(servers).pinned(project.pins.clone()))
    }

    /// Who says which calls of this turn run in which this model answers, and that one was `asked` for.
    pub(crate) fn check_of(
        &self,
        who: &Arc<Principal>,
        project: &Arc<Project>,
        model: &Model,
        (asked, turn): (&str, &str),
    ) -> Arc<dyn Check> {
        if model.provider == Provider::Replay {
            return Arc::new(Recorded);
        }
        let (project, active) = (project.clone(), self.active(project));
        let (model, turn) = (Some(asked.to_owned()), Some(turn.to_owned()));
        let began = Began { project, model, turn, pool: self.pool.clone() };
        Arc::new(Rules::of_turn(active, self.authority(who), began))
    }

    /// Whether somebody may decide what a request of his decides.
    ///
    /// # Errors
    /// [`Refusal::Lacking`]
    pub(crate) fn may_decide(&self, who: &Principal, request: &ChatRequest) -> Result<(), Refusal> {
        match request.approvals.is_empty() || who.has(Scope::Approve) {
            true => Ok(()),
            false => Err(Refusal::Lacking(self.lacks(who, Scope::Approve, "decisions about calls"))),
        }
    }

    /// Puts on record that somebody may not have this done, and says so.
    pub(crate) fn lacks(&self, who: &Principal, scope: Scope, what: &str) -> String {
        self.audit.refused(Some(who), &format!("{what}: needs the scope {scope}"));
        needs_scope(who, scope)
    }

    pub(crate) fn authority(&self, who: &Arc<Principal>) -> Authority {
        Authority::of(self.access.clone(), who.clone(), self.audit.clone())
    }

    /// What this daemon is told where this model asks it for somebody.
    pub(crate) fn errand_of(&self, who: &Arc<Principal>, project: &Project, model: &Model) -> Errand {
        let servers = model.servers.iter().filter_map(|name| project.servers.get(name)?.as_ref().ok());
        let itself = itself(servers, self.address.get().copied());
        let is_asked = model.provider != Provider::Replay && !itself.is_empty();
        let mandate = is_asked.then(|| self.grants.grant(Granted::to_model(who, project, model))).flatten();
        Errand::new(itself, mandate)
    }

    /// The client's messages, with what the server remembers of them put back.
    async fn given(
        &self,
        who: &Principal,
        mut given: Vec<Message>,
        conversation: &Conversation,
    ) -> Result<Vec<Message>, Refusal> {
        let wrong = |message| Refusal::BadRequest { message, param: Some("messages".to_owned()) };
        if !conversation.before.is_empty() {
            // nothing has to be put back into what was never given away
            given.splice(conversation.unkept..conversation.unkept, conversation.before.iter().cloned());
            check_answers(&given).map_err(wrong)?;
            answer_in_order(&mut given);
            return Ok(given);
        }
        check_answers(&given).map_err(wrong)?;
        answer_in_order(&mut given);
        let known = self.resumes.find(calls(&given), who).await;
        if !known.is_empty() {
            put_back(&mut given, |id| known.get(id).cloned());
        }
        Ok(given)
    }

    fn log_tools(&self, project: &Project, model: &Model, catalogue: &Catalogue, set: &ToolSet) {
        let mut hasher = DefaultHasher::new();
        let down: Vec<&str> = catalogue.down.iter().map(|down| down.server.as_str()).collect();
        let names: Vec<&str> = set.iter().map(|(name, _)| name).collect();
        (&down, &names).hash(&mut hasher);
        let key = format!("{}/{}/{}", project.namespace, project.name, model.name);
        let seen =
            self.seen_tools.lock().unwrap_or_else(PoisonError::into_inner).insert(key, hasher.finish());
        if seen == Some(hasher.finish()) {
            return;
        }
        let up: Vec<&str> =
            model.servers.iter().map(String::as_str).filter(|name| !down.contains(name)).collect();
        tracing::info!(target: "tools.mcp_tool", servers = listed(&up), total_tools = catalogue.tools.len(), "Created all MCP tools");
        for server in &catalogue.down {
            tracing::warn!(server = server.server, error = server.reason, "MCP server is down");
        }
        tracing::info!(target: "agents.chat_orchestrator", tool_count = set.len(), tool_names = listed(&names), "MCP tools loaded");
    }
}

fn unpriced(model: &Model) -> String {
    format!(
        "this key may spend so much a day and no more, and nobody knows what model `{}` costs: its `price` in the file would tell",
        model.name
    )
}

/// What a turn begins by telling: which tools it has to do without.
fn notices(catalogue: &Catalogue) -> Vec<String> {
    let down = catalogue.down.iter();
    let down = down.map(|down| format!("MCP server `{}` is down: {}", down.server, down.reason));
    down.chain(held(catalogue)).collect()
}

/// What is told of tools that are held back, those with one reason together.
fn held(catalogue: &Catalogue) -> Vec<String> {
    const NAMED: usize = 10;
    let mut reasons: IndexMap<(&str, &str), Vec<String>> = IndexMap::new();
    for Held { tool, why } in &catalogue.held {
        let names = reasons.entry((&tool.id.server, why)).or_default();
        names.push(format!("`{}`", visible::line(&tool.id.name)));
    }
    let told = reasons.into_iter().map(|((server, why), names)| {
        let more = names.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let names = names.into_iter().take(NAMED).collect::<Vec<_>>().join(", ");
        format!("{names}{more} of MCP server `{}`: {}", visible::line(server), visible::line(why))
    });
    told.collect()
}

/// The ids of all calls.
fn calls(messages: &[Message]) -> Vec<String> {
    let calls = messages.iter().filter_map(|message| match message {
        Message::Assistant(said) => Some(said.calls.iter().map(|call| call.id.clone())),
        _ => None,
    });
    calls.flatten().collect()
}

/// A turn in its first step, with what is to be told before it: both are in its journal.
pub(crate) fn begin(
    setup: Setup,
    notices: Vec<String>,
    mut journal: Option<&mut Box<dyn Journal>>,
) -> (Course, Vec<ChatEvent>) {
    let mut events = Vec::new();
    let mut course = Course::new(setup, &mut events);
    for notice in notices {
        let entry = Entry::Notice(notice);
        if let Some(journal) = &mut journal {
            journal.append(&entry);
        }
        let _ = course.take(entry, &mut events);
    }
    (course, events)
}

/// `['a', 'b']`, as the troubleshooting guide of these projects shows it.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 50;
    let mut text = String::from("[");
    for (at, name) in names.iter().take(SHOWN).enumerate() {
        text.push_str(if at == 0 { "'" } else { ", '" });
        text.push_str(name);
        text.push('\'');
    }
    if names.len() > SHOWN {
        text.push_str(", …");
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests;
