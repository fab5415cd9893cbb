use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use lf_core::audit::{Broken, Chain};
use serde_json::Value;

use super::*;

/// For a disk that others use as well.
const PATIENCE: Duration = Duration::from_secs(60);

fn record(tool: usize) -> Record {
    Record { tool: Some(tool.to_string()), ..Record::new(Event::Call) }
}

fn lines(directory: &Path) -> Vec<Value> {
    let mut lines = Vec::new();
    walk(directory, |line| lines.push(serde_json::from_str(line.text).unwrap())).unwrap();
    lines
}

fn written(directory: &Path, records: std::ops::Range<usize>) {
    let audit = Audit::into(directory).unwrap();
    records.for_each(|number| audit.record(record(number)));
    audit.close_within(PATIENCE);
}

fn file(directory: &Path) -> PathBuf {
    directory.join("000001.jsonl")
}

#[test]
fn what_is_recorded_is_there_after_the_end_in_order_and_for_its_owner_alone() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("audit");
    assert_eq!(verify(&directory, None).unwrap().lines, 0);
    written(&directory, 0..1000);
    written(&directory, 1000..1010);
    let lines = lines(&directory);
    let tools: Vec<String> = lines.iter().map(|line| line["tool"].as_str().unwrap().to_owned()).collect();
    assert_eq!(tools, (0..1010).map(|tool| tool.to_string()).collect::<Vec<_>>());
    let seen = verify(&directory, None).unwrap();
    assert!(seen.faults.is_empty() && seen.first == 1 && seen.end.number == 1010, "{seen:?}");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&file(&directory))), (0o700, 0o600));
}

#[test]
fn processes_that_share_a_directory_share_one_chain() {
    let home = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let directory = home.path();
            scope.spawn(move || {
                let mut files = Files::new(directory);
                for number in 0..50 {
                    let record = record(writer * 50 + number);
                    files.append(std::iter::once((&record, SystemTime::now()))).unwrap();
                }
            });
        }
    });
    let seen = verify(home.path(), None).unwrap();
    assert!(seen.faults.is_empty() && seen.end.number == 200, "{seen:?}");
    let tools: BTreeSet<String> =
        lines(home.path()).iter().map(|line| line["tool"].as_str().unwrap().to_owned()).collect();
    assert_eq!(tools.len(), 200);
}

#[test]
fn half_a_line_that_a_crash_left_is_taken_off_and_told() {
    let home = tempfile::tempdir().unwrap();
    written(home.path(), 0..3);
    let whole = std::fs::read_to_string(file(home.path())).unwrap();
    std::fs::write(file(home.path()), &whole[..whole.len() - 20]).unwrap();
    written(home.path(), 3..4);
    let lines = lines(home.path());
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines[2]["event"], "lost");
    assert!(lines[2]["detail"].as_str().unwrap().contains("not whole"), "{lines:?}");
    assert_eq!(lines[3]["tool"], "3");
    assert!(verify(home.path(), None).unwrap().faults.is_empty());
}

#[test]
fn a_change_is_found_where_it_is_and_the_record_goes_on_after_it() {
    let home = tempfile::tempdir().unwrap();
    written(home.path(), 0..5);
    let noted = verify(home.path(), None).unwrap().end;
    let text = std::fs::read_to_string(file(home.path())).unwrap();
    std::fs::write(file(home.path()), text.replace(r#""tool":"2""#, r#""tool":"9""#)).unwrap();
    let seen = verify(home.path(), Some(&noted)).unwrap();
    assert_eq!((seen.faults.len(), seen.faults[0].line, &seen.faults[0].broken), (1, 3, &Broken::Changed));
    assert!(seen.holds);
    // the very end is changed: what comes begins a file and a chain of its own, and says why
    std::fs::write(file(home.path()), text.replace(r#""tool":"4""#, r#""tool":"9""#)).unwrap();
    written(home.path(), 5..6);
    let lines = lines(home.path());
    assert_eq!((&lines[5]["event"], &lines[6]["tool"]), (&"lost".into(), &"5".into()));
    let seen = verify(home.path(), None).unwrap();
    assert_eq!((seen.faults.len(), seen.faults[0].line), (1, 5), "{seen:?}");
}

#[test]
fn a_record_that_was_cut_or_written_anew_does_not_hold_what_was_noted() {
    let home = tempfile::tempdir().unwrap();
    written(home.path(), 0..5);
    let noted = verify(home.path(), None).unwrap().end;
    let text = std::fs::read_to_string(file(home.path())).unwrap();
    let cut: Vec<&str> = text.lines().take(3).collect();
    std::fs::write(file(home.path()), format!("{}\n", cut.join("\n"))).unwrap();
    let seen = verify(home.path(), Some(&noted)).unwrap();
    assert!(seen.faults.is_empty() && !seen.holds);
    written(home.path(), 3..5);
    let anew = Chain { number: noted.number, hash: "0".repeat(64) };
    assert!(!verify(home.path(), Some(&anew)).unwrap().holds);
}

#[test]
fn what_could_not_be_written_is_counted_and_told_when_it_can_be() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("audit");
    // in the place of the directory
    std::fs::write(&directory, "").unwrap();
    let audit = Audit::into(&directory).unwrap();
    let most = WAITING + BATCH;
    (0..most + 2000).for_each(|number| audit.record(record(number)));
    std::fs::remove_file(&directory).unwrap();
    audit.close_within(PATIENCE);
    let lines = lines(&directory);
    let kept = lines.iter().filter(|line| line["event"] == "call").count();
    let lost = lines.iter().filter(|line| line["event"] == "lost").map(|line| {
        let detail = line["detail"].as_str().unwrap().to_owned();
        detail.split(' ').next().unwrap().parse::<usize>().unwrap()
    });
    let lost: usize = lost.sum();
    assert_eq!(kept + lost, most + 2000);
    assert!(lost > 0 && kept >= WAITING, "{kept} kept, {lost} lost");
}

#[test]
fn names_of_any_length_damage_nothing() {
    let home = tempfile::tempdir().unwrap();
    let long = |letter: &str| Record { tool: Some(letter.repeat(1 << 20)), ..Record::new(Event::Denied) };
    written(home.path(), 0..3);
    let audit = Audit::into(home.path()).unwrap();
    for name in ["x", "\u{1}", "\u{1f600}", "\""] {
        let six = long(name).tool;
        let (who, model) = (six.clone(), six.clone());
        let (server, project) = (six.clone(), six.clone());
        audit.record(Record { who, model, server, project, turn: six.clone(), ..long(name) });
    }
    audit.close();
    written(home.path(), 3..6);
    let seen = verify(home.path(), None).unwrap();
    assert!(seen.is_whole() && seen.end.number == 10, "{seen:?}");
    let tool = |line: &Value| line["tool"].as_str().unwrap().to_owned();
    let tools: Vec<String> = lines(home.path()).iter().map(tool).collect();
    assert_eq!(tools[9], "5");
    assert!(tools[3].starts_with("xxx") && tools[3].len() < 400 && tools[3].contains("sha256:"), "{tools:?}");
    assert_ne!(tools[4], tools[5]);
}

#[test]
fn a_line_that_is_too_long_is_one_fault_and_what_stands_after_it_stays() {
    let home = tempfile::tempdir().unwrap();
    written(home.path(), 0..2);
    let whole = std::fs::read_to_string(file(home.path())).unwrap();
    let long = format!("{{\"tool\":\"{}\"}}\n", "x".repeat(300_000));
    // as half a line at the end, as the last line, and between others
    std::fs::write(file(home.path()), format!("{whole}{}", long.trim_end())).unwrap();
    written(home.path(), 2..3);
    assert!(verify(home.path(), None).unwrap().is_whole());
    assert!(std::fs::read_to_string(file(home.path())).unwrap().starts_with(&whole));

    let whole = std::fs::read_to_string(file(home.path())).unwrap();
    std::fs::write(file(home.path()), format!("{whole}{long}")).unwrap();
    written(home.path(), 3..5);
    let kept = std::fs::read_to_string(file(home.path())).unwrap();
    assert_eq!(kept, format!("{whole}{long}"), "what was there is left as it is");
    let seen = verify(home.path(), None).unwrap();
    assert_eq!((seen.faults.len(), &seen.faults[0].broken), (1, &Broken::NoRecord));
    assert_eq!(lines_of(home.path(), "call"), 5);
}

fn lines_of(directory: &Path, event: &str) -> usize {
    let mut count = 0;
    walk(directory, |line| count += usize::from(line.text.contains(&format!(r#""event":"{event}""#))))
        .unwrap();
    count
}

#[test]
fn half_a_line_in_a_file_of_its_own_goes_on_from_the_file_before() {
    let home = tempfile::tempdir().unwrap();
    written(home.path(), 0..3);
    std::fs::write(home.path().join("000002.jsonl"), "{\"number\":4,").unwrap();
    written(home.path(), 3..4);
    let seen = verify(home.path(), None).unwrap();
    assert!(seen.is_whole() && seen.end.number == 5, "{seen:?}");
}

#[test]
fn a_beginning_that_was_cut_off_and_files_that_are_gone_are_found() {
    let home = tempfile::tempdir().unwrap();
    written(home.path(), 0..5);
    let text = std::fs::read_to_string(file(home.path())).unwrap();
    let rest: Vec<&str> = text.lines().skip(3).collect();
    std::fs::write(file(home.path()), format!("{}\n", rest.join("\n"))).unwrap();
    let seen = verify(home.path(), None).unwrap();
    assert_eq!((seen.faults.len(), seen.faults[0].line), (1, 1), "{seen:?}");
    // files that were put away are whole ones
    std::fs::rename(file(home.path()), home.path().join("000002.jsonl")).unwrap();
    let seen = verify(home.path(), None).unwrap();
    assert!(seen.is_whole() && seen.first == 4, "{seen:?}");
    std::fs::remove_file(home.path().join("000002.jsonl")).unwrap();
    let seen = verify(home.path(), None).unwrap();
    assert!(seen.is_gone && !seen.is_whole(), "{seen:?}");
    assert!(verify(&home.path().join("never"), None).unwrap().is_whole());
}

#[test]
fn refusals_that_were_not_told_one_by_one_are_counted_at_the_end() {
    let home = tempfile::tempdir().unwrap();
    let audit = Audit::into(home.path()).unwrap();
    (0..100).for_each(|_| audit.refused(None, "GET /"));
    audit.close();
    let more: u64 = lines(home.path())
        .iter()
        .map(|line| {
            let detail = line["detail"].as_str().unwrap();
            let count = detail.split("more refusals").next().unwrap();
            let count: String = count.chars().filter(char::is_ascii_digit).collect();
            if detail.contains("more refusals") { count.parse().unwrap() } else { 0 }
        })
        .sum();
    let told =
        lines(home.path()).iter().filter(|line| line["detail"].as_str().unwrap().starts_with("GET")).count();
    assert_eq!(told as u64 + more, 100);
}
