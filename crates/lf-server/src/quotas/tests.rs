use lf_store::Store;
use lf_test_postgres::Postgres;

use super::*;

const LIMIT: Duration = Duration::from_secs(30);

/// The accounts of a daemon with this store.
fn quotas(store: Store) -> Quotas {
    at_noon(Some(Arc::new(Memory::new(store))))
}

/// Accounts for which no day and no minute ends, and that wait for a store as long as a busy machine takes.
fn at_noon(memory: Option<Arc<Memory>>) -> Quotas {
    Quotas(Arc::new(All { clock: noon, read_wait: LIMIT, ..All::new(memory) }))
}

/// Of some day.
fn noon() -> Duration {
    Duration::from_secs((20_000 * 24 + 12) * 60 * 60)
}

fn payers(quota: Quota) -> Vec<Payer> {
    vec![Payer { account: "project:default/p".into(), quota }]
}

/// A turn that takes so much.
async fn used(quotas: &Quotas, payers: &[Payer], tokens: u64) {
    let mut charge = quotas.admit(payers.to_vec()).await.unwrap().begun();
    charge.has_used(Spent { tokens, cost: 0.0 });
}

/// Until nobody of this project is let in any more.
async fn until_refused(quotas: &Quotas, payers: &[Payer]) {
    let refused = async {
        while quotas.admit(payers.to_vec()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, refused).await.unwrap();
}

/// The store of all daemons, with every count in it.
async fn until_kept(store: &Store, tokens: u64) {
    let kept = async {
        while store.spent("project:default/p", signed(day(noon()))).await.unwrap().tokens < tokens {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, kept).await.unwrap();
}

#[tokio::test]
async fn a_day_is_used_up_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().to_owned()).await.unwrap();
    let payers = payers(Quota { tokens_per_day: Some(1000), ..Quota::default() });
    used(&quotas(store.clone()), &payers, 600).await;
    until_kept(&store, 600).await;
    let again = quotas(store.clone());
    used(&again, &payers, 400).await;
    let Err(Refusal::OverQuota(_)) = again.admit(payers).await else { panic!("1000 are used") };
}

#[tokio::test]
async fn daemons_that_share_a_store_use_one_day_together() {
    let database = Postgres::shared().database();
    let store = || Store::shared(&database.url().into(), &[]).unwrap();
    let payers = payers(Quota { tokens_per_day: Some(1000), ..Quota::default() });
    let (one, other) = (quotas(store()), quotas(store()));
    // both know the account before the other one uses it
    used(&one, &payers, 300).await;
    used(&other, &payers, 300).await;
    until_kept(&store(), 600).await;
    used(&one, &payers, 400).await;
    until_refused(&other, &payers).await;
    until_refused(&one, &payers).await;
}

#[tokio::test]
async fn a_database_that_is_gone_lets_chats_begin_with_what_this_daemon_knows() {
    let gone = Store::shared(&"postgres://u:p@127.0.0.1:1/d".to_owned().into(), &[]).unwrap();
    let quotas = quotas(gone);
    let payers = payers(Quota { tokens_per_day: Some(1000), ..Quota::default() });
    used(&quotas, &payers, 1000).await;
    let Err(Refusal::OverQuota(_)) = quotas.admit(payers).await else { panic!("1000 are used") };
}

#[tokio::test]
async fn a_turn_that_did_not_begin_takes_nothing_of_a_minute() {
    let quotas = at_noon(None);
    let payers = payers(Quota { requests_per_minute: Some(1), ..Quota::default() });
    // whatever came in between: words that nobody can decide about, no room, a store that is full
    drop(quotas.admit(payers.clone()).await.unwrap());
    let charge = quotas.admit(payers.clone()).await.unwrap();
    let Err(Refusal::OverQuota(_)) = quotas.admit(payers.clone()).await else {
        panic!("one is all there is")
    };
    drop(charge.begun());
    let Err(Refusal::OverQuota(_)) = quotas.admit(payers).await else { panic!("it has begun") };
}

/// A turn that was running when the daemon died goes on before anybody comes, and uses some.
#[tokio::test]
async fn what_a_recovered_turn_uses_is_added_to_the_day_and_does_not_begin_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().to_owned()).await.unwrap();
    let payers = payers(Quota { tokens_per_day: Some(1000), ..Quota::default() });
    used(&quotas(store.clone()), &payers, 900).await;
    until_kept(&store, 900).await;
    let again = quotas(store.clone());
    let before = Spent { tokens: 500, cost: 0.0 };
    let mut recovered = Charge::new(&again, payers.clone(), before).kept();
    recovered.has_used(Spent { tokens: 600, cost: 0.0 });
    let Err(Refusal::OverQuota(_)) = again.admit(payers).await else { panic!("900 and 100 are used") };
}

#[tokio::test]
async fn an_ask_that_is_dropped_is_paid_for_unless_somebody_goes_on_with_its_turn() {
    let quotas = at_noon(None);
    let payers = payers(Quota { tokens_per_day: Some(1000), ..Quota::default() });
    let asks = Spent { tokens: 1000, cost: 0.0 };
    let mut kept = quotas.admit(payers.clone()).await.unwrap().kept().begun();
    kept.asks(asks);
    drop(kept);
    let mut left = quotas.admit(payers.clone()).await.unwrap().begun();
    left.asks(asks);
    drop(left);
    let Err(Refusal::OverQuota(_)) = quotas.admit(payers).await else { panic!("1000 are used") };
}
