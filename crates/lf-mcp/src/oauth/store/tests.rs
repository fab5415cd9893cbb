use std::os::unix::fs::PermissionsExt as _;

use tokio_util::task::TaskTracker;

use super::*;

fn grant(token: &str) -> Grant {
    Grant {
        issuer: "https://id.example".to_owned(),
        access_token: Some(token.to_owned()),
        ..Grant::default()
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn only_the_owner_may_read_what_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("data/oauth");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
    let store = Store::new(Some(directory.clone()));
    assert!(store.load("a").is_none());
    let before = store.stamp("a");
    drop(store.hold("a").await.unwrap());
    store.save("a", &grant("one")).await.unwrap();
    assert!(store.load("a").unwrap() == grant("one"));
    assert!(store.stamp("a") != before);
    let seen = store.stamp("a");
    store.save("a", &grant("two")).await.unwrap();
    assert!(store.stamp("a") != seen, "another file is another state, at the same second and length too");
    assert_eq!(mode(&directory), 0o700);
    for entry in std::fs::read_dir(&directory).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    store.remove("a").await.unwrap();
    store.remove("a").await.unwrap();
    assert!(store.load("a").is_none());
}

#[tokio::test]
async fn what_cannot_be_read_or_is_a_link_is_nothing() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::new(Some(home.path().to_owned()));
    std::fs::write(home.path().join("a.json"), "{\"access_token\": ").unwrap();
    assert!(store.load("a").is_none());
    std::fs::write(home.path().join("other"), serde_json::to_string(&grant("x")).unwrap()).unwrap();
    std::os::unix::fs::symlink(home.path().join("other"), home.path().join("b.json")).unwrap();
    assert!(store.load("b").is_none());
    store.save("b", &grant("new")).await.unwrap();
    assert!(store.load("b").unwrap() == grant("new"), "the link is replaced, not followed");
    assert!(std::fs::read_to_string(home.path().join("other")).unwrap().contains("\"x\""));
}

#[tokio::test]
async fn one_at_a_time_holds_a_key() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::new(Some(home.path().to_owned()));
    let held = store.hold("a").await.unwrap();
    let waiting = {
        let store = store.clone();
        TaskTracker::new().spawn(async move { store.hold("a").await.map(drop) })
    };
    drop(store.hold("b").await.unwrap());
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    drop(held);
    waiting.await.unwrap().unwrap();
}
