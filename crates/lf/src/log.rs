//! Log lines: `time LEVEL message [target] field=value …`, on stderr.

mod lines;

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

pub(crate) use lines::Lines;

/// Starts logging at `level`, one of the five or a filter. The MCP library logs whole payloads and URLs, and as errors what
/// `lf-mcp` handles and tells itself: it is heard only when a filter names it.
pub(crate) fn start(level: &str) -> Result<Lines, String> {
    let filter = match level {
        "off" | "error" | "warn" | "info" | "debug" | "trace" => format!("{level},rmcp=off,hyper=warn"),
        filter if filter.contains(['=', ',']) => filter.to_owned(),
        _ => {
            return Err(format!(
                "`--log {level}` is neither error, warn, info, debug nor trace, nor a filter such as lf_mcp=debug"
            ));
        }
    };
    let filter = EnvFilter::try_new(&filter).map_err(|error| format!("`--log {level}`: {error}"))?;
    let lines =
        Lines::to(std::io::stderr()).map_err(|error| format!("the log cannot be written: {error}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(lines.clone())
        .with_ansi(std::io::stderr().is_terminal())
        .event_format(Line)
        .init();
    Ok(lines)
}

struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        SystemTime.format_time(&mut writer)?;
        let meta = event.metadata();
        writeln!(writer, " {:>5} {} [{}]{}", meta.level(), fields.message, meta.target(), fields.rest)
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = printable(&format!("{value:?}"));
        let _ = match field.name() {
            "message" => write!(self.message, "{text}"),
            name => write!(self.rest, " {name}={text}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let text = printable(value);
        let _ = match field.name() {
            "message" => write!(self.message, "{text}"),
            name => write!(self.rest, " {name}={text}"),
        };
    }
}

/// Escape sequences, control characters and what turns the direction of text could rewrite the terminal or forge a line:
/// they are taken out, and what is left is one line.
pub(crate) fn printable(text: &str) -> String {
    lf_core::visible::line(text)
}
