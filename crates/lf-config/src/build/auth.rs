//! `auth` of an MCP server.

use lf_core::project::{Auth, ClientMethod, OAuthClient};
use url::{Host, Url};

use super::{Reading, is_header_value};
use crate::diagnostic::{Span, quote};
use crate::node::Node;
use crate::raw::{RawAuth, RawAuthKind, RawClientMethod};

/// Keys of one `type` only.
const OF_BEARER: [&str; 1] = ["token"];
const OF_CLIENTS: [&str; 6] =
    ["client_id", "client_secret", "private_key", "token_endpoint_auth_method", "scopes", "issuer"];
const OF_PEOPLE: [&str; 3] = ["client_metadata_url", "redirect_uri", "redirect_port"];
const KEY_BEGINS: &str = "-----BEGIN PRIVATE KEY-----";

/// `None` where there is none, or where it has mistakes, which are told.
pub(super) fn read(reading: &mut Reading<'_, '_, '_>, raw: &RawAuth) -> Option<Auth> {
    let node = reading.node("auth")?;
    let kind = raw.kind?;
    if let Some(header) = reading.node("headers").and_then(authorization) {
        let message = "`Authorization` in `headers` is not sent: `auth` gets the token";
        reading.report.warning(header, message).label("has no effect").hint("keep one of the two");
    }
    let (without_effect, name) = match kind {
        RawAuthKind::Bearer => ([OF_CLIENTS.as_slice(), &OF_PEOPLE].concat(), "bearer"),
        RawAuthKind::Oauth => (OF_BEARER.to_vec(), "oauth"),
        RawAuthKind::ClientCredentials => ([OF_BEARER.as_slice(), &OF_PEOPLE].concat(), "client_credentials"),
    };
    for key in without_effect {
        if let Some(entry) = node.entry(key) {
            let message = format!("{} has no effect with `type: {name}`", quote(key));
            reading.report.warning(&entry.key_span, message);
        }
    }
    match kind {
        RawAuthKind::Bearer => bearer(reading, node, raw),
        RawAuthKind::Oauth => client(reading, node, raw).map(Auth::OAuth),
        RawAuthKind::ClientCredentials => own(reading, node, raw).map(Auth::ClientCredentials),
    }
}

fn authorization(headers: &Node) -> Option<&Span> {
    let header = headers.entries().iter().find(|entry| entry.key.eq_ignore_ascii_case("authorization"))?;
    Some(&header.key_span)
}

fn bearer(reading: &mut Reading<'_, '_, '_>, node: &Node, raw: &RawAuth) -> Option<Auth> {
    let (Some(token), Some(given)) = (&raw.token, node.get("token")) else {
        lacks(reading, node, "token", "`type: bearer` sends it: `token: ${env:API_TOKEN}`");
        return None;
    };
    let text = token.expose();
    if !is_header_value(text) || !text.is_ascii() || text.contains(' ') {
        let wrong = reading.wrong(given, "`token` holds what cannot be in a token".to_owned());
        if let Some(diagnostic) = wrong {
            diagnostic.hint("the token alone, without `Bearer`, spaces and line breaks");
        }
        return None;
    }
    Some(Auth::Bearer(token.clone()))
}

fn own(reading: &mut Reading<'_, '_, '_>, node: &Node, raw: &RawAuth) -> Option<OAuthClient> {
    if raw.client_id.is_none() {
        lacks(reading, node, "client_id", "`type: client_credentials` is for a client that is registered");
    }
    if raw.client_secret.is_none() && raw.private_key.is_none() {
        lacks(
            reading,
            node,
            "client_secret",
            "give it, or `private_key`: the client proves with it who it is",
        );
    }
    client(reading, node, raw)
}

fn client(reading: &mut Reading<'_, '_, '_>, node: &Node, raw: &RawAuth) -> Option<OAuthClient> {
    if let Some(entry) = node.entry("client_secret").filter(|_| raw.client_id.is_none()) {
        let message = "`client_secret` without `client_id` belongs to nobody";
        reading.report.error(&entry.key_span, message).hint("give the `client_id` of the registration too");
    }
    let method = raw.token_endpoint_auth_method.map(|method| match method {
        RawClientMethod::None => ClientMethod::None,
        RawClientMethod::ClientSecretBasic => ClientMethod::Basic,
        RawClientMethod::ClientSecretPost => ClientMethod::Post,
        RawClientMethod::PrivateKeyJwt => ClientMethod::PrivateKeyJwt,
    });
    needs_proof(reading, node, raw, method);
    key(reading, node, raw);
    scopes(reading, node);
    place(reading, node.get("client_metadata_url"), "client_metadata_url");
    place(reading, node.get("issuer"), "issuer");
    let redirect_uri = redirect(reading, node, raw);
    Some(OAuthClient {
        client_id: raw.client_id.clone(),
        client_secret: raw.client_secret.clone(),
        private_key: raw.private_key.clone(),
        method,
        metadata_url: raw.client_metadata_url.clone(),
        scopes: raw.scopes.clone(),
        redirect_uri,
        issuer: raw.issuer.clone(),
    })
}

fn needs_proof(reading: &mut Reading<'_, '_, '_>, node: &Node, raw: &RawAuth, method: Option<ClientMethod>) {
    let lacking = match method {
        Some(ClientMethod::Basic | ClientMethod::Post) if raw.client_secret.is_none() => "client_secret",
        Some(ClientMethod::PrivateKeyJwt) if raw.private_key.is_none() => "private_key",
        _ => return,
    };
    let span = node.span_of("token_endpoint_auth_method");
    let message = format!("this `token_endpoint_auth_method` needs {}", quote(lacking));
    reading.report.error(&span, message).label("nothing to prove it with");
}

fn key(reading: &mut Reading<'_, '_, '_>, node: &Node, raw: &RawAuth) {
    let (Some(key), Some(given)) = (&raw.private_key, node.get("private_key")) else { return };
    if !key.expose().contains(KEY_BEGINS)
        && let Some(diagnostic) =
            reading.wrong(given, format!("`private_key` is no PEM that begins with `{KEY_BEGINS}`"))
    {
        diagnostic.hint("`openssl pkcs8 -topk8 -nocrypt -in KEY.pem` makes one of other keys");
    }
}

fn scopes(reading: &mut Reading<'_, '_, '_>, node: &Node) {
    // RFC 6749, section 3.3
    let is_scope = |text: &str| {
        text.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e)) && !text.is_empty()
    };
    for item in node.get("scopes").map(Node::items).unwrap_or_default() {
        let text = item.as_str().unwrap_or_default();
        let is_variable = reading.expanded.is_from_variable(item);
        if !is_scope(text)
            && let Some(diagnostic) =
                reading.wrong(item, format!("{} cannot be a scope", reading.quoted(item)))
            && text.contains(' ')
            && !is_variable
        {
            let words: Vec<&str> = text.split_whitespace().collect();
            diagnostic.hint(format!("write them one by one: `scopes: [{}]`", words.join(", ")));
        }
    }
}

/// A URL that another party is asked at, or that stands for us there.
fn place(reading: &mut Reading<'_, '_, '_>, given: Option<&Node>, key: &str) {
    let Some(given) = given else { return };
    let text = given.as_str().unwrap_or_default();
    let is_fit = Url::parse(text).is_ok_and(|url| {
        let is_secure = match url.scheme() {
            "https" => true,
            "http" => key == "issuer" && is_here(&url),
            _ => false,
        };
        is_secure && url.fragment().is_none() && (key == "issuer" || url.path() != "/")
    });
    if !is_fit
        && let Some(diagnostic) =
            reading.wrong(given, format!("{} is not a URL that can be used here", quote(key)))
    {
        diagnostic.hint(match key {
            "issuer" => "an `https` URL, exactly as the authorization server names itself",
            _ => "an `https` URL of a document that describes this client",
        });
    }
}

fn redirect(reading: &mut Reading<'_, '_, '_>, node: &Node, raw: &RawAuth) -> Option<String> {
    let given = node.entry("redirect_uri");
    if let (Some(_), Some(entry)) = (given, node.entry("redirect_port")) {
        let message = "`redirect_port` and `redirect_uri` are two places to come back to";
        reading
            .report
            .error(&entry.key_span, message)
            .hint("keep one: the port stands for `http://127.0.0.1:PORT/callback`");
        return None;
    }
    let Some(entry) = given else {
        return raw.redirect_port.map(|port| format!("http://127.0.0.1:{port}/callback"));
    };
    let text = raw.redirect_uri.clone()?;
    let is_fit = Url::parse(&text).is_ok_and(|url| {
        url.scheme() == "http" && is_here(&url) && url.query().is_none() && url.fragment().is_none()
    });
    if !is_fit
        && let Some(diagnostic) =
            reading.wrong(&entry.node, "`redirect_uri` is no place on this machine".to_owned())
    {
        diagnostic.hint("such as `http://127.0.0.1:8400/callback`: http, without a query");
    }
    Some(text)
}

fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn lacks(reading: &mut Reading<'_, '_, '_>, node: &Node, key: &str, hint: &str) {
    if reading.context.removed.contains(node, key) {
        return;
    }
    let message = format!("`auth` has no {}", quote(key));
    reading.report.error(&node.span, message).label("in this entry").hint(hint);
}
