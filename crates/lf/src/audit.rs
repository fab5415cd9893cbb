//! `lf audit`: the record of what was run, refused, decided and changed, read from its files.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use lf_server::audit::{Audit, Verified, verify, walk};
use serde_json::{Value, json};

use crate::args::Audit as Command;
use crate::exit::{Exit, Trouble, print, print_line};
use crate::log::printable;

/// The record of this process, which is written to its end when the process ends.
static RECORD: OnceLock<Arc<Audit>> = OnceLock::new();

/// Begins to record in the data directory.
///
/// # Errors
/// When no thread can be had for it.
pub(crate) fn open(data_dir: &Path) -> Result<Arc<Audit>, Trouble> {
    let record = Audit::into(&data_dir.join(lf_server::audit::DIRECTORY))
        .map_err(|error| Trouble::failure(format!("the audit record cannot be begun: {error}")))?;
    Ok(RECORD.get_or_init(|| Arc::new(record)).clone())
}

/// Writes what is left of it.
pub(crate) fn close() {
    if let Some(record) = RECORD.get() {
        record.close();
    }
}

pub(crate) fn run(data_dir: &Path, command: &Command) -> Result<Exit, Trouble> {
    let directory = data_dir.join(lf_server::audit::DIRECTORY);
    let unreadable =
        |error: io::Error| Trouble::failure(format!("{} cannot be read: {error}", directory.display()));
    match command {
        Command::Show { event, tool, last, json } => {
            let wanted = |line: &Value| {
                event.is_none_or(|event| line["event"] == event.name())
                    && tool.as_ref().is_none_or(|tool| line["tool"] == tool.as_str())
            };
            let mut lines = VecDeque::new();
            walk(&directory, |line| {
                // what is no record is told by `verify`
                if let Ok(value) = serde_json::from_str::<Value>(line.text)
                    && wanted(&value)
                {
                    lines.push_back((line.text.to_owned(), value));
                    if lines.len() > *last {
                        lines.pop_front();
                    }
                }
            })
            .map_err(unreadable)?;
            if lines.is_empty() && !json {
                anstream::eprintln!("nothing of that kind is recorded in {}", directory.display());
            }
            for (text, value) in &lines {
                print_line(if *json { text.clone() } else { told(value) })?;
            }
            Ok(Exit::Success)
        }
        Command::Verify { known, json } => {
            let seen = verify(&directory, known.as_ref()).map_err(unreadable)?;
            print_verified(&seen, *json)?;
            Ok(if seen.is_whole() { Exit::Success } else { Exit::Failure })
        }
    }
}

/// A record in a line.
fn told(line: &Value) -> String {
    let text = |key: &str| line[key].as_str().map(printable);
    let mut told = format!(
        "{} {} {:<14}",
        line["number"],
        text("time").unwrap_or_default(),
        text("event").unwrap_or_default()
    );
    let mut add = |what: String| {
        told.push(' ');
        told.push_str(&what);
    };
    if let Some(tool) = text("tool") {
        add(match text("server") {
            Some(server) => format!("{server}/{tool}"),
            None => tool,
        });
    }
    for key in ["outcome", "project", "model", "turn"] {
        text(key).into_iter().for_each(&mut add);
    }
    if let Some(who) = text("who") {
        let id = text("who_id").filter(|id| *id != "owner").map(|id| format!(" ({id})"));
        add(format!("for {who}{}", id.unwrap_or_default()));
    }
    if let Some(ms) = line["ms"].as_u64() {
        add(format!("{ms} ms"));
    }
    if let Some(detail) = text("detail") {
        add(format!("({detail})"));
    }
    told
}

fn print_verified(seen: &Verified, as_json: bool) -> Result<(), Trouble> {
    let faults = seen.faults.iter();
    if as_json {
        let faults: Vec<Value> = faults
            .map(|fault| {
                let file = fault.file.display().to_string();
                json!({"file": file, "line": fault.line, "error": fault.broken.to_string()})
            })
            .collect();
        let end = json!({"number": seen.end.number, "hash": seen.end.hash});
        return print_line(json!({
            "whole": seen.is_whole(),
            "gone": seen.is_gone,
            "lines": seen.lines,
            "first": seen.first,
            "end": end,
            "holds_known": seen.holds,
            "faults": faults,
        }));
    }
    for fault in faults {
        print_line(format_args!("{}:{}: {}", fault.file.display(), fault.line, fault.broken))?;
    }
    if !seen.holds {
        print_line("the line that was noted is not in it: the record was cut or written anew")?;
    }
    let state = match seen.faults.len() {
        0 if seen.is_gone => "but it was begun: its files are gone".to_owned(),
        0 if seen.holds => "whole".to_owned(),
        0 => "not what it was".to_owned(),
        many => format!("damaged in {many} place(s)"),
    };
    print(format!("{} record(s), {state}", seen.lines))?;
    if seen.first > 1 && seen.faults.is_empty() {
        print(format!("; begins with number {}: older files were put away", seen.first))?;
    }
    print(format!("\nlast: {}:{}\n", seen.end.number, seen.end.hash))
}
