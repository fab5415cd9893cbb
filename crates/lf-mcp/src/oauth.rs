//! Access to remote servers that want a token which somebody agreed to, or that we get for ourselves (OAuth 2.1 as MCP
//! has it).
//!
//! Everything is done by hand over the HTTP client that there is. The library's own way knows no address check at the
//! moment of dialling, and would share a refresh token neither between processes nor between the sessions of one.

mod account;
mod assertion;
mod authorize;
mod callback;
mod challenge;
mod client;
mod egress;
mod metadata;
mod store;
mod tokens;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lf_core::project::{Auth, HttpServer, OAuthClient};
use lf_core::tool::BoxFuture;
use lf_egress::Egress as Way;
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::failure::Failure;
pub(crate) use account::{Account, Denied, Refusal};
pub use account::{LoggedIn, LoggedOut};
pub(crate) use challenge::Challenge;
use store::Store;

/// Who agrees to an access that a server wants.
#[derive(Clone, Default)]
pub enum Consent {
    /// Nobody is there: such a server is told to need a login.
    #[default]
    Absent,
    /// The authorization page is requested by ourselves, for servers that need nobody to look at it.
    Follow,
    /// A person with a browser.
    Person(Arc<dyn Person>),
}

impl fmt::Debug for Consent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "Absent",
            Self::Follow => "Follow",
            Self::Person(_) => "Person",
        })
    }
}

/// Somebody who can be shown a page.
pub trait Person: Send + Sync {
    /// The page to visit: an `https` URL, or an `http` one of this machine, of visible ASCII characters only.
    fn visit(&self, url: &str);
    /// Something to know meanwhile.
    fn tell(&self, text: &str);
    /// The address that the browser was sent to in the end, for one that does not run on this machine. Waits for ever
    /// where nothing can be typed.
    fn pasted(&self) -> BoxFuture<'_, String>;
}

/// What every account works with.
#[derive(Clone)]
struct Means {
    store: Store,
    consent: Consent,
    egress: Way,
    tracker: TaskTracker,
}

/// For which an account is kept that no session has: what it knows of refusals and failures costs no network then.
const UNUSED_FOR: Duration = Duration::from_secs(60);

/// All accounts of the process.
pub(crate) struct OAuth {
    means: Means,
    accounts: Mutex<Vec<Kept>>,
}

struct Kept {
    account: Arc<Account>,
    wanted: Instant,
}

impl OAuth {
    /// Tokens are kept in this directory, or in memory where there is none.
    pub(crate) fn new(
        directory: Option<PathBuf>,
        consent: Consent,
        egress: Way,
        tracker: TaskTracker,
    ) -> Self {
        let means = Means { store: Store::new(directory), consent, egress, tracker };
        Self { means, accounts: Mutex::default() }
    }

    /// The account for a server that may need one; `None` where the file says how it gets in.
    pub(crate) fn account(&self, server: &HttpServer) -> Option<Arc<Account>> {
        let base_url = Url::parse(&server.base_url).ok()?;
        let default = OAuthClient::default();
        let (client, is_own) = match &server.auth {
            Some(Auth::Bearer(_)) => return None,
            Some(Auth::OAuth(client)) => (client, false),
            Some(Auth::ClientCredentials(client)) => (client, true),
            None if server.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) => {
                return None;
            }
            None => (&default, false),
        };
        let key = key(&base_url, client, is_own);
        let wanted = Instant::now();
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = accounts.iter_mut().find(|kept| kept.account.is_for(&key, client, server.reach)) {
            kept.wanted = wanted;
            return Some(kept.account.clone());
        }
        accounts.retain(|kept| Arc::strong_count(&kept.account) > 1 || kept.wanted.elapsed() < UNUSED_FOR);
        let place = egress::Server { url: base_url, reach: server.reach };
        let account = Account::new(key, (place, client.clone(), is_own), self.means.clone());
        let account = Arc::new(account);
        accounts.push(Kept { account: account.clone(), wanted });
        Some(account)
    }
}

/// A name for a file: whose tokens for which server. A client that has to prove who it is has its tokens to itself: who
/// only knows its name would else use them, in another project of the same daemon.
fn key(base_url: &Url, client: &OAuthClient, is_own: bool) -> String {
    let mut parts = vec![
        base_url.as_str().to_owned(),
        if is_own { "client_credentials" } else { "authorization_code" }.to_owned(),
        client.client_id.clone().unwrap_or_default(),
        client.metadata_url.clone().unwrap_or_default(),
        client.issuer.clone().unwrap_or_default(),
    ];
    for (kind, proof) in [("secret", &client.client_secret), ("key", &client.private_key)] {
        parts.extend(proof.as_ref().map(|proof| format!("{kind} {}", proof.expose())));
    }
    let digest = Sha256::digest(parts.join("\n"));
    let hash: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    let host: String = base_url
        .host_str()
        .unwrap_or("server")
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '.')
        .take(60)
        .collect();
    format!("{}-{hash}", host.trim_matches('.'))
}

/// 256 bits that nobody can guess, as text that needs no escaping.
fn random() -> Result<String, Failure> {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Failure::new("the system gives no random numbers"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests;
