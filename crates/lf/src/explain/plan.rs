//! `lf config plan`: two versions of a file, and the tools that each model has by them.

mod git;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use lf_core::model::BYTES_PER_TOKEN;
use lf_core::tool::Approval;
use lf_core::tool_set::Target;
use lf_core::{Catalogue, Project, ToolSet};
use lf_server::App;
use lf_server::explain::{Known, Outlook, word};
use serde_json::{Value, json};

use super::tell_down;
use crate::args::{Common, Plan};
use crate::exit::{Exit, Trouble, print_line};
use crate::log::printable;
use crate::mcp::catalogue;
use crate::signals::Signals;
use crate::{app, close, project};

/// What one model is offered, by the names that it is shown.
type Offer = IndexMap<String, Offered>;

#[derive(Debug, Clone)]
struct Offered {
    tokens: usize,
    destructive: bool,
    outlook: Outlook,
    /// What is compared of it: without the places and numbers of rules.
    essence: Outlook,
}

impl Offered {
    fn is_as(&self, other: &Self) -> bool {
        let what = |offered: &Self| (offered.tokens, offered.destructive);
        what(self) == what(other) && self.essence == other.essence
    }
}

/// One line of what changes.
struct Change<'a> {
    name: &'a str,
    before: Option<&'a Offered>,
    after: Option<&'a Offered>,
}

pub(crate) async fn run(common: &Common, options: &Plan) -> Result<Exit, Trouble> {
    let (before, after) = versions(common, options).await?;
    let app = app(common, None)?;
    let mut signals = Signals::new()?;
    let told = tokio::select! {
        told = compared(&app, before, after, options.json) => told,
        _ = signals.next() => Ok(Exit::Failure),
    };
    close(&app, &mut signals).await;
    told
}

/// The file as it was, and as it is to be.
async fn versions(common: &Common, options: &Plan) -> Result<(Project, Project), Trouble> {
    let here = |path: &PathBuf| match common.cwd.as_ref().filter(|_| path.is_relative()) {
        Some(directory) => directory.join(path),
        None => path.clone(),
    };
    let current = || project::path(common);
    let load = |path: &Path| project::load_other(path, None).map(|loaded| loaded.project);
    let after = match &options.file {
        Some(file) => beside(&here(file), &current)?,
        None => load(&current()?)?,
    };
    let before = match (&options.against, &options.file) {
        (Some(against), _) => beside(&here(against), &current)?,
        (None, Some(_)) => load(&current()?)?,
        (None, None) => {
            let path = current()?;
            let text = git::committed(&path).await.map_err(|reason| {
                Trouble::usage(format!("there is nothing to compare {} with: {reason}", path.display()))
                    .hint("name the file that it was with `--against FILE`, or the one that it is to be")
            })?;
            project::load_other(&path, Some(text))?.project
        }
    };
    Ok((before, after))
}

/// Another version of the project's file, wherever it lies: relative paths in it start where the project is.
fn beside(file: &Path, current: &dyn Fn() -> Result<PathBuf, Trouble>) -> Result<Project, Trouble> {
    let text = lf_config::read(file).map_err(|error| Trouble::usage(error.to_string()))?;
    let directory = current().ok().and_then(|path| path.parent().map(Path::to_owned));
    let name = file.file_name().unwrap_or_default();
    let place = directory.map_or_else(|| file.to_owned(), |directory| directory.join(name));
    Ok(project::load_other(&place, Some(text))?.project)
}

async fn compared(app: &App, before: Project, after: Project, as_json: bool) -> Result<Exit, Trouble> {
    let (before, after) = (Arc::new(before), Arc::new(after));
    let (old, new) = (listed(app, &before).await, listed(app, &after).await);
    for down in [&old, &new] {
        tell_down(down);
    }
    let mut names: Vec<&String> = before.models.keys().chain(after.models.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let mut models = Vec::new();
    for name in names {
        let (old, new) = (offer(&before, name, &old), offer(&after, name, &new));
        models.push(match as_json {
            true => json_of(name, old.as_ref(), new.as_ref()),
            false => {
                tell(name, old.as_ref(), new.as_ref())?;
                Value::Null
            }
        });
    }
    if as_json {
        let down = |catalogue: &Catalogue| -> Vec<Value> {
            catalogue.down.iter().map(|down| json!({"server": down.server, "error": down.reason})).collect()
        };
        print_line(json!({"models": models, "unknown": {"before": down(&old), "after": down(&new)}}))?;
    }
    Ok(Exit::Success)
}

async fn listed(app: &App, project: &Arc<Project>) -> Catalogue {
    // those that are held back, too: they are told as what becomes of them
    let tools = app.servers_of(project).pinned(Arc::default());
    catalogue(&tools).await
}

/// `None` where there is no such model, or it cannot be used.
fn offer(project: &Arc<Project>, model: &str, listed: &Catalogue) -> Option<Offer> {
    let found = project.models.get(model)?.as_ref().ok()?;
    let tools = listed.tools.iter().filter(|tool| found.servers.iter().any(|name| **name == *tool.id.server));
    let catalogue = Catalogue { tools: tools.cloned().collect(), ..Catalogue::default() };
    let set = ToolSet::new(&catalogue, &found.tools, &[]);
    let specs = set.specs();
    let unplaced = Arc::new(without_places(project));
    let offered = set.iter().zip(specs.iter()).map(|((name, target), spec)| {
        let description = spec.description.as_deref().unwrap_or_default();
        let bytes = name.len() + description.len() + spec.schema.to_string().len();
        let tokens = bytes.div_ceil(BYTES_PER_TOKEN);
        let offered = match target {
            Target::Source(tool) => {
                let known = Known { tool: tool.id.clone(), listed: Some(tool.clone()) };
                let mut essence = known.outlook(&unplaced, model);
                essence.depends.sort_unstable();
                let outlook = known.outlook(project, model);
                Offered { tokens, destructive: tool.hints.destructive, outlook, essence }
            }
            // the client runs it, or does not
            Target::Client(_) => {
                let runs = Outlook { verdict: Approval::Auto, why: String::new(), depends: Vec::new() };
                Offered { tokens, destructive: false, outlook: runs.clone(), essence: runs }
            }
        };
        (name.to_owned(), offered)
    });
    Some(offered.collect())
}

/// Rules that say the same wherever they stand: a line more above them, or another name of the file, changes nothing.
fn without_places(project: &Project) -> Project {
    let mut project = project.clone();
    for rule in &mut project.policy.rules {
        rule.place.clear();
        // one without a name is told by its number, and a name is quoted
        if rule.name.bytes().all(|byte| byte.is_ascii_digit()) {
            rule.name.clear();
        }
    }
    project
}

fn changes<'a>(before: Option<&'a Offer>, after: Option<&'a Offer>) -> Vec<Change<'a>> {
    let old = before.into_iter().flatten();
    let gone = old.map(|(name, offered)| {
        let after = after.and_then(|after| after.get(name));
        Change { name, before: Some(offered), after }
    });
    let new = after
        .into_iter()
        .flatten()
        .filter(|(name, _)| before.is_none_or(|before| !before.contains_key(*name)));
    let new = new.map(|(name, offered)| Change { name, before: None, after: Some(offered) });
    let is_change = |change: &Change<'_>| match (change.before, change.after) {
        (Some(before), Some(after)) => !before.is_as(after),
        (before, after) => before.is_some() || after.is_some(),
    };
    gone.chain(new).filter(is_change).collect()
}

fn tokens(offer: Option<&Offer>) -> usize {
    offer.into_iter().flatten().map(|(_, offered)| offered.tokens).sum()
}

fn count(offer: Option<&Offer>) -> usize {
    offer.map_or(0, IndexMap::len)
}

fn tell(model: &str, before: Option<&Offer>, after: Option<&Offer>) -> Result<(), Trouble> {
    let presence = match (before, after) {
        (None, Some(_)) => "  (new)",
        (Some(_), None) => "  (gone, or cannot be used)",
        (None, None) => "  (cannot be used)",
        (Some(_), Some(_)) => "",
    };
    print_line(format_args!(
        "model `{model}`: {} tool(s), about {} tokens -> {} tool(s), about {} tokens{presence}",
        count(before),
        tokens(before),
        count(after),
        tokens(after)
    ))?;
    let changes = changes(before, after);
    if changes.is_empty() {
        print_line("  nothing changes")?;
    }
    for Change { name, before, after } in changes {
        let name = printable(name);
        match (before, after) {
            (None, Some(new)) => print_line(format_args!("  + {name}  {}", describe(new)))?,
            (Some(old), None) => print_line(format_args!("  - {name}  {}", describe(old)))?,
            (Some(old), Some(new)) => {
                print_line(format_args!("  ~ {name}  {}  was: {}", describe(new), describe(old)))?;
            }
            (None, None) => {}
        }
    }
    Ok(())
}

fn describe(offered: &Offered) -> String {
    let Offered { tokens, destructive, outlook, .. } = offered;
    let mut text = format!("about {tokens} tokens, {}", word(outlook.verdict));
    if *destructive {
        text.push_str(", may destroy");
    }
    if !outlook.why.is_empty() {
        text.push_str(&format!(" ({})", printable(&outlook.why)));
    }
    for depends in &outlook.depends {
        text.push_str(&format!("; {}", printable(depends)));
    }
    text
}

fn json_of(model: &str, before: Option<&Offer>, after: Option<&Offer>) -> Value {
    let side = |offered: &Offered| {
        json!({
            "tokens": offered.tokens,
            "destructive": offered.destructive,
            "verdict": word(offered.outlook.verdict),
            "why": offered.outlook.why,
            "depends": offered.outlook.depends,
        })
    };
    let changes: Vec<Value> = changes(before, after)
        .into_iter()
        .map(|change| {
            let kind = match (change.before, change.after) {
                (None, _) => "gained",
                (_, None) => "lost",
                _ => "changed",
            };
            json!({
                "tool": change.name,
                "change": kind,
                "before": change.before.map(side),
                "after": change.after.map(side),
            })
        })
        .collect();
    json!({
        "model": model,
        "before": before.map(|offer| json!({"tools": offer.len(), "tokens": tokens(Some(offer))})),
        "after": after.map(|offer| json!({"tools": offer.len(), "tokens": tokens(Some(offer))})),
        "changes": changes,
    })
}
