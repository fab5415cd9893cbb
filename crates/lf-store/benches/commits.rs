//! `cargo bench -p lf-store`: entries that turns append and wait for, against single commits of SQLite itself with the same
//! settings, on the same disk. It fails where an append costs more than its part of one commit.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "its result is what it prints, and without a disk there is none"
)]

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lf_core::turn::Entry;
use lf_core::{Journal as _, ModelDelta};
use lf_store::{Begin, Conversation, Kind, Store};
use rusqlite::Connection;

/// Each measurement goes on so long; the best of as many counts, as a disk has moods.
const LASTS: Duration = Duration::from_millis(1500);
const RUNS: usize = 3;
/// Turns at the same time, and how many of SQLite's own commits they must at least come to: alone, an append goes through
/// two threads; together, they share.
const AT_LEAST: [(usize, f64); 3] = [(1, 0.5), (8, 1.5), (64, 4.0)];
const TEXT: &str = "A piece of an answer, about as long as those that come at once.";

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // beside the build and not in a directory that may be in memory
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let best = |run: &dyn Fn(&Path) -> f64| {
        let runs = (0..RUNS).map(|_| run(tempfile::tempdir_in(place).unwrap().path()));
        runs.fold(0.0, f64::max)
    };
    let bare = best(&bare);
    println!("acknowledged appends per second, best of {RUNS}");
    println!("{:<22}{bare:>9.0}", "SQLite, one by one");
    let mut dear = false;
    for (turns, least) in AT_LEAST {
        let rate = best(&|dir| runtime.block_on(through_the_store(dir, turns)));
        let ratio = rate / bare;
        dear |= ratio < least;
        println!("{:<22}{rate:>9.0}{ratio:>8.2} (at least {least})", format!("{turns} turns at once"));
    }
    if dear { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn bare(dir: &Path) -> f64 {
    let connection = Connection::open(dir.join("bare.db")).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
    connection.pragma_update(None, "synchronous", "full").unwrap();
    let table = "CREATE TABLE entry (turn TEXT, n INTEGER, body TEXT, PRIMARY KEY (turn, n)) WITHOUT ROWID";
    connection.execute_batch(table).unwrap();
    let mut insert = connection.prepare("INSERT INTO entry (turn, n, body) VALUES (?1, ?2, ?3)").unwrap();
    let started = Instant::now();
    let mut count = 0_u32;
    while started.elapsed() < LASTS {
        insert.execute(("t", count, TEXT)).unwrap();
        count += 1;
    }
    f64::from(count) / started.elapsed().as_secs_f64()
}

async fn through_the_store(dir: &Path, turns: usize) -> f64 {
    let store = Store::open(dir.to_owned()).await.unwrap();
    let mut running = tokio::task::JoinSet::new();
    for turn in 0..turns {
        let id = format!("c{turn}");
        let (scope, kind) = ("default/p".to_owned(), Kind::Conversation);
        let (title, system, model) = (None, None, None);
        let new = Conversation { id: id.clone(), scope, kind, title, system, model, created: 1, updated: 1 };
        store.create(&new).await.unwrap();
        let begin = Begin { turn: &id, conversation: &id, said: &[], begun: &Entry::Answered };
        let mut journal = store.begin(begin).await.unwrap();
        running.spawn(async move {
            let started = Instant::now();
            let mut count = 0_u32;
            while started.elapsed() < LASTS {
                journal.append(&Entry::Delta(ModelDelta::Text(TEXT.to_owned())));
                journal.flush().await.unwrap();
                count += 1;
            }
            f64::from(count) / started.elapsed().as_secs_f64()
        });
    }
    running.join_all().await.iter().sum()
}
