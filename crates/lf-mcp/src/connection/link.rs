//! The side of a connection that calls go through.

use std::sync::Arc;
use std::time::Duration;

use lf_core::project::Generation;
use lf_core::tool::{ToolOutput, ToolProgress};
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, ErrorCode,
    InputResponses, RequestId, ServerResult, SubscriptionFilter, SubscriptionsListenRequest,
    SubscriptionsListenRequestParams,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::task::TaskTracker;

use super::answer::{self, Answer};
use super::client::Client;
use super::elicitation;
use super::explain::unanswered;
use crate::failure::{Failure, excerpt};
use crate::sse::SseError;
use crate::stdio::{MAX_LINE, OVERSIZED};
use crate::tap::Signals;

/// Bytes of one result over HTTP.
const MAX_RESULT: usize = 16 * 1024 * 1024;
/// Requests for one call whose server wants input meanwhile, as many as other SDKs send.
const MAX_ROUNDS: usize = 10;
/// Characters shown of what a server calls itself.
const SHOWN_NAME: usize = 200;
/// Characters shown of a refusal.
const SHOWN_REFUSAL: usize = 2_000;

/// The side of a connection that calls go through; cheap to clone.
#[derive(Clone)]
pub(crate) struct Link {
    peer: Peer<RoleClient>,
    pub(crate) signals: Arc<Signals>,
    /// Empty over stdio.
    base_url: Arc<str>,
    tracker: TaskTracker,
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
}

/// Why a request got no usable answer.
#[derive(Debug)]
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
    },
    TooLarge(usize),
    /// What was agreed on with the server holds no longer: the request was not run, and a new connection may do.
    Outdated(Failure),
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
        let about = About {
            generation: Generation::of(&protocol),
            protocol: clean(&protocol),
            tells_changes: tools.is_some_and(|tools| tools.list_changed == Some(true)),
            server: server.map(|server| (clean(&server.name), clean(&server.version))),
        };
        Self { peer, signals, base_url: base_url.into(), tracker, about: Arc::new(about) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.peer.is_transport_closed()
    }

    /// Runs a tool. `limit` starts anew with each report of progress and each question that the server has meanwhile;
    /// `total` bounds it all. Dropping the future tells the server that the call is cancelled.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        (limit, total): (Duration, Duration),
        progress: &(dyn Fn(ToolProgress) + Send + Sync),
    ) -> Result<ToolOutput, AskError> {
        let end = Instant::now() + total;
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.clone());
        for _ in 0..MAX_ROUNDS {
            let request = ClientRequest::CallToolRequest(CallToolRequest::new(params.clone()));
            let left = end.saturating_duration_since(Instant::now());
            let result = self.ask(request, (limit, left), progress).await;
            let result = result.map_err(|error| match error {
                // what is told is the limit, not what was left of it
                AskError::Timeout(reached) if reached == left => AskError::Timeout(total),
                error => error,
            })?;
            let value = serde_json::to_value(&result).unwrap_or_default();
            match answer::read(value)? {
                Answer::Complete(fields) => {
                    let fields = self.signals.secrets.value(Value::Object(fields));
                    return answer::output(fields);
                }
                Answer::InputRequired { questions, state } => {
                    params.input_responses = Some(responses(questions)?);
                    params.request_state = state;
                }
            }
        }
        let message = format!("it asked for input more than {MAX_ROUNDS} times");
        Err(AskError::Refused { message, code: -32_603 })
    }

    /// Asks the server to tell when its tools change, and waits until that ends. `Err` when it does not want to.
    /// Dropping the future ends it.
    pub(crate) async fn listen(&self) -> Result<(), AskError> {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let params = SubscriptionsListenRequestParams::new(filter);
        let request = ClientRequest::SubscriptionsListenRequest(SubscriptionsListenRequest::new(params));
        // What comes over the stream is taken off by the tap, as everything else that a server says on its own.
        let sending = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let handle = sending.await.map_err(|error| self.ask_error(error))?;
        let mut cancel = CancelOnDrop { link: self, id: Some(handle.id.clone()) };
        let _listening = self.signals.listening();
        let ended = handle.rx.await;
        cancel.id = None;
        match ended {
            Ok(Ok(_)) | Err(_) => Ok(()),
            Ok(Err(error)) => Err(self.ask_error(error)),
        }
    }

    /// What it reports and fails with holds no secrets; the result is as it came.
    pub(super) async fn ask(
        &self,
        request: ClientRequest,
        (limit, total): (Duration, Duration),
        progress: &(dyn Fn(ToolProgress) + Send + Sync),
    ) -> Result<ServerResult, AskError> {
        let Some(_asking) = self.signals.ask() else {
            let trouble = self.signals.trouble();
            return Err(AskError::Unsent(trouble.unwrap_or_else(|| Failure::new("the connection ended"))));
        };
        let now = Instant::now();
        let end = now + total;
        let mut idle_end = now + limit;
        let sending = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let mut handle: RequestHandle<RoleClient> = match timeout_at(idle_end.min(end), sending).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(error)) => return Err(self.ask_error(error)),
            Err(_) => return Err(AskError::Timeout(limit)),
        };
        let mut reports = self.signals.progress(handle.progress_token.clone());
        let mut cancel = CancelOnDrop { link: self, id: Some(handle.id.clone()) };
        let mut last = f64::NEG_INFINITY;
        let mut report = |update: ToolProgress| {
            // The protocol wants it to increase; what does not was overtaken.
            if update.progress > last {
                last = update.progress;
                let message = update.message.map(|message| self.signals.secrets.content(message));
                progress(ToolProgress { message, ..update });
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
                () = sleep_until(idle_end.min(end)) => {
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
        let refused = |message: &str, code| {
            let message = excerpt(&self.signals.secrets.message(message), SHOWN_REFUSAL);
            AskError::Refused { message, code }
        };
        match error {
            ServiceError::McpError(error) if error.code == OVERSIZED => AskError::TooLarge(MAX_LINE),
            ServiceError::McpError(error) if error.code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION => {
                let reason = format!("does not speak revision {} any more", self.about.protocol);
                AskError::Outdated(Failure::new(reason))
            }
            ServiceError::McpError(error) => refused(&error.message, i64::from(error.code.0)),
            ServiceError::TransportSend(error) => self.send_error(&*error.error),
            ServiceError::TransportClosed if self.signals.trouble().as_ref().is_some_and(is_oversized) => {
                AskError::TooLarge(MAX_RESULT)
            }
            ServiceError::Timeout { timeout } => AskError::Timeout(timeout),
            ServiceError::TransportClosed => AskError::Closed,
            other => refused(&other.to_string(), -32_603),
        }
    }

    /// The request's own error where it tells: the signals' trouble may be that of another request.
    fn send_error(&self, error: &(dyn std::error::Error + 'static)) -> AskError {
        let own = crate::http::failure_of(error, &self.base_url).or_else(|| {
            error.downcast_ref::<SseError>().map(|error| (error.failure.clone(), error.is_unsent))
        });
        let (failure, is_unsent) = own.unwrap_or_else(|| {
            let trouble = self.signals.trouble();
            (trouble.unwrap_or_else(|| Failure::new(excerpt(&error.to_string(), 200))), false)
        });
        let failure = self.signals.secrets.failure(&failure);
        match failure {
            failure if crate::http::is_outdated(error) => AskError::Outdated(failure),
            failure if is_oversized(&failure) => AskError::TooLarge(MAX_RESULT),
            failure if is_unsent => AskError::Unsent(failure),
            failure => AskError::Broken(failure),
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
            AskError::Unsent(failure) | AskError::Broken(failure) | AskError::Outdated(failure) => failure,
            AskError::Refused { message, code } => {
                Failure::new(format!("refused {what}: {message} (code {code})"))
            }
            AskError::TooLarge(limit) => {
                Failure::new(format!("answered {what} with more than {limit} bytes"))
            }
        }
    }
}

/// What each question is answered. Only elicitation is declared, so nothing else may be asked.
fn responses(questions: Map<String, Value>) -> Result<InputResponses, AskError> {
    let answered =
        questions.into_iter().map(|(key, question)| match question.get("method").and_then(Value::as_str) {
            Some("elicitation/create") => Ok((key, elicitation::answer(&question["params"]).to_json())),
            other => {
                let asked = excerpt(other.unwrap_or("something unknown"), SHOWN_NAME);
                let message =
                    format!("it asked for `{asked}` in the middle of the call, which is not offered");
                Err(AskError::Refused { message, code: -32_603 })
            }
        });
    answered.collect()
}

/// The library has the same words for a body and for an event that is too large.
fn is_oversized(failure: &Failure) -> bool {
    failure.reason.contains("exceeded the maximum size")
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
