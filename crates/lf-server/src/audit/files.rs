//! The files of an audit record: appended under a lock, read back from the oldest.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lf_core::audit::{Broken, Chain, Event, Record};

use crate::timestamp::timestamp;

/// From here on the next file is begun, in bytes.
const FILE: u64 = 64 << 20;
/// Longest line that is read, in bytes. Those that are written are far shorter: [`Record::bounded`] has six names of some 350
/// characters, and a detail has 500.
const LINE: u64 = 64 << 10;
/// What is read at once where a file is read from its end, in bytes.
const BLOCK: u64 = 64 << 10;

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
        let written =
            options.open(path(&self.directory, end.file)).and_then(|mut file| end.write(&mut file, records));
        let (end, result) = match written {
            Ok(end) => (end, Ok(())),
            Err(error) => (end, Err(error)),
        };
        self.end = Some(end);
        result
    }

    /// Reads where the record goes on; half a line that a crash left is taken off.
    fn find_end(&self, newest: u64) -> io::Result<End> {
        let mut end = End { file: newest, length: 0, chain: Chain::default(), remark: None };
        let found = last_line(&self.directory, newest)?;
        if found.torn > 0 {
            let file = OpenOptions::new().write(true).open(path(&self.directory, newest))?;
            file.set_len(found.whole)?;
            end.remark = Some(format!("{} bytes of a line that was not whole were taken off", found.torn));
        }
        end.length = found.whole;
        let line = match found.line {
            None if newest > 1 => last_line(&self.directory, newest - 1)?.line,
            line => line,
        };
        match line.as_deref().map(Chain::at) {
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

impl End {
    /// Writes all of them and syncs, or none. Says where the file ends then.
    fn write<'a>(
        &self,
        file: &mut File,
        records: impl Iterator<Item = (&'a Record, SystemTime)>,
    ) -> io::Result<Self> {
        let mut chain = self.chain.clone();
        let mut lines = String::new();
        let mut add = |record: &Record, at: SystemTime| {
            lines.push_str(&chain.add(record, &timestamp(at)));
            lines.push('\n');
        };
        if let Some(remark) = &self.remark {
            add(&Record::new(Event::Lost).detail(remark), SystemTime::now());
        }
        records.for_each(|(record, at)| add(record, at));
        if let Err(error) = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data()) {
            // a record that is not known to be kept is written again
            file.set_len(self.length)?;
            return Err(error);
        }
        Ok(Self { file: self.file, length: self.length + lines.len() as u64, chain, remark: None })
    }
}

/// The last whole line of a file.
#[derive(Default)]
struct Found {
    line: Option<String>,
    /// Bytes up to its end.
    whole: u64,
    /// Bytes after it: of one line that has no end, however long it is.
    torn: u64,
}

/// Reads from the end, whatever stands before.
fn last_line(directory: &Path, number: u64) -> io::Result<Found> {
    let file = match File::open(path(directory, number)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::default()),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    let whole = beginning(&file, length)?;
    let torn = length - whole;
    let Some(end) = whole.checked_sub(1) else { return Ok(Found { torn, ..Found::default() }) };
    let begin = beginning(&file, end)?;
    // a longer one is no record, nor is its beginning
    let mut line = vec![0; usize::try_from((end - begin).min(LINE)).unwrap_or_default()];
    file.read_exact_at(&mut line, begin)?;
    Ok(Found { line: Some(String::from_utf8_lossy(&line).into_owned()), whole, torn })
}

/// Where the line begins that this place of a file is in.
fn beginning(file: &File, place: u64) -> io::Result<u64> {
    let mut block = Vec::new();
    let mut end = place;
    while end > 0 {
        let begin = end.saturating_sub(BLOCK);
        block.resize(usize::try_from(end - begin).unwrap_or_default(), 0);
        file.read_exact_at(&mut block, begin)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

/// With its end, where it has one. One that is longer than [`LINE`] is cut there, and is no record then; neither is what
/// is no UTF-8.
fn next_line(reader: &mut impl io::BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let read = reader.by_ref().take(LINE).read_until(b'\n', &mut line)?;
    if read as u64 == LINE && line.last() != Some(&b'\n') {
        reader.skip_until(b'\n')?;
    }
    Ok((read > 0).then(|| String::from_utf8_lossy(&line).into_owned()))
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
    /// It was begun, and nothing is left of it.
    pub is_gone: bool,
}

impl Verified {
    /// Nothing was found to be wrong.
    pub fn is_whole(&self) -> bool {
        self.faults.is_empty() && self.holds && !self.is_gone
    }
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
            // older files may have been put away, but not the lines of the first
            (Ok(_), 1) if line.file != path(directory, 1) => Ok(()),
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
    seen.is_gone = seen.lines == 0 && directory.is_dir();
    Ok(seen)
}
