use std::collections::VecDeque;
use std::convert::Infallible;

use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::json;
use tokio::time::sleep_until;

use super::super::{Lane, client};
use super::*;

/// What a server says, each after a pause; then silence, or the end of the connection.
struct Script {
    says: VecDeque<(u64, Value)>,
    ends: bool,
    heard: Vec<String>,
    /// When the next is said; a wait for it may be broken off and taken up again.
    due: Option<Instant>,
}

impl Transport<RoleClient> for Script {
    type Error = Infallible;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        let message = serde_json::to_value(&item).unwrap();
        self.heard.push(message["method"].as_str().unwrap_or("an answer").to_owned());
        std::future::ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let Some((pause, _)) = self.says.front() else {
            return if self.ends { None } else { std::future::pending().await };
        };
        let due = *self.due.get_or_insert_with(|| Instant::now() + Duration::from_millis(*pause));
        sleep_until(due).await;
        self.due = None;
        let (_, message) = self.says.pop_front()?;
        Some(serde_json::from_value(message).unwrap())
    }

    async fn close(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

fn modern() -> Value {
    json!({"jsonrpc": "2.0", "id": DISCOVER, "result": {
        "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0,
        "cacheScope": "private",
    }})
}

fn legacy() -> Value {
    json!({"jsonrpc": "2.0", "id": INITIALIZE, "result": {"protocolVersion": "2025-11-25"}})
}

fn refusal(id: &Value, code: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}})
}

/// The outcome of a probe, a revision or a reason and what comes next, and what the server heard.
async fn probe(says: Vec<(u64, Value)>, ends: bool) -> (String, Vec<String>) {
    probe_on(says, ends, true).await
}

async fn probe_on(says: Vec<(u64, Value)>, ends: bool, is_duplex: bool) -> (String, Vec<String>) {
    let mut script = Script { says: says.into(), ends, heard: Vec::new(), due: None };
    let manners = Manners {
        opening: Opening::Probe,
        protocol: Protocol::Auto,
        client: client::config(Lane::default()),
        is_duplex,
        patience: Duration::from_secs(2),
        deadline: Instant::now() + Duration::from_secs(60),
    };
    let outcome = match greet(&mut script, &manners).await {
        Ok(info) => info.protocol_version.to_string(),
        Err(broken) => format!("{} → {:?}", broken.failure, broken.next),
    };
    (outcome, script.heard)
}

async fn outcome(says: Vec<(u64, Value)>) -> String {
    probe(says, false).await.0
}

const BOTH: [&str; 2] = ["server/discover", "initialize"];

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_settles_it() {
    let (spoken, heard) = probe(vec![(10, modern())], false).await;
    assert_eq!((spoken.as_str(), heard.as_slice()), ("2026-07-28", &["server/discover".to_owned()][..]));
    let refused = refusal(&json!(DISCOVER), -32601);
    let (spoken, heard) = probe(vec![(10, refused), (10, legacy())], false).await;
    assert_eq!(spoken, "2025-11-25");
    assert_eq!(heard, ["server/discover", "initialize", "notifications/initialized"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_the_revision_it_speaks_is_asked_once_more() {
    let mut refused = refusal(&json!(DISCOVER), -32022);
    refused["error"]["data"] = json!({"supported": ["2026-07-28"], "requested": "2026-07-28"});
    let (mut again, mut agreed) = (refused.clone(), modern());
    (again["id"], agreed["id"]) = (json!(DISCOVER_AGAIN), json!(DISCOVER_AGAIN));
    let (spoken, heard) = probe_on(vec![(10, refused.clone()), (10, agreed)], false, false).await;
    assert_eq!(
        (spoken.as_str(), heard.as_slice()),
        ("2026-07-28", &["server/discover"; 2].map(str::to_owned)[..])
    );
    let (why, heard) = probe_on(vec![(10, refused), (10, again)], false, false).await;
    assert!(why.contains("lists it as one of its own"), "{why}");
    assert_eq!(heard.len(), 2, "and no more");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_the_probe_is_greeted_after_two_seconds() {
    let started = Instant::now();
    assert_eq!(outcome(vec![(2_010, legacy())]).await, "2025-11-25");
    assert_eq!(started.elapsed().as_secs(), 2);
    // its answer to the probe may come late, or without an id
    let late = refusal(&json!(DISCOVER), -32601);
    assert_eq!(outcome(vec![(5_000, late), (10, legacy())]).await, "2025-11-25");
    assert_eq!(outcome(vec![(5_000, refusal(&Value::Null, -32600)), (10, legacy())]).await, "2025-11-25");
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_of_both_is_taken_at_its_word() {
    let refused = refusal(&json!(INITIALIZE), -32022);
    let (spoken, heard) = probe(vec![(30_000, modern()), (10, refused.clone())], false).await;
    assert_eq!((spoken.as_str(), heard.as_slice()), ("2026-07-28", &BOTH.map(str::to_owned)[..]));
    assert_eq!(outcome(vec![(30_000, refused), (10, modern())]).await, "2026-07-28");
    assert_eq!(outcome(vec![(30_000, modern())]).await, "2026-07-28", "it passes over the second");
    let both = outcome(vec![(30_000, modern()), (10, legacy())]).await;
    assert!(both.ends_with("→ Some(Discover)"), "{both}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_is_followed_by_one_in_the_older_way() {
    let (ended, _) = probe(Vec::new(), true).await;
    assert_eq!(ended, "closed the connection before it answered `server/discover` → Some(Initialize)");
    let (ended, _) = probe(vec![(10, refusal(&json!(DISCOVER), -32601))], true).await;
    assert_eq!(ended, "closed the connection before it answered `initialize` → Some(Initialize)");
}

#[tokio::test(start_paused = true)]
async fn silence_and_refusals_are_the_end() {
    assert_eq!(outcome(Vec::new()).await, "did not answer `initialize` in time → None");
    let refused = |id| refusal(&json!(id), -32000);
    let reason = outcome(vec![(10, refused(DISCOVER)), (10, refused(INITIALIZE))]).await;
    assert_eq!(reason, "refused `initialize`: no → None");
    let reason = outcome(vec![(10, refusal(&json!(DISCOVER), -32021))]).await;
    assert_eq!(reason, "refused `server/discover`: no → None");
}

#[tokio::test(start_paused = true)]
async fn what_comes_before_the_answer_is_passed_over_but_for_a_ping() {
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
    let other = json!({"jsonrpc": "2.0", "id": 7, "result": {}});
    let (spoken, heard) = probe(vec![(1, log), (1, ping), (1, other), (1, modern())], false).await;
    assert_eq!(spoken, "2026-07-28");
    assert_eq!(heard, ["server/discover", "an answer"]);
}
