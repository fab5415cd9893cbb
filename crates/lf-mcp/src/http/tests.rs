use std::io;

use lf_core::project::Transport as Kind;
use rmcp::model::{ListToolsRequest, RequestId};

use lf_egress::Resolver;

use super::fate::fate;
use super::*;
use crate::secrets::Secrets;
use crate::tap::MAX_UNREACHED;
use crate::tests::http_peer::{Peer, Reply};
use crate::tests::server;

fn way() -> Egress {
    Egress::new(Arc::default(), Vec::new())
}

fn plain(way: Egress, connect_timeout: Duration) -> reqwest::Client {
    // whichever test comes first; the second installation is refused, which is fine
    let _ = rustls::crypto::ring::default_provider().install_default();
    let clients = clients_within(way, connect_timeout).unwrap();
    client(&clients, &HttpServer::new("http://127.0.0.1/")).unwrap()
}

fn backend(url: &str) -> Backend {
    let http = HttpServer::new(url);
    let secrets = Secrets::of(&server(Kind::Http(http)), &[]);
    let signals = Arc::new(Signals::new(Arc::new(secrets), Arc::default()));
    Backend::new(plain(way(), CONNECT_TIMEOUT), Access::free(signals.clone()), signals, url)
}

async fn list(backend: &Backend) -> Result<StreamableHttpPostResponse, HttpError> {
    let request = ClientRequest::ListToolsRequest(ListToolsRequest::default());
    let message = ClientJsonRpcMessage::request(request, RequestId::Number(1));
    let url = backend.base_url.clone();
    backend.post_message(url, message, None, None, HashMap::new()).await
}

#[tokio::test]
async fn a_request_that_finds_no_port_is_sent_once_the_port_is_open_again() {
    let peer = Peer::start(|_| Reply::accepted()).await;
    let backend = backend(&peer.url);
    peer.set_open(false).await;
    let reopening = async {
        while backend.signals.unreached_in_a_row() == 0 {
            tokio::task::yield_now().await;
        }
        peer.set_open(true).await;
    };
    let (posted, ()) = tokio::join!(list(&backend), reopening);
    assert!(matches!(posted, Ok(StreamableHttpPostResponse::Accepted)), "{posted:?}");
    assert_eq!(peer.count("tools/list"), 1);
    assert_eq!(backend.signals.unreached_in_a_row(), 0);
    assert!(!backend.signals.dead.is_cancelled());
}

#[tokio::test]
async fn connects_that_fail_end_a_connection_only_when_nothing_is_waited_for() {
    let peer = Peer::start(|_| Reply::accepted()).await;
    let backend = backend(&peer.url);
    peer.set_open(false).await;
    let asking = backend.signals.ask().unwrap();
    for _ in 0..2 {
        let posted = list(&backend).await;
        assert!(posted.as_ref().is_err_and(is_unsent), "{posted:?}");
    }
    assert_eq!(backend.signals.unreached_in_a_row(), 2 * MAX_UNREACHED);
    assert!(!backend.signals.dead.is_cancelled());
    drop(asking);
    assert!(backend.signals.dead.is_cancelled());
    assert!(backend.signals.ask().is_none());
}

/// Fault row 32: a host that a firewall swallows connects to.
#[tokio::test]
async fn a_host_that_takes_no_connection_is_given_up_after_the_connect_timeout_and_tried_once() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    // nobody accepts, so a few connections fill the queue
    let mut queued = Vec::new();
    while let Ok(connected) =
        tokio::time::timeout(Duration::from_millis(50), tokio::net::TcpStream::connect(address)).await
    {
        queued.push(connected);
        assert!(queued.len() < 100);
    }
    let client = plain(way(), Duration::from_millis(100));
    let backend = Backend { client, ..backend(&format!("http://{address}")) };
    let error = list(&backend).await.unwrap_err();
    assert_eq!(fate(&error), Fate::Unsent);
    let failure = describe(&error, "http://swallowed.test/?key=secret");
    assert_eq!(failure.reason, "no connection to http://swallowed.test/ within 10 s");
    assert_eq!(backend.signals.unreached_in_a_row(), 1, "tried once");
}

/// Fault row 32
#[tokio::test]
async fn a_host_that_does_not_exist_is_told_and_looked_up_once() {
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = asked.clone();
    let mut way = way();
    way.resolver = Resolver::scripted(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Err(io::Error::other("Name or service not known"))
    });
    let url = "http://no-such-host.test/mcp";
    let backend = Backend { client: plain(way, CONNECT_TIMEOUT), ..backend(url) };
    // a third would count the server as gone
    for _ in 0..2 {
        let error = list(&backend).await.unwrap_err();
        assert_eq!(fate(&error), Fate::Unsent);
        assert_eq!(describe(&error, url).reason, format!("the host of {url} was not found"));
    }
    assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1);
}
