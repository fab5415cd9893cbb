//! Servers of either generation, and of both, over stdio.

use lf_core::project::{Generation, Protocol};

use super::*;

/// A pool, and the scripted server in this mode, which notes its starts.
struct Stage {
    directory: tempfile::TempDir,
    pool: SessionPool,
    server: Arc<McpServer>,
    tools: ProjectTools,
}

impl Stage {
    fn new(mode: &str, protocol: Protocol) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut server = peer(directory.path().join("starts").to_str().unwrap(), mode);
        server.protocol = protocol;
        let (pool, server) = (pool(), Arc::new(server));
        let tools = pool.tools([(NAME.to_owned(), Ok(server.clone()))]);
        Self { directory, pool, server, tools }
    }

    fn starts(&self) -> usize {
        lines(&self.directory.path().join("starts")).len()
    }

    fn lists(&self) -> usize {
        lines(&self.directory.path().join("starts.lists")).len()
    }

    async fn echoes(&self) {
        assert_eq!(text(call(&self.tools, "echo", json!({"a": 1})).await), r#"{"a": 1}"#);
    }

    async fn protocol(&self) -> String {
        names(&list(&self.tools).await);
        match self.pool.status(&self.server) {
            ServerState::Ready { protocol, .. } => protocol,
            other => panic!("{other:?}"),
        }
    }
}

async fn speaks(mode: &str, protocol: Protocol, revision: &str, starts: usize) {
    let stage = Stage::new(mode, protocol);
    assert_eq!(stage.protocol().await, revision, "{mode}");
    stage.echoes().await;
    assert_eq!(stage.starts(), starts, "{mode}");
    stage.pool.shutdown().await;
}

#[tokio::test]
async fn the_newer_generation_is_spoken_where_the_server_knows_it() {
    speaks("modern", Protocol::Auto, "2026-07-28", 1).await;
    speaks("dual", Protocol::Auto, "2026-07-28", 1).await;
    speaks("", Protocol::Auto, "2025-11-25", 1).await;
}

#[tokio::test]
async fn the_file_decides_where_it_says() {
    speaks("dual", Protocol::Legacy, "2025-11-25", 1).await;
    speaks("dual", Protocol::Modern, "2026-07-28", 1).await;
    speaks("dual", Protocol::Revision("2025-06-18"), "2025-06-18", 1).await;
    speaks("dual", Protocol::Revision("2026-07-28"), "2026-07-28", 1).await;
}

#[tokio::test]
async fn a_server_that_ignores_what_it_does_not_know_is_greeted_in_the_older_way() {
    speaks("mute", Protocol::Auto, "2025-11-25", 1).await;
}

#[tokio::test]
async fn a_server_that_exits_when_it_is_probed_is_started_once_more_and_then_known() {
    let stage = Stage::new("quits", Protocol::Auto);
    assert_eq!(stage.protocol().await, "2025-11-25");
    assert_eq!(stage.starts(), 2);
    let lost = call(&stage.tools, "exit", json!({})).await;
    assert!(matches!(lost, Err(ToolError::Lost { .. })), "{lost:?}");
    stage.echoes().await;
    assert_eq!(stage.starts(), 3);
    stage.tools.restart(NAME);
    stage.echoes().await;
    assert_eq!(stage.starts(), 5, "a restart finds out anew");
}

#[tokio::test]
async fn a_slow_server_that_keeps_to_the_first_message_it_reads_is_not_lost() {
    let stage = Stage::new("slow_dual", Protocol::Auto);
    assert_eq!(stage.protocol().await, "2026-07-28");
    stage.echoes().await;
    assert_eq!(stage.starts(), 1);
}

#[tokio::test]
async fn a_slow_server_that_takes_both_first_messages_is_greeted_anew() {
    let stage = Stage::new("slow_both", Protocol::Auto);
    assert_eq!(stage.protocol().await, "2026-07-28");
    stage.echoes().await;
    assert_eq!(stage.starts(), 2);
}

#[tokio::test]
async fn a_pinned_generation_that_the_server_does_not_speak_is_told() {
    let older = Stage::new("", Protocol::Modern);
    assert_eq!(down(&older.tools).await, "refused `server/discover`: Method not found");
    assert!(older.tools.hint(NAME).unwrap().contains("`protocol`"));
    let newer = Stage::new("modern", Protocol::Legacy);
    assert_eq!(down(&newer.tools).await, "refused `initialize`: the connection speaks modern");
    assert!(newer.tools.hint(NAME).unwrap().contains("`protocol`"));
    assert_eq!((older.starts(), newer.starts()), (1, 1));
}

#[tokio::test]
async fn both_generations_of_a_server_are_sessions_of_their_own_and_shared() {
    let stage = Stage::new("dual", Protocol::Auto);
    let session = async |generation| stage.pool.session(&stage.server, generation).await.unwrap();
    let older = session(Some(Generation::Legacy)).await;
    let newer = session(Some(Generation::Modern)).await;
    assert_eq!((older.protocol(), newer.protocol()), ("2025-11-25", "2026-07-28"));
    assert_eq!((older.generation(), newer.generation()), (Generation::Legacy, Generation::Modern));
    assert_eq!(session(None).await.generation(), Generation::Modern);
    session(Some(Generation::Legacy)).await;
    stage.echoes().await;
    assert_eq!(stage.starts(), 2);
    stage.pool.shutdown().await;
    eventually("both are gone", || {
        !lines(&stage.directory.path().join("starts")).iter().any(|pid| is_running(pid))
    })
    .await;
}

#[tokio::test]
async fn a_generation_that_there_is_none_of_is_refused() {
    let older = Stage::new("", Protocol::Auto);
    let refused = older.pool.session(&older.server, Some(Generation::Modern)).await;
    assert_eq!(refused.err().unwrap().reason, "speaks only older revisions: 2025-11-25");
    assert_eq!(
        older.pool.session(&older.server, Some(Generation::Legacy)).await.unwrap().protocol(),
        "2025-11-25"
    );
    assert_eq!(older.starts(), 1);
    let pinned = Stage::new("dual", Protocol::Legacy);
    let refused = pinned.pool.session(&pinned.server, Some(Generation::Modern)).await.err().unwrap();
    assert_eq!(refused.hint.as_deref(), Some("the file says `protocol: legacy`"));
    assert_eq!(pinned.starts(), 0);
}

#[tokio::test]
async fn every_request_of_the_newer_generation_says_who_asks() {
    let stage = Stage::new("modern", Protocol::Auto);
    let meta: Value = serde_json::from_str(&text(call(&stage.tools, "meta", json!({})).await)).unwrap();
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "lf");
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({"elicitation": {"form": {}, "url": {}}})
    );
    assert!(!meta["progressToken"].is_null());
}

#[tokio::test]
async fn a_question_to_a_person_is_answered_by_its_defaults_in_both_generations() {
    for mode in ["modern", ""] {
        let stage = Stage::new(mode, Protocol::Auto);
        let accepted = text(call(&stage.tools, "ask", json!({})).await);
        assert_eq!(accepted, r#"{"action": "accept", "content": {"name": "hay"}}"#, "{mode}");
        let declined = text(call(&stage.tools, "ask_blindly", json!({})).await);
        assert_eq!(declined, r#"{"action": "decline"}"#, "{mode}");
    }
}

#[tokio::test]
async fn what_was_not_declared_is_not_answered() {
    let stage = Stage::new("modern", Protocol::Auto);
    let message = async |tool| match call(&stage.tools, tool, json!({})).await {
        Err(ToolError::Refused { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    assert!(message("ask_roots").await.contains("roots are not offered"));
    assert!(message("task").await.contains("a task, which nobody offered"));
    assert_eq!(message("ask_for_ever").await, "it asked for input more than 10 times");
    let older = Stage::new("", Protocol::Auto);
    let refused = text(call(&older.tools, "ask_roots", json!({})).await);
    assert!(refused.contains("-32601"), "{refused}");
}

#[tokio::test]
async fn a_call_of_the_newer_generation_is_cancelled_by_a_notification() {
    let stage = Stage::new("modern", Protocol::Auto);
    let hung = given_up(&stage.tools, "hang", json!({})).await;
    assert!(matches!(hung, Err(ToolError::Timeout { .. })), "{hung:?}");
    assert_eq!(text(call(&stage.tools, "cancelled", json!({"least": 1})).await), "1");
}

#[tokio::test]
async fn changes_are_told_in_both_generations_and_a_storm_of_them_is_listed_once_or_twice() {
    for mode in ["modern", ""] {
        let stage = Stage::new(mode, Protocol::Auto);
        let session = stage.pool.session(&stage.server, None).await.unwrap();
        let mut changes = session.tool_changes();
        if mode == "modern" {
            eventually("it is listened to", || session.0.link.signals.is_told()).await;
        }
        let listed = stage.lists();
        let begun = Instant::now();
        call(&stage.tools, "grow", json!({"times": 1_000})).await.unwrap();
        // nobody asks for the list meanwhile
        changes.changed().await.unwrap();
        assert!(session.0.known_tools().iter().any(|tool| &*tool.id.name == "grown"), "{mode}");
        // and again each 2 s that the storm lasts
        let most = 2 + usize::try_from(begun.elapsed().as_secs() / 2).unwrap();
        assert!(stage.lists() - listed <= most, "{mode}: {}", stage.lists() - listed);
    }
}

#[tokio::test]
async fn a_list_is_kept_as_long_as_the_server_says_unless_it_tells_changes() {
    let stage = Stage::new("modern", Protocol::Auto);
    let session = stage.pool.session(&stage.server, None).await.unwrap();
    eventually("it is listened to", || session.0.link.signals.is_told()).await;
    let listed = stage.lists();
    let known = session.0.known_tools();
    skip(Duration::from_secs(60)).await;
    session.tools(Duration::from_secs(300)).await.unwrap();
    assert_eq!(stage.lists(), listed, "changes are told");
    drop(session.0.link.signals.listening());
    session.tools(Duration::from_secs(300)).await.unwrap();
    assert_eq!(stage.lists(), listed + 1, "the server says 0 ms");
    let again = session.tools(Duration::from_secs(300)).await.unwrap();
    assert_eq!((stage.lists(), again.len()), (listed + 1, known.len()), "callers at once share one");
}
