//! `cargo bench -p lf-store`: entries that turns append and wait for, against single commits of SQLite itself with the same
//! settings, on the same disk. It fails where an append costs more than its part of one commit.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "its result is what it prints, and without a disk there is none"
)]

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lf_core::turn::Entry;
use lf_core::{Journal as _, ModelDelta};
use lf_store::{Begin, Conversation, Kind, Store, TurnJournal};
use rusqlite::Connection;

/// A disk has moods of seconds: all are measured in turns, a little at a time, and the median of what each comes to counts.
const SLICE: Duration = Duration::from_millis(300);
const ROUNDS: usize = 11;
/// Turns at the same time, and how many of SQLite's own commits they must at least come to. Alone, an append also goes to
/// another thread and back; together, they share.
const AT_LEAST: [(usize, f64); 3] = [(1, 0.3), (8, 1.5), (64, 3.0)];
const TEXT: &str = "A piece of an answer, about as long as those that come at once.";

fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // beside the build and not in a directory that may be in memory
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bare = open_bare(&dir.path().join("bare.db"));
    let store = runtime.block_on(Store::open(dir.path().to_owned())).unwrap();
    let mut journals = AT_LEAST.map(|(turns, _)| runtime.block_on(begin(&store, turns)));
    let mut single = Vec::new();
    let mut shared = [const { Vec::new() }; AT_LEAST.len()];
    let mut count = 0;
    for _ in 0..ROUNDS {
        let alone = rate(commit_alone(&bare, &mut count));
        single.push(alone);
        for (journals, rates) in journals.iter_mut().zip(&mut shared) {
            let together = rate(runtime.block_on(append(journals)));
            rates.push((together / alone, together));
        }
    }
    println!(
        "acknowledged appends per second, and of SQLite's own commits; medians of {ROUNDS} times {SLICE:?}"
    );
    println!("{:<22}{:>9.0}", "SQLite, one by one", median(single));
    let mut dear = false;
    for ((turns, least), rates) in AT_LEAST.into_iter().zip(shared) {
        let (ratios, rates): (Vec<f64>, Vec<f64>) = rates.into_iter().unzip();
        let (ratio, rate) = (median(ratios), median(rates));
        dear |= ratio < least;
        println!("{:<22}{rate:>9.0}{ratio:>8.2} (at least {least})", format!("turns at once: {turns}"));
    }
    if dear { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn rate(count: u32) -> f64 {
    f64::from(count) / SLICE.as_secs_f64()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn open_bare(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
    connection.pragma_update(None, "synchronous", "full").unwrap();
    let table = "CREATE TABLE entry (turn TEXT, n INTEGER, body TEXT, PRIMARY KEY (turn, n)) WITHOUT ROWID";
    connection.execute_batch(table).unwrap();
    connection
}

fn commit_alone(connection: &Connection, count: &mut u32) -> u32 {
    let sql = "INSERT INTO entry (turn, n, body) VALUES (?1, ?2, ?3)";
    let mut insert = connection.prepare_cached(sql).unwrap();
    let (started, before) = (Instant::now(), *count);
    while started.elapsed() < SLICE {
        insert.execute(("t", *count, TEXT)).unwrap();
        *count += 1;
    }
    *count - before
}

async fn begin(store: &Store, turns: usize) -> Vec<TurnJournal> {
    let mut journals = Vec::new();
    for turn in 0..turns {
        let id = format!("c{turn} of {turns}");
        let (scope, kind) = ("default/p".to_owned(), Kind::Conversation);
        let (title, system, model) = (None, None, None);
        let new = Conversation { id: id.clone(), scope, kind, title, system, model, created: 1, updated: 1 };
        store.create(&new).await.unwrap();
        let begin = Begin { turn: &id, conversation: &id, said: &[], begun: &Entry::Answered, after: None };
        journals.push(store.begin(begin).await.unwrap());
    }
    journals
}

/// Each turn waits for each of its entries.
async fn append(journals: &mut Vec<TurnJournal>) -> u32 {
    let mut running = tokio::task::JoinSet::new();
    for mut journal in std::mem::take(journals) {
        running.spawn(async move {
            let started = Instant::now();
            let mut count = 0_u32;
            while started.elapsed() < SLICE {
                journal.append(&Entry::Delta(ModelDelta::Text(TEXT.to_owned())));
                journal.flush().await.unwrap();
                count += 1;
            }
            (journal, count)
        });
    }
    let mut all = 0;
    for (journal, count) in running.join_all().await {
        journals.push(journal);
        all += count;
    }
    all
}
