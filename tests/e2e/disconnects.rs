//! A thousand clients go away, at every moment of a turn: what nobody waits for any more is let go of at once, and what was
//! said in a kept conversation is answered all the same.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use lf_tests::client::{Open, chat, get, post, stream, streamed_chat};
use lf_tests::conversation::{at, create, said};
use lf_tests::project::{Daemon, TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{End, Reply, ScriptedModel, rounds_so_far};
use lf_tests::wait::{Gate, eventually};
use serde_json::{Value, json};

/// For the model and the tools to be let go of, at the 99th percentile.
const LIMIT: Duration = Duration::from_secs(2);
/// Times as long as a mere request with one commit at the same moments, where the machine is busy with something else: what
/// is let go of has passed through four processes and a commit or two.
const MOST: u32 = 10;
/// Clients at the same time.
const CLIENTS: usize = 4;
/// Of each kind.
const STATELESS: usize = 120;
const KEPT: usize = 68;
const CANCELLED: usize = 50;

/// A daemon whose model and tools do what the question says: `KIND NUMBER`.
struct Scene {
    model: ScriptedModel,
    daemon: Daemon,
    /// Of the model's requests: question and round, by their number.
    asked: Arc<Mutex<HashMap<usize, (String, usize)>>>,
    gates: Arc<Mutex<HashMap<String, Gate>>>,
    /// How long conversations took to be made all the while: what the machine can do.
    made: Mutex<Vec<Duration>>,
    directory: tempfile::TempDir,
    _project: TestProject,
}

fn question(request: &Value) -> String {
    let messages = request["messages"].as_array().unwrap().iter();
    let mut users = messages.filter(|message| message["role"] == "user");
    users.next_back().unwrap()["content"].as_str().unwrap().to_owned()
}

fn gate(gates: &Mutex<HashMap<String, Gate>>, question: &str) -> Gate {
    gates.lock().unwrap().entry(question.to_owned()).or_default().clone()
}

fn reply(question: &str, round: usize, gates: &Mutex<HashMap<String, Gate>>) -> Reply {
    let (kind, number) = question.split_once(' ').unwrap();
    let number: usize = number.parse().unwrap();
    let words = || Reply::text("one two three four five").pieces(4);
    let held = || gate(gates, question);
    match (kind, round) {
        ("silent", _) | ("then-silent", 1) => Reply::silence(),
        ("then-silent" | "then-held", 0) => Reply::call("a", "~echo", json!({"n": number})),
        ("text", _) => words().end(End::SilentAfter(3)),
        ("hang", 0) => Reply::call("a", "~hang", json!({"n": number})),
        ("wait", 0) => Reply::call("a", "~wait", json!({"n": number})),
        ("held", _) | ("then-held", 1) => words().hold(&held()),
        ("held-text", _) => words().with(|answer| answer.hold = Some((3, held()))),
        _ => words(),
    }
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tool = ScriptedTool::new;
        let script = Script {
            log: Some(directory.path().join("log")),
            timed: true,
            ..Script::with([
                tool("echo", Act::Echo),
                tool("hang", Act::Hang),
                tool("wait", Act::GateOf(directory.path().to_owned())),
            ])
        };
        let asked: Arc<Mutex<HashMap<usize, (String, usize)>>> = Arc::default();
        let gates: Arc<Mutex<HashMap<String, Gate>>> = Arc::default();
        let (seen, held) = (asked.clone(), gates.clone());
        let model = ScriptedModel::start_with(move |number, request| {
            let (question, round) = (question(request), rounds_so_far(request));
            seen.lock().unwrap().insert(number, (question.clone(), round));
            Some(reply(&question, round, &held))
        });
        let project = TestProject::with_model(&model.base_url(), &[scripted("m", &script)]);
        let daemon = project.serve();
        Self { model, daemon, asked, gates, made: Mutex::default(), directory, _project: project }
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn conversation(&self, tools: &[&str]) -> String {
        let start = Instant::now();
        let id = create(&self.daemon, &json!({}));
        self.made.lock().unwrap().push(start.elapsed());
        for tool in tools {
            let tool = json!({"server_id": "m", "tool_name": tool});
            post(&at(&self.daemon, &id, "/tools"), &tool).ok();
        }
        id
    }

    /// Says something in a conversation.
    fn say(&self, id: &str, content: &str, stream: bool) -> Open {
        let body = json!({"content": content, "stream": stream});
        Open::post(self.daemon.port(), &format!("/conversations/{id}/chat"), &body)
    }

    fn wait_for_round(&self, question: &str, round: usize) {
        eventually(&format!("round {round} of `{question}`"), || {
            let asked = self.asked.lock().unwrap();
            asked.values().any(|asked| *asked == (question.to_owned(), round)).then_some(())
        });
    }

    /// Waits until the tool runs for this number.
    fn wait_for_call(&self, tool: &str, number: usize) {
        let line = format!("call {tool} {{\"n\":{number}}} ");
        eventually(&line, || {
            std::fs::read_to_string(self.log()).unwrap_or_default().contains(&line).then_some(())
        });
    }

    /// When the model's last reply to a question, or else its call of `hang`, was let go of.
    fn let_go(&self, question: &str, called: bool) -> Option<Instant> {
        if called {
            let number = question.rsplit(' ').next().unwrap();
            return cancelled_at(&self.log(), number);
        }
        let aborts = self.model.aborts();
        let asked = self.asked.lock().unwrap();
        let mut numbers = asked.iter().filter(|(_, (asked, _))| asked == question).map(|(number, _)| number);
        numbers.find_map(|number| aborts.get(number).copied())
    }

    /// It may not take long from these moments until the model or the tool was let go of.
    #[track_caller]
    fn assert_quick(&self, left: &[(String, bool, Instant)]) {
        let delay = |(question, called, at): &(String, bool, Instant)| {
            let what = format!("`{question}` to be let go of");
            let gone = eventually(&what, || self.let_go(question, *called));
            gone.saturating_duration_since(*at)
        };
        let (median, slow) = percentiles(left.iter().map(delay).collect());
        let (_, made) = percentiles(std::mem::take(&mut self.made.lock().unwrap()));
        let limit = LIMIT.max(made * MOST);
        assert!(
            slow <= limit,
            "{median:?} at the median, {slow:?} at the 99th percentile; a request: {made:?}"
        );
    }
}

/// The server is another process: its clock is the time of day.
fn cancelled_at(log: &Path, number: &str) -> Option<Instant> {
    let log = std::fs::read_to_string(log).unwrap();
    let start = format!("cancelled hang {{\"n\":{number}}} @");
    let line = log.lines().find_map(|line| line.strip_prefix(&start))?;
    let at = UNIX_EPOCH + Duration::from_micros(line.parse().unwrap());
    Instant::now().checked_sub(at.elapsed().unwrap_or_default())
}

/// The median and the 99th percentile.
fn percentiles(mut delays: Vec<Duration>) -> (Duration, Duration) {
    delays.sort();
    let at = |percent: usize| delays[(delays.len() - 1) * percent / 100];
    (at(50), at(99))
}

/// Does this with every number, a few at the same time, and gives what came of each.
fn all<T: Send>(count: usize, each: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || {
            let numbers = std::iter::from_fn(|| {
                Some(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst)).filter(|at| *at < count)
            });
            // in no order of kinds: 7919 is prime, and no divisor of the counts
            numbers.map(|at| each(at * 7919 % count)).collect::<Vec<_>>()
        };
        let clients = [(); CLIENTS].map(|()| scope.spawn(work));
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

/// A moment whose length nobody chose, of up to 16 ms.
fn some_time(number: usize) {
    let until = Instant::now() + Duration::from_micros((number as u64).wrapping_mul(2_654_435_761) % 16_000);
    while Instant::now() < until {
        std::thread::yield_now();
    }
}

/// Asks without a memory, waits for the moment, and is gone. Gives the question, whether a tool ran, and when.
fn leave_stateless(scene: &Scene, number: usize) -> (String, bool, Instant) {
    let (kind, streams) = [
        ("silent", true),
        ("then-silent", true),
        ("text", true),
        ("hang", true),
        (["silent", "hang"][number / 5 % 2], false),
    ][number % 5];
    let question = format!("{kind} {number}");
    scene.conversation(&[]);
    let body = if streams { streamed_chat(&question) } else { chat(&question) };
    let mut client = Open::post(scene.daemon.port(), "/v1/chat/completions", &body);
    match kind {
        "silent" => scene.wait_for_round(&question, 0),
        "then-silent" => {
            scene.wait_for_round(&question, 1);
            client.until("200 OK");
        }
        "text" => client.until("one"),
        _ => scene.wait_for_call("hang", number),
    }
    some_time(number);
    let left = Instant::now();
    drop(client);
    (question, kind == "hang", left)
}

/// Says something in a conversation of its own and leaves before the answer is whole. Gives the conversation and its
/// questions; of those that are told with `true` it is sure that they arrived.
fn leave_kept(scene: &Scene, number: usize) -> (String, Vec<(String, bool)>) {
    let (kind, tools): (&str, &[&str]) = [
        ("plain", &[][..]),
        ("then-held", &["echo"][..]),
        ("held-text", &[][..]),
        ("wait", &["wait"][..]),
        ("held", &[][..]),
        ("held", &[][..]),
    ][number % 6];
    let question = format!("{kind} {number}");
    let id = scene.conversation(tools);
    let whole = number % 6 == 4;
    let mut client = scene.say(&id, &question, !whole);
    let mut questions = vec![(question.clone(), kind != "plain")];
    match kind {
        "plain" => some_time(number),
        "then-held" => scene.wait_for_round(&question, 1),
        "held-text" => client.until("one"),
        "wait" => scene.wait_for_call("wait", number),
        _ => scene.wait_for_round(&question, 0),
    }
    if number % 6 == 5 {
        let behind = format!("plain {number}");
        let queued = scene.say(&id, &behind, true);
        some_time(number);
        drop(queued);
        questions.push((behind, false));
    }
    drop(client);
    std::fs::write(scene.directory.path().join(number.to_string()), "").unwrap();
    gate(&scene.gates, &question).open();
    (id, questions)
}

/// Waits until nothing runs in it; each question that is kept has its answer.
fn assert_answered(scene: &Scene, id: &str, questions: &[(String, bool)]) -> usize {
    let mut last = Vec::new();
    let whole = |said: &[String]| {
        let mut rest = said;
        let mut kept = 0;
        for (question, sure) in questions {
            let is_next = rest.first().is_some_and(|said| *said == format!("user: {question}"));
            match is_next {
                true => {
                    let end = rest.iter().position(|said| said == "assistant: one two three four five")?;
                    rest = &rest[end + 1..];
                    kept += 1;
                }
                false if *sure => return None,
                false => {}
            }
        }
        rest.is_empty().then_some(kept)
    };
    let start = Instant::now();
    loop {
        let running = get(&at(&scene.daemon, id, "")).ok()["conversation"]["running_turns"].clone();
        last = if running == json!([]) { said(&scene.daemon, id) } else { last };
        if running == json!([])
            && let Some(kept) = whole(&last)
        {
            return kept;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{questions:?}, but {last:?}, and {running} run");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn a_thousand_clients_that_leave_take_with_them_what_is_theirs_and_nothing_else() {
    let scene = Scene::new();
    let left = all(5 * STATELESS, |number| leave_stateless(&scene, number));
    scene.assert_quick(&left);
    let kept = all(6 * KEPT, |number| leave_kept(&scene, number + 10_000 * 6));
    let mut answered = 0;
    for (id, questions) in &kept {
        answered += assert_answered(&scene, id, questions);
    }
    assert!(answered >= 5 * KEPT, "all but those who left before they were heard: {answered}");
    let (id, _) = &kept[0];
    post(&at(&scene.daemon, id, "/chat"), &json!({"content": "plain 1"})).ok();
    scene.model.finish();
}

#[test]
fn a_hundred_turns_that_are_cancelled_stop_at_once_and_leave_conversations_that_go_on() {
    let scene = Scene::new();
    let cancelled = all(2 * CANCELLED, |number| {
        let called = number % 2 == 0;
        let kind = if called { "hang" } else { "text" };
        let question = format!("{kind} {number}");
        let id = scene.conversation(&["hang"]);
        let mut events =
            stream(&at(&scene.daemon, &id, "/chat"), &json!({"content": question, "stream": true}));
        let turn = events.until("the start", |event| event["event"] == "started")["turn"].clone();
        match called {
            true => scene.wait_for_call("hang", number),
            false => drop(events.until("the first words", |event| event["event"] == "text")),
        }
        let cancel = scene.daemon.url(&format!("/v1/turns/{}/cancel", turn.as_str().unwrap()));
        let begun = Instant::now();
        assert_eq!(post(&cancel, &json!({})).ok()["status"], "cancelled");
        let answer = post(&at(&scene.daemon, &id, "/chat"), &json!({"content": "plain 1"})).ok();
        assert_eq!(answer["assistant_message"]["content"], "one two three four five");
        (question, called, begun)
    });
    scene.assert_quick(&cancelled);
    scene.model.finish();
}
