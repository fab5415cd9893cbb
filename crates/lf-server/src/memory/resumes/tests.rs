use lf_core::{Message, Prose};

use super::*;

const ID: &str = "call_0123456789abcdef0123456701";

fn resume(id: &str, text: &str) -> Resume {
    let said = Prose { content: text.into(), ..Prose::default() };
    Resume { ids: vec![id.to_owned()], messages: vec![Message::User(said)].into() }
}

async fn found(resumes: &Resumes, id: &str) -> bool {
    resumes.find(vec![id.to_owned()]).await.contains_key(id)
}

#[tokio::test]
async fn what_is_remembered_is_bounded_in_bytes() {
    let resumes = Resumes::new(None);
    let id = |at: usize| format!("call_{at:026}");
    for at in 0..100 {
        resumes.remember(resume(&id(at), &"x".repeat(1024 * 1024))).await;
    }
    resumes.near.run_pending_tasks();
    assert!(resumes.near.weighted_size() <= REMEMBERED, "{}", resumes.near.weighted_size());
    assert!(found(&resumes, &id(99)).await, "the newest is what a client comes back for");
    assert!(resumes.near.entry_count() >= 32, "{}", resumes.near.entry_count());
}

#[tokio::test]
async fn what_the_store_keeps_is_known_after_a_restart_and_foreign_ids_are_not_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().to_owned()).await.unwrap();
    Resumes::new(Some(store.clone())).remember(resume(ID, "said")).await;
    let resumes = Resumes::new(Some(store.clone()));
    assert!(found(&resumes, ID).await);
    assert!(resumes.near.contains_key(ID), "from now on it is near");
    store.remember(&resume("toolu_1", "said")).await.unwrap();
    assert!(!found(&resumes, "toolu_1").await);
}

#[tokio::test]
async fn what_the_store_does_not_take_is_remembered_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().to_owned()).await.unwrap();
    let resumes = Resumes::new(Some(store.clone()));
    resumes.remember(resume(ID, &"x".repeat(LARGEST))).await;
    assert_eq!(store.remembered(ID).await.unwrap(), None);
    assert!(found(&resumes, ID).await);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_holds_a_request_up_once() {
    let resumes = Resumes::new(None);
    let asked = std::cell::Cell::new(0);
    let ids = (0..100).map(|at| format!("call_{at:026}")).collect();
    let began = Instant::now();
    let found = resumes.find_with(ids, |_| {
        asked.set(asked.get() + 1);
        std::future::pending()
    });
    assert!(found.await.is_empty());
    assert_eq!((began.elapsed().as_secs(), asked.get()), (STORE_WAIT.as_secs(), 1));
}
