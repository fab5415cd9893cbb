//! What HTTP servers do wrong: statuses, connections, bodies, redirects. Each test says the fault.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use lf_core::project::HttpServer;
use lf_core::tool::Attendant;
use serde_json::Map;
use tokio::sync::mpsc;

use super::http_peer::{Ending, Peer, Reply, Request, answer, modern_answer};
use super::*;

mod bodies;
mod redirects;

pub(super) fn http(url: &str) -> McpServer {
    server(Transport::Http(remote(url)))
}

pub(super) fn remote(url: &str) -> HttpServer {
    // the server's own key: nobody is asked to log in
    let headers = vec![("Authorization".to_owned(), "Bearer key".into())];
    HttpServer { headers, ..HttpServer::new(url) }
}

/// Answers as a legacy server, with a session, all but calls.
pub(super) fn legacy(request: &Request) -> Reply {
    if request.method != "POST" {
        return Reply::new(if request.method == "GET" { 405 } else { 200 }, "text/plain", "");
    }
    let Some(body) = answer(request) else { return Reply::accepted() };
    match request.rpc() {
        "initialize" => Reply::json(&body).with("mcp-session-id", "s1"),
        _ => Reply::json(&body),
    }
}

/// A legacy server that answers calls in its own way.
pub(super) async fn peer(on_call: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Peer {
    Peer::start(move |request| match request.rpc() {
        "tools/call" => on_call(request),
        _ => legacy(request),
    })
    .await
}

/// A legacy server that fails calls in its own way, but for those that are to go well.
struct Faulty {
    peer: Peer,
    pool: SessionPool,
    tools: ProjectTools,
}

impl Faulty {
    async fn start(on_call: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let peer = peer(move |request| match request.body["params"]["arguments"]["well"].as_bool() {
            Some(true) => Reply::json(&answer(request).unwrap()),
            _ => on_call(request),
        })
        .await;
        let pool = pool();
        let tools = tools(&pool, http(&peer.url));
        list(&tools).await;
        Self { peer, pool, tools }
    }

    /// Shows that a failure cost its call only: another goes well, nothing was called twice, and the session stays.
    async fn goes_on_after(self, failed: Result<ToolOutput, ToolError>) -> ToolError {
        let failed = failed.unwrap_err();
        assert_eq!(text(call(&self.tools, "echo", json!({"well": true})).await), "called");
        assert_eq!((self.peer.count("tools/call"), self.peer.count("initialize")), (2, 1), "{failed}");
        self.pool.shutdown().await;
        failed
    }
}

/// How a call fails that is answered like this.
async fn fails(on_call: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> ToolError {
    let faulty = Faulty::start(on_call).await;
    let failed = call(&faulty.tools, "echo", json!({})).await;
    faulty.goes_on_after(failed).await
}

/// How a call fails that only its limit may end.
async fn fails_in_the_end(on_call: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> ToolError {
    let faulty = Faulty::start(on_call).await;
    let is_asked = || faulty.peer.count("tools/call") == 1;
    let failed = hurried(call(&faulty.tools, "echo", json!({})), is_asked).await;
    faulty.goes_on_after(failed).await
}

fn reason(error: &ToolError) -> &str {
    match error {
        ToolError::Lost { reason, .. }
        | ToolError::Down { reason, .. }
        | ToolError::RateLimited { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn lost(error: &ToolError, words: &str) {
    assert!(matches!(error, ToolError::Lost { .. }), "{error:?}");
    assert!(reason(error).contains(words), "{error:?}");
}

/// The tool was not run.
#[track_caller]
fn turned_away(error: &ToolError, words: &str) {
    assert!(matches!(error, ToolError::Down { .. } | ToolError::RateLimited { .. }), "{error:?}");
    assert!(reason(error).contains(words), "{error:?}");
}

/// 28: an error about "a session" need not be about ours.
#[tokio::test]
async fn a_400_about_some_session_after_the_work_was_done_does_not_run_the_tool_twice() {
    for (kind, body) in [
        (
            "application/json",
            r#"{"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: database session lost"}, "id": null}"#,
        ),
        ("text/plain", "the shopping session is over"),
    ] {
        let peer = Peer::start(move |request| match request.rpc() {
            "tools/call" => Reply::new(400, kind, body),
            "ping" => Reply::json(&json!({"jsonrpc": "2.0", "id": request.body["id"], "result": {}})),
            _ => legacy(request),
        })
        .await;
        let pool = pool();
        let tools = tools(&pool, http(&peer.url));
        list(&tools).await;
        let refused = call(&tools, "echo", json!({})).await.unwrap_err();
        assert!(refused.to_string().contains("session"), "{refused}");
        assert_eq!((peer.count("tools/call"), peer.count("ping"), peer.count("initialize")), (1, 1, 1));
        pool.shutdown().await;
    }
}

/// 29
#[tokio::test]
async fn credentials_that_are_refused_in_the_middle_of_a_session_cost_the_call_and_not_the_session() {
    for (status, words) in [
        (401, "401 Unauthorized: it needs credentials"),
        (403, "403 Forbidden: it refuses these credentials"),
    ] {
        turned_away(&fails(move |_| Reply::new(status, "text/plain", "no")).await, words);
        let error = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "who?"}});
        let refused = fails(move |_| Reply::new(status, "application/json", error.to_string())).await;
        turned_away(&refused, words);
    }
}

/// 30: dates, negative numbers and nonsense are tried in `generations_remote`.
#[tokio::test]
async fn a_retry_after_of_more_than_a_minute_is_an_error_at_once() {
    for (after, words) in [
        ("120", "429 Too Many Requests: it has too many requests; it wants to be left alone for 120 s"),
        ("315360000", "it wants to be left alone for 315360000 s"),
        ("99999999999999999999999", "429 Too Many Requests: it has too many requests"),
        ("-5", "429 Too Many Requests: it has too many requests"),
    ] {
        turned_away(
            &fails(move |_| Reply::new(429, "text/plain", "").with("retry-after", after)).await,
            words,
        );
    }
    let long = "9".repeat(64 * 1024);
    let refused = fails(move |_| Reply::new(429, "text/plain", "").with("retry-after", long.clone())).await;
    turned_away(&refused, "429 Too Many Requests: it has too many requests");
}

/// 30
#[tokio::test]
async fn the_pause_that_a_server_asks_for_does_not_count_against_the_limit_of_the_call() {
    let calls = AtomicUsize::new(0);
    let peer = peer(move |request| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::new(429, "text/plain", "").with("retry-after", "30"),
        _ => Reply::json(&answer(request).unwrap()),
    })
    .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    // its limit is 20 s
    let called = hurried(call(&tools, "echo", json!({})), || peer.count("tools/call") == 1).await;
    assert_eq!(text(called), "called");
    assert_eq!((peer.count("tools/call"), peer.count("initialize")), (2, 1));
}

/// A legacy server with the tools `read` and `write`, of which one says that it changes nothing; both fail `times`
/// times with this status.
async fn failing(status: u16, times: usize) -> Peer {
    let failed = Mutex::new(HashMap::<String, usize>::new());
    Peer::start(move |request| match request.rpc() {
        "tools/list" => {
            let mut body = answer(request).unwrap();
            let schema = json!({"type": "object"});
            body["result"]["tools"] = json!([
                {"name": "read", "inputSchema": schema, "annotations": {"readOnlyHint": true}},
                {"name": "write", "inputSchema": schema, "annotations": {"title": "Write"}},
            ]);
            Reply::json(&body)
        }
        "tools/call" => {
            let name = request.body["params"]["name"].as_str().unwrap().to_owned();
            let mut failed = failed.lock().unwrap();
            let count = failed.entry(name).or_default();
            *count += 1;
            match *count > times {
                true => Reply::json(&answer(request).unwrap()),
                false => Reply::new(status, "text/plain", "out of order"),
            }
        }
        _ => legacy(request),
    })
    .await
}

/// 31
#[tokio::test]
async fn a_burst_of_server_errors_is_sat_out_by_what_changes_nothing_and_by_nothing_else() {
    for status in [500, 502, 503, 504] {
        let peer = failing(status, 2).await;
        let pool = pool();
        let tools = tools(&pool, http(&peer.url));
        list(&tools).await;
        assert_eq!(text(call(&tools, "read", json!({})).await), "called", "{status}");
        assert_eq!(peer.count("tools/call"), 3);
        let failed = call(&tools, "write", json!({})).await.unwrap_err();
        lost(&failed, &format!("answered {status}"));
        lost(&failed, "out of order");
        assert_eq!((peer.count("tools/call"), peer.count("initialize")), (4, 1));
    }
}

/// Makes its calls again itself.
struct Persistent;

impl Attendant for Persistent {
    fn progress(&self, _: ToolProgress) {}

    fn tries_again(&self) -> bool {
        true
    }
}

/// 30, 31
#[tokio::test]
async fn a_call_that_its_caller_makes_again_is_sent_once() {
    let tool = ToolRef { server: NAME.into(), name: "read".into() };
    let peer = failing(503, 2).await;
    let pool = pool();
    let calling = tools(&pool, http(&peer.url));
    list(&calling).await;
    for sent in [1, 2] {
        lost(&calling.call(&tool, &Map::new(), &Persistent).await.unwrap_err(), "answered 503");
        assert_eq!(peer.count("tools/call"), sent);
    }
    assert_eq!(text(calling.call(&tool, &Map::new(), &Persistent).await), "called");

    let peer = self::peer(|_| Reply::new(429, "text/plain", "").with("retry-after", "1")).await;
    let calling = tools(&pool, http(&peer.url));
    list(&calling).await;
    let tool = ToolRef { name: "echo".into(), ..tool };
    let refused = calling.call(&tool, &Map::new(), &Persistent).await.unwrap_err();
    assert!(
        matches!(refused, ToolError::RateLimited { retry_after: Some(pause), .. } if pause.as_secs() == 1)
    );
    assert_eq!(peer.count("tools/call"), 1);
}

/// 31: the backoff of the session is the circuit.
#[tokio::test]
async fn a_server_that_stays_behind_a_failing_gateway_is_left_alone_for_a_while() {
    let is_up = Arc::new(AtomicBool::new(true));
    let up = is_up.clone();
    let peer = Peer::start(move |request| match up.load(Ordering::SeqCst) {
        true => legacy(request),
        false => Reply::new(503, "text/html", "<h1>unavailable</h1>"),
    })
    .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    is_up.store(false, Ordering::SeqCst);
    let before = peer.requests.lock().unwrap().len();
    for _ in 0..40 {
        let failed = call(&tools, "echo", json!({})).await.unwrap_err();
        assert!(failed.to_string().contains("503 Service Unavailable"), "{failed}");
        if reason(&failed).contains("next try in") {
            break;
        }
    }
    assert_eq!(tools.reports()[0].state.name(), "failed");
    let asked = peer.requests.lock().unwrap().len() - before;
    assert!(asked <= 12, "{asked} requests");
}

/// 33
#[tokio::test]
async fn a_server_that_takes_a_call_and_never_answers_costs_that_call_only() {
    let (gone, mut closed) = mpsc::unbounded_channel();
    let timeout = fails_in_the_end(move |_| Reply::silence(gone.clone())).await;
    assert!(matches!(timeout, ToolError::Timeout { .. }), "{timeout:?}");
    assert!(soon(closed.recv()).await.is_some(), "the connection is closed");
}

/// 33
#[tokio::test]
async fn a_head_or_a_body_that_drips_is_given_up_with_its_call() {
    for bytes in [
        "HTTP/1.1 200 OK\r\nx-slow: x",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"jsonrpc\": \"2.0\", x",
    ] {
        let timeout = fails_in_the_end(move |_| Reply::raw(bytes, Ending::Drip)).await;
        assert!(matches!(timeout, ToolError::Timeout { .. }), "{timeout:?}");
    }
}

/// 46
#[tokio::test]
async fn an_answer_with_the_id_of_another_request_is_told_at_once() {
    let wrong = fails(|request| {
        let mut body = answer(request).unwrap();
        body["id"] = json!(123_456);
        Reply::json(&body)
    })
    .await;
    lost(&wrong, "answered with the result of another request");
    let question = fails(|_| Reply::json(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))).await;
    lost(&question, "answered with something that is no answer");
}

/// A stream or a process that hangs is only told by silence.
#[tokio::test]
async fn a_remote_server_that_answers_nothing_any_more_is_greeted_anew() {
    let hangs = Arc::new(AtomicBool::new(false));
    let (hung, (gone, _closed)) = (hangs.clone(), mpsc::unbounded_channel());
    let peer = Peer::start(move |request| match request.rpc() {
        "initialize" | "server/discover" => {
            hung.store(false, Ordering::SeqCst);
            legacy(request)
        }
        _ if hung.load(Ordering::SeqCst) => Reply::silence(gone.clone()),
        _ => legacy(request),
    })
    .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    hangs.store(true, Ordering::SeqCst);
    let timeout = hurried(call(&tools, "echo", json!({})), || peer.count("tools/call") == 1).await;
    assert!(matches!(timeout, Err(ToolError::Timeout { .. })), "{timeout:?}");
    in_the_end("it is given up", || tools.reports()[0].state.name() != "ready").await;
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
    assert_eq!(peer.count("initialize"), 2);
}

/// A tool that is not there is asked for once, whatever else an error about "a tool" says.
#[tokio::test]
async fn an_error_about_something_that_was_not_found_does_not_run_the_tool_again() {
    for message in ["the tool's input file was not found", "Unknown option for tool echo", "no such tooling"]
    {
        let peer = peer(move |request| {
            let error = json!({"code": -32602, "message": message});
            Reply::json(&json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error}))
        })
        .await;
        let pool = pool();
        let tools = tools(&pool, http(&peer.url));
        list(&tools).await;
        let refused = call(&tools, "echo", json!({})).await.unwrap_err();
        assert!(matches!(refused, ToolError::Refused { code: -32_602, .. }), "{refused:?}");
        assert_eq!(peer.count("tools/call"), 1, "{message}");
    }
}

#[tokio::test]
async fn a_tool_that_the_server_has_again_is_called_again() {
    for message in ["Unknown tool: echo", "MCP error -32602: Tool 'echo' not found", "tool not found"] {
        let calls = AtomicUsize::new(0);
        let peer = peer(move |request| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => {
                let error = json!({"code": -32602, "message": message});
                Reply::json(&json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error}))
            }
            _ => Reply::json(&answer(request).unwrap()),
        })
        .await;
        let pool = pool();
        let tools = tools(&pool, http(&peer.url));
        list(&tools).await;
        assert_eq!(text(call(&tools, "echo", json!({})).await), "called", "{message}");
    }
}

/// 45: of a server of the newer generation, in the middle of a connection.
#[tokio::test]
async fn a_revision_that_the_server_does_not_speak_any_more_is_agreed_on_anew_once() {
    let peer = Peer::start(|request| match request.rpc() {
        "tools/call" => {
            let error = json!({"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}});
            let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error});
            Reply::new(400, "application/json", body.to_string())
        }
        _ => modern_answer(request).map_or_else(Reply::accepted, |body| Reply::json(&body)),
    })
    .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    let refused = call(&tools, "echo", json!({})).await.unwrap_err();
    turned_away(&refused, "does not speak revision 2026-07-28 any more");
    assert_eq!((peer.count("tools/call"), peer.count("server/discover")), (2, 2));
}

/// An argument that is sent as a header is one header, whatever is in it, and means the same there.
#[tokio::test]
async fn an_argument_with_line_breaks_is_one_header_and_decodes_to_itself() {
    let peer =
        Peer::start(|request| modern_answer(request).map_or_else(Reply::accepted, |body| Reply::json(&body)))
            .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    let pieces = [
        "\r\nx-injected: 1",
        "\0",
        "\n",
        "\t",
        " ",
        "=?base64?",
        "?=",
        "eA==",
        "ü",
        "🦀",
        "\u{7f}",
        "a",
        "\\",
        "\"",
    ];
    // every pair of them, and with something around it
    let pairs = pieces.iter().flat_map(|one| pieces.iter().map(move |two| format!("{one}{two}")));
    let values: Vec<String> = pairs.flat_map(|pair| [pair.clone(), format!("x{pair}y")]).collect();
    for value in &values {
        assert_eq!(text(call(&tools, "echo", json!({"region": value})).await), "called");
    }
    let requests = peer.requests.lock().unwrap();
    let calls: Vec<_> = requests.iter().filter(|request| request.rpc() == "tools/call").collect();
    assert_eq!(calls.len(), values.len());
    for call in calls {
        assert!(!call.headers.keys().any(|name| name.contains("injected")), "{:?}", call.headers);
        let sent = call.header("mcp-param-region");
        let packed = sent.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
        let meant = packed.map_or_else(
            || sent.to_owned(),
            |packed| {
                String::from_utf8(base64::engine::general_purpose::STANDARD.decode(packed).unwrap()).unwrap()
            },
        );
        assert_eq!(call.body["params"]["arguments"]["region"], json!(meant));
    }
}
