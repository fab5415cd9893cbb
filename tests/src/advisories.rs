//! Whether a tree of dependencies is free of what the RustSec advisory database warns of.
//!
//! The database is a file of this repository, made by `tests/advisories/update`: what a checkout is told does not change from
//! one day to the next.

use anyhow::{Context as _, Result, ensure};
use semver::{Version, VersionReq};
use serde::Deserialize;

pub struct Database {
    /// On which the database was taken, `YYYY-MM-DD`.
    pub date: String,
    pub advisories: Vec<Advisory>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advisory {
    pub id: String,
    pub package: String,
    /// `vulnerability`, or what is only told of: `unmaintained`, `unsound`, `notice`.
    pub kind: String,
    /// The versions that are not affected.
    mended: Vec<VersionReq>,
}

#[derive(Deserialize)]
struct Head {
    date: String,
}

impl Database {
    /// Reads `rustsec.jsonl`.
    ///
    /// # Errors
    ///
    /// Names the line that is no advisory.
    pub fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines().zip(1..);
        let head: Head = serde_json::from_str(lines.next().map_or("", |(line, _)| line)).context("line 1")?;
        let advisories = lines
            .map(|(line, number)| serde_json::from_str(line).with_context(|| format!("line {number}")))
            .collect::<Result<_>>()?;
        Ok(Self { date: head.date, advisories })
    }

    /// The advisories that hold for a package of the tree.
    #[must_use]
    pub fn of<'a>(&'a self, tree: &'a [(String, Version)]) -> Vec<(&'a Advisory, &'a Version)> {
        let pairs = self.advisories.iter().flat_map(|advisory| tree.iter().map(move |one| (advisory, one)));
        pairs
            .filter(|(advisory, (name, _))| advisory.package == *name)
            .filter(|(advisory, (_, version))| !advisory.mended.iter().any(|mended| mended.matches(version)))
            .map(|(advisory, (_, version))| (advisory, version))
            .collect()
    }
}

/// Every package of a `Cargo.lock`, of all platforms and for tests, too.
///
/// # Errors
///
/// If a version is none, or there is no package at all.
pub fn packages(lock: &str) -> Result<Vec<(String, Version)>> {
    let value = |line: &str, key: &str| {
        let value = line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')?;
        Some(value.to_owned())
    };
    let (mut packages, mut name) = (Vec::new(), None);
    for line in lock.lines() {
        if let Some(found) = value(line, "name") {
            name = Some(found);
        } else if let Some(version) = value(line, "version")
            && let Some(name) = name.take()
        {
            let version = version.parse().with_context(|| format!("{name} {version}"))?;
            packages.push((name, version));
        }
    }
    ensure!(!packages.is_empty(), "there is no package in it");
    Ok(packages)
}

#[cfg(test)]
mod tests;
