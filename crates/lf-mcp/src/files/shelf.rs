//! The directory that is shared, read through a handle that no path leads out of.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File};

/// Entries of one listing.
const MAX_ENTRIES: usize = 1_000;
/// Text of one read, in bytes.
const MAX_READ: usize = 1024 * 1024;
/// What is read over to get to the first line wanted, in bytes.
const MAX_SKIPPED: u64 = 256 * 1024 * 1024;
/// A search looks into this many directories,
const MAX_DIRECTORIES: usize = 10_000;
/// at this many entries of each,
const MAX_SEARCHED_ENTRIES: usize = 10_000;
/// for this long: less than a call may take by default,
const MAX_TIME: Duration = Duration::from_secs(15);
/// at this many files,
const MAX_FILES: usize = 10_000;
/// at this much of each, in bytes,
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// at this much altogether,
const MAX_SEARCHED: u64 = 128 * 1024 * 1024;
/// and stops after this many matches.
const MAX_MATCHES: usize = 200;
/// Characters shown of a matching line.
const MATCH_WIDTH: usize = 240;
/// Where a file that holds a zero byte counts as binary.
const SNIFFED: usize = 8 * 1024;
const TOO_LONG: &str = "it took too long to look at all of them";
const LEFT_OUT: [&str; 2] = [".git", "node_modules"];

pub(super) struct Shelf {
    dir: Dir,
    /// As given and as resolved: models repeat absolute paths they have seen.
    roots: Vec<PathBuf>,
}

impl Shelf {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(root, ambient_authority())?;
        // Opening a directory does not show yet that it can be read.
        dir.entries()?;
        let roots = vec![root.to_owned(), root.canonicalize()?];
        Ok(Self { dir, roots })
    }

    pub(super) fn list(&self, path: &str) -> Result<String, String> {
        let relative = self.relative(path);
        let dir = self.dir.open_dir(&relative).map_err(|error| trouble(path, &error))?;
        let entries = dir.entries().map_err(|error| trouble(path, &error))?;
        let mut lines = Vec::new();
        let mut is_cut = false;
        for entry in entries.flatten() {
            if lines.len() == MAX_ENTRIES {
                is_cut = true;
                break;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            lines.push(match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => format!("{name}/"),
                Ok(metadata) if metadata.is_file() => format!("{name}  ({} bytes)", metadata.len()),
                Ok(metadata) if metadata.is_symlink() => format!("{name}  (link)"),
                _ => format!("{name}  (special file)"),
            });
        }
        lines.sort();
        if lines.is_empty() {
            return Ok(format!("`{path}` is empty"));
        }
        if is_cut {
            lines.push(format!("[only {MAX_ENTRIES} entries are shown; there are more]"));
        }
        Ok(lines.join("\n"))
    }

    pub(super) fn read(&self, path: &str, offset: usize, lines: Option<usize>) -> Result<String, String> {
        let file = self.open_file(&self.relative(path)).map_err(|error| trouble(path, &error))?;
        let mut reader = BufReader::new(file);
        let head = reader.fill_buf().map_err(|error| trouble(path, &error))?;
        if is_binary(head) {
            return Err(format!("`{path}` is a binary file; only text can be read"));
        }
        let offset = offset.max(1);
        let skipped = skip_lines(&mut reader, offset - 1).map_err(|error| trouble(path, &error))?;
        if skipped < offset - 1 {
            return Err(format!("`{path}` has only {skipped} lines; line {offset} was asked for"));
        }
        let part =
            read_lines(&mut reader, lines.unwrap_or(usize::MAX)).map_err(|error| trouble(path, &error))?;
        let mut text = part.text;
        if let Some(more) = part.more {
            let next = offset + part.lines;
            let why = match more {
                More::Lines => "as many lines as asked for",
                More::Bytes => "a read is limited to 1 MiB",
            };
            let last = next.saturating_sub(1).max(offset);
            let _ = write!(text, "\n[cut after line {last}: {why}; go on with `offset` {next}]");
        }
        Ok(text)
    }

    pub(super) fn search(&self, pattern: &str, path: &str) -> Result<String, String> {
        self.search_until(pattern, path, Instant::now() + MAX_TIME)
    }

    pub(super) fn search_until(&self, pattern: &str, path: &str, end: Instant) -> Result<String, String> {
        if pattern.is_empty() {
            return Err("`pattern` is empty".to_owned());
        }
        let start = self.relative(path);
        let mut search = Search::new(pattern, end);
        let metadata = self.dir.metadata(&start).map_err(|error| trouble(path, &error))?;
        if metadata.is_file() {
            search.file(self, &start);
        } else {
            search.directories(self, &start).map_err(|error| trouble(path, &error))?;
        }
        Ok(search.into_text(pattern))
    }

    /// The path below the shared directory that is meant. What leads out of it is refused when it is opened.
    fn relative(&self, path: &str) -> PathBuf {
        let path = Path::new(path);
        let below = self.roots.iter().find_map(|root| path.strip_prefix(root).ok());
        let path = below.unwrap_or(path);
        if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() }
    }

    /// Opens a regular file only: opening a pipe would wait for its writer.
    fn open_file(&self, path: &Path) -> io::Result<File> {
        let metadata = self.dir.metadata(path)?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        self.dir.open(path)
    }
}

fn trouble(path: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("`{path}` does not exist"),
        io::ErrorKind::IsADirectory => format!("`{path}` is a directory; use `list`"),
        io::ErrorKind::NotADirectory => format!("`{path}` is not a directory"),
        // The library has no kind of its own for a path that leads out.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
            format!("`{path}` is outside of the shared directory; use paths relative to it")
        }
        io::ErrorKind::PermissionDenied => format!("`{path}` may not be read"),
        _ => format!("`{path}` cannot be read: {error}"),
    }
}

fn is_binary(head: &[u8]) -> bool {
    head[..head.len().min(SNIFFED)].contains(&0)
}

/// Reads over `count` lines. Returns how many there were.
fn skip_lines(reader: &mut BufReader<File>, count: usize) -> io::Result<usize> {
    let mut bytes = 0;
    for skipped in 0..count {
        let line = reader.skip_until(b'\n')? as u64;
        bytes += line;
        if line == 0 {
            return Ok(skipped);
        }
        if bytes > MAX_SKIPPED {
            return Err(io::Error::other("that line is too far into the file"));
        }
    }
    Ok(count)
}

enum More {
    Lines,
    Bytes,
}

struct Part {
    text: String,
    lines: usize,
    more: Option<More>,
}

fn read_lines(reader: &mut BufReader<File>, count: usize) -> io::Result<Part> {
    let mut bytes = Vec::new();
    let mut lines = 0;
    while lines < count {
        let room = MAX_READ - bytes.len();
        let before = bytes.len();
        let read = reader.take(room as u64).read_until(b'\n', &mut bytes)?;
        if read == 0 && room > 0 {
            break;
        }
        if bytes.last() == Some(&b'\n') && read > 0 {
            lines += 1;
        } else if read == room {
            // Half a line, unless the file ends here. A single line that is too long is all there is to show.
            if reader.fill_buf()?.is_empty() {
                break;
            }
            if before > 0 {
                bytes.truncate(before);
            } else {
                lines = 1;
            }
            return Ok(Part { text: text(bytes), lines, more: Some(More::Bytes) });
        }
    }
    let more = (lines == count && !reader.fill_buf()?.is_empty()).then_some(More::Lines);
    Ok(Part { text: text(bytes), lines, more })
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

struct Search {
    needle: String,
    end: Instant,
    matches: Vec<String>,
    files: usize,
    bytes: u64,
    limit: Option<&'static str>,
}

impl Search {
    fn new(pattern: &str, end: Instant) -> Self {
        Self { needle: pattern.to_lowercase(), end, matches: Vec::new(), files: 0, bytes: 0, limit: None }
    }

    /// Breadth first, without following links: they could lead in circles.
    fn directories(&mut self, shelf: &Shelf, start: &Path) -> io::Result<()> {
        let mut waiting = VecDeque::from([start.to_owned()]);
        let mut found = 1;
        while let Some(path) = waiting.pop_front() {
            if Instant::now() >= self.end {
                self.limit = Some(TOO_LONG);
                return Ok(());
            }
            let entries = match shelf.dir.read_dir(&path) {
                Ok(entries) => entries,
                Err(error) if path == start => return Err(error),
                Err(_) => continue,
            };
            let mut entries: Vec<_> = entries.flatten().take(MAX_SEARCHED_ENTRIES + 1).collect();
            let is_cut = entries.len() > MAX_SEARCHED_ENTRIES;
            entries.truncate(MAX_SEARCHED_ENTRIES);
            entries.sort_by_key(cap_std::fs::DirEntry::file_name);
            for entry in entries {
                let name = entry.file_name();
                let below = if path == Path::new(".") { PathBuf::from(&name) } else { path.join(&name) };
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && !LEFT_OUT.iter().any(|left_out| name == *left_out) => {
                        found += 1;
                        if found > MAX_DIRECTORIES {
                            self.limit = Some("too many directories to look into all of them");
                            return Ok(());
                        }
                        waiting.push_back(below);
                    }
                    Ok(kind) if kind.is_file() => self.file(shelf, &below),
                    _ => {}
                }
                if self.limit.is_some() {
                    return Ok(());
                }
            }
            if is_cut {
                self.limit = Some("a directory has too many entries to look at all of them");
                return Ok(());
            }
        }
        Ok(())
    }

    fn file(&mut self, shelf: &Shelf, path: &Path) {
        if Instant::now() >= self.end {
            self.limit = Some(TOO_LONG);
            return;
        }
        self.files += 1;
        if self.files > MAX_FILES || self.bytes > MAX_SEARCHED {
            self.limit = Some("too many files to look at all of them");
            return;
        }
        let Ok(file) = shelf.open_file(path) else { return };
        let mut bytes = Vec::new();
        if file.take(MAX_FILE).read_to_end(&mut bytes).is_err() || is_binary(&bytes) {
            return;
        }
        self.bytes += bytes.len() as u64;
        for (index, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            if !line.to_lowercase().contains(&self.needle) {
                continue;
            }
            if self.matches.len() == MAX_MATCHES {
                self.limit = Some("too many matches to show all of them");
                return;
            }
            let shown: String = line.trim().chars().take(MATCH_WIDTH).collect();
            self.matches.push(format!("{}:{}: {shown}", path.display(), index + 1));
        }
    }

    fn into_text(mut self, pattern: &str) -> String {
        if self.matches.is_empty() {
            self.matches.push(format!("no line contains `{pattern}`"));
        }
        if let Some(limit) = self.limit {
            self.matches.push(format!("[{limit}; search a subdirectory or a longer text]"));
        }
        self.matches.join("\n")
    }
}
