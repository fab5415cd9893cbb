//! What a person does with an account: logging in and out.

use super::{Account, Grant};
use crate::failure::Failure;
use crate::oauth::challenge::Challenge;
use crate::oauth::egress::Egress;
use crate::oauth::{Consent, client, tokens};

/// What a login gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedIn {
    /// Who gave the token.
    pub issuer: String,
    pub scopes: Vec<String>,
    /// Seconds until the token has to be renewed; `None` where nothing was said.
    pub expires_in: Option<u64>,
    /// Whether it can be renewed without a person.
    pub is_renewable: bool,
}

/// What a logout did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedOut {
    /// There was nothing.
    Nothing,
    /// Deleted here; the authorization server has no place to say so, so that the token holds until it expires.
    Forgotten,
    Revoked,
    /// Deleted here, but the authorization server did not take it.
    NotRevoked(String),
}

impl Account {
    /// Has somebody agree, also where there is a token already. `challenge` is what the server answers without one, if
    /// it wants one.
    pub(crate) async fn login(
        &self,
        challenge: Option<Challenge>,
        more: &[String],
        consent: &Consent,
    ) -> Result<LoggedIn, Failure> {
        let _busy = self.busy.lock().await;
        let is_asked_for = challenge.is_some();
        let mut challenge = challenge.unwrap_or_default();
        // what is asked for besides must not replace what the server wants
        let more: Vec<String> = match (more.is_empty(), challenge.scopes.take()) {
            (true, scopes) => {
                challenge.scopes = scopes;
                Vec::new()
            }
            (false, scopes) => scopes.into_iter().flatten().chain(more.iter().cloned()).collect(),
        };
        Box::pin(self.obtain(&challenge, &more, consent, is_asked_for)).await
    }

    /// Forgets the tokens, and tells the authorization server where it has a place for that.
    pub(crate) async fn logout(&self) -> Result<LoggedOut, Failure> {
        let _busy = self.busy.lock().await;
        let _held = self.means.store.hold(&self.key).await?;
        let grant = self.reload();
        self.means.store.remove(&self.key).await?;
        self.reload();
        let Some(grant) = grant.filter(|grant| grant.access_token.is_some() || grant.refresh_token.is_some())
        else {
            return Ok(LoggedOut::Nothing);
        };
        let Some(endpoint) = &grant.revocation_endpoint else { return Ok(LoggedOut::Forgotten) };
        match self.revoke(&grant, endpoint).await {
            Ok(()) => Ok(LoggedOut::Revoked),
            Err(failure) => Ok(LoggedOut::NotRevoked(failure.reason)),
        }
    }

    async fn revoke(&self, grant: &Grant, endpoint: &str) -> Result<(), Failure> {
        let egress = Egress::of(&self.server, &self.means.egress).await?;
        let credentials = client::credentials(&grant.client, &self.told);
        let mut outcome = Ok(());
        let refresh = grant.refresh_token.as_deref().map(|token| (token, "refresh_token"));
        let access = grant.access_token.as_deref().map(|token| (token, "access_token"));
        for token in refresh.into_iter().chain(access) {
            let revoked = tokens::revoke(&egress, (endpoint, &grant.issuer), &credentials, token).await;
            outcome = outcome.and(revoked);
        }
        outcome
    }
}
