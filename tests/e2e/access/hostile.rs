//! What browsers can be made to send, and what a command would leave if it ran.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use lf_server::route_table;
use lf_tests::client::{get, post, request};
use lf_tests::project::{Daemon, TestProject, document};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::eventually;
use serde_json::{Value, json};
use walkdir::WalkDir;

use super::{NOWHERE, ask, methods_of, path_of};

/// Everything below a directory with its content, without what only tells of the daemon's own work.
pub(super) fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let own = |name: &str| {
        name.starts_with("conversations.db") || name.starts_with("lf.db") || name == "write.lock"
    };
    WalkDir::new(root)
        .into_iter()
        .filter_map(Result::ok)
        .filter(|entry| !entry.file_name().to_str().is_some_and(own))
        .map(|entry| {
            let content =
                if entry.file_type().is_file() { std::fs::read(entry.path()).unwrap() } else { Vec::new() };
            (entry.path().display().to_string(), content)
        })
        .collect()
}

/// One request, byte by byte as it is written here; the answer as text.
pub(super) fn raw(daemon: &Daemon, text: &str) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", daemon.port())).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    connection.write_all(text.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // a daemon may close before it has read what it refuses
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).to_lowercase()
}

#[test]
fn two_thousand_shapes_of_cross_site_requests_change_nothing_and_are_told_nothing() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("a secret answer")));
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve_with(&["--cors-origin", "https://app.example"]);
    let made = post(&daemon.url("/conversations"), &json!({"title": "mine"})).json();
    let conversation = made["conversation"]["id"].as_str().unwrap().to_owned();
    // the record of the start is written beside all else
    eventually("the record of the start", || {
        let record = std::fs::read_to_string(project.data_dir().join("audit/000001.jsonl")).ok()?;
        record.contains("configuration").then_some(())
    });
    let before = files(&project.data_dir());
    let port = daemon.port();
    let own = format!("127.0.0.1:{port}");
    let good = [format!("http://{own}")];
    let hosts: Vec<String> = [
        "evil.example",
        "evil.example:14345",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost.",
        "0.0.0.0",
        "[::]",
        "[::1].evil.example",
        "127.0.0.1@evil.example",
        "127.0.0.1/",
        "127.0.0.1?x",
        "127.0.0.1#x",
        "127.0.0.1\\x",
        "127.0.0.1 evil",
        "127.0.0.1,evil.example",
        "2130706433",
        "0x7f.1",
        "[::ffff:127.0.0.1]",
        "",
    ]
    .iter()
    .map(|host| (*host).to_owned())
    .collect();
    let origins = [
        "https://evil.example",
        "http://evil.example",
        "null",
        "file://",
        "https://app.example.evil.example",
        "https://APP.example",
        "http://app.example",
        "https://app.example:444",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "http://0.0.0.0",
        "chrome-extension://abc",
        "http://[::1].evil.example",
        "http://localhost@evil.example",
        "https://app.example https://evil.example",
        "*",
        "data:",
        "http://",
        "about:blank",
        "moz-extension://abc",
    ];
    let paths = [
        "/v1/chat/completions".to_owned(),
        "/v1/messages".to_owned(),
        "/v1/responses".to_owned(),
        "/v1/projects/team".to_owned(),
        "/v1/projects/default/demo".to_owned(),
        format!("/conversations/{conversation}"),
        format!("/conversations/{conversation}/chat"),
        "/api/mcp/execute".to_owned(),
        "/mcp".to_owned(),
        "/v1/mcp/servers/x/restart".to_owned(),
        "/conversations".to_owned(),
        "/v1/models".to_owned(),
    ];
    let kinds = [
        "application/json",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ];
    let body = json!({
        "model": "assistant", "messages": [{"role": "user", "content": "hi"}], "input": "hi", "content": "hi",
        "max_tokens": 5, "name": "made", "server": "x", "tool": "y", "title": "theirs",
    })
    .to_string();
    let mut shapes: Vec<String> = Vec::new();
    let mut add = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        let _ = write!(text, "content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        shapes.push(text);
    };
    for (at, path) in paths.iter().enumerate() {
        let methods = ["POST", "GET", "DELETE", "PUT", "OPTIONS"];
        for (number, origin) in origins.iter().enumerate() {
            for method in &methods[..4] {
                let kind = kinds[(at + number) % kinds.len()];
                add(method, path, &[("host", &own), ("origin", origin), ("content-type", kind)], &body);
            }
            let asked = methods[number % 4];
            add(
                "OPTIONS",
                path,
                &[("host", &own), ("origin", origin), ("access-control-request-method", asked)],
                "",
            );
        }
        for (number, host) in hosts.iter().enumerate() {
            let kind = kinds[(at + number) % kinds.len()];
            add("POST", path, &[("host", host), ("content-type", kind)], &body);
            add("GET", path, &[("host", host)], "");
            add("DELETE", path, &[("host", host), ("origin", &format!("http://{host}"))], "");
        }
        for kind in &kinds[1..] {
            // what a form sends, without preflight, and without an origin in old browsers
            add(
                "POST",
                path,
                &[("host", &own), ("content-type", kind), ("sec-fetch-site", "cross-site")],
                &body,
            );
            add(
                "POST",
                path,
                &[
                    ("host", &own),
                    ("content-type", kind),
                    ("sec-fetch-mode", "no-cors"),
                    ("sec-fetch-site", "cross-site"),
                ],
                &body,
            );
        }
        for to in ["script", "image", "iframe", "empty", "style", "object"] {
            add("GET", path, &[("host", &own), ("sec-fetch-site", "cross-site"), ("sec-fetch-dest", to)], "");
        }
        add(
            "POST",
            path,
            &[("host", &own), ("host", "evil.example"), ("content-type", "application/json")],
            &body,
        );
        add(
            "POST",
            path,
            &[
                ("host", &own),
                ("origin", good[0].as_str()),
                ("origin", "https://evil.example"),
                ("content-type", "application/json"),
            ],
            &body,
        );
        add(
            "POST",
            &format!("http://evil.example{path}"),
            &[("host", &own), ("content-type", "application/json")],
            &body,
        );
        add("GET", &format!("http://evil.example{path}"), &[("host", &own)], "");
    }
    assert!(shapes.len() >= 2_000, "{} shapes", shapes.len());
    for shape in &shapes {
        let answer = raw(&daemon, shape);
        let status: u16 = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        assert!((400..500).contains(&status), "{shape}\n\n{answer}");
        assert!(!answer.contains("access-control-allow-"), "{shape}\n\n{answer}");
        assert!(!answer.contains("a secret answer") && !answer.contains("\"mine\""), "{shape}\n\n{answer}");
    }
    assert_eq!(files(&project.data_dir()), before);
    let all = get(&daemon.url("/conversations")).ok();
    assert_eq!((&all["count"], &all["conversations"][0]["title"]), (&json!(1), &json!("mine")));
    assert!(model.asked().is_empty());
    // the control: the very same, from where it may come
    let listed = ["https://app.example", good[0].as_str()];
    for (origin, is_listed) in listed.iter().zip([true, false]) {
        let headers = [("origin", *origin)];
        let said = request("POST", &daemon.url("/v1/chat/completions"), &headers, Some(body.clone()));
        assert_eq!(said.status, 200, "{origin}");
        assert_eq!(said.header("access-control-allow-origin"), is_listed.then_some(*origin));
        assert!(said.header("access-control-allow-credentials").is_none());
    }
    let preflight = [
        ("origin", "https://app.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    let leave = request("OPTIONS", &daemon.url("/v1/chat/completions"), &preflight, None);
    assert_eq!(leave.status, 204);
    assert!(leave.header("access-control-allow-headers").unwrap().contains("authorization"));
    assert!(leave.header("vary").unwrap().to_lowercase().contains("origin"));
    daemon.stop();
}

#[test]
fn no_route_starts_a_command_without_the_scope_and_the_approval() {
    let project = TestProject::with_model(NOWHERE, &[]);
    let marker = project.home().join("marker");
    let command = format!("touch {}", marker.display());
    let server = json!({"name": "evil", "transport": "stdio", "command": "sh", "args": ["-c", command]});
    let mut config = document(json!({}), NOWHERE, std::slice::from_ref(&server));
    config["name"] = json!("made");
    // whatever a route might read a command from
    let mut body = server.clone();
    for (key, value) in [
        ("config", config.clone()),
        ("mcp", json!({"servers": [server]})),
        ("servers", json!([server])),
        ("mcp_servers", json!([server])),
        ("server", json!("evil")),
        ("tool", json!("run")),
        ("tools", json!([{"type": "mcp", "server_label": "evil", "command": "sh", "args": ["-c", command]}])),
        ("model", json!("assistant")),
        ("messages", json!([{"role": "user", "content": "hi"}])),
        ("input", json!("hi")),
        ("content", json!("hi")),
        ("max_tokens", json!(5)),
        ("name", json!("made")),
    ] {
        body[key] = value;
    }
    let forms = [
        body.clone(),
        server,
        json!({"config": config}),
        json!({"name": "made", "config": config}),
        json!({"server": "evil", "tool": "run", "arguments": {}, "project": "team/made"}),
        json!({"model": "assistant", "messages": [{"role": "user", "content": "hi"}], "tools": body["tools"]}),
    ];
    let all_but = project.key(&["all-but", "--scope", "chat,read,tools,config:write,approve,admin"]);
    let strong =
        project.key(&["strong", "--scope", "chat,read,tools,config:write,config:exec,approve,admin"]);
    let daemon = project.serve();
    // from before: an entry that is to be changed
    let shop = json!({"name": "shop", "config": document(json!({}), NOWHERE, &[])});
    assert_eq!(post(&daemon.url("/v1/projects/team"), &shop).status, 200);
    let mut held = 0;
    for (key, may_write) in [("", false), (all_but.as_str(), false), (strong.as_str(), true)] {
        let key = if key.is_empty() { super::NOBODY } else { ("x-api-key", key) };
        for route in route_table() {
            let path = path_of(&route)
                .replace("/demo/demo", "/team/shop")
                .replace("/projects/demo", "/projects/team");
            for method in methods_of(&route) {
                // what is written here is needed to the end
                if method == "DELETE" && path == "/v1/projects/team/shop" {
                    continue;
                }
                for form in &forms {
                    let answer = ask(&daemon, method, &path, key, Some(form));
                    let writes = ["/v1/projects/team", "/v1/projects/team/shop"];
                    let is_write = ["PUT", "POST"].contains(&method) && writes.contains(&path.as_str());
                    if !may_write && is_write && form["config"]["mcp"]["servers"][0]["name"] == "evil" {
                        assert!(
                            [401, 403, 404, 400, 405, 422].contains(&answer.status),
                            "{method} {path}: {answer:?}"
                        );
                        held += u32::from(answer.text.contains("config:exec"));
                    }
                }
            }
        }
        let tools = [
            ("project_create", json!({"namespace": "team", "name": "other", "config": config})),
            ("project_update", json!({"namespace": "team", "project": "shop", "config": config})),
        ];
        for (tool, arguments) in tools {
            let params = json!({"name": tool, "arguments": arguments, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            }});
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let headers = [
                key,
                ("accept", "application/json, text/event-stream"),
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", "tools/call"),
                ("mcp-name", tool),
            ];
            let answer = request("POST", &daemon.url("/mcp"), &headers, Some(message.to_string()));
            assert_eq!(
                answer.text.contains("config:exec") || answer.text.contains("config:write"),
                !may_write,
                "{answer:?}"
            );
        }
        // everything that could have been written is now used
        for name in ["made", "shop", "other"] {
            let url = daemon.url(&format!("/v1/projects/team/{name}"));
            let _ = request("POST", &format!("{url}/chat/completions"), &[], Some(forms[5].to_string()));
            let _ = post(&format!("{url}/mcp/servers/evil/restart"), &json!({}));
            let _ = get(&format!("{url}/tools"));
            let call: Value = json!({"server": "evil", "tool": "x", "project": format!("team/{name}")});
            let _ = post(&daemon.url("/api/mcp/execute"), &call);
        }
        assert!(!marker.exists(), "a command was started");
    }
    assert!(held > 0, "nothing was held back for want of `config:exec`");
    // the control: written by one who may, and approved on the machine
    let shown = project.run(&["config", "approve", "--dry-run"]).ok();
    assert!(shown.stdout.contains("touch"), "{}", shown.stdout);
    project.run(&["config", "approve"]).ok();
    let _ = post(&daemon.url("/v1/projects/team/shop/mcp/servers/evil/restart"), &json!({}));
    eventually("the marker", || marker.exists().then_some(()));
    daemon.stop();
}
