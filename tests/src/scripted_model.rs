//! An OpenAI-compatible upstream on loopback that says what it is told to, and checks every request it gets.

mod check;
mod render;
mod reply;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::runtime::{block_on, spawn};
use crate::wait::eventually;

pub use check::{offered_tools, rounds_so_far};
pub use reply::{Answer, Call, End, Reply};

/// What came in.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: String,
    /// With the query.
    pub path: String,
    pub headers: HeaderMap,
    /// `null` where the body is no JSON.
    pub body: Value,
}

impl Received {
    /// The messages of the request.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The result for a call id, as text.
    pub fn result_of(&self, call_id: &str) -> Option<String> {
        let message = self.messages().iter().find(|message| message["tool_call_id"] == call_id)?;
        Some(match &message["content"] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    }

    /// Names of the tools offered through the API's `tools`.
    pub fn tool_names(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).map(str::to_owned).collect()
    }
}

type Script = Box<dyn FnMut(usize, &Value) -> Option<Reply> + Send>;

struct Shared {
    script: Mutex<Script>,
    received: Mutex<Vec<Received>>,
    violations: Mutex<Vec<String>>,
    asked: AtomicUsize,
    aborted: AtomicUsize,
}

/// A running upstream; it ends with this value.
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    /// How many replies were scripted; `None` for a rule.
    scripted: Option<usize>,
}

impl ScriptedModel {
    /// One reply per chat request, in this order; a further request is a violation.
    pub fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies: Vec<Reply> = replies.into_iter().collect();
        let scripted = replies.len();
        let mut model = Self::start_with(move |number, _| replies.get(number).cloned());
        model.scripted = Some(scripted);
        model
    }

    /// A rule that makes the reply from the number of the request (from 0) and its body.
    pub fn start_with(script: impl FnMut(usize, &Value) -> Option<Reply> + Send + 'static) -> Self {
        block_on(Self::listen("127.0.0.1:0", Box::new(script)))
    }

    /// As [`ScriptedModel::start_with`], on this address.
    pub fn start_at(
        address: &str,
        script: impl FnMut(usize, &Value) -> Option<Reply> + Send + 'static,
    ) -> Self {
        block_on(Self::listen(address, Box::new(script)))
    }

    async fn listen(address: &str, script: Script) -> Self {
        let listener = TcpListener::bind(address).await.expect("an address for the scripted model");
        let address = listener.local_addr().expect("the address of a bound listener");
        let shared = Arc::new(Shared {
            script: Mutex::new(script),
            received: Mutex::default(),
            violations: Mutex::default(),
            asked: AtomicUsize::new(0),
            aborted: AtomicUsize::new(0),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let router = Router::new().fallback(any(answer)).with_state(shared.clone());
        spawn(async move {
            tokio::select! {
                _ = axum::serve(listener, router) => {}
                _ = stopped => {}
            }
        });
        Self { address, shared, stop: Some(stop), scripted: None }
    }

    /// With `/v1`, as a `base_url` is written.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Every request so far.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// The chat requests so far, in order.
    pub fn asked(&self) -> Vec<Received> {
        self.received().into_iter().filter(|request| request.method == "POST").collect()
    }

    /// The body of one chat request.
    pub fn request(&self, number: usize) -> Received {
        let asked = self.asked();
        asked.get(number).unwrap_or_else(|| panic!("the model was asked {} times only", asked.len())).clone()
    }

    /// Waits until that many chat requests are in.
    pub fn wait_for_requests(&self, count: usize) {
        eventually(&format!("{count} requests at the model"), || {
            (self.shared.asked.load(Ordering::SeqCst) >= count).then_some(())
        });
    }

    /// Replies the client did not stay for.
    pub fn aborted(&self) -> usize {
        self.shared.aborted.load(Ordering::SeqCst)
    }

    /// Waits until a client has gone away in the middle of a reply.
    pub fn wait_for_abort(&self) {
        eventually("the client to give up its request to the model", || (self.aborted() > 0).then_some(()));
    }

    /// Fails when a request broke a rule, or when replies are left over.
    pub fn finish(self) {
        self.check();
        if let Some(scripted) = self.scripted {
            let asked = self.asked().len();
            assert_eq!(
                asked, scripted,
                "the model was asked {asked} times, {scripted} replies were scripted"
            );
        }
    }

    fn check(&self) {
        let violations = self.shared.violations.lock().unwrap();
        assert!(violations.is_empty(), "the model was sent what it must not be:\n{}", violations.join("\n"));
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if !std::thread::panicking() {
            self.check();
        }
    }
}

/// Counts a reply that was dropped before its end.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    done: bool,
}

impl Watch {
    pub(crate) fn done(&mut self) {
        self.done = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.done {
            self.shared.aborted.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    shared.received.lock().unwrap().push(Received {
        method: method.to_string(),
        path: uri.to_string(),
        headers,
        body: request.clone(),
    });
    if method == Method::GET {
        return axum::Json(json!({"object": "list", "data": [{"id": "scripted", "object": "model"}]}))
            .into_response();
    }
    let mut watch = Watch { shared: shared.clone(), done: false };
    let number = shared.asked.fetch_add(1, Ordering::SeqCst);
    let problems = check::problems(&request);
    shared
        .violations
        .lock()
        .unwrap()
        .extend(problems.into_iter().map(|problem| format!("request {number}: {problem}")));
    let reply = (shared.script.lock().unwrap())(number, &request);
    let Some(reply) = reply else {
        let problem = format!("request {number}: nothing is scripted for it: {request}");
        shared.violations.lock().unwrap().push(problem);
        watch.done();
        return (StatusCode::INTERNAL_SERVER_ERROR, Body::from("the script has ended")).into_response();
    };
    render::respond(reply, &request, watch).await
}
