//! `retry` of an MCP server.

use lf_core::project::{RetryRule, ToolFilter, ToolRetry};
use lf_core::tool::{Retries, Trouble};

use super::Reading;
use super::server::{glob, globs};
use crate::node::Node;
use crate::raw::{RawRetry, RawRetryRule, RawToolRetry, RawToolRetryRule, RawToolRetryWord, RawTrouble};

pub(super) fn read(reading: &mut Reading<'_, '_, '_>, raw: Option<&RawRetry>) -> Option<RetryRule> {
    let node = reading.node("retry")?;
    let filter = |safe| ToolFilter { allow: Some(safe), ..ToolFilter::default() };
    let rule = match raw? {
        RawRetry::Word(_) => {
            let safe = glob("*", node, reading.report).into_iter().collect();
            return Some(RetryRule {
                retries: Some(Retries::default()),
                safe: filter(safe),
                tools: Vec::new(),
            });
        }
        RawRetry::Rule(rule) => rule,
    };
    let RawRetryRule { attempts, on, safe, tools } = rule;
    let own = retries(*attempts, on.as_deref(), Retries::default());
    let read = tools.iter().filter_map(|(pattern, raw)| {
        let key = node.entry(pattern)?;
        let at = Node::text(pattern.clone(), key.key_span.clone());
        let of = glob(pattern, &at, reading.report)?;
        Some(match raw {
            RawToolRetry::Word(RawToolRetryWord::Never) => ToolRetry { of, retries: None, safe: false },
            RawToolRetry::Word(RawToolRetryWord::Safe) => {
                ToolRetry { of, retries: Some(own.clone()), safe: true }
            }
            RawToolRetry::Rule(RawToolRetryRule { attempts, on, safe }) => {
                let retries = retries(*attempts, on.as_deref(), own.clone());
                ToolRetry { of, retries: Some(retries), safe: safe.unwrap_or(false) }
            }
        })
    });
    let read = read.collect();
    // one of nothing but globs is about no other tools
    let is_about_all = tools.is_empty() || attempts.is_some() || on.is_some() || safe.is_some();
    let safe = node.get("safe").map(|list| globs(list, reading.report)).unwrap_or_default();
    Some(RetryRule { retries: is_about_all.then_some(own), safe: filter(safe), tools: read })
}

fn retries(attempts: Option<u32>, on: Option<&[RawTrouble]>, otherwise: Retries) -> Retries {
    let on = on.map(|on| on.iter().copied().map(trouble).collect());
    Retries { attempts: attempts.unwrap_or(otherwise.attempts), on: on.unwrap_or(otherwise.on) }
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
