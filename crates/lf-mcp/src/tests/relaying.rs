//! Requests of clients that are passed on to scripted servers.

use lf_core::project::{Generation, HttpServer, Protocol};
use lf_core::tool::Reply as Said;
use tokio::sync::mpsc;

use super::http_peer::{Peer, Reply, Request, answer, modern_answer};
use super::*;
use crate::List;
use crate::endpoint::Refused;
use crate::relay::{Asking, Caller, Channel, Request as Passed};

fn http(url: &str) -> Arc<McpServer> {
    Arc::new(server(Transport::Http(HttpServer::new(url))))
}

fn modern_only(url: &str) -> Arc<McpServer> {
    let server = Arc::unwrap_or_clone(http(url));
    Arc::new(McpServer { protocol: Protocol::Modern, ..server })
}

fn result(request: &Request, result: &Value) -> Reply {
    Reply::json(&json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result}))
}

/// A server of the older generation that has more than tools.
fn legacy(request: &Request) -> Reply {
    match (request.method.as_str(), request.rpc()) {
        ("POST", "initialize") => {
            let mut body = answer(request).unwrap();
            let resources = json!({"subscribe": true});
            body["result"]["capabilities"] = json!({"tools": {}, "prompts": {}, "resources": resources});
            Reply::json(&body)
        }
        ("POST", _) => answer(request).map_or_else(Reply::accepted, |body| Reply::json(&body)),
        _ => Reply::new(405, "text/plain", ""),
    }
}

fn modern(request: &Request) -> Reply {
    modern_answer(request).map_or_else(Reply::accepted, |body| Reply::json(&body))
}

fn tool_call() -> Passed {
    let params = serde_json::Map::from_iter([("name".to_owned(), json!("echo"))]);
    Passed { method: "tools/call".to_owned(), params, meta: serde_json::Map::new() }
}

#[tokio::test]
async fn a_list_that_is_not_answered_fails_all_who_wait_for_it_at_once_and_has_the_server_probed() {
    let (gone, _gone) = mpsc::unbounded_channel();
    let peer = Peer::start(move |request| match request.rpc() {
        "prompts/list" => Reply::silence(gone.clone()),
        _ => legacy(request),
    })
    .await;
    let (pool, server) = (pool(), http(&peer.url));
    pool.about(&server, &Caller::nobody()).await.unwrap();
    let nobody = Caller::nobody();
    let begun = tokio::time::Instant::now();
    let listing = join_all((0..6).map(|_| pool.catalogue(&server, List::Prompts, &nobody, None)));
    let listed = hurried(listing, || peer.count("prompts/list") == 1).await;
    // by the clock that is hurried
    assert!(begun.elapsed() < server.timeout * 2, "{:?}", begun.elapsed());
    for listed in listed {
        assert_eq!(listed.unwrap_err().reason, "did not answer `prompts/list` in time");
    }
    assert_eq!(peer.count("prompts/list"), 1);
    // it answers its probe, so that nothing else comes of it
    eventually("it is probed", || peer.count("tools/list") == 2).await;
    pool.shutdown().await;
}

#[tokio::test]
async fn a_resource_that_is_slow_to_be_watched_holds_up_no_other() {
    let (gone, _gone) = mpsc::unbounded_channel();
    let peer = Peer::start(move |request| match request.rpc() {
        "resources/subscribe" if request.body["params"]["uri"] == "slow:" => Reply::silence(gone.clone()),
        "resources/subscribe" | "resources/unsubscribe" => result(request, &json!({})),
        _ => legacy(request),
    })
    .await;
    let (pool, server) = (pool(), http(&peer.url));
    let nobody = Caller::nobody();
    let mut slow = join_all((0..3).map(|_| pool.watch(&server, "slow:", &nobody)));
    until(&mut slow, "the slow one is asked for", || peer.count("resources/subscribe") == 1).await;
    let quick = join_all((0..3).map(|_| pool.watch(&server, "quick:", &nobody)));
    tokio::select! {
        biased;
        slow = &mut slow => panic!("{slow:?}"),
        quick = quick => assert!(quick.iter().all(Result::is_ok), "{quick:?}"),
    }
    let slow = hurried(slow, || true).await;
    assert!(slow.iter().all(|watch| matches!(watch, Err(Refused::Unavailable(_)))), "{slow:?}");
    assert_eq!(peer.count("resources/subscribe"), 2);
    pool.shutdown().await;
}

#[tokio::test]
async fn a_call_that_is_passed_on_is_repeated_only_where_the_server_says_that_it_may() {
    for is_repeatable in [true, false] {
        let peer = Peer::start(move |request| match request.rpc() {
            "tools/list" => {
                let hints = json!({"readOnlyHint": is_repeatable});
                let schema = json!({"type": "object"});
                result(
                    request,
                    &json!({"tools": [{"name": "echo", "inputSchema": schema, "annotations": hints}]}),
                )
            }
            "tools/call" => Reply::new(503, "text/plain", "later"),
            _ => legacy(request),
        })
        .await;
        let (pool, server) = (pool(), http(&peer.url));
        let (channel, _told) = Channel::new();
        let passed = pool.relay(&server, tool_call(), &Caller::nobody(), &channel).await;
        assert!(matches!(passed, Err(Refused::Unavailable(_))), "{passed:?}");
        assert_eq!(peer.count("tools/call"), if is_repeatable { 3 } else { 1 });
        pool.shutdown().await;
    }
}

#[tokio::test]
async fn a_call_that_is_passed_on_takes_its_turn_and_a_question_in_it_names_the_tool() {
    let open = Mutex::new(Vec::new());
    let peer = Peer::start(move |request| match request.rpc() {
        "tools/call" => {
            let (reply, events) = Reply::events();
            let asks = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
            events.send(format!("data: {asks}\n\n")).unwrap();
            open.lock().unwrap().push(events);
            reply
        }
        _ => legacy(request),
    })
    .await;
    let (pool, server) = (pool(), http(&peer.url));
    let (asks, mut asked) = mpsc::channel(1);
    let (channel, _told) = Channel::new();
    let channel = Channel { asking: Asking::Held(asks), ..channel };
    let caller = Caller::new(Generation::Legacy, json!({"roots": {}}), Value::Null);
    let live = pool.relaying(&server, &caller).await.unwrap();
    let free = live.link.free_turns();
    let passing = pool.relay(&server, tool_call(), &caller, &channel);
    let asked = {
        tokio::pin!(passing);
        let asked = tokio::select! {
            passed = &mut passing => panic!("{passed:?}"),
            asked = asked.recv() => asked.unwrap().0,
        };
        assert_eq!(live.link.free_turns(), free - 1);
        asked
    };
    assert_eq!((asked.method.as_str(), asked.tool.as_deref()), ("roots/list", Some("echo")));
    assert_eq!(live.link.free_turns(), free, "it is given back");
    drop(live);
    pool.shutdown().await;
}

#[tokio::test]
async fn a_client_keeps_its_session_when_no_others_are_made() {
    let peer = Peer::start(legacy).await;
    let (pool, server) = (pool(), http(&peer.url));
    let kinds = [json!({}), json!({"form": {}}), json!({"url": {}}), json!({"form": {}, "url": {}})];
    let callers: Vec<Caller> = (0..16)
        .map(|number: usize| {
            let mut able = json!({});
            if number & 1 > 0 {
                able["sampling"] = json!({});
            }
            if number & 2 > 0 {
                able["roots"] = json!({});
            }
            if number / 4 > 0 {
                able["elicitation"] = kinds[number / 4].clone();
            }
            Caller::new(Generation::Legacy, able, Value::Null)
        })
        .collect();
    let mut first = Vec::new();
    for caller in &callers {
        first.push(pool.relaying(&server, caller).await.unwrap());
    }
    assert_eq!(peer.count("initialize"), 8, "at most 8");
    for (caller, first) in callers.iter().zip(&first) {
        let again = pool.relaying(&server, caller).await.unwrap();
        assert!(Arc::ptr_eq(&again, first), "{caller:?}");
    }
    pool.shutdown().await;
}

/// Asks for input in every answer, with this many questions in each.
fn curious(questions: usize) -> impl Fn(&Request) -> Reply + Send + Sync {
    move |request| match request.rpc() {
        "tools/call" => {
            let schema = json!({"type": "object", "properties": {"a": {"type": "string", "default": "b"}}});
            let question = json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": schema}});
            let all: serde_json::Map<String, Value> =
                (0..questions).map(|number| (format!("q{number}"), question.clone())).collect();
            let asks = json!({"resultType": "input_required", "inputRequests": all, "requestState": "s"});
            result(request, &asks)
        }
        _ => modern(request),
    }
}

/// How many times the answers of a peer were declined and accepted.
fn said(peer: &Peer) -> (usize, usize) {
    let requests = peer.requests.lock().unwrap();
    let responses =
        requests.iter().filter_map(|request| request.body["params"]["inputResponses"].as_object());
    let actions: Vec<Value> =
        responses.flat_map(|all| all.values().map(|said| said["action"].clone())).collect();
    let count = |action: &str| actions.iter().filter(|said| **said == action).count();
    (count("decline"), count("accept"))
}

#[tokio::test]
async fn a_call_that_is_passed_on_is_sent_only_where_it_is_permitted() {
    // of the older generation and of the newer one: for a modern client the first is held open behind it
    for (peer, generation) in [
        (Peer::start(legacy).await, Generation::Legacy),
        (Peer::start(legacy).await, Generation::Modern),
        (Peer::start(modern).await, Generation::Modern),
    ] {
        let (pool, server) = (pool(), http(&peer.url));
        let caller = Caller::new(generation, json!({}), Value::Null);
        let (channel, _told) = Channel::new();
        let channel = channel.guarded(|| Err("not any more".to_owned()));
        let passed = pool.relay(&server, tool_call(), &caller, &channel).await;
        assert_eq!(passed, Err(Refused::Forbidden("not any more".to_owned())));
        assert_eq!(peer.count("tools/call"), 0);
        let channel = channel.guarded(|| Ok(()));
        assert!(pool.relay(&server, tool_call(), &caller, &channel).await.is_ok());
        pool.shutdown().await;
    }
}

/// May send so often.
struct Allowed(AtomicUsize);

impl lf_core::tool::Attendant for Allowed {
    fn progress(&self, _: ToolProgress) {}

    fn may_send(&self) -> Result<(), String> {
        use std::sync::atomic::Ordering::SeqCst;
        let take = |left: usize| left.checked_sub(1);
        let left = self.0.fetch_update(SeqCst, SeqCst, take);
        left.map(drop).map_err(|_| "not any more".to_owned())
    }
}

#[tokio::test]
async fn a_call_is_permitted_each_time_that_it_is_sent() {
    let peer = Peer::start(|request| match request.rpc() {
        "tools/call" => Reply::new(429, "text/plain", "").with("retry-after", "1"),
        _ => legacy(request),
    })
    .await;
    let pool = pool();
    let tools = pool.tools([(NAME.to_owned(), Ok(http(&peer.url)))]);
    list(&tools).await;
    let tool = ToolRef { server: NAME.into(), name: "echo".into() };
    for times in [0, 1, 2] {
        let sent = peer.count("tools/call");
        let outcome = tools.call(&tool, &serde_json::Map::new(), &Allowed(times.into())).await;
        assert!(
            matches!(&outcome, Err(ToolError::Denied { reason, .. }) if reason == "not any more"),
            "{outcome:?}"
        );
        assert_eq!(peer.count("tools/call"), sent + times);
    }
    pool.shutdown().await;
}

#[tokio::test]
async fn a_modern_server_gets_no_more_answers_in_one_call_than_a_legacy_one() {
    let peer = Peer::start(curious(5)).await;
    let (pool, server) = (pool(), modern_only(&peer.url));
    let (asks, mut asked) = mpsc::channel::<(lf_core::tool::Question, tokio::sync::oneshot::Sender<Said>)>(1);
    let (channel, _told) = Channel::new();
    let channel = Channel { asking: Asking::Held(asks), ..channel };
    let able = json!({"elicitation": {}});
    let caller = Caller::new(Generation::Legacy, able, Value::Null);
    let client = async {
        let mut count = 0;
        while let Some((_, reply)) = asked.recv().await {
            count += 1;
            let accepted = json!({"action": "accept", "content": {"a": "b"}});
            reply.send(Said::Result(accepted)).unwrap();
        }
        count
    };
    let passing = async {
        let passed = pool.relay(&server, tool_call(), &caller, &channel).await;
        drop(channel);
        passed
    };
    let (passed, count) = tokio::join!(passing, client);
    assert!(
        matches!(&passed, Err(Refused::Unavailable(why)) if why.contains("more than 10 times")),
        "{passed:?}"
    );
    assert_eq!((count, said(&peer)), (32, (13, 32)), "9 answers to 5 questions");
    pool.shutdown().await;
}

#[tokio::test]
async fn a_chat_is_asked_no_more_in_one_call_either() {
    let peer = Peer::start(curious(5)).await;
    let (pool, server) = (pool(), modern_only(&peer.url));
    let tools = pool.tools([(NAME.to_owned(), Ok(server))]);
    let called = call(&tools, "echo", json!({})).await;
    assert!(
        matches!(&called, Err(ToolError::Refused { message, .. }) if message.contains("more than 10 times")),
        "{called:?}"
    );
    assert_eq!(said(&peer), (13, 32), "what the file says is an answer, too");
    pool.shutdown().await;
}

/// Agrees to watch this much of what is asked for; never says so where there is nothing.
async fn agreeing(to: Option<Value>) -> Peer {
    // open for as long as the client wants them
    let open = Mutex::new(Vec::new());
    Peer::start(move |request| match request.rpc() {
        "server/discover" => {
            let mut body = modern_answer(request).unwrap();
            body["result"]["capabilities"]["resources"] = json!({"subscribe": true});
            Reply::json(&body)
        }
        "subscriptions/listen" => {
            let (reply, events) = Reply::events();
            if let Some(agreed) = &to {
                let meta = json!({"io.modelcontextprotocol/subscriptionId": request.body["id"]});
                let params = json!({"_meta": meta, "notifications": agreed});
                let method = "notifications/subscriptions/acknowledged";
                let told = json!({"jsonrpc": "2.0", "method": method, "params": params});
                events.send(format!("data: {told}\n\n")).unwrap();
            }
            open.lock().unwrap().push(events);
            reply
        }
        _ => modern(request),
    })
    .await
}

#[tokio::test]
async fn a_modern_server_watches_what_it_agrees_to_and_silence_is_no_agreement() {
    let outcome = async |agreed: Option<Value>| {
        let silent = agreed.is_none();
        let peer = agreeing(agreed).await;
        let (pool, server) = (pool(), modern_only(&peer.url));
        let nobody = Caller::nobody();
        let is_silent = || silent && peer.count("subscriptions/listen") == 1;
        let watched = hurried(pool.watch(&server, "lf://a", &nobody), is_silent).await;
        pool.shutdown().await;
        watched.map(drop)
    };
    assert_eq!(outcome(Some(json!({"resourceSubscriptions": ["lf://a"]}))).await, Ok(()));
    for no in [json!({}), json!({"resourceSubscriptions": ["lf://b"]})] {
        assert!(matches!(outcome(Some(no)).await, Err(Refused::Upstream { .. })));
    }
    let silent = outcome(None).await;
    assert!(matches!(&silent, Err(Refused::Unavailable(why)) if why.contains("within 5s")), "{silent:?}");
}

#[tokio::test]
async fn a_server_that_lists_other_tools_each_time_gets_another_connection_in_time() {
    let listings = AtomicUsize::new(0);
    let peer = Peer::start(move |request| match request.rpc() {
        "tools/list" => {
            let number = listings.fetch_add(1, Ordering::SeqCst);
            let named =
                |tool| json!({"name": format!("t{number}-{tool}"), "inputSchema": {"type": "object"}});
            result(request, &json!({"tools": (0..900).map(named).collect::<Vec<_>>()}))
        }
        _ => legacy(request),
    })
    .await;
    let (pool, server) = (pool(), http(&peer.url));
    let nobody = Caller::nobody();
    for _ in 0..13 {
        let listed = pool.catalogue(&server, List::Tools, &nobody, Some(Duration::ZERO)).await;
        assert_eq!(listed.unwrap().len(), 900);
    }
    assert_eq!(peer.count("initialize"), 2, "{} lists", peer.count("tools/list"));
    pool.shutdown().await;
}
