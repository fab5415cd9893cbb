//! Attempts to run a tool outside of what its caller may use: in turns of every kind, under every spelling, and by
//! clients. What runs is counted where tools run.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use futures_util::{StreamExt as _, stream};
use globset::Glob;
use indexmap::IndexMap;
use lf_core::message::Prose;
use lf_core::model::ModelRequest;
use lf_core::policy::Policy;
use lf_core::project::{
    ApprovalOf, ApprovalRule, InlineTool, Limits, McpServer, Provider, StdioServer, ToolCallStrategy,
    ToolFilter, Transport,
};
use lf_core::tool::{Attendant, BoxFuture, Catalogue, Tool, ToolContent, ToolProgress};
use lf_core::tool_set::empty_schema;
use lf_core::turn::{Ask, Course, Setup, Waiting};
use lf_core::{
    Arguments, AssistantMessage, ChatEvent, DeltaStream, FinishReason, Message, Model, ModelDelta,
    ModelProvider, ToolCall, ToolError, ToolOutput, ToolResult, ToolSet, ToolSource,
};

use super::*;
use crate::approvals::{About, Attendance, CallApprovals};
use crate::authority::Errand;
use crate::driver::tests::anybody;
use crate::driver::{Approving, Drive, drive, execute_tool};
use crate::failover::{Upstream, Upstreams};
use crate::quotas::Charge;
use crate::results::Shelf;

/// What `cargo test` makes; the whole suite is to stay within minutes.
const ATTEMPTS: usize = 100_000;
/// Calls of one turn.
const CALLS: usize = 25;

/// What a model may run here: everything else is outside.
const LISTED: [(&str, &str); 2] = [("open", "read"), ("open", "list")];
const FORBIDDEN: [(&str, &str); 7] = [
    // a server that the model does not list
    ("closed", "read"),
    ("closed", "wipe"),
    // withheld by a filter
    ("open", "hidden"),
    // denied by `approval`
    ("open", "drop"),
    // denied by a rule
    ("open", "wipe"),
    // denied by a rule on arguments, which every attempt fits
    ("open", "send"),
    // no server of the project
    ("ghost", "read"),
];

fn glob(pattern: &str) -> globset::GlobMatcher {
    Glob::new(pattern).expect("a glob").compile_matcher()
}

fn server(name: &str, tools: ToolFilter) -> (String, Result<Arc<McpServer>, lf_core::project::Disabled>) {
    let transport = Transport::Stdio(StdioServer::new("true", &[]));
    (name.to_owned(), Ok(Arc::new(McpServer { tools, ..McpServer::new(name, transport) })))
}

fn model(name: &str, servers: &[&str]) -> (String, Result<Arc<Model>, lf_core::project::Disabled>) {
    let servers = servers.iter().map(|name| (*name).to_owned()).collect();
    let model = Model { servers, ..Model::new(name, Provider::Openai, "m", "http://127.0.0.1:9") };
    (name.to_owned(), Ok(Arc::new(model)))
}

/// A project in which `narrow` may use what is [`LISTED`]; `wide` may use the other server, too.
pub(crate) fn project() -> Project {
    let deny = |tool: &str, when: Option<&str>| lf_core::policy::Rule {
        tools: Some(vec![glob(tool)]),
        servers: Some(vec![glob("open")]),
        when: when.map(|when| lf_core::policy::Condition::compile(when).expect("a condition")),
        ..lf_core::policy::Rule::new(tool, Approval::Deny)
    };
    let drop = ApprovalRule { of: ApprovalOf::Tools(glob("drop")), approval: Approval::Deny };
    let open = ToolFilter { deny: vec![glob("hidden")], approval: vec![drop], ..ToolFilter::default() };
    Project {
        namespace: "default".to_owned(),
        name: "demo".to_owned(),
        root: std::path::PathBuf::from("/"),
        servers: IndexMap::from([server("open", open), server("closed", ToolFilter::default())]),
        models: IndexMap::from([model("narrow", &["open"]), model("wide", &["open", "closed"])]),
        default_model: None,
        prompts: IndexMap::new(),
        carried: Vec::new(),
        storage: Ok(Default::default()),
        policy: Policy {
            rules: vec![deny("wipe", None), deny("send", Some("args.n >= 0"))],
            ..Policy::default()
        },
        quota: lf_core::quota::Quota::default(),
        pins: Arc::default(),
    }
}

fn all_tools() -> Vec<Tool> {
    let tools = LISTED.iter().chain(&FORBIDDEN).map(|(server, name)| {
        let id = ToolRef { server: (*server).into(), name: (*name).into() };
        Tool::new(id, None, empty_schema())
    });
    tools.collect()
}

/// Runs everything, and counts what should not have been.
#[derive(Default)]
struct Counted {
    listed: AtomicUsize,
    forbidden: Mutex<BTreeSet<(String, String)>>,
    breaches: AtomicUsize,
    /// The list is wider until the file is read again.
    is_wide: AtomicBool,
}

impl ToolSource for Counted {
    fn list<'a>(&'a self, _: &'a [String]) -> BoxFuture<'a, Catalogue> {
        Box::pin(async { Catalogue::default() })
    }

    fn call<'a>(
        &'a self,
        tool: &'a ToolRef,
        _: &'a Map<String, Value>,
        _: &'a dyn Attendant,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let id = (&*tool.server, &*tool.name);
        if !LISTED.contains(&id) && !FORBIDDEN.contains(&id) {
            // what no server has is run by none, whoever asks
            let unknown = ToolError::UnknownTool { server: id.0.to_owned(), tool: id.1.to_owned() };
            return Box::pin(std::future::ready(Err(unknown)));
        }
        let may = LISTED.contains(&id) || (self.is_wide.load(Ordering::SeqCst) && id.0 == "closed");
        if may {
            self.listed.fetch_add(1, Ordering::SeqCst);
        } else {
            self.breaches.fetch_add(1, Ordering::SeqCst);
            let mut forbidden = self.forbidden.lock().unwrap_or_else(PoisonError::into_inner);
            forbidden.insert((id.0.to_owned(), id.1.to_owned()));
        }
        let content = vec![ToolContent::Text("ok".to_owned())];
        Box::pin(std::future::ready(Ok(ToolOutput { content, ..ToolOutput::default() })))
    }
}

/// A build from which the check was removed.
struct Removed;

impl Check for Removed {
    fn check(&self, _: &Asked<'_>, _: Instant) -> Judgement {
        Judgement::runs()
    }
}

/// The same numbers in every run (xorshift, Marsaglia 2003).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap_or_default()
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A spelling that a model may have for a tool; some stand for it, some for nothing, some for another one.
fn spelled(dice: &mut Dice, (server, name): (&str, &str)) -> String {
    match dice.below(14) {
        0..=4 => format!("{server}__{name}"),
        5 => format!("{server}.{name}"),
        6 => name.to_owned(),
        7 => format!("functions.{server}__{name}"),
        8 => format!("{server}__{name}").to_uppercase(),
        9 => format!("  {server}__{name}\n"),
        10 => format!("open__{server}__{name}"),
        11 => format!("open__../{server}__{name}"),
        12 => format!("{server}__{name}").replace('e', "\u{435}"),
        _ => format!("{server}__{name}{}", "_".repeat(dice.below(80))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Native,
    Prompted,
    Streamed,
    InlineClash,
    Resumed,
    ReloadRace,
}

const KINDS: [Kind; 6] =
    [Kind::Native, Kind::Prompted, Kind::Streamed, Kind::InlineClash, Kind::Resumed, Kind::ReloadRace];

/// One answer with calls, then one without.
struct Caller(Mutex<Vec<ModelDelta>>);

impl ModelProvider for Caller {
    fn stream(&self, _: &ModelRequest) -> DeltaStream {
        let mut deltas = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if deltas.is_empty() {
            deltas.push(ModelDelta::Text("done".to_owned()));
        }
        deltas.push(ModelDelta::Finish { reason: FinishReason::Stop, raw: None, stop_sequence: None });
        Box::pin(stream::iter(deltas.into_iter().map(Ok)))
    }
}

struct Attempts {
    dice: Dice,
    made: usize,
    counted: Arc<Counted>,
}

impl Attempts {
    fn new() -> Self {
        Self { dice: Dice(0x5eed_1e55_c0ff_ee01), made: 0, counted: Arc::default() }
    }

    fn calls(&mut self) -> Vec<ToolCall> {
        let calls = (0..CALLS).map(|at| {
            self.made += 1;
            let target =
                if self.dice.below(10) == 0 { self.dice.of(&LISTED) } else { self.dice.of(&FORBIDDEN) };
            ToolCall {
                id: format!("c{}", self.made),
                name: spelled(&mut self.dice, target),
                arguments: Arguments::parse(format!(r#"{{"n": {at}, "made": {}}}"#, self.made)),
                rest: Map::new(),
            }
        });
        calls.collect()
    }

    fn deltas(&mut self, kind: Kind, calls: Vec<ToolCall>) -> Vec<ModelDelta> {
        if !matches!(kind, Kind::Prompted | Kind::Streamed) {
            return calls.into_iter().map(ModelDelta::Call).collect();
        }
        let tags = calls.iter().map(|call| {
            let call = serde_json::json!({"name": call.name, "arguments": call.arguments.value().ok()});
            format!("<tool_call>{call}</tool_call>\n")
        });
        let text: String = tags.collect();
        if kind == Kind::Prompted {
            return vec![ModelDelta::Text(text)];
        }
        let letters: Vec<char> = text.chars().collect();
        let size = 1 + self.dice.below(40);
        letters.chunks(size).map(|piece| ModelDelta::Text(piece.iter().collect())).collect()
    }

    /// One turn of a model whose tool set is stale or wrong: it has every tool there is, so that the check alone stands
    /// between a call and its server.
    async fn turn(&mut self, kind: Kind, check: &Arc<dyn Check>, race: &Arc<AtomicBool>) {
        let calls = self.calls();
        let user = Message::User(Prose { content: "hi".into(), rest: Map::new() });
        let mut messages = vec![user.clone()];
        let mut waiting = None;
        let mut deltas = Vec::new();
        if kind == Kind::Resumed {
            // what `wide` had done and wanted to do, in a conversation that goes on with `narrow`
            let call = ToolCall { id: "old".to_owned(), name: "closed__wipe".to_owned(), ..calls[0].clone() };
            let result = ToolResult { is_error: false, ..ToolResult::error(&call, "wiped") };
            let said = AssistantMessage { calls: vec![call], ..AssistantMessage::default() };
            messages.extend([Message::Assistant(said), Message::Tool(result), user]);
            let asks = calls.iter().map(|call| {
                let (tool, yes) = (all_tools()[0].id.clone(), lf_core::turn::Verdict::Approved);
                let decision =
                    lf_core::turn::Decision { verdict: yes, by: "p".to_owned(), reason: None, who: None };
                Ask {
                    id: format!("apr_{}", call.id),
                    call: call.clone(),
                    tool,
                    why: None,
                    decision: Some(decision),
                }
            });
            waiting = Some(Waiting { asks: asks.collect(), calls, ..Waiting::default() });
        } else {
            deltas = self.deltas(kind, calls);
        }
        let clash = |name: &str| InlineTool {
            name: name.to_owned(),
            description: String::new(),
            parameters: empty_schema(),
        };
        let inline: Vec<InlineTool> = match kind {
            Kind::InlineClash => ["closed__wipe", "open__wipe", "wipe", "read"].map(clash).to_vec(),
            _ => Vec::new(),
        };
        let catalogue = Catalogue { tools: all_tools(), ..Catalogue::default() };
        let setup = Setup {
            strategy: match kind {
                Kind::Prompted | Kind::Streamed => ToolCallStrategy::PromptBased,
                _ => ToolCallStrategy::NativeApi,
            },
            judged: kind == Kind::ReloadRace || self.dice.below(2) == 0,
            waiting,
            ..Setup::new(
                "0123456789abcdef0123456789abcdef",
                "narrow",
                ModelRequest { messages, stream: true, ..ModelRequest::default() },
                ToolSet::new(&catalogue, &inline, &[]),
            )
        };
        let counted = self.counted.clone();
        race.store(kind == Kind::ReloadRace, Ordering::SeqCst);
        counted.is_wide.store(kind == Kind::ReloadRace, Ordering::SeqCst);
        let provider = Caller(Mutex::new(deltas));
        let found = model("narrow", &["open"]).1.expect("a model");
        let upstream = Upstream { model: found, provider: Arc::new(provider), stand_in: None };
        let about = About {
            owner: String::new(),
            project: "default/demo".to_owned(),
            model: None,
            turn: None,
            conversation: None,
        };
        let mut events = Vec::new();
        let course = Course::new(setup, &mut events);
        let with = Drive {
            upstreams: Upstreams::new(upstream, Vec::new(), Arc::default()),
            tools: counted.clone(),
            check: check.clone(),
            errand: Errand::default(),
            shelf: Shelf::default(),
            charge: Charge::default(),
            turn_timeout: Limits::default().turn_timeout,
            person: None,
            approving: Approving {
                approvals: Arc::new(CallApprovals::new()),
                about,
                attendance: Attendance::Nobody,
                wait: Duration::ZERO,
            },
            journal: None,
            stop: None,
            remember: Box::new(drop),
        };
        let told: Vec<ChatEvent> = drive(course, events, with).collect().await;
        assert!(matches!(told.last(), Some(ChatEvent::Finished { .. })), "{:?}", told.last());
        counted.is_wide.store(false, Ordering::SeqCst);
    }

    /// Calls of a client, as `…/mcp/execute` makes them.
    async fn client(&mut self, check: &dyn Check) {
        for call in self.calls() {
            let (server, name) = call.name.split_once("__").unwrap_or(("open", &call.name));
            let facts = Facts::alone(
                ToolRef { server: server.into(), name: name.into() },
                Hints::default(),
                Labels::default(),
            );
            let empty = Map::new();
            let asked = Asked {
                model: Some("narrow"),
                facts: &facts,
                arguments: call.arguments.value().unwrap_or(&empty),
            };
            let told: &dyn Attendant = &|_: ToolProgress| {};
            let _ = execute_tool(&*self.counted, check, &asked, &call.id, told).await;
        }
    }

    /// Makes so many, one kind after the other.
    fn make(&mut self, count: usize, check: &Arc<dyn Check>, race: &Arc<AtomicBool>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut turn = 0;
            while self.made < count {
                match turn % (KINDS.len() + 1) {
                    kind if kind < KINDS.len() => self.turn(KINDS[kind], check, race).await,
                    _ => self.client(&**check).await,
                }
                turn += 1;
            }
        });
    }
}

/// The rules as they are, by a file that is read again: where the first is true, `narrow` may use `closed` as well, the
/// first time that somebody looks, and from then on not any more.
fn rules(race: &Arc<AtomicBool>, counted: &Arc<Counted>) -> Arc<dyn Check> {
    let narrow = Arc::new(project());
    let mut open = project();
    open.models.insert("narrow".to_owned(), model("narrow", &["open", "closed"]).1);
    let (open, race, counted) = (Arc::new(open), race.clone(), counted.clone());
    let active = move || match race.swap(false, Ordering::SeqCst) {
        true => {
            counted.is_wide.store(false, Ordering::SeqCst);
            Some(open.clone())
        }
        false => Some(narrow.clone()),
    };
    Arc::new(Rules::of(Arc::new(active), anybody()))
}

#[test]
fn of_a_hundred_thousand_attempts_to_run_a_tool_outside_its_list_none_does() {
    let race = Arc::default();
    let mut attempts = Attempts::new();
    let rules = rules(&race, &attempts.counted);
    attempts.make(ATTEMPTS, &rules, &race);
    assert!(attempts.made >= ATTEMPTS);
    let forbidden = attempts.counted.forbidden.lock().expect("nobody panicked").clone();
    assert_eq!((attempts.counted.breaches.load(Ordering::SeqCst), forbidden), (0, BTreeSet::new()));
    // what is listed runs: the attempts get that far
    assert!(attempts.counted.listed.load(Ordering::SeqCst) > ATTEMPTS / 100);
}

#[test]
fn a_build_without_the_check_is_caught_by_the_same_attempts() {
    let race = Arc::default();
    let mut attempts = Attempts::new();
    let check: Arc<dyn Check> = Arc::new(Removed);
    attempts.make(2_000, &check, &race);
    let forbidden = attempts.counted.forbidden.lock().expect("nobody panicked").clone();
    let all = FORBIDDEN.map(|(server, name)| (server.to_owned(), name.to_owned()));
    assert_eq!(forbidden, BTreeSet::from(all), "each of them would run");
    assert!(attempts.counted.breaches.load(Ordering::SeqCst) > 500);
}

#[test]
fn a_look_into_a_result_that_was_cut_is_nothing_for_the_rules() {
    let mut project = project();
    project.policy.default = Approval::Deny;
    let facts = |server: &str| {
        let id = ToolRef { server: server.into(), name: "result_read".into() };
        Facts::alone(id, Hints::default(), Labels::default())
    };
    let project = Arc::new(project);
    let rules = Rules::of(Arc::new(move || Some(project.clone())), anybody());
    let may_run = |server| {
        let asked = Asked { model: Some("narrow"), facts: &facts(server), arguments: &Map::new() };
        permit(&rules, &asked).is_ok()
    };
    assert!(may_run(SOURCE));
    assert!(!may_run("open"), "a tool of that name elsewhere is one like any other");
}
