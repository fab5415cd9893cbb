//! Finding out whether a server that did not answer a call answers anything at all.
//!
//! A process that hangs keeps its pipes open, so nothing but silence tells. It is only silence when nothing else
//! runs: many servers read no request while they work on one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use super::live::{Live, unresponsive};
use crate::connection::AskError;

/// For a server to answer `tools/list` after a call that it did not answer, where the call's own limit is not shorter. A
/// server of either generation has it, and none has to look anything up for it.
const LONGEST_PROBE: Duration = Duration::from_secs(5);
/// However short the limit: a server that is busy for a moment is not one that hangs.
const SHORTEST_PROBE: Duration = Duration::from_secs(1);
/// Unanswered calls in a row after which other calls that run are no excuse.
const ENOUGH: usize = 5;
/// Between two probes of a server on which other calls run.
const PAUSE: Duration = Duration::from_secs(5);

impl Live {
    /// Probes the server aside, after a call that was not answered within `limit`. One that is silent is given up, so
    /// that the next use starts another, or opens another session: the stream of a remote one may have died silently.
    pub(super) fn doubt(self: &Arc<Self>, limit: Duration) {
        if self.is_doubted.swap(true, Ordering::AcqRel) {
            return;
        }
        let live = self.clone();
        self.tracker.spawn(async move {
            let mut ended = live.ended.subscribe();
            tokio::select! {
                () = live.examine(limit) => {}
                _ = ended.wait_for(Option::is_some) => {}
                () = live.given_up.cancelled() => {}
            }
            live.record.set_doubt(None);
            live.is_doubted.store(false, Ordering::Release);
        });
    }

    async fn examine(&self, limit: Duration) {
        let mut load = self.load.subscribe();
        let probe = limit.clamp(SHORTEST_PROBE, LONGEST_PROBE);
        loop {
            let heard = self.link.signals.heard();
            let probed = self.list_anew(probe).await;
            let is_silent = matches!(probed, Err(AskError::Timeout(_))) && heard == self.link.signals.heard();
            if !is_silent {
                return;
            }
            let failure = unresponsive(limit, probe);
            self.record.set_doubt(Some(failure.clone()));
            if self.give_up_if(failure, |load| load.calls == 0 || load.unanswered >= ENOUGH) {
                return;
            }
            // looked at again when one of the other calls is over, or after a while
            let calls = load.borrow_and_update().calls;
            let _ = timeout(PAUSE, load.wait_for(|load| load.calls != calls)).await;
        }
    }
}
