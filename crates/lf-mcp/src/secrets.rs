//! What the configuration of one server holds that nobody may be shown, and taking it out of what that server says.
//!
//! A server may repeat its credentials anywhere: in an error, on stderr, in a description, in a result. What it says
//! leaves this crate through `Signals::note`, `Link`, and the opening and ending of a `Connection`; each of them
//! comes here.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use lf_core::project::{Auth, HttpServer, McpServer, StdioServer, Transport};
use lf_core::secret::{Secret, without};
use serde_json::Value;

use crate::failure::Failure;

/// Shorter values are left in: `1` or `true` would blank out half of every text. As [`without`] has it.
const SHORTEST: usize = 8;
/// Lines of a longer value, such as a key in PEM, that are secrets of their own.
const SHORTEST_LINE: usize = 16;

/// The secrets of one server.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    /// All headers and variables that the file sets: an error is understood without them.
    told: Vec<Secret>,
    /// Those that are secret by their name or look. A file also sets paths, hosts and words that results are made of:
    /// without its own directory, what a file server lists would be of no use.
    known: Vec<Secret>,
    /// What came by later: tokens that were got for this server.
    learnt: RwLock<Vec<Learnt>>,
}

/// One secret, in all its forms.
type Learnt = Vec<Secret>;

/// Tokens of one connection that are remembered; the oldest are of no use to anybody.
const MAX_LEARNT: usize = 8;

impl Secrets {
    /// The secrets of this server; `environment` is our own, from which it may inherit.
    pub(crate) fn of(server: &McpServer, environment: &[(String, String)]) -> Self {
        let mut found = Found::default();
        match &server.transport {
            Transport::Stdio(stdio) => found.stdio(stdio, environment),
            Transport::Http(http) | Transport::Sse(http) => found.http(http),
        }
        found.told.extend_from_slice(&found.known);
        Self { told: ordered(found.told), known: ordered(found.known), learnt: RwLock::default() }
    }

    /// Another secret, from now on.
    pub(crate) fn learn(&self, secret: &Secret) {
        let learnt = self.learnt();
        if learnt.iter().any(|one| one.contains(secret)) || secret.expose().len() < SHORTEST {
            return;
        }
        drop(learnt);
        let mut learnt = self.learnt.write().unwrap_or_else(PoisonError::into_inner);
        if learnt.len() == MAX_LEARNT {
            learnt.remove(0);
        }
        learnt.push(secret.forms());
    }

    fn learnt(&self) -> RwLockReadGuard<'_, Vec<Learnt>> {
        self.learnt.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error without secrets, also without the half of one that it was cut off in.
    pub(crate) fn message(&self, text: &str) -> String {
        let learnt = self.learnt();
        let told: Vec<&str> = self.told.iter().chain(learnt.iter().flatten()).map(Secret::expose).collect();
        let mut text = without(text, &told);
        let end = text.trim_end_matches('…').len();
        let half = self.known.iter().chain(learnt.iter().flatten()).filter_map(|secret| {
            let secret = secret.expose();
            let lengths = SHORTEST..secret.len();
            lengths.rev().find(|length| text.as_bytes()[..end].ends_with(&secret.as_bytes()[..*length]))
        });
        if let Some(length) = half.max()
            && text.is_char_boundary(end - length)
        {
            text.replace_range(end - length..end, "[secret]");
        }
        text
    }

    pub(crate) fn failure(&self, failure: &Failure) -> Failure {
        let hint = failure.hint.as_deref().map(|hint| self.message(hint));
        Failure { reason: self.message(&failure.reason), hint, cause: failure.cause }
    }

    /// A text of the server's content without secrets. Costs a search and no copy where there is none in it.
    pub(crate) fn content(&self, text: String) -> String {
        let learnt = self.learnt();
        if !self.known.iter().chain(learnt.iter().flatten()).any(|secret| text.contains(secret.expose())) {
            return text;
        }
        let known: Vec<&str> = self.known.iter().chain(learnt.iter().flatten()).map(Secret::expose).collect();
        without(&text, &known)
    }

    /// All texts in a value without secrets, names of fields included.
    pub(crate) fn value(&self, value: Value) -> Value {
        if self.known.is_empty() && self.learnt().is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.content(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (self.content(name), self.value(value))).collect()
            }
            other => other,
        }
    }
}

/// What the file holds for this server that is secret by its name or look, the longer first.
pub fn secrets_of(server: &McpServer) -> Vec<Secret> {
    Secrets::of(server, &[]).known
}

/// In all their forms, the longer first: one may hold another.
fn ordered(mut secrets: Vec<Secret>) -> Vec<Secret> {
    secrets.retain(|secret| secret.expose().len() >= SHORTEST);
    secrets = secrets.iter().flat_map(Secret::forms).collect();
    secrets.retain(|secret| secret.expose().len() >= SHORTEST);
    secrets.sort_by(|a, b| b.expose().len().cmp(&a.expose().len()).then_with(|| a.expose().cmp(b.expose())));
    secrets.dedup();
    secrets
}

#[derive(Default)]
struct Found {
    told: Vec<Secret>,
    known: Vec<Secret>,
}

impl Found {
    fn stdio(&mut self, stdio: &StdioServer, environment: &[(String, String)]) {
        for (name, value) in &stdio.env {
            self.told.push(value.clone());
            self.named(name, value.expose());
        }
        for (name, value) in environment.iter().filter(|(name, _)| stdio.inherit_env.contains(name)) {
            self.named(name, value);
        }
        let mut flag = None;
        for arg in &stdio.args {
            let arg = arg.expose();
            match flag.take() {
                Some(name) => self.named(name, arg),
                None => self.words(arg),
            }
            flag = (arg.starts_with('-') && !arg.contains('=')).then_some(arg);
        }
    }

    fn http(&mut self, http: &HttpServer) {
        for (name, value) in &http.headers {
            self.told.push(value.clone());
            if is_secret_name(name) || !is_plain_header(name, value.expose()) {
                self.whole(value.expose());
            }
        }
        match &http.auth {
            Some(Auth::Bearer(token)) => self.whole(token.expose()),
            Some(Auth::OAuth(client) | Auth::ClientCredentials(client)) => {
                for secret in client.client_secret.iter().chain(&client.private_key) {
                    self.whole(secret.expose());
                }
            }
            None => {}
        }
        self.url(&http.base_url);
        http.in_url.iter().for_each(|value| self.whole(value.expose()));
    }

    /// A value that has a name.
    fn named(&mut self, name: &str, value: &str) {
        if is_secret_name(name) {
            self.whole(value);
        }
        self.words(value);
    }

    /// A value that is a secret, and its parts that would be secrets alone.
    fn whole(&mut self, value: &str) {
        self.known.push(value.into());
        // `Bearer …`, `Basic …`
        if let Some((_, credentials)) = value.split_once(' ') {
            self.known.push(credentials.trim().into());
        }
        if value.contains('\n') {
            let lines = value.lines().map(str::trim);
            let inner = lines.filter(|line| line.len() >= SHORTEST_LINE && !line.starts_with("-----"));
            self.known.extend(inner.map(Secret::from));
        }
    }

    /// A text that may hold secrets: `--token=…`, `Authorization: …`, a URL with a password, a key by its look.
    fn words(&mut self, text: &str) {
        if let Some((name, value)) = text.split_once([':', '='])
            && is_secret_name(name.trim_start_matches('-'))
        {
            self.whole(value.trim());
        }
        for word in text.split_whitespace() {
            let word = word.trim_matches(['"', '\'']);
            if let Some((name, value)) = word.split_once('=')
                && is_secret_name(name)
            {
                self.known.push(value.trim_matches(['"', '\'']).into());
            }
            let value = word.split_once('=').map_or(word, |(_, value)| value);
            if looks_secret(value) {
                self.known.push(value.into());
            }
            if word.contains("://") {
                self.url(word);
            }
        }
    }

    /// The password in a URL, or the user where there is none, and what its query calls secret.
    fn url(&mut self, text: &str) {
        let Some((_, rest)) = text.split_once("://") else { return };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if let Some((credentials, _)) = authority.rsplit_once('@') {
            let password = credentials.split_once(':').map_or(credentials, |(_, password)| password);
            self.known.push(password.into());
        }
        let query = path.split_once('?').map_or("", |(_, query)| query);
        for (name, value) in query.split(['&', '#']).filter_map(|pair| pair.split_once('=')) {
            if is_secret_name(name) {
                self.known.push(value.into());
            }
        }
    }
}

/// Headers of HTTP itself, such as `Accept`, and others that hold one word, such as `X-Env: production`.
fn is_plain_header(name: &str, value: &str) -> bool {
    const LONGEST_WORD: usize = 24;
    let name = name.to_ascii_lowercase();
    let plain = ["accept", "content-", "user-agent", "cache-control", "origin", "referer", "mcp-protocol-"];
    let is_word = value.bytes().all(|byte| byte.is_ascii_lowercase() || b"-_.".contains(&byte));
    (is_word && value.len() <= LONGEST_WORD) || plain.iter().any(|start| name.starts_with(start))
}

/// Whether what has this name is a secret: `GITHUB_TOKEN` is, `TOKEN_FILE` is where one can be found.
fn is_secret_name(name: &str) -> bool {
    const SECRET: [&str; 15] = [
        "key",
        "apikey",
        "token",
        "secret",
        "password",
        "passwd",
        "pass",
        "pwd",
        "passphrase",
        "credential",
        "credentials",
        "authorization",
        "cookie",
        "pat",
        "webhook",
    ];
    const PLAIN_ENDS: [&str; 12] = [
        "tokens", "url", "uri", "endpoint", "path", "file", "dir", "name", "header", "type", "ttl", "timeout",
    ];
    let name = name.to_lowercase().replace(['-', '.'], "_");
    let parts: Vec<&str> = name.split('_').filter(|part| !part.is_empty()).collect();
    let Some(last) = parts.last() else { return false };
    if parts.contains(&"webhook") {
        return true;
    }
    let long_ends = ["key", "token", "secret", "password", "passwd"];
    !PLAIN_ENDS.contains(last)
        && (parts.iter().any(|part| SECRET.contains(part)) || long_ends.iter().any(|end| last.ends_with(end)))
}

/// What well-known issuers begin their keys with.
fn looks_secret(value: &str) -> bool {
    const LOOKS: [&str; 10] =
        ["sk-", "sk_", "rk_", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "eyJ"];
    const SHORTEST_KEY: usize = 16;
    value.len() >= SHORTEST_KEY && LOOKS.iter().any(|look| value.starts_with(look))
}

#[cfg(test)]
mod tests;
