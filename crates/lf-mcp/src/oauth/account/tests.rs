use futures_util::future::join_all;
use tokio_util::task::TaskTracker;
use url::Url;

use super::*;
use crate::tests::eventually;
use crate::tests::http_peer::{Peer, Reply};

const KEY: &str = "k";

fn account_of(url: &str, store: Store, (told, is_own): (OAuthClient, bool)) -> Arc<Account> {
    let egress = lf_egress::Egress::new(Arc::default(), Vec::new());
    let means = Means { store, consent: Consent::Absent, egress, tracker: TaskTracker::new() };
    Arc::new(Account::new(
        KEY.to_owned(),
        (Server { url: Url::parse(url).unwrap(), reach: Reach::Named }, told, is_own),
        means,
    ))
}

/// One that has expired and can be renewed.
fn expired(url: &str) -> Grant {
    Grant {
        issuer: url.to_owned(),
        token_endpoint: format!("{url}/token"),
        client: super::super::store::Client { id: "c".to_owned(), ..Default::default() },
        access_token: Some("old".to_owned()),
        refresh_token: Some("refresh".to_owned()),
        expires_at: Some(1),
        renew_at: Some(1),
        ..Grant::default()
    }
}

/// As if it had been a while ago.
fn age_failure(account: &Account) {
    let mut known = account.known();
    let failed = known.failed.as_mut().unwrap();
    failed.at = failed.at.checked_sub(FAILED_FOR).unwrap();
}

#[tokio::test]
async fn a_renewal_that_fails_is_not_tried_again_by_everybody_who_waits_for_it() {
    let peer = Peer::start(|_| Reply::new(500, "text/plain", "later")).await;
    let asked = || peer.requests.lock().unwrap().len();
    let store = Store::new(None);
    store.save(KEY, &expired(&peer.url)).await.unwrap();
    for is_own in [false, true] {
        let before = asked();
        let account = account_of(&peer.url, store.clone(), (OAuthClient::default(), is_own));
        for _ in 0..2 {
            for bearer in join_all((0..10).map(|_| account.bearer())).await {
                assert!(matches!(bearer, Err(Denied::Failed(_))), "{bearer:?}");
            }
        }
        let refusal = Refusal {
            used: Some("old".to_owned()),
            is_forbidden: false,
            challenge: Challenge::default(),
            earlier: 0,
        };
        let refused = account.answer(refusal).await;
        assert!(matches!(refused, Err(Denied::Failed(_))), "{refused:?}");
        assert_eq!(asked() - before, 1, "as ourselves: {is_own}");
        // but soon
        age_failure(&account);
        assert!(account.bearer().await.is_err());
        assert_eq!(asked() - before, 2);
    }
}

#[tokio::test]
async fn what_a_login_has_to_ask_for_costs_no_tokens_that_another_process_renewed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::new(Some(directory.path().join("oauth")));
    let url = "http://127.0.0.1:9";
    store.save(KEY, &expired(url)).await.unwrap();
    let account = account_of(url, store.clone(), (OAuthClient::default(), false));
    let challenge = Challenge::parse("Bearer error=\"insufficient_scope\", scope=\"write\"");
    let refusal = Refusal { used: Some("old".to_owned()), is_forbidden: true, challenge, earlier: 0 };
    // the other is renewing from before the refusal is looked at until after
    let held = store.hold(KEY).await.unwrap();
    let other = async {
        eventually("the refusal is looked at", || account.known().grant.is_some()).await;
        let renewed = Grant { access_token: Some("new".to_owned()), ..expired(url) };
        store.save(KEY, &renewed).await.unwrap();
        drop(held);
    };
    let (refused, ()) = tokio::join!(account.answer(refusal), other);
    assert!(
        matches!(&refused, Err(Denied::Login(why)) if why.ends_with("more for this: write")),
        "{refused:?}"
    );
    let kept = store.load(KEY).unwrap();
    assert_eq!(
        (kept.access_token.as_deref(), kept.wanted.as_slice()),
        (Some("new"), &["write".to_owned()][..])
    );
}
