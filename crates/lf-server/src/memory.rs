//! Conversations that are kept. Each of their turns runs by itself, whoever watches it, and is in the journal before it is
//! acted on or shown; what the daemon leaves unfinished goes on when it is back.

mod approving;
mod context;
mod endings;
mod following;
mod forgetting;
mod recovery;
mod resumes;
mod running;
mod sharing;
mod speaking;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use lf_core::model::ChatRequest;
use lf_core::turn::{Course, Done, Entry, seen_in};
use lf_core::{ChatEvent, Journal, Message, ModelError, Principal, Project};
use lf_store::{Begin, Conversation, Known, Store, StoreError, TurnState};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::app::{App, Refusal};
use crate::approvals::{About, Attendance};
use crate::chat::{self, Prepared};
use crate::driver::{Approving, Drive, drive};
use crate::recording::{Recorded, Recording};
use crate::results::Shelf;
use crate::rules::record_told;

pub(crate) use context::pending;
use context::unsaid;
use endings::{Ending, Endings, ended_unkept};
use forgetting::Forgotten;
pub(crate) use recovery::events as events_of;
pub(crate) use resumes::Resumes;
use running::Over;
pub(crate) use running::Running;
use speaking::Order;
pub(crate) use speaking::busy;

/// Turns that run or wait, over all conversations: they need no connection, which would bound them.
const TURNS: usize = 4096;
/// How often another daemon may be faster to speak.
pub(crate) const TRIES: usize = 16;

/// Everything that goes on in kept conversations.
pub(crate) struct Memory {
    pub store: Store,
    /// By the turn's id.
    running: Mutex<HashMap<String, Arc<Running>>>,
    /// One turn at a time in each conversation.
    order: Order,
    tasks: TaskTracker,
    /// Turns are left where they are, to be gone on with at the next start.
    leave: CancellationToken,
    /// Nothing else is begun.
    closing: CancellationToken,
    endings: Endings,
    forgotten: Forgotten,
    /// What shares the store with other daemons, until no turn runs any more.
    sharing: TaskTracker,
    ended: CancellationToken,
}

/// What is said in a conversation, and how it is to be answered.
#[derive(Clone)]
pub(crate) struct Saying {
    pub who: Arc<Principal>,
    /// The client's: model, messages, tools, parameters.
    pub request: ChatRequest,
    /// All tools of the model, or those that were chosen for the conversation.
    pub chosen_tools: bool,
    /// The most calls that are run for this request.
    pub calls_left: Option<u64>,
    /// Who may approve calls.
    pub attendance: Attendance,
    /// Brings into the request what earlier messages of the conversation say of it.
    pub recall: Option<Recall>,
}

/// See [`Saying::recall`].
pub(crate) type Recall = Arc<
    dyn for<'a> Fn(&mut ChatRequest, &mut dyn Iterator<Item = &'a Message>) -> Result<(), Refusal>
        + Send
        + Sync,
>;

impl Memory {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            running: Mutex::default(),
            order: Order::default(),
            tasks: TaskTracker::new(),
            leave: CancellationToken::new(),
            closing: CancellationToken::new(),
            endings: Endings::default(),
            forgotten: Forgotten::default(),
            sharing: TaskTracker::new(),
            ended: CancellationToken::new(),
        }
    }

    /// A turn that runs now.
    pub(crate) fn running(&self, turn: &str) -> Option<Arc<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).get(turn).cloned()
    }

    /// Does something that nobody waits for, but a drain.
    pub(crate) fn later(&self, what: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(what);
    }

    /// Waits for the turns that run; with `now`, leaves them for the next start.
    pub(crate) async fn drain(&self, now: &CancellationToken) {
        self.closing.cancel();
        self.tasks.close();
        tokio::select! {
            biased;
            // also where nothing runs: what still waits to begin must not
            () = now.cancelled() => self.leave.cancel(),
            () = self.tasks.wait() => {}
        }
        self.tasks.wait().await;
        self.ended.cancel();
        self.sharing.close();
        self.sharing.wait().await;
    }
}

/// What only has to be written to begin.
struct Ready {
    prepared: Prepared,
    /// Ends the turn with the key that it was asked with.
    until: CancellationToken,
    approving: Approving,
    recording: Option<Recording>,
    shelf: Shelf,
    conversation: String,
    /// What the client said, with the ids of the messages.
    said: Vec<(String, Message)>,
    /// So many of the first of them are kept already.
    kept: usize,
    /// What was read of the conversation; without it the turn begins whatever is said meanwhile.
    after: Option<Known>,
    guard: OwnedMutexGuard<()>,
}

impl App {
    /// The memory of this daemon.
    ///
    /// # Errors
    /// When it has none, or it could not be opened.
    pub(crate) fn memory(&self) -> Result<&Arc<Memory>, Refusal> {
        self.memory.as_ref().map_err(|reason| Refusal::NoMemory { reason: reason.clone() })
    }

    /// Goes on with a conversation: what is said is kept, and a turn begins that runs to its end whether or not somebody
    /// watches. Waits while another turn runs in it; dropped meanwhile, the turn begins all the same.
    ///
    /// # Errors
    /// [`Refusal`]; then nothing was kept.
    pub(crate) async fn converse(
        self: &Arc<Self>,
        scope: Option<&Arc<Project>>,
        conversation: &Conversation,
        saying: Saying,
    ) -> Result<Arc<Running>, Refusal> {
        let memory = self.memory()?;
        self.check_room(memory)?;
        let (app, scope, id) = (self.clone(), scope.cloned(), conversation.id.clone());
        // a client that left in the middle of this would leave a turn that is kept and never runs
        let begun = memory.tasks.spawn(async move { app.begin(scope.as_ref(), &id, saying).await });
        begun.await.unwrap_or_else(|error| Err(not_begun(&error)))
    }

    fn check_room(&self, memory: &Memory) -> Result<(), Refusal> {
        if memory.tasks.len() >= TURNS {
            let reason = format!("{TURNS} turns run or wait already");
            return Err(Refusal::NoMemory { reason });
        }
        Ok(())
    }

    async fn begin(
        self: &Arc<Self>,
        scope: Option<&Arc<Project>>,
        conversation: &str,
        saying: Saying,
    ) -> Result<Arc<Running>, Refusal> {
        let memory = self.memory()?;
        for _ in 0..TRIES {
            let ready = tokio::select! {
                biased;
                () = memory.leave.cancelled() => return Err(ModelError::going_down().into()),
                ready = self.ready(memory, scope, conversation, saying.clone()) => ready?,
            };
            if let Some(running) = memory.set_going(ready).await? {
                return Ok(running);
            }
        }
        Err(busy(conversation, "is spoken in at other daemons again and again"))
    }

    async fn ready(
        &self,
        memory: &Arc<Memory>,
        scope: Option<&Arc<Project>>,
        id: &str,
        saying: Saying,
    ) -> Result<Ready, Refusal> {
        let unkept = |error: StoreError| unkept(&error);
        let longest =
            self.queue_timeout(memory, (&saying.who, scope), (id, saying.request.model.as_deref())).await?;
        let guard = memory.next_to_speak(id, longest).await?;
        // it may have been changed or deleted while this one waited
        let found = memory.store.conversation(id).await.map_err(unkept)?;
        let Some(conversation) = found.filter(|_| !memory.forgotten.has(id)) else {
            return Err(Refusal::UnknownConversation(id.to_owned()));
        };
        let Saying { who, mut request, chosen_tools, calls_left, attendance, recall } = saying;
        request.model = request.model.filter(|name| !name.is_empty()).or_else(|| conversation.model.clone());
        let mut kept = memory.store.messages(&conversation.id, 0).await.map_err(unkept)?;
        if let Some(recall) = recall {
            recall(&mut request, &mut kept.iter().map(|kept| &kept.message))?;
        }
        // they are of this request, and nothing that was said
        let (systems, said): (Vec<Message>, Vec<Message>) = std::mem::take(&mut request.messages)
            .into_iter()
            .partition(|message| matches!(message, Message::System(_)));
        let said = unsaid(&kept, said);
        let place = kept.last().map_or(0, |kept| kept.seq);
        let again = kept.split_off(kept.len() - context::repeated(&kept, &said));
        let budget = context::budget(&self.find_model(&who, scope, request.model.as_deref()).await?.1);
        let seen = seen_in(kept.iter().chain(&again).map(|kept| &kept.message));
        let shown = context::window(&conversation, &systems, &kept, &said, budget);
        let tools = match chosen_tools {
            true => Some(memory.store.tools(&conversation.id).await.map_err(unkept)?),
            false => None,
        };
        self.may_decide(&who, &request)?;
        let left = memory.waiting(&conversation.id).await.map_err(unkept)?;
        let mut waiting = left.as_ref().map(|left| left.waiting.clone());
        chat::take_decisions(waiting.as_mut(), &request.approvals)?;
        let always = memory.store.approved(&conversation.id).await.map_err(unkept)?;
        let with = chat::Conversation {
            before: shown.into(),
            tools,
            calls_left,
            always,
            waiting,
            seen,
            ..chat::Conversation::default()
        };
        let prepared = self.prepare(&who, scope, request, with).await?;
        let kept = again.len();
        let new = said.into_iter().skip(kept).map(|message| (message_id(), message));
        let said = again.into_iter().map(|kept| (kept.id, kept.message)).chain(new).collect();
        Ok(Ready {
            kept,
            after: Some(Known { place, waiting: left }),
            ..self.armed(prepared, conversation.id, said, attendance, guard)
        })
    }

    /// Keeps a turn that can begin with what is `said` to it, and lets it run to its end. Of the guards the first
    /// is held until the turn runs, the second as long as it does.
    ///
    /// # Errors
    /// [`Refusal::NoMemory`]; then nothing was kept.
    pub(crate) async fn set_going(
        &self,
        prepared: Prepared,
        conversation: &str,
        said: Vec<(String, Message)>,
        attendance: Attendance,
        (settled, own): (OwnedMutexGuard<()>, OwnedMutexGuard<()>),
    ) -> Result<Arc<Running>, Refusal> {
        let memory = self.memory()?;
        self.check_room(memory)?;
        let ready = self.armed(prepared, conversation.to_owned(), said, attendance, own);
        let here = memory.clone();
        // dropped meanwhile, it begins all the same
        let begun = memory.tasks.spawn(async move {
            // a turn that is kept and does not run yet would be taken for one that was left
            let _settled = settled;
            here.set_going(ready).await
        });
        let begun = begun.await.unwrap_or_else(|error| Err(not_begun(&error)))?;
        begun.ok_or_else(|| busy(conversation, "is spoken in at another daemon"))
    }

    fn armed(
        &self,
        prepared: Prepared,
        conversation: String,
        said: Vec<(String, Message)>,
        attendance: Attendance,
        guard: OwnedMutexGuard<()>,
    ) -> Ready {
        let approving = Approving {
            approvals: self.approvals.clone(),
            about: About::turn(&prepared.project, &prepared.setup, Some(&conversation)),
            attendance,
            wait: prepared.setup.limits.approval_timeout,
        };
        let recording = self.recording(&prepared.project, &prepared.setup, None);
        let until = self.access.until_revoked(&prepared.setup.principal);
        let journals = self.memory().ok().map(|memory| (memory.store.clone(), conversation.clone()));
        let shelf = Shelf::new(&self.results, &prepared.setup, journals);
        let (kept, after) = (0, None);
        Ready { prepared, until, approving, recording, shelf, conversation, said, kept, after, guard }
    }
}

fn not_begun(error: &tokio::task::JoinError) -> Refusal {
    Refusal::NoMemory { reason: format!("the turn could not begin: {error}") }
}

impl Memory {
    /// Keeps what was said and the beginning of its turn, and lets it run. Nothing where another daemon's turn came first.
    async fn set_going(self: &Arc<Self>, ready: Ready) -> Result<Option<Arc<Running>>, Refusal> {
        let Ready { prepared, until, approving, recording, shelf, conversation, said, kept, after, guard } =
            ready;
        let turn = prepared.setup.id.clone();
        let begun = Entry::Begun(Box::new(prepared.setup.clone()));
        let said_now = &said[kept..];
        let after = after.as_ref();
        let begin = Begin { turn: &turn, conversation: &conversation, said: said_now, begun: &begun, after };
        let kept = match self.store.begin(begin).await {
            Ok(journal) => Box::new(journal),
            Err(StoreError::Overtaken { .. }) => return Ok(None),
            Err(error) => return Err(unkept(&error)),
        };
        let mut journal: Box<dyn Journal> = match recording {
            Some(recording) => Box::new(Recorded { kept, recording }),
            None => kept,
        };
        let turn_timeout = prepared.setup.limits.turn_timeout;
        let (course, events) = chat::begin(prepared.setup, prepared.notices, Some(&mut journal));
        record_told(&*prepared.check, &course, &events, prepared.upstreams.name());
        let running = Arc::new(Running::new(turn, conversation, until.child_token()));
        let with = Drive {
            upstreams: prepared.upstreams,
            approving,
            tools: prepared.tools,
            check: prepared.check,
            errand: prepared.errand,
            shelf,
            charge: prepared.charge,
            turn_timeout,
            person: None,
            journal: Some(journal),
            stop: Some(running.stop.clone()),
            remember: Box::new(|_| {}),
        };
        self.run(running.clone(), course, events, with, guard);
        Ok(Some(running))
    }

    /// Lets a turn run. It is over when its end is kept.
    fn run(
        self: &Arc<Self>,
        running: Arc<Running>,
        course: Course,
        events: Vec<ChatEvent>,
        mut with: Drive,
        guard: OwnedMutexGuard<()>,
    ) {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(running.turn.clone(), running.clone());
        let done: Arc<Mutex<Option<Done>>> = Arc::default();
        with.charge = with.charge.kept();
        let left = done.clone();
        with.remember = Box::new(move |done| {
            *left.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        });
        let memory = self.clone();
        let over = Over::new(self.clone(), running.clone(), guard);
        self.tasks.spawn(async move {
            let _over = over;
            let mut events = std::pin::pin!(drive(course, events, with));
            loop {
                let event = tokio::select! {
                    biased;
                    () = memory.leave.cancelled() => break,
                    () = running.lost.cancelled() => break,
                    event = events.next() => event,
                };
                let Some(mut event) = event else { break };
                memory.learn(&running, &event).await;
                if let Some(state) = running.ends_with(&event) {
                    let done = done.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let ended = tokio::select! {
                        biased;
                        // its journal has all of it; a database that is gone may be waited for
                        () = running.lost.cancelled() => break,
                        () = memory.leave.cancelled(), if memory.store.is_shared() => break,
                        ended = memory.end(&running, state, done) => ended,
                    };
                    match ended {
                        Ok(()) => {}
                        // it goes on elsewhere, and is watched there
                        Err(StoreError::Overtaken { .. }) => break,
                        Err(error) => event = ended_unkept(event, &error),
                    }
                }
                running.tell(event);
            }
        });
    }

    /// # Errors
    /// When the end is to be kept later, or the turn is another daemon's by now.
    async fn end(
        self: &Arc<Self>,
        running: &Running,
        state: TurnState,
        done: Option<Done>,
    ) -> Result<(), StoreError> {
        let (turn, conversation) = (running.turn.clone(), running.conversation.clone());
        let ending = Ending::new(turn, conversation, state, done);
        if let Err(error) = self.keep(&ending).await {
            if matches!(error, StoreError::Overtaken { .. }) {
                warn!(turn = running.turn, %error, "a turn is let go of");
                return Err(error);
            }
            error!(turn = running.turn, %error, "the end of a turn cannot be kept now");
            self.owe(ending).await;
            return Err(error);
        }
        info!(turn = running.turn, conversation = running.conversation, state = state.name(), "turn kept");
        Ok(())
    }
}

/// Messages with ids of their own.
pub(crate) fn named(messages: Vec<Message>) -> Vec<(String, Message)> {
    messages.into_iter().map(|message| (message_id(), message)).collect()
}

/// So long ago, in milliseconds since 1970.
pub(crate) fn ago(time: Duration) -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.saturating_sub(time).as_millis().try_into().unwrap_or(i64::MAX)
}

fn message_id() -> String {
    format!("msg-{}", uuid::Uuid::now_v7().simple())
}

pub(crate) fn unkept(error: &StoreError) -> Refusal {
    let reason = match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    match error {
        StoreError::NotFound { what: "conversation", id } => Refusal::UnknownConversation(id.clone()),
        StoreError::Full { .. } => Refusal::NoRoom { reason },
        _ => Refusal::NoMemory { reason },
    }
}

#[cfg(test)]
mod tests;
