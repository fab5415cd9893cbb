//! An upstream on loopback that says what it is told to, and checks every request it gets. It speaks five APIs on one port;
//! a request's path says which ([`Wire`]), and a script is the same for all.

mod asked;
mod chat;
mod check;
mod gemini;
mod memory;
mod messages;
mod ollama;
mod received;
mod render;
mod reply;
mod responses;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::serve::ListenerExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::runtime::{block_on, spawn};
use crate::wait::eventually;

pub use asked::{Asked, Called, Said, Tool};
pub use received::{Received, offered_tools, rounds_so_far};
pub use reply::{Answer, Call, End, Reply};
pub use wire::Wire;

use check::Raw;
use memory::Memory;
use render::Asking;

type Script = Box<dyn FnMut(usize, &Received) -> Option<Reply> + Send>;

struct Shared {
    script: Mutex<Script>,
    received: Mutex<Vec<Received>>,
    violations: Mutex<Vec<String>>,
    memory: Mutex<Memory>,
    asked: AtomicUsize,
    /// Whether what is for no API is answered by the script, too.
    takes_all: AtomicBool,
    /// Replies the client did not stay for: the number of the request, and when that was noticed.
    aborted: Mutex<Vec<(usize, Instant)>>,
}

impl Shared {
    fn violates(&self, number: usize, problems: impl IntoIterator<Item = String>) {
        let problems = problems.into_iter().map(|problem| format!("request {number}: {problem}"));
        self.violations.lock().unwrap().extend(problems);
    }
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
        Self::start_at("127.0.0.1:0", script)
    }

    /// A rule that makes the reply from the request alone, whatever API it came through.
    pub fn start_by(mut script: impl FnMut(&Received) -> Option<Reply> + Send + 'static) -> Self {
        block_on(Self::listen("127.0.0.1:0", Box::new(move |_, received| script(received))))
    }

    /// As [`ScriptedModel::start_with`], on this address.
    pub fn start_at(
        address: &str,
        mut script: impl FnMut(usize, &Value) -> Option<Reply> + Send + 'static,
    ) -> Self {
        block_on(Self::listen(address, Box::new(move |number, received| script(number, &received.body))))
    }

    async fn listen(address: &str, script: Script) -> Self {
        let listener = TcpListener::bind(address).await.expect("an address for the scripted model");
        let address = listener.local_addr().expect("the address of a bound listener");
        // Else each answer waits for the acknowledgement of its head, which the other side puts off for 40 ms.
        let listener = listener.tap_io(|connection| {
            // A connection that is gone already needs nothing.
            let _ = connection.set_nodelay(true);
        });
        let shared = Arc::new(Shared {
            script: Mutex::new(script),
            received: Mutex::default(),
            violations: Mutex::default(),
            memory: Mutex::default(),
            asked: AtomicUsize::new(0),
            takes_all: AtomicBool::new(false),
            aborted: Mutex::default(),
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

    /// Lets it stand for a server that is no model, too: its script answers whatever is asked.
    pub fn taking_all(self) -> Self {
        self.shared.takes_all.store(true, Ordering::SeqCst);
        self
    }

    /// With `/v1`, as the `base_url` of an OpenAI-compatible API is written.
    pub fn base_url(&self) -> String {
        self.url("/v1")
    }

    /// With this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
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
        self.shared.aborted.lock().unwrap().len()
    }

    /// The same by the number of the request, each with the time at which it was noticed.
    pub fn aborts(&self) -> HashMap<usize, Instant> {
        self.shared.aborted.lock().unwrap().iter().copied().collect()
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

    /// The rules that requests broke so far.
    pub fn violations(&self) -> Vec<String> {
        self.shared.violations.lock().unwrap().clone()
    }

    fn check(&self) {
        let violations = self.violations();
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
    number: usize,
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
            // a test that fails elsewhere may have poisoned it
            let mut aborted = self.shared.aborted.lock().unwrap_or_else(PoisonError::into_inner);
            aborted.push((self.number, Instant::now()));
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
    let wire = Wire::of(&uri.to_string()).filter(|_| method == Method::POST);
    let path = uri.to_string();
    let (asked, mut problems) = wire
        .map(|wire| check::read(wire, &Raw { path: &path, headers: &headers, body: &request }))
        .unwrap_or_default();
    let received = Received { method: method.to_string(), path, headers, body: request, wire, asked };
    shared.received.lock().unwrap().push(received.clone());
    let takes_all = shared.takes_all.load(Ordering::SeqCst);
    if method == Method::GET && !takes_all {
        return models();
    }
    let number = shared.asked.fetch_add(1, Ordering::SeqCst);
    let mut watch = Watch { shared: shared.clone(), number, done: false };
    let Some(wire) = wire.or(takes_all.then_some(Wire::Chat)) else {
        shared.violates(number, [format!("there is no API at {method} {}", received.path)]);
        watch.done();
        return (StatusCode::NOT_FOUND, Body::from("no such path")).into_response();
    };
    problems.extend(shared.memory.lock().unwrap().problems(wire, &received.asked));
    shared.violates(number, problems);
    let reply = (shared.script.lock().unwrap())(number, &received);
    let Some(reply) = reply else {
        shared.violates(number, [format!("nothing is scripted for it: {}", received.body)]);
        watch.done();
        return (StatusCode::INTERNAL_SERVER_ERROR, Body::from("the script has ended")).into_response();
    };
    let asking = Asking { number, body: &received.body, asked: &received.asked };
    render::respond(reply, wire, &asking, &shared.memory, watch).await
}

/// A list of models that every API's clients can read.
fn models() -> Response {
    let list = json!({
        "object": "list",
        "data": [{"id": "scripted", "object": "model", "type": "model"}],
        "models": [{"name": "scripted", "model": "scripted"}],
    });
    axum::Json(list).into_response()
}
