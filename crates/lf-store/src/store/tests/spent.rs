//! What callers have used of a day.

use lf_core::turn::Spent;

use super::*;

on_both_stores! {
    what_is_spent_is_added_up_by_account_and_day_and_survives,
    what_many_spend_at_once_is_all_counted,
    days_long_ago_are_forgotten,
}

fn spent(tokens: u64, cost: f64) -> Spent {
    Spent { tokens, cost }
}

async fn what_is_spent_is_added_up_by_account_and_day_and_survives(bench: Bench) {
    let store = &bench.store;
    assert_eq!(store.spent("project:a", 20_000).await.unwrap(), Spent::default());
    store
        .spend(("1", None), &[("project:a", 20_000, spent(100, 0.25)), ("key:b", 20_000, spent(7, 0.0))])
        .await
        .unwrap();
    store.spend(("2", Some("1")), &[("project:a", 20_000, spent(11, 0.000_000_001))]).await.unwrap();
    store.spend(("3", Some("2")), &[("project:a", 20_001, spent(1, 3.0))]).await.unwrap();
    let Bench { store, home } = bench.reopened().await;
    assert_eq!(store.spent("project:a", 20_000).await.unwrap(), spent(111, 0.250_000_001));
    assert_eq!(store.spent("project:a", 20_001).await.unwrap(), spent(1, 3.0));
    assert_eq!(store.spent("key:b", 20_000).await.unwrap(), spent(7, 0.0));
    assert_eq!(store.spent("PROJECT:A", 20_000).await.unwrap(), Spent::default());
    drop(home);
}

/// Also where they name the accounts in another order.
async fn what_many_spend_at_once_is_all_counted(bench: Bench) {
    let all = (0..40).map(|each| {
        let store = bench.store.clone();
        async move {
            let (mine, yours) = (("a", 20_000, spent(1, 0.5)), ("b", 20_000, spent(2, 0.0)));
            let used = if each % 2 == 0 { [mine, yours] } else { [yours, mine] };
            store.spend((&each.to_string(), None), &used).await
        }
    });
    for outcome in futures_util::future::join_all(all).await {
        outcome.unwrap();
    }
    assert_eq!(bench.store.spent("a", 20_000).await.unwrap(), spent(40, 20.0));
    assert_eq!(bench.store.spent("b", 20_000).await.unwrap(), spent(80, 0.0));
}

async fn days_long_ago_are_forgotten(bench: Bench) {
    let store = &bench.store;
    store.spend(("1", None), &[("a", 20_000, spent(1, 0.0))]).await.unwrap();
    store.spend(("2", None), &[("a", 20_001, spent(2, 0.0))]).await.unwrap();
    store.spend(("3", None), &[("b", 20_041, spent(3, 0.0))]).await.unwrap();
    assert_eq!(store.spent("a", 20_000).await.unwrap(), Spent::default(), "41 days ago");
    assert_eq!(store.spent("a", 20_001).await.unwrap(), spent(2, 0.0), "40 days ago");
}
