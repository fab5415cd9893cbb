//! Who we are to an authorization server: registered beforehand, by a document that describes us, or by a registration
//! that we make. In this order, as MCP has it.

use lf_core::Secret;
use lf_core::project::{ClientMethod, OAuthClient};
use serde::Deserialize;
use serde_json::json;

use super::egress::{Egress, place};
use super::metadata::AuthorizationServer;
use super::store::{Client, Grant};
use super::tokens::{Credentials, now};
use crate::failure::{Failure, excerpt};

/// What people read when they are asked to agree.
const NAME: &str = "LlamaFarm (lf)";

#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<String>,
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

/// Finds out who we are, or registers. `redirect_uri` is `None` for a client that acts on its own behalf.
pub(super) async fn identify(
    egress: &Egress,
    told: &OAuthClient,
    server: &AuthorizationServer,
    (redirect_uri, scopes): (Option<&str>, &[String]),
    before: Option<&Grant>,
) -> Result<Client, Failure> {
    let redirect = redirect_uri.map(str::to_owned);
    if let Some(id) = &told.client_id {
        same_issuer_as_before(told, server, before)?;
        let method = preregistered_method(told, server)?;
        return Ok(Client {
            id: id.clone(),
            method: method.name().to_owned(),
            redirect_uri: redirect,
            ..Client::default()
        });
    }
    if let Some(url) = told.metadata_url.as_ref().filter(|_| server.client_id_metadata_document_supported) {
        let method =
            if told.private_key.is_some() { ClientMethod::PrivateKeyJwt } else { ClientMethod::None };
        return Ok(Client {
            id: url.clone(),
            method: method.name().to_owned(),
            redirect_uri: redirect,
            ..Client::default()
        });
    }
    if let Some(before) =
        before.filter(|before| before.issuer == server.issuer && is_usable(&before.client, redirect_uri))
    {
        return Ok(before.client.clone());
    }
    match (&server.registration_endpoint, redirect_uri) {
        (Some(endpoint), Some(redirect_uri)) => {
            register(egress, endpoint, server, redirect_uri, scopes).await
        }
        _ => Err(Failure::hinted(
            format!(
                "its authorization server `{}` knows only clients that are registered",
                excerpt(&server.issuer, 200)
            ),
            "register one there, and give its `client_id` in `auth`",
        )),
    }
}

fn is_usable(client: &Client, redirect_uri: Option<&str>) -> bool {
    let expires = client.secret_expires_at.filter(|at| *at != 0);
    client.is_registered
        && client.redirect_uri.as_deref() == redirect_uri
        && expires.is_none_or(|at| at > now() + 60)
}

/// A server that names another authorization server than before would be handed the secret meant for the first.
fn same_issuer_as_before(
    told: &OAuthClient,
    server: &AuthorizationServer,
    before: Option<&Grant>,
) -> Result<(), Failure> {
    let Some(before) = before.filter(|before| told.issuer.is_none() && before.issuer != server.issuer) else {
        return Ok(());
    };
    Err(Failure::hinted(
        format!(
            "now names the authorization server `{}`, where the client is registered with `{}`",
            excerpt(&server.issuer, 200),
            excerpt(&before.issuer, 200)
        ),
        "if that is right, `lf mcp logout` forgets the first, and `issuer` in `auth` says which one it is",
    ))
}

fn preregistered_method(told: &OAuthClient, server: &AuthorizationServer) -> Result<ClientMethod, Failure> {
    if let Some(method) = told.method {
        return Ok(method);
    }
    if told.private_key.is_some() {
        return Ok(ClientMethod::PrivateKeyJwt);
    }
    if told.client_secret.is_none() {
        return Ok(ClientMethod::None);
    }
    secret_method(server).ok_or_else(|| {
        let methods = server.token_endpoint_auth_methods_supported.clone().unwrap_or_default().join(", ");
        Failure::new(format!(
            "its authorization server takes no client secret, only: {}",
            excerpt(&methods, 200)
        ))
    })
}

/// How a secret is shown where the server leaves a choice. RFC 8414 has `client_secret_basic` where nothing is said.
fn secret_method(server: &AuthorizationServer) -> Option<ClientMethod> {
    let Some(supported) = &server.token_endpoint_auth_methods_supported else {
        return Some(ClientMethod::Basic);
    };
    let takes = |method: &ClientMethod| supported.iter().any(|name| name == method.name());
    [ClientMethod::Basic, ClientMethod::Post].into_iter().find(takes)
}

/// RFC 7591.
async fn register(
    egress: &Egress,
    endpoint: &str,
    server: &AuthorizationServer,
    redirect_uri: &str,
    scopes: &[String],
) -> Result<Client, Failure> {
    let url = egress.check(endpoint, "the registration endpoint")?;
    let supported = server.token_endpoint_auth_methods_supported.as_deref();
    let supported = supported.unwrap_or_default().iter().filter_map(|name| ClientMethod::parse(name));
    let mut supported: Vec<ClientMethod> = supported.collect();
    // A program on somebody's machine keeps no secret; one is taken where the server insists, and shown as it likes best:
    // servers of the Python SDK revoke nothing for clients that do it by the other way.
    supported.sort_by_key(|method| *method != ClientMethod::None);
    let wanted = supported.into_iter().find(|method| *method != ClientMethod::PrivateKeyJwt);
    let wanted = wanted.unwrap_or(ClientMethod::Basic);
    let mut body = json!({
        "client_name": NAME,
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted.name(),
    });
    if !scopes.is_empty() {
        body["scope"] = scopes.join(" ").into();
    }
    let answer = egress.post_json(&url, &body).await?;
    if !answer.status.is_success() {
        let told = String::from_utf8_lossy(&answer.body);
        return Err(Failure::hinted(
            format!("{} registers no client: {} {}", place(&url), answer.status, excerpt(&told, 300)),
            "register one there by hand, and give its `client_id` in `auth`",
        ));
    }
    let told: Registered = serde_json::from_slice(&answer.body)
        .map_err(|_| Failure::new(format!("{} answered with something else than a client", place(&url))))?;
    let method = told.token_endpoint_auth_method.as_deref().and_then(ClientMethod::parse);
    let method = match (&told.client_secret, method) {
        (None, _) => ClientMethod::None,
        (Some(_), Some(method)) => method,
        (Some(_), None) if wanted == ClientMethod::None => ClientMethod::None,
        (Some(_), None) => wanted,
    };
    Ok(Client {
        id: told.client_id,
        secret: told.client_secret,
        method: method.name().to_owned(),
        redirect_uri: Some(redirect_uri.to_owned()),
        is_registered: true,
        secret_expires_at: told.client_secret_expires_at,
    })
}

/// A client with what it proves itself by: its own secret, or that of the file.
pub(super) fn credentials(client: &Client, told: &OAuthClient) -> Credentials {
    let secret = match client.is_registered {
        true => client.secret.as_deref().map(Secret::from),
        false => told.client_secret.clone(),
    };
    Credentials {
        id: client.id.clone(),
        secret,
        private_key: told.private_key.clone(),
        method: ClientMethod::parse(&client.method).unwrap_or(ClientMethod::None),
    }
}
