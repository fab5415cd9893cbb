//! The driver: the one loop of a turn. It polls the step, does what the step asks for, and yields events.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_stream::stream;
use futures_core::Stream;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lf_core::message::ToolCall;
use lf_core::tool::ToolProgress;
use lf_core::turn::{AskModel, Done, Planned, Rescue, Resume, RunTools, Step};
use lf_core::{ChatEvent, ModelError, ToolError, ToolOutput, ToolRef, ToolSource};
use tokio::sync::mpsc;
use tokio::time::{Instant as Deadline, timeout_at};
use tracing::{debug, info};

use crate::failover::Upstreams;

/// Progress reports that wait for a slow client; more are dropped, because only the latest matters.
const PROGRESS_BUFFER: usize = 64;

/// What a turn is driven with.
pub(crate) struct Drive {
    pub upstreams: Upstreams,
    pub tools: Arc<dyn ToolSource>,
    pub turn_timeout: Duration,
    /// Keeps what the client may come back for.
    pub remember: Box<dyn FnOnce(Done) + Send>,
}

/// Drives a turn to its end. Dropping the stream cancels the model's request and every running tool.
pub(crate) fn drive(
    mut events: Vec<ChatEvent>,
    ask: AskModel,
    mut drive: Drive,
) -> impl Stream<Item = ChatEvent> + Send + 'static {
    stream! {
        let started = Instant::now();
        let deadline = Deadline::now() + drive.turn_timeout;
        let mut step = Step::AskModel(ask);
        let done = loop {
            // a client that has seen the last event may be gone: what has to be remembered comes first
            step = match step {
                Step::Done(done) => break Some(done),
                step => step,
            };
            for event in events.drain(..) {
                yield event;
            }
            step = match step {
                Step::AskModel(mut ask) => {
                    drive.upstreams.begin(&mut ask, &mut events);
                    let mut answer = drive.upstreams.ask(&ask.request());
                    let failed = loop {
                        match timeout_at(deadline, answer.next()).await {
                            Ok(Some(Ok(delta))) => {
                                drive.upstreams.answered();
                                ask.push(delta, &mut events);
                                for event in events.drain(..) {
                                    yield event;
                                }
                            }
                            Ok(Some(Err(error))) => match other_way(&mut drive.upstreams, &error, &mut ask, &mut events) {
                                Otherwise::Ask => answer = drive.upstreams.ask(&ask.request()),
                                Otherwise::Answered => break None,
                                Otherwise::Failed => break Some(error),
                            },
                            Ok(None) => break None,
                            Err(_) => break Some(too_long(&drive)),
                        }
                    };
                    match failed {
                        None => ask.finish(&mut events),
                        Some(error) => Step::Done(ask.fail(error, &mut events)),
                    }
                }
                Step::RunTools(mut run) => {
                    run.answered(&mut events);
                    for event in events.drain(..) {
                        yield event;
                    }
                    let mut late = false;
                    {
                        let calls = runnable(&run);
                        let (reports, mut progress) = mpsc::channel(PROGRESS_BUFFER);
                        let mut waiting = calls.into_iter();
                        let mut running = FuturesUnordered::new();
                        loop {
                            while running.len() < run.parallel() {
                                let Some((index, call, tool)) = waiting.next() else { break };
                                running.push(run_call(drive.tools.clone(), index, call, tool, reports.clone()));
                            }
                            tokio::select! {
                                biased;
                                Some((call_id, progress)) = progress.recv() => {
                                    yield ChatEvent::CallProgress { call_id, progress };
                                }
                                settled = timeout_at(deadline, running.next()) => match settled {
                                    Ok(Some((index, outcome, elapsed))) => {
                                        run.settle(index, outcome, elapsed, &mut events);
                                        for event in events.drain(..) {
                                            yield event;
                                        }
                                    }
                                    Ok(None) => break,
                                    Err(_) => {
                                        late = true;
                                        break;
                                    }
                                },
                            }
                        }
                    }
                    if late {
                        events.push(ChatEvent::Failed(too_long(&drive)));
                        break None;
                    }
                    run.finish(&mut events)
                }
                Step::Done(done) => break Some(done),
            };
        };
        for event in &events {
            log_end(drive.upstreams.name(), event, started.elapsed());
        }
        if let Some(done) = done {
            (drive.remember)(done);
        }
        for event in events.drain(..) {
            yield event;
        }
    }
}

enum Otherwise {
    Ask,
    Answered,
    Failed,
}

/// What can be done instead when an ask fails.
fn other_way(
    upstreams: &mut Upstreams,
    error: &ModelError,
    ask: &mut AskModel,
    events: &mut Vec<ChatEvent>,
) -> Otherwise {
    let model = upstreams.name();
    if ask.switch_to_prompt(error) {
        info!(model, "the upstream has no native tools; telling them in the prompt");
        return Otherwise::Ask;
    }
    match ask.rescue(error, events) {
        Rescue::Answered => {
            info!(model, "the upstream could not read the model's calls; they are read from its error");
            return Otherwise::Answered;
        }
        Rescue::AskAgain => {
            info!(model, "the model wrote a call that could not be read; asking it again");
            return Otherwise::Ask;
        }
        Rescue::Nothing => {}
    }
    match upstreams.fall_back(error, ask, events) {
        true => Otherwise::Ask,
        false => Otherwise::Failed,
    }
}

fn runnable(run: &RunTools) -> Vec<(usize, ToolCall, ToolRef)> {
    let calls = run.calls().iter().enumerate();
    calls
        .filter_map(|(index, planned)| match &planned.plan {
            Planned::Run(tool) => Some((index, planned.call.clone(), tool.clone())),
            _ => None,
        })
        .collect()
}

fn too_long(drive: &Drive) -> ModelError {
    ModelError::Timeout {
        url: format!("the turn of model `{}`", drive.upstreams.name()),
        what: "come to its end",
        limit: drive.turn_timeout,
    }
}

/// One call of a turn.
async fn run_call(
    tools: Arc<dyn ToolSource>,
    index: usize,
    call: ToolCall,
    tool: ToolRef,
    reports: mpsc::Sender<(String, ToolProgress)>,
) -> (usize, Result<ToolOutput, ToolError>, Duration) {
    let empty = serde_json::Map::new();
    let report = |progress: ToolProgress| {
        // a full buffer means that the client is slower than the tool: the next report replaces this one
        let _ = reports.try_send((call.id.clone(), progress));
    };
    let arguments = call.arguments.value().unwrap_or(&empty);
    let (outcome, elapsed) = execute_tool(&*tools, &tool, &call.id, arguments, &report).await;
    (index, outcome, elapsed)
}

/// The one place where a tool is run, for a turn and for a client of `/mcp`. What may be called at all was decided
/// before: the call was resolved in what its caller was shown, and the source knows only the caller's servers.
pub(crate) async fn execute_tool(
    tools: &dyn ToolSource,
    tool: &ToolRef,
    call_id: &str,
    arguments: &serde_json::Map<String, serde_json::Value>,
    report: &(dyn Fn(ToolProgress) + Send + Sync),
) -> (Result<ToolOutput, ToolError>, Duration) {
    let started = Instant::now();
    info!(server = %tool.server, tool = %tool.name, call_id, "Executing MCP tool");
    let outcome = tools.call(tool, arguments, report).await;
    let elapsed = started.elapsed();
    let said = match &outcome {
        Ok(output) if !output.is_error => "Tool execution successful",
        Ok(_) => "the tool reported an error",
        // why is told by the source, which also serves calls that come from elsewhere
        Err(_) => "the tool call failed",
    };
    info!(server = %tool.server, tool = %tool.name, call_id, ?elapsed, "{said}");
    (outcome, elapsed)
}

fn log_end(model: &str, event: &ChatEvent, elapsed: Duration) {
    match event {
        ChatEvent::Finished { reason, usage, rounds, .. } => info!(
            model,
            rounds,
            input_tokens = usage.input,
            output_tokens = usage.output,
            finish_reason = reason.name(),
            ?elapsed,
            "turn finished"
        ),
        ChatEvent::Failed(error) => tracing::warn!(model, %error, ?elapsed, "turn failed"),
        _ => debug!(model, "turn event"),
    }
}

/// Turns that wait for a client to come back, by the ids of its calls; bounded in memory and time.
#[derive(Clone)]
pub(crate) struct Resumes(moka::sync::Cache<String, Arc<Resume>>);

/// Bytes kept for clients that may come back; the oldest go first.
const REMEMBERED: u64 = 64 * 1024 * 1024;
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

impl Resumes {
    pub(crate) fn new() -> Self {
        let cache = moka::sync::Cache::builder()
            .weigher(|_, resume: &Arc<Resume>| {
                u32::try_from(resume.size() / resume.ids.len().max(1)).unwrap_or(u32::MAX)
            })
            // the default policy keeps what is old and often asked for; here the newest is what will be asked for
            .eviction_policy(moka::policy::EvictionPolicy::lru())
            .max_capacity(REMEMBERED)
            .time_to_live(REMEMBERED_FOR)
            .build();
        Self(cache)
    }

    pub(crate) fn remember(&self, resume: Resume) {
        let resume = Arc::new(resume);
        for id in &resume.ids {
            self.0.insert(id.clone(), resume.clone());
        }
    }

    /// What is known about these ids.
    pub(crate) fn find(&self, ids: impl Iterator<Item = String>) -> HashMap<String, Arc<Resume>> {
        ids.filter_map(|id| self.0.get(&id).map(|resume| (id, resume))).collect()
    }
}

#[cfg(test)]
mod tests;
