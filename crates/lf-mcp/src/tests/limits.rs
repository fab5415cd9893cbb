//! Servers that take more than they may, of memory, processes and room; and programs that are not what they were.

use std::os::unix::fs::PermissionsExt as _;

use lf_core::project::ProcessLimits;
use nix::time::ClockId;

use super::supervision::Stage;
use super::*;
use crate::spawn;

fn limited(limits: ProcessLimits) -> impl FnOnce(&mut McpServer) {
    move |server| {
        if let Transport::Stdio(stdio) = &mut server.transport {
            stdio.limits = limits;
        }
    }
}

/// Everything that has this text on its command line.
fn running(text: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text) && is_running(pid)
    })
    .collect()
}

#[tokio::test]
async fn a_server_that_starts_processes_without_end_is_stopped_at_its_limit_and_leaves_none() {
    let limits = ProcessLimits { processes: Some(150), ..ProcessLimits::default() };
    let stage = Stage::new("", limited(limits));
    stage.up().await;
    let other = Stage::new("", |_| {});
    other.up().await;
    // the processes are told from others by how long they sleep
    let seconds = 1_234_500_000_000_u64 + u64::from(std::process::id());
    let fork = json!({"processes": 300, "seconds": seconds});
    let forked = text(call(&stage.tools, "fork", fork).await);
    match spawn::bounds_processes() {
        true => assert!(forked.starts_with("only "), "{forked}"),
        false => assert_eq!(forked, "all of them", "nothing bounds root without a control group"),
    }
    assert!(!running(&seconds.to_string()).is_empty());
    assert_eq!(text(call(&other.tools, "echo", json!({})).await), "{}", "others go on");
    stage.pool.shutdown().await;
    eventually("none is left, in whatever session", || running(&seconds.to_string()).is_empty()).await;
    other.pool.shutdown().await;
}

#[tokio::test]
async fn a_fork_bomb_is_over_when_its_start_is_given_up() {
    assert!(
        spawn::bounds_processes(),
        "nothing bounds the processes of root here, and the bomb would take the machine with it: run the tests as \
         another user, or mount the control group `pids`"
    );
    let mark = format!("bomb-{}", std::process::id());
    let bomb = format!("bomb() {{ bomb | bomb & }}; : {mark}; bomb; exec sleep 1000");
    let mut server = stdio("sh", &["-c", &bomb]);
    server.startup_timeout = Duration::from_millis(500);
    limited(ProcessLimits { processes: Some(100), ..ProcessLimits::default() })(&mut server);
    let pool = pool();
    let tools = tools(&pool, server);
    let reason = down(&tools).await;
    assert!(!reason.is_empty());
    pool.shutdown().await;
    eventually("nothing of it is left", || running(&mark).is_empty()).await;
}

#[tokio::test]
async fn a_server_that_takes_too_much_memory_ends_alone_and_is_told_to_be_out_of_it() {
    let limits = ProcessLimits { memory: Some(256 << 20), ..ProcessLimits::default() };
    let stage = Stage::new("", limited(limits));
    stage.up().await;
    let lost = call(&stage.tools, "eat", json!({})).await;
    assert!(
        matches!(&lost, Err(ToolError::Lost { reason, .. }) if reason.starts_with("out of memory: exited with status 1")),
        "{lost:?}"
    );
    eventually("it is told", || stage.report().error_code() == Some("out_of_memory")).await;
    assert!(stage.tools.hint(NAME).unwrap().contains("limits.memory"));
    assert_eq!(text(call(&stage.tools, "echo", json!({})).await), "{}", "it is started again");
    stage.pool.shutdown().await;
}

/// A program of its own that runs the scripted server.
fn program(directory: &std::path::Path) -> PathBuf {
    let path = directory.join("server");
    std::fs::write(directory.join("peer.py"), PEER).unwrap();
    replace(&path, "first");
    path
}

/// As an update does: the new file takes the place of the old one.
fn replace(path: &std::path::Path, version: &str) {
    let new = path.with_extension("new");
    let script = path.with_file_name("peer.py");
    std::fs::write(&new, format!("#!/bin/sh\n# {version}\nexec python3 -S {}\n", script.display())).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn an_approved_program_that_was_replaced_is_not_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = program(directory.path());
    let mut server = stdio(path.to_str().unwrap(), &[]);
    if let Transport::Stdio(stdio) = &mut server.transport {
        use sha2::{Digest as _, Sha256};
        let digest = Sha256::digest(std::fs::read(&path).unwrap());
        stdio.pin = Some(digest.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    let pool = pool();
    let tools = tools(&pool, server);
    names(&list(&tools).await);
    replace(&path, "second");
    // the one that runs is the one that was approved
    assert_eq!(text(call(&tools, "echo", json!({})).await), "{}");
    assert!(call(&tools, "exit", json!({})).await.is_err());
    let reason = down(&tools).await;
    assert!(reason.contains("is not the program that was approved"), "{reason}");
    assert_eq!(tools.report_of(NAME).unwrap().error_code(), Some("changed"));
    replace(&path, "first");
    assert_eq!(tools.renew(NAME).await.unwrap().state.name(), "ready");
    pool.shutdown().await;
}

#[tokio::test]
async fn a_program_that_nobody_had_to_approve_runs_on_when_it_was_updated() {
    let directory = tempfile::tempdir().unwrap();
    let path = program(directory.path());
    let pool = pool();
    let tools = tools(&pool, stdio(path.to_str().unwrap(), &[]));
    names(&list(&tools).await);
    replace(&path, "second");
    assert!(call(&tools, "exit", json!({})).await.is_err());
    assert_eq!(text(call(&tools, "echo", json!({})).await), "{}");
    pool.shutdown().await;
}

/// Seconds for which this thread had a processor: how busy the machine is otherwise does not count.
fn own_time() -> i64 {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap().tv_sec()
}

#[tokio::test]
async fn schemas_that_make_no_sense_cost_their_own_tools_and_nothing_is_fetched() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let stage = Stage::new("odd_schemas", |server| {
        if let Transport::Stdio(stdio) = &mut server.transport {
            stdio.env = vec![("PORT".to_owned(), port.as_str().into())];
        }
    });
    let catalogue = list(&stage.tools).await;
    let listed = names(&catalogue);
    assert!(listed.contains(&"echo") && !listed.contains(&"no_schema"), "{listed:?}");
    let begun = own_time();
    for tool in &catalogue.tools {
        // one that is no end of itself, one that is elsewhere, and a pattern that takes some for ever
        let value = json!({"a": format!("{}!", "a".repeat(60))});
        let problems = tool.problems(value.as_object().unwrap());
        assert_eq!(
            problems.len(),
            usize::from(["catastrophe", "recursive"].contains(&&*tool.id.name)),
            "{tool:?}"
        );
    }
    assert!(own_time() - begun < 10, "{} s", own_time() - begun);
    assert!(listener.accept().is_err(), "a schema was fetched");
    assert_eq!(text(call(&stage.tools, "echo", json!({})).await), "{}");
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn thousands_of_items_and_nonsense_among_them_are_one_result() {
    let stage = Stage::new("", |_| {});
    let output = call(&stage.tools, "images", json!({"items": 10_000})).await.unwrap();
    assert_eq!(output.content.len(), 10_001);
    assert!(
        matches!(output.content.last(), Some(ToolContent::Image { mime_type, .. }) if mime_type == "text/nonsense")
    );
    stage.pool.shutdown().await;
}
