//! Which calls of a server are made again when they fail, as its file says.

use globset::GlobMatcher;

use super::ToolFilter;
use super::approval::closeness;
use crate::tool::Retries;

/// The `retry` of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RetryRule {
    /// For the tools of which nothing else is said. Without: their calls are not made again.
    pub retries: Option<Retries>,
    /// The tools that may run again although their server does not say so.
    pub safe: ToolFilter,
    pub tools: Vec<ToolRetry>,
}

/// What is said of some of its tools.
#[derive(Debug, Clone)]
pub struct ToolRetry {
    /// By the server's own names.
    pub of: GlobMatcher,
    /// Without: their calls are not made again.
    pub retries: Option<Retries>,
    /// They may run again although their server does not say so.
    pub safe: bool,
}

impl RetryRule {
    /// When a call of this tool is made again, and whether the tool may run again whatever its server says. What speaks of it
    /// most closely counts; of equals the one with fewer tries.
    pub fn of(&self, tool: &str) -> (Option<&Retries>, bool) {
        let speaking = self.tools.iter().filter(|rule| rule.of.is_match(tool));
        let tries = |rule: &ToolRetry| rule.retries.as_ref().map_or(0, |retries| retries.attempts);
        let closest = speaking.max_by_key(|rule| (closeness(&rule.of), std::cmp::Reverse(tries(rule))));
        let safe = self.safe.permits(tool);
        match closest {
            Some(rule) => (rule.retries.as_ref(), rule.retries.is_some() && (rule.safe || safe)),
            None => (self.retries.as_ref(), safe),
        }
    }
}

impl ToolRetry {
    fn fingerprint(&self) -> (&str, Option<&Retries>, bool) {
        (self.of.glob().glob(), self.retries.as_ref(), self.safe)
    }
}

impl PartialEq for ToolRetry {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}

impl Eq for ToolRetry {}

impl std::hash::Hash for ToolRetry {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.fingerprint().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use globset::Glob;

    use super::*;

    fn tool(glob: &str, attempts: u32, safe: bool) -> ToolRetry {
        let retries = (attempts > 0).then(|| Retries { attempts, ..Retries::default() });
        ToolRetry { of: Glob::new(glob).unwrap().compile_matcher(), retries, safe }
    }

    #[test]
    fn the_closest_word_about_a_tool_counts_and_the_servers_rule_for_the_rest() {
        let safe = vec![Glob::new("get_*").unwrap().compile_matcher()];
        let mut rule = RetryRule {
            retries: Some(Retries::default()),
            safe: ToolFilter { allow: Some(safe), ..ToolFilter::default() },
            tools: vec![
                tool("get_*", 5, false),
                tool("get_secret", 0, false),
                tool("*_all", 7, true),
                tool("pull_*", 2, false),
                tool("push_*", 9, true),
                tool("p???_all", 4, true),
            ],
        };
        let of = |rule: &RetryRule, tool: &str| {
            let (retries, safe) = rule.of(tool);
            (retries.map(|retries| retries.attempts), safe)
        };
        assert_eq!(of(&rule, "get_one"), (Some(5), true), "what the server's rule calls safe stays so");
        assert_eq!(of(&rule, "get_secret"), (None, false), "a name is closer than a glob");
        assert_eq!(of(&rule, "get_all"), (Some(5), true), "of equals the one with fewer tries");
        assert_eq!(of(&rule, "pull_all"), (Some(2), false), "more letters are closer");
        assert_eq!(of(&rule, "other"), (Some(3), false));
        rule.retries = None;
        assert_eq!(of(&rule, "other"), (None, false));
    }
}
