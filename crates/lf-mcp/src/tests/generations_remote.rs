//! Servers of either generation over streamable HTTP.

use std::collections::HashMap;

use lf_core::project::{HttpServer, Protocol};
use tokio::sync::mpsc;

use super::http_peer::{Peer, Reply, Request, answer, modern_answer};
use super::*;

fn http(url: &str) -> McpServer {
    server(Transport::Http(HttpServer::new(url)))
}

fn modern(request: &Request) -> Reply {
    assert_eq!(request.method, "POST", "there is no other stream");
    modern_answer(request).map_or_else(Reply::accepted, |body| Reply::json(&body))
}

fn legacy(request: &Request) -> Reply {
    match request.method.as_str() {
        "POST" => answer(request).map_or_else(Reply::accepted, |body| Reply::json(&body)),
        _ => Reply::new(405, "text/plain", ""),
    }
}

/// The revision that is spoken with a server that lists its tools.
async fn revision(pool: &SessionPool, server: McpServer) -> String {
    let server = Arc::new(server);
    let tools = pool.tools([(NAME.to_owned(), Ok(server.clone()))]);
    assert_eq!(names(&list(&tools).await), ["echo"]);
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
    match pool.status(&server) {
        ServerState::Ready { protocol, .. } => protocol,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_newer_generation_has_its_headers_with_every_request() {
    let peer = Peer::start(modern).await;
    let pool = pool();
    assert_eq!(revision(&pool, http(&peer.url)).await, "2026-07-28");
    assert_eq!((peer.count("initialize"), peer.count("server/discover")), (0, 1));
    pool.shutdown().await;
}

#[tokio::test]
async fn arguments_that_the_schema_names_are_headers_too_and_a_wrong_name_costs_its_tool() {
    let peer = Peer::start(modern).await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    assert_eq!(names(&list(&tools).await), ["echo"]);
    for region in ["north", "Süd ", "=?base64?x?="] {
        assert_eq!(text(call(&tools, "echo", json!({"region": region})).await), "called");
    }
    let requests = peer.requests.lock().unwrap();
    let sent = requests.iter().filter(|request| request.rpc() == "tools/call");
    let sent: Vec<&str> = sent.map(|request| request.header("mcp-param-region")).collect();
    assert_eq!(sent, ["north", "=?base64?U8O8ZCA=?=", "=?base64?PT9iYXNlNjQ/eD89?="]);
}

/// A legacy server that answers the probe like this.
async fn falls_back(probed: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Peer {
    let peer = Peer::start(move |request| match request.rpc() {
        "server/discover" => probed(request),
        _ => legacy(request),
    })
    .await;
    let pool = pool();
    let is_probed = || (peer.count("server/discover"), peer.count("initialize")) == (1, 0);
    let revision = hurried(revision(&pool, http(&peer.url)), is_probed).await;
    assert_eq!(revision, "2025-11-25");
    assert_eq!((peer.count("initialize"), peer.count("server/discover")), (1, 1));
    peer
}

#[tokio::test]
async fn whatever_else_the_probe_is_answered_the_older_generation_is_tried() {
    falls_back(|request| Reply::json(&json!({"jsonrpc": "2.0", "id": request.body["id"], "result": {}})))
        .await;
    falls_back(|_| Reply::json(&json!({}))).await;
    falls_back(|_| Reply::new(200, "application/json", "")).await;
    falls_back(|_| Reply::accepted()).await;
    falls_back(|_| Reply::nothing()).await;
    for status in [400, 404, 405, 406, 422, 500, 503] {
        falls_back(move |_| Reply::new(status, "text/plain", "who are you?")).await;
    }
    falls_back(|_| Reply::new(400, "application/json", r#"{"error": "no session"}"#)).await;
    falls_back(|_| {
        let error = json!({"code": -32000, "message": "Bad Request: Server not initialized"});
        let body = json!({"jsonrpc": "2.0", "id": null, "error": error});
        Reply::new(400, "application/json", body.to_string())
    })
    .await;
    falls_back(|request| {
        let error = json!({"code": -32022, "message": "no", "data": {"supported": ["2025-11-25"]}});
        Reply::json(&json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error}))
    })
    .await;
}

#[tokio::test]
async fn a_probe_that_is_not_answered_is_given_up() {
    let (gone, mut given_up) = mpsc::unbounded_channel();
    let _peer = falls_back(move |_| Reply::silence(gone.clone())).await;
    assert!(soon(given_up.recv()).await.is_some());
}

#[tokio::test]
async fn a_server_of_the_newer_generation_that_refuses_us_is_not_asked_in_the_older() {
    for (code, reason) in [
        (-32_020, "refused `server/discover`: no"),
        (-32_021, "refused `server/discover`: no"),
        (-32_022, "speaks other revisions of the protocol: 2027-01-01"),
    ] {
        let peer = Peer::start(move |request| {
            let error = json!({"code": code, "message": "no", "data": {"supported": ["2027-01-01"]}});
            let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error});
            Reply::new(400, "application/json", body.to_string())
        })
        .await;
        let pool = pool();
        assert_eq!(down(&tools(&pool, http(&peer.url))).await, reason);
        assert_eq!(peer.count("initialize"), 0);
    }
}

#[tokio::test]
async fn who_wants_credentials_or_is_not_there_is_asked_once() {
    for (status, reason) in [
        (401, "answered 401 Unauthorized: it needs credentials"),
        (403, "answered 403 Forbidden: it refuses these credentials"),
    ] {
        let peer = Peer::start(move |_| Reply::new(status, "text/plain", "")).await;
        let pool = pool();
        // with a key of its own nobody is asked to log in
        let headers = vec![("Authorization".to_owned(), "Bearer key".into())];
        let remote = HttpServer { headers, ..HttpServer::new(&peer.url) };
        assert_eq!(down(&tools(&pool, server(Transport::Http(remote)))).await, reason);
        assert_eq!(peer.requests.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_server_that_neither_generation_is_answered_by_may_speak_the_oldest_transport() {
    let peer = Peer::start(|_| Reply::new(405, "text/plain", "")).await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    assert_eq!(down(&tools).await, "answered 405 Method Not Allowed at its `base_url`");
    assert!(tools.hint(NAME).unwrap().contains("`sse`"));
    assert_eq!((peer.count("server/discover"), peer.count("initialize")), (1, 1));
}

#[tokio::test]
async fn the_file_decides_which_generation_is_asked() {
    let both = |request: &Request| match request.header("mcp-method") {
        "" => legacy(request),
        _ => modern(request),
    };
    let peer = Peer::start(both).await;
    let pool = pool();
    for (protocol, spoken) in [
        (Protocol::Auto, "2026-07-28"),
        (Protocol::Modern, "2026-07-28"),
        (Protocol::Legacy, "2025-11-25"),
        (Protocol::Revision("2025-03-26"), "2025-03-26"),
    ] {
        assert_eq!(revision(&pool, McpServer { protocol, ..http(&peer.url) }).await, spoken);
    }
    let stubborn = Peer::start(|request| {
        let mut body = answer(request).unwrap();
        body["result"]["protocolVersion"] = json!("2025-03-26");
        Reply::json(&body)
    })
    .await;
    let pinned = McpServer { protocol: Protocol::Revision("2025-11-25"), ..http(&stubborn.url) };
    let tools = tools(&pool, pinned);
    assert_eq!(down(&tools).await, "speaks revision 2025-03-26 of the protocol, not 2025-11-25");
    assert!(tools.hint(NAME).unwrap().contains("`protocol`"));
}

#[tokio::test]
async fn an_unknown_revision_is_not_spoken() {
    let peer = Peer::start(|request| match answer(request) {
        Some(mut body) if request.rpc() == "initialize" => {
            body["result"]["protocolVersion"] = json!("2099-01-01");
            Reply::json(&body)
        }
        _ => legacy(request),
    })
    .await;
    let pool = pool();
    let server = McpServer { protocol: Protocol::Legacy, ..http(&peer.url) };
    let reason = down(&tools(&pool, server)).await;
    assert_eq!(
        reason,
        "answered `initialize` with revision 2099-01-01 of the protocol, which is not known here"
    );
}

#[tokio::test]
async fn a_call_of_the_newer_generation_is_cancelled_by_closing_its_stream() {
    let (gone, mut closed) = mpsc::unbounded_channel();
    let (streams, mut opened) = mpsc::unbounded_channel();
    let peer = Peer::start(move |request| match request.body["params"]["arguments"]["how"].as_str() {
        Some("silent") => Reply::silence(gone.clone()),
        Some("streaming") => {
            let (reply, sender) = Reply::events();
            let token = &request.body["params"]["_meta"]["progressToken"];
            let params = json!({"progressToken": token, "progress": 1});
            let report = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            sender.send(format!("data: {report}\n\n")).unwrap();
            streams.send(sender).unwrap();
            reply
        }
        _ => modern(request),
    })
    .await;
    let pool = pool();
    let tools = tools(&pool, http(&peer.url));
    list(&tools).await;
    {
        let mut silent = pin!(call(&tools, "echo", json!({"how": "silent"})));
        until(&mut silent, "it is called", || peer.count("tools/call") == 1).await;
    }
    assert!(soon(closed.recv()).await.is_some());
    {
        let is_streaming = AtomicBool::new(false);
        let told = |_| is_streaming.store(true, Ordering::SeqCst);
        let mut streaming = pin!(call_with(&tools, "echo", json!({"how": "streaming"}), &told));
        until(&mut streaming, "its answer has begun", || is_streaming.load(Ordering::SeqCst)).await;
    }
    let stream = soon(opened.recv()).await.unwrap();
    // it is found out by writing to it
    eventually("the stream is closed", || stream.send(": still there?\n\n".to_owned()).is_err()).await;
    assert_eq!(peer.count("notifications/cancelled"), 0);
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
}

#[tokio::test]
async fn a_subscription_that_ends_is_opened_anew_and_what_was_missed_is_listed() {
    let (streams, mut opened) = mpsc::unbounded_channel();
    let peer = Peer::start(move |request| {
        if request.rpc() == "server/discover" {
            let mut body = modern_answer(request).unwrap();
            body["result"]["capabilities"] = json!({"tools": {"listChanged": true}});
            return Reply::json(&body);
        }
        if request.rpc() != "subscriptions/listen" {
            return modern(request);
        }
        assert_eq!(request.body["params"]["notifications"], json!({"toolsListChanged": true}));
        let (reply, sender) = Reply::events();
        let meta = json!({"io.modelcontextprotocol/subscriptionId": request.body["id"]});
        let mut parameters = HashMap::from([("_meta", meta)]);
        parameters.insert("notifications", json!({"toolsListChanged": true}));
        let method = "notifications/subscriptions/acknowledged";
        let message = json!({"jsonrpc": "2.0", "method": method, "params": parameters});
        sender.send(format!("data: {message}\n\n")).unwrap();
        streams.send(sender).unwrap();
        reply
    })
    .await;
    let pool = pool();
    let server = Arc::new(http(&peer.url));
    let session = pool.session(&server, None).await.unwrap();
    let first = soon(opened.recv()).await.unwrap();
    eventually("it is agreed to", || session.0.link.signals.is_told()).await;
    let listed = peer.count("tools/list");
    let message = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    first.send(format!("data: {message}\n\n")).unwrap();
    eventually("it is listed", || peer.count("tools/list") > listed).await;
    drop(first);
    eventually("nothing is told any more", || !session.0.link.signals.is_told()).await;
    let listed = peer.count("tools/list");
    let _second = soon(opened.recv()).await.unwrap();
    eventually("it is listed again", || peer.count("tools/list") > listed).await;
    eventually("it is agreed to again", || session.0.link.signals.is_told()).await;
    assert_eq!(text(call(&tools_of(&pool, &server), "echo", json!({})).await), "called");
    assert_eq!(peer.count("server/discover"), 1);
}

fn tools_of(pool: &SessionPool, server: &Arc<McpServer>) -> ProjectTools {
    pool.tools([(NAME.to_owned(), Ok(server.clone()))])
}

#[tokio::test]
async fn a_list_is_asked_for_again_when_the_server_says_that_it_is_old() {
    let peer = Peer::start(|request| match modern_answer(request) {
        Some(mut body) if request.rpc() == "tools/list" => {
            body["result"]["ttlMs"] = json!(0);
            Reply::json(&body)
        }
        _ => modern(request),
    })
    .await;
    let kept = Peer::start(modern).await;
    let pool = pool();
    let (old, kept_tools) = (tools(&pool, http(&peer.url)), tools(&pool, http(&kept.url)));
    list(&old).await;
    list(&kept_tools).await;
    skip(Duration::from_secs(2)).await;
    list(&old).await;
    list(&kept_tools).await;
    assert_eq!((peer.count("tools/list"), kept.count("tools/list")), (2, 1));
}

#[tokio::test]
async fn a_server_that_was_replaced_by_one_of_the_other_generation_is_greeted_anew() {
    let is_new = Arc::new(AtomicBool::new(false));
    for newer_first in [true, false] {
        is_new.store(newer_first, Ordering::SeqCst);
        let now = is_new.clone();
        let peer = Peer::start(move |request| {
            let speaks_new = now.load(Ordering::SeqCst);
            match (speaks_new, request.header("mcp-method")) {
                (true, "") if request.method == "POST" => {
                    let error =
                        json!({"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}});
                    let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error});
                    Reply::new(
                        if request.header("mcp-session-id").is_empty() { 400 } else { 404 },
                        "application/json",
                        body.to_string(),
                    )
                }
                // the end of a session that it knows nothing of
                (true, "") => legacy(request),
                (true, _) => modern(request),
                (false, "") if request.rpc() == "initialize" => legacy(request).with("mcp-session-id", "s"),
                (false, "") => legacy(request),
                (false, _) => {
                    let error =
                        json!({"code": -32022, "message": "no", "data": {"supported": ["2025-11-25"]}});
                    let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error});
                    Reply::new(400, "application/json", body.to_string())
                }
            }
        })
        .await;
        let pool = pool();
        let server = Arc::new(http(&peer.url));
        let tools = tools_of(&pool, &server);
        let protocol = || match pool.status(&server) {
            ServerState::Ready { protocol, .. } => protocol,
            other => panic!("{other:?}"),
        };
        names(&list(&tools).await);
        let first = protocol();
        is_new.store(!newer_first, Ordering::SeqCst);
        assert_eq!(text(call(&tools, "echo", json!({})).await), "called", "newer first: {newer_first}");
        let revisions = if newer_first { ("2026-07-28", "2025-11-25") } else { ("2025-11-25", "2026-07-28") };
        assert_eq!((first.as_str(), protocol().as_str()), revisions);
    }
}

#[tokio::test]
async fn a_server_with_too_many_requests_is_asked_again_when_it_says() {
    for (after, calls) in
        [("0", 2), ("Wed, 21 Oct 2015 07:28:00 GMT", 2), ("-1", 1), ("999999999", 1), ("soon", 1)]
    {
        let turned_away = AtomicBool::new(false);
        let peer = Peer::start(move |request| {
            if request.rpc() == "tools/call" && !turned_away.swap(true, Ordering::SeqCst) {
                return Reply::new(429, "text/plain", "").with("retry-after", after);
            }
            modern(request)
        })
        .await;
        let pool = pool();
        let tools = tools(&pool, http(&peer.url));
        let outcome = call(&tools, "echo", json!({})).await;
        assert_eq!(outcome.is_ok(), calls == 2, "{after}: {outcome:?}");
        assert_eq!(peer.count("tools/call"), calls, "{after}");
    }
}
