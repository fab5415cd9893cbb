//! `lf mcp list`, `health` and `restart`: the states of servers, here or in a daemon.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lf_core::Project;
use lf_server::{App, view};
use serde_json::{Value, json};

use super::{known, printable_lines};
use crate::exit::{Exit, Trouble, print_line};
use crate::log::printable;
use crate::remote::Remote;

/// Tools of a server whose reasons are told.
const HELD: usize = 10;

/// Where the servers run.
pub(crate) enum Place<'a> {
    /// In this process, for as long as the command takes.
    Here(&'a App, &'a Project),
    Daemon(Remote),
}

/// What a command does with a server that is down.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    Tell,
    /// It exits with 1.
    Fail,
}

/// Every server; those of this process are started.
pub(crate) async fn list(place: &Place<'_>, json: bool, verdict: Verdict) -> Result<Exit, Trouble> {
    let servers = match place {
        Place::Here(app, project) => app.servers_of(project).probe().await.iter().map(view::server).collect(),
        Place::Daemon(remote) => match remote.get("/mcp/servers").await?["servers"].take() {
            Value::Array(servers) => servers,
            _ => return Err(Trouble::failure("the daemon answered with no list of servers".to_owned())),
        },
    };
    let down = servers.iter().filter(|server| is_down(server)).count();
    if json {
        print_line(json!({"servers": servers, "total": servers.len(), "down": down}))?;
    } else if servers.is_empty() {
        anstream::eprintln!("no MCP servers in `mcp.servers`");
    } else {
        let width = servers.iter().map(|server| text(server, "name").len()).max().unwrap_or(0);
        for server in &servers {
            print_line(line(server, width))?;
        }
    }
    Ok(if verdict == Verdict::Fail && down > 0 { Exit::Failure } else { Exit::Success })
}

/// One server, with all that is known of it.
pub(crate) async fn show(place: &Place<'_>, name: &str, json: bool) -> Result<Exit, Trouble> {
    let server = match place {
        Place::Here(app, project) => {
            known(project, name)?;
            let tools = app.servers_of(project);
            tools.start(name).await;
            tools.report_of(name).map(|report| view::server_in_full(&report)).unwrap_or_default()
        }
        Place::Daemon(remote) => remote.get(&format!("/mcp/servers/{name}")).await?,
    };
    tell(&server, json)
}

/// Takes the server down, starts it anew, and tells how that went.
pub(crate) async fn restart(place: &Place<'_>, name: &str, json: bool) -> Result<Exit, Trouble> {
    let server = match place {
        Place::Here(app, project) => {
            known(project, name)?;
            anstream::eprintln!(
                "started here, to see whether it does; the one of a running daemon: lf mcp restart {} --server URL",
                printable(name)
            );
            let report = app.servers_of(project).renew(name).await;
            report.map(|report| view::server_in_full(&report)).unwrap_or_default()
        }
        Place::Daemon(remote) => remote.post(&format!("/mcp/servers/{name}/restart")).await?,
    };
    tell(&server, json)
}

fn tell(server: &Value, json: bool) -> Result<Exit, Trouble> {
    if json {
        print_line(server)?;
    } else {
        print_line(line(server, 0))?;
        for detail in details(server) {
            print_line(format_args!("  {detail}"))?;
        }
    }
    Ok(if is_down(server) { Exit::Failure } else { Exit::Success })
}

fn is_down(server: &Value) -> bool {
    server["error"].is_string()
}

fn text<'a>(server: &'a Value, key: &str) -> &'a str {
    server[key].as_str().unwrap_or_default()
}

fn line(server: &Value, width: usize) -> String {
    let transport = server["transport"].as_str().unwrap_or("-");
    let name = printable(text(server, "name"));
    let mut line = format!("{name:width$}  {transport:5}  {:10}", text(server, "state"));
    if let Some(tools) = server["tools"].as_u64() {
        let _ = write!(line, "  {tools} tools, protocol {}", printable(text(server, "protocol")));
    }
    let held = server["held_back"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !held.is_empty() {
        let _ = write!(line, ", {} held back", held.len());
    }
    if let Some(error) = server["error"].as_str() {
        let _ = write!(line, "  {}", printable_lines(error));
    }
    if let Some(seconds) =
        server["retry_in_seconds"].as_f64().filter(|_| text(server, "state") != "auth_required")
    {
        let _ = write!(line, " (next try in {seconds:.1} s)");
    }
    match text(server, "circuit") {
        "open" => line.push_str("; it keeps failing and is left alone for a while"),
        "half_open" => line.push_str("; it kept failing and is tried once more"),
        _ => {}
    }
    if let Some(hint) = server["hint"].as_str() {
        let _ = write!(line, "\n{:width$}  hint: {}", "", printable_lines(hint));
    }
    for held in held.iter().take(HELD) {
        let (tool, reason) = (printable(text(held, "tool")), printable(text(held, "reason")));
        let _ = write!(line, "\n{:width$}  `{tool}` is {reason}", "");
    }
    if held.len() > HELD {
        let _ = write!(line, "\n{:width$}  and {} more: `lf mcp diff` shows all", "", held.len() - HELD);
    }
    line.trim_end().to_owned()
}

/// What was counted, and the last lines.
fn details(server: &Value) -> Vec<String> {
    let mut details = Vec::new();
    let counters = &server["counters"];
    if counters.is_object() {
        let count = |key: &str| counters[key].as_u64().unwrap_or_default();
        details.push(format!("in this state for {}", ago(&server["since"])));
        details.push(format!(
            "in the last {}: {} starts, {} of them restarts; {} failures; {} calls, {} of them not answered",
            ago(&counters["since"]),
            count("starts"),
            count("restarts"),
            count("failures"),
            count("calls"),
            count("failed_calls"),
        ));
        if count("garbage_lines") > 0 {
            details.push(format!("{} lines on stdout that are no messages, last:", count("garbage_lines")));
            details.extend(lines(&server["garbage"]));
        }
    }
    if let Some(error) = server["last_failure"]["error"].as_str().filter(|_| !is_down(server)) {
        details.push(format!(
            "last failure, {} ago: {}",
            ago(&server["last_failure"]["at"]),
            printable_lines(error)
        ));
    }
    let stderr = lines(&server["stderr"]);
    if !stderr.is_empty() {
        details.push("last lines on stderr:".to_owned());
        details.extend(stderr);
    }
    details
}

fn lines(value: &Value) -> Vec<String> {
    let lines = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.map(|line| format!("  {}", printable(line))).collect()
}

fn ago(unix: &Value) -> String {
    let then = UNIX_EPOCH + Duration::from_secs(unix.as_u64().unwrap_or_default());
    let seconds = SystemTime::now().duration_since(then).map_or(0, |since| since.as_secs());
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
