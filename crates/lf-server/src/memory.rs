//! Conversations that are kept. Each of their turns runs by itself, whoever watches it, and is in the journal before it is
//! acted on or shown; what the daemon leaves unfinished goes on when it is back.

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
use lf_core::turn::{Course, Decision, Done, Entry, Verdict, Waiting};
use lf_core::{ChatEvent, Journal, Message, ModelError, Principal, Project};
use lf_store::{Begin, Conversation, LeftWaiting, Store, StoreError, TurnState};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

use crate::app::{App, Refusal};
use crate::approvals::{self, About, Attendance, Outcome};
use crate::chat::{self, Prepared};
use crate::driver::{Approving, Drive, drive};
use crate::recording::{Recorded, Recording};

pub(crate) use context::pending;
use context::unsaid;
use endings::{Ending, Endings};
use forgetting::Forgotten;
pub(crate) use recovery::events as events_of;
pub(crate) use resumes::Resumes;
use running::Over;
pub(crate) use running::Running;

/// Turns that run or wait, over all conversations: they need no connection, which would bound them.
const TURNS: usize = 4096;
/// Of these, those that wait for their turn to speak in one conversation, and for how long: two turns of the default limit.
const WAITING: usize = 256;
const SPEAK_WAIT: Duration = Duration::from_secs(600);

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
    pub who: Arc<Principal>,
    /// The client's: model, messages, tools, parameters.
    pub request: ChatRequest,
    /// All tools of the model, or those that were chosen for the conversation.
    pub chosen_tools: bool,
    /// The most calls that are run for this request.
    pub calls_left: Option<u64>,
    /// Who may approve calls.
    pub attendance: Attendance,
}

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

    /// The same for a client, which does not wait for ever.
    async fn soon_to_speak(&self, conversation: &str) -> Result<OwnedMutexGuard<()>, Refusal> {
        let line = self.line(conversation);
        let busy =
            |why: String| Refusal::Busy(format!("conversation `{conversation}` {why}; try again later"));
        // this one, and the one that speaks
        let waiting = Arc::strong_count(&line).saturating_sub(2);
        if waiting >= WAITING {
            return Err(busy(format!("has {waiting} messages waiting")));
        }
        let speaks = tokio::time::timeout(SPEAK_WAIT, line.lock_owned()).await;
        speaks.map_err(|_| busy(format!("was busy for {SPEAK_WAIT:?}")))
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
    /// Ends the turn with the key that it was asked with.
    until: CancellationToken,
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

    /// Decides about a call that waits, wherever it does.
    ///
    /// # Errors
    /// When the decision cannot be kept.
    pub(crate) async fn decide(&self, id: &str, decision: Decision) -> Result<Outcome, Refusal> {
        let outcome = self.approvals.decide(id, decision.clone()).await;
        let Ok(memory) = self.memory() else { return Ok(outcome) };
        if outcome != Outcome::Unknown {
            return Ok(outcome);
        }
        let left = memory.store.all_waiting(approvals::oldest()).await.map_err(|error| unkept(&error))?;
        let Some(left) = left.into_iter().find(|left| left.waiting.asks.iter().any(|ask| ask.id == id))
        else {
            return Ok(Outcome::Unknown);
        };
        // as it is when no turn runs that could have taken it
        let _guard = memory.turn_to_speak(&left.conversation).await;
        let now = memory.store.waiting(&left.conversation).await.map_err(|error| unkept(&error))?;
        let Some(LeftWaiting { mut waiting, .. }) = now else { return Ok(Outcome::Unknown) };
        if !approvals::decide(&mut waiting, id, &decision) {
            return Ok(Outcome::Unknown);
        }
        let kept =
            memory.store.decided(&left.conversation, &waiting).await.map_err(|error| unkept(&error))?;
        Ok(if kept { Outcome::Taken } else { Outcome::Unknown })
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
        let guard = memory.soon_to_speak(id).await?;
        memory.settle(Some(id)).await.map_err(unkept)?;
        // it may have been changed or deleted while this one waited
        let found = memory.store.conversation(id).await.map_err(unkept)?;
        let Some(conversation) = found.filter(|_| !memory.forgotten.has(id)) else {
            return Err(Refusal::UnknownConversation(id.to_owned()));
        };
        let Saying { who, mut request, chosen_tools, calls_left, attendance } = saying;
        request.model = request.model.filter(|name| !name.is_empty()).or_else(|| conversation.model.clone());
        let mut kept = memory.store.messages(&conversation.id, 0).await.map_err(unkept)?;
        // they are of this request, and nothing that was said
        let (systems, said): (Vec<Message>, Vec<Message>) = std::mem::take(&mut request.messages)
            .into_iter()
            .partition(|message| matches!(message, Message::System(_)));
        let said = unsaid(&kept, said);
        let again = kept.split_off(kept.len() - context::repeated(&kept, &said));
        let budget = context::budget(&self.find_model(&who, scope, request.model.as_deref()).await?.1);
        let shown = context::window(&conversation, &systems, &kept, &said, budget);
        let tools = match chosen_tools {
            true => Some(memory.store.tools(&conversation.id).await.map_err(unkept)?),
            false => None,
        };
        let waiting = memory.waiting(&conversation.id).await.map_err(unkept)?;
        let always = memory.store.approved(&conversation.id).await.map_err(unkept)?;
        let with = chat::Conversation {
            before: shown.into(),
            tools,
            calls_left,
            always,
            waiting,
            ..chat::Conversation::default()
        };
        let prepared = self.prepare(&who, scope, request, with).await?;
        let kept = again.len();
        let new = said.into_iter().skip(kept).map(|message| (message_id(), message));
        let said = again.into_iter().map(|kept| (kept.id, kept.message)).chain(new).collect();
        Ok(Ready { kept, ..self.armed(prepared, conversation.id, said, attendance, guard) })
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
        let until = self.access.until_revoked(&prepared.setup.principal);
        Ready { prepared, until, approving, recording, conversation, said, kept: 0, guard }
    }
}

fn not_begun(error: &tokio::task::JoinError) -> Refusal {
    Refusal::NoMemory { reason: format!("the turn could not begin: {error}") }
}

impl Memory {
    /// Keeps what was said and the beginning of its turn, and lets it run.
    async fn set_going(self: &Arc<Self>, ready: Ready) -> Result<Arc<Running>, Refusal> {
        let Ready { prepared, until, approving, recording, conversation, said, kept, guard } = ready;
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
        let running = Arc::new(Running::new(turn, conversation, until.child_token()));
        let with = Drive {
            upstreams: prepared.upstreams,
            approving,
            tools: prepared.tools,
            authority: prepared.authority,
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

    /// What is approved for all of the conversation is so for later turns, too.
    async fn learn(&self, running: &Running, event: &ChatEvent) {
        let ChatEvent::ApprovalDecided(ask) = event else { return };
        if ask.decision.as_ref().is_none_or(|decision| decision.verdict != Verdict::Always) {
            return;
        }
        if let Err(error) = self.store.approve_always(&running.conversation, &ask.tool).await {
            error!(turn = running.turn, %error, "an approval for the conversation could not be kept");
        }
    }

    /// What the last turn of a conversation ended with; what is too old by now is a no.
    async fn waiting(&self, conversation: &str) -> Result<Option<Waiting>, StoreError> {
        let left = self.store.waiting(conversation).await?;
        Ok(left.map(|LeftWaiting { mut waiting, created, .. }| {
            if created < approvals::oldest() {
                approvals::expire(&mut waiting);
            }
            waiting
        }))
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
