//! One client's access to one server: its token, kept and renewed, and what is done when the server wants another.
//!
//! One thing is done at a time for an account, and what changes its tokens goes on when the request that needed it is
//! dropped: a refresh token may be good for one use only.

mod login;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lf_core::Secret;
use lf_core::place::Reach;
use lf_core::project::OAuthClient;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::authorize::{Agreed, Wish, authorize};
use super::challenge::Challenge;
use super::egress::{Egress, Server};
use super::metadata::{Discovered, canonical, discover};
use super::store::{Grant, Stamp, Store};
use super::tokens::{self, TokenError, Tokens, now};
use super::{Consent, Means, client};
use crate::failure::Failure;
pub use login::{LoggedIn, LoggedOut};

/// How often it is looked whether another process has changed the tokens.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For which a server that wants a login is not asked again, unless the tokens change.
const DENIED_FOR: Duration = Duration::from_secs(30);

/// For which it is not tried again to get a token, where that failed for no reason that a login mends.
const FAILED_FOR: Duration = Duration::from_secs(5);

/// Why there is no access.
#[derive(Debug, Clone)]
pub(crate) enum Denied {
    /// Somebody has to agree first, and why.
    Login(String),
    /// The server refuses for a reason of its own, which no other token mends.
    Refused,
    Failed(Failure),
}

impl From<Failure> for Denied {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A refusal by the server.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    /// The token that it came for.
    pub(crate) used: Option<String>,
    /// 403, not 401.
    pub(crate) is_forbidden: bool,
    pub(crate) challenge: Challenge,
    /// Refusals of the same request before this one.
    pub(crate) earlier: usize,
}

pub(crate) struct Account {
    key: String,
    server: Server,
    told: OAuthClient,
    /// A token for ourselves, which nobody has to agree to.
    is_own: bool,
    means: Means,
    busy: AsyncMutex<()>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    grant: Option<Arc<Grant>>,
    seen: Option<(Stamp, Instant)>,
    denied: Option<Earlier>,
    failed: Option<Lapse>,
}

/// A token that could not be had in the place of another.
struct Lapse {
    token: Option<String>,
    at: Instant,
    failure: Failure,
}

/// A login that was wanted and is not there yet.
struct Earlier {
    token: Option<String>,
    at: Instant,
    reason: String,
}

impl Account {
    pub(super) fn new(
        key: String,
        (server, told, is_own): (Server, OAuthClient, bool),
        means: Means,
    ) -> Self {
        let (busy, known) = (AsyncMutex::default(), Mutex::default());
        Self { key, server, told, is_own, means, busy, known }
    }

    /// What its tokens are kept under.
    #[cfg(test)]
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Whether it is for this, as the file tells it now.
    pub(super) fn is_for(&self, key: &str, told: &OAuthClient, reach: Reach) -> bool {
        self.key == key && self.told == *told && self.server.reach == reach
    }

    /// Whether somebody agrees when it is asked for.
    pub(crate) fn is_attended(&self) -> bool {
        self.is_own || !matches!(self.means.consent, Consent::Absent)
    }

    /// The token for a request, renewed if it is about to expire. `None`: there is none, and whether one is needed is for
    /// the server to say. Dropping the future leaves a renewal running.
    pub(crate) async fn bearer(self: &Arc<Self>) -> Result<Option<Secret>, Denied> {
        let grant = self.current();
        let token = grant.as_ref().and_then(|grant| grant.access_token.clone());
        if let Some(reason) = self.denied_lately(token.as_deref()) {
            return Err(Denied::Login(reason));
        }
        let (Some(grant), Some(token)) = (grant, token) else { return Ok(None) };
        let can_renew = self.is_own || grant.refresh_token.is_some();
        if !can_renew || grant.renew_at.is_none_or(|at| at > now()) {
            return Ok(Some(token.into()));
        }
        match self.renew(token.clone()).await {
            Ok(()) => Ok(self.current().and_then(|grant| grant.access_token.as_deref().map(Secret::from))),
            // the server's next refusal leads to whoever agrees
            Err(Denied::Login(_)) if self.is_attended() => Ok(None),
            Err(Denied::Failed(_)) if grant.expires_at.is_some_and(|at| at > now()) => Ok(Some(token.into())),
            Err(denied) => Err(denied),
        }
    }

    /// Does what a refusal asks for. After `Ok`, the request can be sent again. Dropping the future leaves it running.
    pub(crate) async fn answer(self: &Arc<Self>, refusal: Refusal) -> Result<(), Denied> {
        let account = self.clone();
        let answering = self.means.tracker.spawn(async move { Box::pin(account.answer_now(refusal)).await });
        answering.await.unwrap_or_else(|_| Err(Failure::new("the access was given up").into()))
    }

    async fn renew(self: &Arc<Self>, used: String) -> Result<(), Denied> {
        let account = self.clone();
        let renewing = self.means.tracker.spawn(async move {
            let _busy = account.busy.lock().await;
            Box::pin(account.renew_now(&used)).await
        });
        renewing.await.unwrap_or_else(|_| Err(Failure::new("the renewal was given up").into()))
    }

    async fn answer_now(&self, refusal: Refusal) -> Result<(), Denied> {
        let _busy = self.busy.lock().await;
        let grant = self.reload();
        let token = grant.as_ref().and_then(|grant| grant.access_token.clone());
        if token.is_some() && token != refusal.used {
            // somebody else was faster
            return Ok(());
        }
        let challenge = refusal.challenge;
        let more = match refusal.is_forbidden {
            true => self.more_scopes(&challenge, grant.as_deref())?,
            false => Vec::new(),
        };
        if let Some(used) =
            refusal.used.filter(|_| !refusal.is_forbidden && refusal.earlier == 0 && !self.is_own)
            && grant.as_ref().is_some_and(|grant| grant.refresh_token.is_some())
        {
            match Box::pin(self.renew_now(&used)).await {
                Err(Denied::Login(_)) => {}
                renewed => return renewed,
            }
        }
        if !self.is_attended() {
            return Err(self.deny(token, &more).await);
        }
        if self.is_own {
            self.failed_lately(token.as_deref())?;
        }
        let obtained = Box::pin(self.obtain(&challenge, &more, &self.means.consent, true)).await;
        let obtained = obtained.map(drop).map_err(Denied::from);
        self.note_failure(token, &obtained);
        obtained
    }

    /// The scopes that a refusal asks for besides those that were asked for before.
    fn more_scopes(&self, challenge: &Challenge, grant: Option<&Grant>) -> Result<Vec<String>, Denied> {
        if !challenge.wants_scopes() {
            return Err(Denied::Refused);
        }
        let asked = grant.map(|grant| grant.asked.as_slice()).unwrap_or_default();
        let more: Vec<String> =
            challenge.scopes.iter().flatten().filter(|scope| !asked.contains(scope)).cloned().collect();
        if more.is_empty() {
            let scopes = challenge.scopes.clone().unwrap_or_default().join(" ");
            let failure = Failure::hinted(
                format!("refuses this, although the scopes that it wants for it were asked for: {scopes}"),
                "whoever logged in may not do this; `lf mcp logout` and `lf mcp login` make it another",
            );
            return Err(failure.into());
        }
        Ok(more)
    }

    /// Remembers that a login is wanted.
    async fn deny(&self, token: Option<String>, more: &[String]) -> Denied {
        if more.is_empty() {
            let reason = match token {
                None => "needs a login",
                Some(_) => "does not take its token any longer: it needs another login",
            };
            let reason = reason.to_owned();
            self.known().denied = Some(Earlier { token, at: Instant::now(), reason: reason.clone() });
            return Denied::Login(reason);
        }
        if let Err(error) = self.remember_wanted(more).await {
            tracing::warn!(%error, "what a login has to ask for is not remembered");
        }
        // the token is good for everything else
        Denied::Login(format!("needs a login that allows more for this: {}", more.join(" ")))
    }

    /// Beside the tokens, which another process may be about to renew.
    async fn remember_wanted(&self, more: &[String]) -> Result<(), Failure> {
        let _held = self.means.store.hold(&self.key).await?;
        let Some(grant) = self.reload() else { return Ok(()) };
        let mut grant = Grant::clone(&grant);
        extend(&mut grant.wanted, more);
        self.keep(grant).await
    }

    /// With a refresh token, or as ourselves, whoever is first of all processes. Not soon after a failure. Needs `busy`.
    async fn renew_now(&self, used: &str) -> Result<(), Denied> {
        self.failed_lately(Some(used))?;
        let renewed = Box::pin(self.try_renew(used)).await;
        self.note_failure(Some(used.to_owned()), &renewed);
        renewed
    }

    async fn try_renew(&self, used: &str) -> Result<(), Denied> {
        let _held = self.means.store.hold(&self.key).await?;
        let Some(grant) = self.reload() else { return Err(Denied::Login("needs a login".to_owned())) };
        if grant.access_token.as_deref().is_some_and(|token| token != used) {
            return Ok(());
        }
        let mut fields = match (&grant.refresh_token, self.is_own) {
            (_, true) => own_fields(&grant.asked),
            (Some(token), false) => {
                vec![("grant_type", "refresh_token".to_owned()), ("refresh_token", token.clone())]
            }
            (None, false) => {
                return Err(Denied::Login("its token has expired: it needs another login".to_owned()));
            }
        };
        fields.push(("resource", grant.resource.clone()));
        let egress = Egress::of(&self.server, &self.means.egress).await?;
        let credentials = client::credentials(&grant.client, &self.told);
        let endpoint = (grant.token_endpoint.as_str(), grant.issuer.as_str());
        match tokens::request(&egress, endpoint, &credentials, fields).await {
            Ok(tokens) => {
                let mut renewed = Grant::clone(&grant);
                // RFC 6749, section 6: the old one holds where no other comes
                renewed.refresh_token = tokens.refresh.or(renewed.refresh_token);
                renewed.access_token = Some(tokens.access);
                (renewed.expires_at, renewed.renew_at) = (tokens.expires_at, tokens.renew_at);
                if let Err(error) = self.keep(renewed).await {
                    tracing::warn!(%error, "a renewed token is gone with this process");
                }
                Ok(())
            }
            Err(TokenError::Invalid(failure)) if !self.is_own => {
                let mut spent = Grant::clone(&grant);
                (spent.access_token, spent.refresh_token) = (None, None);
                self.keep(spent).await?;
                Err(Denied::Login(format!("needs another login: {failure}")))
            }
            Err(error) => Err(error.into_failure().into()),
        }
    }

    /// Another token, from the start: discovery, registration, agreement. Needs `busy`.
    async fn obtain(
        &self,
        challenge: &Challenge,
        more: &[String],
        consent: &Consent,
        is_asked_for: bool,
    ) -> Result<LoggedIn, Failure> {
        let egress = Egress::of(&self.server, &self.means.egress).await?;
        let issuer = self.told.issuer.as_deref();
        let found = discover(&egress, &self.server.url, challenge, issuer, is_asked_for).await?;
        let before = self.reload();
        let before = before.as_deref();
        let mut scopes =
            self.told.scopes.clone().or_else(|| challenge.scopes.clone().filter(|_| more.is_empty()));
        if more.is_empty() {
            scopes = scopes.or_else(|| found.scopes.clone());
        }
        let mut scopes = scopes.unwrap_or_default();
        if let Some(before) = before.filter(|before| before.issuer == found.server.issuer) {
            extend(&mut scopes, &before.asked);
            extend(&mut scopes, &before.wanted);
        }
        extend(&mut scopes, more);
        let agreed = match self.is_own {
            true => self.for_ourselves(&egress, &found, scopes, before).await?,
            false => {
                authorize(&egress, Wish { told: &self.told, found: &found, scopes, before }, consent).await?
            }
        };
        let granted = agreed.tokens.scopes.clone().unwrap_or_else(|| agreed.asked.clone());
        let grant = self.grant(&found, agreed)?;
        let logged_in = LoggedIn {
            issuer: grant.issuer.clone(),
            scopes: granted,
            expires_in: grant.expires_at.map(|at| at.saturating_sub(now())),
            is_renewable: self.is_own || grant.refresh_token.is_some(),
        };
        let _held = self.means.store.hold(&self.key).await?;
        self.keep(grant).await?;
        Ok(logged_in)
    }

    async fn for_ourselves(
        &self,
        egress: &Egress,
        found: &Discovered,
        asked: Vec<String>,
        before: Option<&Grant>,
    ) -> Result<Agreed, Failure> {
        let server = &found.server;
        let client = client::identify(egress, &self.told, server, (None, &asked), before).await?;
        let mut fields = own_fields(&asked);
        fields.push(("resource", found.resource.clone()));
        let credentials = client::credentials(&client, &self.told);
        let endpoint = (server.token_endpoint()?, server.issuer.as_str());
        let tokens: Result<Tokens, TokenError> =
            tokens::request(egress, endpoint, &credentials, fields).await;
        Ok(Agreed { client, tokens: tokens.map_err(TokenError::into_failure)?, asked })
    }

    fn grant(&self, found: &Discovered, agreed: Agreed) -> Result<Grant, Failure> {
        Ok(Grant {
            server: canonical(&self.server.url),
            resource: found.resource.clone(),
            issuer: found.server.issuer.clone(),
            token_endpoint: found.server.token_endpoint()?.to_owned(),
            revocation_endpoint: found.server.revocation_endpoint.clone(),
            client: agreed.client,
            asked: agreed.asked,
            wanted: Vec::new(),
            access_token: Some(agreed.tokens.access),
            refresh_token: agreed.tokens.refresh,
            expires_at: agreed.tokens.expires_at,
            renew_at: agreed.tokens.renew_at,
        })
    }

    /// Holds for this process also where it cannot be written.
    async fn keep(&self, grant: Grant) -> Result<(), Failure> {
        let grant = Arc::new(grant);
        let set = || {
            let seen = Some((self.means.store.stamp(&self.key), Instant::now()));
            *self.known() = Known { grant: Some(grant.clone()), seen, denied: None, failed: None };
        };
        set();
        self.means.store.save(&self.key, &grant).await?;
        set();
        Ok(())
    }

    /// What is known, not older than a second.
    fn current(&self) -> Option<Arc<Grant>> {
        {
            let known = self.known();
            if known.seen.is_some_and(|(_, at)| at.elapsed() < LOOK_EVERY) {
                return known.grant.clone();
            }
        }
        self.reload()
    }

    /// What is kept now.
    fn reload(&self) -> Option<Arc<Grant>> {
        let stamp = self.means.store.stamp(&self.key);
        let mut known = self.known();
        if known.seen.is_none_or(|(seen, _)| seen != stamp) || matches!(self.means.store, Store::Memory(_)) {
            known.grant = self.means.store.load(&self.key).map(Arc::new);
            if let Store::Directory(_) = self.means.store {
                (known.denied, known.failed) = (None, None);
            }
        }
        known.seen = Some((stamp, Instant::now()));
        known.grant.clone()
    }

    fn denied_lately(&self, token: Option<&str>) -> Option<String> {
        let known = self.known();
        let denied = known.denied.as_ref()?;
        let holds = denied.token.as_deref() == token && denied.at.elapsed() < DENIED_FOR;
        holds.then(|| denied.reason.clone())
    }

    /// Fails as the last attempt to get a token in the place of this one did, where that was just now: whoever waited for
    /// it would otherwise ask a server again that takes long to fail.
    fn failed_lately(&self, token: Option<&str>) -> Result<(), Denied> {
        let known = self.known();
        let failed = known.failed.as_ref();
        let failed =
            failed.filter(|failed| failed.token.as_deref() == token && failed.at.elapsed() < FAILED_FOR);
        failed.map_or(Ok(()), |failed| Err(Denied::Failed(failed.failure.clone())))
    }

    fn note_failure(&self, token: Option<String>, outcome: &Result<(), Denied>) {
        if let Err(Denied::Failed(failure)) = outcome {
            tracing::warn!(error = %failure, "no token could be had");
            self.known().failed = Some(Lapse { token, at: Instant::now(), failure: failure.clone() });
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn own_fields(scopes: &[String]) -> Vec<(&'static str, String)> {
    let mut fields = vec![("grant_type", "client_credentials".to_owned())];
    if !scopes.is_empty() {
        fields.push(("scope", scopes.join(" ")));
    }
    fields
}

fn extend(scopes: &mut Vec<String>, more: &[String]) {
    for scope in more {
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
    }
}

#[cfg(test)]
mod tests;
