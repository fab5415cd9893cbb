//! Daemons that are killed at any entry of a journal: `kill -9` while the database is about to keep that very entry.
//!
//! The program knows nothing of it. A trigger of the database's own holds up the entry: it is written and never kept,
//! and what the daemon would do after it is not done.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lf_tests::client::{get, post, stream};
use lf_tests::conversation::{at, create, said};
use lf_tests::postgres::{Database, Postgres};
use lf_tests::project::{Daemon, TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Call, Reply, ScriptedModel, rounds_so_far};
use lf_tests::wait::{PATIENCE, eventually};
use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::json;

const ROUNDS: usize = 6;
/// A writer that is in the middle of a transaction for so long is held up.
const HELD: Duration = Duration::from_millis(150);

/// Two calls a round for six rounds, with words before them, and an answer in pieces.
fn model() -> ScriptedModel {
    ScriptedModel::start_with(|_, body| {
        let round = rounds_so_far(body);
        if round == ROUNDS {
            return Some(Reply::text("All is done.").pieces(4));
        }
        let point = body["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
        let call = |side: &str| {
            Call::new(&format!("{round}-{side}"), "m__walk", json!({"to": format!("{point} {round} {side}")}))
        };
        Some(Reply::calls([call("left"), call("right")]))
    })
}

/// Where a daemon is held up.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Point {
    Entry(usize),
    /// All entries are kept, and the end is not.
    End,
}

/// The database, as the test sees it.
enum Seen<'a> {
    Sqlite(Connection),
    Postgres(&'a Database),
}

impl Seen<'_> {
    fn hold(&self, point: Point) {
        match self {
            Self::Sqlite(connection) => {
                let at = match point {
                    Point::Entry(n) => format!("INSERT ON entry WHEN new.n = {n}"),
                    Point::End => "UPDATE OF state ON turn".to_owned(),
                };
                let sql = format!(
                    "CREATE VIEW IF NOT EXISTS forever AS
                         WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c;
                     CREATE TRIGGER held AFTER {at} BEGIN SELECT count(*) FROM forever; END"
                );
                connection.execute_batch(&sql).unwrap();
            }
            Self::Postgres(database) => {
                let at = match point {
                    Point::Entry(n) => format!("INSERT ON entry FOR EACH ROW WHEN (new.n = {n})"),
                    Point::End => "UPDATE OF state ON turn FOR EACH ROW".to_owned(),
                };
                database.ask(&format!(
                    "CREATE OR REPLACE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS
                         'BEGIN PERFORM pg_sleep(9); RETURN new; END';
                     CREATE TRIGGER held AFTER {at} EXECUTE FUNCTION hold()"
                ));
            }
        }
    }

    /// Whether the daemon is held up, or the turn is over.
    fn held(&self, turn: &str) -> Option<bool> {
        match self {
            Self::Sqlite(connection) => {
                let begun = Instant::now();
                while connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err() {
                    if begun.elapsed() > HELD {
                        return Some(true);
                    }
                    std::thread::park_timeout(Duration::from_millis(2));
                }
            }
            Self::Postgres(database) => {
                let sql = "SELECT count(*) FROM pg_stat_activity
                           WHERE wait_event = 'PgSleep' AND datname = current_database()";
                if database.ask(sql) != "0" {
                    return Some(true);
                }
            }
        }
        let state = self.ask(&format!("SELECT state FROM turn WHERE id = '{turn}'"));
        (state != "running").then_some(false)
    }

    /// The daemon is dead, and nothing is held up any more.
    fn let_go(&self) {
        match self {
            Self::Sqlite(connection) => {
                eventually("the dead daemon's lock to be gone", || {
                    connection.execute_batch("DROP TRIGGER held").ok()
                });
            }
            Self::Postgres(database) => {
                database.ask(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE wait_event = 'PgSleep' AND datname = current_database()",
                );
                database.ask("DROP TRIGGER IF EXISTS held ON entry");
                database.ask("DROP TRIGGER IF EXISTS held ON turn");
                // its lease would be over in ten seconds
                database.ask("UPDATE daemon SET until = clock_timestamp() - interval '1 second'");
            }
        }
    }

    fn ask(&self, sql: &str) -> String {
        match self {
            Self::Sqlite(connection) => connection.query_row(sql, [], |row| row.get(0)).unwrap(),
            Self::Postgres(database) => database.ask(sql),
        }
    }

    /// The kind of the last entry that is kept.
    fn last_entry(&self, turn: &str) -> String {
        let body = self.ask(&format!("SELECT body FROM entry WHERE turn = '{turn}' ORDER BY n DESC LIMIT 1"));
        let kind = body.trim_start_matches(['{', '"']);
        kind[..kind.find('"').expect("an entry begins with its name")].to_owned()
    }
}

/// Says something, and kills the daemon at this point. The turn and the kind of the last entry that was kept, or nothing
/// where the turn was over before.
fn killed_at(
    point: Point,
    daemon: Daemon,
    seen: &Seen<'_>,
    conversation: &str,
) -> Result<(String, String), Daemon> {
    seen.hold(point);
    let words = json!({"content": format!("{point:?}"), "stream": true});
    let mut events = stream(&at(&daemon, conversation, "/chat"), &words);
    let started = events.until("the start", |event| event["event"] == "started");
    let turn = started["turn"].as_str().unwrap().to_owned();
    let is_held = eventually("the daemon to be held up", || seen.held(&turn));
    if !is_held {
        seen.let_go();
        return Err(daemon);
    }
    daemon.signal(Signal::SIGKILL);
    daemon.wait(PATIENCE);
    drop(events);
    seen.let_go();
    let last = seen.last_entry(&turn);
    if let Point::Entry(n) = point {
        let kept: usize = seen
            .ask(&format!("SELECT CAST(count(*) AS TEXT) FROM entry WHERE turn = '{turn}'"))
            .parse()
            .unwrap();
        assert!(kept < n, "{kept} entries of less than {n}");
    }
    Ok((turn, last))
}

/// Kills a daemon at each of the points, one after another, until the turns are shorter than that; another one goes on.
fn survives(
    points: impl Iterator<Item = usize>,
    project: &TestProject,
    log: &std::path::Path,
    seen: &Seen<'_>,
) {
    let mut kinds = BTreeSet::new();
    let mut daemon = project.serve();
    for point in points.map(Point::Entry).chain([Point::End]) {
        let conversation = create(&daemon, &json!({}));
        let tool = json!({"server_id": "m", "tool_name": "walk"});
        post(&at(&daemon, &conversation, "/tools"), &tool).ok();
        let (turn, last) = match killed_at(point, daemon, seen, &conversation) {
            Ok(killed) => killed,
            Err(alive) => {
                assert_ne!(point, Point::End);
                daemon = alive;
                continue;
            }
        };
        kinds.insert(last);
        daemon = project.serve();
        eventually(&format!("the turn to end that was cut at {point:?}"), || {
            (get(&daemon.url(&format!("/v1/turns/{turn}"))).ok()["status"] == "finished").then_some(())
        });
        let said = said(&daemon, &conversation);
        assert_eq!(said.len(), 1 + 3 * ROUNDS + 1, "{point:?}: {said:#?}");
        assert_eq!(said[0], format!("user: {point:?}"));
        assert_eq!(said[said.len() - 1], "assistant: All is done.");
        let lost = said.iter().filter(|said| said.contains("outcome is unknown")).count();
        assert!(lost <= 2, "{point:?}: {said:#?}");
        let walked = walks(log, point);
        assert!(walked >= 2 * ROUNDS - lost, "{point:?}: {walked} walks, {lost} unknown");
    }
    let expected = ["answered", "begun", "delta", "ran", "running", "settled"];
    for kind in expected {
        assert!(kinds.contains(kind), "no daemon was killed after `{kind}`: {kinds:?}");
    }
}

/// The calls that the server got for this point; none came twice.
fn walks(log: &std::path::Path, point: Point) -> usize {
    let log = std::fs::read_to_string(log).unwrap();
    let mut seen = BTreeSet::new();
    for call in log.lines().filter(|line| line.contains(&format!("\"{point:?} "))) {
        if call.starts_with("call walk ") {
            assert!(seen.insert(call), "{point:?}: twice: {call}");
        }
    }
    seen.len()
}

/// Each entry of the first two rounds, and some of those that follow; all with `LF_CRASHES=all`.
fn points() -> impl Iterator<Item = usize> {
    let all = std::env::var("LF_CRASHES").is_ok_and(|all| all == "all");
    (2..90).filter(move |n| all || *n < 18 || n % 9 == 0)
}

fn server(log: &std::path::Path) -> serde_json::Value {
    let script = Script { log: Some(log.to_owned()), ..Script::with([ScriptedTool::new("walk", Act::Echo)]) };
    scripted("m", &script)
}

#[test]
fn a_turn_in_sqlite_survives_its_daemon_at_any_entry() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let model = model();
    let project = TestProject::with_model(&model.base_url(), &[server(&log)]);
    project.serve().stop().ok();
    let connection = Connection::open(project.home().join("data/lf.db")).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    survives(points(), &project, &log, &Seen::Sqlite(connection));
    model.finish();
}

#[test]
fn a_turn_in_postgres_survives_its_daemon_at_any_entry() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let model = model();
    let database = Postgres::shared().database();
    let project =
        TestProject::with_model(&model.base_url(), &[server(&log)]).variable("LF_STORAGE", &database.url());
    project.serve().stop().ok();
    survives(points(), &project, &log, &Seen::Postgres(&database));
    model.finish();
}
