//! Keeping a tool list current while nobody asks for it, so that those who serve it further can tell their own clients.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use lf_core::project::Generation;
use tokio::time::{Instant, sleep, timeout};

use super::Live;
use crate::connection::AskError;
use crate::tap::Signals;

/// Without a further change before the tools are listed: servers that load plugins report each of them.
const QUIET: Duration = Duration::from_millis(200);
/// However many changes are reported.
const LONGEST: Duration = Duration::from_secs(2);
/// Between two attempts to listen, doubled each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Live {
    /// Learns of changed tools and lists them anew, as long as it is polled.
    pub(super) async fn follow(self: &Arc<Self>) -> Infallible {
        let listing = Box::pin(self.list_changes());
        let listening = Box::pin(self.listen());
        match futures_util::future::select(listing, listening).await {
            futures_util::future::Either::Left((never, _)) => never,
            futures_util::future::Either::Right((never, _)) => never,
        }
    }

    async fn list_changes(self: &Arc<Self>) -> Infallible {
        loop {
            settled(&self.link.signals).await;
            // whoever needed the list meanwhile has listed it
            if self.link.signals.are_tools_changed()
                && let Err(error) = self.refreshed(self.listed()).await
            {
                let error = self.link.failure_of(error, "`tools/list`");
                tracing::debug!(server = self.server.name, %error, "changed tools could not be listed");
            }
        }
    }

    /// A modern server tells changes only to those who listen.
    async fn listen(&self) -> Infallible {
        let about = &self.link.about;
        if about.generation == Generation::Legacy || !about.tells_changes {
            return std::future::pending().await;
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let started = Instant::now();
            if let Err(AskError::Refused { message, code, .. }) = self.link.listen().await {
                tracing::debug!(server = self.server.name, message, code, "changes are not told");
                return std::future::pending().await;
            }
            if started.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            // what changed while nobody listened was not told
            self.link.signals.tools_changed();
        }
    }
}

/// Waits for a change, and until there is none for a while, or for long enough.
async fn settled(signals: &Signals) {
    signals.change().await;
    let end = Instant::now() + LONGEST;
    loop {
        let wait = QUIET.min(end.saturating_duration_since(Instant::now()));
        if wait.is_zero() || timeout(wait, signals.change()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
