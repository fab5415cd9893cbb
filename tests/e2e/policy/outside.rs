//! Attempts of clients, and of a model whose server is its own daemon, to run tools outside their lists. What a turn itself
//! can try is tried a hundred thousand times in `lf-server`, where the check is.

use lf_tests::client::{chat, message, modern, post};
use lf_tests::project::{Daemon, TestProject, document_of, remote, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use serde_json::{Value, json};

const TOOLS: [&str; 4] = ["read", "hidden", "drop", "wipe"];
/// Calls of one turn.
const CALLS: usize = 25;
const TURNS: usize = 8;

fn spellings(server: &str, tool: &str) -> Vec<String> {
    let plain = format!("{server}__{tool}");
    vec![
        plain.clone(),
        plain.to_uppercase(),
        format!("functions.{plain}"),
        format!("{server}.{tool}"),
        format!("{server}/{tool}"),
        tool.to_owned(),
        tool.to_uppercase(),
        format!("open__../{plain}"),
        format!("open__{plain}"),
        format!(" {plain} "),
        format!("{plain}\u{200b}"),
        format!("{plain}{}", "_".repeat(60)),
        format!("{server}__{tool}__{tool}"),
    ]
}

/// All that is outside: of `open` everything but `read`, of `closed` everything.
fn outside() -> Vec<String> {
    let open = TOOLS[1..].iter().flat_map(|tool| spellings("open", tool));
    open.chain(TOOLS.iter().flat_map(|tool| spellings("closed", tool))).collect()
}

/// Makes every attempt, and gives what the two servers ran: `SERVER TOOL`.
fn attempted(guards: &Value, policy: &Value, lists: [&Value; 2]) -> Vec<String> {
    let logs = tempfile::tempdir().expect("a directory");
    let server = |name: &str| {
        let tools = TOOLS.map(|tool| ScriptedTool::new(tool, Act::Echo));
        scripted(name, &Script { log: Some(logs.path().join(name)), ..Script::with(tools) })
    };
    let mut open = server("open");
    open.as_object_mut().expect("a mapping").extend(guards.as_object().expect("a mapping").clone());
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let own = remote("own", "http", &format!("http://127.0.0.1:{port}/mcp/default/demo?model=narrow"));
    let all = outside();
    // the scripted model takes a history with no other names, as the API that it stands for
    let is_name = |name: &&String| {
        let name = name.trim();
        name.len() < 60 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    let speakable: Vec<&String> = all.iter().filter(is_name).collect();
    let turn = |turn: usize| {
        let calls = (0..CALLS).map(|at| {
            let name = speakable[(turn * CALLS + at) % speakable.len()];
            Call::new(
                &format!("c{turn}x{at}"),
                &format!("own__{}", name.trim()),
                json!({"turn": turn, "at": at}),
            )
        });
        [Reply::calls(calls), Reply::text("done")]
    };
    let model = ScriptedModel::start((0..TURNS).flat_map(turn));
    let entry = |name: &str, servers: &Value| {
        json!({"name": name, "provider": "openai", "model": "scripted", "base_url": model.base_url(), "api_key": "k",
               "mcp_servers": servers})
    };
    let models = [entry("assistant", lists[0]), entry("narrow", lists[1])];
    let mut project = document_of(&models, &[open, server("closed"), own]);
    project["policy"] = policy.clone();
    let project = TestProject::of(&project);
    let daemon = project.serve_at(port);
    clients(&daemon, &all);
    for _ in 0..TURNS {
        let answer = post(&daemon.url("/v1/chat/completions"), &chat("Go.")).ok();
        assert_eq!(answer["choices"][0]["message"]["content"], "done", "{answer}");
    }
    model.finish();
    daemon.stop().ok();
    let ran = ["open", "closed"].into_iter().flat_map(|server| {
        let log = std::fs::read_to_string(logs.path().join(server)).unwrap_or_default();
        let calls =
            log.lines().filter_map(|line| line.strip_prefix("call ")?.split(' ').next().map(str::to_owned));
        // what a server does not have it does not run, under whatever name it is asked for
        let ran = calls.filter(|tool| TOOLS.contains(&tool.as_str()));
        ran.map(|tool| format!("{server} {tool}")).collect::<Vec<_>>()
    });
    ran.collect()
}

fn clients(daemon: &Daemon, all: &[String]) {
    for name in all {
        let params = json!({"name": name, "arguments": {"name": name}});
        for route in ["/mcp/default/demo?model=narrow", "/mcp/default/demo/open"] {
            let answer = message(&modern(&daemon.url(route), "tools/call", &params, &[]));
            assert!(answer.is_object(), "{route} {name}");
        }
        let own = name.rsplit("__").next().unwrap_or(name);
        for tool in [name.as_str(), own] {
            let body = json!({"server": "open", "tool": tool, "arguments": {"name": name}});
            // of this server `read` is inside
            if tool != "read" {
                post(&daemon.url("/api/mcp/execute"), &body);
            }
        }
    }
}

fn inside(ran: &[String]) -> bool {
    ran.iter().all(|ran| ran == "open read")
}

#[test]
fn nothing_outside_its_list_runs_for_a_client_or_through_the_own_daemon() {
    let guards = json!({"tools": {"deny": ["hidden"]}, "approval": {"drop": "deny"}});
    let policy = json!({"rules": [{"servers": ["open"], "tools": ["wipe"], "verdict": "deny"}]});
    let ran = attempted(&guards, &policy, [&json!(["own"]), &json!(["open"])]);
    assert!(inside(&ran), "{ran:?}");
}

#[test]
fn with_everything_listed_the_same_attempts_run() {
    let ran = attempted(&json!({}), &json!({}), [&json!(["own"]), &json!(["open", "closed"])]);
    for tool in ["open hidden", "open drop", "open wipe", "closed read", "closed wipe"] {
        assert!(ran.iter().any(|ran| ran == tool), "{tool} of {ran:?}");
    }
}
