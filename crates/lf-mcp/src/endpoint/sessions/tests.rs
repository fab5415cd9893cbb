use super::*;

async fn begun(sessions: &Arc<Sessions>, scope: &str) -> SessionId {
    Scoped::new(sessions.clone(), scope).create_session().await.expect("a session").0
}

#[tokio::test(start_paused = true)]
async fn the_session_unused_longest_makes_room_for_another() {
    let sessions = Arc::new(Sessions::new());
    let (busy, unused, used) =
        (begun(&sessions, "a").await, begun(&sessions, "a").await, begun(&sessions, "a").await);
    let _open = sessions.open(&busy);
    tokio::time::advance(Duration::from_secs(1)).await;
    for _ in 3..MAX_SESSIONS {
        begun(&sessions, "b").await;
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    let scoped = Scoped::new(sessions.clone(), "a");
    assert!(scoped.has_session(&used).await.unwrap());
    begun(&sessions, "b").await;
    assert!(scoped.has_session(&busy).await.unwrap());
    assert!(!scoped.has_session(&unused).await.unwrap());
    assert!(scoped.has_session(&used).await.unwrap());
    assert_eq!(sessions.local.sessions.read().await.len(), MAX_SESSIONS);
}

#[tokio::test(start_paused = true)]
async fn no_session_ends_that_somebody_reads_from() {
    let sessions = Arc::new(Sessions::new());
    let mut open = Vec::new();
    for _ in 0..MAX_SESSIONS {
        open.push(sessions.open(&begun(&sessions, "a").await));
    }
    let scoped = Scoped::new(sessions.clone(), "a");
    assert!(matches!(scoped.create_session().await, Err(SessionsError::Full)));
    assert!(scoped.was_full());
    open.pop();
    begun(&sessions, "a").await;
}
