//! Which commands may run that came through the API, and what projects may take out of the environment: what a person
//! approved on this machine.
//!
//! Kept outside of the projects' files, so that nobody who writes those can approve anything. A server that the API has
//! never written is not listed here and is trusted as its file is.

mod granted;
mod storage;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lf_core::Project;
use lf_core::operator::Operator;
use lf_core::project::{Carried, Disabled, ProcessLimits, Sandbox, SandboxNetwork, StdioServer, Transport};
use lf_mcp::SessionPool;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::disk;
use super::reader::{Mark, mark};
use granted::{AtStart, Granted, Grants, grants_of};
pub use storage::storage_of;

pub(super) struct Approvals {
    data_dir: PathBuf,
    pool: SessionPool,
    operator: Arc<Operator>,
    /// What the project that the program was started in asked for then.
    at_start: OnceLock<AtStart>,
    /// Of programs, which are large.
    hashes: Mutex<HashMap<PathBuf, (Mark, String)>>,
}

#[derive(Default, Serialize, Deserialize)]
struct Stored {
    version: u32,
    /// By project and server: the fingerprint that was approved, if any.
    projects: BTreeMap<String, BTreeMap<String, Option<String>>>,
    /// What the entries of a project may take along, for those that the API has written or a person was asked about.
    #[serde(default)]
    secrets: BTreeMap<String, Grants>,
}

impl Stored {
    /// `None` for a project that is trusted as its file is.
    fn grants(&self, full: &str) -> Option<Grants> {
        let written = self.projects.contains_key(full).then(Grants::default);
        self.secrets.get(full).cloned().or(written)
    }
}

/// What waits for a person's word.
#[derive(Debug, Clone, Default)]
pub struct Pending {
    pub commands: Vec<Command>,
    pub secrets: Vec<Carried>,
}

impl Pending {
    pub fn len(&self) -> usize {
        self.commands.len() + self.secrets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a person approves.
#[derive(Debug, Clone)]
pub struct Command {
    pub server: String,
    pub fingerprint: String,
    /// `None` where there is no such program.
    pub program: Option<PathBuf>,
    pub program_hash: Option<String>,
    pub stdio: StdioServer,
    /// Its `env` where it waits for an approval, with variables as the file names them: a value may be what makes a
    /// harmless program another one.
    pub environment: Vec<(String, String)>,
}

impl Approvals {
    pub(super) fn new(data_dir: PathBuf, pool: SessionPool, operator: Arc<Operator>) -> Self {
        Self { data_dir, pool, operator, at_start: OnceLock::new(), hashes: Mutex::default() }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.data_dir.join("approvals.json")
    }

    fn read(&self) -> Result<Stored, String> {
        read(&self.path())
    }

    /// With the lock of [`disk::lock`] held.
    fn write(&self, stored: &Stored) -> Result<(), String> {
        let text = serde_json::to_string_pretty(stored).map_err(|error| error.to_string())?;
        disk::write(&self.path(), &text).map_err(|error| error.to_string())
    }

    /// Takes out of a stored project what is not approved: commands, and what takes along what it may not. What cannot be
    /// read approves nothing. Gives the programs that were looked at.
    pub(super) fn hold_back(&self, project: &mut Project) -> Vec<PathBuf> {
        let full = full(project);
        let stored = self.read();
        let programs = self.hold_back_commands(project, &full, &stored);
        self.of_stored(&full, &stored).hold_back(project);
        programs
    }

    /// The same for the project that the program was started in, which is trusted as it was when this was first asked.
    pub(super) fn hold_back_main(&self, project: &mut Project) {
        self.at_start.get_or_init(|| AtStart::of(project));
        self.of_main(project, &self.read()).hold_back(project);
    }

    fn of_stored(&self, full: &str, stored: &Result<Stored, String>) -> Granted<'_> {
        let grants = stored.as_ref().map(|stored| stored.grants(full)).map_err(String::clone);
        let may_connect = matches!(grants, Ok(None));
        Granted { operator: &self.operator, grants, may_connect }
    }

    fn of_main(&self, project: &Project, stored: &Result<Stored, String>) -> Granted<'_> {
        let mut grants = self.at_start.get().map(|start| start.grants_for(project)).unwrap_or_default();
        let approved = stored.as_ref().ok().and_then(|stored| stored.secrets.get(&file_of(project)));
        grants.extend(approved.into_iter().flatten().cloned());
        Granted { operator: &self.operator, grants: Ok(Some(grants)), may_connect: true }
    }

    fn hold_back_commands(
        &self,
        project: &mut Project,
        full: &str,
        stored: &Result<Stored, String>,
    ) -> Vec<PathBuf> {
        let mut programs = Vec::new();
        for (name, server) in &mut project.servers {
            let Ok(server_entry) = server else { continue };
            let Transport::Stdio(stdio) = &server_entry.transport else { continue };
            let reason = match stored {
                Err(error) => format!("the approvals cannot be read: {error}"),
                Ok(stored) => {
                    let Some(approved) = stored.projects.get(full).and_then(|servers| servers.get(name))
                    else {
                        continue;
                    };
                    let command = self.command(name, stdio);
                    programs.extend(command.program);
                    if approved.as_ref() == Some(&command.fingerprint) {
                        // also for starts to come, which may be long after this look
                        let pinned = StdioServer { pin: command.program_hash, ..stdio.clone() };
                        let mut server_entry = lf_core::McpServer::clone(server_entry);
                        server_entry.transport = Transport::Stdio(pinned);
                        *server = Ok(server_entry.into());
                        continue;
                    }
                    format!("not approved: run `lf config approve {full}`")
                }
            };
            *server = Err(Disabled { reason });
        }
        programs
    }

    /// What waits for an approval; `project` as its file says.
    pub(super) fn pending(&self, project: &Project) -> Result<Pending, String> {
        let full = full(project);
        let stored = self.read()?;
        let commands = self.pending_commands(project, stored.projects.get(&full));
        Ok(Pending { commands, secrets: self.of_stored(&full, &Ok(stored)).pending(project) })
    }

    /// What the project that the program was started in asks for and was never approved, whether or not it was trusted
    /// at the start.
    pub(super) fn pending_of_main(&self, project: &Project) -> Result<Pending, String> {
        let grants = Some(self.read()?.secrets.remove(&file_of(project)).unwrap_or_default());
        let granted = Granted { operator: &self.operator, grants: Ok(grants), may_connect: true };
        Ok(Pending { commands: Vec::new(), secrets: granted.pending(project) })
    }

    fn pending_commands(
        &self,
        project: &Project,
        servers: Option<&BTreeMap<String, Option<String>>>,
    ) -> Vec<Command> {
        let Some(servers) = servers else { return Vec::new() };
        let commands = project.servers.iter().filter_map(|(name, server)| {
            let Transport::Stdio(stdio) = &server.as_ref().ok()?.transport else { return None };
            let approved = servers.get(name)?;
            let command = self.command(name, stdio);
            (approved.as_ref() != Some(&command.fingerprint)).then_some(command)
        });
        commands.collect()
    }

    /// From now on these servers of a project need an approval, also those that had one, and what its entries take along
    /// needs one. `before`: the project as its file was, which was trusted until now.
    pub(super) fn require(
        &self,
        full: &str,
        servers: &[String],
        before: Option<&Project>,
    ) -> Result<(), String> {
        let mut stored = self.read()?;
        if stored.grants(full).is_none() {
            stored.secrets.insert(full.to_owned(), before.map(grants_of).unwrap_or_default());
        }
        let entry = stored.projects.entry(full.to_owned()).or_default();
        servers.iter().for_each(|server| drop(entry.insert(server.clone(), None)));
        stored.version = 1;
        self.write(&stored)
    }

    pub(super) fn approve(&self, full: &str, pending: &Pending) -> Result<(), String> {
        let _lock = disk::lock(&self.data_dir).map_err(|error| error.to_string())?;
        let mut stored = self.read()?;
        for command in &pending.commands {
            let entry = stored.projects.entry(full.to_owned()).or_default();
            entry.insert(command.server.clone(), Some(command.fingerprint.clone()));
        }
        Self::grant(&mut stored, full, pending);
        self.write(&stored)
    }

    /// The same for the project that the program was started in.
    pub(super) fn approve_main(&self, project: &Project, pending: &Pending) -> Result<(), String> {
        let _lock = disk::lock(&self.data_dir).map_err(|error| error.to_string())?;
        let mut stored = self.read()?;
        Self::grant(&mut stored, &file_of(project), pending);
        self.write(&stored)
    }

    fn grant(stored: &mut Stored, key: &str, pending: &Pending) {
        stored.version = 1;
        if !pending.secrets.is_empty() {
            let granted = stored.secrets.entry(key.to_owned()).or_default();
            granted.extend(pending.secrets.iter().map(Carried::grant));
        }
    }

    /// After a project is gone.
    pub(super) fn forget(&self, full: &str) -> Result<(), String> {
        let mut stored = self.read()?;
        match (stored.projects.remove(full), stored.secrets.remove(full)) {
            (None, None) => Ok(()),
            _ => self.write(&stored),
        }
    }

    fn command(&self, server: &str, stdio: &StdioServer) -> Command {
        let program = self.pool.program_of(stdio);
        // this program is what it is
        let own = stdio.command == "lf";
        let program_hash = program.as_deref().filter(|_| !own).and_then(|program| self.hash(program));
        let mut names: Vec<&str> = stdio.env.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let arguments: Vec<&str> = stdio.args.iter().map(lf_core::Secret::expose).collect();
        let mut what: Value = json!({
            "command": stdio.command,
            "args": arguments,
            "env": names,
            "inherit_env": stdio.inherit_env,
            "cwd": stdio.cwd,
            "program": program.as_ref().filter(|_| !own),
            "program_hash": program_hash,
        });
        // what was approved before there were sandboxes stays so, and what has the usual limits
        if stdio.sandbox != Sandbox::default() {
            what["sandbox"] = sandbox(&stdio.sandbox);
        }
        if stdio.limits != ProcessLimits::default() {
            what["limits"] = json!({"memory": stdio.limits.memory, "processes": stdio.limits.processes});
        }
        let fingerprint = disk::revision(what.to_string().as_bytes());
        let (server, stdio, environment) = (server.to_owned(), stdio.clone(), Vec::new());
        Command { server, fingerprint, program, program_hash, stdio, environment }
    }

    fn hash(&self, program: &Path) -> Option<String> {
        let now = mark(program)?;
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, hash)) = hashes.get(program).filter(|(then, _)| *then == now) {
            return Some(hash.clone());
        }
        let hash = disk::hash_of(program).ok()?;
        hashes.insert(program.to_owned(), (now, hash.clone()));
        Some(hash)
    }
}

/// All that a person agrees to when they approve a command.
fn sandbox(sandbox: &Sandbox) -> Value {
    json!({
        "profile": sandbox.profile.name(),
        "read": sandbox.read,
        "write": sandbox.write,
        "network": match &sandbox.network {
            SandboxNetwork::All => json!("all"),
            SandboxNetwork::Ports(ports) => json!(ports),
            SandboxNetwork::None => json!("none"),
        },
        "require": sandbox.require,
        "namespaces": !sandbox.shares_processes,
    })
}

fn read(path: &Path) -> Result<Stored, String> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Stored::default()),
        Err(error) => Err(error.to_string()),
    }
}

fn full(project: &Project) -> String {
    format!("{}/{}", project.namespace, project.name)
}

/// Names the file of the project that the program was started in: another checkout of it is another one.
fn file_of(project: &Project) -> String {
    format!("file:{}", project.root.display())
}
