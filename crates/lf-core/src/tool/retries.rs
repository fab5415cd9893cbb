//! Which calls that failed are made again, and when. Whether a tool may run again at all is [`Tool::repeatable`].
//!
//! [`Tool::repeatable`]: super::Tool::repeatable

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ToolContent, ToolError, ToolOutput};

/// Before the second try; doubled before each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Of what a server asks for.
const LONGEST_HINT: Duration = Duration::from_secs(60);
/// Bytes of a result that are told as the reason.
const LONGEST_REASON: usize = 200;

/// A rule for calls that fail.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Retries {
    /// All tries of one call, the first included.
    pub attempts: u32,
    pub on: Vec<Trouble>,
}

/// What became of a call that failed, for the rules of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// The server is not there: the call was not run.
    Unavailable,
    /// The server has too many requests: the call was not run.
    RateLimited,
    /// No answer in time.
    Timeout,
    /// The server, or the way to it, broke during the call.
    Lost,
    /// An error of the protocol.
    Refused,
    /// A result that is an error.
    Error,
}

impl Default for Retries {
    fn default() -> Self {
        let on = vec![Trouble::Unavailable, Trouble::RateLimited, Trouble::Timeout, Trouble::Lost];
        Self { attempts: 3, on }
    }
}

impl Trouble {
    /// `None` for a result, and for what would fail just the same the next time.
    pub fn of(outcome: &Result<ToolOutput, ToolError>) -> Option<Self> {
        match outcome {
            Ok(output) => output.is_error.then_some(Self::Error),
            Err(ToolError::Down { .. }) => Some(Self::Unavailable),
            Err(ToolError::RateLimited { .. }) => Some(Self::RateLimited),
            Err(ToolError::Timeout { .. }) => Some(Self::Timeout),
            Err(ToolError::Lost { .. }) => Some(Self::Lost),
            Err(ToolError::Refused { .. }) => Some(Self::Refused),
            Err(ToolError::UnknownTool { .. } | ToolError::TooLarge { .. } | ToolError::Denied { .. }) => {
                None
            }
        }
    }
}

impl Retries {
    /// How long to wait before a call is made again that had so many tries, the last with this outcome; `None` where it is
    /// not. From 0.5 s to 30 s, doubled each time and longer by up to half (`share` of 0 to 1), so that calls that failed
    /// together do not come back together; what a server asks for is waited for, up to 60 s.
    pub fn pause(&self, tries: u32, outcome: &Result<ToolOutput, ToolError>, share: f64) -> Option<Duration> {
        let trouble = Trouble::of(outcome)?;
        if tries >= self.attempts || !self.on.contains(&trouble) {
            return None;
        }
        let doubled = FIRST_PAUSE.saturating_mul(1 << tries.saturating_sub(1).min(10));
        let longer = doubled.min(LONGEST_PAUSE).mul_f64(1.0 + share.clamp(0.0, 1.0) / 2.0);
        let wanted = match outcome {
            Err(ToolError::RateLimited { retry_after, .. }) => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        Some(longer.min(LONGEST_PAUSE).max(wanted.min(LONGEST_HINT)))
    }
}

/// Why a call is made again, in words.
pub(crate) fn reason(outcome: &Result<ToolOutput, ToolError>) -> String {
    let mut reason = match outcome {
        Err(error) => error.to_string(),
        Ok(output) => {
            let texts = output.content.iter().filter_map(|content| match content {
                ToolContent::Text(text) => Some(text.as_str()),
                _ => None,
            });
            texts.collect::<Vec<_>>().join(" ")
        }
    };
    if reason.len() > LONGEST_REASON {
        reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
        reason.push('…');
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Result<ToolOutput, ToolError> {
        Err(ToolError::Down { server: "s".to_owned(), reason: "gone".to_owned() })
    }

    fn limited(retry_after: u64) -> Result<ToolOutput, ToolError> {
        Err(ToolError::RateLimited {
            server: "s".to_owned(),
            reason: "429".to_owned(),
            retry_after: Some(Duration::from_secs(retry_after)),
        })
    }

    #[test]
    fn pauses_double_up_to_half_a_minute() {
        let retries = Retries { attempts: 10, ..Retries::default() };
        let pauses = |share: f64| {
            let pauses = (1..=10).map(|tries| retries.pause(tries, &failed(), share));
            pauses.map(|pause| pause.map(|pause| pause.as_secs_f64())).collect::<Vec<_>>()
        };
        let some = |pauses: [f64; 9]| pauses.map(Some).into_iter().chain([None]).collect::<Vec<_>>();
        assert_eq!(pauses(0.0), some([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]));
        assert_eq!(pauses(1.0), some([0.75, 1.5, 3.0, 6.0, 12.0, 24.0, 30.0, 30.0, 30.0]));
    }

    #[test]
    fn a_server_is_waited_for_as_long_as_it_asks_up_to_a_minute() {
        let retries = Retries::default();
        assert_eq!(retries.pause(1, &limited(7), 0.0), Some(Duration::from_secs(7)));
        assert_eq!(retries.pause(1, &limited(3600), 0.0), Some(Duration::from_secs(60)));
        assert_eq!(retries.pause(1, &limited(0), 0.0), Some(Duration::from_millis(500)));
    }

    #[test]
    fn only_what_the_rule_names_is_tried_again() {
        let error = Ok(ToolOutput { is_error: true, ..ToolOutput::default() });
        let retries = Retries { attempts: 2, on: vec![Trouble::Error] };
        assert!(retries.pause(1, &error, 0.0).is_some());
        assert_eq!(retries.pause(2, &error, 0.0), None);
        assert_eq!(retries.pause(1, &failed(), 0.0), None);
        assert_eq!(retries.pause(1, &Ok(ToolOutput::default()), 0.0), None);
        let unknown = Err(ToolError::UnknownTool { server: "s".to_owned(), tool: "t".to_owned() });
        assert_eq!(Retries::default().pause(1, &unknown, 0.0), None);
        assert_eq!(Retries::default().pause(1, &error, 0.0), None);
    }
}
