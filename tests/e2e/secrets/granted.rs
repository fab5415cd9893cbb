//! Variables of the environment, and hosts of this machine's network, in projects that came through the API.

use lf_tests::client::{Response, get, post, request};
use lf_tests::project::{Daemon, TestProject, document, document_of, remote, scripted};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Reply, ScriptedModel, rounds_so_far};
use lf_tests::wait::eventually;
use serde_json::{Value, json};

const CANARY: &str = "canary-5f0c9e71d2";
const HERE: &str = "\
version: v1
name: here
namespace: default
runtime:
  models:
    - {name: demo, provider: demo, model: demo}
";

/// A daemon with a canary in its environment.
fn here(operator: &str) -> TestProject {
    TestProject::new(HERE).operator(operator).variable("CANARY", CANARY).variable("OPENAI_API_KEY", CANARY)
}

fn model() -> ScriptedModel {
    ScriptedModel::start_with(|_, _| Some(Reply::text("done"))).taking_all()
}

/// The headers and bodies of all requests that came.
fn seen(model: &ScriptedModel) -> String {
    model.received().iter().map(|request| format!("{:?} {}", request.headers, request.body)).collect()
}

fn make(daemon: &Daemon, config: &Value) {
    post(&daemon.url("/v1/projects/team"), &json!({"name": "p", "config": config})).ok();
}

fn change(daemon: &Daemon, config: &Value) {
    let body = json!({"config": config}).to_string();
    request("PUT", &daemon.url("/v1/projects/team/p"), &[], Some(body)).ok();
}

fn ask(daemon: &Daemon, model: &str) -> Response {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    post(&daemon.url("/v1/projects/team/p/chat/completions"), &body)
}

fn approve(project: &TestProject) -> String {
    project.run(&["config", "approve", "team/p"]).ok().stdout
}

#[test]
fn a_key_goes_nowhere_new_without_a_person_s_approval() {
    let (sink, evil) = (model(), model());
    let project = here("egress: [127.0.0.1]");
    let daemon = project.serve();
    let keyed = |url: &str| {
        let keyed = json!({"name": "keyed", "provider": "openai", "model": "m", "base_url": url, "api_key": "${env:CANARY}"});
        document_of(&[keyed, json!({"name": "free", "provider": "demo", "model": "demo"})], &[])
    };
    make(&daemon, &keyed(&sink.base_url()));
    let refused = ask(&daemon, "keyed");
    assert!(refused.status >= 400, "{refused:?}");
    let origin = sink.base_url().trim_end_matches("/v1").to_owned();
    let reason = format!("variable `CANARY` may not go to `{origin}`: run `lf config approve team/p`");
    assert!(refused.text.contains(&reason), "{refused:?}");
    ask(&daemon, "free").ok();
    assert_eq!(sink.received().len(), 0);
    let shown = project.run(&["config", "approve", "team/p", "--dry-run"]).ok().stdout;
    assert_eq!(shown, format!("team/p: variable CANARY goes to {origin}\n"));
    assert_eq!(ask(&daemon, "keyed").status, refused.status, "it was only shown");
    approve(&project);
    ask(&daemon, "keyed").ok();
    assert!(seen(&sink).contains(CANARY), "the control: approved, it arrives");
    change(&daemon, &keyed(&evil.base_url()));
    assert!(ask(&daemon, "keyed").status >= 400);
    assert_eq!(evil.received().len(), 0, "the approval was for another host");
}

#[test]
fn a_key_that_the_file_does_not_name_is_left_out_elsewhere() {
    let sink = model();
    let project = here("egress: [127.0.0.1]");
    let daemon = project.serve();
    let unkeyed = json!({"name": "m", "provider": "openai", "model": "m", "base_url": sink.base_url()});
    make(&daemon, &document_of(&[unkeyed], &[]));
    ask(&daemon, "m").ok();
    assert_eq!(sink.received().len(), 1);
    assert!(!seen(&sink).contains(CANARY), "{}", seen(&sink));
}

#[test]
fn no_other_way_out_of_the_environment_is_left_open() {
    let sink = model();
    let project = here("egress: [127.0.0.1]\nsecrets: {CANARY: ['https://api.example.com']}");
    let daemon = project.serve();
    let url = sink.base_url();
    let root = url.trim_end_matches("/v1");
    let ways = [
        json!({"description": "${env:CANARY}"}),
        json!({"model": "${CANARY}"}),
        json!({"base_url": format!("{root}/${{env:CANARY}}")}),
        json!({"base_url": format!("{url}?key=${{env:CANARY}}")}),
        json!({"base_url": "http://${env:CANARY}.example.com/v1"}),
        json!({"api_key": "x${env:CANARY:-y}"}),
        json!({"extra_body": {"user": "${env:CANARY}"}}),
        json!({"model_api_parameters": {"stop": ["${env:CANARY}"]}}),
        json!({"prompts": ["p"]}),
        json!({"tools": [{"type": "function", "name": "t", "description": "${env:CANARY}", "parameters": {"type": "object"}}]}),
    ];
    make(&daemon, &document_of(&[json!({"name": "free", "provider": "demo", "model": "demo"})], &[]));
    for way in &ways {
        let mut config = document(way.clone(), &url, &[]);
        config["prompts"] =
            json!([{"name": "p", "messages": [{"role": "system", "content": "say ${env:CANARY}"}]}]);
        config["runtime"]["models"][0]["prompts"] =
            way["prompts"].as_array().map_or(json!([]), |list| json!(list));
        change(&daemon, &config);
        let refused = ask(&daemon, "assistant");
        assert!(refused.status >= 400 && refused.text.contains("CANARY"), "{way}: {refused:?}");
        let listed = get(&daemon.url("/v1/projects/team/p/models"));
        assert!(!format!("{refused:?}{listed:?}").contains(CANARY), "{way}");
    }
    assert_eq!(sink.received().len(), 0);
}

#[test]
fn headers_and_commands_of_servers_have_what_was_approved() {
    let model = ScriptedModel::start_with(|_, request| {
        Some(match rounds_so_far(request) {
            0 if request["tools"].is_array() => Reply::call("a", "~environment", json!({})),
            _ => Reply::text("done"),
        })
    })
    .taking_all();
    let project = here("egress: [127.0.0.1]");
    let daemon = project.serve();
    let log = project.home().join("log");
    let script = Script { log: Some(log.clone()), ..Script::echoing(&["echo"]) };
    let mut local = scripted("local", &script);
    local["env"] = json!({"GIVEN": "${env:CANARY}"});
    let mut inherits =
        scripted("inherits", &Script { log: Some(log.clone()), ..Script::echoing(&["other"]) });
    inherits["inherit_env"] = json!(["CANARY"]);
    let mut far = remote("far", "http", model.url("/mcp").as_str());
    far["headers"] = json!({"Authorization": "Bearer ${env:CANARY}"});
    make(&daemon, &document(json!({}), &model.base_url(), &[local, inherits, far]));
    ask(&daemon, "assistant").ok();
    let servers = get(&daemon.url("/v1/projects/team/p/mcp/servers")).ok().to_string();
    for told in [
        "variable `CANARY` may not go to the command of `local`",
        "variable `CANARY` may not go to the command of `inherits`",
        "variable `CANARY` may not go to `http://127.0.0.1:",
    ] {
        assert!(servers.contains(told), "{told}: {servers}");
    }
    assert!(!log.exists() && !seen(&model).contains(CANARY));
    let approved = approve(&project);
    for told in ["variable CANARY goes to command of local", "variable CANARY goes to http://127.0.0.1:"] {
        assert!(approved.contains(told), "{approved}");
    }
    ask(&daemon, "assistant").ok();
    assert!(log.exists() && seen(&model).contains(CANARY), "the control: approved, they have it");
}

#[test]
fn a_host_of_this_machine_s_network_is_named_by_its_operator() {
    let sink = model();
    let project = here("");
    let daemon = project.serve();
    let at = |host: &str| sink.base_url().replace("127.0.0.1", host);
    for url in [at("127.0.0.1"), at("0x7f.1"), at("localhost."), at("localhost")] {
        let config = document(json!({}), &url, &[remote("far", "http", &url)]);
        match get(&daemon.url("/v1/projects/team/p")).status {
            200 => change(&daemon, &config),
            _ => make(&daemon, &config),
        }
        let refused = ask(&daemon, "assistant");
        assert!(refused.status >= 400 && refused.text.contains("may not be connected to"), "{refused:?}");
        let servers = get(&daemon.url("/v1/projects/team/p/mcp/servers")).ok().to_string();
        assert!(servers.contains("may not be connected to"), "{servers}");
    }
    assert_eq!(sink.received().len(), 0);
    let approved = approve(&project);
    assert!(approved.contains("connections to http://localhost:"), "{approved}");
    ask(&daemon, "assistant").ok();
    assert_eq!(sink.received().iter().filter(|request| request.path.ends_with("/completions")).count(), 1);
}

#[test]
fn the_operator_s_file_limits_the_main_project_too() {
    let sink = model();
    let config = document(json!({"api_key": "${env:CANARY}"}), &sink.base_url(), &[]);
    let make = |operator: &str| TestProject::of(&config).operator(operator).variable("CANARY", CANARY);
    let project = make("secrets: {CANARY: [api.example.com]}");
    let refused = project.run(&["chat", "hi"]);
    assert_ne!(refused.status, Some(0));
    assert!(refused.stderr.contains("operator.yaml"), "{refused:?}");
    assert_eq!(sink.received().len(), 0);
    let origin = sink.base_url().trim_end_matches("/v1").to_owned();
    make(&format!("secrets: {{CANARY: ['{origin}']}}")).run(&["chat", "hi"]).ok();
    make("").run(&["chat", "hi"]).ok();
    assert_eq!(sink.received().len(), 2);
    let wrong = make("secrets: [CANARY]").run(&["chat", "hi"]).failed(2);
    assert!(wrong.contains("operator.yaml"), "{wrong}");
    let chatted = make("").run(&["config", "approve", "default/demo", "--dry-run"]).ok().stdout;
    assert!(chatted.contains("variable CANARY goes to"), "{chatted}");
}

#[test]
fn an_edit_of_a_command_that_a_running_daemon_takes_up_is_a_new_command() {
    let into = |file: &str| {
        let shell = format!("echo \"$TOKEN\" > {file}");
        let args = json!(["-c", shell]);
        let env = json!({"TOKEN": "${env:CANARY}"});
        let server = json!({"name": "crm", "transport": "stdio", "command": "sh", "args": args, "env": env});
        let model = json!({"name": "demo", "provider": "demo", "model": "demo"});
        document_of(&[model], &[server]).to_string()
    };
    let project = TestProject::new(&into("one")).variable("CANARY", CANARY);
    let daemon = project.serve();
    let restart = || post(&daemon.url("/v1/mcp/servers/crm/restart"), &json!({}));
    restart();
    let told = std::fs::read_to_string(project.path().join("one")).unwrap();
    assert_eq!(told.trim(), CANARY, "the control: what the file asked for at the start, it has");
    project.write("llamafarm.yaml", &into("two"));
    let reason = "variable `CANARY` may not go to the command of `crm`: run `lf config approve default/demo`";
    eventually("the new command to be held back", || {
        get(&daemon.url("/v1/mcp/servers")).ok().to_string().contains(reason).then_some(())
    });
    restart();
    assert!(!project.path().join("two").exists());
    project.write("llamafarm.yaml", &into("one"));
    eventually("the old one to be trusted", || {
        (!get(&daemon.url("/v1/mcp/servers")).ok().to_string().contains(reason)).then_some(())
    });
    daemon.stop().ok();
}
