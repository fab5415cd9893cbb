//! What several clients want of a server at the same time, asked for once.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::connection::AskError;

/// What was found out last, and how the last attempt failed. One attempt is made at a time.
#[derive(Debug)]
pub(super) struct Together<T>(Mutex<Known<T>>);

#[derive(Debug)]
struct Known<T> {
    value: Option<T>,
    failed: Option<(Instant, AskError)>,
}

impl<T> Default for Together<T> {
    fn default() -> Self {
        Self(Mutex::new(Known { value: None, failed: None }))
    }
}

impl<T: Clone> Together<T> {
    /// What is known, where that will do, or else what `asking` finds out, within `limit` from now on. Who waits while
    /// another's attempt fails fails with it: each waiting out a limit of its own would hold up the last of many for
    /// hours. Dropping the future ends its attempt, and the next in line makes one.
    pub(super) async fn get(
        &self,
        limit: Duration,
        will_do: impl FnOnce(&T) -> bool,
        asking: impl Future<Output = Result<T, AskError>>,
    ) -> Result<T, AskError> {
        let begun = Instant::now();
        let end = begun + limit;
        let late = || AskError::Timeout(limit);
        let mut known = timeout_at(end, self.0.lock()).await.map_err(|_| late())?;
        if let Some(value) = &known.value
            && will_do(value)
        {
            return Ok(value.clone());
        }
        if let Some((at, error)) = &known.failed
            && *at > begun
        {
            return Err(error.clone());
        }
        let asked = match timeout_at(end, asking).await {
            // what is told is the limit, not what was left of it
            Ok(Err(AskError::Timeout(_))) | Err(_) => Err(late()),
            Ok(asked) => asked,
        };
        match &asked {
            Ok(value) => *known = Known { value: Some(value.clone()), failed: None },
            Err(error) => known.failed = Some((Instant::now(), error.clone())),
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn many_who_wait_fail_with_the_first_and_who_comes_later_tries_anew() {
        let (together, tries) = (Together::default(), AtomicUsize::new(0));
        let wait = async |after: u64| {
            sleep(Duration::from_secs(after)).await;
            let asking = async {
                match tries.fetch_add(1, Ordering::SeqCst) {
                    0 => std::future::pending().await,
                    tries => Ok(tries),
                }
            };
            (together.get(LIMIT, |_| true, asking).await, Instant::now())
        };
        let begun = Instant::now();
        let all = join_all((0..100).map(|number| wait(number % 20))).await;
        for (outcome, at) in all {
            assert!(matches!(outcome, Err(AskError::Timeout(LIMIT))), "{outcome:?}");
            assert_eq!(at - begun, LIMIT);
        }
        assert_eq!(tries.load(Ordering::SeqCst), 1);
        assert_eq!(wait(0).await.0.unwrap(), 1);
        assert_eq!(wait(0).await.0.unwrap(), 1, "it is known");
    }
}
