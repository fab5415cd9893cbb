//! Work that blocks, in a thread of its own.
//!
//! The threads that the runtime keeps for this are not asked for: where the system has none left, it panics. Here that
//! is an error like any other.

use std::io;
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Linux shows 15 bytes of it.
const NAME: &str = "lf-blocking";

/// Starts `work`. It goes on when nobody waits for its result any more.
///
/// # Errors
/// When there is no thread for it; it is dropped then.
pub fn start<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (done, result) = oneshot::channel();
    let runtime = Handle::try_current().ok();
    thread::Builder::new().name(NAME.to_owned()).spawn(move || {
        let _inside = runtime.as_ref().map(Handle::enter);
        // Nobody may be waiting any more.
        let _ = done.send(work());
    })?;
    Ok(result)
}

/// Runs `work` and waits for it.
///
/// # Errors
/// When there was no thread for it, or it panicked.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    start(work)?.await.map_err(|_| io::Error::other("it was given up"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_run_answers_and_what_panics_is_an_error() {
        assert_eq!(run(|| thread::current().name().map(str::to_owned)).await.unwrap().as_deref(), Some(NAME));
        assert!(run(|| Handle::try_current().is_ok()).await.unwrap());
        assert!(run(|| assert!(NAME.is_empty())).await.is_err());
    }
}
