//! Recording a turn: a second journal, which is a cassette. What cannot be recorded costs the recording and never the turn.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use lf_core::secret::without;
use lf_core::turn::{Entry, Setup, cassette};
use lf_core::{BoxFuture, Journal, JournalError, Project};
use lf_models::replay::CASSETTE_LIMIT;
use serde_json::{Map, Value};

use crate::app::App;

/// A cassette that is being written: whole lines, each batch of them in one write, so that a crash leaves no half of one.
/// Dropped before anything was written, it leaves no file.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    /// `None` once it could not be written, or would be too long.
    file: Option<std::fs::File>,
    /// Lines that are to be written.
    lines: String,
    written: u64,
    hidden: Hidden,
}

/// What of a project is in no cassette.
#[derive(Debug, Default)]
struct Hidden {
    /// As they are, and as they stand in JSON: arguments are JSON in a text.
    secrets: Vec<String>,
    /// By which a line is known that may hold one.
    marks: Vec<String>,
    /// Fields that the file adds to requests: some gateways want keys there.
    fields: Vec<String>,
}

impl Recording {
    /// Makes the file, for its owner alone.
    ///
    /// # Errors
    /// Also when there is a file: none is written over.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file: Some(file),
            lines: String::new(),
            written: 0,
            hidden: Hidden::default(),
        })
    }

    /// Leaves out what the project holds of secrets.
    fn of(mut self, project: &Project) -> Self {
        self.hidden = Hidden::of(project);
        self
    }

    /// The next entry.
    pub fn append(&mut self, entry: &Entry) {
        if self.file.is_none() {
            return;
        }
        if let Entry::Begun(setup) = entry {
            self.add(&cassette::label(setup));
        }
        let line = self.hidden.line(entry);
        self.add(&line);
        if self.written + self.lines.len() as u64 > CASSETTE_LIMIT {
            self.give_up(&format!("a cassette has at most {CASSETTE_LIMIT} bytes"));
        }
    }

    fn add(&mut self, line: &str) {
        self.lines.push_str(line);
        self.lines.push('\n');
    }

    /// Writes what was appended.
    pub fn write(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let Some(file) = self.file.as_mut().filter(|_| !lines.is_empty()) else { return };
        match file.write_all(lines.as_bytes()) {
            Ok(()) => self.written += lines.len() as u64,
            Err(error) => {
                // half a line is worse than none
                let _ = file.set_len(self.written);
                self.give_up(&error.to_string());
            }
        }
    }

    /// Why the recording is not whole is said once, to whoever asked for it.
    fn give_up(&mut self, reason: &str) {
        let path = self.path.display();
        tracing::error!(%path, reason, "the turn goes on, and is not recorded any further");
        self.file = None;
        self.lines.clear();
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // a turn that never began is none
        if self.written > 0 {
            self.write();
        }
        if self.written == 0 && self.file.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Journal for Recording {
    fn append(&mut self, entry: &Entry) {
        Self::append(self, entry);
    }

    /// A write to a local file, which the system takes at once: no disk is waited for.
    fn flush(&mut self) -> BoxFuture<'_, Result<(), JournalError>> {
        self.write();
        Box::pin(std::future::ready(Ok(())))
    }
}

impl App {
    /// The recording of a turn that begins: the one that was asked for, or this daemon's own.
    pub(crate) fn recording(
        &self,
        project: &Project,
        setup: &Setup,
        asked: Option<Recording>,
    ) -> Option<Recording> {
        let mut recording = asked.or_else(|| self.own_recording(&setup.id))?.of(project);
        recording.append(&Entry::Begun(Box::new(setup.clone())));
        Some(recording)
    }

    fn own_recording(&self, turn: &str) -> Option<Recording> {
        let path = self.recordings.as_ref()?.join(format!("{turn}.jsonl"));
        Recording::create(&path)
            .inspect_err(|error| tracing::error!(path = %path.display(), %error, "a turn is not recorded"))
            .ok()
    }
}

/// A journal that is recorded as well. The recording has nothing that is not kept.
pub(crate) struct Recorded {
    pub kept: Box<dyn Journal>,
    pub recording: Recording,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.recording.lines.clear();
    }
}

impl Journal for Recorded {
    fn append(&mut self, entry: &Entry) {
        self.kept.append(entry);
        self.recording.append(entry);
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            self.kept.flush().await?;
            self.recording.write();
            Ok(())
        })
    }
}

impl Hidden {
    fn of(project: &Project) -> Self {
        let models = || project.models.values().flatten();
        let of_models = models().flat_map(|model| model.secrets());
        let servers = project.servers.values().flatten();
        let secrets = of_models.chain(servers.flat_map(|server| lf_mcp::secrets_of(server)));
        let fields = models().flat_map(|model| model.extra_body.keys().cloned());
        let mut secrets: Vec<String> =
            secrets.flat_map(|secret| secret.forms()).map(|form| form.expose().to_owned()).collect();
        // the longer first: one may hold another
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        let marks = secrets.iter().map(|secret| in_json(secret)).collect();
        Self { secrets, marks, fields: fields.collect() }
    }

    fn line(&self, entry: &Entry) -> String {
        let line = match entry {
            Entry::Begun(setup) if self.hides(&setup.request.parameters) => {
                let mut setup = setup.clone();
                self.take_out(&mut setup.request.parameters);
                cassette::line(&Entry::Begun(setup))
            }
            Entry::StoodIn(stand_in) if self.hides(&stand_in.parameters) => {
                let mut stand_in = stand_in.clone();
                self.take_out(&mut stand_in.parameters);
                cassette::line(&Entry::StoodIn(stand_in))
            }
            entry => cassette::line(entry),
        };
        if !self.marks.iter().any(|mark| line.contains(mark)) {
            return line;
        }
        // in the texts alone: what else a line consists of has to stay what it is
        match serde_json::from_str(&line) {
            Ok(mut value) => {
                self.clean(&mut value);
                value.to_string()
            }
            Err(_) => without(&line, &self.marks.iter().map(String::as_str).collect::<Vec<_>>()),
        }
    }

    fn clean(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                let secrets: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
                *text = without(text, &secrets);
            }
            Value::Array(list) => list.iter_mut().for_each(|item| self.clean(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.clean(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn hides(&self, parameters: &Map<String, Value>) -> bool {
        self.fields.iter().any(|field| parameters.contains_key(field))
    }

    fn take_out(&self, parameters: &mut Map<String, Value>) {
        parameters.retain(|field, _| !self.fields.contains(field));
    }
}

fn in_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests;
