//! `lf mcp …`: the servers of the project, from the terminal.

mod login;
pub(crate) mod pins;
mod probe;
mod states;

use std::io::IsTerminal as _;
use std::sync::Arc;

use lf_core::tool::{Held, ServerDown, ToolContent};
use lf_core::{Catalogue, Principal, Project, ToolRef, ToolSource as _};
use lf_mcp::{Consent, ProjectTools};
use lf_server::{App, Gateway, Offering, view};
use serde_json::{Map, Value, json};

use crate::args::{Common, Mcp};
use crate::exit::{Exit, Trouble, print_line};
use crate::log::printable;
use crate::remote::Remote;
use states::{Place, Verdict};

/// A project may list `lf mcp serve` as a server, of another project or of itself: each level is a process.
const MAX_DEPTH: u32 = 3;

/// Who agrees to what servers want in this command, other than by `lf mcp login`.
pub(crate) fn consent(command: &Mcp) -> Consent {
    match command {
        Mcp::Probe(options) => probe::consent(options),
        _ => Consent::Absent,
    }
}

/// Whether a command is about a project's servers, and not about one at any URL.
pub(crate) fn needs_project(command: &Mcp) -> bool {
    !matches!(command, Mcp::Probe(options) if probe::is_url(&options.target))
}

/// Runs a command; where it has tools run and they are `locked`, once their servers are as in the lock.
pub(crate) async fn run_with(
    app: &Arc<App>,
    project: Option<&Project>,
    command: &Mcp,
    locked: bool,
) -> Result<Exit, Trouble> {
    if let (true, Some(project)) = (locked, project) {
        match command {
            Mcp::Call { server, .. } => {
                known(project, server)?;
                pins::verify(app, project, Some(std::slice::from_ref(server))).await?;
            }
            Mcp::Serve { model } => pins::verify_for(app, Some(project), model.as_deref()).await?,
            _ => {}
        }
    }
    run(app, project, command).await
}

async fn run(app: &Arc<App>, project: Option<&Project>, command: &Mcp) -> Result<Exit, Trouble> {
    if let Mcp::Probe(options) = command {
        return Box::pin(probe::run(app, project, options)).await;
    }
    let Some(project) = project else { return Ok(Exit::Failure) };
    match command {
        Mcp::Probe(_) => Ok(Exit::Failure),
        Mcp::Login(options) => login::login(app, project, options).await,
        Mcp::Logout(options) => login::logout(app, project, options).await,
        Mcp::List { .. } | Mcp::Health { .. } | Mcp::Restart { .. } => {
            shown(&Place::Here(app, project), command).await
        }
        Mcp::Lock { servers, update } => pins::lock(app, project, servers, *update).await,
        Mcp::Diff { servers, json } => pins::diff(app, project, servers, *json).await,
        Mcp::Serve { model } => serve(app, project, model.as_deref()).await,
        Mcp::Tools { server, json } => tools(app, project, server.as_deref(), *json).await,
        Mcp::Call { server, tool, arguments, json } => {
            call(app, project, server, tool, arguments, *json).await
        }
    }
}

/// The commands that can be asked of a daemon; `None` for the others, and where none is named.
pub(crate) async fn in_daemon(common: &Common, command: &Mcp) -> Option<Result<Exit, Trouble>> {
    let (Mcp::List { at, .. } | Mcp::Health { at, .. } | Mcp::Restart { at, .. }) = command else {
        return None;
    };
    let server = at.server.as_deref()?;
    Some(match Remote::new(common, server, at.project.as_deref()) {
        Ok(remote) => shown(&Place::Daemon(remote), command).await,
        Err(trouble) => Err(trouble),
    })
}

async fn shown(place: &Place<'_>, command: &Mcp) -> Result<Exit, Trouble> {
    match command {
        Mcp::List { json, .. } => states::list(place, *json, Verdict::Tell).await,
        Mcp::Health { server: None, json, .. } => states::list(place, *json, Verdict::Fail).await,
        Mcp::Health { server: Some(server), json, .. } => states::show(place, server, *json).await,
        Mcp::Restart { server, json, .. } => states::restart(place, server, *json).await,
        _ => Ok(Exit::Success),
    }
}

async fn serve(app: &Arc<App>, project: &Project, model: Option<&str>) -> Result<Exit, Trouble> {
    let depth = std::env::var(lf_mcp::DEPTH_VARIABLE).ok().and_then(|depth| depth.parse().ok());
    if depth.unwrap_or(0) > MAX_DEPTH {
        let message = format!("`lf mcp serve` was started by itself more than {MAX_DEPTH} times over");
        return Err(Trouble::failure(message).hint("take it out of this project's `mcp.servers`"));
    }
    let offering = model.map_or(Offering::All, |model| Offering::Model(model.to_owned()));
    let name = (project.namespace.as_str(), project.name.as_str());
    let gateway = Gateway::open(app.clone(), Arc::new(Principal::owner()), name, offering, None).await;
    let gateway = gateway.map_err(|refusal| Trouble::usage(refusal.to_string()))?;
    let served = lf_mcp::endpoint::serve_stdio(Arc::new(gateway)).await;
    served.map(|()| Exit::Success).map_err(|error| Trouble::failure(error.to_string()))
}

async fn tools(app: &App, project: &Project, server: Option<&str>, json: bool) -> Result<Exit, Trouble> {
    if let Some(server) = server {
        known(project, server)?;
    }
    let wanted = project.servers.iter().filter(|(name, _)| server.is_none_or(|server| server == *name));
    let tools = app.pool().tools(wanted.map(|(name, server)| (name.clone(), server.clone())));
    let tools = tools.pinned(project.pins.clone());
    let catalogue = catalogue(&tools).await;
    if json {
        let listed: Vec<Value> = catalogue
            .tools
            .iter()
            .map(|tool| {
                json!({
                    "server": tool.id.server,
                    "name": tool.id.name,
                    "shown_name": tool.shown_name,
                    "description": tool.description,
                    "input_schema": tool.schema,
                })
            })
            .collect();
        let held = view::held(&catalogue);
        print_line(json!({"tools": listed, "total": listed.len(), "held_back": held}))?;
    } else {
        for tool in &catalogue.tools {
            let description = tool.description.as_deref().unwrap_or_default();
            let first = description.lines().next().unwrap_or_default();
            print_line(format_args!(
                "{}  {}  {}",
                tool.id.server,
                printable(&tool.id.name),
                printable(first)
            ))?;
        }
    }
    for Held { tool, why } in &catalogue.held {
        anstream::eprintln!("{}  {}  {}", tool.id.server, printable(&tool.id.name), printable(why));
    }
    for down in &catalogue.down {
        anstream::eprintln!("{}: {}", down.server, printable_lines(&down.reason));
        if let Some(hint) = tools.hint(&down.server) {
            anstream::eprintln!("hint: {}", printable_lines(&hint));
        }
    }
    Ok(if catalogue.down.is_empty() { Exit::Success } else { Exit::Failure })
}

/// The tools of all these servers. Who asks for them waits for the slowest start: a listing alone is made for chats,
/// which go on without a server that takes long.
pub(crate) async fn catalogue(tools: &ProjectTools) -> Catalogue {
    let (up, down): (Vec<_>, Vec<_>) =
        tools.probe().await.into_iter().partition(|report| report.last_error().is_none());
    let up: Vec<String> = up.into_iter().map(|report| report.name).collect();
    let mut catalogue = tools.list(&up).await;
    catalogue.down.extend(down.into_iter().map(|report| ServerDown {
        reason: report.last_error().unwrap_or_default().to_owned(),
        required: report.required,
        server: report.name,
    }));
    catalogue
}

async fn call(
    app: &App,
    project: &Project,
    server: &str,
    tool: &str,
    arguments: &str,
    json: bool,
) -> Result<Exit, Trouble> {
    known(project, server)?;
    let arguments: Map<String, Value> = serde_json::from_str(arguments).map_err(|error| {
        Trouble::usage(format!("the arguments are not a JSON object: {error}"))
            .hint("quote them for the shell: '{\"path\": \"notes.txt\"}'")
    })?;
    let tools = app.servers_of(project);
    pins::refuse_held(&tools, project, server, tool).await?;
    let wanted = ToolRef { server: server.into(), name: tool.into() };
    let progress = |progress: lf_core::tool::ToolProgress| {
        let total = progress.total.map_or_else(String::new, |total| format!("/{total}"));
        let message = progress.message.as_deref().map(printable).unwrap_or_default();
        anstream::eprintln!("… {}{total} {message}", progress.progress);
    };
    let output = match app.call_as_owner(project, &tools, (&wanted, &arguments), &progress).await {
        Ok(output) => output,
        Err(error) => {
            let trouble = Trouble::failure(error.to_string());
            return Err(match tools.hint(server) {
                Some(hint) => trouble.hint(hint),
                None => trouble,
            });
        }
    };
    if json {
        print_line(view::output(server, tool, &output))?;
    } else {
        for content in &output.content {
            match content {
                // a pipe gets it as it is
                ToolContent::Text(text) if std::io::stdout().is_terminal() => {
                    print_line(crate::transcript::harmless(text))?;
                }
                ToolContent::Text(text) => print_line(text)?,
                other => print_line(other.to_json())?,
            }
        }
    }
    if output.is_error {
        anstream::eprintln!("the tool reported an error");
        return Ok(Exit::Failure);
    }
    Ok(Exit::Success)
}

fn known(project: &Project, server: &str) -> Result<(), Trouble> {
    if project.servers.contains_key(server) {
        return Ok(());
    }
    let names: Vec<&str> = project.servers.keys().map(String::as_str).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(Trouble::usage(format!("Server not found: `{server}` is not in `mcp.servers`"))
        .hint(format!("check the name; the servers of this project: {names}")))
}

/// Printable, with line breaks kept: reasons show the last lines a server wrote.
pub(crate) fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n    ")
}

#[cfg(test)]
mod tests;
