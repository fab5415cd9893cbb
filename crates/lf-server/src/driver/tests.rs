use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream;
use lf_core::message::Prose;
use lf_core::project::{InlineTool, Limits};
use lf_core::tool::{Attendant, BoxFuture, Catalogue, Retries, Tool, ToolContent, ToolProgress};
use lf_core::tool_set::empty_schema;
use lf_core::turn::{Resume, Setup};
use lf_core::{
    Arguments, DeltaStream, FinishReason, Message, ModelDelta, ModelProvider, ModelRequest, ToolCall,
    ToolError, ToolOutput, ToolRef, ToolSet,
};
use serde_json::{Map, Value};
use tokio::sync::Barrier;

use super::*;
use crate::access::Access;
use crate::approvals::{About, Attendance, CallApprovals};
use crate::authority::Authority;
use crate::failover::Upstream;

mod failing_journals;

/// Answers the first ask with these calls, every further one with "done".
struct Model {
    calls: Vec<&'static str>,
    asked: AtomicUsize,
    /// Answers nothing, ever, and counts when that is given up.
    silent: Option<Arc<AtomicUsize>>,
}

impl ModelProvider for Model {
    fn stream(&self, _: &ModelRequest) -> DeltaStream {
        if let Some(given_up) = self.silent.clone() {
            let guard = OnDrop(given_up);
            return Box::pin(stream::once(async move {
                let _guard = guard;
                std::future::pending().await
            }));
        }
        let mut deltas = Vec::new();
        let mut reason = FinishReason::Stop;
        if self.asked.fetch_add(1, Ordering::SeqCst) == 0 {
            reason = FinishReason::ToolCalls;
            for (at, name) in self.calls.iter().enumerate() {
                deltas.push(Ok(ModelDelta::Call(ToolCall {
                    id: format!("c{at}"),
                    name: format!("s__{name}"),
                    arguments: Arguments::parse("{}"),
                    rest: Map::new(),
                })));
            }
        } else {
            deltas.push(Ok(ModelDelta::Text("done".to_owned())));
        }
        deltas.push(Ok(ModelDelta::Finish { reason, raw: None, stop_sequence: None }));
        Box::pin(stream::iter(deltas))
    }
}

struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs each call by a function, which gives the text that it returns; lists nothing.
pub(crate) struct Runs<F>(pub(crate) F);

/// What stands for a server that is not there.
const GONE: &str = "gone";

impl<F, R> ToolSource for Runs<F>
where
    F: Fn(&ToolRef, &Map<String, Value>, &dyn Attendant) -> R + Send + Sync,
    R: Future<Output = &'static str> + Send + 'static,
{
    fn list<'a>(&'a self, _: &'a [String]) -> BoxFuture<'a, Catalogue> {
        Box::pin(async { Catalogue::default() })
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolRef,
        arguments: &'a Map<String, Value>,
        attendant: &'a dyn Attendant,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let text = (self.0)(tool, arguments, attendant).await;
            if text == GONE {
                return Err(ToolError::Down { server: tool.server.to_string(), reason: text.to_owned() });
            }
            let content = vec![ToolContent::Text(text.to_owned())];
            Ok(ToolOutput { content, ..ToolOutput::default() })
        })
    }
}

/// `meet` waits until so many calls run at the same time; `hang` never answers and counts when it is dropped; `fail` fails.
fn tools(meeting: usize, dropped: Arc<AtomicUsize>) -> impl ToolSource {
    let meeting = Arc::new(Barrier::new(meeting));
    Runs(move |tool: &ToolRef, _: &Map<String, Value>, attendant: &dyn Attendant| {
        attendant.progress(ToolProgress { progress: 1.0, total: None, message: None });
        let hanging = (&*tool.name == "hang").then(|| OnDrop(dropped.clone()));
        let meeting = meeting.clone();
        let fails = &*tool.name == "fail";
        async move {
            if fails {
                return GONE;
            }
            if hanging.is_some() {
                std::future::pending::<()>().await;
            }
            meeting.wait().await;
            "met"
        }
    })
}

struct Bench {
    dropped: Arc<AtomicUsize>,
    given_up: Arc<AtomicUsize>,
    remembered: Arc<OnceLock<Resume>>,
}

fn turn(
    calls: Vec<&'static str>,
    silent: bool,
    limits: Limits,
) -> (Bench, impl Stream<Item = ChatEvent> + Send + 'static) {
    let (bench, course, events, with) = prepared(calls, silent, limits);
    (bench, drive(course, events, with))
}

fn turn_with(
    calls: Vec<&'static str>,
    silent: bool,
    limits: Limits,
    stop: Option<CancellationToken>,
) -> (Bench, impl Stream<Item = ChatEvent> + Send + 'static) {
    let (bench, course, events, with) = prepared(calls, silent, limits);
    (bench, drive(course, events, Drive { stop, ..with }))
}

fn prepared(
    calls: Vec<&'static str>,
    silent: bool,
    limits: Limits,
) -> (Bench, Course, Vec<ChatEvent>, Drive) {
    let tool =
        |name: &str| Tool::new(ToolRef { server: "s".into(), name: name.into() }, None, empty_schema());
    let mine =
        InlineTool { name: "s__mine".to_owned(), description: String::new(), parameters: empty_schema() };
    let mut fail = tool("fail");
    fail.repeatable = true;
    fail.retries = Some(Retries::default());
    let catalogue = Catalogue { tools: vec![tool("meet"), tool("hang"), fail], ..Catalogue::default() };
    let bench = Bench { dropped: Arc::default(), given_up: Arc::default(), remembered: Arc::default() };
    let remembered = bench.remembered.clone();
    let turn_timeout = limits.turn_timeout;
    let meeting = calls.iter().filter(|name| **name == "meet").count().max(1);
    let setup = Setup {
        limits,
        ..Setup::new(
            "0123456789abcdef0123456789abcdef",
            "m",
            ModelRequest {
                messages: vec![Message::User(Prose { content: "hi".into(), rest: Map::new() })],
                ..ModelRequest::default()
            },
            ToolSet::new(&catalogue, &[mine], &[]),
        )
    };
    let model = Model { calls, asked: AtomicUsize::new(0), silent: silent.then(|| bench.given_up.clone()) };
    let mut events = Vec::new();
    let course = Course::new(setup, &mut events);
    let with = Drive {
        upstreams: answered_by(model),
        tools: Arc::new(tools(meeting, bench.dropped.clone())),
        shelf: Shelf::default(),
        charge: Charge::default(),
        person: None,
        approving: Approving {
            approvals: Arc::new(CallApprovals::new()),
            about: About {
                owner: String::new(),
                project: "a/b".to_owned(),
                model: None,
                turn: None,
                conversation: None,
            },
            attendance: Attendance::Nobody,
            wait: Duration::from_secs(300),
        },
        check: Arc::new(rules::Recorded),
        errand: Errand::default(),
        turn_timeout,
        journal: None,
        stop: None,
        remember: Box::new(move |done: Done| drop(done.resume.map(|resume| remembered.set(resume)))),
    };
    (bench, course, events, with)
}

/// Who may have anything run.
pub(crate) fn anybody() -> Authority {
    let access = Access::new(std::path::Path::new("/nowhere"));
    let audit = Arc::new(crate::audit::Audit::none());
    Authority::of(Arc::new(access), Arc::new(lf_core::Principal::owner()), audit)
}

fn answered_by(provider: impl ModelProvider + 'static) -> Upstreams {
    let model = Arc::new(lf_core::Model::new("m", lf_core::project::Provider::Demo, "m", ""));
    let upstream = Upstream { model, provider: Arc::new(provider), stand_in: None };
    Upstreams::new(upstream, Vec::new(), Arc::default())
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_round_run_side_by_side() {
    let (_, events) =
        turn(vec!["meet", "meet", "meet"], false, Limits { repeat_calls: 9, ..Limits::default() });
    let events: Vec<ChatEvent> = events.collect().await;
    let finished = events.iter().filter(|event| matches!(event, ChatEvent::CallFinished { .. })).count();
    assert_eq!(finished, 3, "each waits for the other two");
    assert!(events.iter().any(|event| matches!(event, ChatEvent::CallProgress { .. })));
    assert!(matches!(events.last(), Some(ChatEvent::Finished { .. })));
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_parallel_calls_holds() {
    let limits = Limits {
        parallel_calls: 1,
        repeat_calls: 9,
        turn_timeout: Duration::from_secs(5),
        ..Limits::default()
    };
    let (_, events) = turn(vec!["meet", "meet"], false, limits);
    let events: Vec<ChatEvent> = events.collect().await;
    assert_eq!(limits_told(&events), ["time"], "two that wait for each other cannot both run: {events:?}");
}

#[tokio::test(start_paused = true)]
async fn sixteen_calls_run_at_a_time_and_no_more() {
    for (count, meet) in [(16, true), (17, false), (1_600, false)] {
        let limits = Limits { repeat_calls: 10_000, ..Limits::default() };
        let (_, events) = turn(vec!["meet"; count], false, limits);
        let events: Vec<ChatEvent> = events.collect().await;
        assert_eq!(limits_told(&events).is_empty(), meet, "{count} that wait for each other");
        let settled = events.iter().filter(|event| matches!(event, ChatEvent::CallFinished { .. })).count();
        assert_eq!(settled, count, "each has a result");
    }
}

/// The names of the limits that a turn came to.
fn limits_told(events: &[ChatEvent]) -> Vec<&'static str> {
    let limits = events.iter().filter_map(|event| match event {
        ChatEvent::Limited(limit) => Some(limit.name()),
        _ => None,
    });
    limits.collect()
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_cancels_the_running_tools() {
    let (bench, events) = turn(vec!["hang"], false, Limits::default());
    let mut events = Box::pin(events);
    while let Some(event) = events.next().await {
        if matches!(event, ChatEvent::CallProgress { .. }) {
            break;
        }
    }
    assert_eq!(bench.dropped.load(Ordering::SeqCst), 0);
    drop(events);
    assert_eq!(bench.dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_cancels_the_models_request() {
    let (bench, events) = turn(Vec::new(), true, Limits::default());
    let mut events = Box::pin(events);
    assert!(matches!(events.next().await, Some(ChatEvent::Started { .. })));
    let waiting = tokio::time::timeout(Duration::from_secs(1), events.next()).await;
    assert!(waiting.is_err(), "the model is silent");
    drop(events);
    assert_eq!(bench.given_up.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_turn_has_a_limit_of_time_and_cancels_what_still_runs() {
    let limits = Limits { turn_timeout: Duration::from_secs(7), ..Limits::default() };
    let (bench, events) = turn(vec!["hang"], false, limits);
    let events: Vec<ChatEvent> = events.collect().await;
    assert_eq!(limits_told(&events), ["time"]);
    assert!(matches!(events.last(), Some(ChatEvent::Finished { .. })), "there is an answer: {events:?}");
    assert_eq!(bench.dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_client_comes_back_for_is_remembered_before_it_sees_the_end() {
    let (bench, events) = turn(vec!["meet", "mine"], false, Limits::default());
    let mut events = Box::pin(events);
    while let Some(event) = events.next().await {
        if matches!(event, ChatEvent::ClientCalls(_)) {
            break;
        }
    }
    drop(events);
    let resume = bench.remembered.get().expect("it is kept");
    assert_eq!(resume.ids.len(), 1);
}

/// A turn with one call of `fail`, which fails each time and may run again.
fn failing(
    limits: Limits,
    stop: Option<CancellationToken>,
) -> (Bench, impl Stream<Item = ChatEvent> + Send + 'static) {
    turn_with(vec!["fail"], false, limits, stop)
}

fn notices(events: &[ChatEvent]) -> usize {
    events
        .iter()
        .filter(|event| matches!(event, ChatEvent::Notice(text) if text.contains("tried again")))
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_is_made_again_after_growing_pauses() {
    let started = tokio::time::Instant::now();
    let (_, events) = failing(Limits::default(), None);
    let events: Vec<ChatEvent> = events.collect().await;
    assert_eq!(notices(&events), 2, "{events:?}");
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(1500) && waited <= Duration::from_millis(2300), "{waited:?}");
    assert!(matches!(events.last(), Some(ChatEvent::Finished { .. })), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_made_again_when_the_turn_would_be_over_before() {
    let limits = Limits { turn_timeout: Duration::from_millis(900), ..Limits::default() };
    let (_, events) = failing(limits, None);
    let events: Vec<ChatEvent> = events.collect().await;
    assert_eq!(notices(&events), 1, "{events:?}");
    assert!(
        matches!(events.last(), Some(ChatEvent::Finished { .. })),
        "the model is told instead: {events:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pause_before_another_try_can_be_cut_short() {
    let (started, stop) = (tokio::time::Instant::now(), CancellationToken::new());
    let (_, events) = failing(Limits::default(), Some(stop.clone()));
    let mut events = Box::pin(events);
    let mut told = Vec::new();
    while let Some(event) = events.next().await {
        if matches!(event, ChatEvent::Notice(_)) {
            stop.cancel();
        }
        told.push(event);
    }
    assert_eq!((notices(&told), started.elapsed()), (1, Duration::ZERO), "{told:?}");
    assert!(matches!(told.last(), Some(ChatEvent::Finished { .. })), "{told:?}");
}
