//! From a tool server to its authorization server: the documents of RFC 9728, RFC 8414 and OpenID Connect Discovery.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::challenge::Challenge;
use super::egress::{Egress, place};
use crate::failure::{Failure, excerpt};

/// What a tool server tells of itself.
#[derive(Debug, Default, Deserialize)]
struct ResourceDocument {
    resource: Option<String>,
    authorization_servers: Option<Vec<String>>,
    scopes_supported: Option<Vec<String>>,
}

/// What an authorization server tells of itself.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct AuthorizationServer {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) token_endpoint: Option<String>,
    pub(super) registration_endpoint: Option<String>,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) scopes_supported: Option<Vec<String>>,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(super) code_challenge_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) client_id_metadata_document_supported: bool,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

impl AuthorizationServer {
    /// The endpoints that revision 2025-03-26 of MCP has where nothing is told.
    fn untold(issuer: &str) -> Self {
        let at = |path: &str| Some(format!("{issuer}{path}"));
        Self {
            issuer: issuer.to_owned(),
            authorization_endpoint: at("/authorize"),
            token_endpoint: at("/token"),
            registration_endpoint: at("/register"),
            code_challenge_methods_supported: Some(vec!["S256".to_owned()]),
            ..Self::default()
        }
    }

    pub(super) fn token_endpoint(&self) -> Result<&str, Failure> {
        self.token_endpoint.as_deref().ok_or_else(|| self.lacks("token endpoint"))
    }

    pub(super) fn lacks(&self, what: &str) -> Failure {
        Failure::new(format!("its authorization server `{}` has no {what}", excerpt(&self.issuer, 200)))
    }
}

/// Where access to a tool server is got.
#[derive(Debug)]
pub(super) struct Discovered {
    /// What a token is to be for (RFC 8707).
    pub(super) resource: String,
    /// What the tool server says it has.
    pub(super) scopes: Option<Vec<String>>,
    pub(super) server: AuthorizationServer,
}

/// Finds the authorization server of a tool server. `issuer` is the only one that will do, where the file says so.
/// `is_asked_for`: the tool server has said that it wants a token, so that it may be one that tells nothing else.
pub(super) async fn discover(
    egress: &Egress,
    base_url: &Url,
    challenge: &Challenge,
    issuer: Option<&str>,
    is_asked_for: bool,
) -> Result<Discovered, Failure> {
    let told = resource_document(egress, base_url, challenge).await?;
    let own = canonical(base_url);
    let resource = match told.as_ref().and_then(|told| told.resource.clone()) {
        Some(resource) if !covers(&resource, base_url) => {
            return Err(Failure::new(format!(
                "its metadata is for another resource, `{}`, so that no token is asked for",
                excerpt(&resource, 200)
            )));
        }
        Some(resource) => resource,
        None => own,
    };
    let named = told.as_ref().and_then(|told| told.authorization_servers.clone()).unwrap_or_default();
    let scopes = told.as_ref().and_then(|told| told.scopes_supported.clone());
    let wanted = match issuer {
        Some(issuer) if named.is_empty() || named.iter().any(|named| same_issuer(named, issuer)) => {
            issuer.to_owned()
        }
        Some(issuer) => {
            return Err(Failure::hinted(
                format!("does not take tokens of `{issuer}`, but of {}", listed(&named)),
                "correct `issuer` in `auth`",
            ));
        }
        None => named.first().cloned().unwrap_or_else(|| base_url.origin().ascii_serialization()),
    };
    let server = authorization_server(egress, &wanted).await?;
    let is_old = named.is_empty() && issuer.is_none() && is_asked_for;
    match server {
        Some(server) => Ok(Discovered { resource, scopes, server }),
        None if is_old => Ok(Discovered { resource, scopes, server: AuthorizationServer::untold(&wanted) }),
        None if named.is_empty() && issuer.is_none() => {
            Err(Failure::new("does not say where access to it is got: it may need none"))
        }
        None => Err(Failure::new(format!(
            "its authorization server `{}` tells nothing of itself",
            excerpt(&wanted, 200)
        ))),
    }
}

fn listed(issuers: &[String]) -> String {
    issuers.iter().take(5).map(|issuer| format!("`{}`", excerpt(issuer, 200))).collect::<Vec<_>>().join(", ")
}

async fn resource_document(
    egress: &Egress,
    base_url: &Url,
    challenge: &Challenge,
) -> Result<Option<ResourceDocument>, Failure> {
    if let Some(named) = &challenge.resource_metadata {
        let url = egress.check(named, "the metadata's URL")?;
        if let Some(document) = fetch(egress, &url).await? {
            return Ok(Some(document));
        }
    }
    let Ok(path) = egress.check(base_url.origin().ascii_serialization().as_str(), "the server's URL") else {
        // over http on another machine, it has no place that metadata is taken from
        return Err(Failure::hinted(
            "needs access that is not asked for over plain http",
            "use https in `base_url`, or give the token in `auth` or `headers`",
        ));
    };
    let suffix = base_url.path().trim_end_matches('/');
    for suffix in if suffix.is_empty() { vec![""] } else { vec![suffix, ""] } {
        let url = with_path(&path, &format!("/.well-known/oauth-protected-resource{suffix}"));
        if let Some(document) = fetch::<ResourceDocument>(egress, &url).await?
            && (document.resource.is_some() || document.authorization_servers.is_some())
        {
            return Ok(Some(document));
        }
    }
    Ok(None)
}

/// `None` where it tells nothing at any place that it could.
async fn authorization_server(egress: &Egress, issuer: &str) -> Result<Option<AuthorizationServer>, Failure> {
    let url = egress.check(issuer, "the authorization server")?;
    let path = url.path().trim_end_matches('/');
    let places = match path {
        "" => vec![
            "/.well-known/oauth-authorization-server".to_owned(),
            "/.well-known/openid-configuration".to_owned(),
        ],
        path => vec![
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("/.well-known/openid-configuration{path}"),
            format!("{path}/.well-known/openid-configuration"),
        ],
    };
    for path in places {
        let Some(server) = fetch::<AuthorizationServer>(egress, &with_path(&url, &path)).await? else {
            continue;
        };
        // RFC 8414, section 3.3: another's document is not used
        if !same_issuer(&server.issuer, issuer) {
            return Err(Failure::new(format!(
                "the metadata of authorization server `{}` is of another issuer, `{}`",
                excerpt(issuer, 200),
                excerpt(&server.issuer, 200)
            )));
        }
        return Ok(Some(server));
    }
    Ok(None)
}

/// Identical, but for the slash that URL libraries put after a bare host.
fn same_issuer(told: &str, wanted: &str) -> bool {
    fn host(text: &str) -> &str {
        text.strip_suffix('/').filter(|rest| rest.matches('/').count() == 2).unwrap_or(text)
    }
    host(told) == host(wanted)
}

/// A document, or `None` where there is none.
async fn fetch<T: DeserializeOwned>(egress: &Egress, url: &Url) -> Result<Option<T>, Failure> {
    let answer = egress.get(url).await?;
    if answer.status.is_server_error() {
        return Err(Failure::new(format!("{} answered {}", place(url), answer.status)));
    }
    if !answer.status.is_success() {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&answer.body).ok())
}

fn with_path(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_query(None);
    url.set_path(path);
    url
}

/// A server's URL as the name of what a token is for: without fragment, query and the slash of a bare host.
pub(super) fn canonical(base_url: &Url) -> String {
    let mut url = base_url.clone();
    url.set_fragment(None);
    url.set_query(None);
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let text: String = url.clone().into();
    if url.path() == "/" { text.trim_end_matches('/').to_owned() } else { text }
}

/// Whether a token for this resource is one for the server: the same origin, and the server at its path or below it.
fn covers(resource: &str, base_url: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let path = resource.path().trim_end_matches('/');
    let below = base_url.path().strip_prefix(path);
    resource.origin() == base_url.origin()
        && resource.fragment().is_none()
        && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests;
