//! Access to a server that a person gives and takes back.

use std::time::Duration;

use http::StatusCode;
use http::header::{ACCEPT, WWW_AUTHENTICATE};
use lf_core::McpServer;
use lf_core::project::{HttpServer, Transport};
use serde_json::json;

use super::SessionPool;
use crate::failure::Failure;
use crate::http::{describe_request, headers};
use crate::oauth::{Account, Challenge, Consent, LoggedIn, LoggedOut};

/// For a server to say what access it wants.
const CHALLENGE_LIMIT: Duration = Duration::from_secs(20);

impl SessionPool {
    /// Has somebody agree to our access to this server, also where there is access already. Asks for these scopes besides
    /// those that the file or the server names. Sessions of any process of this data directory have the token from the
    /// next request on. Dropping the future gives up; a code that was given meanwhile is lost.
    ///
    /// # Errors
    /// When the server is not remote, gets its token from the file, does not say where access is got, or when nobody
    /// agrees.
    pub async fn login(
        &self,
        server: &McpServer,
        consent: &Consent,
        scopes: &[String],
    ) -> Result<LoggedIn, Failure> {
        let (http, account) = self.account(server)?;
        let challenge = self.challenge(server, http).await?;
        account.login(challenge, scopes, consent).await
    }

    /// Deletes the tokens for this server, and tells the authorization server where it has a place for that. The next use
    /// needs a login.
    ///
    /// # Errors
    /// When the server is not remote, gets its token from the file, or when the data directory cannot be written.
    pub async fn logout(&self, server: &McpServer) -> Result<LoggedOut, Failure> {
        let (_, account) = self.account(server)?;
        account.logout().await
    }

    fn account<'a>(
        &self,
        server: &'a McpServer,
    ) -> Result<(&'a HttpServer, std::sync::Arc<Account>), Failure> {
        let (Transport::Http(http) | Transport::Sse(http)) = &server.transport else {
            return Err(Failure::new("is a program on this machine: nobody logs in to it"));
        };
        let account = self.0.surroundings.oauth.account(http).ok_or_else(|| {
            Failure::hinted(
                "has its token in the file: nobody logs in to it",
                "take `Authorization` out of `headers`, or `type: bearer` out of `auth`",
            )
        })?;
        Ok((http, account))
    }

    /// What a server answers to a request without a token; `None` where it does not want one for that.
    async fn challenge(&self, server: &McpServer, http: &HttpServer) -> Result<Option<Challenge>, Failure> {
        let client = self.0.surroundings.client(http)?;
        let request = match &server.transport {
            Transport::Sse(_) => client.get(&http.base_url).header(ACCEPT, "text/event-stream"),
            _ => {
                // the modern generation's first request: it opens no session
                let meta = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                });
                let message = json!({
                    "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta},
                });
                client
                    .post(&http.base_url)
                    .header(ACCEPT, "application/json, text/event-stream")
                    .header("mcp-protocol-version", "2026-07-28")
                    .header("mcp-method", "server/discover")
                    .json(&message)
            }
        };
        let request = request.headers(headers(http)?.into_iter().collect()).timeout(CHALLENGE_LIMIT);
        let response = request.send().await.map_err(|error| describe_request(&error, &http.base_url))?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(None);
        }
        let challenges = response.headers().get_all(WWW_AUTHENTICATE);
        let mut read = challenges.iter().filter_map(|value| value.to_str().ok()).map(Challenge::parse);
        let default = Challenge::default();
        Ok(Some(read.find(|challenge| *challenge != default).unwrap_or(default)))
    }
}
