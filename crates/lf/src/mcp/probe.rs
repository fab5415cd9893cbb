//! `lf mcp probe`: what happens between us and one server, step by step, with what went wrong and how long it took.

mod ask;
mod reach;
mod report;
mod schema;
mod target;

use std::sync::Arc;
use std::time::Duration;

use lf_core::tool::Tool;
use lf_core::{McpServer, Project};
use lf_mcp::{List, OpenSession, SessionPool};
use lf_server::App;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::Probe;
use crate::exit::{Exit, Trouble};
use ask::Call;
use report::{Report, Step};
pub(crate) use target::{consent, is_url};

/// Probes a server of the project, or any at a URL. The project is needed for the former alone.
///
/// # Errors
/// When the command line does not say what to probe. What the server does wrong is in the report.
pub(crate) async fn run(app: &App, project: Option<&Project>, options: &Probe) -> Result<Exit, Trouble> {
    let server = Arc::new(target::server(project, options)?);
    let calls = named_calls(options)?;
    let mut report = Report::new(&server, options.json);
    examine(app.pool(), &server, (calls, options), &mut report).await?;
    report.finish()
}

async fn examine(
    pool: &SessionPool,
    server: &Arc<McpServer>,
    (mut calls, options): (Vec<Call>, &Probe),
    report: &mut Report,
) -> Result<(), Trouble> {
    for step in reach::steps(pool, server).await {
        report.add(step)?;
    }
    if report.failed() {
        return Ok(());
    }
    let Some(session) = greet(pool, server, report).await? else { return Ok(()) };
    let Some(tools) = tools(&session, report).await? else { return Ok(()) };
    let mut items = Vec::new();
    for list in [List::Prompts, List::Resources, List::Templates] {
        items.push(listed(&session, server, list, report).await?);
    }
    let mut uris = options.resources.clone();
    if options.all {
        let known = items[1].iter().filter_map(|resource| resource["uri"].as_str());
        uris.extend(known.map(str::to_owned));
        calls.extend(
            tools
                .iter()
                .map(|tool| Call { tool: tool.id.name.to_string(), arguments: schema::least(&tool.schema) }),
        );
    }
    for call in calls {
        ask::call(pool, server, &tools, call, report).await?;
    }
    for prompt in items[0].iter().filter(|_| options.all) {
        ask::prompt(&session, server, prompt, report).await?;
    }
    for uri in uris {
        ask::read(&session, server, &uri, report).await?;
    }
    Ok(())
}

async fn greet(
    pool: &SessionPool,
    server: &Arc<McpServer>,
    report: &mut Report,
) -> Result<Option<OpenSession>, Trouble> {
    let started = Instant::now();
    let opened = pool.session(server, None).await;
    let elapsed = started.elapsed();
    match opened {
        Ok(session) => {
            let detail = report.greeted(&session, &pool.status(server));
            report.add(Step::done("greet", elapsed, detail))?;
            Ok(Some(session))
        }
        Err(failure) => {
            report.add(Step::failed("greet", elapsed, &failure))?;
            report.said(pool.activity(server))?;
            Ok(None)
        }
    }
}

async fn tools(session: &OpenSession, report: &mut Report) -> Result<Option<Arc<Vec<Tool>>>, Trouble> {
    let started = Instant::now();
    let tools = session.tools(Duration::ZERO).await;
    let elapsed = started.elapsed();
    match tools {
        Ok(tools) => {
            report.add(Step::done("tools", elapsed, format!("{} tools", tools.len())))?;
            for tool in tools.iter() {
                let definition = json!({"name": tool.id.name, "description": tool.description, "inputSchema": tool.schema});
                report.tool(&definition, &schema::problems(&definition))?;
            }
            Ok(Some(tools))
        }
        Err(failure) => {
            report.add(Step::failed("tools", elapsed, &failure))?;
            Ok(None)
        }
    }
}

/// What the server has of one kind; nothing where it has no such list, or does not give it.
async fn listed(
    session: &OpenSession,
    server: &McpServer,
    list: List,
    report: &mut Report,
) -> Result<Arc<Vec<Value>>, Trouble> {
    let (name, capability) = match list {
        List::Tools => ("tools", "tools"),
        List::Prompts => ("prompts", "prompts"),
        List::Resources => ("resources", "resources"),
        List::Templates => ("templates", "resources"),
    };
    if session.about()["capabilities"][capability].is_null() {
        return Ok(Arc::default());
    }
    let started = Instant::now();
    let items = session.items(server, list).await;
    let elapsed = started.elapsed();
    match items {
        Ok(items) => {
            report.add(Step::done(name, elapsed, format!("{} {name}", items.len())))?;
            report.items(list, &items)?;
            Ok(items)
        }
        Err(failure) => {
            report.add(Step::failed(name, elapsed, &failure))?;
            Ok(Arc::default())
        }
    }
}

/// The calls of the command line: the first arguments are for the first tool, and so on.
fn named_calls(options: &Probe) -> Result<Vec<Call>, Trouble> {
    if options.arguments.len() > options.calls.len() {
        return Err(Trouble::usage("there are more `--arguments` than `--call`s".to_owned())
            .hint("the first `--arguments` are for the first `--call`, and so on"));
    }
    let arguments = options.arguments.iter().map(|text| {
        serde_json::from_str(text).map_err(|error| {
            Trouble::usage(format!("the arguments are not a JSON object: {error}"))
                .hint("quote them for the shell: '{\"path\": \"notes.txt\"}'")
        })
    });
    let mut arguments = arguments.collect::<Result<Vec<_>, _>>()?.into_iter();
    let call = |tool: &String| Call { tool: tool.clone(), arguments: arguments.next().unwrap_or_default() };
    Ok(options.calls.iter().map(call).collect())
}
