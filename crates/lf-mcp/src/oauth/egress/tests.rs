use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::*;

/// A server that counts who comes, and answers everybody with this.
async fn sink(answer: &'static str) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let visits = Arc::new(AtomicUsize::new(0));
    let counted = visits.clone();
    TaskTracker::new().spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, visits)
}

/// Looks names up in this list, one entry for each look; the last one holds.
fn resolver(answers: &'static [&'static str]) -> Resolver {
    let looks = AtomicUsize::new(0);
    Resolver::new(Arc::new(move |_| {
        let look = looks.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        async move { Ok::<_, io::Error>(vec![SocketAddr::new(answers[look].parse().unwrap(), 0)]) }.boxed()
    }))
}

async fn egress(server: &str, resolver: Resolver) -> Egress {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let way = Way { resolver, ..Way::new(Arc::default(), Vec::new()) };
    let server = Server { url: Url::parse(server).unwrap(), reach: Reach::Named };
    Egress::of(&server, &way).await.unwrap()
}

#[tokio::test]
async fn a_public_server_sends_us_to_no_private_place() {
    let (port, visits) = sink("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await;
    let egress = egress("https://8.8.8.8/mcp", resolver(&["127.0.0.1"])).await;
    let hosts = [
        "127.0.0.1",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "a.localhost",
        "0",
        "0.0.0.0",
        "127.1",
        "0177.0.0.1",
        "0x7f.1",
        "2130706433",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::]",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "[fe80::1]",
        "[fd00::1]",
        "user@127.0.0.1",
        "127.0.0.1#x",
    ];
    for host in hosts {
        for scheme in ["http", "https"] {
            let text = format!("{scheme}://{host}:{port}/");
            let refused = egress.check(&text, "the metadata's URL").unwrap_err();
            assert!(refused.reason.contains("refused"), "{text}: {refused}");
        }
    }
    // a name is found out when it is dialled
    let url = egress.check(&format!("https://innocent.example:{port}/"), "x").unwrap();
    let refused = egress.get(&url).await.err().unwrap();
    assert!(
        refused.reason.contains("`innocent.example` is not requested: its address is of this machine"),
        "{refused}"
    );
    assert_eq!(visits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_refused_at_every_dial() {
    let (port, visits) = sink("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    // the first look is that of the server's own kind, which is public; so is what it says of itself
    let egress =
        egress("http://flip.example/mcp", resolver(&["8.8.8.8", "127.0.0.1", "10.0.0.1", "169.254.169.254"]))
            .await;
    for _ in 0..4 {
        let url = Url::parse(&format!("https://flip.example:{port}/")).unwrap();
        let guard = egress.guard.clone();
        let found = guard.resolve("flip.example".parse().unwrap()).await;
        if let Ok(addresses) = found {
            assert!(addresses.into_iter().all(|address| Place::of(address.ip()) == Place::Public));
        } else {
            assert!(egress.get(&url).await.is_err());
        }
    }
    assert_eq!(visits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_server_on_this_machine_may_have_its_authorization_server_here_and_nowhere_private() {
    let (port, _) = sink("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await;
    let egress = egress("http://127.0.0.1:1/mcp", Resolver::system()).await;
    let url = egress.check(&format!("http://127.0.0.1:{port}/x"), "x").unwrap();
    assert_eq!(egress.get(&url).await.unwrap().body, b"{}");
    for text in [
        "http://10.0.0.1/",
        "https://10.0.0.1/",
        "http://169.254.169.254/",
        "http://example.com/",
        "ftp://127.0.0.1/",
    ] {
        assert!(egress.check(text, "x").is_err(), "{text}");
    }
    assert!(egress.check("https://example.com/authorize?a=b", "x").is_ok());
}

#[tokio::test]
async fn redirects_stay_within_the_origin() {
    let (elsewhere, visits) = sink("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    TaskTracker::new().spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 1024];
            let read = stream.read(&mut head).await.unwrap_or(0);
            let to = match &head[..read] {
                head if head.starts_with(b"GET /here ") => "/there".to_owned(),
                head if head.starts_with(b"GET /loop ") => "/loop".to_owned(),
                head if head.starts_with(b"GET /there ") => {
                    let _ = stream
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\n!")
                        .await;
                    continue;
                }
                _ => format!("http://127.0.0.1:{elsewhere}/"),
            };
            let answer = format!(
                "HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let egress = egress("http://127.0.0.1:1/mcp", Resolver::system()).await;
    let at = |path: &str| Url::parse(&format!("http://127.0.0.1:{port}{path}")).unwrap();
    assert_eq!(egress.get(&at("/here")).await.unwrap().body, b"!");
    assert_eq!(egress.get(&at("/loop")).await.unwrap().status, StatusCode::FOUND);
    assert_eq!(egress.get(&at("/away")).await.unwrap().status, StatusCode::FOUND);
    assert_eq!(visits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    TaskTracker::new().spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    });
    let egress = egress("http://127.0.0.1:1/mcp", Resolver::system()).await;
    let failure = egress.get(&Url::parse(&format!("http://127.0.0.1:{port}/")).unwrap()).await.err().unwrap();
    assert!(failure.reason.contains("more than 262144 bytes"), "{failure}");
}

#[tokio::test]
async fn what_is_no_plain_web_address_is_refused() {
    let egress = egress("http://127.0.0.1:1/mcp", Resolver::system()).await;
    for text in [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "--help",
        "",
        "https://",
        "https://x.example/\nfile:///etc/passwd",
        "https://x.example/ --flag",
        "https://x\u{0}.example/",
        "https://user:password@x.example/",
        "https://x.example/#fragment",
    ] {
        assert!(egress.check(text, "the authorization endpoint").is_err(), "{text:?}");
    }
    assert!(egress.check(&format!("https://x.example/{}", "a".repeat(5000)), "x").is_err());
}
