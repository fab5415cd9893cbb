//! What a server says on its own while we wait for answers: progress, changed tool lists, and why it broke off; and
//! whether it can be reached at all.
//!
//! The client library handles each notification in a task of its own, so their order is lost there. They are taken
//! off here instead, in the order they arrive and before the answer that follows them.

mod unanswered;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lf_core::tool::ToolProgress;
use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, NumberOrString, ProgressToken, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::connection::Questions;
use crate::failure::Failure;
use crate::record::Record;
use crate::relay::Inbox;
use crate::secrets::Secrets;
use unanswered::Unanswered;

/// Reports of one call that wait for its caller; more are dropped, the newest first.
const PROGRESS_BUFFER: usize = 64;
/// Bytes of what one report says, which a person reads in passing.
const MAX_MESSAGE: usize = 4 * 1024;
/// Bytes of it that are looked through.
const MAX_READ: usize = 64 * 1024;
/// Bytes of a token that could be one of ours.
const MAX_TOKEN: usize = 256;
/// Names of tools that wait to be compared with a list; as many as a list may have.
const MAX_ANNOTATED: usize = 1_000;
/// Somebody has done what was to be done at a URL.
const VISITED: &str = "notifications/elicitation/complete";
/// Reports kept for calls that have not asked for theirs yet.
const UNCLAIMED: usize = 16;
/// Connects that fail in a row before a server counts as gone. As many are made for one request.
pub(crate) const MAX_UNREACHED: usize = 3;

/// One connection's signals, shared by its transport, its calls and its session.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    routes: Mutex<Routes>,
    tools_changed: AtomicBool,
    /// Notified with each change of the tools.
    changes: Notify,
    /// Whether the server has agreed to tell every change.
    is_told: AtomicBool,
    trouble: Mutex<Option<Failure>>,
    annotated: Mutex<Vec<String>>,
    /// Cancellations that are on their way to the server.
    cancelling: watch::Sender<usize>,
    reach: Mutex<Reach>,
    pub(crate) secrets: Arc<Secrets>,
    /// Where questions of the server find the calls that led to them.
    pub(crate) questions: Questions,
    /// For those whose requests are passed on.
    pub(crate) inbox: Arc<Inbox>,
    unanswered: Arc<Unanswered>,
    pub(crate) record: Arc<Record>,
    heard: AtomicU64,
    /// Cancelled when nothing can be sent any more, while what was sent may still be answered.
    pub(crate) stuck: CancellationToken,
    /// Why another connection is to take the place of this one, where that is why nothing is to be sent.
    worn_out: OnceLock<Failure>,
    /// Cancelled when the connection cannot be used any more although it is not closed. No request is waited for then.
    pub(crate) dead: CancellationToken,
}

#[derive(Debug, Default)]
struct Reach {
    /// Requests that wait for their answers.
    asking: usize,
    /// Connects that failed since the server was last heard of.
    unreached: usize,
}

#[derive(Debug, Default)]
struct Routes {
    calls: HashMap<ProgressToken, mpsc::Sender<ToolProgress>>,
    unclaimed: VecDeque<(ProgressToken, ToolProgress)>,
}

impl Signals {
    pub(crate) fn new(secrets: Arc<Secrets>, record: Arc<Record>) -> Self {
        Self { secrets, record, ..Self::default() }
    }

    /// How many messages came so far.
    pub(crate) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Acquire)
    }

    /// Keeps the connection alive for a request, as long as the guard lives. `None` when it is dead already.
    pub(crate) fn ask(self: &Arc<Self>) -> Option<Asking> {
        let mut reach = lock(&self.reach);
        if self.dead.is_cancelled() {
            return None;
        }
        reach.asking += 1;
        Some(Asking(self.clone()))
    }

    /// Counts a connect that failed. Other requests may still be answered over connections of their own: the server
    /// counts as gone only when nothing is waited for.
    pub(crate) fn unreached(&self) {
        let mut reach = lock(&self.reach);
        reach.unreached += 1;
        self.settle(&reach);
    }

    /// The server was heard of.
    pub(crate) fn reached(&self) {
        lock(&self.reach).unreached = 0;
    }

    /// The server wants a login: it is of no use once the requests that it has are answered.
    pub(crate) fn locked_out(&self) {
        let mut reach = lock(&self.reach);
        reach.unreached = MAX_UNREACHED;
        self.settle(&reach);
    }

    /// Has another connection take the place of this one; what was sent may still be answered.
    pub(crate) fn wear_out(&self, why: Failure) {
        let _ = self.worn_out.set(why);
        self.stuck.cancel();
    }

    /// Why nothing can be sent any more, as far as that is known.
    pub(crate) fn end_of_sending(&self) -> Option<Failure> {
        self.worn_out.get().cloned().or_else(|| self.trouble())
    }

    #[cfg(test)]
    pub(crate) fn unreached_in_a_row(&self) -> usize {
        lock(&self.reach).unreached
    }

    fn settle(&self, reach: &Reach) {
        if reach.asking == 0 && reach.unreached >= MAX_UNREACHED {
            self.dead.cancel();
        }
    }

    /// The progress of the call with this token, from its first report on.
    pub(crate) fn progress(self: &Arc<Self>, token: ProgressToken) -> ProgressRoute {
        let (sender, receiver) = mpsc::channel(PROGRESS_BUFFER);
        let mut routes = lock(&self.routes);
        for (_, report) in routes.unclaimed.iter().filter(|(owner, _)| *owner == token) {
            let _ = sender.try_send(report.clone());
        }
        routes.unclaimed.retain(|(owner, _)| *owner != token);
        routes.calls.insert(token.clone(), sender);
        ProgressRoute { receiver, token, signals: self.clone() }
    }

    pub(crate) fn tools_changed(&self) {
        self.tools_changed.store(true, Ordering::Release);
        self.changes.notify_one();
    }

    /// Counts a cancellation as on its way for as long as the guard lives.
    pub(crate) fn cancelling(self: &Arc<Self>) -> Cancelling {
        self.cancelling.send_modify(|count| *count += 1);
        Cancelling(self.clone())
    }

    /// Waits until no cancellation is on its way.
    pub(crate) async fn cancelled(&self) {
        let mut cancelling = self.cancelling.subscribe();
        let _ = cancelling.wait_for(|count| *count == 0).await;
    }

    /// Notes tools that came with arguments to be sent as headers.
    pub(crate) fn annotated(&self, tools: Vec<String>) {
        let mut annotated = lock(&self.annotated);
        annotated.extend(tools);
        annotated.truncate(MAX_ANNOTATED);
    }

    /// Those that were noted since the last call of this.
    pub(crate) fn take_annotated(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.annotated))
    }

    /// Waits for the next change of the tools; one waits at a time. Cancel-safe.
    pub(crate) async fn change(&self) {
        self.changes.notified().await;
    }

    /// Whether every change of the tools is told, so that a list holds until then.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Acquire)
    }

    /// What the server agrees to tell counts as long as the guard lives.
    pub(crate) fn listening(self: &Arc<Self>) -> Listening {
        Listening(self.clone())
    }

    pub(crate) fn are_tools_changed(&self) -> bool {
        self.tools_changed.load(Ordering::Acquire)
    }

    /// Whether the tools changed since the last call of this.
    pub(crate) fn take_tools_changed(&self) -> bool {
        self.tools_changed.swap(false, Ordering::AcqRel)
    }

    /// Notes why the connection is in trouble; the last note counts.
    pub(crate) fn note(&self, trouble: &Failure) {
        *lock(&self.trouble) = Some(self.secrets.failure(trouble));
    }

    pub(crate) fn clear_trouble(&self) {
        *lock(&self.trouble) = None;
    }

    pub(crate) fn trouble(&self) -> Option<Failure> {
        lock(&self.trouble).clone()
    }

    fn report(&self, token: ProgressToken, mut report: ToolProgress) {
        if matches!(&token.0, NumberOrString::String(token) if token.len() > MAX_TOKEN) {
            self.record.dropped();
            return;
        }
        // looked through for secrets before it is cut: the half of one is not found any more
        report.message = report.message.map(|mut message| {
            cut(&mut message, MAX_READ);
            let mut message = self.secrets.content(message);
            cut(&mut message, MAX_MESSAGE);
            message
        });
        let mut routes = lock(&self.routes);
        match routes.calls.get(&token) {
            Some(call) => {
                if call.try_send(report).is_err() {
                    self.record.dropped();
                }
            }
            None => {
                if routes.unclaimed.len() == UNCLAIMED {
                    routes.unclaimed.pop_front();
                    self.record.dropped();
                }
                routes.unclaimed.push_back((token, report));
            }
        }
    }
}

/// Cuts a text to this many bytes, between two characters.
fn cut(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push('…');
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cancellation on its way.
pub(crate) struct Cancelling(Arc<Signals>);

impl Drop for Cancelling {
    fn drop(&mut self) {
        self.0.cancelling.send_modify(|count| *count -= 1);
    }
}

/// A subscription to changes.
pub(crate) struct Listening(Arc<Signals>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.is_told.store(false, Ordering::Release);
    }
}

/// A request that waits for its answer.
pub(crate) struct Asking(Arc<Signals>);

impl Drop for Asking {
    fn drop(&mut self) {
        let mut reach = lock(&self.0.reach);
        reach.asking -= 1;
        self.0.settle(&reach);
    }
}

/// Where one call's progress arrives; it ends when dropped.
pub(crate) struct ProgressRoute {
    pub(crate) receiver: mpsc::Receiver<ToolProgress>,
    token: ProgressToken,
    signals: Arc<Signals>,
}

impl Drop for ProgressRoute {
    fn drop(&mut self) {
        lock(&self.signals.routes).calls.remove(&self.token);
    }
}

/// A transport whose notifications go to [`Signals`].
pub(crate) struct Tap<T> {
    pub(crate) transport: T,
    pub(crate) signals: Arc<Signals>,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tap<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answering = match &item {
            JsonRpcMessage::Response(answer) => Some(self.signals.unanswered.answering(Some(&answer.id))),
            JsonRpcMessage::Error(error) => Some(self.signals.unanswered.answering(error.id.as_ref())),
            _ => None,
        };
        let sending = self.transport.send(item);
        async move {
            let _answering = answering;
            sending.await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = self.transport.receive().await?;
            self.signals.heard.fetch_add(1, Ordering::AcqRel);
            if let JsonRpcMessage::Request(request) = &message
                && !self.signals.unanswered.admits(&request.id)
            {
                self.signals.record.dropped();
                continue;
            }
            let JsonRpcMessage::Notification(notification) = &message else { return Some(message) };
            self.signals.inbox.take(&notification.notification, &self.signals.secrets);
            match &notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    let params = progress.params.clone();
                    let report = ToolProgress {
                        progress: params.progress,
                        total: params.total,
                        message: params.message,
                    };
                    self.signals.report(params.progress_token, report);
                }
                ServerNotification::ToolListChangedNotification(_) => self.signals.tools_changed(),
                ServerNotification::SubscriptionsAcknowledgedNotification(agreed) => {
                    if agreed.params.notifications.tools_list_changed == Some(true) {
                        self.signals.is_told.store(true, Ordering::Release);
                    }
                }
                ServerNotification::CancelledNotification(taken_back) => {
                    if let Some(id) = &taken_back.params.request_id {
                        self.signals.unanswered.withdrawn(id);
                    }
                    return Some(message);
                }
                ServerNotification::CustomNotification(told) if told.method == VISITED => {
                    self.signals.questions.visited();
                }
                // Logs, resources, prompts, tasks and unknown ones: nothing of our own asked for them.
                _ if self.signals.inbox.is_open() => {}
                _ => self.signals.record.dropped(),
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}
