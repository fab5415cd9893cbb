//! The clients people use, at every URL of the daemon and over stdio, in every generation they speak.

use std::path::Path;
use std::process::Command;

use lf_tests::peers;
use lf_tests::program::lf;
use lf_tests::project::{Daemon, Finished, Listener, TestProject, remote, scripted};
use lf_tests::scripted_mcp::{Generation, Script};
use lf_tests::scripted_model::{Reply, ScriptedModel, rounds_so_far};
use serde_json::{Value, json};

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// A client that takes steps, how it is told which generation to speak, and the revision it then speaks.
type Peer = (Sdk, &'static str, &'static str);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sdk {
    Python,
    /// `@modelcontextprotocol/client`
    TypeScript,
    /// `@modelcontextprotocol/sdk`, which knows the legacy generation only
    OldTypeScript,
}

const PYTHON: [Peer; 3] =
    [(Sdk::Python, "legacy", LEGACY), (Sdk::Python, "auto", MODERN), (Sdk::Python, "modern", MODERN)];
const TYPE_SCRIPT: [Peer; 3] = [
    (Sdk::TypeScript, "legacy", LEGACY),
    (Sdk::TypeScript, "auto", MODERN),
    (Sdk::TypeScript, "modern", MODERN),
];
const OLD_TYPE_SCRIPT: [Peer; 1] = [(Sdk::OldTypeScript, "legacy", LEGACY)];

impl Sdk {
    /// The TypeScript SDKs forget a call's callback as soon as its answer is read: a report that comes in one read with
    /// the answer, as on a busy machine, is lost there.
    fn loses_reports(self) -> bool {
        self != Self::Python
    }

    fn command(self) -> Command {
        let (program, script, which) = match self {
            Self::Python => (peers::python("python"), "mcp_client.py", None),
            Self::TypeScript => ("node".into(), "mcp_client.mjs", Some("2")),
            Self::OldTypeScript => ("node".into(), "mcp_client.mjs", Some("1")),
        };
        // fails with what to do where they are not installed
        peers::node("mcp-remote");
        let mut command = Command::new(program);
        command.arg(peers::script(script)).args(which);
        command
    }

    /// Takes steps at a URL.
    fn at(self, url: &str, mode: &str, home: &Path, steps: &Value) -> Value {
        let mut command = self.command();
        command.args([url, mode]);
        peers::take_steps(&command, home, steps)
    }

    /// Takes steps at a program that it starts.
    fn over_stdio(self, server: &[&str], mode: &str, home: &Path, steps: &Value) -> Value {
        let mut command = self.command();
        command.args(["stdio", mode]).args(server);
        peers::take_steps(&command, home, steps)
    }
}

fn script() -> Script {
    Script { generation: Generation::Dual, ..Script::of_every_kind() }
}

/// A daemon whose model calls the echo and then says so.
struct Barn {
    project: TestProject,
    daemon: Daemon,
    /// Ends with this value.
    _model: ScriptedModel,
}

impl Barn {
    fn open(servers: &[Value]) -> Self {
        let model = ScriptedModel::start_with(|_, body| {
            Some(match rounds_so_far(body) {
                0 => Reply::call("a", "~echo", json!({"n": 1})),
                _ => Reply::text("It came back."),
            })
        });
        let project = TestProject::with_model(&model.base_url(), servers);
        let daemon = project.serve();
        Self { project, daemon, _model: model }
    }

    fn home(&self) -> &Path {
        self.project.home()
    }

    fn own(&self) -> String {
        self.daemon.url("/mcp")
    }

    fn gateway(&self) -> String {
        self.daemon.url("/mcp/default/demo")
    }

    fn server(&self, name: &str) -> String {
        self.daemon.url(&format!("/mcp/default/demo/{name}"))
    }

    fn close(self) {
        self.daemon.stop();
        self.project.assert_nothing_left();
    }
}

/// What is done with the tools of [`script`], whose names begin so.
fn tool_steps(prefix: &str) -> Value {
    let tool = |name: &str| format!("{prefix}{name}");
    json!([
        {"list": true},
        {"call": tool("echo"), "arguments": {"a": [1, "é"], "b": {"c": null}}},
        {"call": tool("fail")},
        {"call": tool("image")},
        {"call": tool("count")},
        {"call": tool("refuse")},
        {"call": tool("nothing")},
        {"call": tool("hang"), "cancel_after": 0.3},
        {"call": tool("echo"), "arguments": {"still": "here"}},
    ])
}

#[track_caller]
fn assert_tools_work(seen: &Value, prefix: &str, peer: Peer) {
    let (sdk, _, protocol) = peer;
    assert_eq!(seen["protocol"], protocol, "{peer:?}");
    let step = |number: usize| &seen["steps"][number];
    let tools = step(0)["tools"].as_array().unwrap();
    let mut names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let wanted = ["count", "echo", "fail", "hang", "image", "refuse"].map(|name| format!("{prefix}{name}"));
    assert_eq!(names, wanted, "{peer:?}");
    let content = |number: usize| &step(number)["result"]["content"][0];
    assert_eq!(content(1)["text"], r#"{"a":[1,"é"],"b":{"c":null}}"#, "{peer:?}");
    assert_eq!(
        (&step(2)["result"]["isError"], &content(2)["text"]),
        (&json!(true), &json!("no hay")),
        "{peer:?}"
    );
    assert_eq!(
        (&content(3)["type"], &content(3)["mimeType"]),
        (&json!("image"), &json!("image/png")),
        "{peer:?}"
    );
    let progress: Vec<f64> =
        step(4)["progress"].as_array().unwrap().iter().map(|report| report[0].as_f64().unwrap()).collect();
    assert!(
        [1.0, 2.0, 3.0].starts_with(&progress) && (progress.len() == 3 || sdk.loses_reports()),
        "{peer:?}: {progress:?}"
    );
    assert_eq!(*step(5), json!({"error": -32_050, "message": "not today"}), "{peer:?}");
    assert_eq!(step(6)["error"], -32_602, "{peer:?}");
    assert_eq!(*step(7), json!({"cancelled": true}), "{peer:?}");
    assert_eq!(content(8)["text"], r#"{"still":"here"}"#, "{peer:?}");
}

/// The daemon's own tools, among them a whole turn.
fn own_steps() -> Value {
    json!([
        {"list": true},
        {"call": "models_list"},
        {"call": "mcp_servers"},
        {"call": "chat_completions", "arguments": {"message": "hi"}},
        {"call": "chat_completions", "arguments": {"text": "hi"}},
    ])
}

#[track_caller]
fn assert_own_tools_work(seen: &Value, peer: Peer) {
    let (sdk, _, protocol) = peer;
    assert_eq!(seen["protocol"], protocol, "{peer:?}");
    let step = |number: usize| &seen["steps"][number];
    assert!(step(0)["tools"].to_string().contains("chat_completions"), "{peer:?}: {seen}");
    let structured = |number: usize| &step(number)["result"]["structuredContent"];
    assert!(structured(1)["models"][0].is_string(), "{peer:?}: {seen}");
    assert_eq!(structured(2)["servers"][0]["name"], "m", "{peer:?}: {seen}");
    assert_eq!(step(3)["result"]["content"][0]["text"], "It came back.", "{peer:?}: {seen}");
    let progress = step(3)["progress"].to_string();
    assert!(
        progress.contains("running m__echo") || (progress == "[]" && sdk.loses_reports()),
        "{peer:?}: {seen}"
    );
    assert_eq!(step(4)["result"]["isError"], true, "{peer:?}: {seen}");
}

fn works_at_every_url(peers: &[Peer]) {
    let barn = Barn::open(&[scripted("m", &script())]);
    for peer in peers {
        let (sdk, mode, _) = *peer;
        let take = |url: &str, steps: &Value| sdk.at(url, mode, barn.home(), steps);
        assert_tools_work(&take(&barn.gateway(), &tool_steps("m__")), "m__", *peer);
        assert_tools_work(&take(&barn.server("m"), &tool_steps("")), "", *peer);
        assert_own_tools_work(&take(&barn.own(), &own_steps()), *peer);
    }
    barn.close();
}

#[test]
fn the_python_client_works_at_every_url() {
    works_at_every_url(&PYTHON);
}

#[test]
fn the_typescript_client_works_at_every_url() {
    works_at_every_url(&TYPE_SCRIPT);
}

#[test]
fn the_old_typescript_client_works_at_every_url() {
    works_at_every_url(&OLD_TYPE_SCRIPT);
}

#[test]
fn clients_of_stdio_work_through_mcp_remote() {
    let barn = Barn::open(&[scripted("m", &script())]);
    let bridge = peers::node("mcp-remote").display().to_string();
    for peer in [PYTHON[0], PYTHON[1], OLD_TYPE_SCRIPT[0]] {
        let (sdk, mode, _) = peer;
        let take = |url: &str, steps: &Value| {
            let server = ["node", &bridge, url, "--allow-http", "--transport", "http-only"];
            sdk.over_stdio(&server, mode, barn.home(), steps)
        };
        assert_tools_work(&take(&barn.gateway(), &tool_steps("m__")), "m__", peer);
        assert_tools_work(&take(&barn.server("m"), &tool_steps("")), "", peer);
        assert_own_tools_work(&take(&barn.own(), &own_steps()), peer);
    }
    barn.close();
}

#[test]
fn clients_that_start_the_program_themselves_work() {
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[scripted("m", &script())]);
    let (program, path) = (lf().display().to_string(), project.path().display().to_string());
    let server = [program.as_str(), "--cwd", &path, "mcp", "serve"];
    for peer in PYTHON.into_iter().chain(TYPE_SCRIPT).chain(OLD_TYPE_SCRIPT) {
        let (sdk, mode, _) = peer;
        let seen = sdk.over_stdio(&server, mode, project.home(), &tool_steps("m__"));
        assert_tools_work(&seen, "m__", peer);
    }
    project.assert_nothing_left();
}

/// The Inspector on its command line.
fn inspect(target: &[&str], home: &Path, method: &[&str]) -> Finished {
    let mut command = Command::new(peers::newer_node());
    command.arg(peers::node("mcp-inspector")).arg("--cli").args(target).args(["--format", "json", "-q"]);
    command.arg("--method").args(method);
    peers::run(&command, home, "")
}

/// Generation by generation: who is there, the tools, a call with arguments, one that fails, and one of no tool.
fn inspects(target: &[&str], home: &Path, prefix: &str) {
    for (era, protocol) in [("legacy", LEGACY), ("auto", MODERN), ("modern", MODERN)] {
        let target = [target, &["--protocol-era", era]].concat();
        let ask = |method: &[&str]| inspect(&target, home, method).ok().json()["result"].take();
        assert_eq!(ask(&["initialize"])["protocolVersion"], protocol, "{era}");
        let listed = ask(&["tools/list", "--strict"]);
        assert_eq!(listed["tools"].as_array().unwrap().len(), 6, "{era}: {listed}");
        let tool = |name: &str| format!("{prefix}{name}");
        let arguments = r#"{"a":[1,{"b":"é"}]}"#;
        let echo = ask(&["tools/call", "--tool-name", &tool("echo"), "--tool-args-json", arguments]);
        assert_eq!(echo["content"][0]["text"], arguments, "{era}");
        let counted = ask(&["tools/call", "--tool-name", &tool("count")]);
        assert_eq!(counted["content"][0]["text"], "after 3 reports", "{era}");
        let failed = inspect(&target, home, &["tools/call", "--tool-name", &tool("fail")]);
        assert_eq!(failed.status, Some(5), "{era}: {failed:?}");
        assert!(failed.stdout.contains("no hay") && failed.stderr.contains("tool_is_error"), "{failed:?}");
        let unknown = inspect(&target, home, &["tools/call", "--tool-name", "nothing"]).failed(5);
        assert!(unknown.contains("tool_not_found"), "{era}: {unknown}");
    }
}

#[test]
fn the_inspector_works_at_every_url() {
    let barn = Barn::open(&[scripted("m", &script())]);
    for (url, prefix) in [(barn.gateway(), "m__"), (barn.server("m"), "")] {
        inspects(&["--transport", "http", "--server-url", &url], barn.home(), prefix);
    }
    for era in ["legacy", "auto", "modern"] {
        let own = barn.own();
        let target = ["--transport", "http", "--server-url", &own, "--protocol-era", era];
        let listed = inspect(&target, barn.home(), &["tools/list", "--strict"]).ok().json();
        assert!(listed["result"]["tools"].to_string().contains("chat_completions"), "{era}: {listed}");
        let chat = ["tools/call", "--tool-name", "chat_completions", "--tool-arg", "message=hi"];
        let answer = inspect(&target, barn.home(), &chat).ok().json();
        assert_eq!(answer["result"]["content"][0]["text"], "It came back.", "{era}: {answer}");
    }
    barn.close();
}

#[test]
fn the_inspector_works_with_the_program_that_it_starts() {
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[scripted("m", &script())]);
    let (program, path) = (lf().display().to_string(), project.path().display().to_string());
    // before its own options: what follows a `--` would be the program's
    inspects(&[&program, "--cwd", &path, "mcp", "serve"], project.home(), "m__");
    project.assert_nothing_left();
}

#[test]
fn the_command_line_of_fastmcp_works_at_every_url() {
    let barn = Barn::open(&[scripted("m", &script())]);
    let fastmcp = |arguments: &[&str]| {
        let mut command = Command::new(peers::python("fastmcp"));
        command.args(arguments).arg("--json");
        peers::run(&command, barn.home(), "")
    };
    let (own, gateway, server) = (barn.own(), barn.gateway(), barn.server("m"));
    for (url, tool) in [(&gateway, "m__echo"), (&server, "echo"), (&own, "models_list")] {
        let listed = fastmcp(&["list", url]).ok().json();
        let tools = listed["tools"].as_array().unwrap();
        assert!(tools.iter().any(|listed| listed["name"] == tool), "{url}: {listed}");
    }
    let echoed = fastmcp(&["call", &gateway, "m__echo", "--input-json", r#"{"a":1}"#]).ok().json();
    assert_eq!(echoed["content"][0]["text"], r#"{"a":1}"#);
    let failed = fastmcp(&["call", &server, "fail"]);
    assert_eq!((failed.status, &failed.json()["is_error"]), (Some(1), &json!(true)), "{failed:?}");
    let answer = fastmcp(&["call", &own, "chat_completions", "message=hi"]).ok().json();
    assert_eq!(answer["content"][0]["text"], "It came back.", "{answer}");
    barn.close();
}

/// A result as the caller reads it, without what each server says of itself, and without whether a tool takes part in the
/// experimental tasks of 2025-11-25, which the gateway does not offer.
fn unsigned(mut seen: Value) -> Value {
    fn forget(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if let Some(meta) = fields.get_mut("_meta").and_then(Value::as_object_mut) {
                    meta.shift_remove("io.modelcontextprotocol/serverInfo");
                    if meta.is_empty() {
                        fields.shift_remove("_meta");
                    }
                }
                fields.shift_remove("execution");
                fields.values_mut().for_each(forget);
            }
            Value::Array(values) => values.iter_mut().for_each(forget),
            _ => {}
        }
    }
    forget(&mut seen);
    seen
}

fn fastmcp() -> Listener {
    Listener::on_free_port("/mcp", |port| {
        let mut command = Command::new(peers::python("python"));
        command.arg(peers::script("fastmcp_server.py")).args(["http", &port.to_string()]);
        command
    })
}

fn everything() -> Listener {
    Listener::on_free_port("/mcp", |port| {
        let mut command = Command::new(peers::node("mcp-server-everything"));
        command.arg("streamableHttp").env("PORT", port.to_string());
        command
    })
}

/// The route of a single server gives every client what the server itself would give it.
fn looks_the_same(server: &Listener, clients: &[Peer], steps: &Value) {
    let barn = Barn::open(&[remote("it", "http", server.url())]);
    for (sdk, mode, _) in clients {
        let comparable = |seen: Value| {
            let mut seen = unsigned(seen);
            let steps = seen["steps"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
            steps.filter(|_| sdk.loses_reports()).for_each(|step| drop(step.shift_remove("progress")));
            seen
        };
        let directly = comparable(sdk.at(server.url(), mode, barn.home(), steps));
        let through = comparable(sdk.at(&barn.server("it"), mode, barn.home(), steps));
        assert_eq!(through["protocol"], directly["protocol"], "{sdk:?} {mode}");
        for (number, step) in steps.as_array().unwrap().iter().enumerate() {
            let (through, directly) = (&through["steps"][number], &directly["steps"][number]);
            assert_eq!(through, directly, "{sdk:?} {mode} {step}\n{through}\n{directly}");
        }
    }
    barn.close();
}

fn everybody() -> Vec<Peer> {
    PYTHON.into_iter().chain(TYPE_SCRIPT).chain(OLD_TYPE_SCRIPT).collect()
}

#[test]
fn a_server_of_both_generations_looks_the_same_through_the_gateway() {
    let steps = json!([
        {"list": true},
        {"call": "add", "arguments": {"a": 40, "b": 2}},
        {"call": "add", "arguments": {"a": "forty"}},
        {"call": "fail", "arguments": {"reason": "no hay"}},
        {"call": "count", "arguments": {"to": 3}},
        {"prompts": true},
        {"prompt": "feed", "arguments": {"animal": "cow"}},
        {"prompt": "milk"},
        {"resources": true},
        {"templates": true},
        {"read": "barn://stock"},
        {"read": "barn://stalls/3"},
        {"read": "barn://nothing"},
    ]);
    looks_the_same(&fastmcp(), &everybody(), &steps);
}

#[test]
fn a_legacy_server_looks_the_same_through_the_gateway() {
    let department = json!({"ref": {"type": "ref/prompt", "name": "completable-prompt"},
        "argument": {"name": "department", "value": "S"}});
    let steps = json!([
        {"list": true},
        {"call": "echo", "arguments": {"message": "hay"}},
        {"call": "get-sum", "arguments": {"a": "one"}},
        {"call": "get-structured-content", "arguments": {"location": "Chicago"}},
        {"call": "get-annotated-message", "arguments": {"messageType": "error", "includeImage": true}},
        {"call": "get-resource-links", "arguments": {"count": 3}},
        {"call": "get-tiny-image"},
        {"call": "trigger-long-running-operation", "arguments": {"duration": 0.2, "steps": 2}},
        {"prompts": true},
        {"prompt": "args-prompt", "arguments": {"city": "Chicago"}},
        {"complete": department},
        {"templates": true},
        {"read": "demo://resource/static/document/features.md"},
    ]);
    let legacy: Vec<Peer> = everybody().into_iter().filter(|(_, mode, _)| *mode == "legacy").collect();
    looks_the_same(&everything(), &legacy, &steps);
}

/// What a legacy server offers, to clients of the modern generation.
#[test]
fn the_prompts_and_resources_of_a_legacy_server_reach_modern_clients() {
    let server = everything();
    let barn = Barn::open(&[remote("everything", "http", server.url())]);
    let steps = json!([
        {"prompts": true},
        {"prompt": "args-prompt", "arguments": {"city": "Chicago"}},
        {"resources": true},
        {"read": "demo://resource/static/document/features.md"},
        {"call": "get-resource-links", "arguments": {"count": 1}},
    ]);
    for (sdk, mode) in [(Sdk::Python, "modern"), (Sdk::TypeScript, "modern")] {
        let seen = sdk.at(&barn.server("everything"), mode, barn.home(), &steps);
        let step = |number: usize| &seen["steps"][number];
        assert!(step(0)["prompts"].to_string().contains("args-prompt"), "{sdk:?}: {}", step(0));
        assert!(step(1)["messages"].to_string().contains("Chicago"), "{sdk:?}: {}", step(1));
        assert!(step(2)["resources"].to_string().contains("features.md"), "{sdk:?}: {}", step(2));
        assert!(step(3)["contents"][0]["text"].is_string(), "{sdk:?}: {}", step(3));
        assert!(step(4)["result"].to_string().contains("resource_link"), "{sdk:?}: {}", step(4));
    }
    barn.close();
}
