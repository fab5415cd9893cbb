//! Hot reload: watches the files of what is loaded, and has them read again once they seem to be whole.
//!
//! What a change is for those files, and whether it is taken, is the `Reader`'s to say; when it looks is decided here. What
//! the operating system does not tell (mounts, network file systems, limits) is found by looking every [`POLL`].

mod eyes;
mod settling;
mod trail;

use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until};
use tracing::{info, warn};

use crate::app::{Key, Look, Projects, Reader};
use eyes::{Eyes, Noticed};
use settling::Act;
pub(crate) use settling::{How, QUIET, may_be_cut};

/// Between two looks at everything.
const POLL: Duration = Duration::from_secs(5);
/// After a change, for calls that were on their way when their server left to have begun whatever they begin.
const SWEEP_AFTER: Duration = Duration::from_secs(1);

/// Watches for ever. `now` has everything read at once, whatever it looks like.
pub(crate) async fn watch(projects: Projects, now: Arc<Notify>) {
    let noticed = Arc::new(Noticed::default());
    let eyes = Arc::new(Mutex::new(Eyes::new(noticed.clone())));
    let watching = Watching { projects, noticed, eyes };
    watching.act(Vec::new()).await;
    let _ = watching.projects.aside(Reader::tidy).await;
    let mut poll = interval(POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sweep: Option<Instant> = None;
    loop {
        let due = watching.noticed.next();
        let keys = tokio::select! {
            () = now.notified() => {
                info!("SIGHUP: the configuration is read again");
                watching.all(How::Forced)
            }
            () = watching.noticed.woken.notified() => continue,
            () = watching.projects.reader().first_read.notified() => Vec::new(),
            () = until(due) => watching.noticed.due(Instant::now()),
            () = until(sweep) => {
                sweep = None;
                watching.projects.reader().sweep();
                continue;
            }
            _ = poll.tick() => Vec::new(),
        };
        if watching.act(keys).await {
            sweep = Some(Instant::now() + SWEEP_AFTER);
        }
    }
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}

struct Watching {
    projects: Projects,
    noticed: Arc<Noticed>,
    eyes: Arc<Mutex<Eyes>>,
}

impl Watching {
    fn all(&self, how: How) -> Vec<(Key, Act)> {
        self.projects.reader().keys().into_iter().map(|key| (key, Act::Look(how))).collect()
    }

    /// Looks at these projects, then at where all of them are, then whether any changed meanwhile. Says whether anything
    /// was taken.
    async fn act(&self, keys: Vec<(Key, Act)>) -> bool {
        let (noticed, eyes) = (self.noticed.clone(), self.eyes.clone());
        let acted = self.projects.aside(move |reader| {
            let mut taken = false;
            let mut eyes = eyes.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, act) in keys {
                let Act::Look(how) = act else {
                    noticed.noted(&key);
                    reader.note(&key);
                    continue;
                };
                // who is not told of every change goes by what the file is like
                let how = if how == How::Quiet && eyes.are_blind() { How::Asked } else { how };
                taken |= look(reader, &noticed, &key, how);
            }
            eyes.rest_on(&reader.files());
            drop(eyes);
            for key in reader.changed() {
                noticed.touch(&key);
            }
            taken
        });
        match acted.await {
            Ok(taken) => taken,
            Err(reason) => {
                warn!(error = reason, "the configuration cannot be looked at");
                self.end_of_the_look().await;
                false
            }
        }
    }

    /// A look that hangs goes on aside. Another one would hang, too, and take the room of those who read other files.
    async fn end_of_the_look(&self) {
        while matches!(self.eyes.try_lock(), Err(TryLockError::WouldBlock)) {
            sleep(POLL).await;
        }
    }
}

fn look(reader: &Reader, noticed: &Noticed, key: &Key, how: How) -> bool {
    noticed.looked(key);
    match reader.look(key, how) {
        Ok(Look::Unsettled) => {
            noticed.look_again(key);
            false
        }
        Ok(Look::Taken) => true,
        Ok(Look::Gone) => {
            noticed.forget(key);
            true
        }
        // what is refused is told where it is
        Ok(Look::Same | Look::Refused) | Err(_) => false,
    }
}
