//! The driver: the one loop of a turn. It polls the step, does what the step asks for, and yields events.

mod asking;
mod attending;
mod calling;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_stream::stream;
use futures_core::Stream;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use lf_core::tool::Person;
use lf_core::turn::{Course, Done, Entry, Step, Taken};
use lf_core::{ChatEvent, DeltaStream, Journal, ModelDelta, ModelError, ToolSource};
use tokio::sync::mpsc;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::authority::Errand;
use crate::failover::Upstreams;
use crate::quotas::Charge;
use crate::results::Shelf;
use crate::rules::{self, Check};
pub(crate) use asking::Approving;
use attending::{Attending, Clock};
pub(crate) use calling::execute_tool;
use calling::{Runnable, Runner, run_call, runnable};

/// Progress reports that wait for a slow client; more are dropped, because only the latest matters.
const PROGRESS_BUFFER: usize = 64;

/// What a turn is driven with.
pub(crate) struct Drive {
    pub upstreams: Upstreams,
    pub tools: Arc<dyn ToolSource>,
    /// Who says which calls run.
    pub check: Arc<dyn Check>,
    /// What this daemon is told where it is one of the servers.
    pub errand: Errand,
    /// Where results are that were cut for the model.
    pub shelf: Shelf,
    /// Where it is counted what the turn uses.
    pub charge: Charge,
    /// Stands still while the person is asked.
    pub turn_timeout: Duration,
    /// Who is asked what servers ask in the middle of calls.
    pub person: Option<Arc<dyn Person>>,
    /// Who may approve calls.
    pub approving: Approving,
    /// Where what happens is kept before it is acted on or shown.
    pub journal: Option<Box<dyn Journal>>,
    /// Ends the turn where it is, for a person who wants no more of it.
    pub stop: Option<CancellationToken>,
    /// Keeps what the client may come back for.
    pub remember: Box<dyn FnOnce(Done) + Send>,
}

/// Drives a turn to its end. Dropping the stream cancels the model's request and every running tool.
pub(crate) fn drive(
    course: Course,
    events: Vec<ChatEvent>,
    drive: Drive,
) -> impl Stream<Item = ChatEvent> + Send + 'static {
    let Drive {
        mut upstreams,
        tools,
        check,
        errand,
        shelf,
        charge,
        turn_timeout,
        person,
        approving,
        journal,
        stop,
        remember,
    } = drive;
    let tools = shelf.over(tools);
    let charge = charge.begun();
    let stop = stop.unwrap_or_default();
    stream! {
        let started = Instant::now();
        let clock = Clock::new(turn_timeout);
        let model = upstreams.name().to_owned();
        let mut turn = Told { course, events, journal, shelf, charge, check: check.clone(), model };
        turn.shelve();
        let mut is_ending = false;
        loop {
            if let Some(time) = turn.course.ending().filter(|_| !is_ending) {
                is_ending = true;
                clock.grant(time);
            }
            match turn.course.step() {
                Step::Done(_) => break,
                Step::AskModel(_) => {
                    if upstreams.is_failing() {
                        turn.take_another(&mut upstreams);
                    }
                    let mut answer = turn.ask(&mut upstreams);
                    while let Some(open) = &mut answer {
                        for event in turn.told().await {
                            yield event;
                        }
                        if turn.is_over() {
                            break;
                        }
                        let next = tokio::select! {
                            biased;
                            () = stop.cancelled() => {
                                turn.take(Entry::Stopped);
                                break;
                            }
                            next = timeout_at(clock.end(), open.next()) => next,
                        };
                        match next {
                            Ok(Some(Ok(delta))) => {
                                upstreams.answered();
                                turn.take(Entry::Delta(delta));
                                turn.take_ready(open);
                            }
                            Ok(Some(Err(error))) => answer = turn.other_way(error, &mut upstreams),
                            Ok(None) => {
                                turn.take(Entry::Answered);
                                answer = None;
                            }
                            Err(_) => match turn.take(Entry::TimeUp { limit: turn_timeout }) {
                                Taken::Nothing => {
                                    let limit = turn.course.ending();
                                    turn.take(Entry::Failed(too_long(&upstreams, turn_timeout, limit)));
                                    answer = None;
                                }
                                taken => {
                                    is_ending = true;
                                    clock.grant(turn.course.ending().unwrap_or_default());
                                    if taken == Taken::AsksAgain {
                                        answer = turn.ask(&mut upstreams);
                                    }
                                }
                            },
                        }
                    }
                }
                Step::Judge(judge) => {
                    let calls = rules::judge(&*check, judge.standing(), upstreams.name());
                    turn.take(Entry::Judged { calls });
                }
                Step::AskPerson(asking) => {
                    let _stopped = clock.stop();
                    let mut asked = approving.ask(asking, person.clone());
                    // the last events are told once what is left of the turn is remembered
                    while !turn.is_over() {
                        let told = turn.told().await;
                        // a journal that cannot be written keeps no decision, and ends the turn
                        if !turn.is_over() {
                            asked.keep();
                        }
                        for event in told {
                            yield event;
                        }
                        let Step::AskPerson(asking) = turn.course.step() else { break };
                        let entries = tokio::select! {
                            biased;
                            () = stop.cancelled() => vec![Entry::Stopped],
                            entries = asked.next(asking) => entries,
                        };
                        for entry in entries {
                            turn.take(entry);
                        }
                    }
                }
                Step::RunTools(run) => {
                    let parallel = run.parallel();
                    let mut waiting = runnable(run).into_iter();
                    let (reports, mut reported) = mpsc::channel(PROGRESS_BUFFER);
                    let attending = Attending::new(reports, person.clone(), clock.clone());
                    let runner = Runner {
                        tools: tools.clone(),
                        check: check.clone(),
                        errand: errand.clone(),
                        model: upstreams.name().into(),
                    };
                    let mut running = FuturesUnordered::new();
                    let last = loop {
                        while running.len() < parallel {
                            let Some(runnable) = waiting.next() else { break };
                            turn.take(Entry::Running { call: runnable.index });
                            running.push(run_call(runner.clone(), runnable, Duration::ZERO, attending.clone()));
                        }
                        // a call begins with its first poll: after this
                        for event in turn.told().await {
                            yield event;
                        }
                        if turn.is_over() {
                            break None;
                        }
                        tokio::select! {
                            biased;
                            Some(event) = reported.recv() => match event {
                                ChatEvent::Notice(text) => {
                                    turn.take(Entry::Notice(text));
                                }
                                // only the latest matters: it is shown and not kept
                                event => yield event,
                            },
                            () = stop.cancelled() => break Some(Entry::Stopped),
                            settled = running.next() => match settled {
                                Some(settled) => {
                                    if let Some((call, pause)) = turn.settle(settled, clock.end()) {
                                        running.push(run_call(runner.clone(), call, pause, attending.clone()));
                                    }
                                }
                                None => break Some(Entry::Ran),
                            },
                            () = clock.over() => break Some(Entry::TimeUp { limit: turn_timeout }),
                        }
                    };
                    if let Some(last) = last {
                        turn.take(last);
                    }
                }
            }
        }
        // a client that has seen the last event may be gone: what has to be remembered comes first
        turn.keep().await;
        for event in &turn.events {
            log_end(upstreams.name(), event, started.elapsed());
        }
        let Told { course, events, .. } = turn;
        if let Ok(done) = course.into_done() {
            remember(done);
        }
        for event in events {
            yield event;
        }
    }
}

/// A turn that is told what happens to it, after its journal was.
struct Told {
    course: Course,
    /// Not yet shown.
    events: Vec<ChatEvent>,
    journal: Option<Box<dyn Journal>>,
    shelf: Shelf,
    charge: Charge,
    check: Arc<dyn Check>,
    /// The model that answers now, by its name in the file.
    model: String,
}

impl Told {
    fn take(&mut self, entry: Entry) -> Taken {
        if let Some(journal) = &mut self.journal {
            journal.append(&entry);
        }
        let is_piece = matches!(entry, Entry::Delta(_) | Entry::Notice(_));
        let told = self.events.len();
        let taken = self.course.take(entry, &mut self.events).unwrap_or_else(|error| {
            tracing::error!(%error, "the driver and the turn do not agree");
            Taken::Nothing
        });
        self.shelve();
        if !is_piece {
            rules::record_told(
                &*self.check,
                &self.course,
                self.events.get(told..).unwrap_or_default(),
                &self.model,
            );
            self.charge.has_used(self.course.spent());
        }
        taken
    }

    /// Keeps whole what the turn has cut.
    fn shelve(&mut self) {
        let cut = self.course.take_cut();
        if !cut.is_empty() {
            self.shelf.keep(cut);
        }
    }

    /// What else of the answer is there already, so that it is kept and shown in one go.
    fn take_ready(&mut self, answer: &mut Answer) {
        while self.journal.is_some() && answer.held.is_none() {
            match answer.deltas.next().now_or_never() {
                Some(Some(Ok(delta))) => {
                    self.take(Entry::Delta(delta));
                }
                Some(end) => answer.held = Some(end),
                None => return,
            }
        }
    }

    /// What clients may see by now.
    async fn told(&mut self) -> Vec<ChatEvent> {
        if !self.keep().await {
            return Vec::new();
        }
        std::mem::take(&mut self.events)
    }

    /// Makes sure that what happened is kept. False when it is not: then the turn is over and says so.
    async fn keep(&mut self) -> bool {
        let Some(journal) = &mut self.journal else { return true };
        let Err(error) = journal.flush().await else { return true };
        self.journal = None;
        // nothing that is not kept is shown
        self.events.clear();
        let error = unkept(&error);
        match self.is_over() {
            true => self.events.push(ChatEvent::Failed(error)),
            false => drop(self.course.take(Entry::Failed(error), &mut self.events)),
        }
        false
    }

    fn is_over(&self) -> bool {
        matches!(self.course.step(), Step::Done(_))
    }

    /// What came of a call. One that is run once more is given back with the pause before that, which must end before the
    /// turn does.
    fn settle(&mut self, settled: Entry, end: tokio::time::Instant) -> Option<(Runnable, Duration)> {
        let again = match (&settled, self.course.step()) {
            (Entry::Settled { call, outcome, .. }, Step::RunTools(run)) => run
                .pause_after(*call, outcome, share())
                .filter(|pause| tokio::time::Instant::now() + *pause < end)
                .and_then(|pause| {
                    let runnable = runnable(run).into_iter().find(|runnable| runnable.index == *call)?;
                    Some((Entry::again(*call, outcome, pause), runnable, pause))
                }),
            _ => None,
        };
        let Some((again, runnable, pause)) = again else {
            self.take(settled);
            return None;
        };
        self.take(again);
        Some((runnable, pause))
    }

    fn ask(&mut self, upstreams: &mut Upstreams) -> Option<Answer> {
        if self.charge.counts() {
            self.charge.asks(self.course.pending());
        }
        match self.course.step() {
            Step::AskModel(ask) => Some(Answer { deltas: upstreams.ask(&ask.request()), held: None }),
            _ => None,
        }
    }

    /// What can be done instead when an ask fails.
    fn other_way(&mut self, error: ModelError, upstreams: &mut Upstreams) -> Option<Answer> {
        match self.take(Entry::Refused(error.clone())) {
            Taken::AsksAgain => {
                info!(model = upstreams.name(), %error, "asking in another way");
                return self.ask(upstreams);
            }
            Taken::GoesOn => return None,
            Taken::Nothing => {}
        }
        if upstreams.failed(&error) && self.take_another(upstreams) {
            return self.ask(upstreams);
        }
        self.take(Entry::Failed(error));
        None
    }

    /// Whether another model answers from here on.
    fn take_another(&mut self, upstreams: &mut Upstreams) -> bool {
        while let Some(stand_in) = upstreams.candidate() {
            if self.take(Entry::StoodIn(Box::new(stand_in))) == Taken::AsksAgain {
                upstreams.take_over();
                self.model = upstreams.name().to_owned();
                return true;
            }
        }
        false
    }
}

/// A model's answer as it comes.
struct Answer {
    deltas: DeltaStream,
    /// What was read ahead.
    held: Option<Option<Result<ModelDelta, ModelError>>>,
}

impl Answer {
    async fn next(&mut self) -> Option<Result<ModelDelta, ModelError>> {
        match self.held.take() {
            Some(held) => held,
            None => self.deltas.next().await,
        }
    }
}

/// A turn whose journal cannot be written must not go on.
pub(crate) fn unkept(error: &impl std::fmt::Display) -> ModelError {
    tracing::error!(%error, "the turn cannot be kept and is stopped");
    ModelError::Failed {
        url: "the journal of this daemon".to_owned(),
        status: 503,
        message: error.to_string(),
        retry_after: None,
    }
}

/// Between 0 and 1, at random.
fn share() -> f64 {
    // an id is random enough for a jitter
    f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}

/// `ending` is what the last answer may take, where that is what is missing.
fn too_long(upstreams: &Upstreams, limit: Duration, ending: Option<Duration>) -> ModelError {
    let of = if ending.is_some() { "last answer" } else { "turn" };
    ModelError::Timeout {
        url: format!("the {of} of model `{}`", upstreams.name()),
        what: "come to its end".into(),
        limit: ending.unwrap_or(limit),
    }
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

#[cfg(test)]
pub(crate) mod tests;
