use std::time::Duration;

use lf_core::Secret;
use tokio::time::advance;

use super::*;

const URL: &str = "https://tools.example/mcp";

fn oauth() -> OAuth {
    OAuth::new(None, Consent::Absent, Way::new(Arc::default(), Vec::new()), TaskTracker::new())
}

fn client() -> OAuthClient {
    OAuthClient { client_id: Some("c".to_owned()), ..OAuthClient::default() }
}

fn with_secret(secret: &str) -> OAuthClient {
    OAuthClient { client_secret: Some(Secret::from(secret)), ..client() }
}

fn account(oauth: &OAuth, auth: Auth) -> Arc<Account> {
    let server = HttpServer { auth: Some(auth), ..HttpServer::new(URL) };
    oauth.account(&server).unwrap()
}

#[test]
fn who_does_not_know_the_secret_of_a_client_does_not_get_its_tokens() {
    for auth in [Auth::OAuth, Auth::ClientCredentials] {
        let oauth = oauth();
        let knowing = account(&oauth, auth(with_secret("one")));
        assert!(Arc::ptr_eq(&knowing, &account(&oauth, auth(with_secret("one")))));
        let keyed = OAuthClient { private_key: Some(Secret::from("one")), ..client() };
        for other in [client(), with_secret("two"), keyed] {
            assert_ne!(account(&oauth, auth(other)).key(), knowing.key());
        }
    }
}

#[test]
fn a_file_that_changed_is_another_account_with_the_same_tokens() {
    let oauth = oauth();
    let before = account(&oauth, Auth::OAuth(client()));
    let scopes = Some(vec!["write".to_owned()]);
    let redirect_uri = Some("http://127.0.0.1:8400/".to_owned());
    for changed in [OAuthClient { scopes, ..client() }, OAuthClient { redirect_uri, ..client() }] {
        let after = account(&oauth, Auth::OAuth(changed));
        assert!(!Arc::ptr_eq(&before, &after));
        assert_eq!(before.key(), after.key());
    }
    assert!(Arc::ptr_eq(&before, &account(&oauth, Auth::OAuth(client()))));
}

#[tokio::test(start_paused = true)]
async fn accounts_that_nobody_uses_are_dropped_after_a_while() {
    let oauth = oauth();
    let used = account(&oauth, Auth::OAuth(client()));
    let unused = Arc::downgrade(&account(&oauth, Auth::OAuth(with_secret("one"))));
    account(&oauth, Auth::OAuth(with_secret("two")));
    assert!(unused.upgrade().is_some(), "what it knows of a refusal is of use");
    advance(UNUSED_FOR + Duration::from_secs(1)).await;
    account(&oauth, Auth::OAuth(with_secret("three")));
    assert!(unused.upgrade().is_none());
    assert!(Arc::ptr_eq(&used, &account(&oauth, Auth::OAuth(client()))));
}
