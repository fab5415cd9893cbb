//! Many clients at once, and many calls: every answer goes to its caller, and nothing is left behind.

use std::collections::HashMap;
use std::future::ready;
use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use lf_tests::caller::Caller;
use lf_tests::client::{chat, get};
use lf_tests::project::{Daemon, Listener, TestProject, remote, scripted};
use lf_tests::runtime::block_on;
use lf_tests::scripted_mcp::{Act, Generation, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::{PATIENCE, eventually, within};
use serde_json::{Value, json};

const NOWHERE: &str = "http://127.0.0.1:9/v1";
const CLIENTS: usize = 50;
const CALLS_EACH: u64 = 20;
/// Calls that are held back by the server until that many of them are there: fewer than the pool lets run at a server at
/// the same time, and enough that any two may be mixed up.
const HELD: usize = 200;

/// One server behind the daemon, whatever the transport.
struct Upstream {
    entry: Value,
    log: tempfile::NamedTempFile,
    _listener: Option<Listener>,
}

impl Upstream {
    fn start(transport: &str, generation: Generation, tools: Vec<ScriptedTool>) -> Self {
        let log = tempfile::NamedTempFile::new().unwrap();
        let script = Script { log: Some(log.path().to_owned()), generation, ..Script::with(tools) };
        let listener = (transport != "stdio").then(|| Listener::scripted_mcp(transport, &script));
        let mut entry = match &listener {
            None => scripted("m", &script),
            Some(listener) => remote("m", transport, listener.url()),
        };
        // calls that wait for each other wait as long as a busy machine takes to bring them together
        entry["timeout"] = "10m".into();
        Self { entry, log, _listener: listener }
    }

    /// How often each thing happened at the server, by its whole line.
    fn noted(&self) -> HashMap<String, usize> {
        let mut noted = HashMap::new();
        for line in std::fs::read_to_string(self.log.path()).unwrap().lines() {
            *noted.entry(line.to_owned()).or_default() += 1;
        }
        noted
    }

    fn count(&self, beginning: &str) -> usize {
        self.noted().iter().filter(|(line, _)| line.starts_with(beginning)).map(|(_, count)| count).sum()
    }
}

/// What only this call of this client sends.
fn nonce(client: usize, id: u64) -> Value {
    json!({"nonce": format!("{client} of {CLIENTS}, {id} of {CALLS_EACH}")})
}

fn everybody_gets_their_own(transport: &str, upstream: Generation) {
    let tools = vec![ScriptedTool::new("echo", Act::EchoTogether(HELD))];
    let upstream = Upstream::start(transport, upstream, tools);
    let project = TestProject::with_model(NOWHERE, std::slice::from_ref(&upstream.entry));
    let daemon = project.serve();
    // every other client by the other URL and of the other generation
    let urls = [daemon.url("/mcp/default/demo"), daemon.url("/mcp/default/demo/m")];
    let one = |client: usize| {
        let generation = if client % 4 < 2 { Generation::Legacy } else { Generation::Modern };
        let (url, tool) = (&urls[client % 2], ["m__echo", "echo"][client % 2]);
        async move {
            let caller = Caller::open(url, generation).await;
            // all use the ids 1, 2, 3, …, and so the same progress tokens
            let calls = (1..=CALLS_EACH).map(|id| {
                let caller = caller.clone();
                async move { (id, caller.call(id, tool, &nonce(client, id)).await) }
            });
            let told = join_all(calls).await;
            for (id, told) in told {
                let own = nonce(client, id).to_string();
                assert_eq!(told.text(id), own);
                assert_eq!(told.progress(id), [own.as_str()], "{told:?}");
                assert_eq!(told.messages.len(), 2, "{told:?}");
            }
            caller.close().await;
        }
    };
    block_on(join_all((0..CLIENTS).map(one)));
    let noted = upstream.noted();
    let all = (0..CLIENTS).flat_map(|client| (1..=CALLS_EACH).map(move |id| (client, id)));
    for (client, id) in all {
        assert_eq!(noted.get(&format!("call echo {}", nonce(client, id))), Some(&1), "{client} {id}");
    }
    assert_eq!(upstream.count("done echo"), CLIENTS * usize::try_from(CALLS_EACH).unwrap());
    // one session for everybody, or one for each generation: never one for each client
    let processes = project.children().len();
    assert!(processes <= 2, "{processes} processes, started {} times", upstream.count("start "));
    daemon.stop();
    project.assert_nothing_left();
}

#[test]
fn a_thousand_calls_with_equal_ids_get_their_own_answers_from_a_legacy_server_over_stdio() {
    everybody_gets_their_own("stdio", Generation::Legacy);
}

#[test]
fn a_thousand_calls_with_equal_ids_get_their_own_answers_from_a_modern_server_over_stdio() {
    everybody_gets_their_own("stdio", Generation::Modern);
}

#[test]
fn a_thousand_calls_with_equal_ids_get_their_own_answers_from_a_legacy_server_over_http() {
    everybody_gets_their_own("http", Generation::Legacy);
}

#[test]
fn a_thousand_calls_with_equal_ids_get_their_own_answers_from_a_modern_server_over_http() {
    everybody_gets_their_own("http", Generation::Modern);
}

/// Models count their calls from one, so that calls of different turns have equal ids.
#[test]
fn a_thousand_chats_with_equal_call_ids_get_their_own_results() {
    let upstream =
        Upstream::start("stdio", Generation::Dual, vec![ScriptedTool::new("echo", Act::EchoTogether(HELD))]);
    let model = ScriptedModel::start_by(|received| {
        Some(match received.result_of("call_1") {
            None => Reply::call("call_1", "m__echo", json!({"nonce": received.asked.last_user_text()})),
            Some(result) => Reply::text(&result),
        })
    });
    let project = TestProject::with_model(&model.base_url(), std::slice::from_ref(&upstream.entry));
    let daemon = project.serve();
    let url = daemon.url("/v1/chat/completions");
    let one = |client: usize| {
        let url = url.as_str();
        async move {
            let http =
                reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
            let chats = (1..=CALLS_EACH).map(|id| {
                let nonce = nonce(client, id)["nonce"].as_str().unwrap().to_owned();
                let asking = http.post(url).header("content-type", "application/json");
                let asking = asking.body(chat(&nonce).to_string());
                async move {
                    let answer =
                        asking.send().await.expect("an answer").text().await.expect("a whole answer");
                    let answer: Value = serde_json::from_str(&answer).unwrap();
                    let said = answer["choices"][0]["message"]["content"].as_str();
                    assert_eq!(said, Some(json!({"nonce": nonce}).to_string().as_str()), "{answer}");
                }
            });
            join_all(chats).await;
        }
    };
    block_on(join_all((0..CLIENTS).map(one)));
    assert_eq!(upstream.count("call echo"), CLIENTS * usize::try_from(CALLS_EACH).unwrap());
    assert!(upstream.noted().iter().all(|(line, count)| !line.starts_with("call echo") || *count == 1));
    assert_eq!(upstream.count("start "), 1, "one server for all");
    daemon.stop();
    project.assert_nothing_left();
}

/// What a process has and holds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Footprint {
    /// Resident memory, in KiB.
    resident: u64,
    descriptors: usize,
    threads: usize,
    /// Those that it started.
    processes: usize,
    /// Of its runtime.
    tasks: u64,
}

impl Footprint {
    fn of(daemon: &Daemon, project: &TestProject) -> Self {
        let of = |file: &str| format!("/proc/{}/{file}", daemon.pid());
        let entries = |file: &str| std::fs::read_dir(of(file)).unwrap().count();
        let status = std::fs::read_to_string(of("status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        Self {
            resident: resident.trim().trim_end_matches(" kB").parse().unwrap(),
            descriptors: entries("fd"),
            threads: entries("task"),
            processes: project.children().len(),
            tasks: get(&daemon.url("/health")).ok()["components"][0]["details"]["tasks"].as_u64().unwrap(),
        }
    }

    /// When nothing has changed for a while: connections that were closed are then gone.
    fn settled(daemon: &Daemon, project: &TestProject) -> Self {
        let (mut last, mut since) = (Self::of(daemon, project), Instant::now());
        eventually("the daemon to come to rest", || {
            let now = Self::of(daemon, project);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            (since.elapsed() > Duration::from_millis(300)).then_some(last)
        })
    }

    /// More than before by no more than chance: a page here and there, some threads for blocking work, two sockets. Each
    /// session that was left behind has its tasks, and nothing else has any.
    fn is_back_at(&self, before: &Self, left: u64) -> bool {
        self.processes == before.processes
            && self.descriptors <= before.descriptors + 2
            && self.threads <= before.threads + 8
            && self.tasks == before.tasks + left * TASKS_OF_A_SESSION
            && self.resident <= before.resident + MARGIN
    }
}

/// One session in so many is left behind by its client.
const LEFT_EACH: usize = 20;
/// What each of them keeps until another needs its place.
const TASKS_OF_A_SESSION: u64 = 4;
/// In KiB, for 10,000 calls and ten sessions that were left behind: such a one holds up to 200 KiB until another needs its
/// place, and the rest is chance. Losing one of the short answers of each call would be more.
const MARGIN: u64 = 5 * 1024;
/// Calls of one client, one after the other over the same connections.
const RUN: usize = 50;
/// Clients at the same time.
const AT_ONCE: usize = 16;

/// Calls as clients make them: most wait for the answer, every tenth is cut off, and one client in twenty leaves its
/// session behind, which is what comes back.
async fn run_of_calls(daemon: &Daemon, number: usize) -> Option<Caller> {
    let generation = if number.is_multiple_of(2) { Generation::Legacy } else { Generation::Modern };
    let server = ["m", "n"][number / 2 % 2];
    let (url, prefix) = match number / 4 % 2 {
        0 => (daemon.url("/mcp/default/demo"), format!("{server}__")),
        _ => (daemon.url(&format!("/mcp/default/demo/{server}")), String::new()),
    };
    let caller = Caller::open(&url, generation).await;
    let (echo, wait) = (format!("{prefix}echo"), format!("{prefix}wait"));
    for call in 0..RUN {
        let id = u64::try_from(call).unwrap();
        let arguments = json!({"run": number, "call": call, "weight": "hay ".repeat(64)});
        match call % 20 {
            7 => caller.call_and_cancel(id, &wait, &arguments).await,
            17 => caller.call_and_leave(id, &echo, &arguments).await,
            _ => assert_eq!(caller.call(id, &echo, &arguments).await.text(id), arguments.to_string()),
        }
    }
    if number.is_multiple_of(LEFT_EACH) {
        return caller.leave();
    }
    caller.close().await;
    None
}

/// The sessions that were left behind.
fn make_calls(daemon: &Daemon, runs: Range<usize>) -> Vec<Caller> {
    let runs = stream::iter(runs).map(|number| run_of_calls(daemon, number));
    block_on(runs.buffer_unordered(AT_ONCE).filter_map(ready).collect())
}

fn close_all(left: Vec<Caller>) {
    block_on(join_all(left.into_iter().map(Caller::close)));
}

#[test]
fn ten_thousand_calls_leave_nothing_behind() {
    let tools = || {
        // as many as never come: such a call ends only when it is taken back
        let wait = ScriptedTool::new("wait", Act::EchoTogether(usize::MAX));
        vec![ScriptedTool::new("echo", Act::Echo), wait]
    };
    let over_stdio = Upstream::start("stdio", Generation::Dual, tools());
    let mut over_http = Upstream::start("http", Generation::Dual, tools());
    over_http.entry["name"] = json!("n");
    let project = TestProject::with_model(NOWHERE, &[over_stdio.entry.clone(), over_http.entry.clone()]);
    let daemon = project.serve();
    const WARM_UP: usize = 40;
    const ALL: usize = WARM_UP + 10_000 / RUN;
    close_all(make_calls(&daemon, 0..WARM_UP));
    let before = Footprint::settled(&daemon, &project);
    let started = Instant::now();
    let left = make_calls(&daemon, WARM_UP..ALL);
    let took = started.elapsed();
    assert_eq!(left.len(), (ALL - WARM_UP) / LEFT_EACH);
    let as_before = |left: usize| {
        let left = u64::try_from(left).unwrap();
        let mut now = before;
        within(PATIENCE, &format!("the daemon to have {left} sessions more than {before:?}"), || {
            now = Footprint::settled(&daemon, &project);
            now.is_back_at(&before, left).then_some(())
        });
        now
    };
    let after = as_before(left.len());
    close_all(left);
    let closed = as_before(0);
    println!(
        "10,000 calls in {took:?}; before {before:?}, after {after:?}, without the sessions left {closed:?}"
    );
    let count = |line: &str| over_stdio.count(line) + over_http.count(line);
    // 7, 27 and 47 of each run
    assert_eq!(count("call wait"), 3 * ALL);
    eventually("each to be cancelled at its server", || (count("cancelled wait") == 3 * ALL).then_some(()));
    daemon.stop();
    project.assert_nothing_left();
}
