//! The file of a running daemon is changed: in every way in which files are changed, rightly and wrongly.

mod access;
mod load;
mod trouble;
mod ways;

use std::time::Duration;

use lf_tests::client::{get, post};
use lf_tests::project::{Daemon, TestProject};
use lf_tests::wait::{PATIENCE, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// For a change to be active that is told: a machine that has other things to do may take longer than the second it should,
/// and all of the tests together show that it was not found by looking, every five seconds.
const SOON: Duration = Duration::from_millis(4500);
/// The same where changes are found by looking.
const POLLED: Duration = PATIENCE;

/// A project with these models, which need nothing and nobody.
fn models(names: &[&str]) -> String {
    let entries = names.iter().map(|name| format!("    - {{name: {name}, provider: demo, model: demo}}\n"));
    let entries: String = entries.collect();
    format!("version: v1\nname: demo\nnamespace: default\nruntime:\n  models:\n{entries}")
}

/// Of the project that the daemon was started in.
fn status(daemon: &Daemon) -> Value {
    get(&daemon.url("/v1/config/status")).ok()["projects"][0].take()
}

fn generation(daemon: &Daemon) -> u64 {
    status(daemon)["generation"].as_u64().unwrap()
}

fn names(daemon: &Daemon) -> Vec<String> {
    let listed = get(&daemon.url("/v1/models")).ok();
    let listed = listed["data"].as_array().unwrap().clone();
    listed.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn becomes(daemon: &Daemon, limit: Duration, wanted: &[&str]) {
    let what = format!("{wanted:?} to be active; the daemon has said:\n{}", daemon.log());
    within(limit, &what, || (names(daemon) == wanted).then_some(()));
}

#[track_caller]
fn is_refused(daemon: &Daemon, limit: Duration) -> Value {
    within(limit, "the file to be refused", || {
        Some(status(daemon)["refused"].take()).filter(Value::is_object)
    })
}

#[track_caller]
fn chats_with(daemon: &Daemon, model: &str) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(post(&daemon.url("/v1/chat/completions"), &body).ok()["model"], model);
}

#[test]
fn a_model_that_is_added_while_the_daemon_runs_can_be_asked() {
    let project = TestProject::new(&models(&["one"]));
    let daemon = project.serve();
    let before = status(&daemon);
    assert_eq!((&before["generation"], &before["main"]), (&json!(1), &json!(true)));
    let text = models(&["one", "two"]);
    project.write("llamafarm.yaml", &text);
    becomes(&daemon, SOON, &["one", "two"]);
    chats_with(&daemon, "two");
    let after = status(&daemon);
    let hash: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((&after["generation"], &after["hash"]), (&json!(2), &json!(hash)));
    assert!(daemon.log().contains("configuration reloaded"), "{}", daemon.log());
    daemon.stop();
    project.assert_nothing_left();
}

#[test]
fn a_mistake_is_told_with_its_place_everywhere_and_changes_nothing() {
    let project = TestProject::new(&models(&["one"]));
    let daemon = project.serve();
    let at = daemon.url("");
    let told = project.run(&["config", "status", "--server", &at]).ok().stdout;
    assert!(told.contains("default/demo: generation 1"), "{told}");
    project.write("llamafarm.yaml", &models(&["two"]).replace("provider: demo", "provider: dmeo"));
    let refused = is_refused(&daemon, SOON);
    assert_eq!((&refused["line"], &refused["column"]), (&json!(6), &json!(29)), "{refused}");
    assert_eq!(refused["diagnostics"][0]["hint"], "did you mean `demo`?");
    let health = get(&daemon.url("/health")).ok();
    assert_eq!(health["status"], "degraded");
    let error = &health["config_error"];
    assert_eq!((&error["file"], &error["line"]), (&json!("llamafarm.yaml"), &json!(6)), "{error}");
    assert!(daemon.log().contains("llamafarm.yaml:6:29: error: "), "{}", daemon.log());
    let told = project.run(&["config", "status", "--server", &at]);
    assert_eq!(told.status, Some(1));
    assert!(told.stdout.contains("generation 1") && told.stdout.contains("refused at"), "{}", told.stdout);
    assert!(told.stdout.contains("llamafarm.yaml:6:29: error: "), "{}", told.stdout);
    assert!(told.stdout.contains("hint: did you mean `demo`?"), "{}", told.stdout);
    chats_with(&daemon, "one");
    project.write("llamafarm.yaml", &models(&["two"]));
    becomes(&daemon, SOON, &["two"]);
    let health = get(&daemon.url("/health")).ok();
    assert_eq!((&health["status"], &health["config_error"]), (&json!("healthy"), &Value::Null));
    project.run(&["config", "status", "--server", &at]).ok();
}

#[test]
fn sighup_reads_the_file_at_once_and_ends_nothing() {
    let project = TestProject::new(&models(&["one"]));
    let daemon = project.serve();
    project.write("llamafarm.yaml", &models(&["two"]));
    daemon.signal(Signal::SIGHUP);
    becomes(&daemon, SOON, &["two"]);
    // what looks like a mistake is taken when somebody says so
    let nothing = "version: v1\nname: demo\nnamespace: default\n# no models\n";
    project.write("llamafarm.yaml", nothing);
    let refused = is_refused(&daemon, SOON);
    assert!(refused["message"].as_str().unwrap().contains("SIGHUP"), "{refused}");
    assert_eq!(names(&daemon), ["two"]);
    daemon.signal(Signal::SIGHUP);
    becomes(&daemon, SOON, &[]);
    assert_eq!(daemon.stop().status, Some(0));
}

#[test]
fn sigterm_ends_the_daemon_while_its_file_is_being_changed() {
    let project = TestProject::new(&models(&["one"]));
    for round in 0..10 {
        let daemon = project.serve();
        for change in 0..=round {
            project.write("llamafarm.yaml", &models(&["one", &format!("m{round}-{change}")]));
        }
        daemon.signal(if round % 2 == 0 { Signal::SIGTERM } else { Signal::SIGHUP });
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.wait(PATIENCE).status, Some(0));
        project.assert_nothing_left();
    }
}

#[test]
fn a_signal_during_the_start_ends_it() {
    let project = TestProject::new(&models(&["one"]));
    for pause in [5, 20, 40, 80] {
        let starting = project.start(&["serve", "--port", "0"]);
        std::thread::park_timeout(Duration::from_millis(pause));
        starting.signal(Signal::SIGTERM);
        let status = starting.wait(PATIENCE).status;
        // before it listens for signals, the signal ends it as it ends every program
        assert!(matches!(status, Some(0) | None), "{status:?} after {pause} ms");
        project.assert_nothing_left();
    }
}

#[test]
fn edits_through_the_api_are_generations_that_the_watcher_does_not_make_again() {
    const EDITS: u64 = 30;
    let project = TestProject::new(&models(&["one"]));
    let daemon = project.serve();
    let url = daemon.url("/v1/projects/team/shop");
    post(&daemon.url("/v1/projects/team"), &json!({"name": "shop"})).ok();
    let stored = || {
        let mut projects = get(&daemon.url("/v1/config/status")).ok()["projects"].take();
        projects
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .find(|project| project["project"] == "team/shop")
            .unwrap()
            .take()
    };
    assert_eq!(stored()["generation"], 1);
    for edit in 1..=EDITS {
        let shown = get(&url).ok();
        let mut config = shown["project"]["config"].clone();
        config["runtime"]["models"][0]["description"] = json!(format!("edit {edit}"));
        let body = json!({"config": config, "revision": shown["project"]["revision"]}).to_string();
        let written = lf_tests::client::request("PUT", &url, &[], Some(body)).ok();
        let now = stored();
        assert_eq!((&now["generation"], &now["hash"]), (&json!(edit + 1), &written["project"]["revision"]));
    }
    // by hand, to see that the watcher is there, and has nothing left to do before that
    let path = project.home().join("data/projects/team/shop/llamafarm.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(&format!("edit {EDITS}"), "by hand")).unwrap();
    within(SOON, "the edit by hand", || (stored()["generation"] == EDITS + 2).then_some(()));
    assert_eq!(daemon.log().matches("configuration reloaded").count() as u64, EDITS + 1, "{}", daemon.log());
    let config = get(&url).ok()["project"]["config"].clone();
    assert_eq!(config["runtime"]["models"][0]["description"], "by hand");
    // a mistake by hand costs nobody anything
    std::fs::write(&path, "version: [").unwrap();
    within(SOON, "the mistake to be refused", || stored()["refused"].is_object().then_some(()));
    let model = config["runtime"]["models"][0]["name"].as_str().unwrap();
    chats_with(&daemon, &format!("team/shop/{model}"));
}
