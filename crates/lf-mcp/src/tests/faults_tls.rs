//! What is wrong with the encryption of servers (fault row 38). It fails closed, with the reason, and nothing less is
//! tried instead.

use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::faults_http::{http, legacy};
use super::http_peer::Peer;
use super::*;

/// Authorities so far: each has a name of its own.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// One that signs certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
}

impl Authority {
    pub(super) fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let number = MADE.fetch_add(1, Ordering::SeqCst);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&key).unwrap().der().to_vec();
        Self { issuer: Issuer::new(params, key), der }
    }

    /// A pool that trusts it.
    pub(super) fn pool(&self) -> SessionPool {
        SessionPool::new(PoolOptions { roots: vec![self.der.clone()], ..options() })
    }

    /// For a server with a certificate for this host, that was good in these years, with these protocols over TLS.
    pub(super) fn acceptor(&self, host: &str, years: (i32, i32), protocols: &[&str]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let certificate = certificate(host, years).signed_by(&key, &self.issuer).unwrap();
        acceptor(vec![certificate.der().clone()], &key, protocols)
    }
}

fn certificate(host: &str, years: (i32, i32)) -> CertificateParams {
    let mut params = CertificateParams::new([host.to_owned()]).unwrap();
    params.not_before = date_time_ymd(years.0, 1, 1);
    params.not_after = date_time_ymd(years.1, 1, 1);
    params
}

fn acceptor(
    chain: Vec<rustls::pki_types::CertificateDer<'static>>,
    key: &KeyPair,
    protocols: &[&str],
) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    let mut config = config.unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

pub(super) const GOOD: (i32, i32) = (2020, 2120);

/// Why a server with this certificate is down. It is not sent a single request.
async fn refused(pool: &SessionPool, tls: TlsAcceptor) -> (String, String) {
    let peer = Peer::start_with(Some(tls), legacy).await;
    let tools = tools(pool, http(&peer.url));
    let reason = down(&tools).await.replace(&peer.url, "URL");
    assert!(peer.requests.lock().unwrap().is_empty());
    (reason, tools.hint(NAME).unwrap())
}

#[tokio::test]
async fn a_server_with_a_certificate_of_a_named_authority_is_spoken_to() {
    let authority = Authority::new();
    let peer = Peer::start_with(Some(authority.acceptor("localhost", GOOD, &[])), legacy).await;
    let pool = authority.pool();
    let tools = tools(&pool, http(&peer.url));
    assert_eq!(names(&list(&tools).await), ["echo"]);
    assert_eq!(text(call(&tools, "echo", json!({})).await), "called");
    pool.shutdown().await;
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let (reason, hint) = refused(&authority.pool(), authority.acceptor("localhost", (2019, 2020), &[])).await;
    assert_eq!(reason, "the certificate of URL/ has expired");
    assert!(hint.contains("clock"));
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_yet_is_refused() {
    let authority = Authority::new();
    let (reason, _) = refused(&authority.pool(), authority.acceptor("localhost", (2119, 2120), &[])).await;
    assert_eq!(reason, "the certificate of URL/ is not valid yet");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let authority = Authority::new();
    let (reason, hint) = refused(&authority.pool(), authority.acceptor("other.test", GOOD, &[])).await;
    assert_eq!(reason, "the certificate of URL/ is for another host");
    assert!(hint.contains("base_url"));
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused_and_the_variable_named_that_helps() {
    let (unknown, known) = (Authority::new(), Authority::new());
    let (reason, hint) = refused(&known.pool(), unknown.acceptor("localhost", GOOD, &[])).await;
    assert_eq!(reason, "the certificate of URL/ is signed by nobody who is trusted here");
    assert!(hint.contains("SSL_CERT_FILE"));
}

#[tokio::test]
async fn a_certificate_that_signs_itself_is_refused() {
    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let own = certificate("localhost", GOOD).self_signed(&key).unwrap();
    let (reason, _) = refused(&authority.pool(), acceptor(vec![own.der().clone()], &key, &[])).await;
    assert_eq!(reason, "the certificate of URL/ is signed by nobody who is trusted here");
}

/// Why a server is down that answers the first bytes like this and then closes; it is spoken to in TLS only.
async fn answering(bytes: &'static [u8]) -> String {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut hello = [0; 2048];
            let read = stream.read(&mut hello).await.unwrap_or_default();
            assert!(read > 0 && hello[0] == 0x16, "a handshake and nothing else");
            let _ = stream.write_all(bytes).await;
        }
    });
    let pool = authority.pool();
    let reason = down(&tools(&pool, http(&url))).await.replace(&url, "URL");
    assert!(tasks.try_join_next().is_none(), "the peer is alive");
    reason
}

#[tokio::test]
async fn a_server_of_tls_1_0_only_is_refused() {
    // the alert `protocol_version`
    let alert = answering(&[0x15, 3, 1, 0, 2, 2, 70]).await;
    assert_eq!(alert, "URL/ offers no version of TLS that is safe");
    // a hello of TLS 1.0: 32 bytes of randomness, no session, TLS_RSA_WITH_AES_128_CBC_SHA, no compression
    let hello = answering(&[
        0x16, 3, 1, 0, 42, 2, 0, 0, 38, 3, 1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
        7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0x2f, 0,
    ])
    .await;
    assert_eq!(hello, "URL/ offers no version of TLS that is safe");
}

#[tokio::test]
async fn a_handshake_that_is_cut_off_is_told_as_such() {
    for bytes in [&b""[..], &[0x16, 3, 3], &[0x16, 3, 3, 0, 100, 2, 0, 0, 96, 3, 3]] {
        assert_eq!(answering(bytes).await, "the connection to URL/ was cut off while TLS was agreed on");
    }
}

#[tokio::test]
async fn a_server_that_does_not_encrypt_is_told_apart() {
    assert_eq!(answering(b"HTTP/1.1 400 Bad Request\r\n\r\n").await, "URL/ does not speak TLS");
}

#[tokio::test]
async fn a_server_without_encryption_is_reached_where_no_authority_is_known() {
    let peer = Peer::start(legacy).await;
    let pool = SessionPool::new(PoolOptions { roots: vec![vec![1, 2, 3]], ..options() });
    assert_eq!(names(&list(&tools(&pool, http(&peer.url))).await), ["echo"]);
}
