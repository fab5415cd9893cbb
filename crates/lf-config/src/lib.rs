//! `llamafarm.yaml`: text in, a [`Project`] or diagnostics out.
//!
//! Nothing here reads the environment of the process: variables come in through [`Variables`]. Only [`find`] and
//! [`load`] touch the file system.
//!
//! The way of a file: text → tree with positions (`node`) → modern shape (`shape`) → held against the schema
//! (`check`) → variables, names and defaults (`build`) → [`Project`]. Each step tells every mistake it sees, takes out
//! what is wrong and lets the next one go on with the rest, so that one run shows them all.

use std::path::Path;

pub use lf_core::{Project, Secret};

mod diagnostic;

mod node;

mod shape;

pub mod raw;

mod schema;

mod check;

mod variables;

mod build;

mod load;

mod lock;

mod show;

mod edit;

mod masked;

mod operator;

mod starter;

pub use diagnostic::{Diagnostic, Position, Rejected, Severity, Source, Span, Style, render_all};
pub use edit::{EditError, edit, has_comments, stored, write};
pub use load::{FILE_NAMES, LoadError, find, load, load_text, read};
pub use lock::{LockMistake, lock_path, parse_lock, read_lock, shown_pin, write_lock};
pub use masked::{mask, unmask};
pub use operator::{OPERATOR_FILE, operator};
pub use schema::schema;
pub use starter::{SCHEMA_FILE, init};
pub use variables::Variables;

/// A file without errors.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub project: Project,
    /// Warnings and notes, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// For rendering the diagnostics.
    pub source: Source,
    /// What the `.env` beside the file said, where there was one.
    pub dotenv: Option<Secret>,
    resolved: serde_json::Value,
}

impl Loaded {
    pub fn render_diagnostics(&self, style: Style) -> String {
        render_all(&self.diagnostics, &self.source, style)
    }
}

/// The text of a file into a project, or all that is wrong with it. `root` is the directory that relative paths start
/// from; it should be absolute.
pub fn parse(source: &Source, root: &Path, variables: &Variables<'_>) -> Result<Loaded, Rejected> {
    let mut report = diagnostic::Report::new(source);
    if source.text.len() > load::MAX_BYTES {
        report.general_error(format!("{} is larger than {} bytes", source.path.display(), load::MAX_BYTES));
        return Err(report.reject());
    }
    let tree = node::read(&mut report).and_then(|tree| shape::modernise(tree, root, &mut report));
    let Some(mut tree) = tree else {
        if !report.has_errors() {
            report.error(&(0..0), "the file is empty").hint("`lf init` writes one to start from");
        }
        return Err(report.reject());
    };
    let removed = check::structure(&mut tree, &mut report);
    let context =
        build::Context { directory: root, variables, removed: &removed, carried: Default::default() };
    let project = build::project(&tree, &context, &mut report);
    if report.has_errors() {
        return Err(report.reject());
    }
    let resolved = show::resolved(&tree, &project);
    Ok(Loaded { project, diagnostics: report.finish(), source: source.clone(), dotenv: None, resolved })
}

/// The resolved configuration as YAML: defaults filled in, secrets masked. For people; not meant to be read back.
pub fn show(loaded: &Loaded) -> String {
    show::yaml(&loaded.resolved, &loaded.project)
}

/// The same as a value, for `--json`.
pub fn show_value(loaded: &Loaded) -> &serde_json::Value {
    &loaded.resolved
}

#[cfg(test)]
mod tests;
