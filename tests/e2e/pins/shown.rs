//! Who is told of what is held back: whoever lists servers, the record, clients of `/mcp`; and what else runs tools.

use lf_tests::client::{ACCEPT, begin, request, stream_with, watch};
use lf_tests::project::stdio;

use super::*;

fn changed() -> Value {
    let mut other = said();
    other["tools"][1]["description"] = json!("Does send. And more.");
    other
}

fn denied(bench: &Bench) -> Vec<Value> {
    let shown = bench.project.run(&["audit", "show", "--event", "denied", "--last", "100", "--json"]).ok();
    shown.stdout.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

#[test]
fn lists_of_servers_tell_what_is_held_back_and_why() {
    let bench = Bench::locked(vec![]);
    let listed = bench.project.run(&["mcp", "list"]).ok().stdout;
    assert!(!listed.contains("held back"), "{listed}");
    bench.say(&changed());
    let listed = bench.project.run(&["mcp", "list"]).ok().stdout;
    assert!(listed.contains("2 tools, protocol 2025-11-25, 1 held back"), "{listed}");
    assert!(
        listed.contains("`send` is held back: its `description` is not as in llamafarm.lock"),
        "{listed}"
    );
    let daemon = bench.project.serve();
    assert_eq!(tools(&daemon).0, ["disk__look"]);
    for (path, at) in [("/v1/mcp/servers", "/servers/0"), ("/v1/mcp/servers/disk", "")] {
        let told = get(&daemon.url(path)).ok();
        let held = told.pointer(&format!("{at}/held_back")).and_then(Value::as_array).expect("a list");
        assert_eq!((held.len(), &held[0]["tool"]), (1, &json!("send")), "{told}");
        let why = held[0]["reason"].as_str().unwrap();
        assert!(why.contains("`lf mcp lock --update disk` accepts it"), "{why}");
    }
    let remote = bench.project.run(&["mcp", "list", "--server", &daemon.url("")]).ok().stdout;
    assert!(remote.contains("1 held back") && remote.contains("`send` is held back"), "{remote}");
    bench.project.run(&["mcp", "lock", "--update"]).ok();
    within(SOON, "the new lock to count", || {
        let told = get(&daemon.url("/v1/mcp/servers")).ok();
        told["servers"][0]["held_back"].is_null().then_some(())
    });
}

#[test]
fn a_tool_that_is_held_back_is_on_record_once_and_every_call_of_it() {
    let replies = (0..2).map(|_| Reply::text("Nothing to do.")).collect();
    let bench = Bench::locked(replies);
    bench.say(&changed());
    let daemon = bench.project.serve();
    chat(&daemon);
    chat(&daemon);
    let url = daemon.url("/mcp/default/demo");
    modern(&url, "tools/list", &json!({}), &[]);
    let execute = json!({"server": "disk", "tool": "send", "arguments": {"path": "x"}});
    assert_eq!(post(&daemon.url("/api/mcp/execute"), &execute).status, 403);
    modern(&url, "tools/call", &json!({"name": "disk__send", "arguments": {"path": "x"}}), &[]);
    daemon.stop();
    let denied = denied(&bench);
    assert_eq!(denied.len(), 3, "{denied:?}");
    for record in &denied {
        assert_eq!((&record["server"], &record["tool"]), (&json!("disk"), &json!("send")), "{record}");
        let why = record["detail"].as_str().unwrap();
        assert!(why.contains("held back: its `description` is not as in llamafarm.lock"), "{why}");
    }
    let calls = denied.iter().filter(|record| record["arguments"].is_string()).count();
    assert_eq!((calls, bench.calls()), (2, 0), "{denied:?}");
    bench.project.run(&["audit", "verify"]).ok();
}

#[test]
fn clients_are_told_to_list_again_when_the_lock_is_another() {
    let bench = Bench::locked(vec![]);
    bench.say(&changed());
    let daemon = bench.project.serve();
    for rest in ["", "/disk"] {
        let url = daemon.url(&format!("/mcp/default/demo{rest}"));
        let names = || {
            let listed = message(&modern(&url, "tools/list", &json!({}), &[]));
            listed["result"]["tools"].as_array().expect("a list").len()
        };
        assert_eq!(names(), 1, "{rest}");
        let session = begin(&url);
        let headers = [ACCEPT, ("mcp-session-id", session.as_str())];
        let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
        assert_eq!(request("POST", &url, &headers, Some(begun)).status, 202);
        let mut old = watch(&url, &headers);
        let listen = json!({
            "jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen",
            "params": {
                "notifications": {"toolsListChanged": true},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        });
        let headers =
            [ACCEPT, ("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
        let mut new = stream_with(&url, &headers, &listen);
        new.until("the subscription", |said| said["method"] == "notifications/subscriptions/acknowledged");
        bench.project.run(&["mcp", "lock", "--update"]).ok();
        old.until("news", |said| said["method"] == "notifications/tools/list_changed");
        new.until("news", |said| said["method"] == "notifications/tools/list_changed");
        assert_eq!(names(), 2, "{rest}");
        // as it was at first
        bench.say(&said());
        bench.project.run(&["mcp", "lock", "--update"]).ok();
        bench.say(&changed());
        let restart = daemon.url("/v1/projects/default/demo/mcp/servers/disk/restart");
        within(SOON, "the old lock to count", || {
            post(&restart, &json!({})).ok();
            (tools(&daemon).0.len() == 1).then_some(())
        });
    }
}

#[test]
fn a_replay_that_runs_tools_is_locked_too() {
    let bench = Bench::locked(vec![
        Reply::calls([call("c1", "send")]),
        Reply::text("Sent."),
        Reply::calls([call("c1", "send")]),
        Reply::text("Sent."),
    ]);
    bench.project.run(&["chat", "--record", "turn.jsonl", "Go."]).ok();
    assert_eq!(bench.calls(), 1);
    let again = ["replay", "turn.jsonl", "--model", "assistant", "--run-tools", "--locked"];
    bench.project.run(&again).ok();
    assert_eq!(bench.calls(), 2);
    bench.say(&changed());
    let refused = bench.project.run(&again).failed(1);
    assert!(refused.contains("`--locked`: the MCP servers are not as in llamafarm.lock"), "{refused}");
    assert!(refused.contains("+ Does send. And more."), "{refused}");
    assert_eq!(bench.calls(), 2);
    bench.model.finish();
}

#[test]
fn a_program_that_is_whatever_is_the_newest_is_warned_of() {
    let mut loose = stdio("web", std::path::Path::new("npx"), &["-y", "@x/web@latest"]);
    // nothing is to be fetched
    loose["env"] = json!({"PATH": "/nowhere"});
    let project = TestProject::of(&document(json!({}), "http://127.0.0.1:9/v1", &[loose]));
    let told = "`@x/web@latest` is the newest when it starts: name one, as in `@x/web@1.2.3`";
    let validated = project.run(&["config", "validate"]).ok();
    assert!(validated.stderr.contains(told), "{}", validated.stderr);
    let locked = project.run(&["mcp", "lock"]);
    assert!(locked.stderr.contains(told), "{}", locked.stderr);
    let exact = stdio("web", std::path::Path::new("npx"), &["-y", "@x/web@2.0.1"]);
    let project = TestProject::of(&document(json!({}), "http://127.0.0.1:9/v1", &[exact]));
    let validated = project.run(&["config", "validate"]).ok();
    assert!(!validated.stderr.contains("warning"), "{}", validated.stderr);
}
