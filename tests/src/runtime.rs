//! One runtime for all peers of a test program, so that tests themselves need none.

use std::future::Future;
use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    // A second caller finds a provider installed, which is what it wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime for the peers")
});

/// Runs a future to its end. Not from inside another future.
pub fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

pub(crate) fn spawn<F>(future: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    RUNTIME.spawn(future);
}
