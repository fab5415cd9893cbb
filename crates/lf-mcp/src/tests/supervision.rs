//! Servers that fail, hang or are restarted: their states, what is counted, and what others notice of it.

use lf_core::project::Protocol;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;
use crate::{Activity, Circuit, ServerReport};

const STUBBORN: &str = include_str!("stubborn.py");
const KEY: &str = "very-secret-key-of-someone";

/// A pool with the stubborn server, which notes its starts.
pub(super) struct Stage {
    pub(super) starts: tempfile::NamedTempFile,
    pub(super) pool: SessionPool,
    pub(super) tools: ProjectTools,
}

impl Stage {
    pub(super) fn new(mode: &str, change: impl FnOnce(&mut McpServer)) -> Self {
        Self::with(options(), mode, change)
    }

    pub(super) fn with(options: PoolOptions, mode: &str, change: impl FnOnce(&mut McpServer)) -> Self {
        let starts = tempfile::NamedTempFile::new().unwrap();
        let mut server = stdio("python3", &["-S", "-c", STUBBORN, starts.path().to_str().unwrap(), mode]);
        change(&mut server);
        let pool = SessionPool::new(options);
        let tools = tools(&pool, server);
        Self { starts, pool, tools }
    }

    pub(super) fn pids(&self) -> Vec<String> {
        lines(self.starts.path())
    }

    pub(super) fn report(&self) -> ServerReport {
        self.tools.report_of(NAME).unwrap()
    }

    pub(super) fn activity(&self) -> Activity {
        self.report().activity.unwrap()
    }

    pub(super) async fn up(&self) {
        names(&list(&self.tools).await);
    }

    async fn echoes(&self) {
        assert_eq!(text(call(&self.tools, "echo", json!({"a": 1})).await), r#"{"a": 1}"#);
    }

    /// The last one that was started.
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pids().last().unwrap().parse().unwrap()), signal).unwrap();
    }
}

#[tokio::test]
async fn a_server_is_idle_ready_failed_and_ready_again_and_all_of_it_is_counted() {
    let stage = Stage::new("", |_| {});
    assert_eq!((stage.report().state.name(), stage.report().activity), ("idle", None));
    stage.up().await;
    assert_eq!(stage.report().state.name(), "ready");
    let lost = call(&stage.tools, "exit", json!({})).await;
    assert!(matches!(lost, Err(ToolError::Lost { .. })), "{lost:?}");
    assert_eq!(stage.report().last_error(), Some("exited with status 3"));
    assert_eq!(stage.report().error_code(), Some("exited"));
    stage.echoes().await;
    assert_eq!((stage.report().state.name(), stage.report().last_error()), ("ready", None));
    let Activity { counters, circuit, last_failure, .. } = stage.activity();
    assert_eq!((counters.starts, counters.restarts, counters.failures), (2, 1, 1));
    assert_eq!((counters.calls, counters.failed_calls), (2, 1));
    assert_eq!(circuit, Circuit::Closed);
    assert_eq!(last_failure.unwrap().1.reason, "exited with status 3");
    stage.pool.shutdown().await;
    assert_eq!(stage.report().state.name(), "closed");
}

#[tokio::test]
async fn a_server_whose_pipes_end_before_it_does_is_told_by_how_it_ended() {
    let stage = Stage::new("", |_| {});
    stage.up().await;
    let lost = call(&stage.tools, "fade", json!({})).await;
    let told = "exited with status 5; stderr: last words";
    assert!(matches!(&lost, Err(ToolError::Lost { reason, .. }) if reason == told), "{lost:?}");
    assert_eq!(stage.report().last_error(), Some(told));
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn calls_are_told_at_once_that_their_server_was_killed() {
    let stage = Stage::new("", |_| {});
    stage.up().await;
    let calls = join_all((0..50).map(|_| async {
        let outcome = call(&stage.tools, "slow", json!({"seconds": 1000})).await;
        (outcome, Instant::now())
    }));
    let killing = async {
        eventually("they run", || stage.activity().counters.calls == 50).await;
        stage.signal(Signal::SIGKILL);
        Instant::now()
    };
    let (outcomes, killed) = tokio::join!(calls, killing);
    for (outcome, told) in outcomes {
        assert!(
            matches!(&outcome, Err(ToolError::Lost { reason, .. }) if reason == "was killed by SIGKILL"),
            "{outcome:?}"
        );
        // and not when their time is over, which is 20 s
        assert!(told - killed < Duration::from_secs(15), "{:?}", told - killed);
    }
    assert_eq!(stage.activity().counters.failed_calls, 50);
    stage.echoes().await;
    assert_eq!(stage.activity().counters.calls, 51, "none is made again");
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn five_failures_in_a_minute_open_the_circuit_until_a_probe_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let (mended, starts) = (directory.path().join("mended"), directory.path().join("starts"));
    let script = "echo x >> \"$2\"; [ -e \"$1\" ] || exit 1; exec python3 -S -c \"$3\"";
    let (one, two) = (mended.to_str().unwrap(), starts.to_str().unwrap());
    let mut broken = stdio("sh", &["-c", script, "sh", one, two, PEER]);
    broken.protocol = Protocol::Legacy;
    let pool = pool();
    let tools = tools(&pool, broken);
    let report = || tools.report_of(NAME).unwrap();
    let pause = || pause(&tools);
    for failure in 1..=5 {
        assert!(down(&tools).await.starts_with("exited with status 1"));
        assert_eq!(lines(&starts).len(), failure);
        let is_open = report().activity.unwrap().circuit == Circuit::Open;
        assert_eq!(is_open, failure == 5, "after {failure}");
        if failure < 5 {
            assert!(pause() <= Duration::from_secs(4));
            skip(pause()).await;
        }
    }
    assert!(pause() > Duration::from_secs(20), "{:?}", pause());
    assert!(down(&tools).await.contains("next try in"));
    assert_eq!(lines(&starts).len(), 5, "nothing is started while the circuit is open");
    skip(pause()).await;
    assert!(down(&tools).await.starts_with("exited with status 1"));
    assert_eq!((lines(&starts).len(), report().activity.unwrap().circuit), (6, Circuit::Open));
    std::fs::write(&mended, "").unwrap();
    skip(pause()).await;
    names(&list(&tools).await);
    assert_eq!(report().activity.unwrap().circuit, Circuit::HalfOpen);
    skip(Duration::from_secs(61)).await;
    eventually("it lasts", || report().activity.unwrap().circuit == Circuit::Closed).await;
    pool.shutdown().await;
}

#[tokio::test]
async fn a_restart_fails_running_calls_once_with_the_reason_and_forgets_failures() {
    let stage = Stage::new("", |_| {});
    stage.up().await;
    let slow = call(&stage.tools, "slow", json!({"seconds": 1000}));
    let restart = async {
        eventually("it runs", || stage.activity().counters.calls == 1).await;
        stage.tools.renew(NAME).await.unwrap()
    };
    let (lost, report) = tokio::join!(slow, restart);
    let reason = "the server was restarted on request";
    assert!(matches!(&lost, Err(ToolError::Lost { reason: told, .. }) if told == reason), "{lost:?}");
    assert_eq!(report.state.name(), "ready");
    assert_eq!(report.activity.unwrap().counters.restarts, 1);
    assert!(stage.tools.renew("other").await.is_none());
    stage.echoes().await;
    eventually("the first is gone", || !is_running(&stage.pids()[0])).await;
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn a_restart_starts_at_once_what_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mended = directory.path().join("mended");
    let script = "[ -e \"$1\" ] || exit 1; exec python3 -S -c \"$2\"";
    let pool = pool();
    let tools = tools(&pool, stdio("sh", &["-c", script, "sh", mended.to_str().unwrap(), PEER]));
    for _ in 0..3 {
        down(&tools).await;
    }
    assert_eq!(tools.report_of(NAME).unwrap().state.name(), "failed");
    std::fs::write(&mended, "").unwrap();
    assert_eq!(tools.renew(NAME).await.unwrap().state.name(), "ready");
    pool.shutdown().await;
}

#[tokio::test]
async fn a_server_that_hangs_is_probed_and_replaced() {
    let stage = Stage::new("", |_| {});
    stage.up().await;
    stage.signal(Signal::SIGSTOP);
    let hung = hurried(call(&stage.tools, "echo", json!({})), || stage.activity().counters.calls == 1).await;
    assert!(matches!(hung, Err(ToolError::Timeout { .. })), "{hung:?}");
    in_the_end("it is given up", || stage.report().last_error().is_some()).await;
    assert_eq!(stage.report().error_code(), Some("unresponsive"));
    stage.echoes().await;
    assert_eq!(stage.pids().len(), 2);
    in_the_end("the first is killed", || !is_running(&stage.pids()[0])).await;
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn a_server_that_is_only_slow_is_not_replaced() {
    let stage = Stage::new("", |_| {});
    stage.up().await;
    let slow = call(&stage.tools, "slow", json!({"seconds": 1000}));
    let slow = hurried(slow, || stage.activity().counters.calls == 1).await;
    assert!(matches!(slow, Err(ToolError::Timeout { .. })), "{slow:?}");
    // it reads in order: what it was asked to see whether it hangs is answered before this
    stage.echoes().await;
    for _ in 0..3 {
        skip(Duration::from_secs(5)).await;
        stage.echoes().await;
    }
    assert_eq!(stage.pids().len(), 1);
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn a_hung_server_is_left_alone_while_another_call_runs_on_it_and_is_shown_as_in_doubt() {
    let stage = Stage::new("", |_| {});
    stage.up().await;
    let other = stage.pool.session(&Arc::new(stubborn_of(&stage)), None).await.unwrap();
    let running = other.0.call_it();
    stage.signal(Signal::SIGSTOP);
    let hung = hurried(call(&stage.tools, "echo", json!({})), || stage.activity().counters.calls == 2).await;
    assert!(matches!(hung, Err(ToolError::Timeout { .. })), "{hung:?}");
    in_the_end("it is in doubt", || stage.report().last_error().is_some()).await;
    assert_eq!((stage.report().state.name(), stage.report().error_code()), ("ready", Some("unresponsive")));
    drop(running);
    in_the_end("it is given up", || stage.report().state.name() != "ready").await;
    stage.pool.shutdown().await;
}

/// The server of a stage.
fn stubborn_of(stage: &Stage) -> McpServer {
    stdio("python3", &["-S", "-c", STUBBORN, stage.starts.path().to_str().unwrap(), ""])
}

#[tokio::test]
async fn a_hung_server_does_not_hold_up_a_chat_that_knows_its_tools() {
    let options = PoolOptions { list_ttl: Duration::ZERO, ..options() };
    let stage = Stage::with(options, "", |_| {});
    stage.up().await;
    stage.signal(Signal::SIGSTOP);
    let begun = Instant::now();
    let catalogue = list(&stage.tools).await;
    assert!(names(&catalogue).contains(&"echo"));
    // it is waited for 2 s, and not the 20 s that a list may take
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    stage.signal(Signal::SIGCONT);
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn a_server_that_takes_no_message_is_replaced_and_what_it_works_on_is_finished() {
    let stage = Stage::new("", |_| {});
    stage.up().await;
    let slow = call(&stage.tools, "slow", json!({"seconds": 3}));
    let others = async {
        eventually("it runs", || stage.activity().counters.calls == 1).await;
        assert_eq!(text(call(&stage.tools, "deafen", json!({})).await), "deaf");
        let large = json!({"text": "x".repeat(8 << 20)});
        let unsent = call(&stage.tools, "echo", large);
        let sent = eventually("it is sent", || stage.activity().counters.calls == 3);
        let (unsent, ()) = tokio::join!(unsent, sent);
        assert!(unsent.is_err(), "{unsent:?}");
    };
    let (slow, ()) = tokio::join!(slow, others);
    assert_eq!(text(slow), "slow");
    in_the_end("another takes its place", || stage.report().state.name() != "ready").await;
    stage.echoes().await;
    assert_eq!(stage.pids().len(), 2);
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn calls_go_on_while_their_session_is_renewed() {
    let stage = Stage::new("modern", |_| {});
    stage.up().await;
    let slow = call(&stage.tools, "slow", json!({"seconds": 1}));
    let renewal = async {
        eventually("it runs", || stage.activity().counters.calls == 1).await;
        // refused twice: the second server is no other than the first
        let refused = call(&stage.tools, "outdated", json!({})).await;
        assert!(matches!(refused, Err(ToolError::Down { .. })), "{refused:?}");
        stage.echoes().await;
    };
    let (slow, ()) = tokio::join!(slow, renewal);
    assert_eq!(text(slow), "slow");
    assert!(stage.pids().len() > 1);
    assert_eq!(stage.activity().counters.failures, 0, "a renewal is no failure");
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn a_session_that_closes_for_want_of_use_is_never_closed_under_a_call() {
    let options = PoolOptions { idle: Duration::from_millis(1), ..options() };
    let stage = Stage::with(options, "", |_| {});
    for number in 0..20 {
        tokio::time::sleep(Duration::from_micros(number * 100)).await;
        stage.echoes().await;
    }
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn noise_on_stdout_is_counted_and_shown_and_a_hundred_lines_in_a_row_are_an_error() {
    let stage = Stage::new("", with_key);
    stage.up().await;
    assert_eq!(text(call(&stage.tools, "chatter", json!({"lines": 99, "text": KEY})).await), "done");
    let activity = stage.activity();
    assert_eq!(activity.counters.garbage, 99);
    assert_eq!(activity.noise.last().unwrap(), "chatter 98 [secret]");
    assert_eq!(activity.noise.len(), 5);
    let lost = call(&stage.tools, "chatter", json!({"lines": 100})).await;
    assert!(matches!(&lost, Err(ToolError::Lost { reason, .. }) if reason.contains("100 lines in a row")));
    eventually("it is told", || stage.report().error_code() == Some("protocol_error")).await;
    stage.echoes().await;
    assert_eq!((stage.pids().len(), stage.activity().counters.garbage), (2, 199));
    stage.pool.shutdown().await;
}

/// With a secret in its environment.
fn with_key(server: &mut McpServer) {
    if let Transport::Stdio(stdio) = &mut server.transport {
        stdio.env = vec![("API_KEY".to_owned(), KEY.into())];
    }
}

#[tokio::test]
async fn stderr_is_kept_over_restarts_in_whole_lines_and_without_secrets() {
    let stage = Stage::new("complain_at_start", with_key);
    stage.up().await;
    let (half, rest) = KEY.split_at(9);
    let pieces = json!({"pieces": [format!("token={half}"), format!("{rest} is ba"), "d\n50%\r100%\n"]});
    call(&stage.tools, "complain", pieces).await.unwrap();
    let said = ["starting with [secret]", "token=[secret] is bad", "50%", "100%"];
    eventually("it is read", || stage.activity().stderr == said).await;
    stage.tools.renew(NAME).await;
    eventually("it is read", || stage.activity().stderr.len() == 5).await;
    let flood = "x".repeat(100_000) + "\n";
    call(&stage.tools, "complain", json!({"pieces": [flood]})).await.unwrap();
    for number in 0..40 {
        let line = format!("{number} {}\n", "y".repeat(3_000));
        call(&stage.tools, "complain", json!({"pieces": [line]})).await.unwrap();
    }
    eventually("it is read", || stage.activity().stderr.last().is_some_and(|line| line.starts_with("39 ")))
        .await;
    let kept: usize = stage.activity().stderr.iter().map(String::len).sum();
    assert!(kept <= 64 * 1024 && kept > 60 * 1024, "{kept}");
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn notifications_that_nobody_asked_for_are_dropped_and_counted() {
    let stage = Stage::new("", |_| {});
    stage.up().await;
    assert_eq!(text(call(&stage.tools, "flood", json!({"times": 20_000})).await), "done");
    assert_eq!(stage.activity().counters.dropped, 20_000);
    stage.echoes().await;
    stage.pool.shutdown().await;
}
