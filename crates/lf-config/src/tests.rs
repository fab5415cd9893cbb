use std::path::Path;
use std::time::Duration;

use super::*;

mod bounds;
mod documents;
mod mistakes;
mod robust;
mod values;
mod variables;

/// For which this thread had a processor: how busy the machine is otherwise does not count.
#[cfg(unix)]
pub(crate) fn own_time() -> Duration {
    nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID.now().expect("every thread has one").into()
}

#[cfg(not(unix))]
pub(crate) fn own_time() -> Duration {
    static BEGUN: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    BEGUN.elapsed()
}

const HEAD: &str = "version: v1\nname: farm\nnamespace: default\n";

fn source(name: &str, text: &str) -> Source {
    Source { path: name.into(), text: text.to_owned() }
}

fn parse_whole(text: &str) -> Result<Loaded, Rejected> {
    parse(&source("llamafarm.yaml", text), Path::new("/srv/farm"), &Variables::none())
}

/// What a person is told about a file that starts with `HEAD`.
fn diagnose(text: &str) -> String {
    diagnose_whole(&format!("{HEAD}{text}"))
}

fn diagnose_whole(text: &str) -> String {
    match parse_whole(text) {
        Ok(loaded) => loaded.render_diagnostics(Style::Plain),
        Err(rejected) => rejected.to_string(),
    }
}

/// A file that starts with `HEAD` and has no errors.
fn load_text(text: &str) -> Loaded {
    parse_whole(&format!("{HEAD}{text}")).unwrap_or_else(|rejected| panic!("{rejected}"))
}
