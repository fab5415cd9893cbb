use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Instant, timeout};

use super::*;

/// Serves one endless answer to the client at the other end, which has asked for it. Ends with the connection.
fn endless(chunks: &Arc<AtomicU32>) -> (DuplexStream, impl Future<Output = bool>) {
    let (client, server) = tokio::io::duplex(1024);
    let held = Arc::clone(chunks);
    let handler = hyper::service::service_fn(move |_: hyper::Request<Incoming>| {
        let told = Arc::clone(&held);
        let chunks = stream::repeat_with(move || {
            told.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 512]))
        });
        async move { Ok::<_, Infallible>(hyper::Response::new(Body::from_stream(chunks))) }
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(unstalled(server)), handler);
    (client, async move { connection.await.is_err() })
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_loses_its_connection_and_its_answer() {
    let chunks = Arc::default();
    let (mut client, connection) = endless(&chunks);
    client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let began = Instant::now();
    assert!(timeout(WRITE_STALL * 2, connection).await.expect("it ends"), "it ends with an error");
    assert_eq!(began.elapsed().as_secs(), WRITE_STALL.as_secs());
    assert!(chunks.load(Ordering::Relaxed) > 0);
    assert_eq!(Arc::strong_count(&chunks), 1, "the answer is dropped");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_keeps_its_connection() {
    let chunks = Arc::default();
    let (mut client, connection) = endless(&chunks);
    client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let reading = async {
        let mut some = [0; 100];
        for _ in 0..20 {
            tokio::time::advance(WRITE_STALL / 2).await;
            client.read_exact(&mut some).await.expect("there is always more");
        }
    };
    tokio::select! {
        _ = connection => panic!("the connection ended"),
        () = reading => {}
    }
}
