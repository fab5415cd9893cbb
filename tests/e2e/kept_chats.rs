//! `lf conversations`, and `lf chat` in a conversation that a daemon keeps.

use lf_tests::client::{get, post};
use lf_tests::conversation::create;
use lf_tests::project::{Daemon, TestProject, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::{Gate, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// What `lf conversations` says of the conversations of this daemon.
fn listed(project: &TestProject, daemon: &Daemon, arguments: &[&str]) -> Vec<String> {
    let url = daemon.url("");
    let all = [&["conversations"], arguments, &["--json", "--server", &url]].concat();
    let found = project.run(&all).ok().json();
    let found = found["conversations"].as_array().expect("conversations").iter();
    found.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn conversations_are_begun_gone_on_with_and_looked_after_from_the_terminal() {
    let model = ScriptedModel::start([
        Reply::text("Hay is for goats."),
        Reply::call("a", "~look", json!({"at": "barn"})),
        Reply::text("There is plenty."),
        Reply::text("Another one."),
    ]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["look"]))]);
    let daemon = project.serve();
    let url = daemon.url("");
    let begun = project.run(&["chat", "--conversation", "new", "--server", &url, "Who eats hay?"]).ok();
    assert_eq!(begun.stdout, "Hay is for goats.\n");
    let id =
        begun.stderr.lines().find_map(|line| line.strip_prefix("conversation ")).expect("its id").to_owned();
    let offered = model.request(0).body["tools"][0]["function"]["name"].clone();
    assert_eq!(offered, "m__look", "begun in the terminal, it has the model's tools");
    let next = project.run(&["chat", "--continue", "--server", &url, "--json", "Is there any?"]).ok().json();
    assert_eq!(next["answer"], "There is plenty.", "{next}");
    assert_eq!((&next["tools"][0]["name"], &next["rounds"]), (&json!("m__look"), &json!(2)));
    assert_eq!(model.request(1).messages().len(), 3, "with what was said before");
    let other = post(&daemon.url("/conversations"), &json!({"title": "Sheep"})).json();
    let other = other["conversation"]["id"].as_str().unwrap().to_owned();
    project.run(&["chat", "--conversation", &other, "--server", &url, "hm"]).ok();

    assert_eq!(listed(&project, &daemon, &["list"]), [other.clone(), id.clone()]);
    assert_eq!(listed(&project, &daemon, &["list", "--limit", "1"]), std::slice::from_ref(&other));
    assert_eq!(listed(&project, &daemon, &["search", "hay", "goats"]), std::slice::from_ref(&id));
    assert_eq!(listed(&project, &daemon, &["list", "--project", "default/demo"]).len(), 2);
    let run = |arguments: &[&str]| {
        let at = ["--server", url.as_str()];
        project.run(&[&["conversations"], arguments, &at].concat())
    };
    assert!(run(&["rename", &id, "Goats & hay"]).ok().stdout.contains("Goats & hay"));
    let list = run(&["list"]).ok().stdout;
    assert!(list.contains(&id) && list.contains("Goats & hay"), "{list}");
    let shown = run(&["show", &id]).ok().stdout;
    for part in ["(Goats & hay)", "user", "Who eats hay?", "→ m__look", "There is plenty."] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let exported: Value = run(&["export", &id]).ok().json();
    let tool = json!({"server_id": "m", "tool_name": "look"});
    let kept = get(&daemon.url(&format!("/conversations/{id}/messages"))).ok();
    assert_eq!(exported["messages"], kept["messages"]);
    assert_eq!((&exported["conversation"]["id"], &exported["enabled_tools"]), (&json!(id), &json!([tool])));
    run(&["delete", &id]).ok();
    let gone = run(&["show", &id]).failed(1);
    assert!(
        gone.contains(&format!("no conversation `{id}`")) && gone.contains("lf conversations list"),
        "{gone}"
    );
    assert_eq!(listed(&project, &daemon, &["list"]), [other]);
    model.finish();
}

#[test]
fn what_is_wrong_with_a_command_is_said_with_what_to_try() {
    let model = ScriptedModel::start([]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let url = daemon.url("");
    let failed = |status: i32, arguments: &[&str]| project.run(arguments).failed(status);
    let none = failed(2, &["chat", "--continue", "--server", &url, "hi"]);
    assert!(none.contains("no conversation to go on with") && none.contains("--conversation new"), "{none}");
    let unknown = failed(1, &["chat", "--conversation", "conv-x", "--server", &url, "hi"]);
    assert!(unknown.contains("no conversation `conv-x`") && unknown.contains("list"), "{unknown}");
    let wrong = failed(2, &["conversations", "show", "../x", "--server", &url]);
    assert!(wrong.contains("`../x` is no id"), "{wrong}");
    let project_less = failed(1, &["conversations", "list", "--project", "no/such", "--server", &url]);
    assert!(project_less.contains("no/such"), "{project_less}");
    daemon.stop().ok();
    let nobody = failed(1, &["conversations", "list", "--server", &url]);
    assert!(nobody.contains("cannot be reached") && nobody.contains("lf serve"), "{nobody}");
    let no_url = failed(2, &["conversations", "list", "--server", "here"]);
    assert!(no_url.contains("http://127.0.0.1:14345"), "{no_url}");
}

/// A daemon begins a turn although its client has left.
#[test]
fn ctrl_c_stops_a_turn_that_has_not_begun() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, _| Some(Reply::text("never").hold(&held)));
    let log = tempfile::NamedTempFile::new().expect("a file");
    let script = Script { slow: 2000, log: Some(log.path().to_owned()), ..Script::with([]) };
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &script)]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let chat = project.start(&["chat", "--conversation", &id, "--server", &daemon.url(""), "hi"]);
    eventually("the turn to wait for its tools", || {
        std::fs::read_to_string(log.path()).expect("a log").contains("start ").then_some(())
    });
    chat.signal(Signal::SIGINT);
    let ended = chat.wait(std::time::Duration::from_secs(10));
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let begun = || !lf_tests::conversation::said(&daemon, &id).is_empty();
    eventually("the turn to have begun", || begun().then_some(()));
    let conversation = || get(&daemon.url(&format!("/conversations/{id}"))).ok()["conversation"].clone();
    eventually("the turn to be over", || (conversation()["running_turns"] == json!([])).then_some(()));
    gate.open();
}

#[test]
fn ctrl_c_stops_the_turn_in_the_daemon_too() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, _| {
        let reply = Reply::text("one two three four").pieces(4);
        Some(reply.with(|answer| answer.hold = Some((3, held.clone()))))
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let url = daemon.url("");
    let chat = project.start(&["chat", "--conversation", "new", "--server", &url, "count"]);
    chat.wait_for_output("one");
    chat.signal(Signal::SIGINT);
    let ended = chat.wait(std::time::Duration::from_secs(10));
    assert_eq!(ended.status, Some(1), "{ended:?}");
    model.wait_for_abort();
    let id = listed(&project, &daemon, &["list"]).remove(0);
    let running =
        || get(&daemon.url(&format!("/conversations/{id}"))).ok()["conversation"]["running_turns"].clone();
    eventually("the turn to be over", || (running() == json!([])).then_some(()));
    gate.open();
}
