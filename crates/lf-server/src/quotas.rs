//! What callers use over time, and who has to wait. Counted in memory, and kept in the store where there is one, so that a
//! restart gives nobody a new day, nor does a second daemon on the same store.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lf_core::quota::{Account, Quota, day};
use lf_core::turn::Spent;
use lf_core::{Model, Principal, Project};
use tokio::sync::RwLock;
use tokio::time::timeout;
use tracing::warn;

use crate::app::Refusal;
use crate::memory::Memory;

/// So long a chat waits to be told what was used: a database that is slow, or gone, must not hold it up.
const READ_WAIT: Duration = Duration::from_secs(2);

/// Who pays for a turn, and within which bounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Payer {
    /// `project:…` with the name, or `key:…` with the id.
    pub account: Arc<str>,
    pub quota: Quota,
}

/// Who pays for a turn of this project that this one asks for.
pub(crate) fn payers(project: &Project, who: &Principal) -> Vec<Payer> {
    let account = format!("project:{}/{}", project.namespace, project.name).into();
    vec![Payer { account, quota: project.quota }, Payer { account: who.id.as_str().into(), quota: who.quota }]
}

/// Whether what this model costs can be held against what this one may spend.
pub(crate) fn can_pay(who: &Principal, model: &Model) -> bool {
    who.quota.cost_per_day_usd.is_none() || model.price.is_some()
}

/// All accounts of this daemon. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Quotas(Arc<All>);

struct All {
    books: Mutex<Books>,
    /// What is being added to the store. Meanwhile nobody reads there, so that nothing is counted twice or not at all.
    flush: RwLock<Flush>,
    memory: Option<Arc<Memory>>,
    /// Since the epoch.
    clock: fn() -> Duration,
    read_wait: Duration,
}

#[derive(Default)]
struct Books {
    accounts: HashMap<Arc<str>, Account>,
    /// Those of which it is known what the store has.
    known: HashSet<Arc<str>>,
    unkept: Used,
}

/// By account and day: what is not in the store yet.
type Used = HashMap<(Arc<str>, i64), Spent>;

#[derive(Default)]
struct Flush {
    id: String,
    /// Nothing, once it is certainly there.
    used: Used,
}

impl Quotas {
    pub(crate) fn new(memory: Option<Arc<Memory>>) -> Self {
        Self(Arc::new(All::new(memory)))
    }

    /// Lets a turn begin, for which all of these pay.
    ///
    /// # Errors
    /// [`Refusal::OverQuota`]; then nothing is counted.
    pub(crate) async fn admit(&self, payers: Vec<Payer>) -> Result<Charge, Refusal> {
        let mut charge = Charge::new(self, payers, Spent::default());
        for payer in &charge.payers {
            self.know(payer).await;
        }
        let now = (self.0.clock)();
        let mut books = self.0.books();
        for Payer { account, quota } in &charge.payers {
            books
                .accounts
                .entry(account.clone())
                .or_default()
                .check(quota, now)
                .map_err(Refusal::OverQuota)?;
        }
        for Payer { account, quota } in &charge.payers {
            books.accounts.entry(account.clone()).or_default().begin(quota);
        }
        drop(books);
        charge.stage = Stage::Admitted;
        Ok(charge)
    }

    /// Lets a tool be run without a model: that takes of the requests of a minute, and uses nothing of a day.
    ///
    /// # Errors
    /// [`Refusal::OverQuota`]
    pub(crate) async fn admit_call(&self, who: &Principal) -> Result<(), Refusal> {
        let quota = Quota { requests_per_minute: who.quota.requests_per_minute, ..Quota::default() };
        let payer = Payer { account: who.id.as_str().into(), quota };
        self.admit(vec![payer]).await.map(|charge| drop(charge.begun()))
    }

    /// Reads what was used before this daemon began; where daemons share the store, each time, because all of them use it.
    /// A store that cannot be read costs that count, and no chat.
    async fn know(&self, Payer { account, quota }: &Payer) {
        let Some(memory) = self.0.memory.as_ref().filter(|_| quota.is_of_days()) else { return };
        if !memory.store.is_shared() && self.0.books().known.contains(account) {
            return;
        }
        let of_day = day((self.0.clock)());
        let limit = self.0.read_wait;
        let reason = match timeout(limit, self.0.read(memory, account, of_day)).await {
            Ok(Ok(())) => return,
            Ok(Err(reason)) => reason,
            Err(_) => format!("it takes longer than {limit:?}"),
        };
        warn!(%account, reason, "what was used before cannot be read");
    }

    fn spend(&self, payers: &[Payer], spent: Spent) {
        let now = (self.0.clock)();
        let mut books = self.0.books();
        for Payer { account, .. } in payers {
            books.accounts.entry(account.clone()).or_default().spend(spent, now);
            if self.0.memory.is_some() {
                *books.unkept.entry((account.clone(), signed(day(now)))).or_default() += spent;
            }
        }
        drop(books);
        self.0.keep_later();
    }
}

impl All {
    fn new(memory: Option<Arc<Memory>>) -> Self {
        let (books, flush) = (Mutex::default(), RwLock::default());
        Self { books, flush, memory, clock: now, read_wait: READ_WAIT }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(self: &Arc<Self>, memory: &Memory, account: &Arc<str>, of_day: u64) -> Result<(), String> {
        let flush = self.flush.read().await;
        if !flush.used.is_empty() {
            self.keep_later();
            return Err("what was used last may be there, or not".to_owned());
        }
        let mut used =
            memory.store.spent(account, signed(of_day)).await.map_err(|error| error.to_string())?;
        let mut books = self.books();
        used += books.unkept.get(&(account.clone(), signed(of_day))).copied().unwrap_or_default();
        books.accounts.entry(account.clone()).or_default().learn(used, of_day, (self.clock)());
        books.known.insert(account.clone());
        Ok(())
    }

    fn keep_later(self: &Arc<Self>) {
        if let Some(memory) = &self.memory
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let all = self.clone();
            memory.later(async move { all.keep().await });
        }
    }

    /// One commit for all that came together. What cannot be kept now goes with the next.
    async fn keep(&self) {
        let Some(memory) = &self.memory else { return };
        let mut flush = self.flush.write().await;
        loop {
            let before = (!flush.id.is_empty()).then(|| flush.id.clone());
            if flush.used.is_empty() {
                let used = std::mem::take(&mut self.books().unkept);
                if used.is_empty() {
                    return;
                }
                *flush = Flush { id: uuid::Uuid::now_v7().simple().to_string(), used };
            }
            let used: Vec<(&str, i64, Spent)> =
                flush.used.iter().map(|((account, day), spent)| (&**account, *day, *spent)).collect();
            let before = before.as_deref().filter(|before| *before != flush.id);
            if let Err(error) = memory.store.spend((&flush.id, before), &used).await {
                warn!(%error, "what was used cannot be kept now");
                return;
            }
            flush.used.clear();
        }
    }
}

/// What one turn uses, counted as it does; also when it is dropped in the middle of an answer.
pub(crate) struct Charge {
    quotas: Quotas,
    payers: Vec<Payer>,
    stage: Stage,
    counted: Spent,
    /// The answer that is under way, by estimate.
    pending: Spent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is to be given back.
    Free,
    /// Let begin. A turn that then does not takes nothing of a minute.
    Admitted,
    /// Whoever drops it in the middle of an ask ends it.
    Begun,
    /// Whoever drops it leaves it to another process, which counts what was asked.
    Kept,
}

impl Charge {
    /// For a turn that was let begin before, and of which so much was counted.
    pub(crate) fn new(quotas: &Quotas, mut payers: Vec<Payer>, counted: Spent) -> Self {
        payers.retain(|payer| !payer.quota.is_none());
        Self { quotas: quotas.clone(), payers, stage: Stage::Free, counted, pending: Spent::default() }
    }

    /// Whether anything is counted at all.
    pub(crate) fn counts(&self) -> bool {
        !self.payers.is_empty()
    }

    /// The turn begins, or goes on.
    pub(crate) fn begun(mut self) -> Self {
        if self.stage != Stage::Kept {
            self.stage = Stage::Begun;
        }
        self
    }

    /// The turn begins, and is gone on with when it is cut off here.
    pub(crate) fn kept(mut self) -> Self {
        self.stage = Stage::Kept;
        self
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
        match self.stage {
            Stage::Begun if self.pending != Spent::default() && self.counts() => {
                self.quotas.spend(&self.payers, self.pending);
            }
            Stage::Admitted => {
                let mut books = self.quotas.0.books();
                for Payer { account, quota } in &self.payers {
                    books.accounts.entry(account.clone()).or_default().take_back(quota);
                }
            }
            Stage::Free | Stage::Begun | Stage::Kept => {}
        }
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A day as the store has it.
fn signed(day: u64) -> i64 {
    i64::try_from(day).unwrap_or(i64::MAX)
}

#[cfg(test)]
impl Default for Charge {
    fn default() -> Self {
        Self::new(&Quotas::new(None), Vec::new(), Spent::default())
    }
}

#[cfg(test)]
mod tests;
