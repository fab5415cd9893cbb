//! The person is asked about calls of a round: at the terminal, where one sits there, and by whoever else may decide.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use lf_core::tool::{Person, Question, Reply};
use lf_core::turn::{Ask, AskPerson, Decision, Entry, Verdict};
use tokio::time::{Instant, sleep_until};

use crate::approvals::{About, Attendance, CallApprovals, Decided, Opened, expired, words};

/// Who may decide, and what becomes of the turn when nobody does.
pub(crate) struct Approving {
    pub approvals: Arc<CallApprovals>,
    pub about: About,
    pub attendance: Attendance,
    /// How long a decision is waited for.
    pub wait: Duration,
}

/// Asks of one round, until they are decided.
pub(super) struct Asking {
    opened: Opened,
    person: Option<Arc<dyn Person>>,
    /// What the person is asked now, and the answer to come.
    answer: Option<(String, BoxFuture<'static, Option<Decision>>)>,
    end: Instant,
    attendance: Attendance,
    /// What was taken, and is to be kept before whoever decided is told so.
    taken: Vec<Decided>,
}

impl Approving {
    pub(super) fn ask(&self, step: &AskPerson, person: Option<Arc<dyn Person>>) -> Asking {
        let wait = match self.attendance {
            // with somebody at the terminal there is somebody
            Attendance::Nobody if person.is_none() => Duration::ZERO,
            Attendance::HandedOver => Duration::ZERO,
            _ => self.wait,
        };
        Asking {
            opened: self.approvals.open(step.open(), &self.about, wait),
            person,
            answer: None,
            end: Instant::now() + wait,
            attendance: self.attendance,
            taken: Vec::new(),
        }
    }
}

impl Asking {
    /// What happens next to asks that nobody has decided yet. Cancel-safe.
    pub(super) async fn next(&mut self, step: &AskPerson) -> Vec<Entry> {
        let is_open = |id: &str| step.open().any(|ask| ask.id == id);
        loop {
            // what others have decided meanwhile is no question any more
            self.answer.take_if(|(id, _)| !is_open(id));
            if let (Some(person), None, Some(ask)) = (&self.person, &self.answer, step.open().next()) {
                self.answer = Some((ask.id.clone(), put(person.clone(), ask.clone()).boxed()));
            }
            let answer = async {
                match &mut self.answer {
                    Some((id, answer)) => (id.clone(), answer.await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                decided = self.opened.next() => {
                    let Decided { approval, decision, .. } = &decided;
                    // a second decision is none: who took it is told so by its end
                    if is_open(approval) {
                        let entry = Entry::Decided { approval: approval.clone(), decision: decision.clone() };
                        self.taken.push(decided);
                        return vec![entry];
                    }
                }
                (approval, said) = answer => {
                    self.answer = None;
                    match said {
                        Some(decision) => return vec![Entry::Decided { approval, decision }],
                        // who is at the terminal is not asked this
                        None => self.person = None,
                    }
                }
                () = sleep_until(self.end) => return self.nobody(step),
            }
        }
    }

    /// What was taken is kept.
    pub(super) fn keep(&mut self) {
        self.taken.drain(..).for_each(Decided::kept);
    }

    fn nobody(&self, step: &AskPerson) -> Vec<Entry> {
        match self.attendance {
            Attendance::Told => vec![Entry::Unanswered { words: words(step.open()) }],
            Attendance::HandedOver => vec![Entry::Unanswered { words: String::new() }],
            Attendance::Nobody | Attendance::Watched => step
                .open()
                .map(|ask| Entry::Decided { approval: ask.id.clone(), decision: expired() })
                .collect(),
        }
    }
}

async fn put(person: Arc<dyn Person>, ask: Ask) -> Option<Decision> {
    let Reply::Result(said) = person.ask(Question::approval(&ask)).await else { return None };
    let verdict = match said["decision"].as_str() {
        Some("approve") => Verdict::Approved,
        Some("always") => Verdict::Always,
        _ => Verdict::Denied,
    };
    Some(Decision { verdict, by: "the person at the terminal".to_owned(), reason: None, who: None })
}
