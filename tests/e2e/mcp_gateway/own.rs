//! What the daemon offers of itself.

use super::*;

#[test]
fn the_daemon_offers_its_own_tools() {
    let model = ScriptedModel::start_with(|number, _| {
        Some(match number % 2 {
            0 => Reply::call("a", "~echo", json!({"n": 1})),
            _ => Reply::text("It came back."),
        })
    });
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &Script::echoing(&["echo"]))]);
    let daemon = project.serve();
    for (mode, protocol) in GENERATIONS {
        let steps = json!([
            {"list": true},
            {"call": "models_list"},
            {"call": "projects_list"},
            {"call": "project_get"},
            {"call": "mcp_servers"},
            {"call": "chat_completions", "arguments": {"message": "hi"}},
            {"call": "chat_completions", "arguments": {"text": "hi"}},
        ]);
        let seen = client(&[&daemon.url("/mcp"), mode], &steps);
        assert_eq!(seen["protocol"], protocol);
        let steps = &seen["steps"];
        for tool in steps[0]["tools"].as_array().unwrap() {
            assert!(tool["title"].is_string() && tool["description"].is_string(), "{tool}");
            assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
        }
        let structured = |step: usize| &steps[step]["result"]["structuredContent"];
        assert_eq!(steps[0]["tools"].as_array().unwrap().len(), 8, "{seen}");
        assert!(structured(1)["models"][0].is_string(), "{seen}");
        assert_eq!(structured(2)["projects"].as_array().unwrap().len(), 1);
        assert_eq!(structured(3)["mcp_servers"], json!(["m"]));
        assert_eq!(structured(4)["servers"][0]["name"], "m");
        assert_eq!(steps[5]["result"]["content"][0]["text"], "It came back.", "{seen}");
        assert_eq!(structured(5)["choices"][0]["finish_reason"], "stop");
        assert!(steps[5]["progress"].to_string().contains("running m__echo"), "{seen}");
        assert_eq!(steps[6]["result"]["isError"], true);
    }
}

#[test]
fn a_project_that_lists_its_own_daemon_does_not_wait_for_itself() {
    let project = TestProject::with_model(NOWHERE, &[]);
    let daemon = project.serve();
    // a stored project is read when it is asked for, so that it can know the port
    let own = format!("http://localhost:{}/mcp", daemon.port());
    let servers = [
        scripted("m", &Script::echoing(&["echo"])),
        remote("gateway", "http", &format!("{own}/default/ring")),
        remote("daemon", "http", &own),
    ];
    let directory = project.home().join("data/projects/default/ring");
    std::fs::create_dir_all(&directory).unwrap();
    let document = document(json!({"mcp_servers": ["m", "gateway", "daemon"]}), NOWHERE, &servers);
    std::fs::write(directory.join("llamafarm.yaml"), format!("{document:#}")).unwrap();
    let url = daemon.url("/mcp/default/ring");
    let started = Instant::now();
    let listed = message(&modern(&url, "tools/list", &json!({}), &[]));
    let outcomes = &listed["result"]["_meta"]["io.lf/outcomes"];
    assert_eq!(outcomes["gateway"], json!({"status": "ok", "tools": 1}), "{listed}");
    assert_eq!(outcomes["daemon"], json!({"status": "ok", "tools": 5}), "{listed}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    let call = json!({"name": "gateway__m__echo", "arguments": {"n": 1}});
    let called = message(&modern(&url, "tools/call", &call, &[]));
    assert_eq!(called["result"]["content"][0]["text"], r#"{"n":1}"#, "{called}");
    daemon.stop();
}

#[test]
fn projects_are_changed_through_the_daemons_own_tools_as_through_its_routes() {
    let project = TestProject::with_model(NOWHERE, &[]);
    let daemon = project.serve();
    let config = json!({
        "version": "v1",
        "runtime": {"models": [{"name": "m", "provider": "openai", "model": "x", "base_url": NOWHERE, "api_key": "k-1"}]},
    });
    let mut changed = config.clone();
    changed["mcp"] = json!({"servers": [{"name": "new", "transport": "stdio", "command": "true"}]});
    let first = client(
        &[&daemon.url("/mcp"), "auto"],
        &json!([
            {"call": "project_create", "arguments": {"namespace": "team", "name": "barn", "config": config}},
            {"call": "project_get", "arguments": {"project": "team/barn"}},
            {"call": "projects_list", "arguments": {"namespace": "team"}},
            {"call": "project_create", "arguments": {"namespace": "team", "name": "barn"}},
            {"call": "project_create", "arguments": {"namespace": "team", "name": "../x"}},
        ]),
    );
    let structured = |seen: &Value, step: usize| seen["steps"][step]["result"]["structuredContent"].clone();
    let created = structured(&first, 0);
    assert_eq!(created["project"]["name"], "barn", "{first}");
    assert!(!created.to_string().contains("k-1"), "secrets are masked: {created}");
    assert_eq!(structured(&first, 1)["models"].as_array().unwrap().len(), 1, "{first}");
    assert_eq!(structured(&first, 2)["total"], 1, "{first}");
    for step in [3, 4] {
        assert_eq!(first["steps"][step]["result"]["isError"], true, "{first}");
    }
    let revision = &created["project"]["revision"];
    let update = |revision: &Value| {
        json!({"call": "project_update", "arguments": {
            "namespace": "team", "project": "barn", "config": changed, "revision": revision,
        }})
    };
    let second = client(
        &[&daemon.url("/mcp"), "legacy"],
        &json!([
            update(revision),
            update(revision),
            {"call": "mcp_servers", "arguments": {"project": "team/barn"}},
            {"call": "project_delete", "arguments": {"project": "team/barn"}},
            {"call": "project_get", "arguments": {"project": "team/barn"}},
            {"call": "project_delete", "arguments": {"project": "default/demo"}},
        ]),
    );
    assert_eq!(structured(&second, 0)["project"]["name"], "barn", "{second}");
    // the file has changed since it was read
    assert_eq!(second["steps"][1]["result"]["isError"], true, "{second}");
    // a command that came this way waits for an approval
    assert!(structured(&second, 2).to_string().contains("approve"), "{second}");
    assert_eq!(structured(&second, 3)["project"]["name"], "barn", "{second}");
    for step in [4, 5] {
        assert_eq!(second["steps"][step]["result"]["isError"], true, "{second}");
    }
    daemon.stop();
}

#[test]
fn the_daemons_own_endpoint_has_projects_as_resources_and_prompts_to_fill_in() {
    let mut content = document(json!({}), NOWHERE, &[]);
    let said = json!({"role": "user", "content": "Greet {{who}} in {{language | English}}."});
    content["prompts"] = json!([{"name": "greeting", "messages": [said]}]);
    let project = TestProject::of(&content);
    let daemon = project.serve();
    let own = daemon.url("/mcp");
    let ask = |method: &str, params: Value| message(&modern(&own, method, &params, &[]));
    let listed = ask("resources/list", json!({}));
    let uri = "lf://projects/default/demo";
    assert_eq!(listed["result"]["resources"][0]["uri"], uri, "{listed}");
    let read = message(&modern(&own, "resources/read", &json!({"uri": uri}), &[("mcp-name", uri)]));
    let text = read["result"]["contents"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("greeting") && !text.contains("sk-scripted"), "{read}");
    let prompts = ask("prompts/list", json!({}));
    let arguments = json!([{"name": "who", "required": true}, {"name": "language", "required": false}]);
    assert_eq!(prompts["result"]["prompts"][0]["arguments"], arguments, "{prompts}");
    let filled = ask("prompts/get", json!({"name": "greeting", "arguments": {"who": "Ann"}}));
    assert_eq!(filled["result"]["messages"][0]["content"]["text"], "Greet Ann in English.", "{filled}");
    let lacking = ask("prompts/get", json!({"name": "greeting"}));
    assert_eq!(lacking["error"]["code"], -32_602, "{lacking}");
    let argument = json!({"name": "name", "value": "de"});
    let template = json!({"type": "ref/resource", "uri": "lf://projects/{namespace}/{name}"});
    let completed = ask("completion/complete", json!({"ref": template, "argument": argument}));
    assert_eq!(completed["result"]["completion"]["values"], json!(["demo"]), "{completed}");
    daemon.stop();
}
