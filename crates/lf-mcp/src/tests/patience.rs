//! How long a chat waits for servers that are slow to start.

use super::*;

/// The scripted server, which does not start before the file `gate` exists.
fn gated(gate: &std::path::Path) -> McpServer {
    let wait = "while ! [ -e \"$1\" ]; do sleep 0.01; done; exec python3 -S -c \"$2\"";
    stdio("sh", &["-c", wait, "sh", gate.to_str().unwrap(), PEER])
}

fn hasty() -> SessionPool {
    SessionPool::new(PoolOptions { list_wait: Duration::from_millis(100), ..options() })
}

#[tokio::test]
async fn a_chat_goes_on_without_a_slow_server_and_a_later_one_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let gate = directory.path().join("gate");
    let pool = hasty();
    let tools = tools(&pool, gated(&gate));
    assert_eq!(down(&tools).await, "still starting after 100ms");
    assert_eq!(tools.reports()[0].state, ServerState::Connecting);
    std::fs::write(&gate, "").unwrap();
    eventually("it is ready", || tools.reports()[0].state.name() == "ready").await;
    assert!(names(&list(&tools).await).contains(&"echo"));
    pool.shutdown().await;
}

#[tokio::test]
async fn a_required_server_has_its_whole_startup_timeout() {
    let directory = tempfile::tempdir().unwrap();
    let gate = directory.path().join("gate");
    let pool = hasty();
    let mut required = gated(&gate);
    required.required = true;
    let tools = tools(&pool, required);
    let opening = async {
        let begun = Instant::now();
        eventually("others are not waited for any more", || begun.elapsed() > Duration::from_millis(200))
            .await;
        std::fs::write(&gate, "").unwrap();
    };
    let (catalogue, ()) = tokio::join!(list(&tools), opening);
    assert!(names(&catalogue).contains(&"echo"));
    pool.shutdown().await;
}

#[tokio::test]
async fn a_startup_timeout_that_is_shorter_tells_its_own_reason() {
    let directory = tempfile::tempdir().unwrap();
    let heard = directory.path().join("heard");
    let pool = SessionPool::new(PoolOptions { list_wait: Duration::from_secs(60), ..options() });
    let tools = tools(&pool, silent(&heard));
    let reason = hurried(down(&tools), || heard.exists()).await;
    assert_eq!(reason, "did not answer `initialize` within 40s");
    pool.shutdown().await;
}

#[tokio::test]
async fn a_running_server_is_not_kept_from_a_chat_by_one_that_starts() {
    let directory = tempfile::tempdir().unwrap();
    let gate = directory.path().join("gate");
    let pool = hasty();
    let mut slow = gated(&gate);
    "slow".clone_into(&mut slow.name);
    let running = peer("-", "");
    tools(&pool, running.clone()).probe().await;
    let both = [("slow".to_owned(), Ok(Arc::new(slow))), (NAME.to_owned(), Ok(Arc::new(running)))];
    let catalogue = pool.tools(both).list(&["slow".to_owned(), NAME.to_owned()]).await;
    assert!(catalogue.tools.iter().all(|tool| &*tool.id.server == NAME) && !catalogue.tools.is_empty());
    assert_eq!(catalogue.down.len(), 1);
    assert_eq!((catalogue.down[0].server.as_str(), catalogue.down[0].required), ("slow", false));
    pool.shutdown().await;
}
