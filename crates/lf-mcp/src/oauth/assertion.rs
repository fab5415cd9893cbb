//! A client that proves who it is with a key (RFC 7523, section 2.2; the audience is the issuer, as its successor has it).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::json;

use super::random;
use super::tokens::now;
use crate::failure::Failure;

/// For which an assertion holds, in seconds: it is used at once.
const LIFE: u64 = 120;

enum Key {
    Es256(EcdsaKeyPair),
    Rs256(RsaKeyPair),
}

pub(super) fn sign(pem: &str, client_id: &str, issuer: &str) -> Result<String, Failure> {
    let generator = SystemRandom::new();
    let unusable = || {
        Failure::hinted(
            "the client's private key cannot be used",
            "`private_key` must be the PEM of an unencrypted PKCS #8 key: P-256, or RSA of 2048 bits or more",
        )
    };
    let key = parse(pem, &generator).ok_or_else(unusable)?;
    let algorithm = if matches!(key, Key::Es256(_)) { "ES256" } else { "RS256" };
    let (issued, id) = (now(), random()?);
    let claims = json!({
        "iss": client_id, "sub": client_id, "aud": issuer, "jti": id, "iat": issued, "exp": issued + LIFE,
    });
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(json!({"alg": algorithm, "typ": "JWT"})), part(claims));
    let signature = match &key {
        Key::Es256(key) => {
            key.sign(&generator, signed.as_bytes()).ok().map(|signature| signature.as_ref().to_vec())
        }
        Key::Rs256(key) => {
            let mut signature = vec![0; key.public().modulus_len()];
            let done = key.sign(&RSA_PKCS1_SHA256, &generator, signed.as_bytes(), &mut signature);
            done.ok().map(|()| signature)
        }
    };
    let signature = signature.ok_or_else(unusable)?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

fn parse(pem: &str, generator: &SystemRandom) -> Option<Key> {
    const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
    let body = pem.split_once(BEGIN)?.1.split_once("-----END PRIVATE KEY-----")?.0;
    let body: String = body.replace("\\n", "").split_whitespace().collect();
    let der = STANDARD.decode(body).ok()?;
    let curve = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, generator);
    curve.map(Key::Es256).ok().or_else(|| RsaKeyPair::from_pkcs8(&der).map(Key::Rs256).ok())
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};
    use serde_json::Value;

    use super::*;

    #[test]
    fn an_assertion_is_signed_for_the_issuer_and_short_lived() {
        let generator = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &generator).unwrap();
        let pem =
            format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(&key));
        let signed = sign(&pem, "me", "https://id.example").unwrap();
        let parts: Vec<&str> = signed.split('.').collect();
        let [header, claims, signature] = parts[..] else { panic!("{signed}") };
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let json = |part: &str| serde_json::from_slice::<Value>(&decoded(part)).unwrap();
        assert_eq!(json(header)["alg"], "ES256");
        let claims_json = json(claims);
        assert_eq!((&claims_json["iss"], &claims_json["sub"]), (&"me".into(), &"me".into()));
        assert_eq!(claims_json["aud"], "https://id.example");
        assert_eq!(claims_json["exp"].as_u64().unwrap() - claims_json["iat"].as_u64().unwrap(), LIFE);
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &generator).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
        public.verify(format!("{header}.{claims}").as_bytes(), &decoded(signature)).unwrap();
        assert_ne!(sign(&pem, "me", "x").unwrap(), sign(&pem, "me", "x").unwrap(), "each is used once");
    }

    #[test]
    fn what_is_no_key_is_told_without_showing_it() {
        for pem in [
            "",
            "abc",
            "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----",
            "-----BEGIN EC PRIVATE KEY-----",
        ] {
            let failure = sign(pem, "me", "x").unwrap_err();
            assert!(!format!("{failure:?}").contains("secret"), "{failure:?}");
        }
    }
}
