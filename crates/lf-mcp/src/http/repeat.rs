//! Which requests are sent again, and when.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::iter::Copied;
use std::slice::Iter;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetExtensions as _, JsonRpcMessage, ServerJsonRpcMessage,
    ServerResult,
};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

use super::describe::is_passing;
use super::{HttpError, is_unsent, told};
use crate::failure::Failure;
use crate::tap::{MAX_UNREACHED, Signals};

/// Before the second and third connect of one request: a server that restarts, or whose backlog was full, is there again.
const CONNECT_PAUSES: [Duration; MAX_UNREACHED - 1] =
    [Duration::from_millis(100), Duration::from_millis(400)];
/// Before a request that changes nothing is sent again to a server that failed on it.
const ERROR_PAUSES: [Duration; 2] = [Duration::from_millis(150), Duration::from_millis(450)];
/// Names of tools that are remembered; as many as a list may have.
const MAX_TOOLS: usize = 1_000;
/// Different tools that one connection may list.
const MAX_LISTED: usize = 10_000;

/// The tool that a request calls. What is passed on for a client is of no type of the library's.
pub(crate) fn called_tool(request: &ClientRequest) -> Option<&str> {
    match request {
        ClientRequest::CallToolRequest(call) => Some(&call.params.name),
        ClientRequest::CustomRequest(passed) if passed.method == "tools/call" => {
            let name = passed.params.as_ref().and_then(|params| params.get("name"));
            Some(name.and_then(Value::as_str).unwrap_or_default())
        }
        _ => None,
    }
}

/// Methods that change nothing.
const READING: [&str; 8] = [
    "tools/list",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "completion/complete",
    "ping",
];

/// The tools that change nothing, or nothing more when they run twice, as their server says.
#[derive(Debug, Default)]
pub(super) struct Repeatable {
    tools: Mutex<HashSet<String>>,
    /// Hashes of every name that was ever listed.
    listed: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl Repeatable {
    /// Takes up what a tool list says. The client library keeps the schema of every tool that was ever listed over a
    /// connection: one that lists other tools each time is replaced in time.
    pub(super) fn learn(&self, message: &ServerJsonRpcMessage, signals: &Signals) {
        let JsonRpcMessage::Response(response) = message else { return };
        let ServerResult::ListToolsResult(list) = &response.result else { return };
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_LISTED.saturating_sub(listed.len());
        listed.extend(list.tools.iter().map(|tool| self.hasher.hash_one(&tool.name)).take(room));
        if listed.len() >= MAX_LISTED {
            let reason = format!("listed more than {MAX_LISTED} different tools over one connection");
            signals.wear_out(Failure::new(reason));
        }
        let mut known = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        for tool in &list.tools {
            let is_repeatable = tool.annotations.as_ref().is_some_and(|hints| {
                hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true)
            });
            if !is_repeatable {
                known.remove(&*tool.name);
            } else if known.len() < MAX_TOOLS {
                known.insert(tool.name.to_string());
            }
        }
    }

    fn has(&self, tool: &str) -> bool {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).contains(tool)
    }
}

/// Goes with a request that its caller makes again, and the transport does not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Once;

/// The pauses that one request has left.
pub(super) struct Again {
    connects: Copied<Iter<'static, Duration>>,
    errors: Copied<Iter<'static, Duration>>,
}

impl Again {
    /// The opening of a session is repeated by its owner, with a backoff, a probe has another request to follow it, and
    /// notifications are waited for by nobody.
    pub(super) fn of(message: &ClientJsonRpcMessage, repeatable: &Repeatable) -> Self {
        let request = match message {
            JsonRpcMessage::Request(request) => Some(&request.request),
            _ => None,
        };
        let request = request.filter(|request| request.extensions().get::<Once>().is_none());
        let is_sent_again =
            request.is_some_and(|request| !matches!(request, ClientRequest::InitializeRequest(_)));
        let changes_nothing = request.is_some_and(|request| match called_tool(request) {
            Some(tool) => repeatable.has(tool),
            None => READING.contains(&request.method()),
        });
        let some = |pauses: &'static [Duration], wanted| if wanted { pauses } else { &[] }.iter().copied();
        Self { connects: some(&CONNECT_PAUSES, is_sent_again), errors: some(&ERROR_PAUSES, changes_nothing) }
    }

    /// How long to wait before the request is sent again; `None` when it is not.
    pub(super) fn after(&mut self, error: &HttpError) -> Option<Duration> {
        match error {
            StreamableHttpError::Client(cause) if is_unsent(error) => {
                self.connects.next().filter(|_| is_passing(cause))
            }
            error if is_server_error(error) => self.errors.next().map(jittered),
            _ => None,
        }
    }
}

fn is_server_error(error: &HttpError) -> bool {
    let status = told(error).and_then(|told| told.status);
    status.is_some_and(|status| {
        matches!(
            status,
            StatusCode::INTERNAL_SERVER_ERROR
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        )
    })
}

/// Whether the server itself was not reached, or only by somebody who stands for it.
pub(super) fn is_out_of_reach(error: &HttpError) -> bool {
    let status = told(error).and_then(|told| told.status);
    is_unsent(error)
        || status.is_some_and(|status| {
            matches!(
                status,
                StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
            )
        })
}

/// Up to half as long again, so that requests that failed together do not come back together.
fn jittered(pause: Duration) -> Duration {
    // A fresh hasher is keyed at random: enough for a jitter, without a random number generator.
    let share = u32::try_from(RandomState::new().hash_one(0) % 500).unwrap_or_default();
    pause * (1000 + share) / 1000
}
