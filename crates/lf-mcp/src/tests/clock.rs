//! Waiting in tests of the pool: for what has to happen, which has all the time it needs, and for time limits of ours, which
//! pass faster.
//!
//! What must succeed has a limit of 20 s or more, however busy the machine; what must time out has the same limit, and is
//! hurried to it once everything that is to happen before has happened.

use std::pin::pin;

use super::*;

/// For what takes milliseconds on a machine that does nothing else.
const PATIENCE: Duration = Duration::from_secs(60);
/// By which time is hurried.
const STEP: Duration = Duration::from_millis(500);

/// Waits for what another process or task is about to do.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What somebody else is about to send, or to be done with.
pub(crate) async fn soon<T>(outcome: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, outcome).await.expect("it comes")
}

/// Polls a future that does not end until something holds.
pub(crate) async fn until<T: std::fmt::Debug>(
    pending: &mut (impl Future<Output = T> + Unpin),
    what: &str,
    holds: impl FnMut() -> bool,
) {
    tokio::select! {
        biased;
        ended = pending => panic!("{what}: {ended:?}"),
        () = eventually(what, holds) => {}
    }
}

/// Lets time go on when it is dropped.
struct Paused;

impl Drop for Paused {
    fn drop(&mut self) {
        tokio::time::resume();
    }
}

/// Lets a time limit of ours pass, without the time it takes. Dropping the future lets time go on.
pub(crate) async fn skip(duration: Duration) {
    tokio::time::pause();
    let _paused = Paused;
    tokio::time::advance(duration).await;
}

/// Waits for something that comes after a time limit of ours.
pub(crate) async fn in_the_end(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        skip(STEP).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The outcome of what a time limit of ours ends, or a pause of ours holds up, from when something holds.
pub(crate) async fn hurried<T>(outcome: impl Future<Output = T>, mut from: impl FnMut() -> bool) -> T {
    let mut outcome = pin!(outcome);
    let end = Instant::now() + PATIENCE;
    loop {
        tokio::select! {
            biased;
            outcome = &mut outcome => return outcome,
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
        assert!(Instant::now() < end, "it is over in time");
        if from() {
            skip(STEP).await;
        }
    }
}

/// The outcome of a call of a tool that reports progress once, and is given up some time after that.
pub(crate) async fn given_up(
    tools: &ProjectTools,
    name: &str,
    arguments: Value,
) -> Result<ToolOutput, ToolError> {
    let is_running = AtomicBool::new(false);
    let running = |_| is_running.store(true, Ordering::SeqCst);
    hurried(call_with(tools, name, arguments, &running), || is_running.load(Ordering::SeqCst)).await
}
