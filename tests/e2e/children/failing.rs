//! Starts that fail, again and again beside a server that works: nothing may add up.

use lf_tests::client::{chat, get, post};
use lf_tests::processes;
use lf_tests::project::{Daemon, TestProject, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::wait::eventually;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{give_to_nobody, model};

/// Starts that fail before it is looked.
const STARTS: u64 = 4;

/// A server that never answers, and another one that does.
fn project(base_url: &str, sandbox: &Value, limit: &str) -> TestProject {
    // of what leaves its group and its parent, nobody knows where nobody keeps it
    let leaving = if *sandbox == "off" { "" } else { "(setsid sleep 600 &);" };
    let hanging = format!("{leaving} sleep 600 & sleep 600");
    let hanging = json!({
        "name": "hanging",
        "transport": "stdio",
        "command": "sh",
        "args": ["-c", hanging],
        "startup_timeout": limit,
        "sandbox": sandbox,
    });
    TestProject::with_model(base_url, &[scripted("good", &Script::echoing(&["echo"])), hanging])
}

/// Has the server fail to start several times.
fn fail_often(daemon: &Daemon) {
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    for _ in 0..STARTS {
        let state = post(&daemon.url("/v1/mcp/servers/hanging/restart"), &json!({})).ok();
        assert_ne!(state["state"], "ready", "{state}");
    }
    let states = get(&daemon.url("/v1/mcp/servers")).ok();
    assert_eq!(states["servers"][0]["state"], "ready", "{states}");
}

/// Nothing but what the start has that may be under way now.
fn assert_nothing_adds_up(project: &TestProject, daemon: &Daemon) {
    eventually("the end of what failed", || {
        let left = project.children();
        let left = left.iter().filter(|process| process.command.starts_with("sleep")).count();
        (left <= 3 && processes::ended_children_of(daemon.pid()) == 0).then_some(())
    });
}

#[test]
fn starts_that_fail_by_time_leave_neither_processes_nor_their_remains() {
    let model = model();
    for sandbox in [json!("default"), json!({"namespaces": false}), json!("off")] {
        let project = project(&model.base_url(), &sandbox, "1s");
        let daemon = project.serve();
        fail_often(&daemon);
        assert_nothing_adds_up(&project, &daemon);
        daemon.stop().ok();
        project.assert_nothing_left();
    }
}

#[test]
fn nor_do_they_for_who_is_not_root() {
    let model = model();
    for sandbox in [json!("default"), json!({"namespaces": false})] {
        let project = project(&model.base_url(), &sandbox, "1s");
        let wrapper = give_to_nobody(&project);
        let daemon = project.serve_under(&wrapper);
        fail_often(&daemon);
        assert_nothing_adds_up(&project, &daemon);
        daemon.stop().ok();
        project.assert_nothing_left();
    }
}

#[test]
fn without_a_namespace_a_server_ends_with_either_of_those_that_keep_it() {
    for which in [0, 1] {
        let model = model();
        let project = project(&model.base_url(), &json!({"namespaces": false}), "1m");
        let daemon = project.serve();
        let connection = super::ask(&daemon);
        let sleeping = || {
            let all = project.children();
            all.iter().filter(|process| process.command.starts_with("sleep")).count()
        };
        eventually("what hangs", || (sleeping() == 3).then_some(()));
        let keepers = processes::with_home(project.home());
        let keepers: Vec<_> = keepers.iter().filter(|process| process.command.ends_with("__keep")).collect();
        assert_eq!(keepers.len(), 2, "{keepers:?}");
        keepers[which].signal(Signal::SIGKILL);
        eventually("the end of what it kept", || (sleeping() == 0).then_some(()));
        drop(connection);
        daemon.stop();
        project.assert_nothing_left();
    }
}
