//! What servers and their tools were when a person looked at them, and what is held back since: decisions without IO.
//!
//! A [`Lock`] holds what was looked at, a [`Print`] what a server says now. How a lock is written is `lf-config`'s.

mod compare;
mod package;
mod print;

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::{Map, Value};

use crate::tool::{Tool, ToolRef};
pub use compare::{Change, Difference, compare};
pub use package::loose_package;
pub use print::{Hash, Peer, Print, hash};

/// Where a server comes from, as the file writes it: `transport`, `command`, `args`, `env`, `inherit_env`, `cwd` or
/// `base_url`; secrets masked, references to variables kept.
pub type Origin = Map<String, Value>;

/// Everything that was looked at, by server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lock {
    pub servers: IndexMap<String, Pinned>,
}

/// One server as it was looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Pinned {
    pub origin: Origin,
    pub peer: Peer,
    /// Definitions as MCP writes them, by name; those that the file withholds are not among them.
    pub tools: IndexMap<String, Value>,
    prints: IndexMap<String, Print>,
}

impl Pinned {
    /// Of a tool that is listed twice the first counts.
    pub fn new(origin: Origin, peer: Peer, definitions: impl IntoIterator<Item = Value>) -> Self {
        let shared = Arc::new(peer.clone());
        let (mut tools, mut prints) = (IndexMap::new(), IndexMap::new());
        for definition in definitions {
            let Some(name) = definition["name"].as_str().map(str::to_owned) else { continue };
            if !tools.contains_key(&name) {
                prints.insert(name.clone(), Print::of(&definition, shared.clone()));
                tools.insert(name, definition);
            }
        }
        Self { origin, peer, tools, prints }
    }

    /// Whether its program runs on this machine: then another version of it is another program.
    pub fn is_local(&self) -> bool {
        self.origin.get("transport").is_none_or(|transport| transport == "stdio")
    }

    /// The name under which a tool was there that is now called otherwise, and is the same in all else.
    fn renamed(&self, print: &Print) -> Option<&str> {
        let same = |known: &Print| !known.fields.is_empty() && known.fields == print.fields;
        self.prints.iter().find(|(_, known)| same(known)).map(|(name, _)| name.as_str())
    }
}

/// What a project's tools are held against.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pins {
    /// `None`: nothing is pinned, and nothing held back.
    pub lock: Option<Lock>,
    /// The name of the file that the lock was read from.
    pub file: String,
    /// Where the project's servers come from now.
    pub origins: IndexMap<String, Origin>,
}

impl Pins {
    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    /// Whether a server and its tools are held against the same as there.
    pub fn agrees(&self, other: &Self, server: &str) -> bool {
        let [one, another] =
            [self, other].map(|pins| pins.lock.as_ref().map(|lock| lock.servers.get(server)));
        one == another && self.origins.get(server) == other.origins.get(server)
    }

    /// Why all of a server is held back; `None` where it is what it was.
    pub fn distrusts(&self, server: &str, peer: &Peer) -> Option<String> {
        let lock = self.lock.as_ref()?;
        self.server_differs(lock, server, peer).map(|what| self.told(server, &what))
    }

    /// Why a tool is held back that is listed like this; `None` where nothing is pinned, or it is as it was.
    pub fn holds_back(&self, tool: &ToolRef, print: &Print) -> Option<String> {
        let lock = self.lock.as_ref()?;
        let server = &*tool.server;
        let what = self.server_differs(lock, server, &print.peer).or_else(|| {
            let pinned = lock.servers.get(server)?;
            match pinned.prints.get(&*tool.name) {
                Some(known) => {
                    let fields = known.differing(print);
                    (!fields.is_empty()).then(|| {
                        let (fields, are) = (listed(&fields), if fields.len() == 1 { "is" } else { "are" });
                        format!("its {fields} {are} not as in {}", self.file)
                    })
                }
                None => Some(match pinned.renamed(print) {
                    Some(before) => format!("it is called `{before}` in {}", self.file),
                    None => format!("it is not in {}", self.file),
                }),
            }
        })?;
        Some(self.told(server, &what))
    }

    /// Why a listed tool is held back. One of which nothing is known cannot be compared.
    pub fn holds_back_listed(&self, tool: &Tool) -> Option<String> {
        match &tool.print {
            Some(print) => self.holds_back(&tool.id, print),
            None => self.cannot_compare(&tool.id.server),
        }
    }

    /// Why a tool is held back of which its server says nothing now.
    pub fn cannot_compare(&self, server: &str) -> Option<String> {
        self.is_locked().then(|| format!("held back: it is not listed now, and cannot be held against {}; `lf mcp diff` tells more of MCP server `{server}`", self.file))
    }

    /// What of the file alone is not as in the lock: servers that are not in it, or come from somewhere else.
    pub fn unlocked(&self) -> Vec<String> {
        let Some(lock) = &self.lock else { return Vec::new() };
        let known = self.origins.keys().filter_map(|server| self.moved(lock, server));
        let gone = lock.servers.keys().filter(|server| !self.origins.contains_key(*server));
        known
            .chain(gone.map(|server| format!("MCP server `{server}` is not in the project any more")))
            .collect()
    }

    /// Servers whose program is fetched in whatever version is the newest: what is wrong with each, and what to write.
    pub fn loose(&self) -> Vec<String> {
        let loose = self.origins.iter().filter_map(|(server, origin)| {
            let command = origin.get("command")?.as_str()?;
            let args = origin.get("args").and_then(Value::as_array).into_iter().flatten();
            let args: Vec<String> = args.filter_map(Value::as_str).map(str::to_owned).collect();
            let (package, exact) = loose_package(command, &args)?;
            Some(format!(
                "MCP server `{server}` is whatever version of `{package}` is the newest when it starts: name one, as in \
                 `{exact}`; what a server says can be pinned, what its program does cannot"
            ))
        });
        loose.collect()
    }

    fn moved(&self, lock: &Lock, server: &str) -> Option<String> {
        let file = &self.file;
        let Some(pinned) = lock.servers.get(server) else {
            return Some(format!("MCP server `{server}` is not in {file}"));
        };
        let nothing = Origin::new();
        let now = self.origins.get(server).unwrap_or(&nothing);
        let keys = compare::keys(&pinned.origin, now);
        (!keys.is_empty())
            .then(|| format!("MCP server `{server}` has another {} than in {file}", listed(&keys)))
    }

    fn server_differs(&self, lock: &Lock, server: &str, peer: &Peer) -> Option<String> {
        if let Some(moved) = self.moved(lock, server) {
            return Some(moved);
        }
        let pinned = lock.servers.get(server)?;
        let file = &self.file;
        if compare::keys(&pinned.peer.info, &peer.info)
            .iter()
            .any(|key| pinned.is_local() || *key != "version")
        {
            let (is, was) = (peer.called(), pinned.peer.called());
            return Some(format!("MCP server `{server}` says that it is {is}, and is {was} in {file}"));
        }
        (pinned.peer.instructions != peer.instructions)
            .then(|| format!("the instructions of MCP server `{server}` are not as in {file}"))
    }

    fn told(&self, server: &str, what: &str) -> String {
        format!("held back: {what}; `lf mcp diff` shows it, and `lf mcp lock --update {server}` accepts it")
    }
}

fn listed(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
