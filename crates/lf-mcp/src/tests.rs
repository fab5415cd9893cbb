//! The pool against real child processes.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use globset::Glob;
use lf_core::McpServer;
use lf_core::project::{Disabled, StdioServer, ToolFilter, Transport};
use lf_core::tool::{Catalogue, ToolContent, ToolError, ToolOutput, ToolProgress, ToolRef, ToolSource as _};
use serde_json::{Value, json};

use crate::{PoolOptions, ProjectTools, ServerState, SessionPool};
pub(crate) use clock::eventually;
use clock::{given_up, hurried, in_the_end, skip, soon, until};

mod asking;
mod clock;
mod faults_http;
mod faults_http2;
mod faults_sse;
mod faults_tls;
mod generations;
mod generations_remote;
pub(crate) mod http_peer;
mod limits;
mod nonsense;
mod patience;
mod relaying;
mod remote;
mod scrubbing;
mod supervision;

const PEER: &str = include_str!("tests/peer.py");
const NAME: &str = "peer";

/// A server called `peer` with limits that nothing reaches by itself.
pub(crate) fn server(transport: Transport) -> McpServer {
    McpServer {
        timeout: Duration::from_secs(20),
        max_timeout: Duration::from_secs(40),
        startup_timeout: Duration::from_secs(40),
        ..McpServer::new(NAME, transport)
    }
}

fn stdio(command: &str, args: &[&str]) -> McpServer {
    server(Transport::Stdio(StdioServer::new(command, args)))
}

/// A server that reads and never answers; once it was sent something, the file `heard` exists.
fn silent(heard: &std::path::Path) -> McpServer {
    let script = "read line; echo x > \"$1\"; exec sleep 1000";
    stdio("sh", &["-c", script, "sh", heard.to_str().unwrap()])
}

/// The scripted server; it notes each of its starts in the file `starts`.
fn peer(starts: &str, mode: &str) -> McpServer {
    stdio("python3", &["-S", "-c", PEER, starts, mode])
}

pub(crate) fn pool() -> SessionPool {
    SessionPool::new(options())
}

fn options() -> PoolOptions {
    PoolOptions::new(std::env::vars().collect(), std::env::current_exe().unwrap())
}

pub(crate) fn tools(pool: &SessionPool, server: McpServer) -> ProjectTools {
    pool.tools([(server.name.clone(), Ok(Arc::new(server)))])
}

pub(crate) async fn list(tools: &ProjectTools) -> Catalogue {
    tools.list(&[NAME.to_owned()]).await
}

pub(crate) fn names(catalogue: &Catalogue) -> Vec<&str> {
    assert!(catalogue.down.is_empty(), "{:?}; these tests need python3 on the PATH", catalogue.down);
    catalogue.tools.iter().map(|tool| &*tool.id.name).collect()
}

pub(crate) async fn call(
    tools: &ProjectTools,
    name: &str,
    arguments: Value,
) -> Result<ToolOutput, ToolError> {
    call_with(tools, name, arguments, &|_| {}).await
}

async fn call_with(
    tools: &ProjectTools,
    name: &str,
    arguments: Value,
    progress: &(dyn Fn(ToolProgress) + Send + Sync),
) -> Result<ToolOutput, ToolError> {
    let tool = ToolRef { server: NAME.into(), name: name.into() };
    tools.call(&tool, arguments.as_object().unwrap(), &progress).await
}

pub(crate) fn text(result: Result<ToolOutput, ToolError>) -> String {
    match result.unwrap().content.as_slice() {
        [ToolContent::Text(text)] => text.clone(),
        other => panic!("not one text: {other:?}"),
    }
}

pub(crate) async fn down(tools: &ProjectTools) -> String {
    let catalogue = list(tools).await;
    assert!(catalogue.tools.is_empty());
    catalogue.down.into_iter().next().expect("the server is down").reason
}

/// How long a server that failed is left alone yet.
fn pause(tools: &ProjectTools) -> Duration {
    match tools.report_of(NAME).unwrap().state {
        ServerState::Failed { retry_in, .. } => retry_in,
        other => panic!("{other:?}"),
    }
}

fn lines(path: &std::path::Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[tokio::test]
async fn fifty_callers_of_two_projects_cause_one_connect() {
    let directory = tempfile::tempdir().unwrap();
    let starts = directory.path().join("starts");
    let pool = pool();
    let one = tools(&pool, peer(starts.to_str().unwrap(), ""));
    let two = tools(&pool, peer(starts.to_str().unwrap(), ""));
    let catalogues = join_all((0..50).map(|n| list(if n % 2 == 0 { &one } else { &two }))).await;
    assert!(catalogues.iter().all(|catalogue| names(catalogue).contains(&"echo")));
    assert_eq!(lines(&starts).len(), 1);
    let ready =
        matches!(&one.reports()[0].state, ServerState::Ready { protocol, .. } if protocol == "2025-11-25");
    assert!(ready, "{:?}", one.reports());
    pool.shutdown().await;
    assert!(!is_running(&lines(&starts)[0]));
    assert_eq!(one.reports()[0].state, ServerState::Closed);
}

#[tokio::test]
async fn a_server_that_exits_in_a_call_fails_each_call_once_and_is_started_anew() {
    let directory = tempfile::tempdir().unwrap();
    let starts = directory.path().join("starts");
    let pool = pool();
    let tools = tools(&pool, peer(starts.to_str().unwrap(), ""));
    list(&tools).await;
    let hanging = join_all((0..49).map(|_| call(&tools, "hang", json!({}))));
    let (hung, exited) = tokio::join!(hanging, call(&tools, "exit", json!({"together": 50})));
    let expected = Err(ToolError::Lost {
        server: NAME.into(),
        tool: "exit".into(),
        reason: "exited with status 3; stderr: last words".into(),
    });
    assert_eq!(exited, expected);
    assert!(hung.iter().all(|result| matches!(result, Err(ToolError::Lost { .. }))), "{hung:?}");
    assert_eq!(text(call(&tools, "echo", json!({"a": 1})).await), r#"{"a": 1}"#);
    assert_eq!(lines(&starts).len(), 2);
    pool.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_in_the_middle_of_a_start_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let pids = directory.path().join("pids");
    let script = format!("sleep 1000 & echo $! >> {0}; echo $$ >> {0}; sleep 1000", pids.display());
    let pool = pool();
    let tools = tools(&pool, stdio("sh", &["-c", &script]));
    let stop = async {
        eventually("it is starting", || lines(&pids).len() == 2).await;
        assert_eq!(tools.reports()[0].state, ServerState::Connecting);
        pool.shutdown().await;
    };
    let (reason, ()) = tokio::join!(down(&tools), stop);
    assert_eq!(reason, "its session is shut down");
    eventually("all are gone", || !lines(&pids).iter().any(|pid| is_running(pid))).await;
}

#[tokio::test]
async fn grandchildren_are_gone_after_a_shutdown_even_in_sessions_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let pids = directory.path().join("pids");
    let script = format!(
        "sleep 1000 & echo $! >> {0}; setsid sleep 1000 & echo $! >> {0}; python3 -S -c \"$1\"; true",
        pids.display()
    );
    let pool = pool();
    let tools = tools(&pool, stdio("sh", &["-c", &script, "sh", PEER]));
    names(&list(&tools).await);
    assert!(lines(&pids).iter().all(|pid| is_running(pid)));
    pool.shutdown().await;
    eventually("all are gone", || !lines(&pids).iter().any(|pid| is_running(pid))).await;
}

#[tokio::test]
async fn a_failed_start_tells_the_status_and_the_last_lines_of_stderr() {
    let pool = pool();
    let tools = tools(&pool, stdio("sh", &["-c", "echo first >&2; echo 'no such option' >&2; exit 7"]));
    assert_eq!(down(&tools).await, "exited with status 7; stderr: first | no such option");
}

#[tokio::test]
async fn a_short_backoff_is_sat_out_and_a_longer_one_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let starts = directory.path().join("starts");
    let pool = pool();
    let script = format!("echo x >> {}; exit 1", starts.display());
    let tools = tools(&pool, stdio("sh", &["-c", &script]));
    // half a second and a second are waited for: the server may be back
    for start in 1..=3 {
        assert_eq!(down(&tools).await, "exited with status 1");
        // each time once more for a server that does not bear to be probed
        assert_eq!(lines(&starts).len(), 2 * start);
    }
    // two more, so that what is left of the pause is long for whoever is slow to ask, too
    for start in 4..=5 {
        skip(pause(&tools)).await;
        assert_eq!(down(&tools).await, "exited with status 1");
        assert_eq!(lines(&starts).len(), 2 * start);
    }
    let at_once = down(&tools).await;
    assert!(at_once.starts_with("exited with status 1 (next try in "), "{at_once}");
    assert_eq!(lines(&starts).len(), 10);
}

#[tokio::test]
async fn a_missing_program_and_a_missing_permission_are_named_as_in_the_manual() {
    let pool = pool();
    let missing = tools(&pool, stdio("no-such-program", &[]));
    assert_eq!(down(&missing).await, "Command not found: `no-such-program`");
    assert!(missing.hint(NAME).unwrap().contains("install"));
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let denied = tools(&pool, stdio(path, &[]));
    assert_eq!(down(&denied).await, format!("Permission denied: `{path}` cannot be run"));
    let inner = tools(&pool, stdio("sh", &["-c", "echo 'sh: x: Permission denied' >&2; exit 1"]));
    assert!(down(&inner).await.starts_with("Permission denied: exited with status 1"));
    let unknown = tools(&pool, stdio("sh", &[])).list(&["other".to_owned()]).await;
    assert!(unknown.down[0].reason.starts_with("Server not found: `other`"));
}

#[tokio::test]
async fn a_disabled_server_is_down_with_its_reason() {
    let disabled = Disabled { reason: "variable `X` is not set".into() };
    let tools = pool().tools([(NAME.to_owned(), Err(disabled))]);
    assert_eq!(down(&tools).await, "variable `X` is not set");
    assert_eq!(tools.reports()[0].last_error(), Some("variable `X` is not set"));
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_after_the_startup_timeout() {
    let directory = tempfile::tempdir().unwrap();
    let heard = directory.path().join("heard");
    let pool = pool();
    let tools = tools(&pool, McpServer { required: true, ..silent(&heard) });
    let reason = hurried(down(&tools), || heard.exists()).await;
    assert_eq!(reason, "did not answer `initialize` within 40s");
}

#[tokio::test]
async fn noise_on_stdout_is_skipped_and_nothing_but_noise_is_an_error() {
    let pool = pool();
    let noisy = tools(&pool, peer("-", "noise"));
    assert!(names(&list(&noisy).await).contains(&"echo"));
    let garbage = tools(&pool, peer("-", "garbage"));
    let reason = down(&garbage).await;
    assert!(reason.contains("100 lines in a row on stdout"), "{reason}");
}

#[tokio::test]
async fn a_changed_tool_list_is_seen_by_the_next_turn_and_old_tools_are_kept() {
    let pool = pool();
    let tools = tools(&pool, peer("-", ""));
    let before = list(&tools).await;
    call(&tools, "grow", json!({})).await.unwrap();
    let after = list(&tools).await;
    assert!(!names(&before).contains(&"grown") && names(&after).contains(&"grown"));
    assert!(Arc::ptr_eq(&before.tools[0].schema, &after.tools[0].schema));
}

#[tokio::test]
async fn a_tool_that_is_not_listed_yet_is_looked_for_once() {
    let pool = pool();
    let tools = tools(&pool, peer("-", ""));
    list(&tools).await;
    call(&tools, "grow_silently", json!({})).await.unwrap();
    assert_eq!(text(call(&tools, "silent", json!({})).await), "{}");
    let missing = call(&tools, "missing", json!({})).await;
    assert_eq!(missing, Err(ToolError::UnknownTool { server: NAME.into(), tool: "missing".into() }));
}

#[tokio::test]
async fn the_filter_holds_for_lists_and_for_calls() {
    let pool = pool();
    let glob = |text: &str| Glob::new(text).unwrap().compile_matcher();
    let mut filtered = peer("-", "");
    filtered.tools = ToolFilter {
        allow: Some(vec![glob("e*"), glob("hang")]),
        deny: vec![glob("exit")],
        rename: [("echo".to_owned(), "repeat".to_owned())].into_iter().collect(),
        ..ToolFilter::default()
    };
    let tools = tools(&pool, filtered);
    let catalogue = list(&tools).await;
    assert_eq!(names(&catalogue), ["echo", "hang"]);
    assert_eq!(&*catalogue.tools[0].shown_name, "repeat");
    let denied = call(&tools, "exit", json!({})).await;
    assert_eq!(denied, Err(ToolError::UnknownTool { server: NAME.into(), tool: "exit".into() }));
    assert_eq!(text(call(&tools, "echo", json!({})).await), "{}");
}

#[tokio::test]
async fn endless_and_repeated_pages_end() {
    let pool = pool();
    assert_eq!(names(&list(&tools(&pool, peer("-", "endless"))).await).len(), 100);
    assert!(names(&list(&tools(&pool, peer("-", "same_cursor"))).await).contains(&"echo"));
}

#[tokio::test]
async fn progress_arrives_in_order_and_only_forward() {
    let pool = pool();
    let tools = tools(&pool, peer("-", ""));
    let seen = Mutex::new(Vec::new());
    let result = call_with(&tools, "backwards", json!({}), &|p| seen.lock().unwrap().push(p.progress)).await;
    assert_eq!(text(result), "done");
    assert_eq!(*seen.lock().unwrap(), [1.0, 3.0, 4.0]);
}

#[tokio::test]
async fn progress_extends_the_timeout_up_to_the_maximum() {
    let limit = Duration::from_secs(200);
    let pool = pool();
    let mut patient = peer("-", "");
    (patient.timeout, patient.max_timeout) = (Duration::from_secs(60), limit);
    let tools = tools(&pool, patient);
    list(&tools).await;
    // four steps take twice the one limit, and seven more than the other
    assert_eq!(text(paced(&tools, 4).await), "stepped");
    let endless = paced(&tools, 100).await;
    assert_eq!(endless, Err(ToolError::Timeout { server: NAME.into(), tool: "steps".into(), limit }));
}

/// The outcome of a call of this many steps, each of which takes half a minute.
async fn paced(tools: &ProjectTools, count: usize) -> Result<ToolOutput, ToolError> {
    let gate = tempfile::NamedTempFile::new().unwrap();
    let told = AtomicUsize::new(0);
    let pacing = async {
        for step in 1.. {
            skip(Duration::from_secs(30)).await;
            std::fs::write(gate.path(), "x".repeat(step)).unwrap();
            eventually("the step is told", || told.load(Ordering::SeqCst) >= step).await;
        }
    };
    let arguments = json!({"count": count, "gate": gate.path()});
    let count_it = |_| {
        told.fetch_add(1, Ordering::SeqCst);
    };
    tokio::select! {
        biased;
        outcome = call_with(tools, "steps", arguments, &count_it) => outcome,
        () = pacing => unreachable!("it goes on for ever"),
    }
}

#[tokio::test]
async fn a_call_that_times_out_or_is_dropped_is_cancelled_at_the_server() {
    let pool = pool();
    let tools = tools(&pool, peer("-", ""));
    list(&tools).await;
    let hung = given_up(&tools, "hang", json!({})).await;
    assert!(matches!(hung, Err(ToolError::Timeout { .. })), "{hung:?}");
    assert_eq!(text(call(&tools, "cancelled", json!({"least": 1})).await), "1");
    {
        let is_running = AtomicBool::new(false);
        let running = |_| is_running.store(true, Ordering::SeqCst);
        let mut dropped = pin!(call_with(&tools, "hang", json!({}), &running));
        until(&mut dropped, "it hangs", || is_running.load(Ordering::SeqCst)).await;
    }
    assert_eq!(text(call(&tools, "cancelled", json!({"least": 2})).await), "2");
}

#[tokio::test]
async fn a_slow_tool_blocks_nobody() {
    let pool = pool();
    let tools = tools(&pool, peer("-", ""));
    list(&tools).await;
    let is_running = AtomicBool::new(false);
    let running = |_| is_running.store(true, Ordering::SeqCst);
    let mut slow = pin!(call_with(&tools, "hang", json!({}), &running));
    until(&mut slow, "it runs", || is_running.load(Ordering::SeqCst)).await;
    tokio::select! {
        biased;
        slow = &mut slow => panic!("{slow:?}"),
        echo = call(&tools, "echo", json!({})) => assert_eq!(text(echo), "{}"),
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_fails_its_call_and_nothing_else() {
    let pool = pool();
    let tools = tools(&pool, peer("-", ""));
    for tool in ["big", "big_tail"] {
        let result = call(&tools, tool, json!({})).await;
        assert_eq!(result, Err(ToolError::TooLarge { tool: tool.into(), limit: 4 << 20 }));
    }
    assert_eq!(text(call(&tools, "echo", json!({})).await), "{}");
}

#[tokio::test]
async fn an_unknown_kind_of_content_does_not_cost_the_rest() {
    let pool = pool();
    let tools = tools(&pool, peer("-", ""));
    let output = call(&tools, "odd", json!({})).await.unwrap();
    assert!(output.is_error);
    assert!(
        matches!(output.content.as_slice(), [ToolContent::Other(_), ToolContent::Text(text)] if text == "seen")
    );
}

#[tokio::test]
async fn an_unused_session_is_closed_and_comes_back_when_needed() {
    let directory = tempfile::tempdir().unwrap();
    let starts = directory.path().join("starts");
    let pool = SessionPool::new(PoolOptions { idle: Duration::from_millis(100), ..options() });
    let tools = tools(&pool, peer(starts.to_str().unwrap(), ""));
    names(&list(&tools).await);
    eventually("it is closed", || !is_running(&lines(&starts)[0])).await;
    assert_eq!(text(call(&tools, "echo", json!({})).await), "{}");
    assert_eq!(lines(&starts).len(), 2);
}

#[tokio::test]
async fn a_restarted_server_is_a_new_process() {
    let directory = tempfile::tempdir().unwrap();
    let starts = directory.path().join("starts");
    let pool = pool();
    let tools = tools(&pool, peer(starts.to_str().unwrap(), ""));
    names(&list(&tools).await);
    assert!(tools.restart(NAME) && !tools.restart("other"));
    names(&list(&tools).await);
    assert_eq!(lines(&starts).len(), 2);
    eventually("the first is gone", || !is_running(&lines(&starts)[0])).await;
}
