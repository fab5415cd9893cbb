//! What a caller may use over time: requests in a minute, tokens and money in a day. Without a clock: whoever asks says when.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::turn::Spent;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: u64 = 24 * 60 * 60;

/// Bounds of one account; `None` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Quota {
    /// Turns that begin. So many may begin at once; each then comes back after its share of a minute.
    pub requests_per_minute: Option<u32>,
    /// Of all requests to models and their answers, from midnight to midnight (UTC).
    pub tokens_per_day: Option<u64>,
    /// What they cost, in US dollars.
    pub cost_per_day_usd: Option<f64>,
}

impl Quota {
    /// Whether nothing has to be counted.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it matters what was used of a day.
    pub fn is_of_days(&self) -> bool {
        self.tokens_per_day.is_some() || self.cost_per_day_usd.is_some()
    }
}

/// Which bound was reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    Requests(u32),
    Tokens(u64),
    Cost(f64),
}

/// A request that must wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OverQuota {
    pub bound: Bound,
    /// Then there is room again.
    pub retry_after: Duration,
}

impl fmt::Display for OverQuota {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            Bound::Requests(limit) => write!(out, "the limit of {limit} requests per minute is reached")?,
            Bound::Tokens(limit) => write!(out, "the limit of {limit} tokens per day is reached")?,
            Bound::Cost(limit) => write!(out, "the limit of ${limit} per day is reached")?,
        }
        write!(out, "; try again in {} s", whole_seconds(self.retry_after))
    }
}

/// A pause as it is told: rounded up, and at least one, so that whoever keeps to it is not too early.
pub fn whole_seconds(pause: Duration) -> u64 {
    (pause.as_secs() + u64::from(pause.subsec_nanos() > 0)).max(1)
}

/// The day of a time since 1970, in UTC.
pub fn day(now: Duration) -> u64 {
    now.as_secs() / DAY
}

/// What one caller has used lately.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Account {
    day: u64,
    spent: Spent,
    /// How far ahead of its share the caller is: each request adds its own, and time takes it back.
    ahead: Duration,
    looked: Duration,
}

impl Account {
    /// Is told what was used of a day: at least that, perhaps by others, too. Of a day that has passed meanwhile nothing
    /// counts any more.
    pub fn learn(&mut self, kept: Spent, of_day: u64, now: Duration) {
        self.go_on(now);
        if of_day != self.day {
            return;
        }
        self.spent.tokens = self.spent.tokens.max(kept.tokens);
        self.spent.cost = self.spent.cost.max(kept.cost);
    }

    /// Whether a request may begin now; `now` is the time since 1970. Nothing is counted yet.
    ///
    /// # Errors
    /// [`OverQuota`]
    pub fn check(&mut self, quota: &Quota, now: Duration) -> Result<(), OverQuota> {
        self.go_on(now);
        let tomorrow = Duration::from_secs((self.day + 1) * DAY).saturating_sub(now);
        if let Some(limit) = quota.tokens_per_day.filter(|limit| self.spent.tokens >= *limit) {
            return Err(OverQuota { bound: Bound::Tokens(limit), retry_after: tomorrow });
        }
        if let Some(limit) = quota.cost_per_day_usd.filter(|limit| self.spent.cost >= *limit) {
            return Err(OverQuota { bound: Bound::Cost(limit), retry_after: tomorrow });
        }
        if let Some(limit) = quota.requests_per_minute {
            let after = self.ahead + share(limit);
            if after > MINUTE {
                let retry_after = after.saturating_sub(MINUTE);
                return Err(OverQuota { bound: Bound::Requests(limit), retry_after });
            }
        }
        Ok(())
    }

    /// A request begins.
    pub fn begin(&mut self, quota: &Quota) {
        if let Some(limit) = quota.requests_per_minute {
            self.ahead += share(limit);
        }
    }

    /// A request that was let begin did not.
    pub fn take_back(&mut self, quota: &Quota) {
        if let Some(limit) = quota.requests_per_minute {
            self.ahead = self.ahead.saturating_sub(share(limit));
        }
    }

    pub fn spend(&mut self, spent: Spent, now: Duration) {
        self.go_on(now);
        self.spent += spent;
    }

    /// A clock that was set back takes nothing away, and a day that has passed begins anew. One that was days ahead for a
    /// while, and is right again, begins anew, too: nobody waits for the day that it showed.
    fn go_on(&mut self, now: Duration) {
        self.ahead = self.ahead.saturating_sub(now.saturating_sub(self.looked));
        self.looked = now;
        if day(now) > self.day || day(now) + 1 < self.day {
            self.day = day(now);
            self.spent = Spent::default();
        }
    }
}

/// What one request takes of a minute.
fn share(limit: u32) -> Duration {
    MINUTE / limit.max(1)
}

#[cfg(test)]
mod tests;
