//! What a server has, as it says it: whole lists of definitions, kept while they hold.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lf_core::pins::Print;
use lf_core::{McpServer, visible};
use rmcp::model::{ClientRequest, CustomRequest, ErrorCode};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::together::Together;
use crate::connection::{AskError, Link};

const MAX_PAGES: usize = 100;
const MAX_ITEMS: usize = 5_000;
/// Of one list, as JSON text.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// For which a list is kept whatever the server says of it.
const LEAST_FRESH: Duration = Duration::from_secs(1);

/// The lists of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    Tools,
    Prompts,
    Resources,
    Templates,
}

impl List {
    /// The method that lists.
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
        }
    }

    /// What the items are called in the result.
    pub fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The capability of a server that has such items.
    pub(super) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }
}

/// The lists of one connection.
#[derive(Debug, Default)]
pub(super) struct Catalogues([Together<Listed>; 4]);

#[derive(Debug, Clone)]
struct Listed {
    items: Arc<Vec<Value>>,
    prints: Arc<Prints>,
    at: Instant,
    fresh: Option<Duration>,
    /// Of the list, when it was asked for.
    changes: u64,
}

/// What the tools of a list were said to be, by name, as they were sent.
pub type Prints = HashMap<String, Print>;

/// How old a list may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Age {
    pub(crate) oldest: Duration,
    /// Whether the server's own word counts, where it is shorter.
    pub(crate) hinted: bool,
}

impl Link {
    /// Everything in one of the server's lists, within its timeout; any number of callers cause one listing, and share
    /// its failure. A server that has no such list has nothing in it.
    pub(crate) async fn catalogue(
        &self,
        server: &McpServer,
        list: List,
        age: Age,
    ) -> Result<(Arc<Vec<Value>>, Arc<Prints>), AskError> {
        if self.about.capability(list.capability()).is_none() && list != List::Tools {
            return Ok((Arc::default(), Arc::default()));
        }
        let inbox = &self.signals.inbox;
        let holds = |listed: &Listed| {
            let hint = listed.fresh.filter(|_| age.hinted).map(|fresh| fresh.max(LEAST_FRESH));
            let oldest = hint.map_or(age.oldest, |hint| hint.min(age.oldest));
            listed.changes == inbox.changes(list) && listed.at.elapsed() < oldest
        };
        // boxed, as who waits for another's listing needs no room for one
        let listing = Box::pin(async {
            let changes = inbox.changes(list);
            let (said, fresh) = self.pages(server, list).await?;
            let prints = if list == List::Tools { self.prints(&said) } else { Prints::new() };
            let said = if list == List::Tools { firsts(said) } else { said };
            let items = shown_of(server, list, said);
            Ok(Listed { items: Arc::new(items), prints: prints.into(), at: Instant::now(), fresh, changes })
        });
        let listed = inbox.catalogues.0[list as usize].get(server.timeout, holds, listing).await;
        listed.map(|listed| (listed.items, listed.prints))
    }

    /// Of tools that are listed twice the first counts.
    fn prints(&self, said: &[Value]) -> Prints {
        let mut prints = Prints::new();
        for definition in said {
            if let Some(name) = definition["name"].as_str() {
                let print = || Print::of(definition, self.about.peer.clone());
                prints.entry(name.to_owned()).or_insert_with(print);
            }
        }
        prints
    }

    /// Everything in a list as it was sent, but for secrets.
    pub(crate) async fn pages(
        &self,
        server: &McpServer,
        list: List,
    ) -> Result<(Vec<Value>, Option<Duration>), AskError> {
        let end = Instant::now() + server.timeout;
        let (mut items, mut fresh, mut bytes) = (Vec::new(), None, 0);
        let mut params = Map::new();
        let mut cursors = HashSet::new();
        for _ in 0..MAX_PAGES {
            let left = end.saturating_duration_since(Instant::now());
            let request = CustomRequest::new(list.method(), Some(Value::Object(params.clone())));
            let request = ClientRequest::CustomRequest(request);
            let page = match self.ask(request, (left, left)).await {
                Err(AskError::Refused { code, .. }) if is_no_method(code) => break,
                page => self.signals.secrets.value(serde_json::to_value(page?).unwrap_or_default()),
            };
            let Value::Object(mut page) = page else { break };
            let said = page.get("ttlMs").and_then(Value::as_u64).map(Duration::from_millis);
            fresh = fresh.into_iter().chain(said).min();
            let Some(Value::Array(found)) = page.remove(list.key()) else { break };
            for item in found {
                bytes += item.to_string().len();
                if items.len() == MAX_ITEMS || bytes > MAX_BYTES {
                    let what = list.key();
                    tracing::warn!(server = server.name, what, "a server's list is too long and was cut");
                    return Ok((items, fresh));
                }
                items.push(item);
            }
            let next =
                page.remove("nextCursor").filter(|cursor| cursor.as_str().is_some_and(|c| !c.is_empty()));
            let Some(next) = next else { break };
            if !cursors.insert(next.to_string()) {
                tracing::warn!(server = server.name, "the server repeats a page of a list");
                break;
            }
            params = Map::from_iter([("cursor".to_owned(), next)]);
        }
        Ok((items, fresh))
    }
}

/// Without tools that have the name of one before: what is known of a name is what the first says.
fn firsts(tools: Vec<Value>) -> Vec<Value> {
    let mut names = HashSet::new();
    let mut is_first = |tool: &Value| tool["name"].as_str().is_none_or(|name| names.insert(name.to_owned()));
    tools.into_iter().filter(|tool| is_first(tool)).collect()
}

/// What people and models are shown of a list. What is missing is told once for the whole list: a server may list thousands
/// of such items.
fn shown_of(server: &McpServer, list: List, said: Vec<Value>) -> Vec<Value> {
    let all = said.len();
    let items: Vec<Value> = said.into_iter().filter_map(shown).collect();
    let (what, hidden) = (list.key(), all - items.len());
    if hidden > 0 {
        tracing::warn!(
            server = server.name,
            what,
            hidden,
            "names with hidden characters in them are left out"
        );
    }
    items
}

/// An item without what neither people nor models can see in its words. What it is called by is as the server has it, or
/// the item is none: a call by another name would not find it.
fn shown(item: Value) -> Option<Value> {
    let is_seen = |key: &str| item[key].as_str().is_none_or(|name| visible::line(name) == name);
    ["name", "uri", "uriTemplate"].into_iter().all(is_seen).then(|| visible::value(item))
}

fn is_no_method(code: i64) -> bool {
    code == i64::from(ErrorCode::METHOD_NOT_FOUND.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_control_and_hidden_character_is_taken_out_of_an_item_s_words() {
        let controls = (0..0x20_u32).chain(0x7f..0xa0).filter_map(char::from_u32);
        let hidden =
            controls.filter(|c| !['\n', '\t', '\r'].contains(c)).chain("\u{202e}\u{200b}\u{e0041}".chars());
        for c in hidden {
            let text = format!("a{c}b");
            let item =
                json!({"name": "t", "title": text, "description": text, "inputSchema": {"enum": [text]}});
            let told = shown(item).expect("its name is seen").to_string();
            assert!(!told.contains(&c.escape_default().to_string()) && !told.contains(c), "{c:?}: {told}");
            for key in ["name", "uri", "uriTemplate"] {
                assert_eq!(shown(json!({key: text})), None, "{c:?}");
            }
        }
    }
}
