//! `lf mcp lock`, `lf mcp diff`, and what `--locked` wants: the servers of a project held against its lock.

mod lines;

use std::path::Path;

use futures_util::future::join_all;
use lf_core::pins::{Change, Difference, Lock, Origin, Peer, Pinned, compare};
use lf_core::visible::line;
use lf_core::{Project, ToolSource as _};
use lf_mcp::ProjectTools;
use lf_server::App;
use serde_json::{Value, json};

use super::{known, printable_lines};
use crate::exit::{Exit, Trouble, print_line};
use crate::log::printable;
use crate::project::why_unlocked;

/// The servers as they are now. Of one that cannot be asked, everything but where it comes from is as it was.
struct Now {
    lock: Lock,
    /// Name and reason.
    down: Vec<(String, String)>,
}

pub(super) async fn lock(
    app: &App,
    project: &Project,
    names: &[String],
    update: bool,
) -> Result<Exit, Trouble> {
    let now = asked(app, project, names).await?;
    let before = project.pins.lock.clone().unwrap_or_default();
    let accepted = |server: &str| names.is_empty() || names.iter().any(|name| name == server);
    let mut next = Lock::default();
    let mut left = Lock::default();
    for name in project.servers.keys() {
        let is_down = now.down.iter().any(|(down, _)| down == name);
        let (old, new) = (before.servers.get(name), now.lock.servers.get(name));
        let taken = match (old, new) {
            (old, None) => old,
            (_, Some(_)) if is_down => old,
            (None, Some(new)) => Some(new).filter(|_| accepted(name)),
            (Some(_), Some(new)) if update && accepted(name) => Some(new),
            (Some(old), Some(new)) => {
                left.servers.insert(name.clone(), new.clone());
                Some(old)
            }
        };
        next.servers.extend(taken.map(|pinned| (name.clone(), pinned.clone())));
    }
    // named servers alone: the others stay as they are
    for (name, old) in before.servers.iter().filter(|(name, _)| !project.servers.contains_key(*name)) {
        if !accepted(name) {
            next.servers.insert(name.clone(), old.clone());
        }
    }
    write(&project.root.join(&project.pins.file), project.pins.lock.as_ref(), &next)?;
    tell_down(&now.down);
    tell_loose(project);
    let kept = Lock {
        servers: next.servers.into_iter().filter(|(name, _)| left.servers.contains_key(name)).collect(),
    };
    let differences = compare(&kept, &left);
    for told in lines::told(&differences, &left) {
        print_line(told)?;
    }
    let differs = differences.iter().any(Difference::counts);
    if differs {
        anstream::eprintln!("what differs is not accepted: look at it, then run `lf mcp lock --update`");
    }
    Ok(if differs || !now.down.is_empty() { Exit::Failure } else { Exit::Success })
}

pub(super) async fn diff(
    app: &App,
    project: &Project,
    names: &[String],
    json: bool,
) -> Result<Exit, Trouble> {
    let Some(before) = &project.pins.lock else { return Err(no_lock(project)) };
    let now = asked(app, project, names).await?;
    let meant = |name: &String| names.is_empty() || names.contains(name);
    let mut before = before.clone();
    before.servers.retain(|name, _| meant(name));
    let differences = compare(&before, &now.lock);
    if json {
        let down: Vec<Value> =
            now.down.iter().map(|(server, error)| json!({"server": server, "error": error})).collect();
        let told: Vec<Value> = differences.iter().map(json_of).collect();
        print_line(json!({"differences": told, "total": told.len(), "down": down}))?;
    } else {
        for told in lines::told(&differences, &now.lock) {
            print_line(told)?;
        }
        tell_down(&now.down);
        if differences.is_empty() && now.down.is_empty() {
            anstream::eprintln!("everything is as in {}", project.pins.file);
        }
    }
    let differs = differences.iter().any(Difference::counts);
    Ok(if differs || !now.down.is_empty() { Exit::Failure } else { Exit::Success })
}

/// Refuses to go on unless these servers are as in the lock, and all of the project are in it. One that is down has no tools
/// that could be run; when it comes, they are held against the lock.
pub(crate) async fn verify(app: &App, project: &Project, servers: Option<&[String]>) -> Result<(), Trouble> {
    if let Some(reason) = why_unlocked(project) {
        return Err(Trouble::failure(format!("`--locked`: {reason}"))
            .hint("`lf mcp lock` writes it, and adds what is new; `lf mcp diff` shows what differs"));
    }
    let Some(before) = &project.pins.lock else { return Err(no_lock(project)) };
    if servers.is_some_and(<[String]>::is_empty) {
        return Ok(());
    }
    let servers = servers.unwrap_or_default();
    let now = asked(app, project, servers).await?;
    tell_down(&now.down);
    let mut before = before.clone();
    before.servers.retain(|name, _| servers.is_empty() || servers.contains(name));
    let differences: Vec<Difference> =
        compare(&before, &now.lock).into_iter().filter(Difference::counts).collect();
    if differences.is_empty() {
        return Ok(());
    }
    let told = lines::told(&differences, &now.lock).join("\n");
    anstream::eprintln!("{told}");
    Err(Trouble::failure(format!("`--locked`: the MCP servers are not as in {}", project.pins.file))
        .hint("look at what differs; `lf mcp lock --update` accepts it"))
}

/// The same for what one model may use; without one, for all.
pub(crate) async fn verify_for(
    app: &App,
    project: Option<&Project>,
    model: Option<&str>,
) -> Result<(), Trouble> {
    let Some(project) = project else {
        return Err(Trouble::failure("`--locked`: there is no project".to_owned()));
    };
    let model =
        model.or(project.default_model.as_deref()).and_then(|model| project.models.get(model)?.as_ref().ok());
    verify(app, project, model.map(|model| model.servers.as_slice())).await
}

/// Refuses a tool that is not among those that are as in the lock.
pub(super) async fn refuse_held(
    tools: &ProjectTools,
    project: &Project,
    server: &str,
    tool: &str,
) -> Result<(), Trouble> {
    if !project.pins.is_locked() {
        return Ok(());
    }
    let mut listed = tools.list(&[server.to_owned()]).await;
    if listed.tools.iter().any(|listed| &*listed.id.name == tool) {
        return Ok(());
    }
    if let Some(down) = listed.down.pop() {
        let trouble = Trouble::failure(format!("MCP server `{server}` is not available: {}", down.reason));
        return Err(match tools.hint(server) {
            Some(hint) => trouble.hint(hint),
            None => trouble,
        });
    }
    let held = listed.held.into_iter().find(|held| &*held.tool.id.name == tool).map(|held| held.why);
    let why = held.or_else(|| project.pins.cannot_compare(server)).unwrap_or_default();
    Err(Trouble::failure(format!("tool `{}` of MCP server `{server}` is {}", line(tool), line(&why))))
}

fn no_lock(project: &Project) -> Trouble {
    let path = project.root.join(&project.pins.file);
    Trouble::failure(format!("there is no {}", path.display()))
        .hint("`lf mcp lock` writes one, of the servers as they are now")
}

async fn asked(app: &App, project: &Project, names: &[String]) -> Result<Now, Trouble> {
    let is_locked =
        |name: &str| project.pins.lock.as_ref().is_some_and(|lock| lock.servers.contains_key(name));
    for name in names.iter().filter(|name| !is_locked(name)) {
        known(project, name)?;
    }
    let tools = &app.servers_of(project);
    let meant = project.servers.keys().filter(|name| names.is_empty() || names.contains(name));
    let asked = join_all(meant.map(|name| async move { (name, tools.identity(name).await) })).await;
    let mut now = Now { lock: Lock::default(), down: Vec::new() };
    for (name, identity) in asked {
        let origin = project.pins.origins.get(name).cloned().unwrap_or_default();
        let pinned = match identity {
            Ok((peer, definitions)) => Pinned::new(origin, peer, definitions),
            Err(failure) => {
                now.down.push((name.clone(), failure.reason));
                let Some(known) = project.pins.lock.as_ref().and_then(|lock| lock.servers.get(name)) else {
                    continue;
                };
                moved(known, origin)
            }
        };
        now.lock.servers.insert(name.clone(), pinned);
    }
    Ok(now)
}

fn moved(known: &Pinned, origin: Origin) -> Pinned {
    Pinned::new(origin, Peer::clone(&known.peer), known.tools.values().cloned())
}

fn write(path: &Path, before: Option<&Lock>, next: &Lock) -> Result<(), Trouble> {
    let tools: usize = next.servers.values().map(|pinned| pinned.tools.len()).sum();
    let count = format!("{} MCP server(s), {tools} tool(s)", next.servers.len());
    if before == Some(next) {
        anstream::eprintln!("{} stays as it is: {count}", path.display());
        return Ok(());
    }
    lf_mcp::replace(path, &lf_config::write_lock(next))
        .map_err(|error| Trouble::failure(format!("cannot write {}: {error}", path.display())))?;
    print_line(format_args!("wrote {}: {count}", path.display()))
}

/// Warns of servers whose programs change by themselves.
pub(crate) fn tell_loose(project: &Project) {
    for told in project.pins.loose() {
        anstream::eprintln!("warning: {}", printable(&told));
    }
}

fn tell_down(down: &[(String, String)]) {
    for (server, reason) in down {
        anstream::eprintln!(
            "{}: cannot be held against the lock: {}",
            printable(server),
            printable_lines(reason)
        );
    }
}

fn json_of(difference: &Difference) -> Value {
    let Difference { server, tool, change, holds_back } = difference;
    let mut told = json!({"server": server, "tool": tool, "holds_back": holds_back});
    let (kind, more) = match change {
        Change::New => ("new", json!({})),
        Change::Gone => ("gone", json!({})),
        Change::Renamed { before } => ("renamed", json!({"before": before})),
        Change::Field { field, before, after } => {
            ("changed", json!({"field": field, "before": before, "after": after}))
        }
    };
    told["change"] = kind.into();
    if let (Value::Object(told), Value::Object(more)) = (&mut told, more) {
        told.extend(more);
    }
    told
}
