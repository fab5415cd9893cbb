//! Finding and reading the project, with the environment that only the program knows.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use lf_config::{LoadError, Loaded, Style};
use lf_core::Project;
use lf_core::operator::Operator;

use crate::args::Common;
use crate::exit::{Trouble, tell};

/// Reads the project that the options mean.
pub(crate) fn load(common: &Common) -> Result<Loaded, Trouble> {
    let path = path(common)?;
    lf_config::load(&path, variable).map_err(|error| trouble(&error))
}

/// Reads another file, or another text in the place of one.
pub(crate) fn load_other(path: &Path, text: Option<String>) -> Result<Loaded, Trouble> {
    let loaded = match text {
        Some(text) => lf_config::load_text(path, text, variable),
        None => lf_config::load(path, variable),
    };
    loaded.map_err(|error| trouble(&error))
}

/// Like [`load`], and tells warnings.
pub(crate) fn load_telling(common: &Common) -> Result<Loaded, Trouble> {
    let loaded = load(common)?;
    tell_warnings(&loaded);
    Ok(loaded)
}

pub(crate) fn tell_warnings(loaded: &Loaded) {
    let rendered = loaded.render_diagnostics(style());
    if !rendered.trim().is_empty() {
        tell(rendered.trim_end());
    }
}

/// The project for a daemon, which can do without one when there are stored projects.
pub(crate) fn load_if_any(common: &Common) -> Result<Option<Loaded>, Trouble> {
    let nothing_named = common.config.is_none();
    match lf_config::find(&directory(common)?) {
        Err(LoadError::NotFound { .. }) if nothing_named && data_dir(common).join("projects").is_dir() => {
            Ok(None)
        }
        _ => load_telling(common).map(Some),
    }
}

/// The project of the directory, where there is one.
pub(crate) fn load_if_there(common: &Common) -> Result<Option<Loaded>, Trouble> {
    match lf_config::find(&directory(common)?) {
        Err(LoadError::NotFound { .. }) if common.config.is_none() => Ok(None),
        _ => load(common).map(Some),
    }
}

/// The file that the options mean.
pub(crate) fn path(common: &Common) -> Result<PathBuf, Trouble> {
    match &common.config {
        Some(path) => Ok(path.clone()),
        None => lf_config::find(&directory(common)?).map_err(|error| trouble(&error)),
    }
}

/// Where relative paths of the command line start.
pub(crate) fn directory(common: &Common) -> Result<PathBuf, Trouble> {
    let given = common.cwd.clone().unwrap_or_else(|| PathBuf::from("."));
    given
        .canonicalize()
        .map_err(|error| Trouble::usage(format!("the directory {} cannot be used: {error}", given.display())))
}

pub(crate) fn data_dir(common: &Common) -> PathBuf {
    common.data_dir.clone().unwrap_or_else(|| {
        let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
        home.join(".llamafarm")
    })
}

/// What the operator says in the data directory. A daemon that does not know it must not run.
pub(crate) fn operator(data_dir: &Path) -> Result<Operator, Trouble> {
    lf_config::operator(data_dir).map_err(|error| trouble(&error))
}

/// Reads a project for the daemon. With `--locked`, one that its lock does not cover is as one with a mistake.
pub(crate) fn loader(common: &Common) -> lf_server::Loader {
    let locked = common.locked;
    Box::new(move |path: &Path| {
        let loaded = lf_config::load(path, variable)?;
        match why_unlocked(&loaded.project).filter(|_| locked) {
            Some(reason) => Err(lf_server::Broken::new(format!("`--locked`: {reason}"))),
            None => Ok(loaded.into()),
        }
    })
}

/// What of a project alone is not as in its lock, or that it has none.
pub(crate) fn why_unlocked(project: &Project) -> Option<String> {
    match project.pins.is_locked() {
        true => project.pins.unlocked().into_iter().next(),
        false => Some(format!("there is no {}", project.root.join(&project.pins.file).display())),
    }
}

fn plain(error: &LoadError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

pub(crate) fn style() -> Style {
    if std::io::stderr().is_terminal() { Style::Colour } else { Style::Plain }
}

fn trouble(error: &LoadError) -> Trouble {
    match error {
        LoadError::Rejected(rejected) => Trouble::diagnostics(rejected.render(style())),
        LoadError::NotFound { .. } => Trouble::usage(plain(error))
            .hint("`lf init` writes one; `--config FILE` and `--cwd DIR` name another place"),
        _ => Trouble::usage(plain(error)),
    }
}
