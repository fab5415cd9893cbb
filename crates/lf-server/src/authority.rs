//! For whom something is run: looked at anew before each call, as a key can be revoked while its holder's turn runs; and on
//! whose behalf this daemon asks itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lf_core::audit::Record;
use lf_core::{McpServer, Model, Principal, Project, Scope, ToolRef};

use crate::access::{Access, random};
use crate::audit::Audit;
use crate::gateway::is_at;

/// Whoever has a call run, and what he may have run. It is a part of [`crate::rules::Rules`].
#[derive(Clone)]
pub(crate) struct Authority {
    access: Arc<Access>,
    pub(crate) principal: Arc<Principal>,
    audit: Arc<Audit>,
}

impl Authority {
    pub(crate) fn of(access: Arc<Access>, principal: Arc<Principal>, audit: Arc<Audit>) -> Self {
        Self { access, principal, audit }
    }

    pub(crate) fn record(&self, record: Record) {
        self.audit.record(record);
    }

    /// The name of the key that was given; `None` for the owner and whoever needs none.
    pub(crate) fn key(&self) -> Option<&str> {
        self.principal.is_key().then_some(self.principal.name.as_str())
    }

    /// What he is now.
    ///
    /// # Errors
    /// Why he is let in no more, for the model to read.
    pub(crate) fn now(&self) -> Result<Principal, String> {
        let gone = || "the API key that this was asked with was revoked or has expired".to_owned();
        self.access.now(&self.principal).ok_or_else(gone)
    }

    /// Whether he reaches a tool, as he was when he asked, and as he is now.
    ///
    /// # Errors
    /// Why not, for the model to read.
    pub(crate) fn reaches(&self, tool: &ToolRef) -> Result<(), String> {
        if !(self.now()?.reaches_tool(tool) && self.principal.reaches_tool(tool)) {
            return Err("the API key that this was asked with does not reach it".to_owned());
        }
        Ok(())
    }
}

/// What this daemon is told where it is one of the servers that a model uses: on whose behalf it is asked.
#[derive(Clone, Default)]
pub(crate) struct Errand {
    itself: Vec<String>,
    mandate: Option<Arc<Mandate>>,
}

impl Errand {
    /// `itself`: the servers that are this very daemon.
    pub(crate) fn new(itself: Vec<String>, mandate: Option<Mandate>) -> Self {
        Self { itself, mandate: mandate.map(Arc::new) }
    }

    /// What this daemon is told with a call of this tool, where the tool is its own.
    pub(crate) fn mandate_for(&self, tool: &ToolRef) -> Option<&str> {
        let is_own = self.itself.iter().any(|server| **server == *tool.server);
        self.mandate.as_deref().filter(|_| is_own).map(|mandate| mandate.token.as_str())
    }
}

/// The servers of a project that are the daemon which listens here.
pub(crate) fn itself<'a>(
    servers: impl Iterator<Item = &'a Arc<McpServer>>,
    address: Option<std::net::SocketAddr>,
) -> Vec<String> {
    let Some(address) = address.map(|address| address.to_string()) else { return Vec::new() };
    servers.filter(|server| is_at(server, &address)).map(|server| server.name.clone()).collect()
}

/// On whose behalf this daemon asks itself, and how far that goes.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    pub principal: Arc<Principal>,
    /// Namespace and name: no other project is reached.
    pub project: (String, String),
    /// No other model is reached, the first of which asks; where none does, those of the project that the principal reaches.
    pub models: Option<Vec<String>>,
    /// No other server is told of.
    pub servers: Vec<String>,
}

impl Granted {
    pub(crate) fn to_model(principal: &Arc<Principal>, project: &Project, model: &Model) -> Self {
        let models = std::iter::once(&model.name).chain(&model.fallback).cloned().collect();
        Self {
            principal: principal.clone(),
            project: (project.namespace.clone(), project.name.clone()),
            models: Some(models),
            servers: model.servers.clone(),
        }
    }

    pub(crate) fn reaches_model(&self, name: &str) -> bool {
        let is_granted = |models: &Vec<String>| models.iter().any(|model| model == name);
        self.models.as_ref().is_none_or(is_granted) && self.principal.reaches_model(name)
    }

    /// Who asks the daemon's own tools in the end: the one for whom the model asks, through a door that lets in only so much.
    ///
    /// # Errors
    /// When the door's own lists cannot be brought together with his.
    pub(crate) fn through(&self, door: &Principal) -> Result<Principal, String> {
        let mut principal = self.within(door)?;
        // what changes things is not done on somebody's behalf
        let is_told = |scope: &Scope| matches!(scope, Scope::Chat | Scope::Read);
        principal.scopes.retain(|scope| is_told(scope) && door.has(*scope));
        Ok(principal)
    }

    /// The same for whoever has tools of the project's servers run: who may chat has them run by models.
    ///
    /// # Errors
    /// As [`Self::through`], and where he may have none run.
    pub(crate) fn running_tools(&self, door: &Principal) -> Result<Principal, String> {
        let mut principal = self.within(door)?;
        let door_has = door.id.is_empty() || door.has(Scope::Tools);
        if !door_has || !(principal.has(Scope::Chat) || principal.has(Scope::Tools)) {
            return Err(format!("this needs the scope `{}`", Scope::Tools));
        }
        principal.scopes = vec![Scope::Read, Scope::Tools];
        Ok(principal)
    }

    fn within(&self, door: &Principal) -> Result<Principal, String> {
        let mut principal = Principal::clone(&self.principal);
        let (own, other) = (&mut principal.reach, &door.reach);
        for (own, other) in [
            (&mut own.projects, &other.projects),
            (&mut own.models, &other.models),
            (&mut own.tools, &other.tools),
        ] {
            match (&own, other) {
                (_, None) => {}
                (None, Some(_)) => own.clone_from(other),
                (Some(one), Some(other)) if one == other => {}
                (Some(_), Some(_)) => {
                    return Err("the key that this daemon asks itself with has lists of its own".to_owned());
                }
            }
        }
        Ok(principal)
    }
}

/// What is granted now, under names that nobody can guess.
#[derive(Clone, Default)]
pub(crate) struct Grants(Arc<Mutex<HashMap<String, Granted>>>);

/// A grant, for as long as this lives.
pub(crate) struct Mandate {
    token: String,
    grants: Grants,
}

impl Grants {
    /// `None` where the system gives no random numbers: then nothing is granted.
    pub(crate) fn grant(&self, granted: Granted) -> Option<Mandate> {
        let token = random::<32>().ok()?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), granted);
        Some(Mandate { token, grants: self.clone() })
    }

    pub(crate) fn find(&self, token: &str) -> Option<Granted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }
}

impl Mandate {
    pub(crate) fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for Mandate {
    fn drop(&mut self) {
        self.grants.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}

#[cfg(test)]
mod tests;
