//! What a server asks in the middle of a call, brought to whoever attends the call, and answered.
//!
//! Servers of the legacy generation ask with requests of their own, which arrive beside the call; those of the modern one
//! with a result, which [`super::rounds`] takes. Both are answered here.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lf_core::project::Elicitation;
use lf_core::tool::{Attendant, Form, Question, Reply};
use rmcp::model::RequestId;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::Link;
use crate::failure::excerpt;
use crate::tap::Signals;

/// For a person to answer one question. The call's own limits stand still meanwhile.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(10 * 60);
/// Questions of one call that somebody is asked; more are declined.
const MAX_QUESTIONS: usize = 32;
/// Questions of one call that wait for the one before; more are answered as if nobody were here.
const WAITING: usize = 8;
/// Characters shown of a question.
const SHOWN: usize = 500;
/// Characters shown of the name of a method or a tool.
const SHOWN_NAME: usize = 64;
/// JSON-RPC's code for what is not offered.
const NOT_OFFERED: i64 = -32_601;

/// The calls that run on a connection, for questions to find theirs.
#[derive(Debug)]
pub(crate) struct Questions {
    calls: Mutex<Vec<Running>>,
    /// Counts what a server told to be done at a URL.
    visited: watch::Sender<u64>,
}

#[derive(Debug)]
struct Running {
    /// `None` while the request is being sent: its question may come before whoever sends it goes on.
    id: Option<RequestId>,
    key: u64,
    party: Option<u64>,
    asked: mpsc::Sender<Asked>,
}

/// A question on its way to a call.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) params: Value,
    /// Closed when the server does not want to know any more.
    pub(super) reply: oneshot::Sender<Reply>,
}

impl Asked {
    /// Answers that nobody answers this.
    pub(super) fn turn_down(self) {
        let _ = self.reply.send(declined(&self.method));
    }
}

/// How often somebody may still be asked in one call, over all its rounds.
pub(crate) struct Patience(usize);

impl Default for Patience {
    fn default() -> Self {
        Self(MAX_QUESTIONS)
    }
}

impl Patience {
    /// Takes one of them; `false` when it is over.
    pub(crate) fn take(&mut self) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left
    }
}

/// What a question is answered that nobody is asked.
pub(crate) fn declined(method: &str) -> Reply {
    by_policy(Elicitation::Decline, method, &Value::Null)
}

/// Asks somebody, who has ten minutes.
pub(crate) async fn ask_in_time(attendant: &dyn Attendant, question: Question) -> Reply {
    let is_form_or_url = question.method == Question::ELICITATION;
    match timeout(ANSWER_LIMIT, attendant.ask(question)).await {
        Ok(reply) => reply,
        Err(_) if is_form_or_url => Reply::Result(json!({"action": "cancel"})),
        Err(_) => Reply::Refused { code: NOT_OFFERED, message: "nobody answered in time".to_owned() },
    }
}

impl Default for Questions {
    fn default() -> Self {
        Self { calls: Mutex::default(), visited: watch::Sender::new(0) }
    }
}

impl Questions {
    /// Brings a question to its call and waits for the reply: to the call that `origin` names, or, where the transport does
    /// not tell, to the only one that it can be. `None` when no call runs that could have led to it.
    pub(super) async fn ask(
        &self,
        origin: Option<&RequestId>,
        method: &str,
        params: &Value,
    ) -> Option<Reply> {
        let (reply, replied) = oneshot::channel();
        let asked = Asked { method: method.to_owned(), params: params.clone(), reply };
        {
            let calls = self.calls();
            let call = match (origin, calls.as_slice()) {
                (_, []) => return None,
                (Some(origin), calls) => {
                    let exact = calls.iter().find(|call| call.id.as_ref() == Some(origin));
                    let mut unsent = calls.iter().filter(|call| call.id.is_none());
                    match (exact, unsent.next(), unsent.next()) {
                        (Some(call), ..) | (None, Some(call), None) => call,
                        (None, Some(_), Some(_)) => return Some(Reply::Nobody),
                        (None, None, _) => return None,
                    }
                }
                (None, [first, others @ ..]) => {
                    let is_one = others.iter().all(|call| call.party.is_some() && call.party == first.party);
                    if !is_one {
                        return Some(Reply::Nobody);
                    }
                    first
                }
            };
            if call.asked.try_send(asked).is_err() {
                return Some(Reply::Nobody);
            }
        }
        Some(replied.await.unwrap_or(Reply::Nobody))
    }

    /// A server says that somebody has done what was to be done at a URL.
    pub(crate) fn visited(&self) {
        self.visited.send_modify(|count| *count += 1);
    }

    /// Sees what is told from now on.
    pub(super) fn visits(&self) -> watch::Receiver<u64> {
        self.visited.subscribe()
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, Vec<Running>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Signals {
    /// Takes the questions for a call that is about to be sent, as long as the guard lives.
    pub(super) fn attend(self: &Arc<Self>, attendant: &dyn Attendant) -> Attending {
        static KEYS: AtomicU64 = AtomicU64::new(0);
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        let (asked, waiting) = mpsc::channel(WAITING);
        self.questions.calls().push(Running { id: None, key, party: attendant.party(), asked });
        Attending { waiting, key, signals: self.clone() }
    }
}

/// Where one call's questions arrive.
pub(super) struct Attending {
    pub(super) waiting: mpsc::Receiver<Asked>,
    key: u64,
    signals: Arc<Signals>,
}

impl Attending {
    /// The call was sent with this id.
    pub(super) fn sent(&self, id: &RequestId) {
        let mut calls = self.signals.questions.calls();
        if let Some(call) = calls.iter_mut().find(|call| call.key == self.key) {
            call.id = Some(id.clone());
        }
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.signals.questions.calls().retain(|call| call.key != self.key);
    }
}

/// A question that is being answered.
pub(super) struct Answering<'a> {
    answer: Pin<Box<dyn Future<Output = Reply> + Send + 'a>>,
    reply: oneshot::Sender<Reply>,
    since: Instant,
    is_visit: bool,
}

/// What became of a question.
pub(super) struct Answered {
    pub(super) waited: Duration,
    /// Somebody is on the way to a URL, and the server waits for what is done there.
    pub(super) is_visiting: bool,
}

impl<'a> Answering<'a> {
    pub(super) fn start(
        link: &'a Link,
        asked: Asked,
        tool: Option<&'a str>,
        attendant: &'a dyn Attendant,
    ) -> Self {
        let Asked { method, params, reply } = asked;
        let is_visit = is_visit(&params);
        let answer = Box::pin(link.answer(method, params, tool, attendant));
        Self { answer, reply, since: Instant::now(), is_visit }
    }

    /// Waits for the answer and hands it to the server. Never ends where there is no question. Cancel-safe.
    pub(super) async fn settle(answering: &mut Option<Self>) -> Answered {
        let Some(asked) = answering else { return std::future::pending().await };
        let reply = tokio::select! {
            reply = &mut asked.answer => Some(reply),
            () = asked.reply.closed() => None,
        };
        let waited = asked.since.elapsed();
        let is_visiting = asked.is_visit && reply.as_ref().is_some_and(is_accepted);
        if let (Some(asked), Some(reply)) = (answering.take(), reply) {
            // a server that does not want to know any more has said so
            let _ = asked.reply.send(reply);
        }
        Answered { waited, is_visiting }
    }
}

impl Link {
    /// Has a question answered by whoever attends the call, or, where nobody is, as the file says. The attendant is told
    /// what was asked and how it was answered. Never [`Reply::Nobody`].
    pub(super) async fn answer(
        &self,
        method: String,
        params: Value,
        tool: Option<&str>,
        attendant: &dyn Attendant,
    ) -> Reply {
        let params = self.signals.secrets.value(params);
        let is_form_or_url = method == Question::ELICITATION;
        let may_ask = match is_form_or_url {
            true => self.policy != Elicitation::Decline && is_sound(&params),
            false => true,
        };
        let question = Question { server: self.server.clone(), tool: tool.map(Arc::from), method, params };
        let mut by = "as nobody can be asked";
        let mut reply = Reply::Nobody;
        if may_ask {
            reply = ask_in_time(attendant, question.clone()).await;
        } else {
            by = "as it always is";
        }
        if reply == Reply::Nobody {
            reply = by_policy(self.policy, &question.method, &question.params);
        } else {
            by = "by whoever was asked";
        }
        let how = outcome(&reply);
        let (server, asked) = (&*self.server, excerpt(&question.method, SHOWN_NAME));
        let tool = tool.map(|tool| excerpt(tool, SHOWN_NAME));
        tracing::info!(server, tool, asked, answer = how, "an MCP server asked {by}");
        attendant.note(told(&question, how, by));
        reply
    }
}

/// What is answered where nobody is: the file's choice for forms, and a refusal of what is not offered.
pub(super) fn by_policy(policy: Elicitation, method: &str, params: &Value) -> Reply {
    if method != Question::ELICITATION {
        let message = match method {
            "sampling/createMessage" => {
                "this client asks no model for servers (sampling is not offered)".to_owned()
            }
            "roots/list" => "this client has no roots to tell (roots are not offered)".to_owned(),
            other => format!("`{}` is not offered by this client", excerpt(other, SHOWN_NAME)),
        };
        return Reply::Refused { code: NOT_OFFERED, message };
    }
    let defaults = match policy {
        Elicitation::Defaults => Form::read(params).and_then(|form| form.defaults()),
        Elicitation::Decline => None,
    };
    Reply::Result(match defaults {
        Some(content) => json!({"action": "accept", "content": content}),
        None => json!({"action": "decline"}),
    })
}

/// Whether a URL is one that a person can be sent to.
fn is_sound(params: &Value) -> bool {
    let url = params["url"].as_str().unwrap_or_default();
    !is_visit(params) || url.starts_with("https://") || url.starts_with("http://")
}

fn is_visit(params: &Value) -> bool {
    params["mode"] == "url"
}

pub(super) fn is_accepted(reply: &Reply) -> bool {
    matches!(reply, Reply::Result(result) if result["action"] == "accept")
}

fn outcome(reply: &Reply) -> &'static str {
    match reply {
        Reply::Result(result) => match result["action"].as_str() {
            Some("accept") if result["content"].is_object() => "accepted with values",
            Some("accept") => "accepted",
            Some("decline") => "declined",
            Some("cancel") => "cancelled",
            _ => "answered",
        },
        Reply::Refused { .. } => "refused",
        Reply::Nobody => "not answered",
    }
}

/// What was asked and how it was answered, for people. The names of the fields, not what was filled in.
fn told(question: &Question, how: &str, by: &str) -> String {
    let asked = match question.method.as_str() {
        Question::ELICITATION => {
            let message = excerpt(question.params["message"].as_str().unwrap_or_default(), SHOWN);
            match (is_visit(&question.params), question.params["requestedSchema"]["properties"].as_object()) {
                (true, _) => {
                    let url = excerpt(question.params["url"].as_str().unwrap_or_default(), SHOWN);
                    format!("asks to visit {url} (\"{message}\")")
                }
                (false, Some(fields)) if !fields.is_empty() => {
                    let names: Vec<String> = fields.keys().take(16).map(|name| excerpt(name, 64)).collect();
                    format!("asks \"{message}\" ({})", names.join(", "))
                }
                (false, _) => format!("asks \"{message}\""),
            }
        }
        method => format!("asks for `{}`", excerpt(method, SHOWN_NAME)),
    };
    let during =
        question.tool.as_deref().map_or_else(String::new, |tool| format!(" during `{}`", excerpt(tool, 128)));
    format!("MCP server `{}`{during} {asked}: {how}, {by}", question.server)
}

#[cfg(test)]
mod tests;
