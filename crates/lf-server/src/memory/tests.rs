use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use indexmap::IndexMap;
use lf_core::message::{Arguments, Prose, ToolCall};
use lf_core::model::{FinishReason, ModelRequest};
use lf_core::project::Provider;
use lf_core::tool::{Approval, Catalogue, Tool};
use lf_core::turn::{Ask, Decision, Setup, Verdict, Waiting, check_answers};
use lf_core::{DeltaStream, Model, ModelDelta, ModelProvider, ToolRef, ToolSet};
use lf_mcp::{PoolOptions, SessionPool};
use lf_store::{End, Kind};
use serde_json::{Map, json};
use tokio::time::{Instant, sleep};

use super::speaking::WAITING;
use super::*;
use crate::app::Parts;
use crate::approvals::{CallApprovals, Outcome};
use crate::authority::Errand;
use crate::failover::{Upstream, Upstreams};

const LIMIT: Duration = Duration::from_secs(30);
/// A client's patience with the messages before its own.
const WAIT: Duration = Duration::from_secs(90);

/// A daemon without HTTP: the project `default/demo` with the models `demo`, and `hang`, which never answers.
struct Bench {
    app: Arc<App>,
    /// The stored project `default/stored` cannot be read.
    broken: Arc<AtomicBool>,
    _upstream: TcpListener,
    _directory: tempfile::TempDir,
}

fn project(name: &str, models: impl IntoIterator<Item = Model>) -> Project {
    let models: IndexMap<_, _> =
        models.into_iter().map(|model| (model.name.clone(), Ok(Arc::new(model)))).collect();
    Project {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        root: PathBuf::new(),
        servers: IndexMap::new(),
        default_model: models.keys().next().cloned(),
        models,
        prompts: IndexMap::new(),
        carried: Vec::new(),
        storage: Ok(Default::default()),
        policy: lf_core::policy::Policy::default(),
        quota: lf_core::quota::Quota::default(),
        pins: Arc::default(),
    }
}

fn demo() -> Model {
    Model::new("demo", Provider::Demo, "demo", "")
}

impl Bench {
    async fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", upstream.local_addr().unwrap());
        let hang = Model::new("hang", Provider::Openai, "hang", url);
        let stored = directory.path().join("projects/default/stored");
        std::fs::create_dir_all(&stored).unwrap();
        std::fs::write(stored.join("llamafarm.yaml"), "version: v1").unwrap();
        let broken = Arc::new(AtomicBool::new(false));
        let now = broken.clone();
        let pool = SessionPool::new(PoolOptions::new(Vec::new(), PathBuf::from("lf")));
        let app = App::new(Parts {
            audit: Arc::new(crate::audit::Audit::none()),
            project: Some(project("demo", [demo(), hang]).into()),
            data_dir: directory.path().to_owned(),
            loader: Box::new(move |_: &Path| match now.load(Ordering::SeqCst) {
                true => Err(crate::app::Broken::new("line 1: it is no mapping")),
                false => Ok(project("stored", [demo()]).into()),
            }),
            pool,
            timeouts: crate::Timeouts::default(),
            egress: crate::Egress::new(Arc::default(), Vec::new()),
            store: Ok(Store::open(directory.path().to_owned()).await.unwrap()),
            recordings: None,
        });
        Self { app: Arc::new(app.unwrap()), broken, _upstream: upstream, _directory: directory }
    }

    fn memory(&self) -> &Arc<Memory> {
        self.app.memory().unwrap()
    }

    async fn conversation(&self, scope: &str) -> Conversation {
        let conversation = Conversation {
            owner: String::new(),
            id: "c".to_owned(),
            scope: scope.to_owned(),
            kind: Kind::Conversation,
            title: None,
            system: None,
            model: None,
            created: 0,
            updated: 0,
        };
        self.memory().store.create(&conversation).await.unwrap();
        conversation
    }

    /// A turn that a daemon left behind after these entries.
    async fn left(&self, turn: &str, model: &str, entries: impl IntoIterator<Item = Entry>) {
        self.left_with(setup(turn, model), entries).await;
    }

    async fn left_with(&self, setup: Setup, entries: impl IntoIterator<Item = Entry>) {
        let turn = &setup.id.clone();
        let said = [(message_id(), user("hi"))];
        let begun = Entry::Begun(Box::new(setup));
        let begin = Begin { turn, conversation: "c", said: &said, begun: &begun, after: None };
        let mut journal = self.memory().store.begin(begin).await.unwrap();
        for entry in entries {
            journal.append(&entry);
        }
        journal.flush().await.unwrap();
    }

    async fn state(&self, turn: &str) -> TurnState {
        self.memory().store.turn(turn).await.unwrap().unwrap().state
    }

    async fn ends(&self, turn: &str) -> TurnState {
        let ended = async {
            loop {
                match self.state(turn).await {
                    TurnState::Running => sleep(Duration::from_millis(5)).await,
                    state => return state,
                }
            }
        };
        tokio::time::timeout(LIMIT, ended).await.expect("it ends")
    }

    async fn kept(&self) -> Vec<Message> {
        let kept = self.memory().store.messages("c", 0).await.unwrap();
        kept.into_iter().map(|kept| kept.message).collect()
    }

    async fn say(&self, text: &str, conversation: &Conversation) -> Result<Arc<Running>, Refusal> {
        let request = ChatRequest { messages: vec![user(text)], ..ChatRequest::default() };
        self.app
            .converse(
                None,
                conversation,
                Saying {
                    who: Arc::new(Principal::owner()),
                    request,
                    chosen_tools: false,
                    calls_left: None,
                    attendance: Attendance::Nobody,
                    recall: None,
                },
            )
            .await
    }
}

fn setup(turn: &str, model: &str) -> Setup {
    Setup::new(
        turn,
        model,
        ModelRequest { messages: vec![user("hi")], ..ModelRequest::default() },
        ToolSet::default(),
    )
}

/// Nobody is there who could approve anything.
pub(super) fn unattended() -> Approving {
    Approving {
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
    }
}

fn user(text: &str) -> Message {
    Message::User(Prose { content: text.into(), ..Prose::default() })
}

fn call() -> ToolCall {
    ToolCall {
        id: "a".to_owned(),
        name: "s__pay".to_owned(),
        arguments: Arguments::from_object(Map::new()),
        rest: Map::new(),
    }
}

/// A round with one call of a tool that is not there, and its result.
fn round() -> Vec<Entry> {
    let call = call();
    let finish = ModelDelta::Finish { reason: FinishReason::ToolCalls, raw: None, stop_sequence: None };
    vec![Entry::Delta(ModelDelta::Call(call)), Entry::Delta(finish), Entry::Answered, Entry::Ran]
}

#[tokio::test]
async fn turns_that_wait_for_each_other_do_not_hold_up_the_start() {
    let bench = Bench::new().await;
    bench.conversation("default/demo").await;
    for turn in ["first", "second"] {
        bench.left(turn, "hang", []).await;
    }
    tokio::time::timeout(LIMIT, bench.app.recover()).await.expect("nothing is waited for");
    let first = async {
        loop {
            match bench.memory().running("first") {
                Some(running) => return running,
                None => sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let first = tokio::time::timeout(LIMIT, first).await.expect("it goes on");
    assert!(bench.memory().running("second").is_none(), "one after the other");
    first.stop().await;
    assert_eq!(bench.state("second").await, TurnState::Running);
    let cut = CancellationToken::new();
    cut.cancel();
    tokio::time::timeout(LIMIT, bench.memory().drain(&cut)).await.expect("it is left");
    assert_eq!(bench.state("second").await, TurnState::Running, "for the next start");
}

#[tokio::test]
async fn a_turn_whose_model_was_named_with_its_project_goes_on() {
    let bench = Bench::new().await;
    bench.conversation("default/stored").await;
    bench.left("t", "default/stored/demo", []).await;
    bench.app.recover().await;
    assert_eq!(bench.ends("t").await, TurnState::Finished);
    assert!(matches!(bench.kept().await.last(), Some(Message::Assistant(_))));
}

#[tokio::test]
async fn a_turn_that_cannot_go_on_says_why_and_keeps_what_it_did() {
    let bench = Bench::new().await;
    bench.conversation("default/demo").await;
    bench.left("t", "removed", round()).await;
    bench.app.recover().await;
    assert_eq!(bench.ends("t").await, TurnState::Failed);
    let kept = bench.kept().await;
    check_answers(&kept).unwrap();
    assert!(matches!(&kept[..], [_, Message::Assistant(_), Message::Tool(_)]), "{kept:?}");
    let record = bench.memory().store.turn("t").await.unwrap().unwrap();
    let events = events_of(bench.memory(), &record).await.unwrap().unwrap();
    let Some(ChatEvent::Failed(error)) = events.last() else { panic!("{events:?}") };
    assert!(error.to_string().contains("model `removed` does not exist"), "{error}");
}

#[tokio::test]
async fn a_turn_that_was_stopped_stays_so() {
    for model in ["demo", "removed"] {
        let bench = Bench::new().await;
        bench.conversation("default/demo").await;
        bench.left("t", model, [Entry::Stopped]).await;
        bench.app.recover().await;
        assert_eq!(bench.ends("t").await, TurnState::Cancelled, "{model}");
    }
}

#[tokio::test]
async fn what_waits_for_an_approval_waits_on_where_the_turn_cannot_go_on() {
    let bench = Bench::new().await;
    bench.conversation("default/demo").await;
    let id = ToolRef { server: "s".into(), name: "pay".into() };
    let mut tool = Tool::new(id, None, Arc::new(json!({"type": "object"})));
    tool.approval = Approval::Ask;
    let catalogue = Catalogue { tools: vec![tool], ..Catalogue::default() };
    let setup = Setup { tools: ToolSet::new(&catalogue, &[], &[]), ..setup("t", "removed") };
    let mut entries = round();
    entries.pop();
    entries.push(Entry::Unanswered { words: "Please approve.".to_owned() });
    bench.left_with(setup, entries).await;
    bench.app.recover().await;
    assert_eq!(bench.ends("t").await, TurnState::Finished);
    let left = bench.memory().store.waiting("c").await.unwrap().expect("it waits");
    let calls: Vec<&str> = left.waiting.calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!((calls, left.waiting.asks.len()), (vec!["s__pay"], 1));
}

#[tokio::test]
async fn a_decision_reaches_the_turn_that_begins_with_its_call_meanwhile() {
    let bench = Bench::new().await;
    bench.conversation("default/demo").await;
    bench.left("t", "demo", []).await;
    let tool = ToolRef { server: "s".into(), name: "pay".into() };
    let ask = Ask { id: "apr_1".to_owned(), call: call(), tool, why: None, decision: None };
    let waiting = Waiting { calls: vec![call()], asks: vec![ask.clone()], ..Waiting::default() };
    let ended = End { waiting: Some(&waiting), ..End::finished("t", "c", &[]) };
    bench.memory().store.end(ended).await.unwrap();
    // the turn that is about to begin with it speaks
    let _guard = bench.memory().line("c").lock_owned().await;
    let decision = Decision { verdict: Verdict::Approved, by: "Ada".to_owned(), reason: None, who: None };
    let begins = async {
        let about = unattended().about;
        let mut opened = bench.app.approvals.open([&ask].into_iter(), &about, LIMIT);
        opened.next().await.kept();
    };
    let decided = async { tokio::join!(biased; bench.app.decide("apr_1", decision), begins) };
    let (outcome, ()) = tokio::time::timeout(LIMIT, decided).await.expect("neither waits for the other");
    assert_eq!(outcome.unwrap(), Outcome::Taken);
}

#[tokio::test]
async fn a_turn_waits_until_its_project_can_be_read_again() {
    let bench = Bench::new().await;
    bench.conversation("default/stored").await;
    bench.left("t", "demo", []).await;
    bench.broken.store(true, Ordering::SeqCst);
    bench.app.recover().await;
    assert_eq!(bench.state("t").await, TurnState::Running, "a mistake in a file is mended");
    bench.broken.store(false, Ordering::SeqCst);
    assert_eq!(bench.ends("t").await, TurnState::Finished);
}

#[tokio::test]
async fn what_is_said_in_a_conversation_that_is_deleted_meanwhile_is_refused() {
    let bench = Bench::new().await;
    let conversation = bench.conversation("default/demo").await;
    let guard = bench.memory().line("c").lock_owned().await;
    let said = bench.say("hi", &conversation);
    let delete = async {
        bench.memory().store.delete("c").await.unwrap();
        drop(guard);
    };
    let (said, ()) = tokio::join!(said, delete);
    assert!(matches!(said, Err(Refusal::UnknownConversation(id)) if id == "c"));
}

#[tokio::test]
async fn who_waits_to_speak_when_the_daemon_ends_is_refused() {
    let bench = Bench::new().await;
    let conversation = bench.conversation("default/demo").await;
    let _guard = bench.memory().line("c").lock_owned().await;
    let cut = CancellationToken::new();
    cut.cancel();
    let said = bench.say("hi", &conversation);
    let (said, ()) = tokio::join!(said, bench.memory().drain(&cut));
    let Err(Refusal::Model(error)) = said else { panic!("it is too late") };
    assert!(error.is_going_down(), "{error}");
    assert_eq!(bench.kept().await, []);
}

#[tokio::test]
async fn so_many_wait_for_their_turn_and_no_more() {
    let bench = Bench::new().await;
    let guard = bench.memory().line("c").lock_owned().await;
    let mut waiting: Vec<_> =
        (0..WAITING).map(|_| Box::pin(bench.memory().next_to_speak("c", WAIT))).collect();
    for waits in &mut waiting {
        assert!(waits.as_mut().now_or_never().is_none());
    }
    let Err(Refusal::Busy(why)) = bench.memory().next_to_speak("c", WAIT).await else { panic!("it is full") };
    assert!(why.contains("`c` has 256 messages waiting"), "{why}");
    assert!(bench.memory().next_to_speak("d", WAIT).await.is_ok(), "another conversation");
    drop(guard);
    assert!(waiting.remove(0).await.is_ok());
    assert!(waiting.remove(0).await.is_ok(), "each lets the next one speak");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever_for_his_turn() {
    let directory = tempfile::tempdir().unwrap();
    let memory = Memory::new(Store::at(directory.path()).unwrap());
    let _guard = memory.line("c").lock_owned().await;
    let began = Instant::now();
    let Err(Refusal::Busy(why)) = memory.next_to_speak("c", WAIT).await else { panic!("it is never free") };
    assert!(why.contains("was busy with other messages for 90s (`limits.queue_timeout`)"), "{why}");
    assert_eq!(began.elapsed().as_secs(), WAIT.as_secs());
}

struct Broken;

impl ModelProvider for Broken {
    fn stream(&self, _: &ModelRequest) -> DeltaStream {
        panic!("a mistake of ours")
    }
}

#[tokio::test]
async fn a_turn_that_breaks_off_lets_go_of_its_watchers_and_of_its_conversation() {
    let bench = Bench::new().await;
    let setup = setup("t", "demo");
    let mut events = Vec::new();
    let turn_timeout = setup.limits.turn_timeout;
    let course = Course::new(setup, &mut events);
    let running = Arc::new(Running::new("t".to_owned(), "c".to_owned(), CancellationToken::new()));
    let upstream = Upstream { model: Arc::new(demo()), provider: Arc::new(Broken), stand_in: None };
    let with = Drive {
        upstreams: Upstreams::new(upstream, Vec::new(), Arc::default()),
        tools: bench.app.tools_of(&bench.app.project().unwrap(), &demo()),
        check: Arc::new(crate::rules::Recorded),
        errand: Errand::default(),
        shelf: Shelf::default(),
        charge: crate::quotas::Charge::default(),
        turn_timeout,
        person: None,
        approving: unattended(),
        journal: None,
        stop: None,
        remember: Box::new(|_| {}),
    };
    let guard = bench.memory().line("c").lock_owned().await;
    bench.memory().run(running.clone(), course, events, with, guard);
    let watching = running.clone().watch(0).collect::<Vec<_>>();
    tokio::time::timeout(LIMIT, watching).await.expect("it is over");
    assert!(!running.has_ended() && bench.memory().running("t").is_none());
    tokio::time::timeout(LIMIT, bench.memory().line("c").lock_owned()).await.expect("it is free");
}
