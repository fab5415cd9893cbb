//! The authorization code flow: a person, or whoever stands in for one, agrees at the authorization server, and the code
//! that comes back is exchanged for tokens (RFC 6749, section 4.1; PKCE as RFC 7636; RFC 8707; RFC 9207).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lf_core::project::OAuthClient;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use url::Url;

use super::callback::Callback;
use super::egress::{Egress, place};
use super::metadata::Discovered;
use super::store::{Client, Grant};
use super::tokens::{self, TokenError, Tokens};
use super::{Consent, Person, client, random};
use crate::failure::{Failure, excerpt};

/// For a person to log in and agree.
const CONSENT_LIMIT: Duration = Duration::from_secs(10 * 60);
/// Pages between the authorization endpoint and the redirect, where nobody looks at them.
const MAX_PAGES: usize = 5;
/// Where a redirect leads that is not followed.
const NOWHERE: &str = "http://127.0.0.1/callback";
/// The scope for a refresh token, of OpenID Connect.
const OFFLINE: &str = "offline_access";

/// What is asked for.
pub(super) struct Wish<'a> {
    pub(super) told: &'a OAuthClient,
    pub(super) found: &'a Discovered,
    pub(super) scopes: Vec<String>,
    pub(super) before: Option<&'a Grant>,
}

/// What was agreed to.
pub(super) struct Agreed {
    pub(super) client: Client,
    pub(super) tokens: Tokens,
    pub(super) asked: Vec<String>,
}

/// Has somebody agree, and gets the tokens.
pub(super) async fn authorize(egress: &Egress, wish: Wish<'_>, consent: &Consent) -> Result<Agreed, Failure> {
    let Wish { told, found, mut scopes, before } = wish;
    let server = &found.server;
    requires_pkce(found)?;
    let endpoint =
        server.authorization_endpoint.as_deref().ok_or_else(|| server.lacks("authorization endpoint"))?;
    let endpoint = egress.check(endpoint, "the authorization endpoint")?;
    let before_uri = before.and_then(|before| before.client.redirect_uri.as_deref());
    let callback = match consent {
        Consent::Person(_) => Some(Callback::bind(told.redirect_uri.as_deref(), before_uri).await?),
        Consent::Follow | Consent::Absent => None,
    };
    let redirect_uri = match &callback {
        Some(callback) => callback.redirect_uri.clone(),
        None => told.redirect_uri.as_deref().or(before_uri).unwrap_or(NOWHERE).to_owned(),
    };
    let is_offline = server.scopes_supported.iter().flatten().any(|scope| scope == OFFLINE);
    if is_offline && !scopes.is_empty() && !scopes.iter().any(|scope| scope == OFFLINE) {
        scopes.push(OFFLINE.to_owned());
    }
    let client = client::identify(egress, told, server, (Some(&redirect_uri), &scopes), before).await?;
    let (state, verifier) = (random()?, random()?);
    let asked = [
        ("client_id", client.id.clone()),
        ("redirect_uri", redirect_uri.clone()),
        ("state", state.clone()),
        ("code_challenge", URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier))),
        ("resource", found.resource.clone()),
    ];
    let url = page(endpoint, &asked, &scopes);
    let query = match (consent, &callback) {
        (Consent::Person(person), Some(callback)) => ask(person.as_ref(), callback, &url, &state).await?,
        _ => follow(egress, url, &redirect_uri).await?,
    };
    let code = code_in(&query, &state, found)?;
    let fields = vec![
        ("grant_type", "authorization_code".to_owned()),
        ("code", code),
        ("redirect_uri", redirect_uri),
        ("code_verifier", verifier),
        ("resource", found.resource.clone()),
    ];
    let credentials = client::credentials(&client, told);
    let tokens = tokens::request(egress, (server.token_endpoint()?, &server.issuer), &credentials, fields)
        .await
        .map_err(TokenError::into_failure)?;
    Ok(Agreed { client, tokens, asked: scopes })
}

/// The page where somebody agrees.
fn page(endpoint: Url, asked: &[(&str, String)], scopes: &[String]) -> Url {
    let mut url = endpoint;
    let mut query = url.query_pairs_mut();
    query
        .append_pair("response_type", "code")
        .append_pair("code_challenge_method", "S256")
        .extend_pairs(asked);
    if !scopes.is_empty() {
        query.append_pair("scope", &scopes.join(" "));
    }
    if scopes.iter().any(|scope| scope == OFFLINE) {
        // OpenID Connect Core, section 11
        query.append_pair("prompt", "consent");
    }
    drop(query);
    url
}

/// MCP refuses servers that do not say that they check the proof: a code could be used by whoever sees it.
fn requires_pkce(found: &Discovered) -> Result<(), Failure> {
    let methods = &found.server.code_challenge_methods_supported;
    match methods.as_ref().is_some_and(|methods| methods.iter().any(|method| method == "S256")) {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "its authorization server `{}` does not say that it supports PKCE with S256, which MCP requires",
            excerpt(&found.server.issuer, 200)
        ))),
    }
}

/// Shows the URL, and waits for the browser to come back, or for the person to say where it went.
async fn ask(person: &dyn Person, callback: &Callback, url: &Url, state: &str) -> Result<String, Failure> {
    person.visit(url.as_str());
    let is_ours = |query: &str| value(query, "state").as_deref() == Some(state);
    let pasted = async {
        loop {
            let text = person.pasted().await;
            let query = text.trim().split_once('?').map(|(_, query)| query.to_owned());
            match query.filter(|query| is_ours(query)) {
                Some(query) => return query,
                None => person.tell("that is not the address that this login leads to"),
            }
        }
    };
    let answered = async {
        tokio::select! {
            query = callback.answer(is_ours) => query,
            query = pasted => query,
        }
    };
    timeout(CONSENT_LIMIT, answered)
        .await
        .map_err(|_| Failure::new(format!("nobody agreed within {} minutes", CONSENT_LIMIT.as_secs() / 60)))
}

/// Requests the page ourselves, for servers that need nobody to look at it.
async fn follow(egress: &Egress, start: Url, redirect_uri: &str) -> Result<String, Failure> {
    let mut url = start;
    // as the parser writes it, which is how it comes back
    let redirect_uri = Url::parse(redirect_uri).map_or_else(|_| redirect_uri.to_owned(), String::from);
    for _ in 0..MAX_PAGES {
        let page = egress.get_page(&url).await?;
        let Some(location) = page.location.filter(|_| page.status.is_redirection()) else {
            return Err(Failure::hinted(
                format!("{} answered {} instead of a redirect: it wants a person", place(&url), page.status),
                "log in without `--follow-authorization`",
            ));
        };
        let next =
            url.join(&location).map_err(|_| Failure::new("was redirected to something that is not a URL"))?;
        let bare = next.as_str().split(['?', '#']).next().unwrap_or_default();
        if bare == redirect_uri {
            return Ok(next.query().unwrap_or_default().to_owned());
        }
        url = egress.check(next.as_str(), "the next page of the authorization")?;
    }
    Err(Failure::new(format!("{} redirects from page to page", place(&url))))
}

/// The code in the query of a redirect, once it is certain whose it is.
fn code_in(query: &str, state: &str, found: &Discovered) -> Result<String, Failure> {
    if value(query, "state").as_deref() != Some(state) {
        return Err(Failure::new(
            "the answer to the authorization is not to this request: its `state` is another",
        ));
    }
    // RFC 9207, section 2.4: also for errors, which could be another server's
    let server = &found.server;
    match value(query, "iss") {
        Some(issuer) if issuer != server.issuer => {
            return Err(Failure::new(format!(
                "the answer to the authorization is of another issuer than `{}`",
                excerpt(&server.issuer, 200)
            )));
        }
        None if server.authorization_response_iss_parameter_supported => {
            return Err(Failure::new("the answer to the authorization does not say who its issuer is"));
        }
        _ => {}
    }
    if let Some(error) = value(query, "error") {
        let why = value(query, "error_description").map(|text| format!(" ({})", excerpt(&text, 200)));
        return Err(Failure::new(format!(
            "access was refused: {}{}",
            excerpt(&error, 100),
            why.unwrap_or_default()
        )));
    }
    value(query, "code")
        .filter(|code| !code.is_empty())
        .ok_or_else(|| Failure::new("the answer to the authorization has no code in it"))
}

/// The value of a field that is there once. One that is there twice could be read in two ways.
fn value(query: &str, name: &str) -> Option<String> {
    let mut values = url::form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name);
    let value = values.next()?.1.into_owned();
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests;
