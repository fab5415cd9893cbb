//! The record of what was run, refused, decided and changed.

mod also;
mod evading;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use lf_tests::approvals::ada_says;
use lf_tests::client::{chat, post, request};
use lf_tests::project::{TestProject, document, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use lf_tests::wait::eventually;
use serde_json::{Value, json};

/// A project whose `wipe` is forbidden and whose `send` is asked about.
fn project(model: &ScriptedModel) -> TestProject {
    let server = scripted("disk", &Script::echoing(&["look", "send", "wipe"]));
    let limits = json!({"limits": {"approval_timeout": "60s"}});
    let mut project = document(limits, &model.base_url(), &[server]);
    project["policy"] = json!({"rules": [
        {"name": "never", "tools": ["wipe"], "verdict": "deny"},
        {"name": "careful", "tools": ["send"], "verdict": "ask"},
    ]});
    TestProject::of(&project)
}

fn call(tool: &str) -> Call {
    Call::new(tool, &format!("disk__{tool}"), json!({"secret": "arguments stay here"}))
}

fn records(project: &TestProject, more: &[&str]) -> Vec<Value> {
    let shown = project.run(&[&["audit", "show", "--json"], more].concat()).ok();
    shown.stdout.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

/// Of these records, what each kind of event says.
fn told<'a>(records: &'a [Value], event: &str, keys: &[&str]) -> Vec<Vec<&'a str>> {
    let of_kind = records.iter().filter(|record| record["event"] == event);
    of_kind.map(|record| keys.iter().map(|key| record[*key].as_str().unwrap_or_default()).collect()).collect()
}

#[test]
fn what_is_run_refused_decided_and_changed_is_on_record() {
    let calls = [call("look"), call("send"), call("wipe")];
    let model = ScriptedModel::start([Reply::calls(calls), Reply::text("Done.")]);
    let project = project(&model);
    let daemon = project.serve();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| post(&daemon.url("/v1/chat/completions"), &chat("Go.")).ok());
        ada_says(&daemon, "deny");
        answer.join().expect("an answer");
    });
    let execute = json!({"server": "disk", "tool": "wipe", "arguments": {}});
    assert_eq!(post(&daemon.url("/api/mcp/execute"), &execute).status, 403);
    post(&daemon.url("/v1/projects/team"), &json!({"name": "made"}));
    let wrong = request("GET", &daemon.url("/v1/models"), &[("x-api-key", "lfk_wrong")], None);
    assert_eq!(wrong.status, 401);
    daemon.stop();

    let records = records(&project, &["--last", "100"]);
    let keys = ["who", "project", "model", "server", "tool", "outcome"];
    let ours = ["the owner", "default/demo", "assistant", "disk"];
    let of = |tool, outcome| [&ours[..], &[tool, outcome]].concat();
    assert_eq!(told(&records, "call", &keys), [of("look", "ok")]);
    assert_eq!(told(&records, "approval", &keys), [of("send", "denied")]);
    let by = told(&records, "approval", &["who_id", "decided_by", "detail"]);
    assert_eq!(by, [["owner", "owner", "by the owner for Ada"]]);
    let denied = told(&records, "denied", &["model", "tool", "detail"]);
    assert_eq!(denied.len(), 2, "{denied:?}");
    assert_eq!((&denied[0][..2], denied[1][0], denied[1][1]), (&["assistant", "wipe"][..], "", "wipe"));
    assert!(denied.iter().all(|denied| denied[2].contains("rule `never`")), "{denied:?}");
    let changed = told(&records, "configuration", &["who", "project", "outcome"]);
    assert!(changed.contains(&vec!["", "default/demo", "active"]), "{changed:?}");
    assert!(changed.contains(&vec!["the owner", "team/made", "created"]), "{changed:?}");
    let refused = told(&records, "authentication", &["outcome", "detail"]);
    assert!(matches!(&refused[..], [one] if one[1].starts_with("GET /v1/models")), "{refused:?}");
    // of arguments and results there are only hashes
    let all = format!("{records:?}");
    assert!(!all.contains("stay here") && records.iter().any(|record| record["result"].is_string()), "{all}");
    let verified = project.run(&["audit", "verify"]).ok();
    assert!(verified.stdout.contains(&records.len().to_string()), "{}", verified.stdout);
}

#[test]
fn a_line_that_was_changed_left_out_or_cut_off_is_found() {
    let replies = (0..4).flat_map(|_| [Reply::calls([call("look")]), Reply::text("Done.")]);
    let model = ScriptedModel::start(replies);
    let project = project(&model);
    project.run(&["mcp", "list"]).ok();
    assert!(!project.data_dir().join("audit").exists(), "whatever only looks leaves nothing behind");
    let daemon = project.serve();
    // a daemon and a chat of its own share the record
    for _ in 0..2 {
        post(&daemon.url("/v1/chat/completions"), &chat("Go.")).ok();
        project.run(&["chat", "Go."]).ok();
    }
    daemon.stop();
    assert_eq!(records(&project, &["--event", "call", "--tool", "look"]).len(), 4);
    let verified = project.run(&["audit", "verify", "--json"]).ok().json();
    let end = &verified["end"];
    let known = format!("{}:{}", end["number"], end["hash"].as_str().expect("a hash"));
    project.run(&["audit", "verify", "--known", &known]).ok();

    let file = project.data_dir().join("audit/000001.jsonl");
    let whole = std::fs::read_to_string(&file).expect("the record");
    let lines: Vec<&str> = whole.lines().collect();
    let changed = whole.replacen("\"look\"", "\"lock\"", 1);
    let left_out = [&lines[..1], &lines[2..]].concat().join("\n") + "\n";
    let moved = [&[lines[1], lines[0]], &lines[2..]].concat().join("\n") + "\n";
    for broken in [changed, left_out, moved] {
        std::fs::write(&file, broken).expect("it can be written");
        let told = project.run(&["audit", "verify"]);
        assert_eq!(told.status, Some(1), "{}", told.stdout);
        assert!(told.stdout.contains("000001.jsonl:") && told.stdout.contains("damaged"), "{}", told.stdout);
    }
    // an end that is cut off looks whole, but to whoever noted it
    std::fs::write(&file, lines[..lines.len() - 1].join("\n") + "\n").expect("it can be written");
    project.run(&["audit", "verify"]).ok();
    project.run(&["audit", "verify", "--known", &known]).failed(1);
}

/// Tries of one connection: more than the twenty that are told one by one in a second.
const AT_ONCE: usize = 80;

#[test]
fn whoever_tries_keys_does_not_fill_the_disk() {
    let model = ScriptedModel::start([]);
    let project = project(&model);
    let daemon = project.serve();
    let mut tried = 0;
    // many on one connection, so that more come within a second than are told one by one, on any machine
    let mut try_some = || {
        let mut client = TcpStream::connect(("127.0.0.1", daemon.port())).expect("a connection");
        let ask = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx-api-key: lfk_wrong\r\n";
        let asks = format!("{ask}\r\n").repeat(AT_ONCE - 1) + ask + "connection: close\r\n\r\n";
        client.write_all(asks.as_bytes()).expect("it is read");
        let mut answers = String::new();
        client.read_to_string(&mut answers).expect("answers");
        assert_eq!(answers.matches("HTTP/1.1 401").count(), AT_ONCE, "{answers}");
        tried += AT_ONCE;
    };
    (0..4).for_each(|_| try_some());
    // what was not told one by one is counted with the first of the next second
    let file = project.data_dir().join("audit/000001.jsonl");
    eventually("the count of the others", || {
        try_some();
        let written = std::fs::read_to_string(&file).ok()?;
        written.lines().last()?.contains("more refusals before").then_some(())
    });
    daemon.stop();
    let records = records(&project, &["--event", "authentication", "--last", "1000"]);
    assert!(records.len() < tried, "{} of {tried}", records.len());
    let more = |record: &Value| {
        let detail = record["detail"].as_str().expect("a detail");
        let more = detail.split("(and ").nth(1).and_then(|rest| rest.split(' ').next());
        more.map_or(0, |more| more.parse::<usize>().expect("a number"))
    };
    let all: usize = records.iter().map(|record| 1 + more(record)).sum();
    assert!(all <= tried && all >= 4 * AT_ONCE, "{all} of {tried}");
}
