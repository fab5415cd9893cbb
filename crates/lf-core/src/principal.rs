//! Who asks, and what he may ask for.

use std::fmt;
use std::str::FromStr;

use globset::GlobBuilder;
use serde::{Deserialize, Serialize};

use crate::quota::Quota;
use crate::tool::ToolRef;

/// A kind of thing that can be asked of a daemon. None contains another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Ask models, with their tools, and keep conversations.
    #[serde(rename = "chat")]
    Chat,
    /// See models, projects, servers and tools.
    #[serde(rename = "read")]
    Read,
    /// Run tools without a model.
    #[serde(rename = "tools")]
    Tools,
    /// Change projects.
    #[serde(rename = "config:write")]
    ConfigWrite,
    /// Change which commands a project starts; each of them waits for an approval on the machine all the same.
    #[serde(rename = "config:exec")]
    ConfigExec,
    /// Decide about calls that wait for a person.
    #[serde(rename = "approve")]
    Approve,
    /// Run the daemon: restart servers, see what others have made.
    #[serde(rename = "admin")]
    Admin,
}

impl Scope {
    pub const ALL: [Self; 7] = [
        Self::Chat,
        Self::Read,
        Self::Tools,
        Self::ConfigWrite,
        Self::ConfigExec,
        Self::Approve,
        Self::Admin,
    ];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Read => "read",
            Self::Tools => "tools",
            Self::ConfigWrite => "config:write",
            Self::ConfigExec => "config:exec",
            Self::Approve => "approve",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|scope| scope.name() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.into_iter().map(Self::name).collect();
            format!("`{text}` is no scope; there are: {}", known.join(", "))
        })
    }
}

/// What of a daemon a key reaches, each as globs. No list is everything, an empty one is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reach {
    /// `namespace/project`; a `*` stays within its part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projects: Option<Vec<String>>,
    /// Names of models, as their project's file has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
    /// `server/tool`, both as the file and the server name them; `server` alone is all of its tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

const LOCAL: &str = "this machine";
const OWNER: &str = "the owner";
/// Names that say of somebody that no key was given.
pub const RESERVED: [&str; 3] = [LOCAL, OWNER, "nobody"];

/// Who asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Principal {
    /// What it makes is bound to this. Empty for whoever asks on this machine without a key.
    pub id: String,
    /// For people.
    pub name: String,
    pub scopes: Vec<Scope>,
    #[serde(flatten)]
    pub reach: Reach,
    /// What he may use, in all projects together.
    #[serde(default, skip_serializing_if = "Quota::is_none")]
    pub quota: Quota,
}

impl Principal {
    /// Whoever asks on this machine without a key.
    pub fn local() -> Self {
        Self {
            id: String::new(),
            name: LOCAL.to_owned(),
            scopes: vec![Scope::Chat, Scope::Read],
            reach: Reach::default(),
            quota: Quota::default(),
        }
    }

    /// Whoever may read the daemon's files, or runs the engine in a process of his own.
    pub fn owner() -> Self {
        Self {
            id: "owner".to_owned(),
            name: OWNER.to_owned(),
            scopes: Scope::ALL.to_vec(),
            reach: Reach::default(),
            quota: Quota::default(),
        }
    }

    /// Whether it is the holder of a key.
    pub fn is_key(&self) -> bool {
        self.id.starts_with("key:")
    }

    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Whether this one may know of what another has made.
    pub fn sees(&self, maker: &str) -> bool {
        self.id == maker || self.has(Scope::Admin)
    }

    pub fn reaches_project(&self, namespace: &str, name: &str) -> bool {
        let full = format!("{namespace}/{name}");
        self.reach.projects.as_deref().is_none_or(|globs| globs.iter().any(|glob| fits(glob, &full)))
    }

    pub fn reaches_model(&self, name: &str) -> bool {
        self.reach.models.as_deref().is_none_or(|globs| globs.iter().any(|glob| fits_part(glob, name)))
    }

    /// Whether any tool of this server may be run.
    pub fn reaches_server(&self, server: &str) -> bool {
        let globs = self.reach.tools.as_deref();
        globs.is_none_or(|globs| globs.iter().any(|glob| fits_part(parts(glob).0, server)))
    }

    pub fn reaches_tool(&self, tool: &ToolRef) -> bool {
        self.reach.tools.as_deref().is_none_or(|globs| {
            globs.iter().map(|glob| parts(glob)).any(|(server, name)| {
                fits_part(server, &tool.server) && name.is_none_or(|name| fits_part(name, &tool.name))
            })
        })
    }
}

impl Reach {
    /// The first glob that can never fit, with what is wrong with it.
    pub fn problem(&self) -> Option<String> {
        let bare = self.projects.iter().flatten().find(|glob| !glob.contains('/') && !glob.contains("**"));
        if let Some(bare) = bare {
            return Some(format!("`{bare}` fits no project: write `namespace/project`, such as `{bare}/*`"));
        }
        let all = [&self.projects, &self.models, &self.tools].into_iter().flatten().flatten();
        all.filter_map(|glob| GlobBuilder::new(glob).build().err()).map(|error| error.to_string()).next()
    }
}

/// Server and tool of a glob. A server's name has no slash, so that the first one ends it.
fn parts(glob: &str) -> (&str, Option<&str>) {
    glob.split_once('/').map_or((glob, None), |(server, tool)| (server, Some(tool)))
}

/// In which `*` does not cross a slash. What is no glob fits nothing.
fn fits(glob: &str, text: &str) -> bool {
    let built = GlobBuilder::new(glob).literal_separator(true).build();
    built.is_ok_and(|glob| glob.compile_matcher().is_match(text))
}

/// In which `*` is anything.
fn fits_part(glob: &str, text: &str) -> bool {
    GlobBuilder::new(glob).build().is_ok_and(|glob| glob.compile_matcher().is_match(text))
}

#[cfg(test)]
mod tests;
