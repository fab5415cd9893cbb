//! The requests of a server whose answers are not sent yet. Each is answered by a task of its own: a server that asks
//! without end and reads no answers is not followed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;

/// Requests of a server that are answered at the same time; what it asks beyond is dropped and counted.
const MAX_UNANSWERED: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Unanswered(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// What somebody is working on.
    asked: HashSet<RequestId>,
    /// Answers that the server has not read yet, whatever became of their requests.
    sending: usize,
}

impl Unanswered {
    /// Whether a request is to be followed: one beyond the bound is not, nor a second one of the same id, as only one of
    /// the two would be answered.
    pub(super) fn admits(&self, id: &RequestId) -> bool {
        let mut open = self.lock();
        open.asked.len() + open.sending < MAX_UNANSWERED && open.asked.insert(id.clone())
    }

    /// The server does not want to know any more: the library sends no answer then.
    pub(super) fn withdrawn(&self, id: &RequestId) {
        self.lock().asked.remove(id);
    }

    /// The answer is on its way for as long as the guard lives. Also that of a request that was never admitted, as the
    /// greeting answers pings of its own.
    pub(super) fn answering(self: &Arc<Self>, id: Option<&RequestId>) -> Sending {
        let mut open = self.lock();
        if let Some(id) = id {
            open.asked.remove(id);
        }
        open.sending += 1;
        Sending(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is being sent.
pub(super) struct Sending(Arc<Unanswered>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.lock().sending -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_open_until_its_answer_is_sent_or_it_is_taken_back() {
        let unanswered = Arc::new(Unanswered::default());
        let id = |number: usize| RequestId::Number(i64::try_from(number).unwrap());
        for number in 0..MAX_UNANSWERED {
            assert!(unanswered.admits(&id(number)));
        }
        assert!(!unanswered.admits(&id(1000)), "one too many");
        let sending = unanswered.answering(Some(&id(0)));
        // what is on its way is not taken back any more
        unanswered.withdrawn(&id(0));
        assert!(!unanswered.admits(&id(1000)), "its answer is not read yet");
        drop(sending);
        assert!(unanswered.admits(&id(1000)));
        unanswered.withdrawn(&id(1));
        assert!(!unanswered.admits(&id(2)), "it is open already");
        assert!(unanswered.admits(&id(1)), "it was taken back, and is asked again");
        drop(unanswered.answering(None));
        assert_eq!(unanswered.lock().sending, 0);
    }
}
