//! What the system does to a daemon: signals, clocks, and a want of files, memory, time and room for its log. It goes on, or
//! says what is wrong, and what it acknowledged is there.

mod disk_errors;

use std::fs::File;
use std::io::Read as _;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lf_tests::approvals::pending;
use lf_tests::client::{chat, get, post, stream};
use lf_tests::conversation::{at, create, said};
use lf_tests::project::{Background, Daemon, TestProject, document, scripted, unused_port};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel, rounds_so_far};
use lf_tests::wait::{Gate, PATIENCE, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

fn hello() -> ScriptedModel {
    ScriptedModel::start_with(|_, _| Some(Reply::text("hello")))
}

fn answers(daemon: &Daemon) {
    let answer = post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], "hello");
}

/// The processor time that a process has had so far.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // behind the name, which may hold anything: the 12th and 13th field are ticks of 10 ms
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}

/// Row 78
#[test]
fn signals_that_mean_nothing_leave_a_daemon_as_it_is_and_two_interrupts_end_it_at_once() {
    let never = Gate::new();
    let model = ScriptedModel::start_with(move |number, _| {
        Some(if number == 1 { Reply::text("never").hold(&never) } else { Reply::text("hello") })
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGPIPE] {
        daemon.signal(signal);
    }
    answers(&daemon);
    let open = stream(&daemon.url("/v1/chat/completions"), &lf_tests::client::streamed_chat("hi"));
    model.wait_for_requests(2);
    daemon.signal(Signal::SIGINT);
    let port = daemon.port();
    eventually("the daemon to stop listening", || TcpStream::connect(("127.0.0.1", port)).err());
    daemon.signal(Signal::SIGINT);
    let began = Instant::now();
    assert_eq!(daemon.wait(PATIENCE).status, Some(0));
    assert!(began.elapsed() < Duration::from_secs(5), "it does not wait for the answer that is open");
    assert!(open.rest().join("").contains("error"), "whose client is told");
    project.assert_nothing_left();
}

/// Row 78
#[test]
fn a_daemon_that_was_stopped_for_a_while_goes_on_where_it_was() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |number, _| {
        let reply = Reply::text("hello");
        Some(if number == 0 { reply.hold(&held) } else { reply })
    });
    let server = scripted("m", &Script::echoing(&["echo"]));
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let mut events = stream(&at(&daemon, &id, "/chat"), &json!({"content": "hi", "stream": true}));
    model.wait_for_requests(1);
    daemon.signal(Signal::SIGSTOP);
    // longer than any pause of the daemon's own, but for those of a minute
    std::thread::sleep(Duration::from_secs(8));
    daemon.signal(Signal::SIGCONT);
    gate.open();
    events.until("the end", |event| event["event"] == "finished");
    assert_eq!(said(&daemon, &id), ["user: hi", "assistant: hello"]);
    let starts = get(&daemon.url("/v1/mcp/servers")).ok();
    answers(&daemon);
    assert!(!starts.to_string().contains(r#""state":"failed""#), "{starts}");
    daemon.stop().ok();
}

/// A daemon whose log is not read along: where it listens is known before.
fn unheard(project: &TestProject, command: Command, port: u16) -> Background {
    let program = project.start_command(command);
    let health = format!("http://127.0.0.1:{port}/health");
    eventually("the daemon to listen", || {
        TcpStream::connect(("127.0.0.1", port)).ok().map(|_| get(&health).ok())
    });
    program
}

/// Row 90
#[test]
fn a_daemon_whose_output_goes_nowhere_answers_all_the_same() {
    let model = hello();
    for outputs in ["full", "closed"] {
        let project = TestProject::with_model(&model.base_url(), &[]);
        let port = unused_port().to_string();
        let arguments = ["--log", "debug", "serve", "--port", &port];
        let mut command = match outputs {
            "full" => project.command(&arguments),
            _ => project.under(&["sh", "-c", "exec \"$0\" \"$@\" >&- 2>&-"], &arguments),
        };
        if outputs == "full" {
            let full = || Stdio::from(OwnedFd::from(File::options().write(true).open("/dev/full").unwrap()));
            command.stdout(full()).stderr(full());
        }
        let daemon = unheard(&project, command, port.parse().unwrap());
        let url = format!("http://127.0.0.1:{port}/v1/chat/completions");
        let answer = post(&url, &chat("hi")).ok();
        assert_eq!(answer["choices"][0]["message"]["content"], "hello", "{outputs}");
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.wait(PATIENCE).status, Some(0), "{outputs}");
    }
}

/// Row 90. What finds no room is counted and told: a unit test of `lf` shows that.
#[test]
fn whoever_does_not_read_the_log_holds_up_nobody_and_has_it_later() {
    /// Bytes that a pipe holds.
    const PIPE: usize = 65_536;
    let model = hello();
    let project = TestProject::with_model(&model.base_url(), &[]);
    let port = unused_port();
    let mut command = project.command(&["--log", "trace", "serve", "--port", &port.to_string()]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    command.stdout(Stdio::null()).stderr(writer);
    let daemon = unheard(&project, command, port);
    let url = format!("http://127.0.0.1:{port}/v1/chat/completions");
    let turn = || post(&url, &chat("hi")).ok();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..150).for_each(|_| drop(turn())));
        }
    });
    let ended = std::thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        String::from_utf8_lossy(&all).into_owned()
    });
    turn();
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE).status, Some(0));
    let log = ended.join().unwrap();
    assert!(log.len() > PIPE, "the pipe was full: {}", log.len());
    assert!(log.trim_end().ends_with("stopped [lf_server::serve]"), "the last line is there");
}

/// Row 87
#[test]
fn a_daemon_without_file_descriptors_waits_without_spinning_and_goes_on_when_there_are_some() {
    let model = hello();
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve_with_files(256);
    let id = create(&daemon, &json!({}));
    let held: Vec<TcpStream> =
        (0..300).map(|_| TcpStream::connect(("127.0.0.1", daemon.port())).unwrap()).collect();
    eventually("the daemon to have none left", || daemon.log().contains("cannot accept").then_some(()));
    let before = processor_time(daemon.pid());
    let began = Instant::now();
    let lines = daemon.log().lines().count();
    std::thread::sleep(Duration::from_secs(3));
    let spent = processor_time(daemon.pid()) - before;
    assert!(spent < began.elapsed() / 10, "{spent:?} of processor time");
    assert!(daemon.log().lines().count() - lines < 60, "nor is the log filled");
    drop(held);
    // the daemon has to see first that all of the others are gone
    let asked = || post(&daemon.url("/v1/chat/completions"), &chat("hi"));
    eventually("answers", || (asked().status == 200).then_some(()));
    answers(&daemon);
    post(&at(&daemon, &id, "/chat"), &json!({"content": "hi"})).ok();
    assert_eq!(said(&daemon, &id), ["user: hi", "assistant: hello"]);
    daemon.stop().ok();
}

/// Row 88
#[test]
fn a_daemon_that_memory_runs_out_on_leaves_all_that_it_acknowledged() {
    let model = hello();
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve_under(&["prlimit", "--data=268435456"]);
    let id = create(&daemon, &json!({}));
    for _ in 0..20 {
        post(&at(&daemon, &id, "/chat"), &json!({"content": "hi"})).ok();
    }
    answers(&daemon);
    // bodies that are allowed each, and too much together
    let port = daemon.port();
    let large = json!({"messages": [{"role": "user", "content": "x".repeat(9 << 20)}]}).to_string();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json";
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{large}", large.len());
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let Ok(mut connection) = TcpStream::connect(("127.0.0.1", port)) else { return };
                let _ = connection.set_read_timeout(Some(Duration::from_secs(20)));
                // a daemon that ends meanwhile resets it
                let _ = std::io::Write::write_all(&mut connection, request.as_bytes());
                let _ = connection.read(&mut [0; 1024]);
            });
        }
    });
    daemon.signal(Signal::SIGKILL);
    daemon.wait(PATIENCE);
    let daemon = project.serve();
    assert_eq!(said(&daemon, &id).len(), 40);
    answers(&daemon);
    daemon.stop().ok();
    project.assert_nothing_left();
}

/// Row 89
#[test]
fn a_daemon_that_gets_little_processor_time_keeps_its_limits_and_its_servers() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let tools = [ScriptedTool::new("echo", Act::Echo), ScriptedTool::new("hang", Act::Hang)];
    let script = Script { log: Some(log.path().to_owned()), ..Script::with(tools) };
    let mut server = scripted("m", &script);
    server["timeout"] = json!("10s");
    let model = ScriptedModel::start_with(|_, request| {
        Some(match rounds_so_far(request) {
            0 => Reply::call("a", "m__echo", json!({})),
            1 => Reply::call("b", "m__hang", json!({})),
            _ => Reply::text("hello"),
        })
    });
    let project = TestProject::with_model(&model.base_url(), &[server]);
    let daemon = project.serve();
    let mut busy: Vec<std::process::Child> =
        (0..10).map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap()).collect();
    let began = Instant::now();
    let answer = post(&daemon.url("/v1/chat/completions"), &chat("hi"));
    let elapsed = began.elapsed();
    for process in &mut busy {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert_eq!(answer.ok()["choices"][0]["message"]["content"], "hello");
    assert!(elapsed >= Duration::from_secs(10) && elapsed < PATIENCE, "{elapsed:?}");
    let told = model.request(2);
    assert_eq!(told.result_of("a").as_deref(), Some("{}"));
    assert!(told.result_of("b").unwrap().contains("10s"), "{:?}", told.result_of("b"));
    let starts = std::fs::read_to_string(log.path()).unwrap().matches("start ").count();
    assert_eq!(starts, 1, "slow is not gone");
    daemon.stop().ok();
}

/// Row 86. Needs the Debian package `libfaketime`.
#[test]
fn a_clock_that_jumps_ends_nothing_and_keeps_the_order_of_what_was_said() {
    let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
    assert!(std::path::Path::new(library).exists(), "install libfaketime: `apt-get install libfaketime`");
    let directory = tempfile::tempdir().unwrap();
    let clock = directory.path().join("clock");
    let set = |jump: &str| std::fs::write(&clock, jump).unwrap();
    set("+0d");
    let mut server = scripted("m", &Script::with([ScriptedTool::new("hang", Act::Hang)]));
    server["timeout"] = json!("2s");
    server["approval"] = json!("ask");
    let model = ScriptedModel::start_with(|number, request| {
        let asks = request.to_string().contains("Ask.");
        Some(match rounds_so_far(request) {
            0 if asks => Reply::call("a", "m__hang", json!({})),
            _ => Reply::text(&format!("answer {number}")),
        })
    });
    let limits = json!({"limits": {"approval_timeout": "60s"}});
    let project = TestProject::of(&document(limits, &model.base_url(), &[server]))
        .variable("LD_PRELOAD", library)
        .variable("FAKETIME_TIMESTAMP_FILE", clock.to_str().unwrap())
        .variable("FAKETIME_NO_CACHE", "1")
        .variable("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let tool = json!({"server_id": "m", "tool_name": "hang"});
    post(&at(&daemon, &id, "/tools"), &tool).ok();
    let mut all = Vec::new();
    for (number, jump) in ["+0d", "+1d", "-1d", "+3650d", "-3650d", "+1h", "-1h"].into_iter().enumerate() {
        set(jump);
        post(&at(&daemon, &id, "/chat"), &json!({"content": format!("after {jump}")})).ok();
        all.extend([format!("user: after {jump}"), format!("assistant: answer {number}")]);
        assert_eq!(said(&daemon, &id), all, "in the order in which it was said");
    }
    // neither a person's time nor a tool's runs out, nor does it stand still
    let url = at(&daemon, &id, "/chat");
    let mut events = stream(&url, &json!({"content": "Ask.", "stream": true}));
    let needed = events.until("the question", |event| event["event"] == "approval_needed");
    for jump in ["+3650d", "-3650d", "+0d"] {
        set(jump);
        assert_eq!(pending(&daemon).len(), 1, "{jump}");
    }
    let decide = daemon.url(&format!("/v1/approvals/{}", needed["approval"].as_str().unwrap()));
    let began = Instant::now();
    post(&decide, &json!({"decision": "approve"})).ok();
    set("-3650d");
    let result = events.until("the result", |event| event["event"] == "tool_result");
    assert!(began.elapsed() >= Duration::from_millis(1500) && began.elapsed() < PATIENCE);
    assert!(result["result"].as_str().unwrap().contains("2s"), "{result}");
    events.until("the end", |event| event["event"] == "finished");
    daemon.stop().ok();
    set("+3650d");
    let daemon = project.serve();
    assert_eq!(said(&daemon, &id)[..all.len()], all, "nothing is too old");
    daemon.stop().ok();
}
