//! Servers that send what is no answer, or more of it than anybody asked for.

use super::*;

#[tokio::test]
async fn half_an_answer_is_none() {
    let pool = pool();
    let tools = tools(&pool, peer("-", ""));
    names(&list(&tools).await);
    let lost = call(&tools, "half", json!({"exit": true})).await;
    assert!(
        matches!(&lost, Err(ToolError::Lost { reason, .. }) if reason == "exited with status 5"),
        "{lost:?}"
    );
    let hung = given_up(&tools, "half", json!({})).await;
    assert!(matches!(hung, Err(ToolError::Timeout { .. })), "{hung:?}");
}

#[tokio::test]
async fn an_answer_with_another_id_and_a_second_one_are_passed_over() {
    let pool = pool();
    let tools = tools(&pool, peer("-", ""));
    names(&list(&tools).await);
    let both = join_all([call(&tools, "ids", json!({})), call(&tools, "echo", json!({}))]).await;
    let texts: Vec<String> = both.into_iter().map(text).collect();
    assert_eq!(texts, ["first", "{}"]);
    assert_eq!(text(call(&tools, "echo", json!({})).await), "{}");
}

#[tokio::test]
async fn strange_json_costs_its_own_call_and_no_more() {
    let pool = pool();
    let tools = tools(&pool, peer("-", ""));
    names(&list(&tools).await);
    for how in ["deep", "infinite", "huge", "twice"] {
        let outcome = given_up(&tools, "strange", json!({"how": how})).await;
        let is_bounded =
            outcome.is_ok() || matches!(outcome, Err(ToolError::Timeout { .. } | ToolError::Refused { .. }));
        assert!(is_bounded, "{how}: {outcome:?}");
        assert_eq!(text(call(&tools, "echo", json!({})).await), "{}", "{how}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_are_passed_over_and_odd_characters_kept() {
    let pool = pool();
    let tools = tools(&pool, peer("-", ""));
    assert_eq!(text(call(&tools, "bytes", json!({})).await), "a\0b\u{2028}c");
}

#[tokio::test]
async fn a_flood_of_requests_that_nobody_invited_is_refused_and_not_followed_without_end() {
    let pool = pool();
    let server = peer("-", "");
    let tools = tools(&pool, server.clone());
    // as many as are answered at the same time, whatever else is sent meanwhile
    let flood = json!({"times": 10_000, "answers": 64});
    assert_eq!(text(call(&tools, "uninvited", flood).await), "{-32601}");
    let dropped = pool.activity(&server).map_or(0, |activity| activity.counters.dropped);
    assert!(dropped >= 10_000, "{dropped}");
    assert_eq!(text(call(&tools, "echo", json!({})).await), "{}");
}

#[tokio::test]
async fn tools_beyond_the_limit_and_tools_that_cannot_be_used_are_left_out() {
    let pool = pool();
    assert_eq!(names(&list(&tools(&pool, peer("-", "many"))).await).len(), 1_000);
    let other = tools(&pool, peer("-", "bad_tools"));
    let catalogue = list(&other).await;
    let listed = names(&catalogue);
    for left_out in ["long", "list_schema", "text_schema"] {
        assert!(!listed.contains(&left_out), "{left_out}");
    }
    assert_eq!(listed.iter().filter(|name| **name == "echo").count(), 1);
    assert!(listed.contains(&"none") && listed.contains(&"remote"));
}

#[tokio::test]
async fn a_server_killed_at_its_start_and_one_with_a_missing_interpreter_are_told() {
    let pool = pool();
    let killed = tools(&pool, stdio("sh", &["-c", "kill -9 $$"]));
    assert_eq!(down(&killed).await, "was killed by SIGKILL");
    assert!(killed.hint(NAME).unwrap().contains("memory"));
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), "#!/no/such/interpreter\n").unwrap();
    let path = script.into_temp_path();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let missing = tools(&pool, stdio(path.to_str().unwrap(), &[]));
    let reason = down(&missing).await;
    assert!(reason.starts_with("Command not found: the interpreter of"), "{reason}");
    assert!(missing.hint(NAME).unwrap().contains("first line"));
}

#[tokio::test]
async fn a_stopped_server_costs_its_calls_their_time_and_goes_on_when_woken() {
    let directory = tempfile::tempdir().unwrap();
    let starts = directory.path().join("starts");
    let pool = pool();
    let tools = tools(&pool, peer(starts.to_str().unwrap(), ""));
    names(&list(&tools).await);
    let pid = nix::unistd::Pid::from_raw(lines(&starts)[0].parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let called = || tools.report_of(NAME).unwrap().activity.unwrap().counters.calls == 1;
    let hung = hurried(call(&tools, "echo", json!({})), called).await;
    assert!(matches!(hung, Err(ToolError::Timeout { .. })), "{hung:?}");
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    // its late answer is nobody's
    assert_eq!(text(call(&tools, "echo", json!({"a": 1})).await), r#"{"a": 1}"#);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    pool.shutdown().await;
    assert!(!is_running(&lines(&starts)[0]));
}
