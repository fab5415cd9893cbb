//! `lf config status`: the generations of a running daemon.

use std::fmt::Write as _;

use serde_json::Value;

use crate::exit::{Exit, Trouble, print, print_line};
use crate::log::printable;
use crate::remote::{HERE, Remote};

pub(crate) async fn status(server: Option<&str>, json: bool) -> Result<Exit, Trouble> {
    let remote = Remote::new(server.unwrap_or(HERE), None)?;
    let answer = remote.get("/config/status").await?;
    let projects = answer["projects"].as_array().map(Vec::as_slice).unwrap_or_default();
    if json {
        print_line(&answer)?;
    } else if projects.is_empty() {
        print("no project is loaded\n")?;
    } else {
        print(projects.iter().map(told).collect::<String>())?;
    }
    let refused = projects.iter().any(|project| !project["refused"].is_null());
    Ok(if refused { Exit::Failure } else { Exit::Success })
}

fn told(project: &Value) -> String {
    let text = |value: &Value| printable(value.as_str().unwrap_or_default());
    let hash: String = text(&project["hash"]).chars().take(12).collect();
    let (name, since, file) = (text(&project["project"]), text(&project["since"]), text(&project["file"]));
    let mut told =
        format!("{name}: generation {} ({hash}) since {since}, from {file}\n", project["generation"]);
    for one in project["diagnostics"].as_array().into_iter().flatten() {
        diagnostic(&mut told, &file, one);
    }
    let refused = &project["refused"];
    if refused.is_object() {
        let _ = writeln!(told, "  refused at {}: {}", text(&refused["at"]), text(&refused["message"]));
        for one in refused["diagnostics"].as_array().into_iter().flatten() {
            diagnostic(&mut told, &file, one);
        }
    }
    told
}

fn diagnostic(told: &mut String, file: &str, one: &Value) {
    let text = |key: &str| printable(one[key].as_str().unwrap_or_default());
    let place = match (one["line"].as_u64(), one["column"].as_u64()) {
        (Some(line), Some(column)) => format!("{file}:{line}:{column}: "),
        _ => String::new(),
    };
    let _ = writeln!(told, "  {place}{}: {}", text("severity"), text("message"));
    if !one["hint"].is_null() {
        let _ = writeln!(told, "    hint: {}", text("hint"));
    }
}
