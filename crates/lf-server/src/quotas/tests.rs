use lf_store::Store;
use lf_test_postgres::Postgres;

use super::*;

const LIMIT: Duration = Duration::from_secs(30);

/// The accounts of a daemon with this store.
fn quotas(store: Store) -> Quotas {
    Quotas::new(Some(Arc::new(Memory::new(store))))
}

fn payers(quota: Quota) -> Vec<Payer> {
    vec![Payer { account: "project:default/p".into(), quota }]
}

/// A turn that takes so much.
async fn used(quotas: &Quotas, payers: &[Payer], tokens: u64) {
    quotas.admit(payers).await.unwrap();
    let mut charge = Charge::new(quotas, payers.to_vec(), Spent::default());
    charge.has_used(Spent { tokens, cost: 0.0 });
}

/// Until nobody of this project is let in any more.
async fn until_refused(quotas: &Quotas, payers: &[Payer]) {
    let refused = async {
        while quotas.admit(payers).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LIMIT, refused).await.unwrap();
}

/// The store of all daemons, with every count in it.
async fn until_kept(store: &Store, tokens: u64) {
    let kept = async {
        while store.spent("project:default/p", whole_day(now())).await.unwrap().tokens < tokens {
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
    let Err(Refusal::OverQuota(_)) = again.admit(&payers).await else { panic!("1000 are used") };
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
    let Err(Refusal::OverQuota(_)) = quotas.admit(&payers).await else { panic!("1000 are used") };
}

#[tokio::test]
async fn a_turn_that_did_not_begin_takes_nothing_of_a_minute() {
    let quotas = Quotas::new(None);
    let payers = payers(Quota { requests_per_minute: Some(1), ..Quota::default() });
    quotas.admit(&payers).await.unwrap();
    Charge::new(&quotas, payers.clone(), Spent::default()).not_begun();
    quotas.admit(&payers).await.unwrap();
    let Err(Refusal::OverQuota(_)) = quotas.admit(&payers).await else { panic!("one is all there is") };
}
