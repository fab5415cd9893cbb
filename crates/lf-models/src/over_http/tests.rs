use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use lf_core::message::Prose;
use lf_core::project::Provider;
use lf_core::{FinishReason, Message, ModelDelta};
use serde_json::Map;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::http::Timeouts;

/// What the upstream does on one connection: writes these pieces, and then leaves it open or closes it.
struct Reply {
    pieces: Vec<String>,
    then_close: bool,
}

fn reply(text: impl Into<String>) -> Reply {
    Reply { pieces: vec![text.into()], then_close: true }
}

fn http(status: &str, headers: &str, body: &str) -> Reply {
    reply(format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n{body}"))
}

const EVENTS: &str = "content-type: text/event-stream\r\n";
const HELLO: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

struct Upstream {
    url: String,
    requests: mpsc::UnboundedReceiver<String>,
}

/// One connection per reply, in order; further ones are refused by closing the port.
async fn upstream(replies: Vec<Reply>) -> Upstream {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let (told, requests) = mpsc::unbounded_channel();
    #[expect(clippy::disallowed_methods, reason = "a test's peer ends with the test's runtime")]
    tokio::spawn(async move {
        let mut open = Vec::new();
        for reply in replies {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            while !is_whole(&request) {
                let mut buffer = [0; 4096];
                match socket.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => request.extend_from_slice(&buffer[..count]),
                }
            }
            let _ = told.send(String::from_utf8_lossy(&request).into_owned());
            for piece in reply.pieces {
                let _ = socket.write_all(piece.as_bytes()).await;
                let _ = socket.flush().await;
            }
            if !reply.then_close {
                open.push(socket);
            }
        }
        drop(listener);
        std::future::pending::<()>().await;
    });
    Upstream { url, requests }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    length.is_some_and(|length: usize| body.len() >= length)
}

/// None that a busy machine reaches where nothing is wrong.
fn timeouts() -> Timeouts {
    Timeouts {
        first_byte: Duration::from_secs(30),
        idle: Duration::from_secs(30),
        end: Duration::from_millis(50),
        retry_pause: Duration::from_millis(1),
        ..Timeouts::default()
    }
}

type Outcome = (String, Option<FinishReason>, Option<ModelError>);

async fn ask(url: &str, stream: bool) -> Outcome {
    ask_within(timeouts(), url, stream).await
}

async fn ask_within(timeouts: Timeouts, url: &str, stream: bool) -> Outcome {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let model =
        Model { api_key: Some("key-12345678".into()), ..Model::new("m", Provider::Openai, "gpt", url) };
    let client = Client::trusting(timeouts, &[]).expect("a client");
    let request = ModelRequest {
        messages: vec![Message::User(Prose { content: "hi".into(), rest: Map::new() })],
        stream,
        ..ModelRequest::default()
    };
    let mut deltas = OverHttp::new(Arc::new(model), client, 2).stream(&request);
    let (mut text, mut finish, mut failure) = (String::new(), None, None);
    while let Some(delta) = deltas.next().await {
        match delta {
            Ok(ModelDelta::Text(more)) => text.push_str(&more),
            Ok(ModelDelta::Finish { reason, .. }) => finish = Some(reason),
            Ok(_) => {}
            Err(error) => failure = Some(error),
        }
    }
    (text, finish, failure)
}

#[tokio::test]
async fn an_answer_streams_and_the_key_goes_along() {
    let body = format!("{HELLO}{STOP}data: [DONE]\n\n");
    let mut upstream = upstream(vec![http("200 OK", EVENTS, &body)]).await;
    let (text, finish, failure) = ask(&upstream.url, true).await;
    assert_eq!((text.as_str(), finish, failure), ("Hello", Some(FinishReason::Stop), None));
    let request = upstream.requests.recv().await.expect("the request");
    assert!(request.starts_with("POST /v1/chat/completions "), "{request}");
    assert!(request.contains("authorization: Bearer key-12345678"), "{request}");
}

#[tokio::test]
async fn trouble_before_the_first_byte_is_tried_again() {
    let busy = "{\"error\":{\"message\":\"busy\"}}";
    let upstream = upstream(vec![
        http("503 Service Unavailable", "retry-after: 0\r\n", busy),
        http("429 Too Many Requests", "", busy),
        http("200 OK", EVENTS, &format!("{HELLO}{STOP}data: [DONE]\n\n")),
    ])
    .await;
    let (text, _, failure) = ask(&upstream.url, true).await;
    assert_eq!((text.as_str(), failure), ("Hello", None));
}

#[tokio::test]
async fn a_long_pause_is_passed_on_instead_of_waited_for() {
    let body = "{\"error\":{\"message\":\"slow down\",\"type\":\"requests\"}}";
    let upstream = upstream(vec![http("429 Too Many Requests", "retry-after: 120\r\n", body)]).await;
    let started = Instant::now();
    let (_, _, failure) = ask(&upstream.url, true).await;
    assert!(started.elapsed() < Duration::from_secs(60));
    let Some(ModelError::RateLimited { message, retry_after, .. }) = failure else { panic!("{failure:?}") };
    assert_eq!((message.as_str(), retry_after), ("slow down", Some(Duration::from_secs(120))));
}

#[tokio::test]
async fn a_cut_stream_is_an_error_and_not_an_answer() {
    let upstream = upstream(vec![http("200 OK", EVENTS, HELLO)]).await;
    let (text, finish, failure) = ask(&upstream.url, true).await;
    assert_eq!((text.as_str(), finish), ("Hello", None));
    assert!(matches!(failure, Some(ModelError::Garbled { .. })), "{failure:?}");
}

#[tokio::test]
async fn a_silent_upstream_is_given_up() {
    let head = format!("HTTP/1.1 200 OK\r\n{EVENTS}\r\n");
    for pieces in [vec![], vec![head.clone()], vec![head, HELLO.to_owned()]] {
        let upstream = upstream(vec![Reply { pieces, then_close: false }]).await;
        let soon = Duration::from_millis(300);
        let impatient = Timeouts { first_byte: soon, idle: soon, ..timeouts() };
        let (_, finish, failure) = ask_within(impatient, &upstream.url, true).await;
        assert_eq!(finish, None);
        assert!(matches!(failure, Some(ModelError::Timeout { .. })), "{failure:?}");
    }
}

#[tokio::test]
async fn a_connection_left_open_after_the_end_does_not_hold_the_answer() {
    let pieces = vec![format!("HTTP/1.1 200 OK\r\n{EVENTS}\r\n"), format!("{HELLO}{STOP}")];
    let upstream = upstream(vec![Reply { pieces, then_close: false }]).await;
    let (text, finish, failure) = ask(&upstream.url, true).await;
    assert_eq!((text.as_str(), finish, failure), ("Hello", Some(FinishReason::Stop), None));
}

#[tokio::test]
async fn html_and_whole_json_are_told_apart() {
    let html = upstream(vec![http("200 OK", "content-type: text/html\r\n", "<html>login</html>")]).await;
    let (_, _, failure) = ask(&html.url, true).await;
    let shown = failure.expect("HTML is no answer").to_string();
    assert!(shown.contains("<html>login"), "{shown}");

    let whole = "{\"choices\":[{\"message\":{\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}";
    for stream in [true, false] {
        let upstream = upstream(vec![http("200 OK", "content-type: application/json\r\n", whole)]).await;
        let (text, finish, failure) = ask(&upstream.url, stream).await;
        assert_eq!((text.as_str(), finish, failure), ("Hello", Some(FinishReason::Stop), None));
    }
}

#[tokio::test]
async fn refusals_keep_the_upstreams_words_but_not_our_key() {
    let body =
        "{\"error\":{\"message\":\"Incorrect API key provided: key-12345678\",\"code\":\"invalid_api_key\"}}";
    let upstream = upstream(vec![http("401 Unauthorized", "", body)]).await;
    let (_, _, failure) = ask(&upstream.url, true).await;
    let Some(ModelError::Unauthorized { status: 401, message, .. }) = failure else { panic!("{failure:?}") };
    assert_eq!(message, "Incorrect API key provided: [secret]");
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_named() {
    let (_, _, failure) = ask("http://127.0.0.1:1/v1", true).await;
    let Some(ModelError::Unreachable { url, reason }) = failure else { panic!("{failure:?}") };
    assert!(url.contains("127.0.0.1:1") && reason.contains("refused"), "{url} {reason}");
}

#[tokio::test]
async fn a_hint_that_an_upstream_does_not_take_is_left_out_and_the_request_made_again() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let refusal = "{\"error\":{\"message\":\"Unrecognized request argument supplied: user\"}}";
    let answer = format!("{HELLO}{STOP}data: [DONE]\n\n");
    let mut upstream = upstream(vec![
        http("400 Bad Request", "", refusal),
        http("200 OK", EVENTS, &answer),
        http("200 OK", EVENTS, &answer),
    ])
    .await;
    let model = Model::new("m", Provider::Openai, "gpt", &upstream.url);
    let provider = OverHttp::new(Arc::new(model), Client::trusting(timeouts(), &[]).expect("a client"), 0);
    let mut parameters = Map::new();
    parameters.insert("user".to_owned(), "u".into());
    let request = ModelRequest { parameters, stream: true, ..ModelRequest::default() };
    for _ in 0..2 {
        let deltas: Vec<_> = provider.stream(&request).collect().await;
        assert!(matches!(deltas.last(), Some(Ok(ModelDelta::Finish { .. }))), "{deltas:?}");
        assert!(matches!(&deltas[0], Ok(ModelDelta::Notice(said)) if said.contains("`user`")), "{deltas:?}");
    }
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.push(upstream.requests.recv().await.expect("a request").contains("\"user\""));
    }
    assert_eq!(asked, [true, false, false], "once is enough");
}
