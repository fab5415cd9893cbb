use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use lf_core::project::StdioServer;
use nix::errno::Errno;
use tokio::io::AsyncReadExt as _;

use super::*;

fn launch(command: &str, args: &[&str], environment: Vec<(String, String)>) -> Launch {
    Launch {
        command: command.to_owned(),
        args: args.iter().map(OsString::from).collect(),
        environment,
        cwd: PathBuf::from("/"),
        limits: ProcessLimits::default(),
        sandbox: Sandbox::default(),
        keeps: false,
        pin: None,
        own_program: PathBuf::from("/bin/echo"),
        secrets: Arc::default(),
        record: Arc::default(),
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A killed process takes a moment to be gone. The clock of the runtime may be paused, so this waits by itself.
fn all_end(leader: i32) {
    let end = Instant::now() + Duration::from_secs(60);
    while !tree::members(leader, &[]).is_empty() {
        assert!(Instant::now() < end, "{:?}", tree::members(leader, &[]));
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_child_sees_exactly_the_safe_list_what_it_inherits_and_what_the_file_sets() {
    let ours = pairs(&[
        ("HOME", "/home/me"),
        ("PATH", "/usr/bin:/bin"),
        ("LANG", "C"),
        ("OPENAI_API_KEY", "sk-secret"),
        ("LD_PRELOAD", "x.so"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("TERM", "dumb"),
    ]);
    let server = StdioServer {
        env: vec![("TERM".to_owned(), "xterm".into()), ("TOKEN".to_owned(), "t".into())],
        inherit_env: vec!["SSH_AUTH_SOCK".to_owned()],
        ..StdioServer::new("env", &[])
    };
    let launch = launch("env", &[], child_environment(&ours, &server));
    let (process, _stdin, mut stdout) = spawn(launch, &TaskTracker::new(), "s").await.unwrap();
    let mut text = String::new();
    stdout.read_to_string(&mut text).await.unwrap();
    let mut seen: Vec<&str> = text.lines().collect();
    seen.sort_unstable();
    let expected = [
        "HOME=/home/me",
        "LANG=C",
        "LF_MCP_DEPTH=1",
        "PATH=/usr/bin:/bin",
        "SSH_AUTH_SOCK=/run/agent",
        "TERM=xterm",
        "TOKEN=t",
    ];
    assert_eq!(seen, expected);
    process.stop().await;
}

#[tokio::test]
async fn the_command_lf_is_our_own_program() {
    let launch = launch("lf", &["own"], Vec::new());
    let (process, _stdin, mut stdout) = spawn(launch, &TaskTracker::new(), "s").await.unwrap();
    let mut text = String::new();
    stdout.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "own\n");
    process.stop().await;
}

#[tokio::test]
async fn a_child_that_ignores_everything_is_killed_with_its_children() {
    let script = "trap '' TERM; (trap '' TERM; sleep 1000) & echo ready; while true; do sleep 1000; done";
    let launch = launch("sh", &["-c", script], pairs(&[("PATH", "/usr/bin:/bin")]));
    let (process, stdin, mut stdout) = spawn(launch, &TaskTracker::new(), "s").await.unwrap();
    let leader = process.leader.as_raw();
    stdout.read_exact(&mut [0; 6]).await.unwrap();
    drop(stdin);
    assert!(tree::members(leader, &[]).len() >= 2);
    tokio::time::pause();
    process.stop().await;
    all_end(leader);
}

#[tokio::test]
async fn a_dropped_process_is_dead() {
    let launch = launch("sh", &["-c", "sleep 1000 & sleep 1000"], pairs(&[("PATH", "/usr/bin:/bin")]));
    let (process, _stdin, _stdout) = spawn(launch, &TaskTracker::new(), "s").await.unwrap();
    let leader = process.leader.as_raw();
    drop(process);
    all_end(leader);
    let end = Instant::now() + Duration::from_secs(60);
    while with_registry(|registry| registry.contains_key(&leader)) {
        assert!(Instant::now() < end, "it is still registered");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_flood_of_stderr_is_drained_and_bounded() {
    let script = "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo; echo end >&2";
    let launch = launch("sh", &["-c", script], pairs(&[("PATH", "/usr/bin:/bin")]));
    let (mut process, _stdin, _stdout) = spawn(launch, &TaskTracker::new(), "s").await.unwrap();
    assert_eq!(process.exited().await.unwrap().code(), Some(0));
    let last = process.last_lines().await.pop().unwrap();
    assert!(last.ends_with("end") || last.ends_with('…'), "{last}");
    process.stop().await;
}

#[test]
fn the_program_is_looked_up_as_the_child_would() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    std::fs::create_dir_all(root.join("a/tool")).unwrap();
    std::fs::create_dir_all(root.join("b")).unwrap();
    let program = root.join("b/tool");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    let path = format!("{}:relative:{}", root.join("a").display(), root.join("b").display());
    assert_eq!(lookup("tool", Some(&path), root), Err(LookupError::Denied(program.clone())));
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(lookup("tool", Some(&path), root), Ok(program));
    assert_eq!(lookup("b/tool", Some("/nowhere"), root), Ok(root.join("b/tool")));
    assert_eq!(lookup("tool", Some("/nowhere"), root), Err(LookupError::NotFound));
}

#[tokio::test]
async fn a_child_is_dropped_and_stopped_without_blocking_the_runtime_on_the_registry() {
    const HELD: Duration = Duration::from_secs(10);
    let sleeping = || launch("sleep", &["1000"], pairs(&[("PATH", "/usr/bin:/bin")]));
    let tracker = TaskTracker::new();
    let (dropped, _stdin, _stdout) = spawn(sleeping(), &tracker, "s").await.unwrap();
    let (stopped, stdin, _stdout) = spawn(sleeping(), &tracker, "s").await.unwrap();
    let leaders = [dropped.leader.as_raw(), stopped.leader.as_raw()];
    drop(stdin);
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (hold, held) = std::sync::mpsc::channel();
    let holder = std::thread::spawn(move || {
        with_registry(|_| {
            hold.send(()).unwrap();
            let _ = released.recv_timeout(HELD);
        });
    });
    held.recv().unwrap();
    drop(dropped);
    let mut stopping = Box::pin(stopped.stop());
    assert!(futures_util::poll!(&mut stopping).is_pending());
    assert!(!holder.is_finished(), "the runtime waited for the registry");
    drop(release);
    drop(stopping);
    tracker.close();
    tokio::time::timeout(HELD, tracker.wait()).await.unwrap();
    leaders.into_iter().for_each(all_end);
    assert!(with_registry(|registry| leaders.iter().all(|leader| !registry.contains_key(leader))));
}

#[test]
fn a_lack_of_processes_memory_or_files_is_told_as_such() {
    for (errno, told) in [
        (Errno::EAGAIN, "too many processes"),
        (Errno::ENOMEM, "out of memory"),
        (Errno::EMFILE, "too many files"),
        (Errno::ENFILE, "too many files"),
    ] {
        let failure = spawn_failure(&io::Error::from(errno), "npx", Path::new("/usr/bin/npx"));
        assert!(failure.reason.starts_with("`npx` could not be started for lack of resources"), "{failure}");
        assert!(failure.hint.unwrap().contains(told), "{errno}");
        assert_eq!(failure.cause, Cause::NoResources);
    }
    let denied = spawn_failure(&io::Error::from(Errno::EACCES), "npx", Path::new("/usr/bin/npx"));
    assert_eq!(denied.cause, Cause::CannotStart);
}

#[tokio::test]
async fn what_a_child_starts_at_once_is_under_its_limits_too() {
    let mut launch = launch(
        "sh",
        &["-c", "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; echo ready; setsid sleep 1000 & wait"],
        pairs(&[("PATH", "/usr/bin:/bin")]),
    );
    launch.limits = ProcessLimits { memory: Some(1 << 30), processes: Some(50) };
    let (process, _stdin, mut stdout) = spawn(launch, &TaskTracker::new(), "s").await.unwrap();
    stdout.read_exact(&mut [0; 6]).await.unwrap();
    let leader = process.leader;
    let members = tree::members(leader.as_raw(), &[]);
    assert!(members.len() >= 9, "{members:?}");
    if group::is_possible() {
        let bound = group_of(leader).unwrap().members();
        assert!(
            members.iter().all(|member| bound.contains(&Pid::from_raw(member.pid))),
            "{members:?} {bound:?}"
        );
    }
    for member in &members {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", member.pid)).unwrap();
        let data = limits.lines().find(|line| line.starts_with("Max data size")).unwrap();
        assert!(data.contains(&(1_u64 << 30).to_string()), "{data}");
    }
    process.stop().await;
    all_end(leader.as_raw());
}
