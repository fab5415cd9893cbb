//! What one model may call in one turn, under the names that the model is shown.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::message::Message;
use crate::model::ToolSpec;
use crate::project::InlineTool;
use crate::results;
use crate::tool::{Catalogue, Tool, ToolRef};

/// OpenAI Chat Completions takes `^[a-zA-Z0-9_-]{1,64}$`; no other API takes less.
const NAME_LIMIT: usize = 64;
const HASH_DIGITS: usize = 8;

/// Exposed names and what they stand for. The order is the same for the same servers, file and request, because
/// upstream prefix caches depend on it: servers in the file's order with their tools by name, inline tools in the
/// file's order, client tools in the request's.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Listed", into = "Listed")]
pub struct ToolSet {
    entries: IndexMap<String, Target>,
    specs: Arc<[ToolSpec]>,
    /// Lowercase alternative spellings; `None` where two tools share one.
    aliases: HashMap<String, Option<usize>>,
}

/// Who runs a tool.
#[derive(Debug, Clone)]
pub enum Target {
    /// A tool of a source, run by this program.
    Source(Tool),
    /// A tool that only the client can run, under the name the client or the file gave it.
    Client(String),
}

/// A name that stands for no tool of the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTool {
    pub name: String,
    /// Exposed names that resemble it, best first; at most 3.
    pub near: Vec<String>,
}

impl ToolSet {
    /// `inline` tools come from the file, `client` tools from the request.
    pub fn new(catalogue: &Catalogue, inline: &[InlineTool], client: &[ToolSpec]) -> Self {
        let mut set = Builder::default();
        for tools in by_server(&catalogue.tools) {
            for tool in tools {
                let wanted = format!("{}__{}", tool.id.server, tool.shown_name);
                let spec = ToolSpec {
                    name: String::new(),
                    description: tool.description.clone(),
                    schema: tool.schema.clone(),
                    rest: Map::new(),
                };
                set.add(&wanted, spec, Target::Source(tool.clone()));
            }
        }
        for tool in inline {
            let spec = ToolSpec {
                name: String::new(),
                description: Some(tool.description.as_str().into()),
                schema: tool.parameters.clone(),
                rest: Map::new(),
            };
            set.add(&tool.name, spec, Target::Client(tool.name.clone()));
        }
        for tool in client {
            set.add(&tool.name, tool.clone(), Target::Client(tool.name.clone()));
        }
        set.finish()
    }

    /// The same with the tools that look into results that were cut, after all others.
    #[must_use]
    pub fn with_results(self) -> Self {
        let offered = results::tools();
        if offered.iter().any(|tool| self.tool(&tool.id).is_some()) {
            return self;
        }
        let mut set = Builder { entries: self.entries, specs: self.specs.to_vec(), aliases: self.aliases };
        for tool in offered {
            let spec = ToolSpec {
                name: String::new(),
                description: tool.description.clone(),
                schema: tool.schema.clone(),
                rest: Map::new(),
            };
            let name = tool.shown_name.clone();
            set.add(&name, spec, Target::Source(tool));
        }
        set.finish()
    }

    /// Under which name the model is shown a tool of a source.
    pub fn name_of(&self, server: &str, tool: &str) -> Option<&str> {
        self.entries.iter().find_map(|(name, target)| match target {
            Target::Source(found) if &*found.id.server == server && &*found.id.name == tool => {
                Some(name.as_str())
            }
            _ => None,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The tools as the model is shown them.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        self.specs.clone()
    }

    /// Every exposed name with what it stands for, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Target)> {
        self.entries.iter().map(|(name, target)| (name.as_str(), target))
    }

    /// A tool of a source, by what it is.
    pub fn tool(&self, id: &ToolRef) -> Option<&Tool> {
        self.entries.values().find_map(|target| match target {
            Target::Source(tool) if tool.id == *id => Some(tool),
            _ => None,
        })
    }

    /// The same without the tools of servers that are not `meant`.
    #[must_use]
    pub fn of_servers(self, meant: impl Fn(&str) -> bool) -> Self {
        let mut listed = Listed::from(self);
        listed.tools.retain(|tool| meant(&tool.id.server));
        listed.into()
    }

    /// The same names for what sources' tools become. What a model is shown of them stays as it is.
    #[must_use]
    pub fn with_tools(mut self, change: impl Fn(Tool) -> Tool) -> Self {
        for target in self.entries.values_mut() {
            if let Target::Source(tool) = target {
                *tool = change(tool.clone());
            }
        }
        self
    }

    /// What a model means by a name: the exposed name, or another spelling of it that fits exactly one tool
    /// (other case, `functions.` in front, the tool's own name, the server given apart).
    ///
    /// # Errors
    /// [`UnknownTool`] when no tool, or more than one, is meant.
    pub fn resolve(&self, name: &str, server: Option<&str>) -> Result<(&str, &Target), UnknownTool> {
        let name = name.trim();
        let full = server.map(|server| format!("{}__{name}", server.trim()));
        let found = match &full {
            Some(full) => self.find(full).or_else(|| self.find(name).filter(|at| self.is_of(*at, server))),
            None => self.find(name),
        };
        found
            .and_then(|at| self.entries.get_index(at))
            .map(|(exposed, target)| (exposed.as_str(), target))
            .ok_or_else(|| self.unknown(full.as_deref().unwrap_or(name)))
    }

    /// Puts the names in a client's history into those that the model is shown. A tool that is no longer there keeps a
    /// name that every upstream takes.
    pub fn expose_history(&self, messages: &mut [Message]) {
        let exposed = |name: &mut String| {
            if self.entries.contains_key(name.as_str()) {
                return;
            }
            let own =
                self.entries.iter().find(|(_, target)| matches!(target, Target::Client(own) if own == name));
            *name = own.map_or_else(|| fit_name(name), |(exposed, _)| exposed.clone());
        };
        for message in messages {
            match message {
                Message::Assistant(said) => said.calls.iter_mut().for_each(|call| exposed(&mut call.name)),
                Message::Tool(result) => result.name.iter_mut().for_each(exposed),
                Message::System(_) | Message::User(_) => {}
            }
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        let stripped = name.strip_prefix("functions.").unwrap_or(name);
        self.entries
            .get_index_of(name)
            .or_else(|| self.entries.get_index_of(stripped))
            .or_else(|| self.aliases.get(&stripped.to_lowercase()).copied().flatten())
    }

    fn is_of(&self, at: usize, server: Option<&str>) -> bool {
        match (self.entries.get_index(at), server) {
            (Some((_, Target::Source(tool))), Some(server)) => {
                tool.id.server.eq_ignore_ascii_case(server.trim())
            }
            _ => true,
        }
    }

    fn unknown(&self, name: &str) -> UnknownTool {
        let wanted = name.to_lowercase();
        let bare = wanted.rsplit("__").next().unwrap_or(&wanted);
        let mut scored: Vec<(usize, &str)> = self
            .entries
            .keys()
            .map(|key| {
                let lower = key.to_lowercase();
                let own = lower.rsplit("__").next().unwrap_or(&lower);
                let score = 2 * shared_letters(own, bare) * 100 / (own.len() + bare.len()).max(1);
                (score, key.as_str())
            })
            .filter(|(score, _)| *score >= 60)
            .collect();
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        UnknownTool {
            name: name.to_owned(),
            near: scored.into_iter().take(3).map(|(_, key)| key.to_owned()).collect(),
        }
    }
}

/// A [`ToolSet`] in a journal: what it was made of.
#[derive(Serialize, Deserialize)]
struct Listed {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool>,
    /// Of the file and of the client, under their own names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    client: Vec<ToolSpec>,
}

impl From<ToolSet> for Listed {
    fn from(set: ToolSet) -> Self {
        let mut listed = Self { tools: Vec::new(), client: Vec::new() };
        for ((_, target), spec) in set.entries.into_iter().zip(set.specs.iter()) {
            match target {
                Target::Source(tool) => listed.tools.push(tool),
                Target::Client(name) => listed.client.push(ToolSpec { name, ..spec.clone() }),
            }
        }
        listed
    }
}

impl From<Listed> for ToolSet {
    fn from(listed: Listed) -> Self {
        let catalogue = Catalogue { tools: listed.tools, ..Catalogue::default() };
        Self::new(&catalogue, &[], &listed.client)
    }
}

/// Length of the longest common subsequence, on names that are at most a few dozen bytes.
fn shared_letters(a: &str, b: &str) -> usize {
    let (a, b) = (&a.as_bytes()[..a.len().min(64)], &b.as_bytes()[..b.len().min(64)]);
    let mut row = vec![0usize; b.len() + 1];
    for &x in a {
        let mut diagonal = 0;
        for (at, &y) in b.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if x == y { diagonal + 1 } else { above.max(row[at]) };
            diagonal = above;
        }
    }
    row[b.len()]
}

#[derive(Default)]
struct Builder {
    entries: IndexMap<String, Target>,
    specs: Vec<ToolSpec>,
    aliases: HashMap<String, Option<usize>>,
}

impl Builder {
    fn add(&mut self, wanted: &str, mut spec: ToolSpec, target: Target) {
        let mut exposed = fit_name(wanted);
        if self.entries.contains_key(&exposed) {
            let identity = match &target {
                Target::Source(tool) => format!("{}\0{}", tool.id.server, tool.id.name),
                Target::Client(name) => format!("\0{name}"),
            };
            exposed = with_hash(&exposed, &identity);
        }
        if self.entries.contains_key(&exposed) {
            // the same tool declared a third time: its name and its hash are taken
            return;
        }
        let at = self.entries.len();
        spec.name.clone_from(&exposed);
        let mut spellings = vec![exposed.to_lowercase(), wanted.to_lowercase()];
        if let Target::Source(tool) = &target {
            spellings.push(tool.shown_name.to_lowercase());
            spellings.push(format!("{}.{}", tool.id.server, tool.shown_name).to_lowercase());
        }
        spellings.sort_unstable();
        spellings.dedup();
        for spelling in spellings {
            self.aliases.entry(spelling).and_modify(|taken| *taken = None).or_insert(Some(at));
        }
        self.specs.push(spec);
        self.entries.insert(exposed, target);
    }

    fn finish(self) -> ToolSet {
        ToolSet { entries: self.entries, specs: self.specs.into(), aliases: self.aliases }
    }
}

/// Groups by server in order of first appearance, each group sorted by name.
fn by_server(tools: &[Tool]) -> Vec<Vec<&Tool>> {
    let mut groups: IndexMap<&str, Vec<&Tool>> = IndexMap::new();
    for tool in tools {
        groups.entry(&tool.id.server).or_default().push(tool);
    }
    for group in groups.values_mut() {
        group.sort_by(|a, b| a.shown_name.cmp(&b.shown_name));
    }
    groups.into_values().collect()
}

/// The name under which every model API takes a tool: other characters become `_`, and what is too long keeps its
/// first 55 characters and gets a hash of the whole. Depends on the name alone.
pub fn fit_name(name: &str) -> String {
    let fitted: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
        .collect();
    match fitted.len() {
        0 => with_hash("tool", name),
        1..=NAME_LIMIT => fitted,
        _ => with_hash(&fitted, name),
    }
}

fn with_hash(fitted: &str, identity: &str) -> String {
    let digest = Sha256::digest(identity.as_bytes());
    let hash: String = digest.iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect();
    let kept = &fitted[..fitted.len().min(NAME_LIMIT - HASH_DIGITS - 1)];
    format!("{kept}_{hash}")
}

/// The schema of a tool that takes nothing.
pub fn empty_schema() -> Arc<Value> {
    Arc::new(serde_json::json!({"type": "object", "properties": {}}))
}

#[cfg(test)]
mod tests;
