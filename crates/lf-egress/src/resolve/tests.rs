use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::sync::Notify;

use super::*;

fn scripted(
    answer: impl Fn(usize) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync + 'static,
) -> (Resolver, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let resolver = Resolver::new(Arc::new(move |_| answer(count.fetch_add(1, Ordering::SeqCst))));
    (resolver, asked)
}

async fn resolve(resolver: &Resolver) -> Result<Vec<SocketAddr>, String> {
    let found = resolver.resolve("example.test".parse().unwrap()).await;
    found.map(Iterator::collect).map_err(|error| error.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_not_found_is_asked_for_again_after_a_while_only() {
    let (resolver, asked) =
        scripted(|_| async { Err(io::Error::other("Name or service not known")) }.boxed());
    for _ in 0..100 {
        assert_eq!(resolve(&resolver).await, Err("Name or service not known".to_owned()));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    tokio::time::advance(MISSING).await;
    resolve(&resolver).await.unwrap_err();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slow_resolver_is_asked_once_by_any_number_of_connects() {
    let release = Arc::new(Notify::new());
    let gate = release.clone();
    let (resolver, asked) = scripted(move |_| {
        let gate = gate.clone();
        async move {
            gate.notified().await;
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))])
        }
        .boxed()
    });
    let impatient = tokio::time::timeout(Duration::from_secs(1), resolve(&resolver)).await;
    assert!(impatient.is_err());
    let all = join_all((0..100).map(|_| resolve(&resolver)));
    let releasing = async {
        tokio::time::sleep(Duration::from_secs(9)).await;
        release.notify_one();
    };
    let (all, ()) = tokio::join!(all, releasing);
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    // what was found is asked for anew: addresses change
    let again = tokio::time::timeout(Duration::from_secs(1), resolve(&resolver)).await;
    assert!(again.is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}
