//! `cargo bench -p lf-dialects --bench tools`: a list of 500 tools written for each API, against a request that finds
//! them written already. It fails where a request costs as much as the list.
#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lf_core::model::ToolSpec;
use lf_core::{Message, ModelRequest};
use lf_dialects::Dialect;
use lf_dialects::upstream::{self, UpstreamOptions};
use serde_json::{Map, json};

const TOOLS: usize = 500;
const RUNS: usize = 20;

fn main() -> ExitCode {
    let user = lf_core::Prose { content: "What is new?".into(), rest: Map::new() };
    let request = ModelRequest {
        messages: vec![Message::User(user)],
        tools: (0..TOOLS).map(spec).collect(),
        stream: true,
        ..ModelRequest::default()
    };
    println!("{TOOLS} tools, best of {RUNS}");
    println!("{:<18}{:>9}{:>17}{:>25}{:>9}", "", "KB", "written, µs", "request with them, µs", "share");
    let mut dear = false;
    for dialect in Dialect::ASKED {
        let tools = upstream::tools(dialect, &request.tools);
        let written = best(|| upstream::tools(dialect, &request.tools));
        let asked = best(|| {
            let encoded = upstream::encode(dialect, "m", &request, &UpstreamOptions::default());
            encoded.map(|encoded| encoded.body(&tools))
        });
        let share = asked.as_secs_f64() / written.as_secs_f64();
        dear |= share > 1.0;
        let (size, written, asked) = (tools.len() / 1000, written.as_micros(), asked.as_micros());
        let name = format!("{dialect:?}");
        println!("{name:<18}{size:>9}{written:>17}{asked:>25}{share:>9.3}");
    }
    if dear { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn best<T>(work: impl Fn() -> T) -> Duration {
    let runs = (0..RUNS).map(|_| {
        let started = Instant::now();
        black_box(work());
        started.elapsed()
    });
    runs.min().unwrap_or_default()
}

/// As long as the tools of real servers: about a kilobyte.
fn spec(at: usize) -> ToolSpec {
    let field = |name: &str| json!({"type": ["string", "null"], "description": format!("The {name} to look at, or nothing for all of them."), "enum": ["a", "b", null]});
    let properties = json!({
        "owner": field("owner"), "repository": field("repository"), "state": field("state"), "sort": field("order"),
        "labels": {"type": "array", "items": {"$ref": "#/$defs/label"}},
        "page": {"type": "integer", "minimum": 1, "default": 1},
    });
    ToolSpec {
        name: format!("server_{}__list_things_{at}", at % 7),
        description: Some("Lists things, page by page, and says which of them are open.".into()),
        schema: Arc::new(json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": properties,
            "required": ["owner", "repository"], "additionalProperties": false,
            "$defs": {"label": {"type": "string", "maxLength": 50}},
        })),
        rest: Map::new(),
    }
}
