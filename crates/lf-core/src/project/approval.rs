//! Which tools of a server run without asking, as its file says.

use globset::GlobMatcher;

use crate::tool::{Approval, Hints};

/// One line of a server's `approval`.
#[derive(Debug, Clone)]
pub struct ApprovalRule {
    pub of: ApprovalOf,
    pub approval: Approval,
}

/// What a rule speaks of.
#[derive(Debug, Clone)]
pub enum ApprovalOf {
    /// Tools by the server's own names.
    Tools(GlobMatcher),
    /// Tools of which this is true.
    Hint(Hint),
}

/// Annotations of tools, by the protocol's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    ReadOnly,
    Destructive,
    Idempotent,
    OpenWorld,
}

impl Hint {
    pub const ALL: [Self; 4] = [Self::ReadOnly, Self::Destructive, Self::Idempotent, Self::OpenWorld];

    /// As the protocol and the file write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "readOnlyHint",
            Self::Destructive => "destructiveHint",
            Self::Idempotent => "idempotentHint",
            Self::OpenWorld => "openWorldHint",
        }
    }

    /// As rules write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::ReadOnly => "readOnly",
            Self::Destructive => "destructive",
            Self::Idempotent => "idempotent",
            Self::OpenWorld => "openWorld",
        }
    }

    pub(crate) fn is_true_of(self, hints: Hints) -> bool {
        match self {
            Self::ReadOnly => hints.read_only,
            Self::Destructive => hints.destructive,
            Self::Idempotent => hints.idempotent,
            Self::OpenWorld => hints.open_world,
        }
    }
}

impl ApprovalRule {
    pub(super) fn fingerprint(&self) -> (&str, Approval) {
        match &self.of {
            ApprovalOf::Tools(glob) => (glob.glob().glob(), self.approval),
            ApprovalOf::Hint(hint) => (hint.name(), self.approval),
        }
    }

    fn speaks_of(&self, tool: &str, hints: Hints) -> bool {
        match &self.of {
            ApprovalOf::Tools(glob) => glob.is_match(tool),
            ApprovalOf::Hint(hint) => hint.is_true_of(hints),
        }
    }

    /// How closely it speaks of a tool: by its name, by a part of it (the more letters the closer), by its behaviour, or
    /// of every tool.
    fn closeness(&self) -> (u8, usize) {
        match &self.of {
            ApprovalOf::Tools(glob) => closeness(glob),
            ApprovalOf::Hint(_) => (1, 0),
        }
    }
}

/// The same of a glob.
pub(super) fn closeness(glob: &GlobMatcher) -> (u8, usize) {
    let pattern = glob.glob().glob();
    let letters = pattern.chars().filter(|letter| !"*?[]{},!".contains(*letter)).count();
    match pattern {
        _ if letters == pattern.chars().count() => (3, letters),
        _ if letters > 0 => (2, letters),
        _ => (0, 0),
    }
}

/// What the closest rule says; of equally close ones, the strictest.
pub(super) fn decide(rules: &[ApprovalRule], tool: &str, hints: Hints) -> Approval {
    let speaking = rules.iter().filter(|rule| rule.speaks_of(tool, hints));
    let closest = speaking.max_by_key(|rule| (rule.closeness(), rule.approval));
    closest.map_or(Approval::Auto, |rule| rule.approval)
}

#[cfg(test)]
mod tests;
