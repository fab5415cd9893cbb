//! What a server in a sandbox can do, and what it is told when it cannot.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use lf_tests::client::{chat, get, post};
use lf_tests::peers;
use lf_tests::project::{Finished, TestProject};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::eventually;
use serde_json::{Map, Value, json};

/// The interpreter behind the environment of the peers, and the directory that all of it is in.
fn interpreter() -> (PathBuf, PathBuf) {
    let python = peers::python("python").canonicalize().unwrap();
    let prefix = python.ancestors().nth(2).unwrap().to_owned();
    (python, prefix)
}

/// A server that tries what it is told to, in this sandbox; its interpreter and itself may be read.
fn probe(sandbox: Value) -> Value {
    let (python, prefix) = interpreter();
    let script = peers::script("probe.py");
    let mut sandbox = match sandbox {
        Value::Object(rules) => rules,
        profile => Map::from_iter([("profile".to_owned(), profile)]),
    };
    if sandbox["profile"] == "strict" {
        let read = sandbox.entry("read").or_insert(json!([])).as_array_mut().unwrap();
        read.extend([json!(prefix), json!(script)]);
    }
    json!({
        "name": "probe",
        "transport": "stdio",
        "command": python,
        // what it is called with decides nothing: it is not in the environment of the peers
        "args": ["-I", script],
        "sandbox": sandbox,
    })
}

/// What came of each attempt.
fn attempt(project: &TestProject, what: &[&str]) -> Vec<String> {
    let arguments = json!({"what": what}).to_string();
    let finished = project.run(&["mcp", "call", "probe", "try", &arguments]).ok();
    let came: Value = finished.json();
    project.assert_nothing_left();
    let answer = |what: &&str| came[*what].as_str().expect("each attempt is answered").to_owned();
    what.iter().map(answer).collect()
}

fn project(sandbox: Value) -> TestProject {
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[probe(sandbox)]);
    project.write("in/file", "inside");
    project.write("out/file", "outside");
    project
}

#[track_caller]
fn assert_all(came: &[String], words: &str) {
    assert!(came.iter().all(|came| came.contains(words)), "not all are `{words}`: {came:#?}");
}

/// Neither the right to it nor a mount that could be changed.
#[track_caller]
fn assert_refused(came: &[String]) {
    let is_refused = |came: &String| {
        ["Permission denied", "Read-only file system"].iter().any(|words| came.contains(words))
    };
    assert!(came.iter().all(is_refused), "not all are refused: {came:#?}");
}

/// Files of the project, by how they are attempted.
fn files(project: &TestProject) -> [String; 5] {
    let at = |path: &str| project.path().join(path).display().to_string();
    [
        format!("read {}", at("in/file")),
        format!("list {}", at("in")),
        format!("write {}", at("in/file")),
        format!("write {}", at("in/new")),
        format!("read {}", at("out/file")),
    ]
}

fn attempt_files(project: &TestProject) -> Vec<String> {
    let what = files(project);
    attempt(project, &what.each_ref().map(String::as_str))
}

#[test]
fn strict_has_no_files_but_the_system_s_and_those_it_is_given() {
    let bare = project(json!("strict"));
    assert_refused(&attempt_files(&bare));
    let home = format!("list {}", bare.home().display());
    let remove = format!("remove {}", bare.path().join("out/file").display());
    let other =
        ["read /etc/passwd", "read /etc/shadow", "write /tmp/lf-outside", "list /tmp", &home, &remove];
    assert_refused(&attempt(&bare, &other));
    assert_eq!(attempt(&bare, &["run /usr/bin/true"]), [""], "the system's programs run");

    let reading = project(json!({"profile": "strict", "read": ["in"]}));
    let came = attempt_files(&reading);
    assert_eq!(came[..2], ["inside", "1"]);
    assert_refused(&came[2..]);

    let writing = project(json!({"profile": "strict", "write": ["in"]}));
    let came = attempt_files(&writing);
    assert_eq!(came[..4], ["inside", "1", "written", "written"]);
    assert_refused(&came[4..]);
}

/// Whom Landlock lets do that: it looks at who opens a file.
#[test]
fn strict_changes_neither_the_mode_nor_the_times_of_what_it_was_not_given() {
    let strict = project(json!({"profile": "strict", "read": ["in"], "write": ["changed"]}));
    let of = |path: &str| {
        let path = strict.path().join(path).display().to_string();
        [format!("utime {path}"), format!("chmod {path}")]
    };
    let outside = [of("in/file"), of("out/file"), of("llamafarm.yaml")].concat();
    let outside: Vec<&str> = outside.iter().map(String::as_str).collect();
    let kept = || std::fs::metadata(strict.path().join("out/file")).unwrap();
    let before = kept();
    assert_all(&attempt(&strict, &outside), "Read-only file system");
    let after = kept();
    assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
    strict.write("changed/file", "its own");
    let inside = of("changed/file");
    assert_eq!(attempt(&strict, &inside.each_ref().map(String::as_str)), ["changed", "changed"]);
    assert_eq!(strict.path().join("changed/file").metadata().unwrap().mode() & 0o777, 0);
}

#[test]
fn strict_has_no_network_but_the_ports_it_is_given() {
    let [allowed, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let what = [
        format!("tcp {}", port(&allowed)),
        format!("tcp {}", port(&other)),
        format!("udp {}", datagrams.local_addr().unwrap().port()),
        "listen 0".to_owned(),
        "unix /run/docker.sock".to_owned(),
        // to no port in particular, which is a matter of the system call alone
        "accept x".to_owned(),
    ];
    let what = what.each_ref().map(String::as_str);
    let attempt = |network: Value| attempt(&project(json!({"profile": "strict", "network": network})), &what);
    assert_all(&attempt(json!("none")), "Permission denied");
    let some = attempt(json!([port(&allowed)]));
    assert_eq!(some[0], "connected");
    assert_all(&some[1..], "Permission denied");
    let named = attempt(json!([port(&allowed), 53]));
    assert_eq!([&named[0], &named[2]], ["connected"; 2], "names are looked up by datagrams");
    assert_all(&[&named[1..2], &named[3..]].concat(), "Permission denied");
    let all = attempt(json!("all"));
    assert_eq!(all[..4], ["connected", "connected", "connected", "listening"]);
    assert_all(&all[4..5], "Permission denied");
    assert_eq!(all[5], "listening");
}

#[test]
fn strict_reaches_neither_other_processes_nor_the_kernel() {
    let project = project(json!("strict"));
    let calls = [
        "call ptrace",
        "call process_vm_readv",
        "call mount",
        "call unshare",
        "call keyctl",
        "call bpf",
        "call io_uring_setup",
        "call perf_event_open",
    ];
    assert_all(&attempt(&project, &calls), "Operation not permitted");
    let [processes, rights] = attempt(&project, &["processes x", "rights x"]).try_into().unwrap();
    assert!(processes.split(' ').count() <= 3, "{processes}");
    assert_eq!(rights, "0000000000000000", "also of root");
}

#[test]
fn default_bounds_no_files_and_no_network_and_shows_no_other_processes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = format!("tcp {}", listener.local_addr().unwrap().port());
    let project = project(json!("default"));
    let came = attempt_files(&project);
    assert_eq!(came, ["inside", "1", "written", "written", "outside"]);
    let [passwd, tcp, processes] =
        attempt(&project, &["read /etc/passwd", &tcp, "processes x"]).try_into().unwrap();
    assert!(passwd.contains("root:"), "{passwd}");
    assert_eq!(tcp, "connected");
    assert!(processes.split(' ').count() <= 3, "{processes}");
}

#[test]
fn off_and_a_sandbox_without_namespaces_see_the_processes_of_the_machine() {
    for sandbox in [json!("off"), json!({"profile": "default", "namespaces": false})] {
        let mine = std::process::id().to_string();
        let [processes] = attempt(&project(sandbox), &["processes x"]).try_into().unwrap();
        assert!(processes.split(' ').any(|process| process == mine), "{processes}");
    }
}

fn said(finished: &Finished) -> String {
    format!("{}{}", finished.stdout, finished.stderr)
}

#[test]
fn a_refused_server_says_what_it_may_not_and_the_start_says_what_to_try() {
    let python = interpreter().0;
    let script = "open('/etc/passwd')";
    let server = json!({
        "name": "m",
        "transport": "stdio",
        "command": python,
        "args": ["-I", "-S", "-c", script],
        "sandbox": {"profile": "strict", "read": [interpreter().1]},
    });
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[server]);
    let said_by_start = said(&project.run(&["mcp", "tools"]));
    assert!(said_by_start.contains("Permission denied: '/etc/passwd'"), "{said_by_start}");
    assert!(said_by_start.contains("it runs with `sandbox: strict`"), "{said_by_start}");
}

#[test]
fn a_path_that_is_not_there_is_told() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("hello")));
    let server = probe(json!({"profile": "strict", "write": ["./nowhere"]}));
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let daemon = project.serve();
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    eventually("word of it", || daemon.log().contains("a path of `sandbox` is not there").then_some(()));
    let states = get(&daemon.url("/v1/mcp/servers")).ok().to_string();
    assert!(states.contains("ready"), "{states}");
    daemon.stop().ok();
}

/// A container program is one that confines by itself, and needs all the system calls that `strict` refuses.
#[test]
fn a_server_that_makes_namespaces_of_its_own_works_with_default() {
    let (python, _) = interpreter();
    let server = json!({
        "name": "probe",
        "transport": "stdio",
        "command": "unshare",
        "args": ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--", python, "-I", peers::script("probe.py")],
    });
    let project = TestProject::with_model("http://127.0.0.1:9/v1", std::slice::from_ref(&server));
    assert_eq!(attempt(&project, &["processes x"]), ["1"]);
    let mut strict = server;
    strict["sandbox"] = json!({"profile": "strict", "read": ["/"]});
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[strict]);
    let refused = said(&project.run(&["mcp", "tools"]));
    assert!(refused.contains("Operation not permitted"), "{refused}");
}

#[test]
fn a_kernel_without_landlock_is_refused_or_told() {
    let wrapper = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", "trace=landlock_create_ruleset"];
    let wrapper = [wrapper.as_slice(), &["-e", "inject=landlock_create_ruleset:error=ENOSYS"]].concat();
    let run = |require: bool| {
        let project = project(json!({"profile": "strict", "require": require}));
        let arguments = ["--log", "warn", "mcp", "tools"];
        said(
            &project
                .start_command(project.under(&wrapper, &arguments))
                .wait(std::time::Duration::from_secs(60)),
        )
    };
    let refused = run(true);
    assert!(refused.contains("cannot confine it as `sandbox` requires, without Landlock"), "{refused}");
    let told = run(false);
    assert!(told.contains("is confined less than its sandbox says"), "{told}");
    assert!(told.contains("without=Landlock"), "{told}");
    assert!(told.contains("Tries."), "and it works: {told}");
}
