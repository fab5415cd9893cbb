//! `lf config why` and `lf config plan`: what the rules say of a call, and what an edit changes for models.

mod plan;

use std::sync::Arc;

use lf_core::tool_set::Target;
use lf_core::{Catalogue, Model, Project, ToolRef, ToolSet};
use lf_server::App;
use lf_server::explain::{Known, Step, verdict};
use serde_json::{Map, Value, json};

use crate::args::{Common, Why};
use crate::exit::{Exit, Trouble, print_line};
use crate::log::printable;
use crate::mcp::{catalogue, printable_lines};
use crate::signals::Signals;
use crate::{app, close, project};

pub(crate) use plan::run as plan;

pub(crate) async fn why(common: &Common, options: &Why) -> Result<Exit, Trouble> {
    let arguments = options.args.as_deref().map(arguments).transpose()?;
    let project = project::load_telling(common)?;
    let app = app(common, Some(project))?;
    let Some(project) = app.project() else { return Ok(Exit::Failure) };
    let mut signals = Signals::new()?;
    let told = tokio::select! {
        told = explained(&app, &project, options, arguments.as_ref()) => told,
        _ = signals.next() => Ok(Exit::Failure),
    };
    close(&app, &mut signals).await;
    told
}

async fn explained(
    app: &App,
    project: &Arc<Project>,
    options: &Why,
    arguments: Option<&Map<String, Value>>,
) -> Result<Exit, Trouble> {
    let (_, model) = app
        .find_model(Some(project), Some(&options.model))
        .await
        .map_err(|refusal| Trouble::usage(refusal.to_string()))?;
    let known = find(app, project, &model, &options.tool).await?;
    let steps = known.explain(project, &model, arguments);
    let verdict = verdict(&steps);
    if options.json {
        print_line(json!({
            "model": model.name,
            "server": known.tool.server,
            "tool": known.tool.name,
            "verdict": verdict,
            "steps": steps,
        }))?;
        return Ok(Exit::Success);
    }
    print_line(format_args!(
        "model `{}` calls `{}` of MCP server `{}`: {verdict}",
        model.name,
        printable(&known.tool.name),
        printable(&known.tool.server)
    ))?;
    for Step { step, says, place, verdict } in &steps {
        let place = place.as_ref().map(|place| format!("  [{place}]")).unwrap_or_default();
        print_line(format_args!("  {:<12}{:<6}{}{place}", step, verdict.unwrap_or(""), printable(says)))?;
    }
    Ok(Exit::Success)
}

fn arguments(text: &str) -> Result<Map<String, Value>, Trouble> {
    serde_json::from_str(text).map_err(|error| {
        Trouble::usage(format!("`--args` is not a JSON object: {error}"))
            .hint("quote it for the shell: --args '{\"path\": \"notes.txt\"}'")
    })
}

/// The tool that somebody means, whether or not the model may use it.
async fn find(app: &App, project: &Arc<Project>, model: &Model, name: &str) -> Result<Known, Trouble> {
    let apart = name.split_once('/').or_else(|| name.split_once("__"));
    let wanted = apart.map(|(server, _)| server).filter(|server| project.servers.contains_key(*server));
    let servers = project.servers.iter().filter(|(known, _)| match wanted {
        Some(wanted) => wanted == *known,
        None => model.servers.contains(known),
    });
    let tools = app.pool().tools(servers.map(|(name, server)| (name.clone(), server.clone())));
    let listed = catalogue(&tools).await;
    tell_down(&listed);
    let spelled = name.replacen('/', "__", 1);
    let set = ToolSet::new(&listed, &[], &[]);
    if let Ok((_, Target::Source(tool))) = set.resolve(&spelled, None) {
        return Ok(Known { tool: tool.id.clone(), listed: Some(tool.clone()) });
    }
    // withheld by the file, or of a server that is down: there is something to say of it all the same
    match (wanted, apart) {
        (Some(server), Some((_, own))) => {
            Ok(Known { tool: ToolRef { server: server.into(), name: own.into() }, listed: None })
        }
        _ => {
            let names: Vec<&str> = set.iter().map(|(name, _)| name).take(20).collect();
            Err(Trouble::usage(format!("no tool `{name}` is known")).hint(format!(
                "name it as `server/tool`; model `{}` has: {}",
                model.name,
                names.join(", ")
            )))
        }
    }
}

fn tell_down(catalogue: &Catalogue) {
    for down in &catalogue.down {
        anstream::eprintln!("{}: its tools are not known: {}", down.server, printable_lines(&down.reason));
    }
}
