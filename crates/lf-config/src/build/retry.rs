//! `retry` of an MCP server.

use lf_core::project::{RetryRule, ToolFilter};
use lf_core::tool::{Retries, Trouble};

use super::Reading;
use super::server::{glob, globs};
use crate::raw::{RawRetry, RawRetryRule, RawTrouble};

pub(super) fn read(reading: &mut Reading<'_, '_, '_>, raw: Option<&RawRetry>) -> Option<RetryRule> {
    let node = reading.node("retry")?;
    let defaults = Retries::default();
    let (retries, safe) = match raw? {
        RawRetry::Word(_) => (defaults, glob("*", node, reading.report).into_iter().collect()),
        RawRetry::Rule(RawRetryRule { attempts, on, .. }) => {
            let on = on.as_ref().map(|on| on.iter().copied().map(trouble).collect());
            let retries =
                Retries { attempts: attempts.unwrap_or(defaults.attempts), on: on.unwrap_or(defaults.on) };
            (retries, node.get("safe").map(|list| globs(list, reading.report)).unwrap_or_default())
        }
    };
    Some(RetryRule { retries, safe: ToolFilter { allow: Some(safe), ..ToolFilter::default() } })
}

fn trouble(raw: RawTrouble) -> Trouble {
    match raw {
        RawTrouble::Unavailable => Trouble::Unavailable,
        RawTrouble::RateLimited => Trouble::RateLimited,
        RawTrouble::Timeout => Trouble::Timeout,
        RawTrouble::Lost => Trouble::Lost,
        RawTrouble::Refused => Trouble::Refused,
        RawTrouble::Error => Trouble::Error,
    }
}
