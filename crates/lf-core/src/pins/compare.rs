//! Two locks, and everything in which they differ.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Lock, Pinned};

/// One thing that is not the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub server: String,
    /// `None` where it is about the server.
    pub tool: Option<String>,
    pub change: Change,
    /// Whether something is held back for it.
    pub holds_back: bool,
}

impl Difference {
    /// Whether the lock is not true any more. A remote server may come in other versions.
    pub fn counts(&self) -> bool {
        self.holds_back || !matches!(self.change, Change::Field { .. })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    New,
    Gone,
    /// New under this name, and the same in all else as what is gone under that.
    Renamed {
        before: String,
    },
    /// `before` or `after` is `None` where there is no such field.
    Field {
        field: String,
        before: Option<Value>,
        after: Option<Value>,
    },
}

/// What differs from `before` to `after`, server by server in the order of `after`.
pub fn compare(before: &Lock, after: &Lock) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |server: &str, change, holds_back| {
        found.push(Difference { server: server.to_owned(), tool: None, change, holds_back });
    };
    for server in after.servers.keys().filter(|server| !before.servers.contains_key(*server)) {
        add(server, Change::New, true);
    }
    for server in before.servers.keys().filter(|server| !after.servers.contains_key(*server)) {
        add(server, Change::Gone, false);
    }
    for (server, after) in &after.servers {
        if let Some(before) = before.servers.get(server) {
            of_server(server, before, after, &mut found);
        }
    }
    found
}

fn of_server(server: &str, before: &Pinned, after: &Pinned, found: &mut Vec<Difference>) {
    let is_local = before.is_local();
    let mut add = |field: String, before: Option<Value>, after: Option<Value>, holds_back| {
        let change = Change::Field { field, before, after };
        found.push(Difference { server: server.to_owned(), tool: None, change, holds_back });
    };
    for key in keys(&before.origin, &after.origin) {
        add(key.to_owned(), before.origin.get(key).cloned(), after.origin.get(key).cloned(), true);
    }
    for key in keys(&before.peer.info, &after.peer.info) {
        let (before, after) = (before.peer.info.get(key).cloned(), after.peer.info.get(key).cloned());
        add(format!("serverInfo.{key}"), before, after, is_local || key != "version");
    }
    let (was, is) = (&before.peer.instructions, &after.peer.instructions);
    if was != is {
        let text = |text: &Option<String>| text.clone().map(Value::from);
        add("instructions".to_owned(), text(was), text(is), true);
    }
    of_tools(server, before, after, found);
}

fn of_tools(server: &str, before: &Pinned, after: &Pinned, found: &mut Vec<Difference>) {
    let mut add = |tool: &str, change, holds_back| {
        let (server, tool) = (server.to_owned(), Some(tool.to_owned()));
        found.push(Difference { server, tool, change, holds_back });
    };
    let mut renamed = BTreeSet::new();
    for (name, definition) in &after.tools {
        let Some(was) = before.tools.get(name) else {
            let print = after.prints.get(name);
            let was =
                print.and_then(|print| before.renamed(print)).filter(|was| !after.tools.contains_key(*was));
            let change = match was {
                Some(was) => {
                    renamed.insert(was);
                    Change::Renamed { before: was.to_owned() }
                }
                None => Change::New,
            };
            add(name, change, true);
            continue;
        };
        let (Some(one), Some(other)) = (before.prints.get(name), after.prints.get(name)) else { continue };
        for field in one.differing(other) {
            let (before, after) = (was.get(field).cloned(), definition.get(field).cloned());
            add(name, Change::Field { field: field.to_owned(), before, after }, true);
        }
    }
    for name in before.tools.keys() {
        if !after.tools.contains_key(name) && !renamed.contains(name.as_str()) {
            add(name, Change::Gone, false);
        }
    }
}

/// The keys whose values differ, in order.
pub(super) fn keys<'a>(before: &'a Map<String, Value>, after: &'a Map<String, Value>) -> Vec<&'a str> {
    let all: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    all.into_iter().filter(|key| before.get(*key) != after.get(*key)).map(String::as_str).collect()
}
