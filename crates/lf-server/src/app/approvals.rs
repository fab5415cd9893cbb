//! Which commands may run that came through the API: those that a person approved on this machine.
//!
//! Kept outside of the projects' files, so that nobody who writes those can approve anything. A server that the API has
//! never written is not listed here and is trusted as its file is.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lf_core::Project;
use lf_core::project::{Disabled, Sandbox, SandboxNetwork, StdioServer, Transport};
use lf_mcp::SessionPool;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::disk;
use super::reader::{Mark, mark};

pub(super) struct Approvals {
    data_dir: PathBuf,
    pool: SessionPool,
    /// Of programs, which are large.
    hashes: Mutex<HashMap<PathBuf, (Mark, String)>>,
}

/// By project and server: the fingerprint that was approved, if any.
#[derive(Default, Serialize, Deserialize)]
struct Stored {
    version: u32,
    projects: BTreeMap<String, BTreeMap<String, Option<String>>>,
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
}

impl Approvals {
    pub(super) fn new(data_dir: PathBuf, pool: SessionPool) -> Self {
        Self { data_dir, pool, hashes: Mutex::default() }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.data_dir.join("approvals.json")
    }

    fn read(&self) -> Result<Stored, String> {
        match std::fs::read(self.path()) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Stored::default()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// With the lock of [`disk::lock`] held.
    fn write(&self, stored: &Stored) -> Result<(), String> {
        let text = serde_json::to_string_pretty(stored).map_err(|error| error.to_string())?;
        disk::write(&self.path(), &text).map_err(|error| error.to_string())
    }

    /// Takes commands that are not approved out of a project. What cannot be read approves nothing. Gives the programs
    /// that were looked at.
    pub(super) fn hold_back(&self, project: &mut Project) -> Vec<PathBuf> {
        let full = format!("{}/{}", project.namespace, project.name);
        let stored = self.read();
        let mut programs = Vec::new();
        for (name, server) in &mut project.servers {
            let Ok(server_entry) = server else { continue };
            let Transport::Stdio(stdio) = &server_entry.transport else { continue };
            let reason = match &stored {
                Err(error) => format!("the approvals cannot be read: {error}"),
                Ok(stored) => {
                    let Some(approved) = stored.projects.get(&full).and_then(|servers| servers.get(name))
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

    /// Commands that wait for an approval; `project` as its file says.
    pub(super) fn pending(&self, project: &Project) -> Result<Vec<Command>, String> {
        let full = format!("{}/{}", project.namespace, project.name);
        let stored = self.read()?;
        let Some(servers) = stored.projects.get(&full) else { return Ok(Vec::new()) };
        let commands = project.servers.iter().filter_map(|(name, server)| {
            let Transport::Stdio(stdio) = &server.as_ref().ok()?.transport else { return None };
            let approved = servers.get(name)?;
            let command = self.command(name, stdio);
            (approved.as_ref() != Some(&command.fingerprint)).then_some(command)
        });
        Ok(commands.collect())
    }

    /// From now on these servers of a project need an approval, also those that had one.
    pub(super) fn require(&self, full: &str, servers: &[String]) -> Result<(), String> {
        let mut stored = self.read()?;
        let entry = stored.projects.entry(full.to_owned()).or_default();
        servers.iter().for_each(|server| drop(entry.insert(server.clone(), None)));
        stored.version = 1;
        self.write(&stored)
    }

    pub(super) fn approve(&self, full: &str, commands: &[Command]) -> Result<(), String> {
        let _lock = disk::lock(&self.data_dir).map_err(|error| error.to_string())?;
        let mut stored = self.read()?;
        let entry = stored.projects.entry(full.to_owned()).or_default();
        for command in commands {
            entry.insert(command.server.clone(), Some(command.fingerprint.clone()));
        }
        self.write(&stored)
    }

    /// After a project is gone.
    pub(super) fn forget(&self, full: &str) -> Result<(), String> {
        let mut stored = self.read()?;
        match stored.projects.remove(full) {
            Some(_) => self.write(&stored),
            None => Ok(()),
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
        // what was approved before there were sandboxes stays so
        if stdio.sandbox != Sandbox::default() {
            what["sandbox"] = sandbox(&stdio.sandbox);
        }
        let fingerprint = disk::revision(what.to_string().as_bytes());
        Command { server: server.to_owned(), fingerprint, program, program_hash, stdio: stdio.clone() }
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
