//! A call from its first request to its result: asked again with what the server wanted to know meanwhile.

use std::time::Duration;

use lf_core::tool::{Attendant, Question, Reply, ToolOutput};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, InputResponses, MetaObject, RequestMetaObject,
};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::answer::{self, Answer};
use super::asking::{Patience, declined, is_accepted};
use super::{AskError, Link};
use crate::endpoint::ON_BEHALF;

/// Requests for one call whose server wants input meanwhile, as many as other SDKs send.
const MAX_ROUNDS: usize = 10;
/// Before a call is tried again whose server waits for a person at a URL and need not say when that is done; doubled with
/// each try.
const VISIT_PAUSE: Duration = Duration::from_secs(2);

/// What a call carries that asks this very program.
fn on_behalf(attendant: &dyn Attendant) -> Option<RequestMetaObject> {
    let meta = Map::from_iter([(ON_BEHALF.to_owned(), attendant.on_behalf()?.into())]);
    Some(RequestMetaObject(MetaObject(meta)))
}

impl Link {
    /// Runs a tool. `limit` starts anew with each report of progress and each question that the server has meanwhile;
    /// `total` bounds it all, but for the time in which whoever attends the call thinks about questions.
    /// Dropping the future tells the server that the call is cancelled.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        (limit, total): (Duration, Duration),
        attendant: &dyn Attendant,
    ) -> Result<ToolOutput, AskError> {
        let mut end = Instant::now() + total;
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.clone());
        let mut asking = Asking { tool, attendant, patience: Patience::default() };
        let mut visits =
            Visits { told: self.signals.questions.visits(), agreed: Vec::new(), pause: VISIT_PAUSE };
        for _ in 0..MAX_ROUNDS {
            let request = ClientRequest::CallToolRequest(CallToolRequest::new(params.clone()));
            let left = end.saturating_duration_since(Instant::now());
            let result = match self.ask_with(request, (limit, left), attendant, on_behalf(attendant)).await {
                Ok(result) => result,
                // what is told is the limit, not what was left of it
                Err(AskError::Timeout(reached)) if reached == left => return Err(AskError::Timeout(total)),
                Err(AskError::VisitFirst { message, visits: urls }) => {
                    let since = Instant::now();
                    self.visit(&mut visits, (message, urls), &mut asking).await?;
                    end += since.elapsed();
                    continue;
                }
                Err(error) => return Err(error),
            };
            let value = serde_json::to_value(&result).unwrap_or_default();
            match answer::read(value)? {
                Answer::Complete(fields) => {
                    let fields = self.signals.secrets.value(Value::Object(fields));
                    return answer::output(fields);
                }
                Answer::InputRequired { questions, state } => {
                    let since = Instant::now();
                    params.input_responses = Some(self.responses(questions, &mut asking).await?);
                    params.request_state = state;
                    end += since.elapsed();
                }
            }
        }
        let message = format!("it asked for input more than {MAX_ROUNDS} times");
        Err(AskError::Refused { message, code: -32_603, data: None })
    }

    /// What each question is answered, one after the other: a person is asked one thing at a time.
    async fn responses(
        &self,
        questions: Map<String, Value>,
        asking: &mut Asking<'_>,
    ) -> Result<InputResponses, AskError> {
        let mut responses = InputResponses::new();
        for (key, mut question) in questions {
            let method = question["method"].as_str().unwrap_or("something unknown").to_owned();
            let reply = asking.ask(self, method, question["params"].take()).await;
            match reply {
                Reply::Result(result) => drop(responses.insert(key, result)),
                Reply::Refused { code, message } => {
                    let message = format!("it asked for something in the middle of the call: {message}");
                    return Err(AskError::Refused { message, code, data: None });
                }
                Reply::Nobody => {}
            }
        }
        Ok(responses)
    }

    /// The server runs the tool only after a person was at some URLs (error -32042 of revision 2025-11-25). Who agrees to
    /// go there once is not asked again; the call is made again when the server tells that it is done, or after a while.
    async fn visit(
        &self,
        visits: &mut Visits,
        (message, urls): (String, Vec<Value>),
        asking: &mut Asking<'_>,
    ) -> Result<(), AskError> {
        for params in urls {
            if visits.agreed.contains(&params) {
                continue;
            }
            let reply = asking.ask(self, Question::ELICITATION.to_owned(), params.clone()).await;
            if !is_accepted(&reply) {
                return Err(AskError::Refused { message, code: VISIT_FIRST, data: None });
            }
            visits.agreed.push(params);
        }
        let _ = timeout(visits.pause, visits.told.changed()).await;
        visits.pause *= 2;
        Ok(())
    }
}

/// Who is asked in a call, and how often still.
struct Asking<'a> {
    tool: &'a str,
    attendant: &'a dyn Attendant,
    patience: Patience,
}

impl Asking<'_> {
    async fn ask(&mut self, link: &Link, method: String, params: Value) -> Reply {
        match self.patience.take() {
            true => Box::pin(link.answer(method, params, Some(self.tool), self.attendant)).await,
            false => declined(&method),
        }
    }
}

/// The error code of a call that needs a visit to a URL first.
pub(super) const VISIT_FIRST: i64 = -32_042;

/// URLs that a call is waiting for.
struct Visits {
    told: watch::Receiver<u64>,
    agreed: Vec<Value>,
    pause: Duration,
}
