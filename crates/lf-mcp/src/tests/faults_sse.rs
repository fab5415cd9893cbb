//! What event streams do wrong, those of single answers and that of the oldest transport. Each test says the fault.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::faults_http::{http, legacy, peer, remote};
use super::http_peer::{Ending, Peer, Reply, Request, answer, modern_answer};
use super::*;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

fn event(body: &Value) -> String {
    format!("event: message\ndata: {body}\n\n")
}

/// An answer to a call that is a stream of this text.
fn stream(text: impl AsRef<str>, ending: Ending) -> Reply {
    Reply::raw(format!("{HEAD}{}", text.as_ref()), ending)
}

async fn answered(
    on_call: impl Fn(&Request) -> Reply + Send + Sync + 'static,
) -> (Peer, Result<ToolOutput, ToolError>) {
    let peer = peer(on_call).await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    let outcome = call(&tools, "echo", json!({})).await;
    pool.shutdown().await;
    (peer, outcome)
}

/// 34, 35: nothing came that could be resumed after.
#[tokio::test]
async fn a_stream_that_is_cut_off_before_the_answer_is_a_lost_call_that_tells_why() {
    for (text, ending) in [
        ("", Ending::Reset),
        (": hello\n\n", Ending::Reset),
        ("data: {\"jsonrpc\": \"2.0\", ", Ending::Reset),
        ("data: {\"jsonrpc\": \"2.0\", ", Ending::HalfClose),
        (": hello\n\n", Ending::Close),
    ] {
        let (peer, outcome) = answered(move |_| stream(text, ending)).await;
        let Err(ToolError::Lost { reason, .. }) = outcome else { panic!("{outcome:?}") };
        assert!(
            reason.starts_with("the answer ended before") || reason.starts_with("the answer broke off: "),
            "{reason}"
        );
        assert_eq!((peer.count("tools/call"), peer.count("initialize")), (1, 1));
    }
}

/// A legacy server whose call streams bring an id and end, and go on for those who ask with that id.
async fn resuming(first: &'static str, rest: fn(&Value) -> String) -> Peer {
    let waiting = Mutex::new(None);
    Peer::start(move |request| {
        if request.rpc() == "tools/call" {
            *waiting.lock().unwrap() = answer(request);
            return stream(first, Ending::Close);
        }
        if request.method == "GET" && !request.header("last-event-id").is_empty() {
            let body = waiting.lock().unwrap().clone().unwrap();
            return stream(rest(&body), Ending::Close);
        }
        legacy(request)
    })
    .await
}

fn resumed(peer: &Peer) -> Vec<String> {
    let requests = peer.requests.lock().unwrap();
    let gets = requests.iter().filter(|request| request.method == "GET");
    let ids = gets.map(|request| request.header("last-event-id").to_owned());
    ids.filter(|id| !id.is_empty()).collect()
}

/// 34: SEP-1699.
#[tokio::test]
async fn a_stream_that_ends_after_an_id_is_resumed_there() {
    let peer = resuming("id: one\nretry: 0\ndata:\n\n", |body| format!("id: two\n{}", event(body))).await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    let begun = Instant::now();
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
    // it asked for no pause at all
    assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
    assert_eq!(resumed(&peer), ["one"]);
    assert_eq!((peer.count("tools/call"), peer.count("initialize")), (1, 1));
}

/// 34, 46: what was sent before the cut comes again, and with it the answer to somebody else.
#[tokio::test]
async fn a_resumed_stream_that_replays_old_events_still_brings_its_own_answer() {
    let peer = resuming("id: one\nretry: 500\ndata:\n\n", |body| {
        let mut old = body.clone();
        old["id"] = json!(0);
        old["result"]["content"][0]["text"] = json!("of another request");
        format!("{}id: two\n{}", event(&old), event(body))
    })
    .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
    assert_eq!(resumed(&peer), ["one"]);
}

/// 34: the newer generation has no such thing.
#[tokio::test]
async fn a_stream_of_the_newer_generation_is_not_resumed() {
    let peer = Peer::start(|request| {
        assert_eq!(request.method, "POST");
        match request.rpc() {
            "tools/call" => stream("id: one\nretry: 500\ndata:\n\n", Ending::Close),
            _ => modern_answer(request).map_or_else(Reply::accepted, |body| Reply::json(&body)),
        }
    })
    .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    let lost = call(&tools, "echo", json!({})).await;
    assert!(
        matches!(&lost, Err(ToolError::Lost { reason, .. }) if reason.contains("ended before")),
        "{lost:?}"
    );
    assert_eq!(peer.count("tools/call"), 1);
}

/// 34: nobody knows the stream any more.
#[tokio::test]
async fn a_stream_that_cannot_be_resumed_is_a_lost_call_and_not_waited_for() {
    let (peer, outcome) = answered(|_| stream("id: one\nretry: 500\ndata:\n\n", Ending::Reset)).await;
    assert!(matches!(outcome, Err(ToolError::Lost { .. })), "{outcome:?}");
    assert_eq!(resumed(&peer), ["one"]);
}

/// 46
#[tokio::test]
async fn an_answer_to_another_request_on_the_stream_is_passed_over() {
    let (_, outcome) = answered(|request| {
        let body = answer(request).unwrap();
        let mut other = body.clone();
        other["id"] = json!(999_999);
        other["result"]["content"][0]["text"] = json!("of another request");
        stream(format!("{}{}", event(&other), event(&body)), Ending::Close)
    })
    .await;
    assert_eq!(text(outcome), "called");
}

/// An error that names no request is the answer to the one that it comes for.
#[tokio::test]
async fn an_error_without_an_id_on_a_stream_is_told_to_its_call() {
    let (_, outcome) = answered(|_| {
        let error =
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32603, "message": "broken inside"}});
        stream(event(&error), Ending::Close)
    })
    .await;
    assert!(
        matches!(&outcome, Err(ToolError::Refused { message, .. }) if message == "broken inside"),
        "{outcome:?}"
    );
}

/// 41
#[tokio::test]
async fn streams_with_odd_line_ends_ids_and_pauses_are_read() {
    let (_, outcome) = answered(|request| {
        let body = answer(request).unwrap();
        let odd = format!("\u{feff}: hi\r\rretry: soon\rid: a\0b\r\runknown: x\rdata: {body}\r\r");
        stream(odd, Ending::Silence)
    })
    .await;
    assert_eq!(text(outcome), "called");
}

/// 41
#[tokio::test]
async fn a_flood_of_comments_costs_no_memory_and_ends_with_the_call() {
    let peer = peer(|_| stream(": flood\n".repeat(512), Ending::Endless)).await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    let flood = hurried(call(&tools, "echo", json!({})), || peer.count("tools/call") == 1).await;
    assert!(matches!(flood, Err(ToolError::Timeout { .. })), "{flood:?}");
}

/// 41: also when the library would resume the stream, and be sent the same event again.
#[tokio::test]
async fn an_event_without_end_is_too_large_and_not_asked_for_again() {
    for begin in ["", "id: one\nretry: 500\ndata:\n\n"] {
        let (peer, outcome) =
            answered(move |_| stream(format!("{begin}data: {}", "x".repeat(4096)), Ending::Endless)).await;
        assert_eq!(outcome, Err(ToolError::TooLarge { tool: "echo".into(), limit: 16 << 20 }));
        assert!(resumed(&peer).is_empty());
    }
}

/// Answers as a server of the oldest transport, with one stream at a time, whose messages it takes like this.
fn oldest(
    on_message: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
) -> impl Fn(&Request) -> Reply + Send + Sync {
    let open: Mutex<Option<mpsc::UnboundedSender<String>>> = Mutex::new(None);
    move |request| {
        let mut open = open.lock().unwrap();
        if request.method == "GET" {
            let (reply, sender) = Reply::events();
            sender.send("event: endpoint\ndata: /message\n\n".to_owned()).unwrap();
            *open = Some(sender);
            return reply;
        }
        if let Some(reply) = on_message(request) {
            return reply;
        }
        if let (Some(body), Some(sender)) = (answer(request), open.as_ref()) {
            let _ = sender.send(event(&body));
        }
        Reply::accepted()
    }
}

fn sse(url: &str) -> McpServer {
    server(Transport::Sse(remote(url)))
}

/// 29, 30: of the oldest transport.
#[tokio::test]
async fn a_message_that_is_turned_away_costs_its_call_and_not_the_stream() {
    for (status, words) in [
        (401, "answered 401 Unauthorized: it needs credentials"),
        (403, "answered 403 Forbidden: it refuses these credentials"),
        (
            429,
            "answered 429 Too Many Requests: it has too many requests; it wants to be left alone for 300 s",
        ),
        (413, "answered 413 Payload Too Large: much"),
    ] {
        let calls = AtomicUsize::new(0);
        let peer = Peer::start(oldest(move |request| {
            let is_first = request.rpc() == "tools/call" && calls.fetch_add(1, Ordering::SeqCst) == 0;
            is_first.then(|| Reply::new(status, "text/plain", "much").with("retry-after", "300"))
        }))
        .await;
        let pool = pool();
        let tools = tools(&pool, sse(&peer.url));
        list(&tools).await;
        let refused = call(&tools, "echo", json!({})).await;
        let (server, reason) = (NAME.to_owned(), words.to_owned());
        let expected = match status {
            429 => ToolError::RateLimited { server, reason, retry_after: None },
            _ => ToolError::Down { server, reason },
        };
        assert_eq!(refused, Err(expected));
        assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
        assert_eq!(peer.count("initialize"), 1);
    }
}

/// 28: of the oldest transport. The stream is still open, but nobody listens at the other end.
#[tokio::test]
async fn a_stream_whose_session_was_forgotten_is_opened_anew_inside_the_call() {
    let calls = AtomicUsize::new(0);
    let peer = Peer::start(oldest(move |request| {
        let is_first = request.rpc() == "tools/call" && calls.fetch_add(1, Ordering::SeqCst) == 0;
        is_first.then(|| Reply::new(404, "text/plain", "Could not find session"))
    }))
    .await;
    let pool = pool();
    let tools = tools(&pool, sse(&peer.url));
    list(&tools).await;
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
    assert_eq!((peer.count("initialize"), peer.count("tools/call")), (2, 2));
}

#[tokio::test]
async fn an_event_stream_that_falls_silent_is_opened_anew() {
    let is_silent = Arc::new(AtomicBool::new(false));
    let silent = is_silent.clone();
    let peer = Peer::start(oldest(move |request| {
        if request.rpc() == "initialize" {
            silent.store(false, Ordering::SeqCst);
        }
        silent.load(Ordering::SeqCst).then(Reply::accepted)
    }))
    .await;
    let pool = pool();
    let tools = tools(&pool, sse(&peer.url));
    list(&tools).await;
    is_silent.store(true, Ordering::SeqCst);
    let timeout = hurried(call(&tools, "echo", json!({})), || peer.count("tools/call") == 1).await;
    assert!(matches!(timeout, Err(ToolError::Timeout { .. })), "{timeout:?}");
    in_the_end("it is given up", || tools.reports()[0].state.name() != "ready").await;
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
}

/// What reports of progress say is bounded in bytes, not only in number.
#[tokio::test]
async fn a_report_of_progress_is_cut_to_what_a_person_reads() {
    let peer = peer(|request| {
        let token = &request.body["params"]["_meta"]["progressToken"];
        let params = json!({"progressToken": token, "progress": 1, "message": "x".repeat(1 << 20)});
        let report = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        stream(format!("{}{}", event(&report), event(&answer(request).unwrap())), Ending::Close)
    })
    .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    let seen = Mutex::new(Vec::new());
    let result = call_with(&tools, "echo", json!({}), &|p: ToolProgress| {
        seen.lock().unwrap().push(p.message.unwrap().len());
    })
    .await;
    assert_eq!(text(result), "called");
    let seen = seen.lock().unwrap();
    assert!(seen.len() == 1 && seen[0] <= 4_100, "{seen:?}");
}
