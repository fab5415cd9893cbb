//! Encryption in front of a peer that has none, with a certificate of an authority that nobody knows.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::runtime;

/// One that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Its own certificate, in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The URL of `localhost`, encrypted, behind which is what this one names on the loopback. It is there for as long
    /// as the test program runs.
    pub fn front(&self, url: &str) -> String {
        let rest = url.strip_prefix("http://").expect("a URL that is not encrypted");
        let (target, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let target: SocketAddr = target.parse().expect("an address");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let acceptor = runtime::block_on(async move {
            let config = ServerConfig::builder().with_no_client_auth();
            let config = config.with_single_cert(vec![certificate.der().clone()], key);
            TlsAcceptor::from(Arc::new(config.expect("a key that fits")))
        });
        let listener = runtime::block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        runtime::spawn(async move {
            while let Ok((outer, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                runtime::spawn(async move {
                    if let (Ok(mut outer), Ok(mut inner)) =
                        (acceptor.accept(outer).await, TcpStream::connect(target).await)
                    {
                        let _ = copy_bidirectional(&mut outer, &mut inner).await;
                    }
                });
            }
        });
        format!("https://localhost:{port}{path}")
    }
}
