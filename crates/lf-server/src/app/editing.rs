//! Stored projects through the API: shown with their secrets masked, changed without losing what a person wrote.

use std::path::Path;
use std::time::SystemTime;

use lf_config::{Diagnostic, Rejected, Source, Variables};
use lf_core::Principal;
use lf_core::audit::{Event, Record};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::disk;
use super::reader::Reader;

/// A project as its file is.
pub struct StoredProject {
    pub namespace: String,
    pub name: String,
    /// As it is written, secrets masked; null where the file cannot be read.
    pub config: Value,
    /// The first mistake of the file.
    pub validation_error: Option<String>,
    /// SHA-256 of the file.
    pub revision: String,
    pub modified: Option<SystemTime>,
}

/// What is to be in a file.
pub enum Wanted {
    Value(Value),
    /// YAML. One with comments becomes the new text; one without says only what the value is.
    Text(String),
}

/// What becomes of commands that are new in a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commands {
    /// They are written, and wait for an approval on the machine.
    Wait,
    /// Whoever writes may not write them.
    Refused,
}

/// Why a project was not shown or changed: one variant per status.
#[derive(Debug, Error)]
pub enum EditRefusal {
    #[error("project `{0}` does not exist")]
    NotFound(String),
    #[error("project `{0}` exists already")]
    Exists(String),
    #[error("project `{0}` has changed since it was read: read it again, and change that")]
    Changed(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    BadRequest(String),
    /// With one entry for each mistake.
    #[error("{message}")]
    Invalid { message: String, details: Vec<Value> },
    #[error("{0}")]
    Failed(String),
}

type Outcome<T> = Result<T, EditRefusal>;

/// A change that somebody makes, for the record.
pub(super) struct Edit {
    who: Principal,
    what: &'static str,
    project: String,
}

impl Edit {
    pub(super) fn new(who: &Principal, what: &'static str, (namespace, name): (&str, &str)) -> Self {
        Self { who: who.clone(), what, project: format!("{namespace}/{name}") }
    }
}

impl Reader {
    /// Makes a change, and puts on record who did, or what was in the way.
    pub(super) fn on_record<T>(&self, edit: Edit, make: impl FnOnce(&Self) -> Outcome<T>) -> Outcome<T> {
        let made = make(self);
        let Edit { who, what, project } = edit;
        let record = Record { project: Some(project), ..Record::new(Event::Configuration) }.of(&who);
        self.audit.record(match &made {
            Ok(_) => Record { outcome: Some(what), ..record },
            Err(refusal) => Record { outcome: Some("refused"), ..record }.detail(&refusal.to_string()),
        });
        made
    }

    /// The projects of one namespace, or of all.
    pub(super) fn list(&self, namespace: Option<&str>) -> Vec<StoredProject> {
        let mut found: Vec<StoredProject> = self
            .directories()
            .iter()
            .filter_map(|directory| {
                let name = directory.file_name()?.to_str()?;
                let of = directory.parent()?.file_name()?.to_str()?;
                self.show(of, name).ok()
            })
            .chain(self.main().iter().filter_map(|main| self.show(&main.namespace, &main.name).ok()))
            .filter(|project| namespace.is_none_or(|namespace| namespace == project.namespace))
            .collect();
        found.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        found.dedup_by(|one, other| (&one.namespace, &one.name) == (&other.namespace, &other.name));
        found
    }

    pub(super) fn show(&self, namespace: &str, name: &str) -> Outcome<StoredProject> {
        let full = format!("{namespace}/{name}");
        let unknown = || EditRefusal::NotFound(full.clone());
        let (directory, path) = match self.is_main(namespace, name) {
            Some(main) => (main.root.clone(), self.main_file().or_else(|| disk::file_in(&main.root))),
            None => {
                let directory = disk::place(&self.data_dir, namespace, name).ok_or_else(unknown)?;
                (directory.clone(), disk::file_in(&directory))
            }
        };
        let path = path.ok_or_else(unknown)?;
        let source = read(&path)?;
        let mut config = lf_config::stored(&source).unwrap_or_default();
        lf_config::mask(&mut config);
        let checked = lf_config::parse(&source, &directory, &Variables::none());
        Ok(StoredProject {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            config,
            validation_error: checked.err().map(|rejected| rejected.summary()),
            revision: disk::revision(source.text.as_bytes()),
            modified: path.metadata().and_then(|metadata| metadata.modified()).ok(),
        })
    }

    pub(super) fn create(
        &self,
        namespace: &str,
        name: &str,
        config: Option<Wanted>,
        commands: Commands,
    ) -> Outcome<StoredProject> {
        let full = format!("{namespace}/{name}");
        self.refuse_main(namespace, name)?;
        let directory = disk::place(&self.data_dir, namespace, name).ok_or_else(|| {
            EditRefusal::BadRequest(format!(
                "`{full}` is no name of a project: letters, digits, `.`, `_` and `-`, at most 63 each"
            ))
        })?;
        let _lock = disk::lock(&self.data_dir)?;
        if disk::FILES.iter().any(|file| directory.join(file).symlink_metadata().is_ok()) {
            return Err(EditRefusal::Exists(full));
        }
        let path = directory.join(disk::FILES[0]);
        let source = Source { path: file_name(&path), text: String::new() };
        let is_first = config.is_none();
        let text = match config {
            None => lf_config::init(name, namespace),
            Some(wanted) => new_text(&source, &Value::Null, wanted, (namespace, name))?,
        };
        // the project of `lf init` starts nothing that is not in this program
        let commands = if is_first { Commands::Wait } else { commands };
        self.store(&path, &text, &Value::Null, (namespace, name), commands)?;
        self.show(namespace, name)
    }

    /// `revision`: of the file that the caller has seen.
    pub(super) fn replace(
        &self,
        namespace: &str,
        name: &str,
        wanted: Wanted,
        revision: Option<&str>,
        commands: Commands,
    ) -> Outcome<StoredProject> {
        let full = format!("{namespace}/{name}");
        self.refuse_main(namespace, name)?;
        let _lock = disk::lock(&self.data_dir)?;
        let directory = disk::place(&self.data_dir, namespace, name);
        let path = directory.as_deref().and_then(disk::file_in);
        let path = path.ok_or_else(|| EditRefusal::NotFound(full.clone()))?;
        let mut source = read(&path)?;
        if revision.is_some_and(|revision| revision != disk::revision(source.text.as_bytes())) {
            return Err(EditRefusal::Changed(full));
        }
        source.path = file_name(&path);
        let stored = lf_config::stored(&source).unwrap_or_default();
        let text = new_text(&source, &stored, wanted, (namespace, name))?;
        // an editor may have saved while this was being worked out
        if read(&path)?.text != source.text {
            return Err(EditRefusal::Changed(full));
        }
        if text != source.text {
            self.store(&path, &text, &stored, (namespace, name), commands)?;
        }
        self.show(namespace, name)
    }

    /// Moves a project to `trash` in the data directory, and ends its sessions.
    pub(super) fn remove(&self, namespace: &str, name: &str) -> Outcome<()> {
        let full = format!("{namespace}/{name}");
        self.refuse_main(namespace, name)?;
        let _lock = disk::lock(&self.data_dir)?;
        let directory = disk::place(&self.data_dir, namespace, name).filter(|path| path.is_dir());
        let directory = directory.ok_or_else(|| EditRefusal::NotFound(full.clone()))?;
        let trash = self.data_dir.join("trash");
        std::fs::create_dir_all(&trash)?;
        let place = trash.join(format!("{namespace}.{name}.{}", uuid::Uuid::now_v7().simple()));
        std::fs::rename(&directory, place)?;
        self.forget(&directory);
        self.approvals.forget(&full).map_err(EditRefusal::Failed)
    }

    /// Checks the text, holds back what is new in it and wants an approval, and only then writes it.
    fn store(
        &self,
        path: &Path,
        text: &str,
        old: &Value,
        (namespace, name): (&str, &str),
        commands: Commands,
    ) -> Outcome<()> {
        let directory = path.parent().unwrap_or(path);
        let source = Source { path: file_name(path), text: text.to_owned() };
        let loaded = lf_config::parse(&source, directory, &Variables::none())?;
        let new = lf_config::stored(&source)?;
        let changed: Vec<String> = loaded
            .project
            .servers
            .keys()
            .filter(|server| spawned(old, server).is_none_or(|then| Some(then) != spawned(&new, server)))
            .cloned()
            .collect();
        if let (Commands::Refused, Some(server)) = (commands, changed.iter().find(|it| is_command(&new, it)))
        {
            return Err(EditRefusal::Forbidden(format!(
                "MCP server `{server}` would start a command: to write that needs the scope `config:exec`"
            )));
        }
        let before = self.as_written(path);
        self.approvals
            .require(&format!("{namespace}/{name}"), &changed, before.as_ref())
            .map_err(EditRefusal::Failed)?;
        std::fs::create_dir_all(directory)?;
        if let Ok(before) = std::fs::read_to_string(path) {
            let mut backup = path.to_owned().into_os_string();
            backup.push(".bak");
            disk::write(Path::new(&backup), &before)?;
        }
        disk::write(path, text)?;
        // takes down what the project no longer has
        if let Some(Err(error)) = self.read_written(directory) {
            tracing::warn!(error, "a project was written and cannot be loaded");
        }
        Ok(())
    }

    fn refuse_main(&self, namespace: &str, name: &str) -> Outcome<()> {
        match self.is_main(namespace, name) {
            Some(main) => Err(EditRefusal::Forbidden(format!(
                "`{namespace}/{name}` is the project that `lf serve` was started in: edit the file in {}",
                main.root.display()
            ))),
            None => Ok(()),
        }
    }
}

/// The text that says what is wanted.
fn new_text(
    source: &Source,
    stored: &Value,
    wanted: Wanted,
    (namespace, name): (&str, &str),
) -> Outcome<String> {
    let (mut value, base) = match wanted {
        Wanted::Value(value) => (value, None),
        Wanted::Text(text) => {
            let given = Source { path: "llamafarm.yaml".into(), text };
            let value = lf_config::stored(&given)?;
            (value, lf_config::has_comments(&given.text).then_some(given))
        }
    };
    let Some(map) = value.as_object_mut() else {
        return Err(EditRefusal::BadRequest("a configuration is a mapping".to_owned()));
    };
    // a project is what its address says
    for (key, text) in [("name", name), ("namespace", namespace)] {
        map.insert(key.to_owned(), text.into());
    }
    lf_config::unmask(&mut value, stored).map_err(|path| EditRefusal::Invalid {
        message: format!(
            "`{}` is a mask that stands for nothing stored, or its entry goes elsewhere now: give the value",
            path.trim_start_matches('.')
        ),
        details: Vec::new(),
    })?;
    let base = base.as_ref().unwrap_or(source);
    let text = if lf_config::stored(base).is_ok_and(|value| value.is_object()) {
        lf_config::edit(base, &value)
    } else {
        lf_config::write(&value)
    };
    text.map_err(|error| EditRefusal::BadRequest(error.to_string()))
}

/// What of an entry decides which process it becomes, as it is written.
pub(super) fn spawned(config: &Value, server: &str) -> Option<Map<String, Value>> {
    let entry = match config.get("mcp")?.get("servers")? {
        Value::Array(list) => list.iter().find(|entry| entry["name"] == server)?,
        Value::Object(map) => map.get(server)?,
        _ => return None,
    };
    let keys = ["transport", "command", "args", "env", "cwd", "inherit_env", "sandbox", "limits"];
    Some(keys.iter().filter_map(|key| Some(((*key).to_owned(), entry.get(*key)?.clone()))).collect())
}

/// Whether an entry is, or may become, a command: only what is plainly at a URL is none.
fn is_command(config: &Value, server: &str) -> bool {
    let transport = spawned(config, server).and_then(|mut entry| entry.remove("transport"));
    !transport.is_some_and(|transport| transport == "http" || transport == "sse")
}

pub(super) fn read(path: &Path) -> Outcome<Source> {
    let text = lf_config::read(path).map_err(|error| EditRefusal::Failed(error.to_string()))?;
    Ok(Source { path: file_name(path), text })
}

/// Clients need not know where the file is.
fn file_name(path: &Path) -> std::path::PathBuf {
    path.file_name().map_or_else(|| path.to_owned(), Into::into)
}

impl From<std::io::Error> for EditRefusal {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(format!("the project's files cannot be written: {error}"))
    }
}

impl From<Rejected> for EditRefusal {
    fn from(rejected: Rejected) -> Self {
        let details = rejected.diagnostics.iter().map(diagnostic).collect();
        Self::Invalid { message: rejected.summary(), details }
    }
}

pub(crate) fn diagnostic(one: &Diagnostic) -> Value {
    json!({
        "severity": one.severity.name(),
        "message": one.message,
        "line": one.position.map(|position| position.line),
        "column": one.position.map(|position| position.column),
        "hint": one.hint,
    })
}
