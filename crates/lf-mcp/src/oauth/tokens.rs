//! Requests to a token endpoint and a revocation endpoint (RFC 6749, sections 2.3, 4.1.3, 4.4 and 6; RFC 7009).

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lf_core::Secret;
use lf_core::project::ClientMethod;
use serde::Deserialize;
use url::form_urlencoded::byte_serialize;

use super::assertion;
use super::challenge;
use super::egress::{Egress, place};
use crate::failure::{Failure, excerpt};

/// A token is renewed this long before it expires, in seconds; one that is short-lived, when this share of it is left.
const EARLY: u64 = 30;
const EARLY_SHARE: u64 = 4;
/// Of a token, in bytes: it goes into a header.
const MAX_TOKEN: usize = 64 * 1024;
const SHOWN: usize = 200;

/// A client that is ready to prove who it is.
pub(super) struct Credentials {
    pub(super) id: String,
    pub(super) secret: Option<Secret>,
    pub(super) private_key: Option<Secret>,
    pub(super) method: ClientMethod,
}

/// What a token endpoint gave.
pub(super) struct Tokens {
    pub(super) access: String,
    pub(super) refresh: Option<String>,
    /// Seconds since 1970.
    pub(super) expires_at: Option<u64>,
    /// When to ask for the next one: a request with this one takes a while to arrive.
    pub(super) renew_at: Option<u64>,
    pub(super) scopes: Option<Vec<String>>,
}

/// Why there are no tokens.
#[derive(Debug)]
pub(super) enum TokenError {
    /// What was presented does not hold any longer, if it ever did: asking again does not help.
    Invalid(Failure),
    Failed(Failure),
}

impl From<Failure> for TokenError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl TokenError {
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Invalid(failure) | Self::Failed(failure) => failure,
        }
    }
}

#[derive(Deserialize)]
struct TokenDocument {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<serde_json::Value>,
    refresh_token: Option<String>,
    scope: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ErrorDocument {
    error: Option<String>,
    error_description: Option<String>,
}

/// A grant, presented to the token endpoint of `issuer`.
pub(super) async fn request(
    egress: &Egress,
    (endpoint, issuer): (&str, &str),
    credentials: &Credentials,
    mut fields: Vec<(&str, String)>,
) -> Result<Tokens, TokenError> {
    let url = egress.check(endpoint, "the token endpoint")?;
    let authorization = authenticate(credentials, issuer, &mut fields)?;
    let answer = egress.post_form(&url, &fields, authorization.as_deref()).await?;
    if !answer.status.is_success() {
        let told: ErrorDocument = serde_json::from_slice(&answer.body).unwrap_or_default();
        let code = told.error.unwrap_or_else(|| answer.status.to_string());
        let why = told.error_description.map(|text| format!(" ({})", without(&text, &fields, credentials)));
        let shown = without(&code, &fields, credentials);
        let failure =
            Failure::new(format!("{} gives no token: {shown}{}", place(&url), why.unwrap_or_default()));
        return Err(match code.as_str() {
            "invalid_grant" | "invalid_client" | "unauthorized_client" => TokenError::Invalid(failure),
            _ => TokenError::Failed(failure),
        });
    }
    let unreadable = || Failure::new(format!("{} answered with something else than a token", place(&url)));
    let told: TokenDocument = serde_json::from_slice(&answer.body).map_err(|_| unreadable())?;
    let is_bearer = told.token_type.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    let is_sendable = told.access_token.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
    if !is_bearer || !is_sendable || told.access_token.is_empty() || told.access_token.len() > MAX_TOKEN {
        return Err(TokenError::Failed(Failure::new(format!(
            "{} gave a token that cannot be sent as a bearer's",
            place(&url)
        ))));
    }
    let life = told.expires_in.as_ref().and_then(seconds);
    let ends_in = |early: u64| life.map(|life| now().saturating_add(life.saturating_sub(early)));
    Ok(Tokens {
        access: told.access_token,
        refresh: told.refresh_token.filter(|token| !token.is_empty() && token.len() <= MAX_TOKEN),
        expires_at: ends_in(0),
        renew_at: ends_in(life.unwrap_or_default().div_ceil(EARLY_SHARE).min(EARLY)),
        scopes: told.scope.as_deref().map(challenge::scopes),
    })
}

/// Tells the authorization server that a token is of no use any longer.
pub(super) async fn revoke(
    egress: &Egress,
    (endpoint, issuer): (&str, &str),
    credentials: &Credentials,
    (token, kind): (&str, &str),
) -> Result<(), Failure> {
    let url = egress.check(endpoint, "the revocation endpoint")?;
    let mut fields = vec![("token", token.to_owned()), ("token_type_hint", kind.to_owned())];
    let authorization = authenticate(credentials, issuer, &mut fields)?;
    let answer = egress.post_form(&url, &fields, authorization.as_deref()).await?;
    match answer.status.is_success() {
        true => Ok(()),
        false => Err(Failure::new(format!("{} answered {} to a revocation", place(&url), answer.status))),
    }
}

/// Adds who we are, in the fields or as the header that is returned.
fn authenticate(
    credentials: &Credentials,
    issuer: &str,
    fields: &mut Vec<(&str, String)>,
) -> Result<Option<String>, Failure> {
    // the Python SDK's servers look for it here, whatever the method
    fields.push(("client_id", credentials.id.clone()));
    let secret = credentials.secret.as_ref().map(Secret::expose);
    match (credentials.method, secret) {
        (ClientMethod::Basic, Some(secret)) => {
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encoded(&credentials.id), encoded(secret));
            return Ok(Some(format!("Basic {}", STANDARD.encode(pair))));
        }
        (ClientMethod::Post, Some(secret)) => fields.push(("client_secret", secret.to_owned())),
        (ClientMethod::PrivateKeyJwt, _) => {
            let key = credentials
                .private_key
                .as_ref()
                .ok_or_else(|| Failure::new("the client has no private key"))?;
            let assertion = assertion::sign(key.expose(), &credentials.id, issuer)?;
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            fields.push(("client_assertion_type", kind.to_owned()));
            fields.push(("client_assertion", assertion));
        }
        (ClientMethod::None, _) => {}
        (method, None) => {
            return Err(Failure::hinted(
                format!("the client has no secret to show by `{}`", method.name()),
                "give `client_secret` in `auth`",
            ));
        }
    }
    Ok(None)
}

/// What an endpoint says, without what it was sent.
fn without(text: &str, fields: &[(&str, String)], credentials: &Credentials) -> String {
    let mut sent: Vec<&str> = fields
        .iter()
        .filter(|(name, _)| {
            !matches!(*name, "grant_type" | "scope" | "resource" | "client_id" | "redirect_uri")
        })
        .map(|(_, value)| value.as_str())
        .collect();
    sent.extend(credentials.secret.as_ref().map(Secret::expose));
    // whole and before it is cut: the half of a secret is not found any more
    excerpt(&lf_core::secret::without(text, &sent), SHOWN)
}

/// Some send the number as text.
fn seconds(value: &serde_json::Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
