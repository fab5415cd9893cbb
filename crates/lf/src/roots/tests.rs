use super::*;

fn certificate() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.self_signed(&key).unwrap().pem()
}

fn environment(pairs: &[(&str, &Path)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.to_str().unwrap().to_owned())).collect()
}

#[test]
fn a_file_of_certificates_comes_before_those_of_the_system_and_a_directory_in_their_place() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::tempdir().unwrap();
    let (own, bundle, missing) = (
        directory.path().join("own.pem"),
        directory.path().join("bundle.pem"),
        directory.path().join("none"),
    );
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(&own, format!("a comment\n{broken}{}", certificate())).unwrap();
    std::fs::write(&bundle, certificate().repeat(3)).unwrap();
    let count = |pairs: &[(&str, &Path)]| from(&environment(pairs), &[&missing, &bundle, &own]).len();
    assert_eq!(count(&[]), 0);
    assert_eq!(count(&[("SSL_CERT_FILE", &own)]), 1 + 3);
    assert_eq!(count(&[("SSL_CERT_FILE", &own), ("SSL_CERT_DIR", directory.path())]), 1);
    assert_eq!(count(&[("SSL_CERT_FILE", &missing)]), 3);
    assert_eq!(count(&[("SSL_CERT_DIR", directory.path())]), 0);
}
