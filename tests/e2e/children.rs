//! What servers start is gone with the daemon, also when that is killed, and whatever they did to stay.

mod apart;
mod failing;

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::{Duration, Instant};

use lf_tests::client::{chat, get, post};
use lf_tests::processes;
use lf_tests::program;
use lf_tests::project::{Daemon, TestProject};
use lf_tests::scripted_mcp::Script;
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::eventually;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// For the kernel, on a machine that is busy with other tests.
const GONE: Duration = Duration::from_secs(10);
/// Somebody who is not root, and whom no system lacks.
const NOBODY: u32 = 65_534;

/// A server that leaves its group, its session and its parent in all the ways there are, and then serves.
fn clinging(name: &str, sandbox: &Value) -> Value {
    let script = Script { grandchildren: 2, grandchild_setsid: true, ..Script::echoing(&["echo"]) };
    let staying = "trap '' TERM HUP INT
        (setsid sh -c 'trap \"\" TERM HUP; sleep 600 & sleep 600' >/dev/null 2>&1 &)
        (nohup sleep 600 >/dev/null 2>&1 &)
        setsid setsid sleep 600 >/dev/null 2>&1 </dev/null &
        exec \"$0\" \"$@\"";
    let server = program::scripted_mcp();
    json!({
        "name": name,
        "transport": "stdio",
        "command": "sh",
        "args": ["-c", staying, server, "stdio", script.to_argument()],
        "sandbox": sandbox,
    })
}

/// How many processes such a server is, at least.
const CLINGING: usize = 6;

fn model() -> ScriptedModel {
    ScriptedModel::start_with(|_, _| Some(Reply::text("hello")))
}

/// Has the daemon start its servers, and does not wait for that.
fn ask(daemon: &Daemon) -> TcpStream {
    let body = chat("hi").to_string();
    let mut connection = TcpStream::connect(("127.0.0.1", daemon.port())).unwrap();
    write!(
        connection,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    connection
}

/// SIGKILLs a daemon, at another moment of its servers' start each time, and every third time when all is up.
fn kill_often(project: &TestProject, times: u32, start: impl Fn() -> Daemon, servers: usize) {
    for n in 0..times {
        let daemon = start();
        let began = Instant::now();
        let connection = ask(&daemon);
        if n % 3 == 0 {
            eventually("the servers and all they start", || {
                (project.children().len() >= servers * CLINGING).then_some(())
            });
        } else {
            let moment = Duration::from_millis(u64::from(n * 7 % 250));
            std::thread::sleep(moment.saturating_sub(began.elapsed()));
        }
        daemon.signal(Signal::SIGKILL);
        assert_eq!(daemon.wait(GONE).status, None);
        drop(connection);
        processes::assert_none_left(project.home(), GONE);
    }
}

/// `LF_CHILD_KILLS`, or 24.
fn times() -> u32 {
    std::env::var("LF_CHILD_KILLS").ok().and_then(|times| times.parse().ok()).unwrap_or(24)
}

#[test]
fn a_killed_daemon_leaves_nothing_of_servers_that_fork_and_detach() {
    let model = model();
    let servers = [clinging("one", &json!("default")), clinging("two", &json!({"require": true}))];
    let project = TestProject::with_model(&model.base_url(), &servers);
    kill_often(&project, times(), || project.serve(), servers.len());
}

#[test]
fn with_the_namespace_switched_off_a_killed_daemon_leaves_processes_behind() {
    let model = model();
    let project = TestProject::with_model(&model.base_url(), &[clinging("off", &json!("off"))]);
    let daemon = project.serve();
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    eventually("all that it starts", || (project.children().len() >= CLINGING).then_some(()));
    daemon.signal(Signal::SIGKILL);
    assert_eq!(daemon.wait(GONE).status, None);
    // the server sees the end of its stdin; what it left in other sessions sees nothing
    eventually("the end of the server itself", || {
        let left = processes::with_home(project.home());
        left.iter().all(|process| process.command.contains("sleep")).then_some(())
    });
    let left = processes::with_home(project.home());
    assert!(left.len() >= CLINGING - 1, "this is what the test above looks for: {left:?}");
}

#[test]
fn without_namespaces_a_killed_daemon_leaves_nothing_either() {
    let model = model();
    let servers = [clinging("one", &json!({"namespaces": false}))];
    let project = TestProject::with_model(&model.base_url(), &servers);
    kill_often(&project, times() / 3, || project.serve(), servers.len());
}

/// Where the kernel has no process namespaces left to give: the limit holds in a user namespace of our own.
const NO_NAMESPACES: [&str; 5] =
    ["unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_pid_namespaces && exec \"$0\" \"$@\""];

fn without_namespaces(project: &TestProject) -> Daemon {
    project.serve_under(&NO_NAMESPACES)
}

#[test]
fn where_the_kernel_gives_no_namespace_a_server_runs_without_and_leaves_nothing() {
    let model = model();
    let servers = [clinging("one", &json!("default"))];
    let project = TestProject::with_model(&model.base_url(), &servers);
    let daemon = without_namespaces(&project);
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    eventually("word of it", || daemon.log().contains("without=a process namespace").then_some(()));
    daemon.stop().ok();
    project.assert_nothing_left();
    kill_often(&project, times() / 3, || without_namespaces(&project), servers.len());
}

#[test]
fn where_the_kernel_gives_no_namespace_what_requires_one_is_refused() {
    let model = model();
    let servers = [
        clinging("demanding", &json!({"require": true})),
        clinging("strict", &json!("strict")),
        clinging("modest", &json!({"profile": "default"})),
    ];
    let project = TestProject::with_model(&model.base_url(), &servers);
    let daemon = without_namespaces(&project);
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    let states = get(&daemon.url("/v1/mcp/servers")).ok();
    let error = |server: usize| states["servers"][server]["error"].as_str().unwrap_or_default().to_owned();
    let refusal = "this system cannot confine it as `sandbox` requires, without a process namespace";
    assert!(error(0).contains(refusal) && error(1).contains(refusal), "{states}");
    assert_eq!(states["servers"][2]["state"], "ready", "{states}");
    daemon.stop().ok();
    project.assert_nothing_left();
}

/// Lets somebody who is not root use the project.
fn give_to_nobody(project: &TestProject) -> [&'static str; 5] {
    for path in [project.path(), project.home(), &project.path().join("llamafarm.yaml")] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
}

#[test]
fn who_is_not_root_leaves_nothing_either_and_stays_who_they_are() {
    let model = model();
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let told = directory.path().join("told");
    let telling = format!(
        "{{ id -u; id -g; stat -c %u \"$HOME\"; grep CapEff /proc/self/status; ls /proc | grep -c '^[0-9]'; }} > {}; exec \"$0\" \"$@\"",
        told.display()
    );
    let mut server = clinging("one", &json!({"require": true}));
    server["args"][1] =
        json!(format!("{}\n{telling}", server["args"][1].as_str().unwrap().rsplit_once("exec").unwrap().0));
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let wrapper = give_to_nobody(&project);
    let daemon = project.serve_under(&wrapper);
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    let states = get(&daemon.url("/v1/mcp/servers")).ok().to_string();
    let text = std::fs::read_to_string(&told).unwrap_or_else(|error| panic!("{error}: {states}"));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..4], ["65534", "65534", "65534", "CapEff:\t0000000000000000"], "{text}");
    assert!(lines[4].parse::<usize>().unwrap() < 20, "it sees the processes of others: {text}");
    daemon.stop().ok();
    project.assert_nothing_left();
    kill_often(&project, times() / 3, || project.serve_under(&wrapper), 1);
}

#[test]
fn what_a_server_ends_with_is_told_as_without_keepers() {
    for (script, told) in [
        ("exit 3", "exited with status 3"),
        // of signals, the numbers behind 128 would be those that stop a process
        ("exit 147", "exited with status 147"),
        ("exit 150", "exited with status 150"),
        ("kill -9 $$", "was killed by SIGKILL"),
        ("kill -ABRT $$", "was killed by SIGABRT"),
    ] {
        for sandbox in [json!("default"), json!({"namespaces": false})] {
            let mut server =
                json!({"name": "m", "transport": "stdio", "command": "sh", "args": ["-c", script]});
            server["sandbox"] = sandbox;
            let project = TestProject::with_model("http://127.0.0.1:9/v1", &[server]);
            let finished = project.run(&["mcp", "tools"]);
            let said = format!("{}{}", finished.stdout, finished.stderr);
            assert!(said.contains(told), "{script}: {said}");
            project.assert_nothing_left();
        }
    }
}

#[test]
fn a_program_that_cannot_be_run_is_told_as_without_keepers() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    std::fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    make_executable(&program);
    let server = json!({"name": "m", "transport": "stdio", "command": program});
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[server]);
    let finished = project.run(&["mcp", "tools"]);
    let said = format!("{}{}", finished.stdout, finished.stderr);
    assert!(said.contains("Command not found: the interpreter of"), "{said}");
    project.assert_nothing_left();
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
