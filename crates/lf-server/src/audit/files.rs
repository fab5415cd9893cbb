//! The files of an audit record: appended under a lock, read back from the oldest.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lf_core::audit::{Broken, Chain, Event, Record};

use crate::timestamp::timestamp;

/// From here on the next file is begun, in bytes.
const FILE: u64 = 64 << 20;
/// Longest line that is read, in bytes. Those that are written are far shorter: names have at most 256 characters, details 500.
const LINE: u64 = 64 << 10;

/// Where records are appended.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    /// What was last written here. Another process that writes makes the file longer.
    end: Option<End>,
}

/// The end of the newest file.
#[derive(Debug)]
struct End {
    file: u64,
    /// In bytes, of whole lines.
    length: u64,
    chain: Chain,
    /// For a reader: why the record does not simply go on.
    remark: Option<String>,
}

impl Files {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), end: None }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Appends all of them and syncs, or none.
    pub(super) fn append<'a>(
        &mut self,
        records: impl Iterator<Item = (&'a Record, SystemTime)>,
    ) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let lock = options.open(self.directory.join("lock"))?;
        // whoever holds it writes one batch
        lock.lock()?;
        let newest = numbers(&self.directory)?.pop().unwrap_or(1);
        let here = length(&self.directory, newest)?;
        let known = self.end.take().filter(|end| (end.file, end.length) == (newest, here));
        let mut end = match known {
            Some(end) => end,
            None => self.find_end(newest)?,
        };
        if end.length >= FILE {
            (end.file, end.length) = (end.file + 1, 0);
        }
        let mut file = options.open(path(&self.directory, end.file))?;
        let mut lines = String::new();
        let mut add = |record: &Record, at: SystemTime| {
            lines.push_str(&end.chain.add(record, &timestamp(at)));
            lines.push('\n');
        };
        if let Some(remark) = end.remark.take() {
            add(&Record::new(Event::Lost).detail(&remark), SystemTime::now());
        }
        records.for_each(|(record, at)| add(record, at));
        if let Err(error) = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data()) {
            // a record that is not known to be kept is written again
            file.set_len(end.length)?;
            return Err(error);
        }
        end.length += lines.len() as u64;
        self.end = Some(end);
        Ok(())
    }

    /// Reads where the record goes on; half a line that a crash left is taken off.
    fn find_end(&self, newest: u64) -> io::Result<End> {
        let mut end = End { file: newest, length: 0, chain: Chain::default(), remark: None };
        let found = last_line(&self.directory, newest)?;
        let found = match found {
            Found { line: None, torn: 0, .. } if newest > 1 => {
                Found { whole: 0, ..last_line(&self.directory, newest - 1)? }
            }
            found => found,
        };
        if found.torn > 0 && found.whole < length(&self.directory, newest)? {
            let file = OpenOptions::new().write(true).open(path(&self.directory, newest))?;
            file.set_len(found.whole)?;
            end.remark = Some(format!("{} bytes of a line that was not whole were taken off", found.torn));
        }
        end.length = found.whole;
        match found.line.as_deref().map(Chain::at) {
            Some(Ok(chain)) => end.chain = chain,
            Some(Err(broken)) => {
                (end.file, end.length) = (newest + 1, 0);
                end.remark = Some(format!("the record before this could not be gone on from: {broken}"));
            }
            None => {}
        }
        Ok(end)
    }
}

/// The last whole line of a file.
struct Found {
    line: Option<String>,
    /// Bytes up to its end.
    whole: u64,
    /// Bytes after it.
    torn: u64,
}

fn last_line(directory: &Path, number: u64) -> io::Result<Found> {
    let mut found = Found { line: None, whole: 0, torn: 0 };
    let file = match File::open(path(directory, number)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    let mut reader = BufReader::new(file);
    while let Some(line) = next_line(&mut reader)? {
        match line.strip_suffix('\n') {
            Some(text) => {
                found.whole += line.len() as u64;
                found.line = Some(text.to_owned());
            }
            None => found.torn = line.len() as u64,
        }
    }
    Ok(found)
}

/// With its end, where it has one within [`LINE`]. What is no UTF-8 is no record either.
fn next_line(reader: &mut impl io::BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let read = reader.take(LINE).read_until(b'\n', &mut line)?;
    Ok((read > 0).then(|| match String::from_utf8(line) {
        Ok(line) => line,
        // as long as it was, so that offsets hold
        Err(error) => error
            .as_bytes()
            .iter()
            .map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' })
            .collect(),
    }))
}

fn length(directory: &Path, number: u64) -> io::Result<u64> {
    match std::fs::metadata(path(directory, number)) {
        Ok(file) => Ok(file.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:06}.jsonl"))
}

/// Of the files that are there, the oldest first.
fn numbers(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number: Option<u64> = name.to_str().and_then(|name| name.strip_suffix(".jsonl")?.parse().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A line as it stands in a file.
#[derive(Debug)]
pub struct Line<'a> {
    pub file: &'a Path,
    /// From 1.
    pub number: usize,
    pub text: &'a str,
}

/// Goes through all lines, the oldest first. A record that was never begun has none.
///
/// # Errors
/// When a file cannot be read.
pub fn walk(directory: &Path, mut each: impl FnMut(Line<'_>)) -> io::Result<()> {
    let numbers = match numbers(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        numbers => numbers?,
    };
    for number in numbers {
        let file = path(directory, number);
        let mut reader = BufReader::new(File::open(&file)?);
        let mut at = 0;
        while let Some(line) = next_line(&mut reader)? {
            at += 1;
            each(Line { file: &file, number: at, text: line.trim_end_matches('\n') });
        }
    }
    Ok(())
}

/// A line that does not fit.
#[derive(Debug)]
pub struct Fault {
    pub file: PathBuf,
    pub line: usize,
    pub broken: Broken,
}

/// What a look at the whole record showed.
#[derive(Debug, Default)]
pub struct Verified {
    pub lines: u64,
    /// The number of the first line: more than 1 where older files were put away.
    pub first: u64,
    /// Where it ends.
    pub end: Chain,
    /// The first 100.
    pub faults: Vec<Fault>,
    /// Whether a line of this number has this hash, where that was asked.
    pub holds: bool,
}

/// Faults that are told.
const FAULTS: usize = 100;

/// Looks whether every line goes on from the one before it. `known`: a line's number and hash that were noted elsewhere.
///
/// # Errors
/// When a file cannot be read.
pub fn verify(directory: &Path, known: Option<&Chain>) -> io::Result<Verified> {
    let mut seen = Verified { holds: known.is_none(), ..Verified::default() };
    let mut sure = true;
    walk(directory, |line| {
        seen.lines += 1;
        let found = Chain::at(line.text);
        let mut follow = seen.end.clone();
        let fits = match (&found, seen.lines) {
            (Ok(first), 1) if first.number > 1 => Ok(()),
            // after a fault it is taken up again
            (Ok(_), _) if !sure => Ok(()),
            _ => follow.follow(line.text),
        };
        if let Err(broken) = fits
            && seen.faults.len() < FAULTS
        {
            seen.faults.push(Fault { file: line.file.to_owned(), line: line.number, broken });
        }
        sure = found.is_ok();
        if let Ok(found) = found {
            seen.holds |= known == Some(&found);
            if seen.lines == 1 {
                seen.first = found.number;
            }
            seen.end = found;
        }
    })?;
    Ok(seen)
}
