use super::*;

#[test]
fn a_server_that_failed_is_a_line_with_the_reason_and_the_next_try() {
    let server = json!({
        "name": "fs", "transport": "stdio", "state": "failed", "error": "exited with status 1",
        "retry_in_seconds": 12.34, "circuit": "open", "hint": "install it",
    });
    assert_eq!(
        line(&server, 4),
        "fs    stdio  failed      exited with status 1 (next try in 12.3 s); it keeps failing and is left alone for a while\n\
         \u{20}     hint: install it"
    );
    assert!(is_down(&server));
}

#[test]
fn what_was_counted_is_told_with_the_last_lines() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let server = json!({
        "name": "fs", "state": "ready", "tools": 2, "protocol": "2025-11-25", "since": now - 3_600, "circuit": "closed",
        "counters": {
            "since": now - 200_000, "starts": 3, "restarts": 2, "failures": 2, "calls": 9, "failed_calls": 1,
            "garbage_lines": 4,
        },
        "garbage": ["hello\u{1b}[31m"], "stderr": ["one", "two"],
        "last_failure": {"at": now - 3_700, "error": "was killed by SIGKILL"},
    });
    let details = details(&server);
    assert_eq!(details[0], "in this state for 60 min");
    assert!(details[1].starts_with("in the last 2 days: 3 starts, 2 of them restarts; 2 failures; 9 calls"));
    assert!(details[3].contains("hello") && !details[3].contains('\u{1b}'));
    assert_eq!(details[4], "last failure, 61 min ago: was killed by SIGKILL");
    assert_eq!(details[5..], ["last lines on stderr:", "  one", "  two"]);
}
