//! Servers that want a token: a person logs in, a daemon goes on from there, and false servers get nothing.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lf_tests::client::{get, post, request};
use lf_tests::peers;
use lf_tests::processes;
use lf_tests::project::{Daemon, Finished, Listener, TestProject, remote};
use lf_tests::scripted_access::{Rules, ScriptedAccess};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::eventually;
use nix::pty::openpty;
use serde_json::{Value, json};

const NOWHERE: &str = "http://127.0.0.1:9/v1";
const LIMIT: Duration = Duration::from_secs(60);

fn project_with(access: &ScriptedAccess, auth: Option<Value>) -> TestProject {
    let mut entry = remote("m", "http", &access.url());
    if let Some(auth) = auth {
        entry["auth"] = auth;
    }
    TestProject::with_model(NOWHERE, &[entry])
}

fn log_in(project: &TestProject) -> Finished {
    project.run(&["mcp", "login", "m", "--follow-authorization"])
}

fn call(project: &TestProject, tool: &str) -> Finished {
    project.run(&["mcp", "call", "m", tool])
}

/// What one tool call through the daemon gives.
fn execute(daemon: &Daemon, tool: &str) -> lf_tests::client::Response {
    let body = json!({"server": "m", "tool": tool, "arguments": {}});
    post(&daemon.url("/api/mcp/execute"), &body)
}

fn state(daemon: &Daemon) -> Value {
    get(&daemon.url("/v1/mcp/servers/m")).ok()
}

/// Fails when any token is in this text.
#[track_caller]
fn assert_no_secret(access: &ScriptedAccess, text: &str) {
    for secret in access.secrets() {
        assert!(!text.contains(&secret), "{secret} is in:\n{text}");
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_person_logs_in_at_the_terminal_and_the_tools_are_there() {
    let access = ScriptedAccess::start(Rules::default());
    let project = project_with(&access, None);
    let refused = call(&project, "read").failed(1);
    assert!(refused.contains("needs a login"), "{refused}");
    assert!(refused.contains("lf mcp login m"), "{refused}");

    let login = project.start(&["mcp", "login", "m", "--no-browser"]);
    let url = eventually("the address to visit", || {
        login.stdout().lines().find(|line| line.starts_with("http")).map(str::to_owned)
    });
    // what is not the answer to this login is turned away, and changes nothing
    let end = access.agree(&url);
    let wrong = end.replace("state=", "state=x");
    assert_eq!(get(&wrong).status, 404);
    assert_eq!(get(&end.replace("/callback", "/other")).status, 404);
    let page = get(&end);
    assert_eq!(page.status, 200, "{page:?}");
    let done = login.wait(LIMIT).ok();
    assert!(done.stdout.contains("m: logged in at http://127.0.0.1"), "{done:?}");
    assert!(done.stderr.contains("m answers: 2 tools"), "{done:?}");

    let called = call(&project, "read").ok();
    // the server repeats the token, and nobody sees it
    assert!(called.stdout.contains("done with Bearer [secret]"), "{called:?}");
    for text in [&done.stdout, &done.stderr, &called.stdout, &called.stderr] {
        assert_no_secret(&access, text);
    }
    let directory = project.home().join("data/oauth");
    assert_eq!(mode(&directory), 0o700);
    let files: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty() && files.iter().all(|file| mode(file) == 0o600), "{files:?}");

    let out = project.run(&["mcp", "logout", "m"]).ok();
    assert!(out.stdout.contains("the token is revoked"), "{out:?}");
    assert_eq!(access.count("revoke"), 2);
    call(&project, "read").failed(1);
    let again = project.run(&["mcp", "logout", "m"]).ok();
    assert!(again.stdout.contains("nobody was logged in"), "{again:?}");
}

#[test]
fn a_daemon_tells_that_a_login_is_needed_and_goes_on_after_it() {
    let access = ScriptedAccess::start(Rules::default());
    let project = project_with(&access, None);
    let daemon = project.serve_with(&["--log", "debug"]);
    let refused = execute(&daemon, "read");
    assert!(refused.text.contains("needs a login"), "{refused:?}");
    let told = state(&daemon);
    assert_eq!(told["state"], "auth_required", "{told}");
    assert!(told["hint"].as_str().unwrap().contains("lf mcp login m"), "{told}");
    // asked again and again, the server is left alone
    let asked = access.count("401");
    for _ in 0..5 {
        execute(&daemon, "read");
    }
    assert_eq!(access.count("401"), asked);
    assert_eq!(access.count("authorize"), 0, "a daemon opens nothing by itself");

    log_in(&project).ok();
    // the daemon goes for up to a second by what it knew
    eventually("the daemon to have the token", || (execute(&daemon, "read").status == 200).then_some(()));
    assert_eq!(state(&daemon)["state"], "ready");
    project.run(&["mcp", "logout", "m"]).ok();
    eventually("the daemon to have no token", || {
        execute(&daemon, "read").text.contains("login").then_some(())
    });
    eventually("the state", || (state(&daemon)["state"] == "auth_required").then_some(()));
    assert_no_secret(&access, &daemon.log());
    for text in ["code=", "code-0", "code_verifier"] {
        assert!(!daemon.log().contains(text), "{text}");
    }
}

#[test]
fn a_chat_is_not_held_up_by_a_server_that_wants_a_login() {
    let access = ScriptedAccess::start(Rules::default());
    let model = ScriptedModel::start([Reply::text("hello")]);
    let project = TestProject::with_model(&model.base_url(), &[remote("m", "http", &access.url())]);
    let daemon = project.serve();
    let started = std::time::Instant::now();
    let body = json!({"model": "assistant", "messages": [{"role": "user", "content": "hi"}]});
    let answer = post(&daemon.url("/v1/chat/completions"), &body).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "hello");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn one_refresh_serves_all_callers_of_all_processes() {
    let access = ScriptedAccess::start(Rules::default());
    let project = project_with(&access, None);
    log_in(&project).ok();
    let daemon = project.serve();
    assert_eq!(execute(&daemon, "read").status, 200);
    access.forget_tokens();
    let others: Vec<_> = (0..4).map(|_| project.start(&["mcp", "call", "m", "read"])).collect();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let done = execute(&daemon, "read");
                assert_eq!(done.status, 200, "{done:?}");
            });
        }
    });
    for other in others {
        other.wait(LIMIT).ok();
    }
    assert_eq!((access.count("reused"), access.count("authorize")), (0, 1), "{:?}", access.log());
    assert_eq!(
        access.log().iter().filter(|line| *line == "token refresh_token").count(),
        1,
        "{:?}",
        access.log()
    );
}

#[test]
fn a_token_that_expires_in_the_middle_of_a_session_is_renewed() {
    let access = ScriptedAccess::start(Rules { life: 6, ..Rules::default() });
    let project = project_with(&access, None);
    log_in(&project).ok();
    let daemon = project.serve();
    eventually("two renewals", || {
        let done = execute(&daemon, "read");
        assert_eq!(done.status, 200, "{done:?}\n{:?}", access.log());
        (access.log().iter().filter(|line| *line == "token refresh_token").count() >= 2).then_some(())
    });
    assert_eq!((access.count("reused"), access.count("authorize")), (0, 1));
}

#[test]
fn a_revoked_access_is_told_and_a_login_mends_it() {
    let access = ScriptedAccess::start(Rules::default());
    let project = project_with(&access, None);
    log_in(&project).ok();
    let daemon = project.serve();
    assert_eq!(execute(&daemon, "read").status, 200);
    access.forget_everything();
    let refused = execute(&daemon, "read");
    assert!(refused.text.contains("login"), "{refused:?}");
    eventually("the state", || (state(&daemon)["state"] == "auth_required").then_some(()));
    log_in(&project).ok();
    let done = eventually("the daemon to go on", || {
        Some(execute(&daemon, "read")).filter(|done| done.status == 200)
    });
    assert_eq!(done.status, 200);
    assert_eq!(access.count("register"), 1, "the client is known already");
}

#[test]
fn a_call_that_needs_more_asks_for_it_at_the_next_login() {
    let access = ScriptedAccess::start(Rules::default());
    let project = project_with(&access, None);
    log_in(&project).ok();
    let daemon = project.serve();
    let refused = execute(&daemon, "write");
    assert!(refused.text.contains("write") && refused.text.contains("login"), "{refused:?}");
    // it costs nothing else
    assert_eq!(execute(&daemon, "read").status, 200);
    assert_eq!(state(&daemon)["state"], "ready");
    log_in(&project).ok();
    assert!(access.log().contains(&"authorize read write".to_owned()), "{:?}", access.log());
    let done =
        eventually("the new token", || Some(execute(&daemon, "write")).filter(|done| done.status == 200));
    assert_eq!(done.status, 200);
    // what was asked for already is not asked for again and again
    access
        .change(|rules| rules.write_scopes = vec!["read".to_owned(), "write".to_owned(), "admin".to_owned()]);
    let refused = execute(&daemon, "write");
    assert!(refused.text.contains("admin"), "{refused:?}");
}

#[test]
fn false_servers_get_no_code_and_no_token() {
    let elsewhere = "https://evil.example";
    let table: [(Value, Value, Value, &str); 11] = [
        (json!({"issuer": elsewhere}), json!({}), json!({}), "another issuer"),
        (json!({}), json!({"resource": "https://evil.example/mcp"}), json!({}), "another resource"),
        (json!({}), json!({}), json!({"iss": elsewhere}), "another issuer"),
        (json!({}), json!({}), json!({"iss": null}), "does not say who its issuer is"),
        (json!({}), json!({}), json!({"state": "x"}), "`state`"),
        (json!({}), json!({}), json!({"code": null, "error": "access_denied"}), "access_denied"),
        (json!({"code_challenge_methods_supported": null}), json!({}), json!({}), "PKCE"),
        (json!({"code_challenge_methods_supported": ["plain"]}), json!({}), json!({}), "PKCE"),
        (json!({"registration_endpoint": null}), json!({}), json!({}), "only clients that are registered"),
        (json!({}), json!({"authorization_servers": ["http://169.254.169.254/"]}), json!({}), "refused"),
        (json!({"token_endpoint": "http://169.254.169.254/token"}), json!({}), json!({}), "refused"),
    ];
    for (metadata, resource, redirect, why) in table {
        let access = ScriptedAccess::start(Rules { metadata, resource, redirect, ..Rules::default() });
        let project = project_with(&access, None);
        let told = log_in(&project).failed(1);
        assert!(told.contains(why), "{why}: {told}");
        assert_eq!(access.count("token"), 0, "{why}: {:?}", access.log());
    }
}

#[test]
fn what_a_server_names_as_a_page_reaches_no_program_and_no_private_place() {
    let bad = [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "--help",
        "http://example.com/authorize",
        "https://x.example/\n--flag",
        "https://x.example/ `id`",
        "http://169.254.169.254/authorize",
        "https://10.0.0.1/authorize",
    ];
    for endpoint in bad {
        let metadata = json!({"authorization_endpoint": endpoint});
        let access = ScriptedAccess::start(Rules { metadata, ..Rules::default() });
        let project = project_with(&access, None).variable("DISPLAY", ":0");
        let told = project.run(&["mcp", "login", "m", "--no-browser"]);
        assert_eq!((told.status, told.stdout.as_str()), (Some(1), ""), "{endpoint}: {told:?}");
        assert!(told.stderr.contains("refused"), "{told:?}");
        assert_eq!(access.count("register"), 0);
    }
    let bad = [
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/",
        "http://0/",
        "https://[::ffff:10.0.0.1]/",
        "file:///etc/passwd",
        "http://example.com/",
    ];
    for place in bad {
        let challenge = Some(format!("Bearer resource_metadata=\"{place}\""));
        let access = ScriptedAccess::start(Rules { challenge, ..Rules::default() });
        let project = project_with(&access, None);
        let told = log_in(&project).failed(1);
        assert!(told.contains("refused"), "{place}: {told}");
        assert_eq!(access.count("resource-metadata"), 0, "{place}");
        // a daemon fetches nothing at all
        let refused = call(&project, "read").failed(1);
        assert!(refused.contains("needs a login"), "{refused}");
    }
}

#[test]
fn a_client_of_its_own_gets_tokens_without_a_person() {
    let rules = Rules { secret: Some("the-client-s-secret".to_owned()), life: 6, ..Rules::default() };
    let access = ScriptedAccess::start(rules);
    let auth = json!({
        "type": "client_credentials", "client_id": "me", "client_secret": "${env:CLIENT_SECRET}", "scopes": ["read", "write"],
    });
    let project = project_with(&access, Some(auth.clone())).variable("CLIENT_SECRET", "the-client-s-secret");
    let daemon = project.serve();
    eventually("a token after the first", || {
        let done = execute(&daemon, "write");
        assert_eq!(done.status, 200, "{done:?}\n{:?}", access.log());
        (access.log().iter().filter(|line| *line == "token client_credentials").count() >= 2).then_some(())
    });
    assert_eq!((access.count("authorize"), access.count("register")), (0, 0));

    let wrong = project_with(&access, Some(auth)).variable("CLIENT_SECRET", "a-wrong-secret");
    let refused = call(&wrong, "read").failed(1);
    assert!(refused.contains("invalid_client") && !refused.contains("a-wrong-secret"), "{refused}");
    let shown = wrong.run(&["config", "show"]).ok();
    assert!(!shown.stdout.contains("a-wrong-secret"), "{shown:?}");
}

#[test]
fn a_registered_client_s_secret_goes_to_its_own_authorization_server_alone() {
    let rules =
        Rules { secret: Some("the-client-s-secret".to_owned()), registration: false, ..Rules::default() };
    let access = ScriptedAccess::start(rules);
    let other = ScriptedAccess::start(Rules { secret: Some("x".to_owned()), ..Rules::default() });
    let auth = json!({"type": "oauth", "client_id": "me", "client_secret": "the-client-s-secret"});
    let project = project_with(&access, Some(auth));
    log_in(&project).ok();
    assert!(call(&project, "read").ok().stdout.contains("done"));
    access.change(|rules| rules.resource = json!({"authorization_servers": [other.issuer()]}));
    let told = log_in(&project).failed(1);
    assert!(told.contains("now names the authorization server"), "{told}");
    assert_eq!((other.count("token"), other.count("authorize")), (0, 0), "{:?}", other.log());
}

#[test]
fn a_server_that_moves_to_another_authorization_server_is_followed_with_new_credentials() {
    let access = ScriptedAccess::start(Rules::default());
    let other = ScriptedAccess::start(Rules { audience: Some(access.url()), ..Rules::default() });
    let project = project_with(&access, None);
    log_in(&project).ok();
    access.change(|rules| rules.resource = json!({"authorization_servers": [other.issuer()]}));
    // the other one gives tokens for the first one's server, which it must be told
    let told = log_in(&project);
    assert_eq!((other.count("register"), other.count("authorize")), (1, 1), "{told:?}");
    assert!(!other.log().iter().any(|line| line.contains("refresh")), "{:?}", other.log());
}

#[test]
fn a_token_of_the_file_is_sent_and_never_shown() {
    let access = ScriptedAccess::start(Rules::default());
    let auth = json!({"type": "bearer", "token": "${env:API_TOKEN}"});
    let project = project_with(&access, Some(auth)).variable("API_TOKEN", "a-token-of-the-file");
    let refused = call(&project, "read").failed(1);
    assert!(refused.contains("does not take the token of `auth`"), "{refused}");
    assert!(
        access.log().iter().any(|line| line.ends_with("Bearer a-token-of-the-file")),
        "{:?}",
        access.log()
    );
    let shown = project.run(&["config", "show"]).ok();
    for text in [refused, shown.stdout] {
        assert!(!text.contains("a-token-of-the-file"), "{text}");
    }
    let told = log_in(&project).failed(1);
    assert!(told.contains("nobody logs in"), "{told}");
}

#[test]
fn what_a_client_authorizes_itself_with_goes_no_further() {
    let access = ScriptedAccess::start(Rules::default());
    let model = ScriptedModel::start([Reply::call("call_1", "m__read", json!({})), Reply::text("done")]);
    let project = TestProject::with_model(&model.base_url(), &[remote("m", "http", &access.url())]);
    log_in(&project).ok();
    let daemon = project.serve();
    let key = project.key(&["canary", "--scope", "chat,read,tools"]);
    let canary = [
        ("authorization", "Bearer canary-of-the-client"),
        ("x-api-key", key.as_str()),
        ("accept", "application/json, text/event-stream"),
    ];
    let chat = json!({"model": "assistant", "messages": [{"role": "user", "content": "hi"}]});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "read", "arguments": {},
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}},
    }});
    let ours = [
        ("/v1/chat/completions", chat),
        ("/api/mcp/execute", json!({"server": "m", "tool": "read", "arguments": {}})),
        ("/mcp/default/demo/m", call),
    ];
    for (path, body) in ours {
        let mut headers = canary.to_vec();
        if path.starts_with("/mcp") {
            headers.extend([
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", "tools/call"),
                ("mcp-name", "read"),
            ]);
        }
        let answer = request("POST", &daemon.url(path), &headers, Some(body.to_string()));
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    assert!(access.count("tools/call") >= 3, "{:?}", access.log());
    let told = |line: &String| line.contains("canary") || line.contains(&key);
    assert!(!access.log().iter().any(told), "{:?}", access.log());
}

/// A browser that is started by its opener and stays.
const OPENER: &str = r#"#!/bin/sh
for one; do echo "$one"; done > "$HOME/opened"
sleep 1000 &
echo "browser $!" >> "$HOME/opened"
env >> "$HOME/opened"
"#;

#[test]
fn a_browser_is_opened_where_there_is_a_desktop_with_the_address_as_one_argument_and_stays() {
    let access = ScriptedAccess::start(Rules::default());
    let url = access.url();
    for command in [&["mcp", "login", "m"][..], &["mcp", "probe", &url, "--login"]] {
        let project = project_with(&access, None);
        let opener = project.write("bin/xdg-open", OPENER);
        std::fs::set_permissions(&opener, PermissionsExt::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", opener.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let project = project
            .variable("PATH", &path)
            .variable("DISPLAY", ":0")
            .variable("API_TOKEN", "not-for-a-browser");
        let login = project.start(command);
        let opened = eventually("the browser", || {
            let opened = std::fs::read_to_string(project.home().join("opened")).ok();
            opened.filter(|text| text.contains("DISPLAY=:0"))
        });
        let url = opened.lines().next().unwrap();
        assert!(url.starts_with(&access.issuer()), "{opened}");
        // the browser may be quicker than the terminal
        login.wait_for_message(url);
        let browser = opened.lines().nth(1).unwrap().strip_prefix("browser ").expect("one argument");
        assert!(!opened.contains("not-for-a-browser"), "{opened}");
        assert_eq!(get(&access.agree(url)).status, 200);
        login.wait(LIMIT).ok();
        let left = processes::with_home(project.home());
        assert!(left.iter().any(|process| process.pid.to_string() == browser), "{command:?}: {left:?}");
        processes::kill_all(project.home());
    }
}

#[test]
fn the_address_that_a_distant_browser_ends_at_can_be_pasted() {
    let access = ScriptedAccess::start(Rules::default());
    let project = project_with(&access, None);
    let pty = openpty(None, None).unwrap();
    let mut command = project.command(&["mcp", "login", "m", "--no-browser"]);
    command.stdin(Stdio::from(pty.slave));
    let mut keyboard = std::fs::File::from(pty.master);
    let login = project.start_command(command);
    let url = eventually("the address to visit", || {
        login.stdout().lines().find(|line| line.starts_with("http")).map(str::to_owned)
    });
    keyboard.write_all(b"http://127.0.0.1/callback?code=1&state=wrong\n").unwrap();
    login.wait_for_message("not the address");
    keyboard.write_all(format!("{}\n", access.agree(&url)).as_bytes()).unwrap();
    let done = login.wait(LIMIT).ok();
    assert!(done.stdout.contains("m: logged in"), "{done:?}");
}

#[test]
fn a_real_server_with_oauth_is_logged_in_to_used_and_left() {
    for (transport, path) in [("http", "/mcp"), ("sse", "/sse")] {
        let server = Listener::on_free_port(path, |port| {
            let mut command = Command::new(peers::python("python"));
            command.arg(peers::script("fastmcp_oauth.py")).args([&port.to_string(), transport]);
            command
        });
        let project = TestProject::with_model(NOWHERE, &[remote("m", transport, server.url())]);
        let refused = project.run(&["mcp", "call", "m", "add", r#"{"a":1,"b":2}"#]).failed(1);
        assert!(refused.contains("lf mcp login m"), "{transport}: {refused}");
        let done = log_in(&project).ok();
        assert!(done.stdout.contains("for read"), "{done:?}");
        let called = project.run(&["mcp", "call", "m", "add", r#"{"a":1,"b":2}"#]).ok();
        assert!(called.stdout.contains('3'), "{transport}: {called:?}");
        let out = project.run(&["mcp", "logout", "m"]).ok();
        assert!(out.stdout.contains("revoked"), "{out:?}");
        project.run(&["mcp", "call", "m", "add", r#"{"a":1,"b":2}"#]).failed(1);
    }
}
