//! Requests of modern clients to legacy servers, held open while the client answers what the server asks.
//!
//! The server asks with a request of its own and goes on waiting; the client is answered that input is required, and
//! comes back with it in another request. Its `requestState` is the ticket for what is held: random, good for one use,
//! and only for the same request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lf_core::McpServer;
use lf_core::tool::{Attendant as _, Question, Reply};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::caller::{self, Asked, Asking, Caller, Channel, Told};
use super::{Answer, Request, Trouble};
use crate::endpoint::Refused;
use crate::pool::SessionPool;
use crate::session::InUse;

/// Requests that wait for their clients to come back, over all servers; the oldest is given up for another.
const MAX_HELD: usize = 256;
/// For a client to come back.
const HELD_FOR: Duration = Duration::from_secs(10 * 60);
/// Begins every ticket, so that the state of another is told from it.
const TICKET: &str = "lf.";
/// The one question of a result.
const KEY: &str = "question";

/// Everything that is held.
#[derive(Debug, Default)]
pub(crate) struct Parking(Mutex<VecDeque<Parked>>);

#[derive(Debug)]
struct Parked {
    ticket: String,
    since: Instant,
    server: Arc<McpServer>,
    request: Request,
    question: Question,
    reply: oneshot::Sender<Reply>,
    held: Held,
}

/// A request that goes on in a task of its own, which ends with it.
#[derive(Debug)]
struct Held {
    told: mpsc::Receiver<Told>,
    asked: mpsc::Receiver<Asked>,
    running: Running,
}

#[derive(Debug)]
struct Running(JoinHandle<Answer>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl std::fmt::Debug for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ask(error) => error.fmt(f),
            Self::Told(refused) => refused.fmt(f),
        }
    }
}

impl SessionPool {
    pub(super) async fn held(
        &self,
        live: &InUse,
        server: &Arc<McpServer>,
        mut request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Answer {
        let answers = request.params.remove("inputResponses");
        let ticket = request.params.remove("requestState");
        let parking = &self.surroundings().relay.parking;
        let held = match ticket {
            None => self.hold(live, server, &request, caller, channel),
            Some(ticket) => {
                let parked = parking.take(&ticket, server, &request).ok_or_else(unknown)?;
                match answers
                    .as_ref()
                    .and_then(|answers| answers.get(KEY))
                    .filter(|answer| answer.is_object())
                {
                    Some(answer) => {
                        // a server that does not want to know any more has gone on
                        let _ = parked.reply.send(Reply::Result(answer.clone()));
                        parked.held
                    }
                    // it is asked again, as the answer is missing
                    None => return Ok(parking.park(parked)),
                }
            }
        };
        self.drive(held, server, request, caller, channel).await
    }

    fn hold(
        &self,
        live: &InUse,
        server: &Arc<McpServer>,
        request: &Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Held {
        let (inner, told) = Channel::new();
        let (asks, asked) = mpsc::channel(1);
        let inner = Channel {
            wants_progress: channel.wants_progress,
            level: channel.level,
            wanted_level: channel.wanted_level,
            asking: Asking::Held(asks),
            party: channel.party,
            guard: channel.guard.clone(),
            ..inner
        };
        let (live, server, request, caller) =
            (live.use_it(), server.clone(), request.clone(), caller.clone());
        let task = async move { live.once(&server, &request, &caller, &inner).await };
        Held { told, asked, running: Running(self.surroundings().tracker.spawn(task)) }
    }

    async fn drive(
        &self,
        mut held: Held,
        server: &Arc<McpServer>,
        request: Request,
        caller: &Caller,
        channel: &Channel,
    ) -> Answer {
        let tell = |told: Told| match told {
            Told::Progress(progress) => channel.progress(progress),
            Told::Log(message) => channel.log(message),
        };
        loop {
            tokio::select! {
                biased;
                Some(told) = held.told.recv() => tell(told),
                Some((question, reply)) = held.asked.recv() => {
                    if !caller.answers(&question.method) {
                        let _ = reply.send(caller::not_offered(&question.method));
                        continue;
                    }
                    let (ticket, since, server) = (String::new(), Instant::now(), server.clone());
                    let parked = Parked { ticket, since, server, request, question, reply, held };
                    return Ok(self.surroundings().relay.parking.park(parked));
                }
                answer = &mut held.running.0 => {
                    while let Ok(told) = held.told.try_recv() {
                        tell(told);
                    }
                    let broken = || Trouble::Told(Refused::Unavailable("the request broke off".to_owned()));
                    return answer.unwrap_or_else(|_| Err(broken()));
                }
            }
        }
    }
}

impl Parking {
    /// Keeps a request for its client to come back. Returns what the client is answered.
    fn park(&self, parked: Parked) -> Map<String, Value> {
        let ticket = format!("{TICKET}{}", uuid::Uuid::new_v4().simple());
        let mut question = json!({"method": parked.question.method});
        if parked.question.params.is_object() {
            question["params"] = parked.question.params.clone();
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|parked| parked.since.elapsed() < HELD_FOR && !parked.held.running.0.is_finished());
        if all.len() == MAX_HELD {
            all.pop_front();
        }
        all.push_back(Parked { ticket: ticket.clone(), ..parked });
        Map::from_iter([
            ("resultType".to_owned(), json!("input_required")),
            ("inputRequests".to_owned(), json!({KEY: question})),
            ("requestState".to_owned(), json!(ticket)),
        ])
    }

    /// Takes what a ticket is for, if that was the same request.
    fn take(&self, ticket: &Value, server: &McpServer, request: &Request) -> Option<Parked> {
        let ticket = ticket.as_str()?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |parked: &Parked| {
            let same = parked.request.method == request.method && parked.request.params == request.params;
            let is_late = parked.since.elapsed() >= HELD_FOR;
            parked.ticket == ticket && same && *parked.server == *server && !is_late
        };
        let at = all.iter().position(is_it)?;
        all.remove(at)
    }
}

fn unknown() -> Trouble {
    let message =
        "the `requestState` is of no request that waits for input: it was changed, used before or given up";
    Trouble::Told(Refused::upstream(-32_602, message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parked(server: &Arc<McpServer>, request: &Request) -> Parked {
        let (_told, told) = mpsc::channel(1);
        let (_asked, asked) = mpsc::channel(1);
        let (reply, _) = oneshot::channel();
        let running = Running(tokio_util::task::TaskTracker::new().spawn(std::future::pending()));
        Parked {
            ticket: String::new(),
            since: Instant::now(),
            server: server.clone(),
            request: request.clone(),
            question: Question {
                server: "s".into(),
                tool: None,
                method: Question::ELICITATION.to_owned(),
                params: json!({"message": "?"}),
            },
            reply,
            held: Held { told, asked, running },
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_is_good_once_for_its_request_and_its_time() {
        let server = super::super::tests::a_server();
        let named = |name: &str| Request {
            method: "tools/call".to_owned(),
            params: Map::from_iter([("name".to_owned(), json!(name))]),
            meta: Map::new(),
        };
        let parking = Parking::default();
        let answer = parking.park(parked(&server, &named("a")));
        assert_eq!(answer["inputRequests"][KEY]["params"], json!({"message": "?"}));
        let ticket = answer["requestState"].clone();
        assert!(parking.take(&ticket, &server, &named("b")).is_none(), "of another request");
        assert!(parking.take(&json!("lf.0"), &server, &named("a")).is_none(), "made up");
        assert!(parking.take(&ticket, &server, &named("a")).is_some());
        assert!(parking.take(&ticket, &server, &named("a")).is_none(), "used");
        let late = parking.park(parked(&server, &named("a")))["requestState"].clone();
        tokio::time::advance(HELD_FOR - Duration::from_secs(1)).await;
        let first = parking.park(parked(&server, &named("a")))["requestState"].clone();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(parking.take(&late, &server, &named("a")).is_none(), "too late");
        for _ in 0..MAX_HELD {
            parking.park(parked(&server, &named("a")));
        }
        assert!(parking.take(&first, &server, &named("a")).is_none(), "the oldest makes room");
    }
}
