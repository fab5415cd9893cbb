//! `policy`, and the labels of servers' tools.

use globset::GlobMatcher;
use lf_core::policy::{Condition, Label, Labels, OWN, Policy, Rule};
use lf_core::project::Hint;
use lf_core::tool::Approval;

use super::server::{glob, globs};
use super::{Models, Servers, known};
use crate::diagnostic::{Report, did_you_mean, quote};
use crate::node::Node;

pub(super) fn read(root: &Node, servers: &Servers, models: &Models, report: &mut Report<'_>) -> Policy {
    let mut policy = Policy::default();
    for server in root.get("mcp").and_then(|mcp| mcp.get("servers")).map(Node::items).unwrap_or_default() {
        let name = server.get("name").and_then(Node::as_str);
        if let (Some(name), Some(node)) = (name, server.get("labels")) {
            policy.labels.insert(name.to_owned(), labels_by_tool(node, report));
        }
    }
    let Some(section) = root.get("policy") else { return policy };
    policy.default = verdict(section.get("default")).unwrap_or(policy.default);
    policy.flow = verdict(section.get("flow")).unwrap_or(policy.flow);
    let servers: Vec<&str> = servers.keys().map(String::as_str).chain([OWN]).collect();
    let models: Vec<&str> = models.keys().map(String::as_str).collect();
    for (at, node) in section.get("rules").map(Node::items).unwrap_or_default().iter().enumerate() {
        check_names(node.get("servers"), "MCP server", &servers, report);
        check_names(node.get("models"), "model", &models, report);
        policy.rules.extend(rule(node, at, report));
    }
    policy
}

fn rule(node: &Node, at: usize, report: &mut Report<'_>) -> Option<Rule> {
    let verdict = verdict(node.get("verdict"))?;
    let text = |key: &str| node.get(key).and_then(Node::as_str).map(str::to_owned);
    let name = text("name").map_or_else(|| format!("{}", at + 1), |name| quote(&name));
    let place = report.line(node.span.start);
    let mut lists = ["models", "keys", "servers", "tools"]
        .map(|key| node.get(key).map(|list| globs(list, report)))
        .into_iter();
    let mut next = || lists.next().flatten();
    Some(Rule {
        place,
        models: next(),
        keys: next(),
        servers: next(),
        tools: next(),
        annotations: annotations(node.get("annotations")),
        labels: node.get("labels").map(labels).unwrap_or_default(),
        when: match node.get("when") {
            Some(when) => Some(condition(when, report)?),
            None => None,
        },
        reason: text("reason"),
        ..Rule::new(name, verdict)
    })
}

fn verdict(node: Option<&Node>) -> Option<Approval> {
    match node?.as_str()? {
        "allow" => Some(Approval::Auto),
        "ask" => Some(Approval::Ask),
        "deny" => Some(Approval::Deny),
        // told by the check of structure
        _ => None,
    }
}

fn annotations(node: Option<&Node>) -> Vec<(Hint, bool)> {
    let entries = node.map(Node::entries).unwrap_or_default().iter();
    let entries = entries.filter_map(|entry| {
        let hint = Hint::ALL.into_iter().find(|hint| hint.word() == entry.key)?;
        Some((hint, entry.node.as_str()?.eq_ignore_ascii_case("true")))
    });
    entries.collect()
}

fn labels(list: &Node) -> Labels {
    let words = list.items().iter().filter_map(Node::as_str);
    words.filter_map(|word| Label::ALL.into_iter().find(|label| label.name() == word)).collect()
}

fn labels_by_tool(node: &Node, report: &mut Report<'_>) -> Vec<(GlobMatcher, Labels)> {
    if node.entries().is_empty() {
        return glob("*", node, report).map(|all| (all, labels(node))).into_iter().collect();
    }
    let entries = node.entries().iter().filter_map(|entry| {
        let pattern = Node::text(entry.key.clone(), entry.key_span.clone());
        Some((glob(&entry.key, &pattern, report)?, labels(&entry.node)))
    });
    entries.collect()
}

fn condition(node: &Node, report: &mut Report<'_>) -> Option<Condition> {
    let text = node.as_str()?;
    let mistake = match Condition::compile(text) {
        Ok(condition) => return Some(condition),
        Err(mistake) => mistake,
    };
    // where the file has the text as it is, the place in it is known
    let begin = report.text_of(&node.span).find(text).map(|at| node.span.start + at);
    let span = match begin {
        Some(begin) if !mistake.span.is_empty() => begin + mistake.span.start..begin + mistake.span.end,
        _ => node.span.clone(),
    };
    report
        .error(&span, format!("the condition cannot be used: {}", mistake.message))
        .label("in this condition")
        .maybe_hint(mistake.hint);
    None
}

/// A name without a glob in it that nothing has is a slip, and the rule would speak of nothing.
fn check_names(list: Option<&Node>, kind: &str, names: &[&str], report: &mut Report<'_>) {
    for item in list.into_iter().flat_map(Node::items) {
        let Some(text) = item.as_str() else { continue };
        if text.contains(['*', '?', '[', '{']) || names.contains(&text) {
            continue;
        }
        report
            .error(&item.span, format!("unknown {kind} {}", quote(text)))
            .label("not defined in this file")
            .maybe_hint(did_you_mean(text, names.iter().copied()).or_else(|| known(names.iter().copied())));
    }
}
