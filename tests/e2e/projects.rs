//! Projects through the API: stored, changed without losing comments, and their commands held back until approved.

use lf_tests::client::{Response, chat, get, post, request};
use lf_tests::program::scripted_mcp;
use lf_tests::project::{TestProject, document, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Reply, ScriptedModel, rounds_so_far};
use serde_json::{Value, json};

const HERE: &str = "\
version: v1
name: here
namespace: default
runtime:
  models:
    - {name: demo, provider: demo, model: demo}
";

const COMMENTED: &str = "\
# whose file this is
version: v1
name: shop
namespace: team   # ours

runtime:
  models:
    # cheap and cheerful
    - name: demo
      provider: demo
      model: demo
      api_key: very-secret-indeed
      # calm
      model_api_parameters: {temperature: 0.2}
";

fn put(url: &str, body: &Value) -> Response {
    request("PUT", url, &[], Some(body.to_string()))
}

fn stored(project: &TestProject, name: &str) -> std::path::PathBuf {
    project.home().join("data/projects/team").join(name).join("llamafarm.yaml")
}

fn store(project: &TestProject, name: &str, text: &str) {
    let path = stored(project, name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_project_is_made_shown_listed_used_and_removed() {
    let project = TestProject::new(HERE);
    let daemon = project.serve();
    let made = post(&daemon.url("/v1/projects/team"), &json!({"name": "one"})).ok();
    assert_eq!(made["project"]["name"], "one");
    assert_eq!(made["project"]["config"]["namespace"], "team");
    let again = post(&daemon.url("/v1/projects/team"), &json!({"name": "one"}));
    assert_eq!((again.status, &again.json()["error"]), (409, &json!("ProjectExists")));
    let unknown = post(&daemon.url("/v1/projects/team"), &json!({"name": "x", "config_template": "no"}));
    assert_eq!(unknown.status, 404, "{unknown:?}");
    let listed = get(&daemon.url("/v1/projects/team")).ok();
    assert_eq!((&listed["total"], &listed["projects"][0]["name"]), (&json!(1), &json!("one")));
    assert_eq!(get(&daemon.url("/v1/projects/nobody")).ok()["total"], 0);
    assert_eq!(get(&daemon.url("/v1/projects")).ok()["total"], 2, "with the one that it runs in");
    let shown = get(&daemon.url("/v1/projects/team/one"));
    assert!(shown.header("etag").is_some());
    assert_eq!(shown.ok()["project"]["config"]["runtime"]["default_model"], "demo");
    let hello = json!({"model": "demo", "messages": [{"role": "user", "content": "hello"}]});
    post(&daemon.url("/v1/projects/team/one/chat/completions"), &hello).ok();
    let named = json!({"model": "team/one/demo", "messages": [{"role": "user", "content": "hello"}]});
    post(&daemon.url("/v1/chat/completions"), &named).ok();
    let url = daemon.url("/v1/projects/team/one");
    assert_eq!(request("DELETE", &url, &[], None).status, 200);
    assert_eq!(get(&url).status, 404);
    assert_eq!(request("DELETE", &url, &[], None).status, 404);
    assert_eq!(post(&daemon.url("/v1/projects/team/one/chat/completions"), &hello).status, 404);
    assert_eq!(std::fs::read_dir(project.home().join("data/trash")).unwrap().count(), 1);
}

#[test]
fn a_change_keeps_comments_and_secrets_and_notices_another_writer() {
    let project = TestProject::new(HERE);
    store(&project, "shop", COMMENTED);
    let daemon = project.serve();
    let url = daemon.url("/v1/projects/team/shop");
    let shown = get(&url).ok();
    assert!(!shown.to_string().contains("very-secret"), "{shown}");
    let mut config = shown["project"]["config"].clone();
    config["runtime"]["models"][0]["model_api_parameters"]["temperature"] = json!(0.7);
    config["runtime"]["models"][0]["description"] = json!("fast");
    let revision = &shown["project"]["revision"];
    put(&url, &json!({"config": config, "revision": revision})).ok();
    let text = std::fs::read_to_string(stored(&project, "shop")).unwrap();
    let expected = COMMENTED.replace("0.2}\n", "0.7}\n      description: fast\n");
    assert_eq!(text, expected);
    let backup = stored(&project, "shop").with_extension("yaml.bak");
    assert_eq!(std::fs::read_to_string(backup).unwrap(), COMMENTED);
    let stale = put(&url, &json!({"config": config, "revision": revision}));
    assert_eq!((stale.status, &stale.json()["error"]), (409, &json!("ProjectChanged")));
    let tag = format!("\"{}\"", revision.as_str().unwrap());
    let stale = request("PUT", &url, &[("if-match", &tag)], Some(json!({"config": config}).to_string()));
    assert_eq!(stale.status, 409);
    let yaml = text.replace("fast", "slow").replace("very-secret-indeed", "'********'");
    let sent = request("PUT", &url, &[("content-type", "application/yaml")], Some(yaml));
    assert_eq!(sent.ok()["project"]["config"]["runtime"]["models"][0]["description"], "slow");
    let text = std::fs::read_to_string(stored(&project, "shop")).unwrap();
    assert!(text.contains("very-secret-indeed") && text.contains("# calm"), "{text}");
}

#[test]
fn a_secret_does_not_follow_its_model_to_another_host() {
    let project = TestProject::new(HERE);
    store(&project, "shop", COMMENTED);
    let daemon = project.serve();
    let url = daemon.url("/v1/projects/team/shop");
    let mut config = get(&url).ok()["project"]["config"].clone();
    config["runtime"]["models"][0]["base_url"] = json!("http://evil.example/v1");
    let refused = put(&url, &json!({"config": config}));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(std::fs::read_to_string(stored(&project, "shop")).unwrap(), COMMENTED);
}

#[test]
fn a_wrong_configuration_is_refused_with_its_line() {
    let project = TestProject::new(HERE);
    store(&project, "shop", COMMENTED);
    let daemon = project.serve();
    let url = daemon.url("/v1/projects/team/shop");
    let mut config = get(&url).ok()["project"]["config"].clone();
    config["runtime"]["models"][0]["provider"] = json!("opnai");
    // it was for another provider
    config["runtime"]["models"][0].as_object_mut().unwrap().shift_remove("api_key");
    let refused = put(&url, &json!({"config": config}));
    assert_eq!(refused.status, 422, "{refused:?}");
    let details = refused.json()["details"][0].clone();
    assert_eq!((&details["line"], &details["hint"]), (&json!(10), &json!("did you mean `openai`?")));
    assert_eq!(put(&url, &json!({"config": [1]})).status, 400);
    assert_eq!(put(&url, &json!([config])).status, 400);
    assert_eq!(std::fs::read_to_string(stored(&project, "shop")).unwrap(), COMMENTED);
    let made = post(
        &daemon.url("/v1/projects/team"),
        &json!({"name": "x", "config": {"version": "v1", "runtime": 5}}),
    );
    assert_eq!(made.status, 422, "{made:?}");
    assert!(!stored(&project, "x").exists());
}

#[test]
fn names_do_not_lead_out_of_the_data_directory() {
    let project = TestProject::new(HERE);
    let daemon = project.serve();
    for name in ["../x", "..", ".hidden", "a/b", "", "-x", "a\u{0}b"] {
        let made = post(&daemon.url("/v1/projects/team"), &json!({"name": name}));
        assert_eq!(made.status, 400, "{name:?}: {made:?}");
    }
    for path in ["team/..%2f..%2fx", "..%2f..", "%2e%2e/x", "team/%2e%2e"] {
        let url = daemon.url(&format!("/v1/projects/{path}"));
        assert!(matches!(get(&url).status, 200 | 404), "{path}");
        let sent = put(&url, &json!({"config": {}})).status;
        assert!(matches!(sent, 404 | 405), "{path}: {sent}");
    }
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("llamafarm.yaml"), COMMENTED).unwrap();
    std::fs::create_dir_all(project.home().join("data/projects/team")).unwrap();
    std::os::unix::fs::symlink(outside.path(), project.home().join("data/projects/team/link")).unwrap();
    assert_eq!(get(&daemon.url("/v1/projects/team/link")).status, 404);
    assert_eq!(request("DELETE", &daemon.url("/v1/projects/team/link"), &[], None).status, 404);
    assert!(outside.path().join("llamafarm.yaml").exists());
}

#[test]
fn a_command_from_the_api_runs_only_after_it_was_approved() {
    let model = ScriptedModel::start_with(|_, request| {
        Some(match rounds_so_far(request) {
            0 if request["tools"].is_array() => Reply::call("a", "~echo", json!({})),
            _ => Reply::text("done"),
        })
    });
    let project = TestProject::new(HERE).operator("egress: [127.0.0.1]");
    let marker = project.home().join("marker");
    let script = Script { log: Some(marker.clone()), ..Script::echoing(&["echo"]) };
    let daemon = project.serve();
    let config = document(json!({}), &model.base_url(), &[scripted("fs", &script)]);
    post(&daemon.url("/v1/projects/team"), &json!({"name": "run", "config": config})).ok();
    let url = daemon.url("/v1/projects/team/run");
    let chats = format!("{url}/chat/completions");
    let starts = || std::fs::read_to_string(&marker).unwrap_or_default().matches("start ").count();
    post(&chats, &chat("hi")).ok();
    assert_eq!(starts(), 0, "nobody approved it");
    let servers = get(&format!("{url}/mcp/servers")).ok();
    assert!(servers.to_string().contains("not approved: run `lf config approve team/run`"), "{servers}");
    let shown = project.run(&["config", "approve", "team/run", "--dry-run"]).ok();
    assert!(shown.stdout.contains(&scripted_mcp().display().to_string()), "{shown:?}");
    assert!(shown.stdout.contains("sha256"), "{shown:?}");
    post(&chats, &chat("hi")).ok();
    assert_eq!(starts(), 0, "it was only shown");
    project.run(&["config", "approve", "team/run"]).ok();
    post(&chats, &chat("hi")).ok();
    assert_eq!(starts(), 1);
    let mut config = get(&url).ok()["project"]["config"].clone();
    config["mcp"]["servers"][0]["env"] = json!({"NODE_OPTIONS": "--require ./evil.js"});
    put(&url, &json!({"config": config})).ok();
    post(&chats, &chat("hi")).ok();
    assert_eq!(starts(), 1, "the changed command was not approved");
    assert!(project.run(&["chat", "team/run", "hi"]).ok().stdout.contains("done"));
    assert_eq!(starts(), 1);
}

#[test]
fn a_sandbox_that_the_api_takes_away_is_asked_about_where_a_person_wrote_the_command() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("done")));
    let project = TestProject::new(HERE).operator("egress: [127.0.0.1]");
    let marker = project.home().join("marker");
    let script = Script { log: Some(marker.clone()), ..Script::echoing(&["echo"]) };
    let config = document(json!({}), &model.base_url(), &[scripted("fs", &script)]);
    let directory = project.home().join("data/projects/team/hand");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("llamafarm.yaml"), config.to_string()).unwrap();
    let daemon = project.serve();
    let url = daemon.url("/v1/projects/team/hand");
    let chats = format!("{url}/chat/completions");
    let starts = || std::fs::read_to_string(&marker).unwrap_or_default().matches("start ").count();
    post(&chats, &chat("hi")).ok();
    assert_eq!(starts(), 1, "a person wrote it");
    let mut config = get(&url).ok()["project"]["config"].clone();
    config["mcp"]["servers"][0]["sandbox"] = json!("off");
    put(&url, &json!({"config": config})).ok();
    post(&chats, &chat("hi")).ok();
    assert_eq!(starts(), 1, "nobody approved it without its sandbox");
    project.run(&["config", "approve", "team/hand"]).ok();
    post(&chats, &chat("hi")).ok();
    assert_eq!(starts(), 2);
}

#[test]
fn a_program_that_was_swapped_after_its_approval_does_not_run() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("done")));
    let project = TestProject::new(HERE).operator("egress: [127.0.0.1]");
    let (marker, program) = (project.home().join("marker"), project.home().join("server"));
    std::fs::copy(scripted_mcp(), &program).unwrap();
    let script = Script { log: Some(marker.clone()), ..Script::echoing(&["echo"]) };
    let mut server = scripted("fs", &script);
    server["command"] = json!(program);
    let config = document(json!({}), &model.base_url(), &[server]);
    let daemon = project.serve();
    post(&daemon.url("/v1/projects/team"), &json!({"name": "run", "config": config})).ok();
    project.run(&["config", "approve"]).ok();
    let url = daemon.url("/v1/projects/team/run");
    let starts = || std::fs::read_to_string(&marker).unwrap_or_default().matches("start ").count();
    post(&format!("{url}/chat/completions"), &chat("hi")).ok();
    assert_eq!(starts(), 1);
    let mut other = std::fs::read(&program).unwrap();
    other.push(0);
    let swapped = project.home().join("swapped");
    std::fs::copy(&program, &swapped).unwrap();
    std::fs::write(&swapped, other).unwrap();
    std::fs::rename(&swapped, &program).unwrap();
    post(&format!("{url}/chat/completions"), &chat("hi")).ok();
    assert_eq!(starts(), 1);
    assert!(get(&format!("{url}/mcp/servers")).ok().to_string().contains("not approved"));
}

#[test]
fn the_terminal_lists_makes_shows_and_removes_projects() {
    let project = TestProject::new(HERE);
    project.run(&["projects", "create", "team/one"]).ok();
    assert_eq!(project.run(&["projects", "list"]).ok().stdout, "team/one\n");
    assert!(project.run(&["projects", "show", "team/one"]).ok().stdout.contains("name: one"));
    project.run(&["projects", "show", "one"]).failed(2);
    project.run(&["projects", "delete", "team/one"]).ok();
    assert_eq!(project.run(&["projects", "list"]).ok().stdout, "");
}

#[test]
fn a_person_who_approves_a_command_is_shown_all_that_bounds_it_and_asked_again_where_less_does() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("done")));
    let project =
        TestProject::new(HERE).operator("egress: [127.0.0.1]").variable("TOKEN", "canary-of-a-token");
    let marker = project.home().join("marker");
    let script = Script { log: Some(marker.clone()), ..Script::echoing(&["echo"]) };
    let mut server = scripted("fs", &script);
    server["env"] = json!({"LD_PRELOAD": "/tmp/evil.so", "TOKEN": "${env:TOKEN}"});
    server["sandbox"] = json!({"profile": "strict", "write": ["/"], "network": "all", "require": false});
    let config = document(json!({}), &model.base_url(), &[server]);
    let daemon = project.serve();
    post(&daemon.url("/v1/projects/team"), &json!({"name": "run", "config": config})).ok();
    let shown = project.run(&["config", "approve", "team/run", "--dry-run"]).ok().stdout;
    for line in [
        r#"environment  LD_PRELOAD="/tmp/evil.so", TOKEN="${env:TOKEN}""#,
        r#"sandbox      strict, reads nothing, writes "/", network all, not required"#,
        "limits       memory 4294967296 bytes, processes 1024",
    ] {
        assert!(shown.contains(line), "{line} is not in:\n{shown}");
    }
    assert!(!shown.contains("canary"), "{shown}");
    let url = daemon.url("/v1/projects/team/run");
    let mut config = get(&url).ok()["project"]["config"].clone();
    let entry = config["mcp"]["servers"][0].as_object_mut().unwrap();
    entry.remove("env");
    entry.remove("sandbox");
    put(&url, &json!({"config": config})).ok();
    project.run(&["config", "approve", "team/run"]).ok();
    let starts = || std::fs::read_to_string(&marker).unwrap_or_default().matches("start ").count();
    let ask = || post(&format!("{url}/chat/completions"), &chat("hi")).ok();
    ask();
    assert_eq!(starts(), 1);
    config["mcp"]["servers"][0]["limits"] = json!({"memory": 0, "processes": 0});
    put(&url, &json!({"config": config})).ok();
    ask();
    assert_eq!(starts(), 1, "nobody approved it without its limits");
    let shown = project.run(&["config", "approve", "team/run"]).ok().stdout;
    assert!(shown.contains("limits       memory no limit, processes no limit"), "{shown}");
    ask();
    assert_eq!(starts(), 2);
}
