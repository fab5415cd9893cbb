//! Forty secrets, planted where secrets of a configuration can be: none is found anywhere else.

use std::path::Path;

use lf_core::Secret;
use lf_tests::client::{get, post, request};
use lf_tests::project::{TestProject, document_of, remote, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Received, Reply, ScriptedModel, rounds_so_far};
use serde_json::{Value, json};
use walkdir::WalkDir;

/// The value of the canary of this number.
fn canary(number: usize) -> String {
    format!("canary\"{number:02}/{:x}+ä", 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1))
}

/// Where only visible ASCII may stand.
fn plain(number: usize) -> String {
    canary(number).replace(['"', 'ä', '/', '+'], "-")
}

fn all() -> Vec<String> {
    (0..40).flat_map(|number| [canary(number), plain(number)]).collect()
}

/// The canaries that stand in a text, whatever they were encoded as.
fn found(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let forms = |canary: &String| Secret::from(canary.as_str()).forms();
    all().into_iter().filter(|canary| forms(canary).iter().any(|form| text.contains(form.expose()))).collect()
}

#[track_caller]
fn assert_clean(text: &[u8], what: &str) {
    let found = found(text);
    assert!(found.is_empty(), "{found:?} in {what}:\n{}", String::from_utf8_lossy(text));
}

/// Everything of a request, in every form.
fn echo(received: &Received) -> String {
    let values =
        received.headers.iter().map(|(_, value)| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let values: Vec<String> = values.chain([received.path.clone()]).collect();
    let forms = values.iter().flat_map(|value| Secret::from(value.as_str()).forms());
    let forms: Vec<String> = forms.map(|form| form.expose().to_owned()).collect();
    json!({"error": {"message": format!("not you: {}", forms.join(" ")), "code": values}}).to_string()
}

/// Refuses every other model than `fine`, and every MCP request, with an echo of what was sent.
fn upstream() -> ScriptedModel {
    ScriptedModel::start_by(|received| {
        let is_fine = received.body["model"] == "fine";
        Some(match rounds_so_far(&received.body) {
            _ if !is_fine => Reply::whole(
                if received.body["model"] == "busy" { 503 } else { 401 },
                "application/json",
                echo(received),
            ),
            0 if received.body["tools"].is_array() => Reply::call("a", "~environment", json!({})),
            _ => Reply::text("done"),
        })
    })
    .taking_all()
}

fn models(url: &str) -> Vec<Value> {
    let at = |name: &str, model: &str, url: &str, key: &str| json!({"name": name, "provider": "openai", "model": model, "base_url": url, "api_key": key});
    let host = url.trim_start_matches("http://");
    let mut models = vec![at("fine", "fine", url, &plain(0))];
    for (number, api) in
        ["chat_completions", "responses", "messages", "generate_content", "ollama"].into_iter().enumerate()
    {
        let mut model = at(&format!("refused-{number}"), "refused", url, &format!("${{env:KEY_{number}}}"));
        model["api"] = json!(api);
        models.push(model);
    }
    models.push(at("busy", "busy", &format!("http://me:{}@{host}", plain(6)), &plain(7)));
    models.push(at(
        "query",
        "refused",
        &format!("{url}?api_key={}&v={}", plain(8), plain(9)),
        "${env:IN_DOTENV}",
    ));
    models.push(at(
        "nowhere",
        "refused",
        &format!("http://{}:{}@127.0.0.1:1/v1?token={}", plain(11), plain(12), plain(13)),
        &plain(14),
    ));
    models
}

fn servers(url: &str) -> Vec<Value> {
    let tools = [ScriptedTool::new("environment", Act::Environment)];
    let mut local = scripted("local", &Script::with(tools));
    local["env"] = json!({"API_TOKEN": canary(15), "DB_PASSWORD": "${env:PASSWORD}", "DATABASE_URL": format!("postgres://me:{}@db/x", plain(17))});
    local["inherit_env"] = json!(["GITHUB_TOKEN"]);
    let mut other = scripted("other", &Script::with([ScriptedTool::new("other", Act::Environment)]));
    other["env"] = json!({"OTHER_SECRET": canary(19)});
    let mut noisy = json!({"name": "noisy", "transport": "stdio", "command": "sh",
        "args": ["-c", "env >&2; echo $0 $@ >&2; env; exit 3", "--token", canary(20), format!("--password={}", canary(21)),
            "--header", format!("X-Api-Key: {}", plain(31))]});
    noisy["env"] = json!({"NOISY_KEY": canary(22)});
    let mut far = remote("far", "http", &format!("{url}/mcp?key={}", plain(23)));
    far["headers"] = json!({"Authorization": format!("Bearer {}", plain(24)), "X-Api-Key": plain(25), "Cookie": format!("sid={}", plain(26))});
    let mut old = remote(
        "old",
        "sse",
        &format!("{}/sse", url.replace("http://", &format!("http://me:{}@", plain(27)))),
    );
    old["headers"] = json!({"X-Secret": "${env:HEADER}"});
    let mut bearer = remote("bearer", "http", &format!("{url}/bearer"));
    bearer["auth"] = json!({"type": "bearer", "token": plain(29)});
    let mut client = remote("client", "http", &format!("{url}/client"));
    client["auth"] = json!({"type": "client_credentials", "client_id": "me", "client_secret": canary(30)});
    vec![local, other, noisy, far, old, bearer, client]
}

/// All that is written in a directory, but for the files that secrets are meant to stand in.
fn written(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let files = WalkDir::new(directory)
        .into_iter()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_file());
    let files =
        files.filter(|entry| !["llamafarm.yaml", ".env"].iter().any(|name| entry.file_name() == *name));
    files
        .map(|entry| (entry.path().display().to_string(), std::fs::read(entry.path()).unwrap_or_default()))
        .collect()
}

#[test]
fn forty_secrets_of_a_configuration_are_found_nowhere_else() {
    let upstream = upstream();
    let url = upstream.url("");
    let config = document_of(&models(&upstream.base_url()), &servers(&url));
    let mut project = TestProject::of(&config)
        .variable("PASSWORD", &canary(16))
        .variable("GITHUB_TOKEN", &plain(18))
        .variable("HEADER", &plain(28));
    for number in 0..5 {
        project = project.variable(&format!("KEY_{number}"), &plain(number + 1));
    }
    // in our own environment, and nobody's to have
    for number in 32..40 {
        project = project.variable(&format!("UNUSED_TOKEN_{number}"), &canary(number));
    }
    project.write(".env", &format!("IN_DOTENV={}\n", plain(10)));
    let recordings = project.home().join("recordings");
    let daemon =
        project.serve_with(&["--log", "trace", "--record", recordings.to_str().expect("a path of ASCII")]);
    let mut seen = Vec::new();
    for model in
        ["fine", "refused-0", "refused-1", "refused-2", "refused-3", "refused-4", "busy", "query", "nowhere"]
    {
        for stream in [false, true] {
            let body =
                json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]});
            seen.push((format!("chat with {model}"), post(&daemon.url("/v1/chat/completions"), &body)));
        }
        let body = json!({"model": model, "input": "hi"});
        seen.push((format!("response of {model}"), post(&daemon.url("/v1/responses"), &body)));
        let made = post(&daemon.url("/v1/conversations"), &json!({"model": model}));
        let id = made.json()["conversation"]["id"].as_str().expect("an id").to_owned();
        let kept = daemon.url(&format!("/v1/conversations/{id}"));
        seen.push((format!("turn with {model}"), post(&format!("{kept}/chat"), &json!({"content": "hi"}))));
        seen.push((format!("conversation with {model}"), get(&kept)));
    }
    for path in [
        "/v1/models",
        "/v1/mcp/servers",
        "/health",
        "/metrics",
        "/v1/projects",
        "/v1/projects/default/demo",
        "/v1/conversations",
        "/v1/nothing",
    ] {
        seen.push((path.to_owned(), get(&daemon.url(path))));
    }
    for server in ["noisy", "far", "old", "bearer", "client"] {
        seen.push((
            server.to_owned(),
            request("POST", &daemon.url(&format!("/v1/mcp/servers/{server}/restart")), &[], None),
        ));
    }
    for (what, response) in &seen {
        assert_clean(format!("{response:?}").as_bytes(), what);
        assert_clean(response.text.as_bytes(), what);
    }
    let sent: String = upstream.received().iter().map(echo).collect();
    let arrived = found(sent.as_bytes());
    assert!(arrived.len() >= 15, "the control: upstreams got what is theirs, and told it: {arrived:?}");
    for received in upstream.received() {
        assert_clean(received.body.to_string().as_bytes(), "what a model is told");
    }
    for process in project.children() {
        let environment = std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let own = [canary(15), canary(16), plain(17), plain(18), canary(19), canary(22)];
        let strange: Vec<String> =
            found(&environment).into_iter().filter(|canary| !own.contains(canary)).collect();
        assert!(strange.is_empty(), "{strange:?} in the environment of {}", process.command);
        let of_local = environment.windows(9).any(|window| window == b"API_TOKEN");
        assert!(!(of_local && found(&environment).contains(&canary(19))), "one child has another's");
    }
    let finished = daemon.stop();
    assert_clean(finished.stderr.as_bytes(), "the log at TRACE");
    assert_clean(finished.stdout.as_bytes(), "stdout");
    for arguments in [
        &["chat", "--model", "refused-0", "hi"][..],
        &["--log", "trace", "chat", "--model", "busy", "hi"],
        &["config", "show"],
        &["config", "show", "--json"],
        &["models", "--json"],
        &["mcp", "list", "--json"],
        &["config", "validate"],
    ] {
        let finished = project.run(arguments);
        assert_clean(format!("{}{}", finished.stdout, finished.stderr).as_bytes(), &format!("{arguments:?}"));
    }
    let kept = written(project.home());
    for kind in ["lf.db", ".jsonl"] {
        assert!(kept.iter().any(|(path, _)| path.ends_with(kind)), "the control: {kind} was written");
    }
    for directory in [project.home(), project.path()] {
        for (path, content) in written(directory) {
            assert_clean(&content, &path);
        }
    }
    project.write("leak.txt", Secret::from(canary(33)).forms()[5].expose());
    let leaks = written(project.path());
    assert!(
        leaks.iter().any(|(_, content)| !found(content).is_empty()),
        "the control: a planted leak is found"
    );
}
