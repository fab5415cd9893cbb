//! Conversations that are kept. Each of their turns runs by itself, whoever watches it, and is in the journal before it is
//! acted on or shown; what the daemon leaves unfinished goes on when it is back.

mod approving;
mod context;
mod endings;
mod forgetting;
mod recovery;
mod resumes;
mod running;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use lf_core::model::ChatRequest;
use lf_core::turn::{Course, Done, Entry};
use lf_core::{ChatEvent, Journal, Message, ModelError, Project};
use lf_store::{Begin, Conversation, Store, StoreError, TurnState};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

use crate::app::{App, Refusal};
use crate::approvals::{About, Attendance};
use crate::chat::{self, Prepared};
use crate::driver::{Approving, Drive, drive};
use crate::recording::{Recorded, Recording};

pub(crate) use context::pending;
use context::unsaid;
use endings::{Ending, Endings};
use forgetting::Forgotten;
pub(crate) use recovery::events as events_of;
pub(crate) use resumes::Resumes;
pub(crate) use running::Running;

/// Turns that run or wait, over all conversations: they need no connection, which would bound them.
const TURNS: usize = 4096;
/// Of these, those that wait for their turn to speak in one conversation.
const WAITING: usize = 256;

/// Everything that goes on in kept conversations.
pub(crate) struct Memory {
    pub store: Store,
    /// By the turn's id.
    running: Mutex<HashMap<String, Arc<Running>>>,
    /// One turn at a time in each conversation.
    order: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    tasks: TaskTracker,
    /// Turns are left where they are, to be gone on with at the next start.
    leave: CancellationToken,
    /// Nothing else is begun.
    closing: CancellationToken,
    endings: Endings,
    forgotten: Forgotten,
}

/// What is said in a conversation, and how it is to be answered.
pub(crate) struct Saying {
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
            order: Mutex::default(),
            tasks: TaskTracker::new(),
            leave: CancellationToken::new(),
            closing: CancellationToken::new(),
            endings: Endings::default(),
            forgotten: Forgotten::default(),
        }
    }

    /// A turn that runs now.
    pub(crate) fn running(&self, turn: &str) -> Option<Arc<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).get(turn).cloned()
    }

    /// The turns that run in a conversation.
    pub(crate) fn running_in(&self, conversation: &str) -> Vec<Arc<Running>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.values().filter(|turn| turn.conversation == conversation).cloned().collect()
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
            () = self.tasks.wait() => return,
        }
        self.tasks.wait().await;
    }

    /// Waits until it is this caller's turn to speak.
    pub(crate) async fn turn_to_speak(&self, conversation: &str) -> OwnedMutexGuard<()> {
        self.line(conversation).lock_owned().await
    }

    /// The same without waiting; `None` while a turn runs.
    pub(crate) fn quiet(&self, conversation: &str) -> Option<OwnedMutexGuard<()>> {
        self.line(conversation).try_lock_owned().ok()
    }

    /// The same for a client, which waits no longer than this.
    async fn soon_to_speak(
        &self,
        conversation: &str,
        longest: Duration,
    ) -> Result<OwnedMutexGuard<()>, Refusal> {
        let line = self.line(conversation);
        let busy =
            |why: String| Refusal::Busy(format!("conversation `{conversation}` {why}; try again later"));
        // this one, and the one that speaks
        let waiting = Arc::strong_count(&line).saturating_sub(2);
        if waiting >= WAITING {
            return Err(busy(format!("has {waiting} messages waiting")));
        }
        let speaks = tokio::time::timeout(longest, line.lock_owned()).await;
        speaks.map_err(|_| {
            busy(format!("was busy with other messages for {longest:?} (`limits.queue_timeout`)"))
        })
    }

    /// Who holds this lock speaks in the conversation; the others wait for it in the order in which they came.
    fn line(&self, conversation: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        order.retain(|_, line| line.strong_count() > 0);
        if let Some(line) = order.get(conversation).and_then(Weak::upgrade) {
            return line;
        }
        let line = Arc::new(tokio::sync::Mutex::new(()));
        order.insert(conversation.to_owned(), Arc::downgrade(&line));
        line
    }
}

/// What only has to be written to begin.
struct Ready {
    prepared: Prepared,
    approving: Approving,
    recording: Option<Recording>,
    conversation: String,
    /// What the client said, with the ids of the messages.
    said: Vec<(String, Message)>,
    /// So many of the first of them are kept already.
    kept: usize,
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
        let ready = tokio::select! {
            biased;
            () = memory.leave.cancelled() => return Err(ModelError::going_down().into()),
            ready = self.ready(memory, scope, conversation, saying) => ready?,
        };
        memory.set_going(ready).await
    }

    async fn ready(
        &self,
        memory: &Arc<Memory>,
        scope: Option<&Arc<Project>>,
        id: &str,
        saying: Saying,
    ) -> Result<Ready, Refusal> {
        let unkept = |error: StoreError| unkept(&error);
        let longest = self.queue_timeout(memory, scope, (id, saying.request.model.as_deref())).await?;
        let guard = memory.soon_to_speak(id, longest).await?;
        memory.settle(Some(id)).await.map_err(unkept)?;
        // it may have been changed or deleted while this one waited
        let found = memory.store.conversation(id).await.map_err(unkept)?;
        let Some(conversation) = found.filter(|_| !memory.forgotten.has(id)) else {
            return Err(Refusal::UnknownConversation(id.to_owned()));
        };
        let Saying { mut request, chosen_tools, calls_left, attendance, recall } = saying;
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
        let again = kept.split_off(kept.len() - context::repeated(&kept, &said));
        let budget = context::budget(&self.find_model(scope, request.model.as_deref()).await?.1);
        let shown = context::window(&conversation, &systems, &kept, &said, budget);
        let tools = match chosen_tools {
            true => Some(memory.store.tools(&conversation.id).await.map_err(unkept)?),
            false => None,
        };
        let mut waiting = memory.waiting(&conversation.id).await.map_err(unkept)?;
        chat::take_decisions(waiting.as_mut(), &request.approvals)?;
        let always = memory.store.approved(&conversation.id).await.map_err(unkept)?;
        let with = chat::Conversation {
            before: shown.into(),
            tools,
            calls_left,
            always,
            waiting,
            ..chat::Conversation::default()
        };
        let prepared = self.prepare(scope, request, with).await?;
        let kept = again.len();
        let new = said.into_iter().skip(kept).map(|message| (message_id(), message));
        let said = again.into_iter().map(|kept| (kept.id, kept.message)).chain(new).collect();
        Ok(Ready { kept, ..self.armed(prepared, conversation.id, said, attendance, guard) })
    }

    /// How long a message to a conversation waits for those before it.
    async fn queue_timeout(
        &self,
        memory: &Memory,
        scope: Option<&Arc<Project>>,
        (id, model): (&str, Option<&str>),
    ) -> Result<Duration, Refusal> {
        let model = match model.filter(|name| !name.is_empty()) {
            Some(model) => Some(model.to_owned()),
            None => {
                memory.store.conversation(id).await.map_err(|error| unkept(&error))?.and_then(|it| it.model)
            }
        };
        Ok(self.find_model(scope, model.as_deref()).await?.1.limits.queue_timeout)
    }

    /// Keeps a turn that can begin with what is `said` to it, and lets it run to its end.
    ///
    /// # Errors
    /// [`Refusal::NoMemory`]; then nothing was kept.
    pub(crate) async fn set_going(
        &self,
        prepared: Prepared,
        conversation: &str,
        said: Vec<(String, Message)>,
        attendance: Attendance,
        guard: OwnedMutexGuard<()>,
    ) -> Result<Arc<Running>, Refusal> {
        let memory = self.memory()?;
        self.check_room(memory)?;
        let ready = self.armed(prepared, conversation.to_owned(), said, attendance, guard);
        let here = memory.clone();
        // dropped meanwhile, it begins all the same
        let begun = memory.tasks.spawn(async move { here.set_going(ready).await });
        begun.await.unwrap_or_else(|error| Err(not_begun(&error)))
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
        Ready { prepared, approving, recording, conversation, said, kept: 0, guard }
    }
}

fn not_begun(error: &tokio::task::JoinError) -> Refusal {
    Refusal::NoMemory { reason: format!("the turn could not begin: {error}") }
}

impl Memory {
    /// Keeps what was said and the beginning of its turn, and lets it run.
    async fn set_going(self: &Arc<Self>, ready: Ready) -> Result<Arc<Running>, Refusal> {
        let Ready { prepared, approving, recording, conversation, said, kept, guard } = ready;
        let turn = prepared.setup.id.clone();
        let begun = Entry::Begun(Box::new(prepared.setup.clone()));
        let begin = Begin { turn: &turn, conversation: &conversation, said: &said[kept..], begun: &begun };
        let kept = Box::new(self.store.begin(begin).await.map_err(|error| unkept(&error))?);
        let mut journal: Box<dyn Journal> = match recording {
            Some(recording) => Box::new(Recorded { kept, recording }),
            None => kept,
        };
        let turn_timeout = prepared.setup.limits.turn_timeout;
        let (course, events) = chat::begin(prepared.setup, prepared.notices, Some(&mut journal));
        let running = Arc::new(Running::new(turn, conversation));
        let with = Drive {
            upstreams: prepared.upstreams,
            approving,
            tools: prepared.tools,
            turn_timeout,
            person: None,
            journal: Some(journal),
            stop: Some(running.stop.clone()),
            remember: Box::new(|_| {}),
        };
        self.run(running.clone(), course, events, with, guard);
        Ok(running)
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
        let left = done.clone();
        with.remember = Box::new(move |done| {
            *left.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        });
        let memory = self.clone();
        let over = Over { memory: self.clone(), running: running.clone(), _guard: guard };
        self.tasks.spawn(async move {
            let _over = over;
            let mut events = std::pin::pin!(drive(course, events, with));
            loop {
                let event = tokio::select! {
                    biased;
                    () = memory.leave.cancelled() => break,
                    event = events.next() => event,
                };
                let Some(mut event) = event else { break };
                memory.learn(&running, &event).await;
                if let Some(state) = running.ends_with(&event) {
                    let done = done.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Err(error) = memory.end(&running, state, done).await {
                        event = ended_unkept(event, &error);
                    }
                }
                running.tell(event);
            }
        });
    }

    /// # Errors
    /// When the end is to be kept later.
    async fn end(
        self: &Arc<Self>,
        running: &Running,
        state: TurnState,
        done: Option<Done>,
    ) -> Result<(), StoreError> {
        let (said, waiting) = done.map(|done| (done.said.to_vec(), done.waiting)).unwrap_or_default();
        let (turn, conversation) = (running.turn.clone(), running.conversation.clone());
        let ending = Ending { turn, conversation, state, said: named(said), waiting };
        if let Err(error) = self.keep(&ending).await {
            error!(turn = running.turn, %error, "the end of a turn cannot be kept now");
            self.owe(ending).await;
            return Err(error);
        }
        info!(turn = running.turn, conversation = running.conversation, state = state.name(), "turn kept");
        Ok(())
    }
}

/// With it the task of a turn ends, however it does: nobody waits for more.
struct Over {
    memory: Arc<Memory>,
    running: Arc<Running>,
    _guard: OwnedMutexGuard<()>,
}

impl Drop for Over {
    fn drop(&mut self) {
        let mut all = self.memory.running.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.running.turn);
        drop(all);
        self.running.over();
    }
}

/// The last event of a turn whose end is not kept: nobody is told that all is well with it.
fn ended_unkept(event: ChatEvent, error: &StoreError) -> ChatEvent {
    match event {
        ChatEvent::Finished { .. } => ChatEvent::Failed(crate::driver::unkept(error)),
        event => event,
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
        StoreError::Full { .. } => Refusal::NoRoom { reason },
        _ => Refusal::NoMemory { reason },
    }
}

#[cfg(test)]
mod tests;
