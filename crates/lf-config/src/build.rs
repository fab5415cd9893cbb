//! From the checked tree to a [`Project`]: names that refer to something, variables, defaults.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use indexmap::IndexMap;
use lf_core::pins::{Origin, Pins};
use lf_core::project::{Carried, Disabled, McpServer, Model, Project};
use lf_core::quota::Quota;
use serde::de::DeserializeOwned;

use crate::check::Removed;
use crate::diagnostic::{Diagnostic, Report, did_you_mean, quote};
use crate::node::Node;
use crate::raw::RawQuota;
use crate::show::mask_all;
use crate::variables::{Expanded, Variables};

mod auth;
mod carry;
mod duration;
mod model;
mod policy;
mod prompts;
mod provider;
mod retry;
mod sandbox;
mod server;
mod size;
mod storage;
mod tools;

use prompts::Prompts;

pub(crate) struct Context<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) variables: &'a Variables<'a>,
    pub(crate) removed: &'a Removed,
    /// What the entries that were read take along.
    pub(crate) carried: RefCell<Vec<Carried>>,
}

type Servers = IndexMap<String, Result<Arc<McpServer>, Disabled>>;
type Models = IndexMap<String, Result<Arc<Model>, Disabled>>;

/// Only meant for use when the report has no errors afterwards.
pub(crate) fn project(root: &Node, context: &Context<'_>, report: &mut Report<'_>) -> Project {
    for problem in context.variables.problems() {
        report.general_warning(problem);
    }
    let servers = servers(root, context, report);
    let prompts = prompts::read(root, context, report);
    let names = Names {
        servers: &servers,
        prompts: &prompts,
        has_mcp: root.get("mcp").is_some(),
        has_prompts: root.get("prompts").is_some(),
        servers_known: !lost(root, "mcp", context)
            && root.get("mcp").is_none_or(|mcp| !lost(mcp, "servers", context)),
        prompts_known: !lost(root, "prompts", context),
        by_default: match root.get("defaults").and_then(|defaults| defaults.get("mcp_access")?.as_str()) {
            Some("none") => ByDefault::None,
            _ => ByDefault::All,
        },
    };
    let models = models(root, &names, context, report);
    let policy = policy::read(root, &servers, &models, report);
    let default_model = default_model(root, &models, context, report);
    if models.is_empty() && !report.has_errors() {
        let span = root.get("runtime").map_or(root.span.clone(), |runtime| runtime.span.clone());
        report
            .warning(&span, "the file has no models, so there is nobody to chat with")
            .hint("a first one: `runtime: {models: [{name: demo, provider: demo}]}`");
    }
    let quota = quota(root, &models, report);
    let storage = storage::read(root, context, report);
    let text = |key: &str| root.get(key).and_then(Node::as_str).unwrap_or_default().to_owned();
    Project {
        namespace: text("namespace"),
        name: text("name"),
        root: context.directory.to_owned(),
        servers,
        models,
        default_model,
        prompts: prompts.sets,
        carried: context.carried.take(),
        storage,
        policy,
        quota,
        pins: Pins { origins: origins(root), ..Pins::default() }.into(),
    }
}

/// What a lock holds of where servers come from: as the file has it, so that it is the same on every machine.
fn origins(root: &Node) -> IndexMap<String, Origin> {
    const KEYS: [&str; 7] = ["transport", "command", "args", "env", "inherit_env", "cwd", "base_url"];
    let list = root.get("mcp").and_then(|mcp| mcp.get("servers"));
    let servers = list.into_iter().flat_map(Node::items).filter_map(|node| {
        let name = node.get("name")?.as_str()?.to_owned();
        let mut json = node.to_json();
        mask_all(&mut json, "");
        let fields = KEYS.iter().filter_map(|key| Some(((*key).to_owned(), json.get(key)?.clone())));
        Some((name, fields.filter(|(_, value)| !value.is_null()).collect()))
    });
    servers.collect()
}

fn quota(root: &Node, models: &Models, report: &mut Report<'_>) -> Quota {
    let Some(node) = root.get("quota") else { return Quota::default() };
    let Ok(raw) = serde_json::from_value::<RawQuota>(node.to_json()) else { return Quota::default() };
    let unpriced = models.values().flatten().find(|model| model.price.is_none());
    if let (Some(_), Some(model)) = (raw.cost_per_day_usd, unpriced) {
        let message = format!(
            "`cost_per_day_usd` cannot be held: nobody knows what model {} costs",
            quote(&model.name)
        );
        report.error(&node.span_of("cost_per_day_usd"), message).hint(model::PRICE_HINT);
    }
    Quota {
        requests_per_minute: raw.requests_per_minute,
        tokens_per_day: raw.tokens_per_day,
        cost_per_day_usd: raw.cost_per_day_usd,
    }
}

/// What models may refer to.
pub(crate) struct Names<'a> {
    pub(crate) servers: &'a Servers,
    pub(crate) prompts: &'a Prompts,
    pub(crate) has_mcp: bool,
    pub(crate) has_prompts: bool,
    /// False where the list could not be read: nothing is said about its names then.
    pub(crate) servers_known: bool,
    pub(crate) prompts_known: bool,
    pub(crate) by_default: ByDefault,
}

/// The servers of a model that names none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByDefault {
    All,
    None,
}

/// Whether a key was given and could not be read. An empty section is read as none.
fn lost(map: &Node, key: &str, context: &Context<'_>) -> bool {
    context.removed.contains(map, key)
}

fn servers(root: &Node, context: &Context<'_>, report: &mut Report<'_>) -> Servers {
    let mut servers = Servers::new();
    let Some(list) = root.get("mcp").and_then(|mcp| mcp.get("servers")) else { return servers };
    let mut seen = IndexMap::new();
    for node in list.items() {
        let Some(name) = unique_name(node, "MCP server", &mut seen, report) else { continue };
        let server = server::read(&name, node, context, report);
        servers.insert(name, server.map(Arc::new));
    }
    servers
}

fn models(root: &Node, names: &Names<'_>, context: &Context<'_>, report: &mut Report<'_>) -> Models {
    let mut models = Models::new();
    let Some(list) = root.get("runtime").and_then(|runtime| runtime.get("models")) else { return models };
    let mut seen = IndexMap::new();
    let all: Vec<&str> = list.items().iter().filter_map(|node| node.get("name")?.as_str()).collect();
    for node in list.items() {
        check_references(node.get("fallback"), "model", &all, report);
        let Some(name) = unique_name(node, "model", &mut seen, report) else { continue };
        let model = model::read(&name, node, names, context, report);
        models.insert(name, model.map(Arc::new));
    }
    for node in list.items() {
        check_prices(node, &models, report);
    }
    models
}

/// A model whose turns have a limit of money hands them to none whose price is unknown.
fn check_prices(node: &Node, models: &Models, report: &mut Report<'_>) {
    let find = |node: Option<&Node>| models.get(node?.as_str()?)?.as_ref().ok();
    if find(node.get("name")).is_none_or(|model| model.limits.cost_usd.is_none()) {
        return;
    }
    for other in node.get("fallback").into_iter().flat_map(Node::items) {
        let Some(unpriced) = find(Some(other)).filter(|model| model.price.is_none()) else { continue };
        let message =
            format!("`cost_usd` cannot be held: nobody knows what model {} costs", quote(&unpriced.name));
        report.error(&other.span, message).hint(model::PRICE_HINT);
    }
}

/// The entry's name, told when it was there before.
fn unique_name(
    node: &Node,
    kind: &str,
    seen: &mut IndexMap<String, usize>,
    report: &mut Report<'_>,
) -> Option<String> {
    let name = node.get("name")?;
    let text = name.as_str()?.to_owned();
    if let Some(&first) = seen.get(&text) {
        let first = report.place(first);
        report
            .error(&name.span, format!("the {kind} {} is defined twice", quote(&text)))
            .label("the second one")
            .hint(format!("the first is at {first}; give one of them another name"));
        return None;
    }
    seen.insert(text.clone(), name.span.start);
    Some(text)
}

fn check_references(list: Option<&Node>, kind: &str, names: &[&str], report: &mut Report<'_>) {
    for item in list.into_iter().flat_map(Node::items) {
        let Some(text) = item.as_str() else { continue };
        if !names.contains(&text) {
            report
                .error(&item.span, format!("unknown {kind} {}", quote(text)))
                .label("not defined in this file")
                .maybe_hint(
                    did_you_mean(text, names.iter().copied()).or_else(|| known(names.iter().copied())),
                );
        }
    }
}

/// The names there are, as a hint.
pub(crate) fn known<'n>(names: impl Iterator<Item = &'n str>) -> Option<String> {
    let names: Vec<String> = names.take(12).map(quote).collect();
    (!names.is_empty()).then(|| format!("there are: {}", names.join(", ")))
}

fn default_model(
    root: &Node,
    models: &Models,
    context: &Context<'_>,
    report: &mut Report<'_>,
) -> Option<String> {
    let runtime = root.get("runtime")?;
    let mut marked: Option<&Node> = None;
    for node in runtime.get("models").into_iter().flat_map(Node::items) {
        let Some(flag) = node
            .get("default")
            .filter(|flag| flag.as_str().is_some_and(|text| text.eq_ignore_ascii_case("true")))
        else {
            continue;
        };
        if marked.is_some() {
            report.error(&flag.span, "two models are marked as the default").label("the second one");
        }
        marked = marked.or_else(|| node.get("name"));
    }
    let Some(node) = runtime.get("default_model") else {
        return marked.and_then(Node::as_str).map(str::to_owned).or_else(|| models.keys().next().cloned());
    };
    let name = node.as_str().unwrap_or_default();
    if !models.contains_key(name) && !lost(runtime, "models", context) {
        report
            .error(&node.span, format!("unknown model {}", quote(name)))
            .label("not in `runtime.models`")
            .maybe_hint(
                did_you_mean(name, models.keys().map(String::as_str))
                    .or_else(|| known(models.keys().map(String::as_str))),
            );
    } else if let Some(marked) = marked.filter(|marked| marked.as_str() != Some(name)) {
        report
            .warning(
                &marked.span,
                format!("`default: true` here has no effect: `default_model` names {}", quote(name)),
            )
            .hint("keep one of the two");
    }
    Some(name.to_owned())
}

/// One entry of the file while it is read: what is wrong with it is an error of the file, or, where a variable's value
/// is to blame, disables the entry.
pub(crate) struct Reading<'e, 'r, 's> {
    /// Such as "MCP server `fs`".
    pub(crate) thing: String,
    pub(crate) expanded: &'e Expanded,
    pub(crate) report: &'r mut Report<'s>,
    pub(crate) disabled: Vec<String>,
    pub(crate) context: &'e Context<'e>,
}

impl<'e, 'r, 's> Reading<'e, 'r, 's> {
    pub(crate) fn new(
        thing: String,
        expanded: &'e Expanded,
        context: &'e Context<'e>,
        report: &'r mut Report<'s>,
    ) -> Self {
        Self { thing, expanded, report, disabled: expanded.missing.clone(), context }
    }

    /// A key that this entry cannot do without. Nothing is said where it was there and wrong.
    pub(crate) fn lacks(&mut self, key: &str, hint: &str) {
        let node = &self.expanded.node;
        if !lost(node, key, self.context) {
            let message = format!("{} has no {}", self.thing, quote(key));
            self.report.error(&node.span, message).label("in this entry").hint(hint);
        }
    }

    pub(crate) fn node(&self, key: &str) -> Option<&'e Node> {
        self.expanded.node.get(key)
    }

    /// A scalar's text, for a message. What a variable holds may be a secret, and messages are shown to whoever asks:
    /// the file's own words stand in its place.
    pub(crate) fn quoted(&self, node: &Node) -> String {
        match self.expanded.is_from_variable(node) {
            true => quote(self.report.text_of(&node.span)),
            false => quote(node.as_str().unwrap_or_default()),
        }
    }

    /// The message repeats no value but by [`Self::quoted`]. `None` when nothing is to be said, because the text was not
    /// complete in the first place.
    pub(crate) fn wrong(&mut self, node: &Node, message: String) -> Option<&mut Diagnostic> {
        if self.expanded.is_incomplete(node) {
            return None;
        }
        if !self.expanded.holds_variable(node) {
            return Some(self.report.error(&node.span, message));
        }
        self.disabled.push(format!("{message} ({})", self.report.place(node.span.start)));
        let thing = &self.thing;
        let diagnostic = self.report.warning(&node.span, format!("{message}, so {thing} is not available"));
        Some(diagnostic.label("the value comes from a variable"))
    }

    /// The typed form of the entry; `None` is told.
    pub(crate) fn raw<T: DeserializeOwned>(&mut self) -> Option<T> {
        let node = &self.expanded.node;
        match serde_json::from_value(node.to_json()) {
            Ok(raw) => Some(raw),
            // what serde says repeats the value
            Err(_) if self.expanded.holds_variable(node) => {
                self.wrong(node, format!("{} cannot be read: a value is of the wrong type", self.thing));
                None
            }
            Err(error) => {
                self.report.error(&node.span, format!("{} cannot be read: {error}", self.thing));
                None
            }
        }
    }

    pub(crate) fn finish<T>(self, value: T) -> Result<T, Disabled> {
        if self.disabled.is_empty() { Ok(value) } else { Err(Disabled { reason: self.disabled.join("; ") }) }
    }
}

/// For an entry with an error: the project it would stand in is never used.
pub(crate) fn broken() -> Disabled {
    Disabled { reason: "the entry has mistakes".to_owned() }
}

/// Line breaks and control characters would end the header they stand in.
pub(crate) fn is_header_value(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() && c != '\t')
}

#[cfg(test)]
mod tests;
