//! The pool against HTTP servers.

use std::sync::atomic::{AtomicUsize, Ordering};

use lf_core::project::HttpServer;
use tokio::sync::mpsc;

use super::http_peer::{Peer, Reply, Request, answer};
use super::*;

const KEY: &str = "very-secret-key";

fn http(url: &str) -> McpServer {
    server(Transport::Http(remote(url)))
}

fn sse(url: &str) -> McpServer {
    server(Transport::Sse(remote(url)))
}

fn remote(url: &str) -> HttpServer {
    let headers = vec![("Authorization".to_owned(), format!("Bearer {KEY}").into())];
    HttpServer { headers, ..HttpServer::new(url) }
}

/// Answers as a streamable HTTP server with a session that dies after `calls` calls, in the given way.
fn with_session(expired: fn(&Request) -> Reply, calls: usize) -> impl Fn(&Request) -> Reply + Send + Sync {
    let sessions = AtomicUsize::new(0);
    let called = AtomicUsize::new(0);
    move |request| {
        if request.method != "POST" {
            return Reply::new(405, "text/plain", "");
        }
        if request.rpc() == "initialize" {
            let session = sessions.fetch_add(1, Ordering::SeqCst) + 1;
            let reply = Reply::json(&answer(request).unwrap());
            return reply.with("mcp-session-id", format!("s{session}"));
        }
        let is_first = request.header("mcp-session-id") == "s1";
        if request.rpc() == "tools/call" && is_first && called.fetch_add(1, Ordering::SeqCst) >= calls {
            return expired(request);
        }
        if is_first && called.load(Ordering::SeqCst) > calls {
            return expired(request);
        }
        answer(request).map_or_else(Reply::accepted, |body| Reply::json(&body))
    }
}

async fn renews(expired: fn(&Request) -> Reply) {
    let peer = Peer::start(with_session(expired, 1)).await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    assert_eq!(names(&list(&tools).await), ["echo"]);
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
    assert_eq!(peer.count("initialize"), 2);
    let with_key = format!("Bearer {KEY}");
    assert!(peer.requests.lock().unwrap().iter().all(|request| request.header("authorization") == with_key));
    pool.shutdown().await;
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_renewed_inside_the_call() {
    renews(|_| Reply::new(404, "text/plain", "no such session")).await;
}

#[tokio::test]
async fn a_forgotten_session_is_also_told_by_a_400_without_an_id() {
    renews(|_| {
        let error =
            json!({"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request"}, "id": null});
        Reply::new(400, "application/json", error.to_string())
    })
    .await;
}

#[tokio::test]
async fn a_forgotten_session_is_also_told_by_a_400_in_plain_text() {
    renews(|_| Reply::new(400, "text/plain", "Invalid session ID")).await;
}

#[tokio::test]
async fn an_error_that_may_come_after_the_work_is_not_answered_by_calling_again() {
    let failed = |_: &Request| {
        let error =
            json!({"jsonrpc": "2.0", "error": {"code": -32603, "message": "internal error"}, "id": null});
        Reply::new(500, "application/json", error.to_string())
    };
    let peer = Peer::start(with_session(failed, 1)).await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    assert_eq!(names(&list(&tools).await), ["echo"]);
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
    let outcome = call(&tools, "echo", json!({})).await;
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!(peer.count("tools/call"), 2);
    assert_eq!(peer.count("initialize"), 1);
    pool.shutdown().await;
}

/// Why a server that answers everything like this is down.
async fn down_with(reply: fn(&Request) -> Reply) -> (String, Option<String>) {
    let peer = Peer::start(reply).await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    let reason = down(&tools).await.replace(&peer.url, "URL");
    assert!(!reason.contains(KEY));
    (reason, tools.hint(NAME))
}

#[tokio::test]
async fn what_a_wrong_server_answers_is_told_with_a_hint() {
    let (reason, hint) = down_with(|_| Reply::new(401, "text/plain", "")).await;
    assert_eq!(reason, "answered 401 Unauthorized: it needs credentials");
    assert!(hint.unwrap().contains("headers"));
    let (reason, _) =
        down_with(|_| Reply::new(401, "text/plain", "").with("www-authenticate", "Bearer")).await;
    assert_eq!(reason, "answered 401 Unauthorized: it needs credentials");
    let (reason, _) = down_with(|_| Reply::new(403, "text/plain", "")).await;
    assert_eq!(reason, "answered 403 Forbidden: it refuses these credentials");
    let (reason, hint) = down_with(|_| Reply::new(404, "text/html", "<h1>not here</h1>")).await;
    assert_eq!(reason, "answered 404 Not Found at its `base_url`");
    assert!(hint.unwrap().contains("base_url"));
    let (reason, _) = down_with(|_| Reply::new(500, "text/plain", "")).await;
    assert_eq!(reason, "answered 500 Internal Server Error");
    let (reason, _) = down_with(|_| Reply::new(200, "text/html", "<h1>hi</h1>")).await;
    assert_eq!(reason, "answered with `text/html` instead of MCP: <h1>hi</h1>");
    let (reason, _) = down_with(|_| Reply::nothing()).await;
    assert!(
        reason.starts_with("the connection to URL/ was cut off") || reason.starts_with("no answer"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_server_that_echoes_the_key_does_not_get_it_shown() {
    let (reason, _) = down_with(|request| {
        let error = json!({"code": -32603, "message": format!("bad {}", request.header("authorization"))});
        Reply::json(&json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error}))
    })
    .await;
    assert_eq!(reason, "refused `initialize`: bad [secret]");
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_origin() {
    let other = Peer::start(|request| Reply::json(&answer(request).unwrap())).await;
    let target = other.url.clone();
    let peer = Peer::start(move |_| Reply::new(307, "text/plain", "").with("location", target.clone())).await;
    let pool = pool();
    let reason = down(&tools(&pool, http(&peer.url))).await;
    assert_eq!(reason, "answered 307 Temporary Redirect: it redirects elsewhere");
    assert!(other.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_redirect_within_the_origin_is_followed() {
    let peer = Peer::start(|request| match request.path.as_str() {
        "/" => Reply::new(307, "text/plain", "").with("location", "/mcp"),
        _ if request.method != "POST" => Reply::new(405, "text/plain", ""),
        _ => answer(request).map_or_else(Reply::accepted, |body| Reply::json(&body)),
    })
    .await;
    let pool = pool();
    assert_eq!(names(&list(&tools(&pool, http(&peer.url))).await), ["echo"]);
}

#[tokio::test]
async fn a_server_that_went_away_is_down_and_not_empty() {
    let peer = Peer::start(with_session(|_| Reply::nothing(), usize::MAX)).await;
    let url = peer.url.clone();
    let pool = pool();
    let tools = tools(&pool, http(&url));
    assert_eq!(names(&list(&tools).await), ["echo"]);
    peer.stop().await;
    let unsent = call(&tools, "echo", json!({})).await;
    assert!(
        matches!(&unsent, Err(ToolError::Down { reason, .. }) if reason.starts_with("Connection refused")),
        "{unsent:?}"
    );
    let reason = down(&tools).await;
    assert_eq!(reason, format!("Connection refused: nothing listens at {url}/"));
    assert!(tools.hint(NAME).unwrap().contains("base_url"));
}

/// Answers as a streamable HTTP server whose calls are answered by whom the streams are handed to.
fn with_open_calls(
    calls: mpsc::UnboundedSender<(Value, mpsc::UnboundedSender<String>)>,
) -> impl Fn(&Request) -> Reply + Send + Sync {
    move |request| {
        if request.method != "POST" {
            return Reply::new(405, "text/plain", "");
        }
        let Some(body) = answer(request) else { return Reply::accepted() };
        match request.rpc() {
            "initialize" => Reply::json(&body).with("mcp-session-id", "s"),
            "tools/call" => {
                let (reply, sender) = Reply::events();
                calls.send((body, sender)).unwrap();
                reply
            }
            _ => Reply::json(&body),
        }
    }
}

#[tokio::test]
async fn a_connect_that_fails_costs_its_own_call_and_no_other() {
    let (sender, mut calls) = mpsc::unbounded_channel();
    let peer = Peer::start(with_open_calls(sender)).await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    assert_eq!(names(&list(&tools).await), ["echo"]);
    let running = join_all((0..2).map(|_| call(&tools, "echo", json!({}))));
    let script = async {
        let open = [calls.recv().await.unwrap(), calls.recv().await.unwrap()];
        peer.set_open(false).await;
        let third = call(&tools, "echo", json!({})).await;
        assert!(
            matches!(&third, Err(ToolError::Down { reason, .. }) if reason.starts_with("Connection refused")),
            "{third:?}"
        );
        assert_eq!(tools.reports()[0].state.name(), "ready");
        peer.set_open(true).await;
        for (body, stream) in open {
            stream.send(message(&body)).unwrap();
        }
    };
    let (answers, ()) = tokio::join!(running, script);
    assert_eq!(answers.into_iter().map(text).collect::<Vec<_>>(), ["called", "called"]);
    let last = async {
        let (body, stream) = calls.recv().await.unwrap();
        stream.send(message(&body)).unwrap();
    };
    let (answer, ()) = tokio::join!(call(&tools, "echo", json!({})), last);
    assert_eq!(text(answer), "called");
    assert_eq!((peer.count("initialize"), peer.count("tools/call")), (1, 3));
    pool.shutdown().await;
}

#[tokio::test]
async fn a_listing_that_cannot_connect_leaves_running_calls_alone() {
    let (sender, mut calls) = mpsc::unbounded_channel();
    let peer = Peer::start(with_open_calls(sender)).await;
    let pool = SessionPool::new(PoolOptions { list_ttl: Duration::ZERO, ..options() });
    let tools = tools(&pool, http(&peer.url));
    assert_eq!(names(&list(&tools).await), ["echo"]);
    let script = async {
        let (body, stream) = calls.recv().await.unwrap();
        peer.set_open(false).await;
        assert_eq!(names(&list(&tools).await), ["echo"]);
        stream.send(message(&body)).unwrap();
    };
    let (answer, ()) = tokio::join!(call(&tools, "echo", json!({})), script);
    assert_eq!(text(answer), "called");
    assert_eq!(peer.count("initialize"), 1);
    pool.shutdown().await;
}

/// Answers as an HTTP+SSE server. `on_call` decides what follows a call on the stream; `None` ends the stream.
fn with_stream(
    endpoint: &'static str,
    on_call: fn(&Request) -> Option<String>,
) -> impl Fn(&Request) -> Reply + Send + Sync {
    let stream: Mutex<Option<mpsc::UnboundedSender<String>>> = Mutex::new(None);
    move |request| {
        let mut stream = stream.lock().unwrap();
        if request.method == "GET" {
            let (reply, sender) = Reply::events();
            sender.send(format!(": hello\n\nevent: endpoint\ndata: {endpoint}\n\n")).unwrap();
            *stream = Some(sender);
            return reply;
        }
        assert!(request.path == "/message?s=1");
        let event = match request.rpc() {
            "tools/call" => on_call(request),
            _ => Some(answer(request).map_or_else(String::new, |body| message(&body))),
        };
        match (event, stream.as_ref()) {
            (Some(event), Some(sender)) => drop(sender.send(event)),
            _ => *stream = None,
        }
        Reply::accepted()
    }
}

fn message(body: &Value) -> String {
    format!("event: message\ndata: {body}\n\n")
}

#[tokio::test]
async fn the_older_transport_lists_calls_and_sends_its_headers() {
    let peer =
        Peer::start(with_stream("/message?s=1", |request| Some(message(&answer(request).unwrap())))).await;
    let pool = pool();
    let tools = tools(&pool, sse(&format!("{}/sse", peer.url)));
    assert_eq!(names(&list(&tools).await), ["echo"]);
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
    let with_key = format!("Bearer {KEY}");
    assert!(peer.requests.lock().unwrap().iter().all(|request| request.header("authorization") == with_key));
    pool.shutdown().await;
}

#[tokio::test]
async fn an_event_stream_that_ends_fails_the_call_and_is_opened_anew() {
    let peer = Peer::start(with_stream("/message?s=1", |_| None)).await;
    let pool = pool();
    let tools = tools(&pool, sse(&peer.url));
    assert_eq!(names(&list(&tools).await), ["echo"]);
    let lost = call(&tools, "echo", json!({})).await;
    assert!(matches!(&lost, Err(ToolError::Lost { .. })), "{lost:?}");
    assert_eq!(names(&list(&tools).await), ["echo"]);
    assert_eq!(peer.count("initialize"), 2);
}

#[tokio::test]
async fn an_event_without_end_is_cut_off() {
    let peer =
        Peer::start(with_stream("/message?s=1", |_| Some(format!("data: {}", "x".repeat(5 << 20))))).await;
    let pool = pool();
    let tools = tools(&pool, sse(&peer.url));
    list(&tools).await;
    let lost = call(&tools, "echo", json!({})).await;
    assert!(
        matches!(&lost, Err(ToolError::Lost { reason, .. }) if reason.contains("larger than")),
        "{lost:?}"
    );
}

#[tokio::test]
async fn an_endpoint_of_another_origin_is_refused() {
    let peer = Peer::start(with_stream("http://127.0.0.1:1/message", |_| None)).await;
    let pool = pool();
    let reason = down(&tools(&pool, sse(&peer.url))).await;
    assert_eq!(reason, "named an endpoint of another origin, which was refused");
}

#[tokio::test]
async fn a_page_is_not_an_event_stream() {
    let peer = Peer::start(|_| Reply::new(200, "text/html", "<h1>hi</h1>")).await;
    let pool = pool();
    assert_eq!(
        down(&tools(&pool, sse(&peer.url))).await,
        "answered with `text/html` instead of MCP: <h1>hi</h1>"
    );
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_is_told_without_its_value() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let headers = vec![("X-Key".to_owned(), "line\nbreak-secret".into())];
    let transport = Transport::Http(HttpServer { headers, ..HttpServer::new("http://127.0.0.1:1") });
    let pool = pool();
    let reason = down(&tools(&pool, server(transport))).await;
    assert_eq!(reason, "the value of header `X-Key` cannot be sent");
}

#[tokio::test]
async fn a_result_beyond_the_limit_is_refused_and_the_session_goes_on() {
    let peer = Peer::start(|request| {
        if request.method != "POST" {
            return Reply::new(405, "text/plain", "");
        }
        let Some(mut body) = answer(request) else { return Reply::accepted() };
        let arguments = &request.body["params"]["arguments"];
        if arguments.get("big").is_some() {
            body["result"]["content"][0]["text"] = json!("x".repeat(17 << 20));
        }
        if arguments["big"] != json!("event") {
            return Reply::json(&body);
        }
        let (reply, sender) = Reply::events();
        sender.send(message(&body)).unwrap();
        reply
    })
    .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    for big in ["body", "event"] {
        let result = call(&tools, "echo", json!({"big": big})).await;
        assert_eq!(result, Err(ToolError::TooLarge { tool: "echo".into(), limit: 16 << 20 }), "{big}");
    }
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
}

#[tokio::test]
async fn dropping_a_call_over_http_cancels_it_at_the_server() {
    let streams = Mutex::new(Vec::new());
    let peer = Peer::start(move |request| {
        if request.method != "POST" {
            return Reply::new(405, "text/plain", "");
        }
        if request.rpc() == "tools/call" {
            let (reply, sender) = Reply::events();
            streams.lock().unwrap().push(sender);
            return reply;
        }
        answer(request).map_or_else(Reply::accepted, |body| Reply::json(&body))
    })
    .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    {
        let mut dropped = pin!(call(&tools, "echo", json!({})));
        until(&mut dropped, "it is called", || peer.count("tools/call") == 1).await;
    }
    eventually("it is cancelled", || peer.count("notifications/cancelled") == 1).await;
}

#[tokio::test]
async fn a_stampede_on_a_forgotten_session_opens_one_new_session() {
    let peer = Peer::start(with_session(|_| Reply::new(404, "text/plain", "no such session"), 1)).await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
    let all = join_all((0..100).map(|_| call(&tools, "echo", json!({})))).await;
    assert!(all.into_iter().map(text).all(|text| text == "called"));
    assert_eq!(peer.count("initialize"), 2);
}

#[tokio::test]
async fn a_place_to_get_a_token_from_is_not_visited() {
    let bait = Peer::start(|_| Reply::accepted()).await;
    let challenge = format!("Bearer resource_metadata=\"{}/.well-known/oauth-protected-resource\"", bait.url);
    let peer =
        Peer::start(move |_| Reply::new(401, "text/plain", "").with("www-authenticate", challenge.clone()))
            .await;
    let pool = pool();
    // one with a key of its own is not even thought of as having to log in
    let keyless = HttpServer { headers: Vec::new(), ..remote(&peer.url) };
    assert_eq!(down(&tools(&pool, server(Transport::Http(keyless)))).await, "needs a login");
    assert!(bait.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_stream_that_ends_before_the_answer_is_a_lost_call_and_not_made_again() {
    let peer = Peer::start(|request| {
        if request.method != "POST" {
            return Reply::new(405, "text/plain", "");
        }
        if request.rpc() != "tools/call" {
            return answer(request).map_or_else(Reply::accepted, |body| Reply::json(&body));
        }
        // half an event, then the end
        let (reply, sender) = Reply::events();
        sender.send("event: message\ndata: {\"jsonrpc\":".to_owned()).unwrap();
        reply
    })
    .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    names(&list(&tools).await);
    let lost = call(&tools, "echo", json!({})).await;
    assert!(matches!(lost, Err(ToolError::Lost { .. })), "{lost:?}");
    assert_eq!(peer.count("tools/call"), 1);
}

#[tokio::test]
async fn a_redirect_that_would_change_the_method_is_not_followed() {
    for status in [301, 302, 303] {
        let peer = Peer::start(move |request| match request.path.as_str() {
            "/" => Reply::new(status, "text/plain", "").with("location", "/mcp"),
            path => panic!("{path} was asked for"),
        })
        .await;
        let pool = pool();
        let tools = tools(&pool, http(&peer.url));
        let reason = down(&tools).await;
        assert!(
            reason.starts_with(&format!("answered {status} ")) && reason.ends_with("it redirects elsewhere"),
            "{reason}"
        );
        assert!(tools.hint(NAME).unwrap().contains("base_url"));
        assert_eq!(peer.requests.lock().unwrap().len(), 1);
    }
}
