//! A turn attends its calls: their progress and notes become events, and what their servers ask is asked of the person
//! behind the turn, where there is one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lf_core::ChatEvent;
use lf_core::tool::{Attendant, BoxFuture, Person, Question, Reply, ToolProgress};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

/// Between two looks at whether a person who is asked has answered.
const LOOK: Duration = Duration::from_millis(500);

/// The end of a turn's time, which stands still while a person is asked.
#[derive(Clone)]
pub(super) struct Clock(Arc<Mutex<Hands>>);

struct Hands {
    end: Instant,
    asking: u32,
    /// When the first of the open questions was asked.
    since: Instant,
}

impl Clock {
    pub(super) fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(Hands { end: now + limit, asking: 0, since: now })))
    }

    /// The end as it is now, when nobody is asked.
    pub(super) fn end(&self) -> Instant {
        self.hands().end
    }

    /// From now on so long, whatever was left.
    pub(super) fn grant(&self, time: Duration) {
        let mut hands = self.hands();
        hands.since = Instant::now();
        hands.end = hands.since + time;
    }

    /// Waits for the end. Cancel-safe.
    pub(super) async fn over(&self) {
        loop {
            let (end, asking) = {
                let hands = self.hands();
                (hands.end, hands.asking)
            };
            match asking {
                0 if Instant::now() >= end => return,
                0 => sleep_until(end).await,
                _ => sleep(LOOK).await,
            }
        }
    }

    pub(super) fn stop(&self) -> Stopped {
        let mut hands = self.hands();
        if hands.asking == 0 {
            hands.since = Instant::now();
        }
        hands.asking += 1;
        Stopped(self.clone())
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clock stands still as long as this lives.
pub(super) struct Stopped(Clock);

impl Drop for Stopped {
    fn drop(&mut self) {
        let mut hands = self.0.hands();
        hands.asking -= 1;
        if hands.asking == 0 {
            let waited = hands.since.elapsed();
            hands.end += waited;
        }
    }
}

/// What all calls of a turn are attended by.
#[derive(Clone)]
pub(super) struct Attending {
    pub(super) reports: mpsc::Sender<ChatEvent>,
    pub(super) person: Option<Arc<dyn Person>>,
    pub(super) clock: Clock,
    party: u64,
}

impl Attending {
    pub(super) fn new(
        reports: mpsc::Sender<ChatEvent>,
        person: Option<Arc<dyn Person>>,
        clock: Clock,
    ) -> Self {
        static PARTIES: AtomicU64 = AtomicU64::new(0);
        Self { reports, person, clock, party: PARTIES.fetch_add(1, Ordering::Relaxed) }
    }

    /// `tries_again` where the turn itself makes this call again when it fails; `on_behalf` for a call of this very daemon.
    pub(super) fn call(&self, call_id: &str, tries_again: bool, on_behalf: Option<&str>) -> OneCall {
        let (call_id, on_behalf) = (call_id.to_owned(), on_behalf.map(str::to_owned));
        OneCall { turn: self.clone(), call_id, tries_again, on_behalf }
    }
}

/// One call of the turn.
pub(super) struct OneCall {
    turn: Attending,
    call_id: String,
    tries_again: bool,
    on_behalf: Option<String>,
}

impl Attendant for OneCall {
    fn progress(&self, progress: ToolProgress) {
        // a full buffer means that the client is slower than the tool: the next report replaces this one
        let _ =
            self.turn.reports.try_send(ChatEvent::CallProgress { call_id: self.call_id.clone(), progress });
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        let Some(person) = &self.turn.person else { return Box::pin(std::future::ready(Reply::Nobody)) };
        Box::pin(async move {
            let _stopped = self.turn.clock.stop();
            person.ask(question).await
        })
    }

    fn note(&self, note: String) {
        // as many as fit: a server that asks that much is told about often enough
        let _ = self.turn.reports.try_send(ChatEvent::Notice(note));
    }

    fn tries_again(&self) -> bool {
        self.tries_again
    }

    fn on_behalf(&self) -> Option<&str> {
        self.on_behalf.as_deref()
    }

    fn party(&self) -> Option<u64> {
        Some(self.turn.party)
    }
}

/// Who attends a call that goes to another server than it was meant for: what this daemon is told on somebody's behalf is
/// told to no other that has its name by now.
pub(super) struct Elsewhere<'a>(pub(super) &'a dyn Attendant);

impl Attendant for Elsewhere<'_> {
    fn progress(&self, progress: ToolProgress) {
        self.0.progress(progress);
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        self.0.ask(question)
    }

    fn note(&self, note: String) {
        self.0.note(note);
    }

    fn tries_again(&self) -> bool {
        self.0.tries_again()
    }

    fn on_behalf(&self) -> Option<&str> {
        None
    }

    fn party(&self) -> Option<u64> {
        self.0.party()
    }
}

#[cfg(test)]
mod tests;
