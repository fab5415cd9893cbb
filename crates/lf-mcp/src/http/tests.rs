use lf_core::project::Transport as Kind;
use rmcp::model::{ListToolsRequest, RequestId};

use super::*;
use crate::secrets::Secrets;
use crate::tests::http_peer::{Peer, Reply};
use crate::tests::server;

fn backend(url: &str) -> Backend {
    let http = HttpServer { base_url: url.to_owned(), headers: Vec::new() };
    let secrets = Secrets::of(&server(Kind::Http(http)), &[]);
    let signals = Arc::new(Signals::new(Arc::new(secrets)));
    Backend { client: client().unwrap(), signals, base_url: url.into() }
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
