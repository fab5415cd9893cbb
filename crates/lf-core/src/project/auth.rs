//! How access to a remote tool server is got.

use crate::Secret;

/// What an `http` or `sse` server is sent as `Authorization: Bearer`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Auth {
    /// This token, always.
    Bearer(Secret),
    /// A token that a person agreed to (`lf mcp login`).
    OAuth(OAuthClient),
    /// A token that we get for ourselves.
    ClientCredentials(OAuthClient),
}

/// Who we are to an authorization server, and what we ask it for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct OAuthClient {
    /// From a registration made beforehand. Without: by `metadata_url`, or by a registration that we make.
    pub client_id: Option<String>,
    pub client_secret: Option<Secret>,
    /// PEM of a PKCS #8 key, with which we sign who we are instead of telling a secret.
    pub private_key: Option<Secret>,
    /// How the client proves who it is. `None`: what the authorization server takes.
    pub method: Option<ClientMethod>,
    /// An https URL at which a document describes this client; its own name where servers know such.
    pub metadata_url: Option<String>,
    /// `None`: what the server asks for.
    pub scopes: Option<Vec<String>>,
    /// Where the browser is sent in the end: a URL of this machine. `None`: a free port of 127.0.0.1.
    pub redirect_uri: Option<String>,
    /// The only authorization server that is asked. `None`: the one that the server names first.
    pub issuer: Option<String>,
}

/// How a client proves to a token endpoint who it is, by the names of RFC 7591.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientMethod {
    Basic,
    Post,
    PrivateKeyJwt,
    /// Not at all: a public client.
    None,
}

impl ClientMethod {
    pub const ALL: [Self; 4] = [Self::None, Self::Basic, Self::Post, Self::PrivateKeyJwt];

    pub fn name(self) -> &'static str {
        match self {
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
            Self::None => "none",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }
}
