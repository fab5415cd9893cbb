use std::sync::Arc;

use lf_core::project::{Generation, HttpServer, Transport};
use lf_core::tool::ToolProgress;
use rmcp::model::ServerNotification;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::caller::Told;
use super::*;
use crate::secrets::Secrets;

pub(super) fn a_server() -> Arc<McpServer> {
    let (base_url, headers, auth) = ("http://127.0.0.1:9/mcp".to_owned(), Vec::new(), None);
    Arc::new(crate::tests::server(Transport::Http(HttpServer { headers, auth, ..HttpServer::new(base_url) })))
}

fn modern(capabilities: Value) -> Caller {
    Caller::new(Generation::Modern, capabilities, json!({"name": "c", "version": "1"}))
}

#[test]
fn what_a_client_can_be_asked_is_declared_as_it_was() {
    let round = |capabilities: Value| {
        let declared = modern(capabilities).abilities.declared();
        serde_json::to_value(declared).unwrap()
    };
    assert_eq!(round(json!({})), json!({}));
    assert_eq!(round(json!({"roots": {"listChanged": true}})), json!({"roots": {}}));
    // the plain declaration of older revisions means forms
    assert_eq!(round(json!({"elicitation": {}})), json!({"elicitation": {"form": {}}}));
    let both = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}});
    assert_eq!(round(both.clone()), both);
    assert_eq!(round(json!({"elicitation": {"url": {}}})), json!({"elicitation": {"url": {}}}));
}

#[test]
fn a_server_is_told_of_the_client_and_not_of_the_hop_before() {
    let own = json!({
        "progressToken": 7,
        "traceparent": "00-1",
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"x": 1},
    });
    let caller = modern(json!({"sampling": {}}));
    let meta = |to| Value::Object(caller.meta(own.as_object().unwrap(), Some(Level::Notice), to));
    assert_eq!(meta(Generation::Legacy), json!({"traceparent": "00-1"}));
    let told = meta(Generation::Modern);
    assert_eq!(told["io.modelcontextprotocol/clientCapabilities"], json!({"sampling": {}}));
    assert_eq!(told["io.modelcontextprotocol/clientInfo"]["name"], "c");
    assert_eq!(told["io.modelcontextprotocol/logLevel"], "notice");
    assert!(told.get("progressToken").is_none());
}

#[test]
fn only_messages_that_are_grave_enough_are_shown() {
    let admits = |level: &str| Level::Warning.admits(&json!({"level": level, "data": 1}));
    assert!(!admits("info") && admits("warning") && admits("emergency"));
    assert!(admits("no level of ours"), "what cannot be told is shown");
}

fn message(data: &str) -> ServerNotification {
    serde_json::from_value(json!({
        "method": "notifications/message", "params": {"level": "info", "data": data},
    }))
    .unwrap()
}

fn listening(level: Option<Level>) -> (Channel, mpsc::Receiver<Told>) {
    let (channel, told) = Channel::new();
    (Channel { level, ..channel }, told)
}

fn heard(told: &mut mpsc::Receiver<Told>) -> Vec<Value> {
    std::iter::from_fn(|| told.try_recv().ok())
        .map(|told| match told {
            Told::Log(message) => message["data"].clone(),
            Told::Progress(progress) => json!(progress.progress),
        })
        .collect()
}

#[test]
fn a_message_is_told_to_the_client_whose_request_it_is_or_to_none() {
    let (inbox, secrets) = (Arc::new(Inbox::default()), Secrets::default());
    let say = |data: &str| inbox.take(&message(data), &secrets);
    let (one, mut told_one) = listening(Some(Level::Debug));
    let (other, mut told_other) = listening(Some(Level::Debug));
    let first = inbox.attend(&one);
    say("of the first");
    {
        let _second = inbox.attend(&other);
        say("of either");
    }
    say("of the first again");
    drop(first);
    say("of none");
    assert_eq!(heard(&mut told_one), [json!("of the first"), json!("of the first again")]);
    assert!(heard(&mut told_other).is_empty());
    // nobody hears what nobody asked for
    let (quiet, mut told_quiet) = listening(None);
    let _quiet = inbox.attend(&quiet);
    say("not wanted");
    assert!(heard(&mut told_quiet).is_empty());
}

#[tokio::test]
async fn news_are_of_sessions_that_pass_requests_on_only() {
    let feed = inbox::Feed::default();
    let mut news = feed.listen();
    let server = a_server();
    let inbox = Inbox::default();
    let changed: ServerNotification =
        serde_json::from_value(json!({"method": "notifications/prompts/list_changed"})).unwrap();
    inbox.take(&changed, &Secrets::default());
    assert!(news.try_recv().is_err());
    inbox.open(&server, &feed);
    inbox.take(&changed, &Secrets::default());
    inbox.take(&message("m"), &Secrets::default());
    assert_eq!(news.try_recv().unwrap(), (server, News::Changed(List::Prompts)));
    assert!(matches!(news.try_recv().unwrap(), (_, News::Log(_))));
}

#[test]
fn progress_is_told_to_those_who_want_it() {
    let report = || ToolProgress { progress: 1.0, total: None, message: None };
    let (channel, mut told) = Channel::new();
    channel.progress(report());
    let channel = Channel { wants_progress: true, ..channel };
    channel.progress(report());
    assert_eq!(heard(&mut told), [json!(1.0)]);
}
