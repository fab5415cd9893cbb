//! Differences as lines for people: what was, what is, and nothing hidden.

use lf_core::pins::{Change, Difference, Lock};
use serde_json::Value;

use crate::log::printable;

/// Lines of a text that are compared one by one; longer ones are shown as a whole.
const COMPARED: usize = 2_000;
/// Unchanged lines that are shown around changed ones.
const AROUND: usize = 2;

/// Server by server. `now`: what is new is shown in full.
pub(super) fn told(differences: &[Difference], now: &Lock) -> Vec<String> {
    let mut told = Vec::new();
    let mut last = None;
    for difference in differences {
        let Difference { server, tool, change, holds_back } = difference;
        if last != Some(server) {
            told.push(format!("MCP server `{}`:", printable(server)));
            last = Some(server);
        }
        let what =
            tool.as_ref().map_or_else(|| "it".to_owned(), |tool| format!("tool `{}`", printable(tool)));
        let effect = if *holds_back { "held back" } else { "told only" };
        let says = match change {
            Change::New => format!("{what} is new"),
            Change::Gone => format!("{what} is gone"),
            Change::Renamed { before } => format!("{what} was called `{}`", printable(before)),
            Change::Field { field, .. } if tool.is_none() => {
                format!("its `{}` is not the same", printable(field))
            }
            Change::Field { field, .. } => format!("`{}` of {what} is not the same", printable(field)),
        };
        told.push(format!("  {says} ({effect})"));
        match change {
            Change::Field { before, after, .. } => {
                let text =
                    |value: &Option<Value>| value.as_ref().map(lf_config::shown_pin).unwrap_or_default();
                told.extend(
                    changed(&text(before), &text(after)).into_iter().map(|line| format!("    {line}")),
                );
            }
            Change::New => {
                let pinned = now.servers.get(server);
                let definitions = pinned.into_iter().flat_map(|pinned| match tool {
                    Some(tool) => pinned.tools.get(tool).into_iter().collect::<Vec<_>>(),
                    None => pinned.tools.values().collect(),
                });
                for definition in definitions {
                    let text = lf_config::shown_pin(definition);
                    told.extend(text.lines().map(|line| format!("    + {line}")));
                }
            }
            Change::Gone | Change::Renamed { .. } => {}
        }
    }
    told
}

/// The lines that differ, with a few around them.
fn changed(before: &str, after: &str) -> Vec<String> {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let rest = before[same..].iter().rev().zip(after[same..].iter().rev());
    let same_end = rest.take_while(|(one, other)| one == other).count();
    let (old, new) = (&before[same..before.len() - same_end], &after[same..after.len() - same_end]);
    let mut lines: Vec<String> = Vec::new();
    lines.extend(before[same.saturating_sub(AROUND)..same].iter().map(|line| format!("  {line}")));
    lines.extend(between(old, new));
    let end = &before[before.len() - same_end..];
    lines.extend(end.iter().take(AROUND).map(|line| format!("  {line}")));
    lines
}

/// By the longest common subsequence of their lines.
fn between(old: &[&str], new: &[&str]) -> Vec<String> {
    let (minus, plus) = (|line: &&str| format!("- {line}"), |line: &&str| format!("+ {line}"));
    if old.len() > COMPARED || new.len() > COMPARED {
        return old.iter().map(minus).chain(new.iter().map(plus)).collect();
    }
    let width = new.len() + 1;
    let mut longest = vec![0_u16; (old.len() + 1) * width];
    for (i, one) in old.iter().enumerate().rev() {
        for (j, other) in new.iter().enumerate().rev() {
            longest[i * width + j] = match one == other {
                true => longest[(i + 1) * width + j + 1] + 1,
                false => longest[(i + 1) * width + j].max(longest[i * width + j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    while i < old.len() && j < new.len() {
        if old[i] == new[j] {
            lines.push(format!("  {}", old[i]));
            (i, j) = (i + 1, j + 1);
        } else if longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            lines.push(minus(&old[i]));
            i += 1;
        } else {
            lines.push(plus(&new[j]));
            j += 1;
        }
    }
    lines.extend(old[i..].iter().map(minus));
    lines.extend(new[j..].iter().map(plus));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_are_shown_with_those_around_them() {
        let before = "one\ntwo\nthree\nfour\nfive\nsix\nseven";
        let after = "one\ntwo\nthree\nvier\nfive\nsechs\nseven";
        let shown = ["  two", "  three", "- four", "+ vier", "  five", "- six", "+ sechs", "  seven"];
        assert_eq!(changed(before, after), shown);
    }

    #[test]
    fn a_text_that_was_not_there_is_all_new() {
        assert_eq!(changed("", "a\nb"), ["+ a", "+ b"]);
        assert_eq!(changed("a", ""), ["- a"]);
    }
}
