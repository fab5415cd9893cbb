//! What servers of HTTP/2 do wrong (fault row 42), frame by frame over TLS.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::faults_http::http;
use super::faults_tls::{Authority, GOOD};
use super::http_peer::{Request, answer};
use super::*;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Bytes that are sent without asking.
const WINDOW: usize = 65_535;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The head of an answer: 200 and JSON, or 405.
fn head(is_ok: bool, flags: u8, stream: u32) -> Vec<u8> {
    let mut block = if is_ok { vec![0x88] } else { vec![0x08, 3, b'4', b'0', b'5'] };
    block.extend([0x0f, 0x10, 16]);
    block.extend(b"application/json");
    frame(HEADERS, flags, stream, &block)
}

/// What a call is answered with; the answer itself comes after.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Goaway,
    ResetStream,
    NoWindow,
    EmptyData,
    ManySettings,
    EndlessHead,
}

struct Peer {
    url: String,
    calls: Arc<AtomicUsize>,
    /// Bytes of bodies that came.
    received: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

async fn peer(authority: &Authority, fault: Fault) -> Peer {
    let tls = authority.acceptor("localhost", GOOD, &["h2"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let calls = Arc::new(AtomicUsize::new(0));
    let received = Arc::new(AtomicUsize::new(0));
    let counted = (calls.clone(), received.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, counted) = (tls.clone(), counted.clone());
            connections.spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let _ = serve(stream, fault, &counted.0, &counted.1).await;
            });
        }
    });
    Peer { url, calls, received, _tasks: tasks }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    fault: Fault,
    calls: &AtomicUsize,
    received: &AtomicUsize,
) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 24]).await?;
    // no window is ever opened beyond the one that there is without asking
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    stream.flush().await?;
    let mut body = Vec::new();
    let id = loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await?;
        let (kind, flags) = (head[3], head[4]);
        if kind == SETTINGS && flags & 1 == 0 {
            stream.write_all(&frame(SETTINGS, 1, 0, &[])).await?;
            stream.flush().await?;
        }
        if kind == DATA {
            received.fetch_add(payload.len(), Ordering::SeqCst);
            body.extend(payload);
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            break u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        }
    };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let request = Request { method: "POST".into(), path: "/".into(), headers: Default::default(), body };
    let answered = if request.body.is_null() { None } else { answer(&request) };
    if request.rpc() == "tools/call" {
        calls.fetch_add(1, Ordering::SeqCst);
        misbehave(&mut stream, fault, id).await?;
    }
    let bytes = match answered {
        Some(body) => {
            let mut bytes = head(true, END_HEADERS, id);
            bytes.extend(frame(DATA, END_STREAM, id, body.to_string().as_bytes()));
            bytes
        }
        None if request.body.is_null() => head(false, END_HEADERS | END_STREAM, id),
        None => head(true, END_HEADERS | END_STREAM, id),
    };
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    while stream.read(&mut [0; 4096]).await? > 0 {}
    Ok(())
}

async fn misbehave(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    fault: Fault,
    id: u32,
) -> std::io::Result<()> {
    let (calm, internal) = ([0, 0, 0, 11], [0, 0, 0, 2]);
    match fault {
        Fault::NoWindow => {}
        Fault::Goaway => {
            let last = [id.to_be_bytes(), calm].concat();
            stream.write_all(&frame(GOAWAY, 0, 0, &last)).await?;
            stream.shutdown().await?;
        }
        Fault::ResetStream => stream.write_all(&frame(RST_STREAM, 0, id, &internal)).await?,
        Fault::ManySettings => {
            let (mut reader, mut writer) = tokio::io::split(stream);
            // their acknowledgements are read, or they would be in the way of each other
            let reading = async {
                while reader.read(&mut [0; 4096]).await? > 0 {}
                std::io::Result::Ok(())
            };
            let writing = async {
                writer.write_all(&frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]).repeat(10_000)).await?;
                writer.flush().await
            };
            tokio::select! {
                _ = reading => {}
                written = writing => written?,
            }
        }
        Fault::EmptyData => {
            stream.write_all(&head(true, END_HEADERS, id)).await?;
            let flood = frame(DATA, 0, id, &[]).repeat(100);
            loop {
                stream.write_all(&flood).await?;
            }
        }
        Fault::EndlessHead => {
            stream.write_all(&head(true, 0, id)).await?;
            let more = [vec![0x00, 1, b'x', 0x7f, 0x81, 0x7d], vec![b'x'; 16_000]].concat();
            loop {
                stream.write_all(&frame(CONTINUATION, 0, id, &more)).await?;
            }
        }
    }
    Ok(())
}

/// The outcome of a call to a server with this fault, and how often it was called.
async fn called(fault: Fault) -> (Result<ToolOutput, ToolError>, usize) {
    let authority = Authority::new();
    let peer = peer(&authority, fault).await;
    let pool = authority.pool();
    let tools = tools(&pool, http(&peer.url));
    assert_eq!(names(&list(&tools).await), ["echo"]);
    let length = if fault == Fault::NoWindow { 200_000 } else { 0 };
    let calling = call(&tools, "echo", json!({"text": "x".repeat(length)}));
    let is_called = || peer.calls.load(Ordering::SeqCst) == 1;
    let outcome = match fault {
        Fault::NoWindow => hurried(calling, || peer.received.load(Ordering::SeqCst) >= WINDOW).await,
        Fault::EmptyData | Fault::EndlessHead => hurried(calling, is_called).await,
        Fault::Goaway | Fault::ResetStream | Fault::ManySettings => calling.await,
    };
    pool.shutdown().await;
    (outcome, peer.calls.load(Ordering::SeqCst))
}

#[tokio::test]
async fn a_goaway_in_the_middle_of_a_call_is_a_lost_call_that_is_not_made_again() {
    let (outcome, calls) = called(Fault::Goaway).await;
    assert!(matches!(outcome, Err(ToolError::Lost { .. })), "{outcome:?}");
    assert_eq!(calls, 1);
}

#[tokio::test]
async fn a_stream_that_is_reset_is_a_lost_call_that_is_not_made_again() {
    let (outcome, calls) = called(Fault::ResetStream).await;
    assert!(matches!(outcome, Err(ToolError::Lost { .. })), "{outcome:?}");
    assert_eq!(calls, 1);
}

#[tokio::test]
async fn a_window_that_never_opens_is_given_up_with_the_call() {
    let (outcome, calls) = called(Fault::NoWindow).await;
    assert!(matches!(outcome, Err(ToolError::Timeout { .. })), "{outcome:?}");
    assert_eq!(calls, 0);
}

#[tokio::test]
async fn a_flood_of_empty_data_ends_with_the_call() {
    let (outcome, calls) = called(Fault::EmptyData).await;
    assert!(matches!(outcome, Err(ToolError::Timeout { .. } | ToolError::Lost { .. })), "{outcome:?}");
    assert_eq!(calls, 1);
}

#[tokio::test]
async fn ten_thousand_settings_are_survived() {
    let (outcome, calls) = called(Fault::ManySettings).await;
    assert!(matches!(outcome, Ok(_) | Err(ToolError::Lost { .. })), "{outcome:?}");
    assert_eq!(calls, 1);
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let (outcome, calls) = called(Fault::EndlessHead).await;
    assert!(matches!(outcome, Err(ToolError::Timeout { .. } | ToolError::Lost { .. })), "{outcome:?}");
    assert_eq!(calls, 1);
}
