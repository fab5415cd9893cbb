//! The rules of a file: what they allow, ask about and forbid, in turns and in calls of clients, and that they are the same
//! everywhere.

use lf_tests::approvals::ada_says;
use lf_tests::client::{message, modern, post, request, stream};
use lf_tests::project::{Daemon, TestProject, document, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Reply, ScriptedModel};
use lf_tests::wait::{Gate, PATIENCE, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

mod flow;
mod injected;
mod outside;

/// A server whose tools write down each call, and a policy.
struct Bench {
    project: TestProject,
    model: ScriptedModel,
    log: tempfile::TempDir,
}

impl Bench {
    fn new(policy: &Value, labels: &Value, replies: Vec<Reply>) -> Self {
        Self::waiting("60s", policy, labels, replies)
    }

    /// `wait`: how long a person has before the client is told in words.
    fn waiting(wait: &str, policy: &Value, labels: &Value, replies: Vec<Reply>) -> Self {
        let log = tempfile::tempdir().expect("a directory");
        let reads = |name| ScriptedTool::new(name, Act::Echo).annotated(json!({"readOnlyHint": true}));
        let writes = |name| ScriptedTool::new(name, Act::Echo);
        let tools = [reads("look"), reads("browse"), writes("send"), writes("wipe")];
        let script = Script { log: Some(log.path().join("calls")), ..Script::with(tools) };
        let mut server = scripted("disk", &script);
        server["labels"] = labels.clone();
        let model = ScriptedModel::start(replies);
        let limits = json!({"limits": {"approval_timeout": wait}});
        let mut project = document(limits, &model.base_url(), &[server]);
        project["policy"] = policy.clone();
        Self { project: TestProject::of(&project), model, log }
    }

    fn calls(&self, tool: &str) -> usize {
        let log = std::fs::read_to_string(self.log.path().join("calls")).unwrap_or_default();
        log.lines().filter(|line| line.starts_with(&format!("call {tool} "))).count()
    }

    /// What the model was shown as the result of its last call.
    fn result(&self, request: usize) -> String {
        let request = self.model.request(request);
        let last = request.messages().iter().rfind(|said| said["role"] == "tool").expect("a result");
        last["content"].as_str().expect("a text").to_owned()
    }
}

fn call(id: &str, tool: &str, arguments: Value) -> Call {
    Call::new(id, &format!("disk__{tool}"), arguments)
}

fn chat(daemon: &Daemon, words: &str) -> Value {
    let message = json!({"messages": [{"role": "user", "content": words}]});
    post(&daemon.url("/v1/chat/completions"), &message).ok()
}

fn no_etc() -> Value {
    json!({"rules": [{
        "name": "no-etc",
        "tools": ["wipe", "send"],
        "when": "args.path.startsWith('/etc/')",
        "verdict": "deny",
        "reason": "the system is not for models",
    }]})
}

#[test]
fn a_rule_on_arguments_forbids_a_call_and_the_model_reads_why() {
    let replies = vec![
        Reply::calls([
            call("c1", "wipe", json!({"path": "/etc/passwd"})),
            call("c2", "wipe", json!({"path": "/tmp/x"})),
        ]),
        Reply::text("One of them."),
    ];
    let bench = Bench::new(&no_etc(), &json!([]), replies);
    let daemon = bench.project.serve();
    let answer = chat(&daemon, "Clean up.");
    assert_eq!(answer["choices"][0]["message"]["content"], "One of them.");
    let results: Vec<String> = bench
        .model
        .request(1)
        .messages()
        .iter()
        .filter(|said| said["role"] == "tool")
        .map(|said| said["content"].as_str().expect("a text").to_owned())
        .collect();
    assert!(
        results[0].contains("was not run")
            && results[0].contains("rule `no-etc` (llamafarm.yaml:")
            && results[0].contains("the system is not for models"),
        "{results:?}"
    );
    assert!(results[1].contains("/tmp/x"), "{results:?}");
    assert_eq!(bench.calls("wipe"), 1);
    bench.model.finish();
}

#[test]
fn a_condition_that_cannot_be_decided_counts_as_true_and_says_so() {
    let replies =
        vec![Reply::calls([call("c1", "wipe", json!({"file": "/tmp/x"}))]), Reply::text("Then not.")];
    let bench = Bench::new(&no_etc(), &json!([]), replies);
    let daemon = bench.project.serve();
    chat(&daemon, "Clean up.");
    let told = bench.result(1);
    assert!(told.contains("could not be decided") && told.contains("No such key: path"), "{told}");
    assert_eq!(bench.calls("wipe"), 0);
    bench.model.finish();
}

#[test]
fn the_rules_are_the_same_for_calls_of_clients() {
    let bench = Bench::new(&no_etc(), &json!([]), vec![]);
    let daemon = bench.project.serve();
    let execute = |path: &str| {
        let call = json!({"server": "disk", "tool": "wipe", "arguments": {"path": path}});
        post(&daemon.url("/api/mcp/execute"), &call)
    };
    let refused = execute("/etc/passwd");
    assert_eq!(refused.status, 403);
    assert!(refused.text.contains("no-etc"), "{}", refused.text);
    assert_eq!(execute("/tmp/x").status, 200);
    assert_eq!(bench.calls("wipe"), 1);
    for (route, name) in [
        ("/mcp/default/demo", "disk__wipe"),
        ("/mcp/default/demo?model=assistant", "disk__wipe"),
        ("/mcp/default/demo/disk", "wipe"),
    ] {
        let params = json!({"name": name, "arguments": {"path": "/etc/passwd"}});
        let answer = message(&modern(&daemon.url(route), "tools/call", &params, &[]));
        assert_eq!(answer["result"]["isError"], true, "{route}: {answer}");
        assert!(answer.to_string().contains("no-etc"), "{route}: {answer}");
    }
    assert_eq!(bench.calls("wipe"), 1);
}

#[test]
fn an_ask_waits_with_its_reason_and_always_is_no_answer_to_the_next_one() {
    let policy =
        json!({"rules": [{"name": "careful", "annotations": {"readOnly": false}, "verdict": "ask"}]});
    let replies = vec![
        Reply::calls([call("c1", "wipe", json!({"n": 1})), call("c2", "look", json!({}))]),
        Reply::calls([call("c3", "wipe", json!({"n": 2}))]),
        Reply::text("Done."),
    ];
    let bench = Bench::new(&policy, &json!([]), replies);
    let daemon = bench.project.serve();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| chat(&daemon, "Clean up."));
        let waiting = ada_says(&daemon, "always");
        assert_eq!(waiting["tool"], "wipe");
        assert!(waiting["why"].as_str().is_some_and(|why| why.contains("rule `careful`")), "{waiting}");
        eventually("the first call", || (bench.calls("wipe") == 1).then_some(()));
        ada_says(&daemon, "deny");
        answer.join().expect("an answer");
    });
    assert_eq!((bench.calls("wipe"), bench.calls("look")), (1, 1));
    assert!(bench.result(2).contains("denied by the owner for Ada"), "{}", bench.result(2));
    bench.model.finish();
}
