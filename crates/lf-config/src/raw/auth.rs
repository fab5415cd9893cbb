//! `auth` of an MCP server, as the file writes it.

use lf_core::Secret;
use schemars::JsonSchema;
use serde::Deserialize;

/// How to get a token for an http or sse server.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "auth")]
pub struct RawAuth {
    /// Where the token comes from.
    #[serde(rename = "type")]
    #[schemars(required)]
    pub kind: Option<RawAuthKind>,
    /// bearer: the token itself, such as `${env:API_TOKEN}`.
    #[schemars(with = "Option<String>", length(min = 1))]
    pub token: Option<Secret>,
    /// Id of a client that is registered with the authorization server. Without one, oauth describes itself by
    /// `client_metadata_url`, or registers itself where that is offered.
    #[schemars(length(min = 1))]
    pub client_id: Option<String>,
    /// Secret of that client.
    #[schemars(with = "Option<String>", length(min = 1))]
    pub client_secret: Option<Secret>,
    /// PEM of an unencrypted PKCS #8 key (P-256 or RSA) that the client proves itself with instead of a secret.
    #[schemars(with = "Option<String>", length(min = 1))]
    pub private_key: Option<Secret>,
    /// How the client proves who it is. Default: what the authorization server takes.
    pub token_endpoint_auth_method: Option<RawClientMethod>,
    /// oauth: https URL of a document that describes this client (CIMD), for servers that know such.
    #[schemars(length(min = 1))]
    pub client_metadata_url: Option<String>,
    /// What to ask for. Default: what the server asks for, or else what it lists.
    #[schemars(extend("uniqueItems" = true))]
    pub scopes: Option<Vec<String>>,
    /// oauth: the port of 127.0.0.1 that the browser comes back to. Default: a free one.
    #[schemars(range(min = 1, max = 65535))]
    pub redirect_port: Option<u32>,
    /// oauth: the same as a URL, where one is registered, such as `http://localhost:8400/callback`.
    #[schemars(length(min = 1))]
    pub redirect_uri: Option<String>,
    /// The only authorization server to trust, as it names itself. Default: the one that the server names first; a
    /// registered client stays with it.
    #[schemars(length(min = 1))]
    pub issuer: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawAuthKind {
    /// From an authorization server, once a person has agreed: `lf mcp login`.
    Oauth,
    /// From an authorization server, for ourselves.
    ClientCredentials,
    /// From this file.
    Bearer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawClientMethod {
    /// It does not: a public client.
    None,
    /// By its secret, in a header.
    ClientSecretBasic,
    /// By its secret, in the body.
    ClientSecretPost,
    /// By a signature with its key.
    PrivateKeyJwt,
}
