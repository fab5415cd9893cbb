//! `lf mcp …`: the servers of the project, from the terminal.

use std::fmt::Write as _;

use lf_core::tool::ToolContent;
use lf_core::{Project, ToolRef, ToolSource as _};
use lf_server::{App, view};
use serde_json::{Map, Value, json};

use crate::args::Mcp;
use crate::exit::{Exit, Trouble, print_line};
use crate::log::printable;

pub(crate) async fn run(app: &App, project: &Project, command: &Mcp) -> Result<Exit, Trouble> {
    match command {
        Mcp::List { json } => states(app, project, *json, false).await,
        Mcp::Health { json } => states(app, project, *json, true).await,
        Mcp::Tools { server, json } => tools(app, project, server.as_deref(), *json).await,
        Mcp::Call { server, tool, arguments, json } => {
            call(app, project, server, tool, arguments, *json).await
        }
    }
}

async fn states(app: &App, project: &Project, json: bool, strict: bool) -> Result<Exit, Trouble> {
    let reports = app.servers_of(project).probe().await;
    let down = reports.iter().filter(|report| report.last_error().is_some()).count();
    if json {
        let servers: Vec<Value> = reports.iter().map(view::server).collect();
        print_line(json!({"servers": servers, "total": servers.len(), "down": down}))?;
    } else if reports.is_empty() {
        anstream::eprintln!("no MCP servers in `mcp.servers`");
    } else {
        let width = reports.iter().map(|report| report.name.len()).max().unwrap_or(0);
        for report in &reports {
            let mut line = format!(
                "{:width$}  {:5}  {:9}",
                report.name,
                report.transport.unwrap_or("-"),
                report.state.name()
            );
            if let lf_mcp::ServerState::Ready { tools, protocol, .. } = &report.state {
                let _ = write!(line, "  {tools} tools, protocol {protocol}");
            }
            if let Some(error) = report.last_error() {
                let _ = write!(line, "  {}", printable_lines(error));
            }
            if let Some(hint) = report.hint() {
                let _ = write!(line, "\n{:width$}  hint: {}", "", printable_lines(hint));
            }
            print_line(format_args!("{line}"))?;
        }
    }
    Ok(if strict && down > 0 { Exit::Failure } else { Exit::Success })
}

async fn tools(app: &App, project: &Project, server: Option<&str>, json: bool) -> Result<Exit, Trouble> {
    let tools = app.servers_of(project);
    let servers: Vec<String> = match server {
        Some(server) => {
            known(project, server)?;
            vec![server.to_owned()]
        }
        None => project.servers.keys().cloned().collect(),
    };
    let catalogue = tools.list(&servers).await;
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
        print_line(json!({"tools": listed, "total": listed.len()}))?;
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
    for down in &catalogue.down {
        anstream::eprintln!("{}: {}", down.server, printable_lines(&down.reason));
        if let Some(hint) = tools.hint(&down.server) {
            anstream::eprintln!("hint: {}", printable_lines(&hint));
        }
    }
    Ok(if catalogue.down.is_empty() { Exit::Success } else { Exit::Failure })
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
    let wanted = ToolRef { server: server.into(), name: tool.into() };
    let progress = |progress: lf_core::tool::ToolProgress| {
        let total = progress.total.map_or_else(String::new, |total| format!("/{total}"));
        let message = progress.message.as_deref().map(printable).unwrap_or_default();
        anstream::eprintln!("… {}{total} {message}", progress.progress);
    };
    let output = match tools.call(&wanted, &arguments, &progress).await {
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
fn printable_lines(text: &str) -> String {
    text.lines().map(printable).collect::<Vec<_>>().join("\n    ")
}
