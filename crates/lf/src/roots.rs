//! The authorities whose certificates are trusted besides the system's.
//!
//! `SSL_CERT_FILE` means to most programs a file that comes before the system's directory, and to the TLS library used
//! here one that comes instead of everything. So the system's are added again, unless `SSL_CERT_DIR` takes the place of
//! the directory too.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Where systems keep all their authorities in one file.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Certificates in DER; none where the system's own are all there is. It blocks for as long as it takes to read a file.
pub(crate) fn roots(environment: &[(String, String)]) -> Vec<Vec<u8>> {
    from(environment, &BUNDLES.map(Path::new))
}

fn from(environment: &[(String, String)], bundles: &[&Path]) -> Vec<Vec<u8>> {
    let variable = |wanted| {
        let found = environment.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    };
    let Some(file) = variable("SSL_CERT_FILE") else { return Vec::new() };
    let mut roots = match read(Path::new(file)) {
        Some(roots) if !roots.is_empty() => roots,
        _ => {
            tracing::warn!(file, "`SSL_CERT_FILE` names no file with certificates in PEM");
            Vec::new()
        }
    };
    if variable("SSL_CERT_DIR").is_none() {
        roots.extend(bundles.iter().find_map(|bundle| read(bundle)).unwrap_or_default());
    }
    roots
}

/// The certificates of a file that can be used; `None` where there is no such file.
fn read(file: &Path) -> Option<Vec<Vec<u8>>> {
    let text = std::fs::read(file).ok()?;
    let usable = CertificateDer::pem_slice_iter(&text)
        .flatten()
        .filter(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok());
    Some(usable.map(|certificate| certificate.to_vec()).collect())
}

#[cfg(test)]
mod tests;
