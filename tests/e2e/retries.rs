//! Calls that failed and are made again, by the rule of the file.

use std::path::PathBuf;

use lf_tests::client::post;
use lf_tests::project::{Finished, Listener, TestProject, remote, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use serde_json::{Value, json};

/// A server with the tool `go`, and how often it was run.
struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// How often the tool was run.
    fn runs(&self) -> usize {
        let log = std::fs::read_to_string(self.file("log")).unwrap_or_default();
        log.lines().filter(|line| line.starts_with("call go ")).count()
    }

    /// The server with this rule.
    fn server(&self, tool: ScriptedTool, retry: &Value) -> Value {
        let mut server = scripted("s", &Script { log: Some(self.file("log")), ..Script::with([tool]) });
        if !retry.is_null() {
            server["retry"] = retry.clone();
        }
        server
    }

    /// The tool ends its server in the first call.
    fn exits_once(&self) -> ScriptedTool {
        ScriptedTool::new("go", Act::ExitOnce(self.file("marker")))
    }

    /// A turn with one call of the tool, which is recorded; the result that the model was told.
    fn chat(&self, tool: ScriptedTool, retry: &Value) -> (Finished, String) {
        let model = ScriptedModel::start([Reply::call("a", "s__go", json!({"n": 1})), Reply::text("done")]);
        let project = TestProject::with_model(&model.base_url(), &[self.server(tool, retry)]);
        let file = self.file("turn.jsonl").display().to_string();
        let finished = project.run(&["chat", "--events", "--record", &file, "hi"]).ok();
        let told = model.request(1).result_of("a").unwrap();
        model.finish();
        (finished, told)
    }
}

fn read_only(tool: ScriptedTool) -> ScriptedTool {
    tool.annotated(json!({"readOnlyHint": true}))
}

#[test]
fn a_call_that_only_reads_is_made_again_and_that_is_told_and_recorded_before() {
    let bench = Bench::new();
    let (seen, told) = bench.chat(read_only(bench.exits_once()), &json!({"attempts": 3}));
    assert_eq!((told.as_str(), bench.runs()), ("second time", 2));
    assert!(seen.stdout.contains("`s__go` failed: MCP server `s` went away"), "{}", seen.stdout);
    assert!(seen.stdout.contains("(try 2 of 3)"), "{}", seen.stdout);
    let recorded = std::fs::read_to_string(bench.file("turn.jsonl")).unwrap();
    let names: Vec<&str> = ["{\"running\"", "{\"again\"", "{\"settled\""]
        .into_iter()
        .filter(|name| recorded.matches(name).count() == 1)
        .collect();
    assert_eq!(names.len(), 3, "{recorded}");
    let again =
        TestProject::new("").run(&["replay", &bench.file("turn.jsonl").display().to_string(), "--events"]);
    assert_eq!(again.ok().stdout, seen.stdout);
}

#[test]
fn a_call_that_may_change_something_is_made_again_only_if_the_file_calls_it_safe() {
    for (retry, runs) in [
        (json!(null), 1),
        (json!({"attempts": 3}), 1),
        (json!({"attempts": 3, "safe": ["read_*"]}), 1),
        (json!({"attempts": 3, "safe": ["g*"]}), 2),
        (json!("safe"), 2),
    ] {
        let bench = Bench::new();
        let (_, told) = bench.chat(bench.exits_once(), &retry);
        assert_eq!(bench.runs(), runs, "{retry}: {told}");
        assert_eq!(told == "second time", runs == 2, "{retry}: {told}");
    }
    let bench = Bench::new();
    bench.chat(read_only(bench.exits_once()), &json!(null));
    assert_eq!(bench.runs(), 1, "no rule, no second try");
}

#[test]
fn the_rule_says_on_what_and_how_often() {
    for (retry, runs) in [
        (json!({"attempts": 3, "on": ["error"]}), 3),
        (json!({"attempts": 2, "on": ["error"]}), 2),
        (json!({"attempts": 1, "on": ["error"]}), 1),
        (json!({"attempts": 3, "on": ["timeout", "lost"]}), 1),
        (json!({}), 1),
    ] {
        let bench = Bench::new();
        let (_, told) = bench.chat(read_only(ScriptedTool::new("go", Act::FailFirst(2))), &retry);
        assert_eq!(bench.runs(), runs, "{retry}: {told}");
        assert_eq!(told.contains("not yet"), runs < 3, "{retry}: {told}");
    }
}

#[test]
fn what_is_said_of_a_tool_by_its_name_or_a_glob_counts_before_the_rule_of_its_server() {
    for (retry, runs) in [
        (json!({"attempts": 5, "on": ["error"], "g*": {"attempts": 2}}), 2),
        (json!({"attempts": 5, "on": ["error"], "g*": {"attempts": 2}, "go": {"attempts": 3}}), 3),
        (json!({"attempts": 5, "on": ["error"], "go": "never"}), 1),
        (json!({"g*": {"on": ["error"]}}), 3),
        (json!({"stop": {"on": ["error"]}}), 1),
        (json!({"on": ["error"], "stop": "never"}), 3),
    ] {
        let bench = Bench::new();
        let (_, told) = bench.chat(read_only(ScriptedTool::new("go", Act::FailFirst(9))), &retry);
        assert_eq!(bench.runs(), runs, "{retry}: {told}");
    }
    // whether it may run again at all
    for (retry, runs) in [
        (json!({"*": {"attempts": 3}}), 1),
        (json!({"*": {"attempts": 3, "safe": true}}), 2),
        (json!({"go": "safe"}), 2),
        (json!({"safe": ["*"], "go": "never"}), 1),
    ] {
        let bench = Bench::new();
        let (_, told) = bench.chat(bench.exits_once(), &retry);
        assert_eq!(bench.runs(), runs, "{retry}: {told}");
    }
}

#[test]
fn the_way_to_a_server_sends_a_call_again_only_where_the_file_says_nothing_of_it() {
    for (retry, requests) in [
        // three of the transport
        (json!(null), 3),
        (json!({"attempts": 2, "on": ["lost"]}), 2),
        (json!({"attempts": 4, "on": ["lost"]}), 4),
        (json!({"attempts": 1}), 1),
        (json!({"on": ["error"]}), 1),
        (json!({"go": "never"}), 3),
    ] {
        let bench = Bench::new();
        let tool = read_only(ScriptedTool::new("go", Act::Echo));
        let script = Script { log: Some(bench.file("log")), unavailable: 9, ..Script::with([tool]) };
        let listener = Listener::scripted_mcp("http", &script);
        let mut server = remote("s", "http", listener.url());
        if !retry.is_null() {
            server["retry"] = retry.clone();
        }
        let model = ScriptedModel::start([Reply::call("a", "s__go", json!({})), Reply::text("done")]);
        TestProject::with_model(&model.base_url(), &[server]).run(&["chat", "hi"]).ok();
        let log = std::fs::read_to_string(bench.file("log")).unwrap();
        let sent = log.lines().filter(|line| line.starts_with("unavailable")).count();
        assert_eq!(sent, requests, "{retry}");
        assert!(model.request(1).result_of("a").unwrap().contains("503"));
        model.finish();
    }
}

#[test]
fn a_tool_that_is_run_by_itself_is_run_once() {
    let bench = Bench::new();
    let server =
        bench.server(ScriptedTool::new("go", Act::FailFirst(1)), &json!({"on": ["error"], "safe": ["*"]}));
    let model = ScriptedModel::start([]);
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let daemon = project.serve();
    let answer = post(&daemon.url("/api/mcp/execute"), &json!({"server": "s", "tool": "go"})).ok();
    assert_eq!((answer["is_error"].clone(), bench.runs()), (json!(true), 1), "{answer}");
}

#[test]
fn a_rule_that_is_wrong_is_told_with_its_place() {
    let bench = Bench::new();
    for (retry, words) in [
        (json!("always"), "`retry` cannot be `always`"),
        (json!({"attempts": 11}), "`attempts`"),
        (json!({"attempts": 0}), "`attempts`"),
        (json!({"on": ["sometimes"]}), "sometimes"),
        (json!({"safe": ["a["]}), "is no glob"),
        (json!({"tries": 2}), "`tries` must be a string or a mapping, not a number"),
        (json!({"get_*": "always"}), "`get_*` cannot be `always`"),
        (json!({"get_*": {"attempts": 0}}), "`attempts`"),
        (json!({"get_*": {"tries": 2}}), "unknown key `tries`"),
        (json!({"get_[": "safe"}), "is no glob"),
    ] {
        let server = bench.server(ScriptedTool::new("go", Act::Echo), &retry);
        let project = TestProject::with_model("http://127.0.0.1:9/v1", &[server]);
        let error = project.run(&["config", "validate"]).failed(2);
        assert!(error.contains(words) && error.contains("llamafarm.yaml:"), "{retry}: {error}");
    }
}
