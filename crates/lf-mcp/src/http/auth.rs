//! The token that goes with the requests to one server, and what is done when the server refuses it.

use std::sync::Arc;

use http::StatusCode;
use http::header::WWW_AUTHENTICATE;
use lf_core::McpServer;
use lf_core::project::{Auth, HttpServer};
use reqwest::{RequestBuilder, Response};

use super::{Fate, describe_request};
use crate::failure::{Cause, Failure};
use crate::oauth::{Account, Challenge, Denied, OAuth, Refusal};
use crate::tap::Signals;

/// Refusals of one request that are answered: for an old token, for one of an earlier authorization server, and for one
/// that allows too little.
const MAX_REFUSALS: usize = 3;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    Request(reqwest::Error),
    /// The server is closed to us: the request was not run.
    Locked(Failure),
}

impl Unanswered {
    /// In words, and what became of the request.
    pub(crate) fn told(&self, base_url: &str) -> (Failure, Fate) {
        match self {
            Self::Request(error) if error.is_connect() => (describe_request(error, base_url), Fate::Unsent),
            Self::Request(error) => (describe_request(error, base_url), Fate::Unknown),
            Self::Locked(failure) => (failure.clone(), Fate::TurnedAway(None)),
        }
    }
}

/// One connection's access to its server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Access {
    server: Arc<str>,
    way: Way,
    /// Whether the file says how access is got.
    is_told: bool,
    signals: Arc<Signals>,
}

#[derive(Clone)]
enum Way {
    /// The file's headers, and nothing else.
    Headers,
    Token(lf_core::Secret),
    Account(Arc<Account>),
}

impl Access {
    pub(crate) fn new(server: &McpServer, http: &HttpServer, oauth: &OAuth, signals: Arc<Signals>) -> Self {
        let way = match (&http.auth, oauth.account(http)) {
            (Some(Auth::Bearer(token)), _) => Way::Token(token.clone()),
            (_, Some(account)) => Way::Account(account),
            (_, None) => Way::Headers,
        };
        let is_told = http.auth.is_some();
        Self { server: server.name.as_str().into(), way, is_told, signals }
    }

    /// For a server that needs nothing.
    #[cfg(test)]
    pub(crate) fn free(signals: Arc<Signals>) -> Self {
        Self { server: "free".into(), way: Way::Headers, is_told: false, signals }
    }

    /// The token for the next request, if there is one. Renews one that is about to expire; dropping the future leaves
    /// the renewal running.
    ///
    /// # Errors
    /// When it is known that the server wants a login, or when a token cannot be renewed now.
    pub(crate) async fn bearer(&self) -> Result<Option<String>, Failure> {
        let token = match &self.way {
            Way::Headers => return Ok(None),
            Way::Token(token) => token.clone(),
            Way::Account(account) => match account.bearer().await {
                Ok(Some(token)) => token,
                Ok(None) => return Ok(None),
                Err(denied) => return Err(self.failure(denied, StatusCode::UNAUTHORIZED)),
            },
        };
        self.signals.secrets.learn(&token);
        Ok(Some(token.expose().to_owned()))
    }

    /// Does what a 401 or 403 to a request asks for; `challenge` is its `WWW-Authenticate`, `earlier` counts such answers
    /// to the same request. After `Ok`, the request can be sent again, with [`Self::bearer`] asked anew: it was not run.
    ///
    /// # Errors
    /// Why the server stays closed to us; `None` where we have no part in it.
    pub(crate) async fn answer(
        &self,
        status: StatusCode,
        challenge: &str,
        used: Option<&str>,
        earlier: usize,
    ) -> Result<(), Option<Failure>> {
        let account = match &self.way {
            Way::Headers => return Err(None),
            Way::Token(_) => {
                return Err(Some(Failure::hinted(
                    format!("answered {status}: it does not take the token of `auth`"),
                    "check `token` in `auth`",
                )));
            }
            Way::Account(account) => account,
        };
        if earlier >= MAX_REFUSALS {
            let reason = format!("answered {status} to every token that it could be given");
            return Err(Some(Failure::new(reason).of(Cause::AuthRequired)));
        }
        let challenge = Challenge::parse(challenge);
        let is_bare = status == StatusCode::UNAUTHORIZED && !challenge.is_bearer && used.is_none();
        if is_bare && !self.is_told && !account.is_attended() {
            let hint = format!(
                "set `headers`, such as `Authorization: 'Bearer ${{env:API_TOKEN}}'`, to what the server expects, or try \
                 `lf mcp login {}`",
                self.server
            );
            let reason = format!("answered {status}: it needs credentials");
            return Err(Some(Failure::hinted(reason, hint).of(Cause::AuthRequired)));
        }
        let refusal = Refusal {
            used: used.map(str::to_owned),
            is_forbidden: status == StatusCode::FORBIDDEN,
            challenge,
            earlier,
        };
        match account.answer(refusal).await {
            Ok(()) => Ok(()),
            Err(Denied::Refused) => Err(None),
            Err(denied) => Err(Some(self.failure(denied, status))),
        }
    }

    /// Sends a request with the token, and again where a refusal can be answered. Any other refusal is returned.
    pub(crate) async fn send(
        &self,
        asked: &(dyn Fn() -> RequestBuilder + Sync),
    ) -> Result<Response, Unanswered> {
        let mut refusals = 0;
        loop {
            let bearer = self.bearer().await.map_err(Unanswered::Locked)?;
            let request = match &bearer {
                Some(bearer) => asked().bearer_auth(bearer),
                None => asked(),
            };
            let response = request.send().await.map_err(Unanswered::Request)?;
            let status = response.status();
            if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                return Ok(response);
            }
            let challenge = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
            match self.answer(status, challenge.unwrap_or_default(), bearer.as_deref(), refusals).await {
                Ok(()) => refusals += 1,
                Err(None) => return Ok(response),
                Err(Some(failure)) => return Err(Unanswered::Locked(failure)),
            }
        }
    }

    fn failure(&self, denied: Denied, status: StatusCode) -> Failure {
        let failure = match denied {
            Denied::Login(reason) => {
                let hint =
                    format!("run `lf mcp login {}` on this machine, and agree in the browser", self.server);
                Failure::hinted(reason, hint).of(Cause::AuthRequired)
            }
            Denied::Failed(failure) => failure,
            Denied::Refused => Failure::new(format!("answered {status}")),
        };
        // a server that wants a login is out of reach for all requests; one that wants more scopes is not
        if failure.cause == Cause::AuthRequired && status == StatusCode::UNAUTHORIZED {
            self.signals.note(&failure);
            self.signals.locked_out();
        }
        failure
    }
}
