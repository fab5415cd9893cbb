//! What a person sees of MCP servers that are down, hang or are restarted: in a daemon and on the command line.

use lf_tests::client::{chat, get, post, request};
use lf_tests::project::{TestProject, document, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::eventually;
use serde_json::{Value, json};

fn go(act: Act) -> Script {
    Script::with([ScriptedTool::new("go", act)])
}

fn broken(name: &str) -> Value {
    let script =
        Script { exit: Some(3), stderr: Some("cannot open the barn".to_owned()), ..Script::default() };
    scripted(name, &script)
}

#[test]
fn the_states_of_all_servers_are_told_and_the_daemon_is_healthy_without_one() {
    let model = ScriptedModel::start([Reply::text("hello")]);
    let servers = [scripted("good", &Script::echoing(&["echo"])), broken("broken")];
    let project = TestProject::of(&document(json!({}), &model.base_url(), &servers));
    let daemon = project.serve();
    let state = |name: &str| get(&daemon.url(&format!("/v1/mcp/servers/{name}"))).ok();
    assert_eq!((&state("good")["state"], &state("broken")["state"]), (&json!("idle"), &json!("idle")));
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    let good = state("good");
    assert_eq!(
        (&good["state"], &good["tools"], &good["circuit"]),
        (&json!("ready"), &json!(1), &json!("closed"))
    );
    assert_eq!((&good["counters"]["starts"], &good["counters"]["failures"]), (&json!(1), &json!(0)));
    let down = state("broken");
    assert_eq!((&down["state"], &down["error_code"]), (&json!("failed"), &json!("exited")));
    assert!(down["error"].as_str().unwrap().starts_with("exited with status 3"), "{down}");
    assert!(down["retry_in_seconds"].is_number(), "{down}");
    assert_eq!(down["stderr"].as_array().unwrap().last().unwrap(), "cannot open the barn");
    let health = get(&daemon.url("/health")).ok();
    assert_eq!(health["status"], "healthy", "{health}");
    let component = &health["components"][2];
    assert_eq!((&component["name"], &component["status"]), (&json!("mcp:broken"), &json!("degraded")));
    assert_eq!(component["details"]["state"], "failed");
    let ready = get(&daemon.url("/health/readiness")).ok();
    assert_eq!(ready["mcp_servers"][0], json!({"name": "good", "state": "ready", "ready": true}));
    assert_eq!(ready["mcp_servers"][1]["ready"], false);
    assert_eq!(get(&daemon.url("/v1/mcp/servers/other")).status, 404);
    model.finish();
    daemon.stop();
    project.assert_nothing_left();
}

#[test]
fn a_daemon_that_chats_cannot_do_without_a_server_is_degraded() {
    let model = ScriptedModel::start([]);
    let mut server = broken("broken");
    server["required"] = json!(true);
    let project = TestProject::of(&document(json!({}), &model.base_url(), &[server]));
    let daemon = project.serve();
    assert_eq!(get(&daemon.url("/health")).ok()["status"], "healthy");
    assert_eq!(post(&daemon.url("/v1/chat/completions"), &chat("hi")).status, 503);
    assert_eq!(get(&daemon.url("/health")).ok()["status"], "degraded");
}

#[test]
fn a_restart_ends_a_call_that_hangs_and_starts_another_process() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let script = Script { log: Some(log.path().to_owned()), ..go(Act::Hang) };
    let model = ScriptedModel::start([Reply::call("a", "m__go", json!({})), Reply::text("done")]);
    let project = TestProject::of(&document(json!({}), &model.base_url(), &[scripted("m", &script)]));
    let daemon = project.serve();
    let noted = || std::fs::read_to_string(log.path()).unwrap();
    std::thread::scope(|scope| {
        let url = daemon.url("/v1/chat/completions");
        let turn = scope.spawn(move || post(&url, &chat("hi")).ok());
        eventually("the call to run", || noted().contains("call go").then_some(()));
        let restarted = post(&daemon.url("/v1/mcp/servers/m/restart"), &json!({})).ok();
        assert_eq!((&restarted["state"], &restarted["counters"]["restarts"]), (&json!("ready"), &json!(1)));
        turn.join().unwrap();
    });
    let told = model.request(1).result_of("a").unwrap();
    assert!(told.contains("the server was restarted on request"), "{told}");
    assert_eq!(noted().matches("start ").count(), 2);
    assert_eq!(noted().matches("call go").count(), 1, "the call is not made again");
    assert_eq!(post(&daemon.url("/v1/mcp/servers/other/restart"), &json!({})).status, 404);
    assert_eq!(get(&daemon.url("/v1/mcp/servers/m/restart")).status, 405);
    let foreign = [("origin", "https://evil.example")];
    let refused = request("POST", &daemon.url("/v1/mcp/servers/m/restart"), &foreign, None);
    assert_eq!(refused.status, 403);
    assert_eq!(noted().matches("start ").count(), 2);
    model.finish();
    daemon.stop();
    project.assert_nothing_left();
}

#[test]
fn the_terminal_shows_and_restarts_the_servers_of_a_daemon() {
    let model = ScriptedModel::start([Reply::text("hello")]);
    let noisy =
        Script { stderr: Some("the barn is open".to_owned()), garbage: 3, ..Script::echoing(&["echo"]) };
    let servers = [scripted("good", &noisy), broken("broken")];
    let project = TestProject::of(&document(json!({}), &model.base_url(), &servers));
    let daemon = project.serve();
    let at = daemon.url("");
    let idle = project.run(&["mcp", "list", "--server", &at]).ok();
    assert!(idle.stdout.contains("good    stdio  idle"), "a look starts nothing: {}", idle.stdout);
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    let listed = project.run(&["mcp", "list", "--server", &at]).ok().stdout;
    assert!(listed.contains("good    stdio  ready       1 tools"), "{listed}");
    assert!(listed.contains("broken  stdio  failed      exited with status 3"), "{listed}");
    assert!(listed.contains("(next try in "), "{listed}");
    assert!(project.run(&["mcp", "health", "--server", &at]).status == Some(1));
    let shown = project.run(&["mcp", "health", "good", "--server", &at]).ok().stdout;
    for part in ["the barn is open", "3 lines on stdout that are no messages", "1 starts, 0 of them restarts"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let restarted = project.run(&["mcp", "restart", "good", "--server", &at, "--json"]).ok().json();
    assert_eq!((&restarted["state"], &restarted["counters"]["starts"]), (&json!("ready"), &json!(2)));
    let named =
        project.run(&["mcp", "health", "good", "--server", &at, "--project", "default/demo", "--json"]);
    assert_eq!(named.ok().json()["counters"]["restarts"], 1);
    let failed = project.run(&["mcp", "restart", "broken", "--server", &at]);
    assert_eq!(failed.status, Some(1));
    assert!(failed.stdout.contains("cannot open the barn"), "{failed:?}");
    let unknown = project.run(&["mcp", "restart", "other", "--server", &at]).failed(1);
    assert!(unknown.contains("other") && unknown.contains("good"), "{unknown}");
    model.finish();
}

#[test]
fn the_terminal_starts_a_server_to_see_whether_it_does() {
    let project =
        TestProject::with_model("http://127.0.0.1:9", &[scripted("m", &go(Act::Echo)), broken("broken")]);
    let here = project.run(&["mcp", "restart", "m"]).ok();
    assert!(here.stdout.contains("ready") && here.stderr.contains("--server URL"), "{here:?}");
    let shown = project.run(&["mcp", "health", "broken"]);
    assert_eq!(shown.status, Some(1));
    assert!(
        shown.stdout.contains("last lines on stderr") && shown.stdout.contains("cannot open the barn"),
        "{shown:?}"
    );
    assert!(project.run(&["mcp", "health", "other"]).failed(2).contains("other"));
    project.assert_nothing_left();
}

#[test]
fn a_server_that_hangs_is_replaced_for_the_next_turn() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let script = Script { log: Some(log.path().to_owned()), ..go(Act::Echo) };
    let model = ScriptedModel::start([
        Reply::text("hello"),
        Reply::call("a", "m__go", json!({})),
        Reply::text("no answer"),
        Reply::call("b", "m__go", json!({"n": 1})),
        Reply::text("done"),
    ]);
    let mut server = scripted("m", &script);
    server["timeout"] = json!("4s");
    let project = TestProject::of(&document(json!({}), &model.base_url(), &[server]));
    let daemon = project.serve();
    let say = || post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    say();
    let [child] = &project.children()[..] else { panic!("one child: {:?}", project.children()) };
    child.signal(nix::sys::signal::Signal::SIGSTOP);
    say();
    assert!(model.request(2).result_of("a").unwrap().contains("did not answer within 4s"));
    let shown = eventually("the server to be given up", || {
        let shown = get(&daemon.url("/v1/mcp/servers/m")).ok();
        (shown["error_code"] == "unresponsive" && shown["state"] != "ready").then_some(shown)
    });
    assert!(shown["error"].as_str().unwrap().contains("nor `tools/list` within "), "{shown}");
    say();
    assert_eq!(model.request(4).result_of("b").as_deref(), Some(r#"{"n":1}"#));
    assert_eq!(std::fs::read_to_string(log.path()).unwrap().matches("start ").count(), 2);
    model.finish();
    daemon.stop();
    project.assert_nothing_left();
}

#[test]
fn a_daemon_that_has_no_room_for_a_process_tells_so_and_starts_it_when_it_has() {
    let project = TestProject::with_model("http://127.0.0.1:9", &[scripted("m", &go(Act::Echo))]);
    let daemon = project.serve_with_files(64);
    let restart = || post(&daemon.url("/v1/mcp/servers/m/restart"), &json!({})).ok();
    assert_eq!(restart()["state"], "ready");
    // one more at a time: in the end there is room for a request and not for the pipes of a process
    let mut held = Vec::new();
    let refused = eventually("a start without room", || {
        held.push(std::net::TcpStream::connect(("127.0.0.1", daemon.port())).unwrap());
        let answer = restart();
        (answer["state"] != "ready").then_some(answer)
    });
    assert_eq!(
        (&refused["state"], &refused["error_code"]),
        (&json!("failed"), &json!("no_resources")),
        "{refused}"
    );
    assert!(refused["error"].as_str().unwrap().contains("lack of resources"), "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("ulimit -n"), "{refused}");
    drop(held);
    eventually("room again", || (restart()["state"] == "ready").then_some(()));
    daemon.stop();
    project.assert_nothing_left();
}
