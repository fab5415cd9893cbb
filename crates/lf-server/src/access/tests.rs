use std::os::unix::fs::PermissionsExt as _;

use axum::http::HeaderValue;
use lf_core::Scope;

use super::*;

struct Home {
    directory: tempfile::TempDir,
    access: Access,
}

fn home() -> Home {
    let directory = tempfile::tempdir().unwrap();
    let access = Access::new(directory.path());
    access.take_owner(directory.path()).unwrap();
    Home { directory, access }
}

impl Home {
    fn key(&self, name: &str, lasts: Option<Duration>) -> String {
        let new = NewKey { name: name.to_owned(), scopes: vec![Scope::Chat], lasts, ..NewKey::default() };
        Keys::at(self.directory.path()).create(new).unwrap().1
    }

    fn who(&self, headers: &[(&'static str, &str)], loopback: bool) -> Result<String, Stranger> {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, HeaderValue::from_str(value).unwrap());
        }
        self.access.who(&all, loopback).map(|principal| principal.name.clone())
    }
}

#[test]
fn no_key_has_a_name_that_is_taken_for_somebody_else() {
    let home = home();
    let keys = Keys::at(home.directory.path());
    for name in ["the owner", "This Machine", "nobody", "the\u{200b} owner", " ann", "ann\u{2028}"] {
        let new = NewKey { name: name.to_owned(), scopes: vec![Scope::Chat], ..NewKey::default() };
        assert!(matches!(keys.create(new), Err(KeysError::Wrong(_))), "{name:?}");
    }
    home.key("the owners", None);
}

#[test]
fn a_key_is_taken_as_either_header_and_seen_as_soon_as_it_is_made_or_revoked() {
    let home = home();
    let key = home.key("ann", None);
    let bearer = format!("Bearer {key}");
    for headers in [("authorization", bearer.as_str()), ("x-api-key", key.as_str())] {
        assert_eq!(home.who(&[headers], false), Ok("ann".to_owned()));
    }
    assert_eq!(home.who(&[("authorization", &format!("bearer  {key} "))], true), Ok("ann".to_owned()));
    let other = home.key("bob", None);
    assert_eq!(home.who(&[("x-api-key", &other)], false), Ok("bob".to_owned()));
    assert_eq!(home.who(&[("authorization", &bearer), ("x-api-key", &other)], false), Err(Stranger::Wrong));
    Keys::at(home.directory.path()).revoke("ann").unwrap();
    assert_eq!(home.who(&[("x-api-key", &key)], false), Err(Stranger::Wrong));
    assert_eq!(home.who(&[("x-api-key", &other)], false), Ok("bob".to_owned()));
}

#[test]
fn what_is_no_key_of_ours_counts_on_this_machine_as_none_and_elsewhere_as_wrong() {
    let home = home();
    for dummy in ["Bearer dummy", "Bearer sk-1234", "Basic bGY6bGY=", "x"] {
        assert_eq!(home.who(&[("authorization", dummy)], true), Ok("this machine".to_owned()), "{dummy}");
        assert_eq!(home.who(&[("authorization", dummy)], false), Err(Stranger::Wrong), "{dummy}");
    }
    assert_eq!(home.who(&[], true), Ok("this machine".to_owned()));
    assert_eq!(home.who(&[], false), Err(Stranger::Without));
    for wrong in ["lfk_", "lfk_00", "lfo_", "lfo_00"] {
        for loopback in [true, false] {
            assert_eq!(home.who(&[("x-api-key", wrong)], loopback), Err(Stranger::Wrong), "{wrong}");
        }
    }
}

#[test]
fn an_expired_key_is_told_so() {
    let home = home();
    let key = home.key("short", Some(Duration::ZERO));
    assert_eq!(home.who(&[("x-api-key", &key)], true), Err(Stranger::Expired));
    assert!(!home.access.has_keys().unwrap());
    home.key("long", Some(Duration::from_secs(60)));
    assert!(home.access.has_keys().unwrap());
}

#[test]
fn the_owners_token_is_made_once_for_its_owner_alone() {
    let home = home();
    let path = home.directory.path().join(OWNER_FILE);
    let token = std::fs::read_to_string(&path).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(owner_token(home.directory.path()).unwrap(), token);
    for loopback in [true, false] {
        assert_eq!(home.who(&[("x-api-key", &token)], loopback), Ok("the owner".to_owned()));
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(owner_token(home.directory.path()).unwrap_err().to_string().contains("others"));
}

#[test]
fn a_key_is_kept_as_a_hash_in_a_private_file() {
    let home = home();
    let key = home.key("ann", None);
    let path = home.directory.path().join("keys.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    let secret = key.rsplit('_').next().unwrap();
    assert_eq!(secret.len(), 64);
    assert!(!text.contains(secret) && text.contains(&keys::hash(&key)), "{text}");
    let again = NewKey { name: "ann".to_owned(), scopes: vec![Scope::Chat], ..NewKey::default() };
    assert!(matches!(Keys::at(home.directory.path()).create(again), Err(KeysError::Exists(_))));
}

#[test]
fn a_file_of_keys_that_cannot_be_read_lets_nobody_in() {
    let home = home();
    let key = home.key("ann", None);
    let path = home.directory.path().join("keys.json");
    let text = std::fs::read_to_string(&path).unwrap();
    for broken in ["{", "[]", &text.replace("\"version\": 2", "\"version\": 3")] {
        std::fs::write(&path, broken).unwrap();
        assert_eq!(home.who(&[("x-api-key", &key)], true), Err(Stranger::Wrong), "{broken}");
        assert!(Keys::at(home.directory.path()).list().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_for_a_key_is_told_of_its_end() {
    let home = home();
    let key = home.key("ann", None);
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", HeaderValue::from_str(&key).unwrap());
    let principal = home.access.who(&headers, false).unwrap();
    let until = home.access.until_revoked(&principal);
    assert!(home.access.is_current(&principal) && !until.is_cancelled());
    Keys::at(home.directory.path()).revoke("ann").unwrap();
    assert!(!home.access.is_current(&principal));
    tokio::select! {
        () = home.access.watch() => {}
        () = until.cancelled() => {}
    }
    assert!(home.access.until_revoked(&principal).is_cancelled());
}
