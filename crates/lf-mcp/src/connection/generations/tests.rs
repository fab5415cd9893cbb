use lf_core::project::HttpServer;

use super::*;

fn server(base_url: &str) -> McpServer {
    let http = HttpServer::new(base_url);
    crate::tests::server(Transport::Http(http))
}

async fn settle(tracker: &TaskTracker) {
    tracker.close();
    tracker.wait().await;
    tracker.reopen();
}

#[tokio::test]
async fn what_was_learnt_is_known_to_the_next_start_for_a_day() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("data").join("generations.json");
    let tracker = TaskTracker::new();
    let (older, newer) = (server("http://a.example/mcp"), server("http://b.example/mcp"));
    let first = Generations::kept_in(Some(file.clone()));
    first.remember(&older, Generation::Legacy, &tracker);
    settle(&tracker).await;
    // another process, which knows nothing of the first
    let other = Generations { file: Some(Arc::new(file.clone())), ..Generations::default() };
    other.remember(&newer, Generation::Modern, &tracker);
    settle(&tracker).await;
    let next = Generations::kept_in(Some(file.clone()));
    assert_eq!((next.of(&older), next.of(&newer)), (Some(Generation::Legacy), Some(Generation::Modern)));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("example"), "{text}");
    // a day later
    let old = text.replace("\"until\":", "\"until\":1,\"was\":");
    std::fs::write(&file, old).unwrap();
    assert_eq!(Generations::kept_in(Some(file)).of(&older), None);
}

#[tokio::test]
async fn what_proved_wrong_is_forgotten_and_a_broken_file_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("generations.json");
    std::fs::write(&file, "{ not json").unwrap();
    let tracker = TaskTracker::new();
    let known = Generations::kept_in(Some(file.clone()));
    let (one, other) = (server("http://a.example/mcp"), server("http://b.example/mcp"));
    known.remember(&one, Generation::Legacy, &tracker);
    settle(&tracker).await;
    known.forget(&one);
    assert_eq!(known.of(&one), None);
    known.remember(&other, Generation::Modern, &tracker);
    settle(&tracker).await;
    let next = Generations::kept_in(Some(file));
    assert_eq!((next.of(&one), next.of(&other)), (None, Some(Generation::Modern)));
}

#[tokio::test]
async fn meeting_a_server_again_does_not_make_the_guess_last() {
    let tracker = TaskTracker::new();
    let known = Generations::default();
    let one = server("http://a.example/mcp");
    known.remember(&one, Generation::Legacy, &tracker);
    known.lock().values_mut().for_each(|known| known.until = now() + 5);
    known.remember(&one, Generation::Legacy, &tracker);
    assert!(known.lock().values().all(|known| known.until <= now() + 5));
    known.remember(&one, Generation::Modern, &tracker);
    assert_eq!(known.of(&one), Some(Generation::Modern));
}
