//! Lengths of time, as people write them.

use std::time::Duration;

use crate::build::Reading;
use crate::diagnostic::quote;

/// A day: longer is a typing mistake.
const MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// `500ms`, `30s`, `5m`, `1h`, `1h30m`, or a number of seconds. Zero is none.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Some(duration) = amount(text, 1.0) {
        return valid(duration);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let seconds = match unit.trim() {
            "ms" => 0.001,
            "s" | "sec" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total = total.checked_add(amount(number, seconds)?)?;
        rest = after;
    }
    valid(total)
}

fn amount(number: &str, seconds: f64) -> Option<Duration> {
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = is_number.then(|| number.parse::<f64>().ok())??;
    Duration::try_from_secs_f64(number * seconds).ok()
}

fn valid(duration: Duration) -> Option<Duration> {
    (Duration::from_millis(1)..=MAX).contains(&duration).then_some(duration)
}

impl Reading<'_, '_, '_> {
    /// The duration under `key` of `section` (the entry itself where that is `None`).
    pub(super) fn duration(&mut self, section: Option<&str>, key: &str, default: Duration) -> Duration {
        let section = match section {
            Some(section) => self.node(section),
            None => Some(&self.expanded.node),
        };
        let Some(node) = section.and_then(|section| section.get(key)) else { return default };
        let text = node.as_str().unwrap_or_default();
        if let Some(duration) = parse(text) {
            return duration;
        }
        if let Some(diagnostic) =
            self.wrong(node, format!("{} is no length of time: {}", quote(key), self.quoted(node)))
        {
            diagnostic.hint("write `500ms`, `30s`, `5m` or `1h`; a number alone is seconds; at most 24h");
        }
        default
    }
}
