//! Older and partial shapes of the file, brought into the modern one, each with a warning that shows it.

use std::path::Path;

use crate::check::is_name;
use crate::diagnostic::{Report, Span, quote};
use crate::node::{Entry, Node, Value};

/// Keys of the flat `runtime` that stay where they are.
const RUNTIME_KEYS: [&str; 2] = ["default_model", "models"];

/// `None` when the file holds nothing that could be a project; the report says why.
pub(crate) fn modernise(root: Node, directory: &Path, report: &mut Report<'_>) -> Option<Node> {
    if root.is_null() {
        report.error(&root.span, "the file is empty").hint("`lf init` writes one to start from");
        return None;
    }
    let mut root = match root.value {
        Value::Map(_) => root,
        Value::List(_) => bare_list(root, report)?,
        Value::Plain(_) | Value::Text(_) => {
            report
                .error(
                    &root.span,
                    "the file must be a mapping with `version`, `name`, `namespace` and `runtime`",
                )
                .hint("`lf init` writes one to start from");
            return None;
        }
    };
    identity(&mut root, directory, report);
    if let Some(mcp) = root.get_mut("mcp") {
        named_map(mcp, "servers", "mcp", report);
    }
    if let Some(runtime) = root.get_mut("runtime") {
        flat_runtime(runtime, report);
        named_map(runtime, "models", "runtime", report);
        nested_tools(runtime, report);
    }
    if let Some(prompts) = root.get_mut("prompts") {
        flat_prompts(prompts, report);
    }
    Some(root)
}

/// A list alone is one of servers or of models, as documentation shows them.
fn bare_list(list: Node, report: &mut Report<'_>) -> Option<Node> {
    let span = list.span.clone();
    let all_have =
        |key: &str| !list.items().is_empty() && list.items().iter().all(|item| item.get(key).is_some());
    let (outer, inner) = if all_have("transport") {
        ("mcp", "servers")
    } else if all_have("provider") {
        ("runtime", "models")
    } else {
        report
            .error(&span, "the file is a list, not a mapping")
            .hint("a project is a mapping with `version`, `name`, `namespace` and `runtime`");
        return None;
    };
    report
        .warning(&span, format!("the file is a list; read as `{outer}.{inner}`"))
        .hint(format!("write `{outer}:` above it, then `  {inner}:`, and indent the list"));
    let section = Node::map(vec![entry(inner, list)], span.clone());
    Some(Node::map(vec![entry(outer, section)], span))
}

fn entry(key: &str, node: Node) -> Entry {
    Entry { key: key.to_owned(), key_span: node.span.clone(), node }
}

/// Gives a partial file the identity it lacks.
fn identity(root: &mut Node, directory: &Path, report: &mut Report<'_>) {
    let directory = directory.file_name().and_then(|name| name.to_str()).filter(|name| is_name(name));
    let defaults = [("version", "v1"), ("name", directory.unwrap_or("project")), ("namespace", "default")];
    let missing: Vec<_> = defaults.into_iter().filter(|(key, _)| root.get(key).is_none()).collect();
    if missing.is_empty() {
        return;
    }
    let span = root.span.clone();
    let names = missing.iter().map(|(key, _)| quote(key)).collect::<Vec<_>>().join(", ");
    let lines = missing.iter().map(|(key, value)| format!("`{key}: {value}`")).collect::<Vec<_>>().join(", ");
    report
        .warning(&span, format!("the file has no {names}"))
        .label("above this")
        .hint(format!("read as {lines}"));
    if let Value::Map(entries) = &mut root.value {
        let added = missing.into_iter().map(|(key, value)| entry(key, Node::text(value, span.clone())));
        entries.splice(0..0, added);
    }
}

/// `servers: {fs: {…}}` → `servers: [{name: fs, …}]`, and the same for models.
fn named_map(section: &mut Node, key: &str, section_name: &str, report: &mut Report<'_>) {
    let Some(node) = section.get_mut(key) else { return };
    let span = node.span.clone();
    let Value::Map(entries) = &mut node.value else { return };
    let entries = std::mem::take(entries);
    report.warning(&span, format!("`{section_name}.{key}` is a mapping; the modern form is a list")).hint(
        match entries.first() {
            Some(first) => format!("write `- name: {}` and its keys below", first.key),
            None => "write `[]`".to_owned(),
        },
    );
    node.value = Value::List(entries.into_iter().map(named).collect());
}

fn named(entry: Entry) -> Node {
    let Entry { key, key_span, mut node } = entry;
    if let Value::Map(entries) = &mut node.value
        && !entries.iter().any(|entry| entry.key == "name")
    {
        let name = Node::text(key, key_span.clone());
        entries.insert(0, Entry { key: "name".to_owned(), key_span: key_span.clone(), node: name });
        node.span = key_span;
    }
    node
}

/// `runtime: {provider, model}` → `runtime: {models: [{name: default, provider, model}]}`.
fn flat_runtime(runtime: &mut Node, report: &mut Report<'_>) {
    let span: Span = match (runtime.entry("provider").or(runtime.entry("model")), runtime.get("models")) {
        (Some(first), None) => first.key_span.clone(),
        _ => return,
    };
    let Value::Map(entries) = &mut runtime.value else { return };
    report
        .warning(&span, "`runtime` describes a model itself; the modern form is a list of models")
        .hint("write `models:`, below it `- name: default`, and the model's keys there");
    let (kept, mut model): (Vec<_>, Vec<_>) =
        std::mem::take(entries).into_iter().partition(|entry| RUNTIME_KEYS.contains(&entry.key.as_str()));
    *entries = kept;
    if !model.iter().any(|entry| entry.key == "name") {
        model.insert(0, entry("name", Node::text("default", span.clone())));
    }
    let model = Node::map(model, span.clone());
    entries.push(Entry {
        key: "models".to_owned(),
        key_span: span.clone(),
        node: Node::list(vec![model], span),
    });
}

/// `{type: function, function: {name, …}}`, as requests have it, → `{type: function, name, …}`.
fn nested_tools(runtime: &mut Node, report: &mut Report<'_>) {
    let Some(Value::List(models)) = runtime.get_mut("models").map(|node| &mut node.value) else { return };
    for model in models {
        let Some(Value::List(tools)) = model.get_mut("tools").map(|node| &mut node.value) else { continue };
        for tool in tools {
            let Value::Map(entries) = &mut tool.value else { continue };
            let Some(at) = entries.iter().position(|entry| entry.key == "function") else { continue };
            if !matches!(entries[at].node.value, Value::Map(_)) {
                continue;
            }
            let nested = entries.remove(at);
            report
                .warning(&nested.key_span, "a tool's keys are nested in `function`; the modern form is flat")
                .hint("write `name`, `description` and `parameters` beside `type`");
            if let Value::Map(inner) = nested.node.value {
                let inner: Vec<_> = inner
                    .into_iter()
                    .filter(|one| !entries.iter().any(|entry| entry.key == one.key))
                    .collect();
                entries.extend(inner);
            }
        }
    }
}

/// `prompts: [{role, content}]` → `prompts: [{name: default, messages: [{role, content}]}]`.
fn flat_prompts(prompts: &mut Node, report: &mut Report<'_>) {
    let is_message = |item: &Node| item.get("role").is_some() && item.get("messages").is_none();
    if prompts.items().is_empty() || !prompts.items().iter().all(is_message) {
        return;
    }
    let span = prompts.items().first().map_or(prompts.span.clone(), |item| item.span.clone());
    report
        .warning(&span, "`prompts` is a list of messages; the modern form is a list of named sets")
        .hint("write `- name: default` with `messages:` and put the list below it");
    let messages =
        Node { value: std::mem::replace(&mut prompts.value, Value::List(Vec::new())), span: span.clone() };
    let set = vec![entry("name", Node::text("default", span.clone())), entry("messages", messages)];
    prompts.value = Value::List(vec![Node::map(set, span)]);
}
