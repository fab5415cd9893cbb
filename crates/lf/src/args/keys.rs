//! What can be typed after `lf keys`.

use std::time::Duration;

use clap::{Args, Subcommand};
use lf_core::Scope;

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Make a key, and print it: this once
    Create(NewKey),
    /// The keys there are; not what they look like
    List {
        #[arg(long)]
        json: bool,
    },
    /// Take a key away: its next request is refused, and what runs for it ends
    Revoke {
        /// Its name or its id
        key: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NewKey {
    /// What it is called
    pub name: String,
    /// What it is good for: chat, read, tools, config:write, config:exec, approve, admin
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', default_values = ["chat", "read"])]
    pub scopes: Vec<Scope>,
    /// How long it lasts, such as 12h or 30d (default: until it is revoked)
    #[arg(long, value_name = "TIME", value_parser = lasting)]
    pub expires: Option<Duration>,
    /// Only these projects, as `namespace/project`; globs, may be repeated
    #[arg(long = "project", value_name = "GLOB", value_delimiter = ',')]
    pub projects: Option<Vec<String>>,
    /// Only these models; globs, may be repeated
    #[arg(long = "model", value_name = "GLOB", value_delimiter = ',')]
    pub models: Option<Vec<String>>,
    /// Only these tools, as `server/tool` or `server`; globs, may be repeated. `--tool ''` is none
    #[arg(long = "tool", value_name = "GLOB", value_delimiter = ',')]
    pub tools: Option<Vec<String>>,
    /// Turns and tool calls that it may begin in a minute (default: no limit)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub requests_per_minute: Option<u32>,
    /// Tokens that its turns may use from midnight to midnight, UTC (default: no limit)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub tokens_per_day: Option<u64>,
    /// US dollars that its turns may use of a day; then only of models with a `price` (default: no limit)
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub cost_per_day: Option<f64>,
    #[arg(long)]
    pub json: bool,
}

fn dollars(text: &str) -> Result<f64, String> {
    let amount: Option<f64> = text.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount > 0.0);
    amount.ok_or_else(|| format!("`{text}` is not an amount of US dollars such as 2.50"))
}

/// Days are the unit that keys are thought of in.
fn lasting(text: &str) -> Result<Duration, String> {
    let Some(days) = text.strip_suffix('d') else { return super::duration(text) };
    let days: u32 = days.parse().map_err(|_| format!("`{text}` is not a time such as 12h or 30d"))?;
    Ok(Duration::from_secs(u64::from(days) * 24 * 3600))
}
