//! Conversations that are kept. Each of their turns runs by itself, whoever watches it, and is in the journal before it is
//! acted on or shown; what the daemon leaves unfinished goes on when it is back.

mod context;
mod recovery;
mod resumes;
mod running;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use lf_core::model::ChatRequest;
use lf_core::turn::{Course, Decision, Done, Entry, Verdict, Waiting};
use lf_core::{ChatEvent, Journal as _, Message, Project};
use lf_store::{Begin, Conversation, LeftWaiting, Store, StoreError, TurnState};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info};

use crate::app::{App, Refusal};
use crate::approvals::{self, About, Attendance, Outcome};
use crate::chat::{self, Prepared};
use crate::driver::{Approving, Drive, drive};

pub(crate) use context::pending;
use context::unsaid;
pub(crate) use recovery::events as events_of;
pub(crate) use resumes::Resumes;
pub(crate) use running::Running;

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
}

impl Memory {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            running: Mutex::default(),
            order: Mutex::default(),
            tasks: TaskTracker::new(),
            leave: CancellationToken::new(),
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
        self.tasks.close();
        tokio::select! {
            () = self.tasks.wait() => return,
            () = now.cancelled() => self.leave.cancel(),
        }
        self.tasks.wait().await;
    }

    /// Waits until it is this caller's turn to speak.
    pub(crate) async fn turn_to_speak(&self, conversation: &str) -> tokio::sync::OwnedMutexGuard<()> {
        self.order_of(conversation).lock_owned().await
    }

    /// The same without waiting; `None` while a turn runs.
    pub(crate) fn quiet(&self, conversation: &str) -> Option<tokio::sync::OwnedMutexGuard<()>> {
        self.order_of(conversation).try_lock_owned().ok()
    }

    fn order_of(&self, conversation: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        order.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = order.get(conversation).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        order.insert(conversation.to_owned(), Arc::downgrade(&lock));
        lock
    }
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
    /// watches. Waits while another turn runs in it.
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
        let guard = memory.turn_to_speak(&conversation.id).await;
        let Saying { mut request, chosen_tools, calls_left, attendance } = saying;
        request.model = request.model.filter(|name| !name.is_empty()).or_else(|| conversation.model.clone());
        let kept = memory.store.messages(&conversation.id, 0).await.map_err(|error| unkept(&error))?;
        // they are of this request, and nothing that was said
        let (systems, said): (Vec<Message>, Vec<Message>) = std::mem::take(&mut request.messages)
            .into_iter()
            .partition(|message| matches!(message, Message::System(_)));
        let said = unsaid(&kept, said);
        let budget = context::budget(&self.find_model(scope, request.model.as_deref()).await?.1);
        let shown = context::window(conversation, &systems, &kept, &said, budget);
        let tools = match chosen_tools {
            true => Some(memory.store.tools(&conversation.id).await.map_err(|error| unkept(&error))?),
            false => None,
        };
        let waiting = memory.waiting(&conversation.id).await.map_err(|error| unkept(&error))?;
        let always = memory.store.approved(&conversation.id).await.map_err(|error| unkept(&error))?;
        let with = chat::Conversation {
            before: shown.into(),
            tools,
            calls_left,
            always,
            waiting,
            ..chat::Conversation::default()
        };
        let prepared = self.prepare(scope, request, with).await?;
        self.set_going(prepared, &conversation.id, named(said), attendance, guard).await
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
        guard: tokio::sync::OwnedMutexGuard<()>,
    ) -> Result<Arc<Running>, Refusal> {
        let memory = self.memory()?;
        let turn = prepared.setup.id.clone();
        let begun = Entry::Begun(Box::new(prepared.setup.clone()));
        let begin = Begin { turn: &turn, conversation, said: &said, begun: &begun };
        let mut journal = memory.store.begin(begin).await.map_err(|error| unkept(&error))?;
        let mut events = Vec::new();
        let turn_timeout = prepared.setup.limits.turn_timeout;
        let approving = Approving {
            approvals: self.approvals.clone(),
            about: About {
                project: prepared.project,
                model: Some(prepared.setup.model.clone()),
                turn: Some(turn.clone()),
                conversation: Some(conversation.to_owned()),
            },
            attendance,
            wait: prepared.setup.limits.approval_timeout,
        };
        let mut course = Course::new(prepared.setup, &mut events);
        for notice in prepared.notices {
            let entry = Entry::Notice(notice);
            journal.append(&entry);
            let _ = course.take(entry, &mut events);
        }
        let running = Arc::new(Running::new(turn, conversation.to_owned()));
        let with = Drive {
            upstreams: prepared.upstreams,
            approving,
            tools: prepared.tools,
            turn_timeout,
            person: None,
            journal: Some(Box::new(journal)),
            stop: Some(running.stop.clone()),
            remember: Box::new(|_| {}),
        };
        memory.run(running.clone(), course, events, with, guard);
        Ok(running)
    }
}

impl Memory {
    /// Lets a turn run. It is over when its end is kept.
    fn run(
        self: &Arc<Self>,
        running: Arc<Running>,
        course: Course,
        events: Vec<ChatEvent>,
        mut with: Drive,
        guard: tokio::sync::OwnedMutexGuard<()>,
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
        self.tasks.spawn(async move {
            let mut events = std::pin::pin!(drive(course, events, with));
            loop {
                let event = tokio::select! {
                    biased;
                    () = memory.leave.cancelled() => break,
                    event = events.next() => event,
                };
                let Some(event) = event else { break };
                memory.learn(&running, &event).await;
                if let Some(state) = running.ends_with(&event) {
                    let done = done.lock().unwrap_or_else(PoisonError::into_inner).take();
                    memory.end(&running, state, done).await;
                }
                running.tell(event);
            }
            memory.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&running.turn);
            running.over();
            drop(guard);
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

    async fn end(&self, running: &Running, state: TurnState, done: Option<Done>) {
        // before the end is kept: a turn that has no end is ended again after a crash
        if let Some(waiting) = done.as_ref().and_then(|done| done.waiting.as_ref())
            && let Err(error) = self.store.leave(&running.conversation, waiting).await
        {
            error!(turn = running.turn, %error, "calls that wait for an approval could not be kept");
        }
        let said = named(done.map(|done| done.said.to_vec()).unwrap_or_default());
        let ended = self.store.end(&running.turn, &running.conversation, state, &said).await;
        if let Err(error) = ended {
            error!(turn = running.turn, %error, "the end of a turn could not be kept; it is gone on with at the next start");
        }
        info!(turn = running.turn, conversation = running.conversation, state = state.name(), "turn kept");
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
    Refusal::NoMemory { reason: error.to_string() }
}
