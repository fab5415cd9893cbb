//! The side of a connection that calls go through.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lf_core::pins::Peer as Identity;
use lf_core::project::{Elicitation, Generation};
use lf_core::tool::{Attendant, ToolProgress};
use lf_core::visible;
use rmcp::RoleClient;
use rmcp::model::{
    CancelledNotificationParam, ClientRequest, ErrorCode, GetExtensions as _, RequestId, RequestMetaObject,
    ServerResult, SubscriptionFilter, SubscriptionsListenRequest, SubscriptionsListenRequestParams,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::task::TaskTracker;

use super::asking::{ANSWER_LIMIT, Answering, Asked, Attending, Patience};
use super::client::Client;
use super::explain::unanswered;
use super::rounds::VISIT_FIRST;
use super::turns::{Ask, Turns};
use crate::failure::{Failure, excerpt};
use crate::http::{BROKEN_OFF, Fate, MAX_BODY, Once, called_tool};
use crate::sse::SseError;
use crate::stdio::{MAX_LINE, OVERSIZED};
use crate::tap::Signals;

/// Characters shown of what a server calls itself.
const SHOWN_NAME: usize = 200;
/// URLs that one call is sent to.
const MAX_VISITS: usize = 8;
/// Characters shown of a refusal.
const SHOWN_REFUSAL: usize = 2_000;

/// The side of a connection that calls go through; cheap to clone.
#[derive(Clone)]
pub(crate) struct Link {
    peer: Peer<RoleClient>,
    pub(crate) signals: Arc<Signals>,
    /// Empty over stdio.
    base_url: Arc<str>,
    /// The name that the file gives the server.
    pub(super) server: Arc<str>,
    pub(super) policy: Elicitation,
    tracker: TaskTracker,
    pub(super) turns: Turns,
    pub(crate) about: Arc<About>,
}

/// What the server said of itself.
#[derive(Debug, PartialEq)]
pub(crate) struct About {
    pub(crate) protocol: String,
    pub(crate) generation: Generation,
    /// Whether it tells when its tools change.
    pub(crate) tells_changes: bool,
    /// Name and version.
    pub(crate) server: Option<(String, String)>,
    /// All of it, as MCP writes it.
    pub(crate) said: Value,
    /// What of it a lock holds.
    pub(crate) peer: Arc<Identity>,
}

impl About {
    /// What the server declares of one of its abilities; `None` where it has no such ability.
    pub(crate) fn capability(&self, name: &str) -> Option<&Value> {
        self.said.get("capabilities")?.get(name).filter(|declared| !declared.is_null())
    }
}

/// Why a request got no usable answer.
#[derive(Debug, Clone)]
pub(crate) enum AskError {
    Timeout(Duration),
    /// The connection ended before the answer.
    Closed,
    /// The request could not be sent: the server does not know of it.
    Unsent(Failure),
    /// Sending the request failed in another way: it may have been run.
    Broken(Failure),
    Refused {
        message: String,
        code: i64,
        data: Option<Value>,
    },
    TooLarge(usize),
    /// Nothing was run: a person has to visit these URLs first, each as the parameters of a question.
    VisitFirst {
        message: String,
        visits: Vec<Value>,
    },
    /// What was agreed on with the server holds no longer: the request was not run, and a new connection may do.
    Outdated(Failure),
    /// The request was not run, and the connection is as good as before: for want of credentials, or because there are
    /// too many. It may be sent after the pause that the server names.
    TurnedAway {
        failure: Failure,
        after: Option<Duration>,
    },
    /// Whoever attends the call has it not sent, for this reason.
    Forbidden(String),
}

impl Link {
    pub(super) fn new(
        running: &RunningService<RoleClient, Client>,
        signals: Arc<Signals>,
        tracker: TaskTracker,
        base_url: &str,
    ) -> Self {
        let peer = running.peer().clone();
        let clean = |text: &str| signals.secrets.content(excerpt(text, SHOWN_NAME));
        let info = peer.peer_info();
        let info = info.as_deref();
        let protocol = info.map(|info| info.protocol_version.to_string()).unwrap_or_default();
        let tools = info.and_then(|info| info.capabilities.tools.as_ref());
        let server = info.and_then(|info| info.server_info.as_ref());
        let said = signals.secrets.value(serde_json::to_value(info).unwrap_or_default());
        let about = About {
            generation: Generation::of(&protocol),
            protocol: clean(&protocol),
            tells_changes: tools.is_some_and(|tools| tools.list_changed == Some(true)),
            server: server.map(|server| (clean(&server.name), clean(&server.version))),
            // as it was sent: what is hidden counts, too
            peer: Identity::of(&said).into(),
            said: visible::value(said),
        };
        let client = running.service();
        let (server, policy) = (client.server.clone(), client.policy);
        Self {
            peer,
            signals,
            base_url: base_url.into(),
            server,
            policy,
            tracker,
            turns: Turns::default(),
            about: Arc::new(about),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.peer.is_transport_closed()
    }

    /// Asks the server to tell when its tools change, and waits until that ends. `Err` when it does not want to.
    /// Dropping the future ends it.
    pub(crate) async fn listen(&self) -> Result<(), AskError> {
        self.listen_to(self.wanted_changes(), &|_| {}).await
    }

    /// The same for what a filter names; what the subscription is called is told before its acknowledgement is awaited.
    pub(crate) async fn listen_to(
        &self,
        filter: SubscriptionFilter,
        named: &(dyn Fn(RequestId) + Send + Sync),
    ) -> Result<(), AskError> {
        let params = SubscriptionsListenRequestParams::new(filter);
        let request = ClientRequest::SubscriptionsListenRequest(SubscriptionsListenRequest::new(params));
        // What comes over the stream is taken off by the tap, as everything else that a server says on its own.
        let sending = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let handle = sending.await.map_err(|error| self.ask_error(error))?;
        named(handle.id.clone());
        let mut cancel = CancelOnDrop { link: self, id: Some(handle.id.clone()) };
        let _listening = self.signals.listening();
        let ended = handle.rx.await;
        cancel.id = None;
        match ended {
            Ok(Ok(_)) | Err(_) => Ok(()),
            Ok(Err(error)) => Err(self.ask_error(error)),
        }
    }

    /// Of the tools, and, where others are told of them, of everything else that the server tells.
    fn wanted_changes(&self) -> SubscriptionFilter {
        let tells = |what: &str| {
            self.signals.inbox.is_open()
                && self.about.capability(what).is_some_and(|declared| declared["listChanged"] == true)
        };
        let mut filter = SubscriptionFilter::default();
        filter.tools_list_changed = self.about.tells_changes.then_some(true);
        filter.prompts_list_changed = tells("prompts").then_some(true);
        filter.resources_list_changed = tells("resources").then_some(true);
        filter
    }

    /// Asks for something in which the server has nothing to ask back.
    pub(crate) async fn ask(
        &self,
        request: ClientRequest,
        limits: (Duration, Duration),
    ) -> Result<ServerResult, AskError> {
        self.send(Ask { request, limits, told: &|_: ToolProgress| {}, asked: None, meta: None }).await
    }

    /// Asks for something that somebody attends: they are told of progress, and asked what the server asks meanwhile.
    /// What it reports and fails with holds no secrets; the result is as it came.
    pub(crate) async fn ask_with(
        &self,
        request: ClientRequest,
        limits: (Duration, Duration),
        attendant: &dyn Attendant,
        meta: Option<RequestMetaObject>,
    ) -> Result<ServerResult, AskError> {
        self.send(Ask { request, limits, told: attendant, asked: Some(attendant), meta }).await
    }

    /// Sends a request at once.
    pub(super) async fn send_now(&self, ask: Ask<'_>) -> Result<ServerResult, AskError> {
        let Ask { mut request, limits: (limit, total), told, asked, meta } = ask;
        if let Some(Err(reason)) = asked.map(Attendant::may_send) {
            return Err(AskError::Forbidden(reason));
        }
        if told.tries_again() {
            request.extensions_mut().insert(Once);
        }
        let tool = called_tool(&request).map(str::to_owned);
        let Some(_asking) = self.signals.ask() else {
            let trouble = self.signals.trouble();
            return Err(AskError::Unsent(trouble.unwrap_or_else(|| Failure::new("the connection ended"))));
        };
        let now = Instant::now();
        let mut end = now + total;
        let mut idle_end = now + limit;
        let mut options = PeerRequestOptions::no_options();
        options.meta = meta;
        // before it is sent: what the server asks may be here before this goes on
        let mut questions = asked.map(|asked| (self.signals.attend(asked), asked));
        let sending = self.peer.send_cancellable_request(request, options);
        let mut handle: RequestHandle<RoleClient> = match timeout_at(idle_end.min(end), sending).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(error)) => return Err(self.ask_error(error)),
            Err(_) => return Err(AskError::Timeout(limit)),
        };
        let mut reports = self.signals.progress(handle.progress_token.clone());
        let mut cancel = CancelOnDrop { link: self, id: Some(handle.id.clone()) };
        if let Some((attending, _)) = &questions {
            attending.sent(&handle.id);
        }
        let mut answering: Option<Answering<'_>> = None;
        let mut patience = Patience::default();
        let mut last = f64::NEG_INFINITY;
        let mut report = |update: ToolProgress| {
            // The protocol wants it to increase; what does not was overtaken.
            if update.progress > last {
                last = update.progress;
                let message = update.message.map(|message| self.signals.secrets.content(message));
                told.progress(ToolProgress { message, ..update });
            }
        };
        let answer = loop {
            tokio::select! {
                biased;
                Some(update) = reports.receiver.recv() => {
                    idle_end = Instant::now() + limit;
                    report(update);
                }
                answer = &mut handle.rx => break answer,
                answered = Answering::settle(&mut answering) => {
                    end += answered.waited;
                    idle_end = Instant::now() + limit;
                    if answered.is_visiting {
                        // what the server waits for now takes as long as an answer of a person
                        idle_end += ANSWER_LIMIT;
                        end = end.max(idle_end);
                    }
                }
                asked = next(&mut questions), if answering.is_none() => {
                    let (asked, attendant) = asked;
                    answering = match patience.take() {
                        true => Some(Answering::start(self, asked, tool.as_deref(), attendant)),
                        false => {
                            asked.turn_down();
                            None
                        }
                    };
                }
                () = sleep_until(idle_end.min(end)), if answering.is_none() => {
                    return Err(AskError::Timeout(if end < idle_end { total } else { limit }));
                }
            }
        };
        cancel.id = None;
        while let Ok(update) = reports.receiver.try_recv() {
            report(update);
        }
        answer.map_err(|_| AskError::Closed)?.map_err(|error| self.ask_error(error))
    }

    fn ask_error(&self, error: ServiceError) -> AskError {
        // whole and before it is cut: the half of a secret is not found any more
        let refused = |message: &str, code, data: Option<Value>| {
            let message = excerpt(&self.signals.secrets.message(message), SHOWN_REFUSAL);
            AskError::Refused { message, code, data: data.map(|data| self.signals.secrets.value(data)) }
        };
        match error {
            ServiceError::McpError(error) if error.code == OVERSIZED => {
                AskError::TooLarge(if self.base_url.is_empty() { MAX_LINE } else { MAX_BODY })
            }
            ServiceError::McpError(error) if error.code == BROKEN_OFF => {
                AskError::Broken(Failure::new(self.signals.secrets.message(&error.message)))
            }
            ServiceError::McpError(error) if error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
                let reason = format!("does not speak revision {} any more", self.about.protocol);
                AskError::Outdated(Failure::new(reason))
            }
            ServiceError::McpError(error) if i64::from(error.code.0) == VISIT_FIRST => {
                let visits = error.data.as_ref().and_then(|data| data["elicitations"].as_array());
                let visits = visits.into_iter().flatten().filter(|visit| visit["mode"] == "url");
                let visits: Vec<Value> = visits.take(MAX_VISITS).cloned().collect();
                let message = excerpt(&self.signals.secrets.message(&error.message), SHOWN_REFUSAL);
                match visits.is_empty() {
                    true => AskError::Refused { message, code: VISIT_FIRST, data: None },
                    false => AskError::VisitFirst { message, visits },
                }
            }
            ServiceError::McpError(error) => refused(&error.message, i64::from(error.code.0), error.data),
            ServiceError::TransportSend(error) => self.send_error(&*error.error),
            ServiceError::Timeout { timeout } => AskError::Timeout(timeout),
            ServiceError::TransportClosed => AskError::Closed,
            other => refused(&other.to_string(), -32_603, None),
        }
    }

    /// The request's own error where it tells: the signals' trouble may be that of another request.
    fn send_error(&self, error: &(dyn std::error::Error + 'static)) -> AskError {
        // over stdio the end of the process says more than that of its pipe, which is given up with the first message
        // that it did not take
        match (error.downcast_ref::<io::Error>().map(io::Error::kind), self.signals.trouble()) {
            (Some(io::ErrorKind::NotConnected), Some(trouble)) => return AskError::Unsent(trouble),
            (Some(io::ErrorKind::NotConnected | io::ErrorKind::BrokenPipe), _) => return AskError::Closed,
            _ => {}
        }
        let own = crate::http::failure_of(error, &self.base_url)
            .or_else(|| error.downcast_ref::<SseError>().map(|error| (error.failure.clone(), error.fate)));
        let (failure, fate) = own.unwrap_or_else(|| {
            let trouble = self.signals.trouble();
            (trouble.unwrap_or_else(|| Failure::new(excerpt(&error.to_string(), 200))), Fate::Unknown)
        });
        let failure = self.signals.secrets.failure(&failure);
        match fate {
            Fate::Unsent => AskError::Unsent(failure),
            Fate::TurnedAway(after) => AskError::TurnedAway { failure, after },
            Fate::Outdated => AskError::Outdated(failure),
            Fate::TooLarge => AskError::TooLarge(MAX_BODY),
            Fate::Unknown => AskError::Broken(failure),
        }
    }

    /// What to tell of a server that did not answer a request of ours.
    pub(crate) fn failure_of(&self, error: AskError, what: &str) -> Failure {
        match error {
            AskError::Timeout(_) => unanswered(what),
            AskError::Closed => {
                let trouble = self.signals.trouble();
                trouble.unwrap_or_else(|| Failure::new(format!("closed the connection at {what}")))
            }
            AskError::Unsent(failure)
            | AskError::Broken(failure)
            | AskError::Outdated(failure)
            | AskError::TurnedAway { failure, .. } => failure,
            AskError::Refused { message, code, .. } => {
                Failure::new(format!("refused {what}: {message} (code {code})"))
            }
            AskError::VisitFirst { message, .. } => {
                Failure::new(format!("refused {what}: {message} (code {VISIT_FIRST})"))
            }
            AskError::Forbidden(reason) => Failure::new(format!("was not sent {what}: {reason}")),
            AskError::TooLarge(limit) => {
                Failure::new(format!("answered {what} with more than {limit} bytes"))
            }
        }
    }
}

/// The next question; never where there are none.
async fn next<'a>(questions: &mut Option<(Attending, &'a dyn Attendant)>) -> (Asked, &'a dyn Attendant) {
    let Some((attending, attendant)) = questions else { return std::future::pending().await };
    match attending.waiting.recv().await {
        Some(asked) => (asked, *attendant),
        None => std::future::pending().await,
    }
}

/// Tells the server that nobody waits for this request any more.
struct CancelOnDrop<'a> {
    link: &'a Link,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        const SEND_LIMIT: Duration = Duration::from_secs(5);
        let Some(id) = self.id.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let peer = self.link.peer.clone();
        let cancelling = self.link.signals.cancelling();
        self.link.tracker.spawn_on(
            async move {
                let _cancelling = cancelling;
                let params = CancelledNotificationParam::new(
                    Some(id),
                    Some("the caller does not wait any longer".to_owned()),
                );
                let _ = timeout(SEND_LIMIT, peer.notify_cancelled(params)).await;
            },
            &runtime,
        );
    }
}
