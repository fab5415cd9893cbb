//! Amounts of memory, as people write them.

use crate::build::Reading;
use crate::diagnostic::quote;

/// `512MiB`, `4GiB`, `2GB`, or a number of bytes.
fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

impl Reading<'_, '_, '_> {
    /// The size under `key` of `section`; 0 is none.
    pub(super) fn size(&mut self, section: &str, key: &str, default: Option<u64>) -> Option<u64> {
        let Some(node) = self.node(section).and_then(|section| section.get(key)) else { return default };
        let text = node.as_str().unwrap_or_default();
        let Some(size) = parse(text) else {
            if let Some(diagnostic) =
                self.wrong(node, format!("{} is no amount of memory: {}", quote(key), self.quoted(node)))
            {
                diagnostic
                    .hint("write `512MiB`, `4GiB` or `2GB`; a number alone is bytes, and 0 is no limit");
            }
            return default;
        };
        Some(size).filter(|size| *size > 0)
    }
}

#[cfg(test)]
mod tests;
