//! Generations of a project: each is its file as it was read once, whole. Requests keep the one that they began with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use lf_config::{Diagnostic, LoadError, Loaded, Severity};
use lf_core::Project;

use super::disk;

/// A file that is right, as it was read.
#[derive(Debug, Clone)]
pub struct Opened {
    pub project: Project,
    /// Where it is; a project without a file is never read again.
    pub path: Option<PathBuf>,
    pub text: String,
    /// SHA-256 of the `.env` that was read with it.
    pub dotenv: Option<String>,
    /// Warnings and notes.
    pub diagnostics: Vec<Diagnostic>,
}

impl From<Loaded> for Opened {
    fn from(loaded: Loaded) -> Self {
        let Loaded { project, diagnostics, source, dotenv, .. } = loaded;
        let dotenv = dotenv.map(|text| disk::revision(text.expose().as_bytes()));
        Self { project, path: Some(source.path), text: source.text, dotenv, diagnostics }
    }
}

impl From<Project> for Opened {
    fn from(project: Project) -> Self {
        Self { project, path: None, text: String::new(), dotenv: None, diagnostics: Vec::new() }
    }
}

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Broken {
    /// One line, for clients and logs: without lines of the file, which may hold secrets.
    pub reason: String,
    /// Empty where the file could not be read at all.
    pub diagnostics: Vec<Diagnostic>,
    /// What the file says, where it could be read.
    pub(crate) text: Option<String>,
}

impl Broken {
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), diagnostics: Vec::new(), text: None }
    }

    /// The first mistake.
    pub(crate) fn error(&self) -> Option<&Diagnostic> {
        self.diagnostics.iter().find(|one| one.severity == Severity::Error)
    }
}

impl From<LoadError> for Broken {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Rejected(rejected) => {
                let reason = rejected.summary();
                let text = Some(rejected.source_file.text);
                Self { reason, diagnostics: rejected.diagnostics, text }
            }
            error => Self::new(match std::error::Error::source(&error) {
                Some(source) => format!("{error}: {source}"),
                None => error.to_string(),
            }),
        }
    }
}

/// What requests are answered with from some time on.
#[derive(Debug)]
pub struct Generation {
    /// From 1, counted by each daemon for each project.
    pub number: u64,
    pub project: Arc<Project>,
    /// SHA-256 of the file.
    pub hash: String,
    pub since: SystemTime,
    /// Warnings and notes.
    pub diagnostics: Vec<Diagnostic>,
}

/// An edit of which nothing was taken.
#[derive(Debug)]
pub struct RefusedEdit {
    pub at: SystemTime,
    pub broken: Broken,
}

/// Where a project stands.
#[derive(Debug, Clone)]
pub struct ConfigStatus {
    /// Whether the program was started in it.
    pub is_main: bool,
    pub file: PathBuf,
    pub active: Arc<Generation>,
    /// What the file is now, where that cannot be used.
    pub refused: Option<Arc<RefusedEdit>>,
}
