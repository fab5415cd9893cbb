//! What callers use over time, and who has to wait. Counted in memory, and kept in the store where there is one, so that a
//! restart gives nobody a new day, nor does a second daemon on the same store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lf_core::quota::{Account, Quota, day};
use lf_core::turn::Spent;
use tokio::time::timeout;
use tracing::warn;

use crate::app::Refusal;
use crate::memory::Memory;

/// So long a chat waits to be told what was used: a database that is slow, or gone, must not hold it up.
const READ_WAIT: Duration = Duration::from_secs(2);

/// Who pays for a turn, and within which bounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Payer {
    /// `project:…` or `key:…`, with the name.
    pub account: Arc<str>,
    pub quota: Quota,
}

/// All accounts of this daemon. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Quotas(Arc<All>);

struct All {
    accounts: Mutex<HashMap<Arc<str>, Account>>,
    /// By account and day: what is not in the store yet.
    unkept: Mutex<HashMap<(Arc<str>, i64), Spent>>,
    memory: Option<Arc<Memory>>,
}

impl Quotas {
    pub(crate) fn new(memory: Option<Arc<Memory>>) -> Self {
        Self(Arc::new(All { accounts: Mutex::default(), unkept: Mutex::default(), memory }))
    }

    /// Lets a turn begin, for which all of these pay.
    ///
    /// # Errors
    /// [`Refusal::OverQuota`]; then nothing is counted.
    pub(crate) async fn admit(&self, payers: &[Payer]) -> Result<(), Refusal> {
        let payers: Vec<&Payer> = payers.iter().filter(|payer| !payer.quota.is_none()).collect();
        for payer in &payers {
            self.know(payer).await;
        }
        let now = now();
        let mut accounts = lock(&self.0.accounts);
        for Payer { account, quota } in &payers {
            accounts.entry(account.clone()).or_default().check(quota, now).map_err(Refusal::OverQuota)?;
        }
        for Payer { account, quota } in &payers {
            accounts.entry(account.clone()).or_default().begin(quota);
        }
        Ok(())
    }

    /// Reads what was used before this daemon began; where daemons share the store, each time, because all of them use it.
    /// A store that cannot be read costs that count, and no chat.
    async fn know(&self, Payer { account, quota }: &Payer) {
        let Some(memory) = self.0.memory.as_ref().filter(|_| quota.is_of_days()) else { return };
        if !memory.store.is_shared() && lock(&self.0.accounts).contains_key(account) {
            return;
        }
        let now = now();
        let reason = match timeout(READ_WAIT, memory.store.spent(account, whole_day(now))).await {
            Ok(Ok(kept)) => {
                return lock(&self.0.accounts).entry(account.clone()).or_default().learn(kept, now);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it takes longer than {READ_WAIT:?}"),
        };
        warn!(%account, reason, "what was used before cannot be read");
    }

    fn spend(&self, payers: &[Payer], spent: Spent) {
        let now = now();
        for Payer { account, .. } in payers {
            lock(&self.0.accounts).entry(account.clone()).or_default().spend(spent, now);
            if self.0.memory.is_some() {
                let mut unkept = lock(&self.0.unkept);
                *unkept.entry((account.clone(), whole_day(now))).or_default() += spent;
            }
        }
        if let Some(memory) = &self.0.memory
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let all = self.0.clone();
            memory.later(async move { all.keep().await });
        }
    }
}

impl All {
    /// One commit for all that came together. What cannot be kept now goes with the next.
    async fn keep(&self) {
        let unkept = std::mem::take(&mut *lock(&self.unkept));
        let Some(memory) = self.memory.as_ref().filter(|_| !unkept.is_empty()) else { return };
        let used: Vec<(&str, i64, Spent)> =
            unkept.iter().map(|((account, day), spent)| (&**account, *day, *spent)).collect();
        if let Err(error) = memory.store.spend(&used).await {
            warn!(%error, "what was used cannot be kept now");
            for (account, spent) in unkept {
                *lock(&self.unkept).entry(account).or_default() += spent;
            }
        }
    }
}

/// What one turn uses, counted as it does; also when it is dropped in the middle of an answer.
pub(crate) struct Charge {
    quotas: Quotas,
    payers: Vec<Payer>,
    counted: Spent,
    /// The answer that is under way, by estimate.
    pending: Spent,
}

impl Charge {
    /// For a turn of which so much was counted before.
    pub(crate) fn new(quotas: &Quotas, mut payers: Vec<Payer>, counted: Spent) -> Self {
        payers.retain(|payer| !payer.quota.is_none());
        Self { quotas: quotas.clone(), payers, counted, pending: Spent::default() }
    }

    /// Whether anything is counted at all.
    pub(crate) fn counts(&self) -> bool {
        !self.payers.is_empty()
    }

    /// The turn was let begin, and did not.
    pub(crate) fn not_begun(self) {
        let mut accounts = lock(&self.quotas.0.accounts);
        for Payer { account, quota } in &self.payers {
            accounts.entry(account.clone()).or_default().take_back(quota);
        }
    }

    /// A model is asked, for about so much.
    pub(crate) fn asks(&mut self, pending: Spent) {
        self.pending = pending;
    }

    /// The turn has used so much by now.
    pub(crate) fn has_used(&mut self, spent: Spent) {
        self.pending = Spent::default();
        let more = Spent {
            tokens: spent.tokens.saturating_sub(self.counted.tokens),
            cost: (spent.cost - self.counted.cost).max(0.0),
        };
        if more != Spent::default() && self.counts() {
            self.counted = spent;
            self.quotas.spend(&self.payers, more);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.pending != Spent::default() && self.counts() {
            self.quotas.spend(&self.payers, self.pending);
        }
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn whole_day(now: Duration) -> i64 {
    i64::try_from(day(now)).unwrap_or(i64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Default for Charge {
    fn default() -> Self {
        Self::new(&Quotas::new(None), Vec::new(), Spent::default())
    }
}

#[cfg(test)]
mod tests;
