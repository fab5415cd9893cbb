//! What the entries of projects may take out of the environment, and which hosts of this machine's network they may
//! connect to.
//!
//! The operator's word counts first; then, a provider's own variable may go to the provider's own address. A file that the
//! API has written has nothing beyond that but what a person approved. Any other stored file is trusted as it is, and the
//! one that the program was started in as it was then: an edit of it that the running daemon takes up sends a variable
//! nowhere new.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lf_core::operator::Operator;
use lf_core::place::Reach;
use lf_core::project::{Asked, Carried, Destination, Disabled, Entry, Storage, Transport};
use lf_core::{McpServer, Project, Secret};

/// Grants, as [`Carried::grant`] writes them.
pub(super) type Grants = BTreeSet<String>;

pub(super) fn grants_of(project: &Project) -> Grants {
    project.carried.iter().map(Carried::grant).collect()
}

/// What a project asked for when the program was started, and is trusted with since.
pub(super) struct AtStart {
    grants: Grants,
    /// As they were written: what is sent to one goes to no other that is put in its place.
    commands: BTreeMap<String, Secret>,
}

impl AtStart {
    pub(super) fn of(project: &Project) -> Self {
        let commands = project.servers.keys();
        let commands = commands.filter_map(|name| Some((name.clone(), written(project, name)?.clone())));
        Self { grants: grants_of(project), commands: commands.collect() }
    }

    /// What of it holds for the project as it is now.
    pub(super) fn grants_for(&self, project: &Project) -> Grants {
        let mut grants = self.grants.clone();
        for carried in &project.carried {
            if let Destination::Command(name) = &carried.to
                && self.commands.get(name) != written(project, name)
            {
                grants.remove(&carried.grant());
            }
        }
        grants
    }
}

/// `None` for what is no command.
fn written<'p>(project: &'p Project, server: &str) -> Option<&'p Secret> {
    match &project.servers.get(server)?.as_ref().ok()?.transport {
        Transport::Stdio(stdio) => Some(&stdio.written),
        Transport::Http(_) | Transport::Sse(_) => None,
    }
}

/// What is known of one project.
pub(super) struct Granted<'a> {
    pub(super) operator: &'a Operator,
    /// What a person or the file's own standing allows; `None` where all that the file asks for.
    pub(super) grants: Result<Option<Grants>, String>,
    /// Whether who wrote the file may name hosts of this machine's network.
    pub(super) may_connect: bool,
}

impl Granted<'_> {
    fn permits(&self, carried: &Carried) -> bool {
        if !carried.is_set {
            return true;
        }
        if let Some(verdict) = self.operator.says(carried) {
            return verdict;
        }
        if carried.asked == Asked::Usual || (carried.variable.is_none() && self.may_connect) {
            return true;
        }
        match &self.grants {
            Ok(Some(grants)) => grants.contains(&carried.grant()),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// What a person can be asked to approve. What the operator's file forbids is forbidden, and what a file does not
    /// ask for in words is not given.
    pub(super) fn pending(&self, project: &Project) -> Vec<Carried> {
        let mut pending: Vec<Carried> = Vec::new();
        for carried in &project.carried {
            let is_open = carried.asked == Asked::Written && self.operator.says(carried).is_none();
            let is_known = pending.iter().any(|one| one.grant() == carried.grant());
            if is_open && !is_known && !self.permits(carried) {
                pending.push(carried.clone());
            }
        }
        pending
    }

    /// Where conversations are kept, if that is permitted.
    pub(super) fn storage(&self, project: &Project) -> Result<Storage, Disabled> {
        let of_storage = project.carried.iter().filter(|carried| carried.entry == Entry::Storage);
        let full = format!("{}/{}", project.namespace, project.name);
        match of_storage.into_iter().find(|carried| !self.permits(carried)) {
            Some(carried) => Err(Disabled { reason: self.reason(carried, &full) }),
            None => project.storage.clone(),
        }
    }

    fn reason(&self, carried: &Carried, full: &str) -> String {
        let what = match (&self.grants, self.operator.says(carried)) {
            (_, Some(_)) => "`operator.yaml` in the data directory does not list it there".to_owned(),
            (Err(error), _) => format!("the approvals cannot be read: {error}"),
            _ => format!("run `lf config approve {full}`"),
        };
        format!("{carried}: {what}")
    }

    /// Takes out what is not permitted: a key that nobody named, or else the entry.
    pub(super) fn hold_back(&self, project: &mut Project) {
        self.narrow(project);
        let full = format!("{}/{}", project.namespace, project.name);
        for carried in project.carried.iter().filter(|carried| !self.permits(carried)) {
            if carried.asked == Asked::Implied {
                // a host that may be anywhere stays within the public network, and the entry stays
                if carried.variable.is_some()
                    && let Entry::Model(name) = &carried.entry
                    && let Some(Ok(model)) = project.models.get_mut(name)
                {
                    Arc::make_mut(model).api_key = None;
                }
                continue;
            }
            let reason = self.reason(carried, &full);
            tracing::warn!(project = full, reason, "an entry is held back");
            match &carried.entry {
                Entry::Model(name) => withhold(project.models.get_mut(name), &reason),
                Entry::Server(name) => withhold(project.servers.get_mut(name), &reason),
                // the models that use it are held back for the same reason
                Entry::Prompts(name) => drop(project.prompts.shift_remove(name)),
                Entry::Storage => project.storage = Err(Disabled { reason }),
            }
        }
    }

    /// Hosts that nobody stands for are looked at when they are dialled: a name of them may lead anywhere.
    fn narrow(&self, project: &mut Project) {
        if self.may_connect {
            return;
        }
        let is_named = |entry: &Entry| {
            let of_entry = || project.carried.iter().filter(|one| one.entry == *entry);
            let is_granted = |one: &&Carried| match &self.grants {
                Ok(Some(grants)) => grants.contains(&one.grant()),
                _ => false,
            };
            let mut connections = of_entry().filter(|one| one.variable.is_none());
            // a host that a person has let have a secret is one that they know
            connections.any(|one| {
                self.permits(one)
                    || of_entry().filter(|other| other.to == one.to).any(|other| is_granted(&other))
            })
        };
        for (name, server) in &mut project.servers {
            if let Ok(server) = server
                && !is_named(&Entry::Server(name.clone()))
            {
                narrow_server(Arc::make_mut(server));
            }
        }
        for (name, model) in &mut project.models {
            if let Ok(model) = model
                && !is_named(&Entry::Model(name.clone()))
            {
                Arc::make_mut(model).reach = Reach::Public;
            }
        }
    }
}

/// As far as the public network.
fn narrow_server(server: &mut McpServer) {
    if let Transport::Http(http) | Transport::Sse(http) = &mut server.transport {
        http.reach = Reach::Public;
    }
}

/// With every reason there is: a person wants to see all at once.
fn withhold<T>(entry: Option<&mut Result<T, Disabled>>, reason: &str) {
    match entry {
        Some(Err(disabled)) if !disabled.reason.contains(reason) => {
            disabled.reason = format!("{}; {reason}", disabled.reason);
        }
        Some(entry @ Ok(_)) => *entry = Err(Disabled { reason: reason.to_owned() }),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
