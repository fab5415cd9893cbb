//! Errors of the disk under the database, and files of it that are damaged or of an earlier version.

use std::os::unix::fs::PermissionsExt as _;

use lf_tests::client::request;
use rusqlite::Connection;

use super::*;

/// What was said in a database that no daemon has open.
fn kept(project: &TestProject) -> Vec<String> {
    let file = Connection::open(project.home().join("data/lf.db")).unwrap();
    let whole: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
    let mut texts = file.prepare("SELECT text FROM message ORDER BY n").unwrap();
    let texts = texts.query_map([], |row| row.get(0)).unwrap();
    texts.map(Result::unwrap).collect()
}

/// Says a few things to a daemon of which one call to the disk fails, and tells what was acknowledged, and whether
/// anything was refused. The daemon is killed at the end.
fn under_fault(project: &TestProject, call: &str, number: usize) -> (Vec<String>, bool) {
    let data = project.home().join("data");
    let path = |name: &str| data.join(name).display().to_string();
    let inject = format!("inject={call}:error=EIO:when={number}");
    let (database, log) = (path("lf.db"), path("lf.db-wal"));
    // as the grandchild of what it watches: then that is the process that was started
    let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-P", &database, "-P", &log, "-e", &inject];
    let daemon = project.serve_under(&strace);
    let mut acknowledged = Vec::new();
    let mut refused = false;
    let created = post(&daemon.url("/conversations"), &json!({}));
    refused |= created.status != 201;
    let id = created.json()["conversation"]["id"].as_str().unwrap_or("none").to_owned();
    for number in 0..4 {
        let words = format!("{call} {number}");
        let answer =
            request("POST", &at(&daemon, &id, "/chat"), &[], Some(json!({"content": words}).to_string()));
        match answer.status {
            200 => acknowledged.extend([words, "hello".to_owned()]),
            status => {
                refused = true;
                assert!([404, 500, 502, 503, 507].contains(&status), "{answer:?}");
            }
        }
    }
    answers(&daemon);
    daemon.signal(Signal::SIGKILL);
    daemon.wait(PATIENCE);
    (acknowledged, refused)
}

/// Row 82. Needs `strace`.
#[test]
fn nothing_is_acknowledged_that_a_failing_disk_did_not_keep() {
    let found = Command::new("strace").arg("-V").output();
    assert!(found.is_ok_and(|found| found.status.success()), "install strace: `apt-get install strace`");
    let model = hello();
    let model = &model;
    let noticed = std::thread::scope(|scope| {
        let torture = |call: &'static str| {
            let project = TestProject::with_model(&model.base_url(), &[]);
            project.serve().stop().ok();
            let mut noticed = 0;
            for number in [1, 2, 3, 5, 8, 13, 21] {
                let before = kept(&project);
                let (acknowledged, refused) = under_fault(&project, call, number);
                noticed += usize::from(refused);
                // a daemon takes up what was left, and is not disturbed
                project.serve().stop().ok();
                let now = kept(&project);
                assert_eq!(now[..before.len()], before, "{call} {number}: what was there is there");
                let mut rest = now[before.len()..].iter();
                for words in &acknowledged {
                    assert!(rest.any(|kept| kept == words), "{call} {number}: {words} of {now:?}");
                }
            }
            noticed
        };
        ["fsync", "pwrite64", "pread64"]
            .map(|call| scope.spawn(move || torture(call)))
            .map(|torture| torture.join().unwrap())
    });
    assert!(noticed[0] > 0 && noticed[1] > 0, "the faults are felt: {noticed:?}");
}

/// Row 83
#[test]
fn a_damaged_log_of_the_database_costs_nothing_that_was_kept_before_it() {
    let model = hello();
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    for _ in 0..3 {
        post(&at(&daemon, &id, "/chat"), &json!({"content": "hi"})).ok();
    }
    daemon.signal(Signal::SIGKILL);
    daemon.wait(PATIENCE);
    let log = project.home().join("data/lf.db-wal");
    let whole = std::fs::read(&log).unwrap();
    assert!(whole.len() > 100_000, "all of it is in the log: {}", whole.len());
    // the last frame, half of it, and something behind it that is none
    for (cut, noise) in [(whole.len() - 100, 100), (whole.len() - 2000, 0), (whole.len(), 5000)] {
        let mut damaged = whole[..cut].to_vec();
        damaged.extend(std::iter::repeat_n(0x5a, noise));
        std::fs::write(&log, &damaged).unwrap();
        let kept = kept(&project);
        assert!(kept.len() >= 5, "at most the last commit is not whole: {kept:?}");
        // what reads it brings it into the file: the next round begins as this one did
        std::fs::write(&log, &whole).unwrap();
    }
    let daemon = project.serve();
    assert!(said(&daemon, &id).len() >= 5);
    post(&at(&daemon, &id, "/chat"), &json!({"content": "and"})).ok();
    daemon.stop().ok();
}

/// Row 83
#[test]
fn a_database_of_an_earlier_version_is_copied_before_it_is_changed_until_something_is_deleted() {
    let model = hello();
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    post(&at(&daemon, &id, "/chat"), &json!({"content": "hi"})).ok();
    daemon.stop().ok();
    let path = project.home().join("data/lf.db");
    let file = Connection::open(&path).unwrap();
    // as the first version made it
    file.execute_batch(
        "DROP TABLE waiting; DROP TABLE approved; DROP INDEX message_by_turn; DROP TABLE response;
         DROP TABLE resume_call; DROP TABLE resume; DROP TABLE spent;
         ALTER TABLE conversation DROP COLUMN owner; PRAGMA user_version = 1;",
    )
    .unwrap();
    drop(file);
    let daemon = project.serve();
    assert_eq!(said(&daemon, &id), ["user: hi", "assistant: hello"]);
    post(&at(&daemon, &id, "/chat"), &json!({"content": "and"})).ok();
    let copy = path.with_extension("db.v1");
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let before = Connection::open(&copy).unwrap();
    let version: i64 = before.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    let messages: i64 = before.query_row("SELECT count(*) FROM message", [], |row| row.get(0)).unwrap();
    assert_eq!((version, messages), (1, 2), "as it was");
    drop(before);
    request("DELETE", &daemon.url(&format!("/conversations/{id}")), &[], None).ok();
    assert!(!copy.exists(), "what is deleted is in no copy");
    daemon.stop().ok();
}
