//! How far a project is trusted: what is held back of it, and what a person approves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lf_core::Project;
use serde_json::Value;

use super::{Key, Reader};
use crate::app::EditRefusal;
use crate::app::approvals::Pending;
use crate::app::disk::{file_in, place};
use crate::app::editing::{read, spawned};

impl Reader {
    /// What becomes of a project after it was read. Gives the programs that were looked at for it.
    pub(super) fn finish(&self, key: &Key, project: &mut Project) -> Vec<PathBuf> {
        match key {
            // a stored project is no more trusted for being the working directory
            Key::Main if !self.is_stored(project) => {
                self.approvals.hold_back_main(project);
                return Vec::new();
            }
            Key::Main => {}
            // a stored project is what its directory says, as every route names it
            Key::Stored(directory) => {
                let name = |directory: Option<&Path>| {
                    let name = directory.and_then(Path::file_name);
                    name.map(|name| name.to_string_lossy().into_owned())
                };
                project.name = name(Some(directory)).unwrap_or_else(|| project.name.clone());
                project.namespace = name(directory.parent()).unwrap_or_else(|| project.namespace.clone());
            }
        }
        self.approvals.hold_back(project)
    }

    fn is_stored(&self, project: &Project) -> bool {
        let stored = place(&self.data_dir, &project.namespace, &project.name);
        stored.and_then(|path| path.canonicalize().ok()).is_some_and(|stored| stored == project.root)
    }

    /// What of a project waits for an approval.
    pub(in crate::app) fn pending(&self, namespace: &str, name: &str) -> Result<Pending, EditRefusal> {
        if let Some(main) = self.main_elsewhere(namespace, name) {
            return self.approvals.pending_of_main(&main).map_err(EditRefusal::Failed);
        }
        let unknown = || EditRefusal::NotFound(format!("{namespace}/{name}"));
        let directory = place(&self.data_dir, namespace, name).ok_or_else(unknown)?;
        let path = file_in(&directory).ok_or_else(unknown)?;
        let opened = (self.loader)(&path).map_err(|broken| EditRefusal::Failed(broken.reason))?;
        let mut project = opened.project;
        (project.namespace, project.name) = (namespace.to_owned(), name.to_owned());
        let mut pending = self.approvals.pending(&project).map_err(EditRefusal::Failed)?;
        let written = read(&path).and_then(|source| Ok(lf_config::stored(&source)?))?;
        for command in &mut pending.commands {
            let entry = spawned(&written, &command.server).unwrap_or_default();
            let text = |name: &str| match entry.get("env").and_then(|env| env.get(name)) {
                Some(Value::String(text)) => text.clone(),
                other => other.map(Value::to_string).unwrap_or_default(),
            };
            let names = command.stdio.env.iter().map(|(name, _)| name);
            command.environment = names.map(|name| (name.clone(), text(name))).collect();
        }
        Ok(pending)
    }

    pub(in crate::app) fn approve(
        &self,
        namespace: &str,
        name: &str,
        pending: &Pending,
    ) -> Result<(), EditRefusal> {
        let approved = match self.main_elsewhere(namespace, name) {
            Some(main) => self.approvals.approve_main(&main, pending),
            None => self.approvals.approve(&format!("{namespace}/{name}"), pending),
        };
        approved.map_err(EditRefusal::Failed)
    }

    /// The project that the program was started in, where that is not a stored one.
    fn main_elsewhere(&self, namespace: &str, name: &str) -> Option<Arc<Project>> {
        self.is_main(namespace, name).filter(|main| !self.is_stored(main))
    }

    /// A project as its file says, before anything of it is held back.
    pub(in crate::app) fn as_written(&self, path: &Path) -> Option<Project> {
        (self.loader)(path).ok().map(|opened| opened.project)
    }
}
