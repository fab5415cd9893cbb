//! A tool server that wants a token, and the authorization server that gives them: on loopback, and as well behaved or
//! as false as it is told. Whatever breaks a rule of OAuth is a violation.

mod grants;
mod guarded;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::runtime::{block_on, spawn};

/// How the two behave.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Seconds that a token holds.
    pub life: u64,
    /// Whether refresh tokens are given; each is good for one use.
    pub refresh: bool,
    pub registration: bool,
    pub revocation: bool,
    /// Of a client that is registered beforehand.
    pub secret: Option<String>,
    /// Laid over the metadata of the authorization server.
    pub metadata: Value,
    /// Laid over the metadata of the tool server.
    pub resource: Value,
    /// The `WWW-Authenticate` of a 401, where it is another.
    pub challenge: Option<String>,
    /// Laid over the fields of the redirect; null takes one away.
    pub redirect: Value,
    /// The scopes that a token must have for a call of the tool `write`.
    pub write_scopes: Vec<String>,
    /// What tokens are asked for, where it is not the tool server of this pair.
    pub audience: Option<String>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            life: 3600,
            refresh: true,
            registration: true,
            revocation: true,
            secret: None,
            metadata: json!({}),
            resource: json!({}),
            challenge: None,
            redirect: json!({}),
            write_scopes: vec!["read".to_owned(), "write".to_owned()],
            audience: None,
        }
    }
}

/// An access token that was given.
#[derive(Debug, Clone)]
struct Token {
    scopes: Vec<String>,
    expires: std::time::Instant,
}

/// A code that waits to be exchanged.
#[derive(Debug, Clone)]
struct Code {
    client: String,
    redirect_uri: String,
    challenge: String,
    resource: String,
    scopes: Vec<String>,
}

#[derive(Default)]
struct State {
    rules: Rules,
    tokens: HashMap<String, Token>,
    /// Those that hold no longer although they have not expired.
    refused: HashSet<String>,
    refreshes: HashMap<String, Vec<String>>,
    codes: HashMap<String, Code>,
    clients: HashMap<String, Value>,
    /// What happened: one word each, and what it was about.
    log: Vec<String>,
    violations: Vec<String>,
    given: usize,
}

/// Shared by the two servers and the test.
#[derive(Clone)]
struct Shared {
    state: Arc<Mutex<State>>,
    /// Of the tool server, without a path.
    tools: Arc<str>,
    /// Of the authorization server.
    issuer: Arc<str>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note(&mut self, line: impl Into<String>) {
        self.log.push(line.into());
    }

    fn violates(&mut self, rule: impl Into<String>) {
        self.violations.push(rule.into());
    }
}

/// A running pair; both end with this value.
pub struct ScriptedAccess {
    shared: Shared,
    stops: Vec<oneshot::Sender<()>>,
}

impl ScriptedAccess {
    pub fn start(rules: Rules) -> Self {
        block_on(Self::listen(rules))
    }

    async fn listen(rules: Rules) -> Self {
        let tools = TcpListener::bind("127.0.0.1:0").await.expect("an address for the tool server");
        let issuer = TcpListener::bind("127.0.0.1:0").await.expect("an address for the authorization server");
        let url = |listener: &TcpListener| -> Arc<str> {
            format!("http://{}", listener.local_addr().expect("the address of a bound listener")).into()
        };
        let state = State { rules, ..State::default() };
        let shared = Shared { state: Arc::new(Mutex::new(state)), tools: url(&tools), issuer: url(&issuer) };
        let stops = vec![
            serve(tools, guarded::router(shared.clone())),
            serve(issuer, grants::router(shared.clone())),
        ];
        Self { shared, stops }
    }

    /// Of the tool server, as a `base_url`.
    pub fn url(&self) -> String {
        format!("{}/mcp", self.shared.tools)
    }

    pub fn issuer(&self) -> String {
        self.shared.issuer.to_string()
    }

    /// From now on.
    pub fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.shared.state().rules);
    }

    /// No token that was given holds any longer; refresh tokens do.
    pub fn forget_tokens(&self) {
        let mut state = self.shared.state();
        let given: Vec<String> = state.tokens.keys().cloned().collect();
        state.refused.extend(given);
    }

    /// No token of any kind holds any longer.
    pub fn forget_everything(&self) {
        self.forget_tokens();
        self.shared.state().refreshes.clear();
    }

    pub fn log(&self) -> Vec<String> {
        self.shared.state().log.clone()
    }

    /// How often this happened.
    pub fn count(&self, what: &str) -> usize {
        self.log().iter().filter(|line| line.split(' ').next() == Some(what)).count()
    }

    /// Every token that was given, of either kind.
    pub fn secrets(&self) -> Vec<String> {
        let state = self.shared.state();
        let refreshes = state.refreshes.keys().cloned();
        state.tokens.keys().cloned().chain(refreshes).collect()
    }

    /// Follows an authorization URL as a browser does whose person agrees; returns where it ends.
    pub fn agree(&self, url: &str) -> String {
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        block_on(async {
            let response = client.build().expect("a client").get(url).send().await.expect("an answer");
            let location = response.headers().get("location").expect("a redirect");
            location.to_str().expect("a URL").to_owned()
        })
    }
}

fn serve(listener: TcpListener, router: Router) -> oneshot::Sender<()> {
    let (stop, stopped) = oneshot::channel();
    spawn(async move {
        tokio::select! {
            _ = axum::serve(listener, router) => {}
            _ = stopped => {}
        }
    });
    stop
}

impl Drop for ScriptedAccess {
    fn drop(&mut self) {
        for stop in self.stops.drain(..) {
            let _ = stop.send(());
        }
        if !std::thread::panicking() {
            let violations = self.shared.state().violations.clone();
            assert!(violations.is_empty(), "rules of OAuth were broken:\n{}", violations.join("\n"));
        }
    }
}

/// One document over another; null takes a field away.
fn laid_over(mut document: Value, over: &Value) -> Value {
    for (name, value) in over.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(document.as_object_mut().expect("a document").remove(name)),
            value => document[name] = value.clone(),
        }
    }
    document
}
