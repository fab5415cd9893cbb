//! `lf-advisories CARGO_LOCK DATABASE`: fails where an advisory holds for a package, and tells of which day the database is.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use lf_tests::advisories::{Database, packages};

#[expect(clippy::print_stderr, reason = "what it is asked for")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [lock, database] = arguments.as_slice() else {
        eprintln!("usage: lf-advisories CARGO_LOCK DATABASE");
        return ExitCode::from(2);
    };
    match check(lock, database) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

#[expect(clippy::print_stdout, reason = "what it is asked for")]
fn check(lock: &str, database: &str) -> Result<usize> {
    let read = |path: &str| std::fs::read_to_string(path).with_context(|| path.to_owned());
    let tree = packages(&read(lock)?).with_context(|| lock.to_owned())?;
    let database = Database::parse(&read(database)?).with_context(|| database.to_owned())?;
    let found = database.of(&tree);
    for (advisory, version) in &found {
        println!("{} {version}: {} ({})", advisory.package, advisory.id, advisory.kind);
    }
    let (known, count) = (database.advisories.len(), tree.len());
    println!(
        "{} advisories hold for {count} packages, by the {known} of RustSec's database of {}",
        found.len(),
        database.date
    );
    Ok(found.len())
}
