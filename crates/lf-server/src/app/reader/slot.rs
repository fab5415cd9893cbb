//! One project as it is kept: what is active of it, and how its files were at the last look.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use lf_core::Project;

use super::{ConfigStatus, Generation, Opened, QUIET, RefusedEdit};
use crate::app::disk;
use crate::app::generation::Broken;

pub(super) struct Slot {
    pub(super) active: Arc<Generation>,
    pub(super) refused: Option<Arc<RefusedEdit>>,
    /// Of the active generation.
    pub(super) text: Arc<str>,
    /// What was read last, right or not, and when it was found first.
    pub(super) last: Arc<str>,
    pub(super) last_read: Instant,
    /// How the files were when somebody asked, if that was not how they were at the last look, and since when.
    pub(super) changing: Option<(State, Instant)>,
    /// Counts what was found, so that an older look does not overtake a newer one.
    pub(super) looks: u64,
    /// The files may have changed after they were read, and before `state` was found.
    pub(super) is_unseen: bool,
    state: State,
    dotenv: Option<String>,
}

/// How the files that make a project are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct State {
    /// As it is named, links not followed. Empty for a project without a file.
    pub(super) path: PathBuf,
    /// `None` where there is nothing, or nothing that can be looked at.
    pub(super) file: Option<Mark>,
    pub(super) has_directory: bool,
    /// Variables come from it.
    dotenv: Option<Mark>,
    lock: Option<Mark>,
    approvals: Option<Mark>,
    /// What was approved, or waits for it.
    programs: Vec<(PathBuf, Option<Mark>)>,
}

/// Changes with a file's content, and with the file that a name means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::app) struct Mark {
    modified: SystemTime,
    /// Of the inode: seconds and nanoseconds. Unlike `modified`, nobody can set it back.
    changed: (i64, i64),
    size: u64,
    identity: (u64, u64),
}

pub(in crate::app) fn mark(path: &Path) -> Option<Mark> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Mark {
        modified: metadata.modified().ok()?,
        changed: (metadata.ctime(), metadata.ctime_nsec()),
        size: metadata.len(),
        identity: (metadata.dev(), metadata.ino()),
    })
}

impl State {
    pub(super) fn of(path: &Path, approvals: &Path, programs: Vec<PathBuf>) -> Self {
        Self {
            path: path.to_owned(),
            file: mark(path),
            has_directory: path.parent().is_some_and(Path::is_dir),
            dotenv: mark(&path.with_file_name(".env")),
            lock: mark(&lf_config::lock_path(path)),
            approvals: mark(approvals),
            programs: programs.into_iter().map(|path| (path.clone(), mark(&path))).collect(),
        }
    }

    pub(super) fn without_file(self) -> Self {
        Self { file: None, ..self }
    }

    /// The same with other programs.
    pub(super) fn with(self, programs: Vec<PathBuf>) -> Self {
        let programs = programs.into_iter().map(|path| (path.clone(), mark(&path))).collect();
        Self { programs, ..self }
    }

    /// How long until nothing of it was written for [`QUIET`], if that is not so already.
    pub(super) fn settles_in(&self, now: SystemTime) -> Option<Duration> {
        let marks = [self.file, self.dotenv, self.lock].into_iter().flatten();
        let ages = marks.map(|mark| now.duration_since(mark.modified).unwrap_or_default());
        let youngest = ages.min()?;
        QUIET.checked_sub(youngest).filter(|pause| !pause.is_zero())
    }

    /// Whether only approvals differ, which are never written in parts.
    fn has_the_files_of(&self, other: &Self) -> bool {
        let is_where_it_was = self.path == other.path && self.has_directory == other.has_directory;
        is_where_it_was && self.file == other.file && self.dotenv == other.dotenv && self.lock == other.lock
    }
}

impl Slot {
    pub(super) fn new(state: State, mut opened: Opened) -> Self {
        let text: Arc<str> = opened.text.as_str().into();
        let dotenv = opened.dotenv.take();
        Self {
            is_unseen: false,
            active: generation(1, opened).into(),
            refused: None,
            last: text.clone(),
            last_read: Instant::now(),
            text,
            changing: None,
            looks: 0,
            state,
            dotenv,
        }
    }

    pub(super) fn project(&self) -> &Arc<Project> {
        &self.active.project
    }

    pub(super) fn file(&self) -> &Path {
        &self.state.path
    }

    pub(super) fn programs(&self) -> Vec<PathBuf> {
        self.state.programs.iter().map(|(path, _)| path.clone()).collect()
    }

    pub(super) fn status(&self, is_main: bool) -> ConfigStatus {
        ConfigStatus {
            is_main,
            file: self.file().to_owned(),
            active: self.active.clone(),
            refused: self.refused.clone(),
        }
    }

    /// Whether nothing changed since the last look.
    pub(super) fn is_as(&self, state: &State) -> bool {
        !self.is_unseen && self.state == *state
    }

    /// Notes how the files are, where that is not how they were; gives since when they are so.
    pub(super) fn see(&mut self, state: &State, now: Instant) -> Instant {
        match &self.changing {
            Some((seen, since)) if seen == state => *since,
            _ => {
                self.changing = Some((state.clone(), now));
                now
            }
        }
    }

    /// Whether the files are as they were a while ago, as far as can be told by looking at them.
    pub(super) fn has_settled(&mut self, state: &State, now: Instant) -> bool {
        if state.has_the_files_of(&self.state) {
            return true;
        }
        let is_old = state.file.is_some() && state.settles_in(SystemTime::now()).is_none();
        is_old || now.duration_since(self.see(state, now)) >= QUIET
    }

    /// Makes what was read the active generation, and gives the one before; `None` where it says the same.
    pub(super) fn take(&mut self, state: State, mut opened: Opened) -> Option<Arc<Generation>> {
        let dotenv = opened.dotenv.take();
        let same = *self.text == *opened.text
            && self.dotenv == dotenv
            && self.active.project.root == opened.project.root
            && self.active.project.servers == opened.project.servers
            && self.active.project.models == opened.project.models
            && self.active.project.pins == opened.project.pins;
        self.looked(state);
        (self.refused, self.dotenv) = (None, dotenv);
        if same {
            return None;
        }
        self.text = opened.text.as_str().into();
        self.last = self.text.clone();
        let next = generation(self.active.number + 1, opened);
        Some(std::mem::replace(&mut self.active, next.into()))
    }

    /// Why a file is not taken that has lost what must not be lost by mistake: one that is being written, or was cut, may be
    /// right as far as it goes.
    pub(super) fn loses_all(&self, project: &Project) -> Option<Broken> {
        let now = self.project();
        if now.pins.is_locked() && !project.pins.is_locked() {
            let file = &now.pins.file;
            return Some(Broken::new(format!(
                "{file} is gone, and without it no tool would be held against anything; if that is meant, SIGHUP has it \
                 taken"
            )));
        }
        let loses = project.models.is_empty() && !now.models.is_empty();
        loses.then(|| {
            let had = now.models.len();
            Broken::new(format!(
                "the file has no `runtime.models` any more, where it had {had}, and may have been cut; if that is \
                 meant, SIGHUP has it taken"
            ))
        })
    }

    pub(super) fn refuse(&mut self, state: State, mut broken: Broken) {
        self.looked(state);
        if let Some(text) = broken.text.take() {
            self.note(&text);
        }
        self.refused = Some(RefusedEdit { at: SystemTime::now(), broken }.into());
    }

    /// Remembers what was read.
    pub(super) fn note(&mut self, text: &str) {
        if *self.last != *text {
            self.last = text.into();
            self.last_read = Instant::now();
        }
    }

    fn looked(&mut self, state: State) {
        self.state = state;
        self.is_unseen = false;
        self.changing = None;
        self.looks += 1;
    }
}

fn generation(number: u64, opened: Opened) -> Generation {
    Generation {
        number,
        hash: disk::revision(opened.text.as_bytes()),
        project: opened.project.into(),
        since: SystemTime::now(),
        diagnostics: opened.diagnostics,
    }
}
