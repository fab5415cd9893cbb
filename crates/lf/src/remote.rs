//! A running daemon, over HTTP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use lf_core::Secret;
use lf_server::access::{own_daemons, owner_token};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;

use crate::args::Common;
use crate::daemon::{base_url, root};
use crate::exit::Trouble;
use crate::project;

const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// A restart is answered when the server is up again, which may take its whole startup timeout.
const ANSWER_WAIT: Duration = Duration::from_secs(600);
/// Bytes of an answer.
const LONGEST: usize = 16 * 1024 * 1024;

/// A turn that is told as it goes: no longer than any turn may take, with all that people are asked in it.
const TOLD: Duration = Duration::from_secs(24 * 3600);

/// Where `lf serve` listens when it is not told where.
pub(crate) const HERE: &str = "http://127.0.0.1:14345";

#[derive(Clone)]
pub(crate) struct Remote {
    base_url: String,
    client: reqwest::Client,
    key: Option<Secret>,
}

/// Where a daemon is, and what it is asked with.
pub(crate) struct Door {
    pub base_url: String,
    pub key: Option<Secret>,
}

impl Door {
    /// The key of the environment goes to the daemon that is named. The owner's token goes to the owner's own daemon and to
    /// nobody else: whoever else may listen at that address.
    pub(crate) fn to(common: &Common, base_url: String) -> Self {
        let data_dir = project::data_dir(common);
        let port = reqwest::Url::parse(&base_url).ok().and_then(|url| url.port_or_known_default());
        let owns = port.map(|port| own_daemons(&data_dir, port)).unwrap_or_default();
        let own = owns.into_iter().find_map(|own| at_own(&base_url, own));
        let token = || {
            own.as_ref()?;
            owner_token(&data_dir).map(Secret::from).ok()
        };
        let key = common.api_key.clone().or_else(token);
        Self { base_url: own.unwrap_or(base_url), key }
    }
}

/// The same URL at the owner's daemon, where that is what is meant. `localhost` may be more than one address, and another
/// program may listen at the other one.
fn at_own(base_url: &str, own: SocketAddr) -> Option<String> {
    let mut url = reqwest::Url::parse(base_url).ok().filter(|url| url.scheme() == "http")?;
    let loopback: IpAddr =
        if own.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    let listens = if own.ip().is_unspecified() { loopback } else { own.ip() };
    let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
    let named = if host.eq_ignore_ascii_case("localhost") && listens.is_loopback() {
        listens
    } else {
        host.parse().ok()?
    };
    if named != listens || url.port_or_known_default() != Some(own.port()) {
        return None;
    }
    url.set_ip_host(listens).ok()?;
    Some(url.as_str().trim_end_matches('/').to_owned())
}

impl Remote {
    /// What concerns a project. `project` is `namespace/project`; without one, the project the daemon was started in.
    pub(crate) fn new(common: &Common, server: &str, project: Option<&str>) -> Result<Self, Trouble> {
        Self::at(Door::to(common, base_url(server, project)?))
    }

    /// The whole daemon.
    pub(crate) fn whole(common: &Common, server: &str) -> Result<Self, Trouble> {
        Self::at(Door::to(common, root(server)?.to_owned()))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a person names the daemon, and what it answers leads nowhere"
    )]
    fn at(Door { base_url, key }: Door) -> Result<Self, Trouble> {
        let builder = reqwest::Client::builder().connect_timeout(CONNECT_WAIT).timeout(ANSWER_WAIT);
        let client = builder.redirect(reqwest::redirect::Policy::none()).build();
        let client =
            client.map_err(|error| Trouble::failure(format!("the HTTP client cannot be set up: {error}")))?;
        Ok(Self { base_url, client, key })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Trouble> {
        self.ask(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str) -> Result<Value, Trouble> {
        self.ask(Method::POST, path, None).await
    }

    pub(crate) async fn post_json(&self, path: &str, body: &Value) -> Result<Value, Trouble> {
        self.ask(Method::POST, path, Some(body)).await
    }

    /// # Errors
    /// What the daemon says is wrong, or that it cannot be reached.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Trouble> {
        let mut response = self.send(method, path, body, ANSWER_WAIT).await?;
        let status = response.status();
        let answer: Value = serde_json::from_slice(&self.whole_of(&mut response).await?).unwrap_or_default();
        if status.is_success() && answer.is_object() {
            Ok(answer)
        } else {
            Err(self.refused(status, path, &answer))
        }
    }

    /// The answer to a POST as it comes.
    ///
    /// # Errors
    /// As [`Remote::ask`].
    pub(crate) async fn tell(&self, path: &str, body: &Value) -> Result<Response, Trouble> {
        let mut response = self.send(Method::POST, path, Some(body), TOLD).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let answer = serde_json::from_slice(&self.whole_of(&mut response).await?).unwrap_or_default();
        Err(self.refused(status, path, &answer))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Response, Trouble> {
        let mut request = self.client.request(method, format!("{}{path}", self.base_url)).timeout(limit);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose());
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        request.send().await.map_err(|error| self.broken(&error))
    }

    async fn whole_of(&self, response: &mut Response) -> Result<Vec<u8>, Trouble> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.broken(&error))? {
            if body.len() + chunk.len() > LONGEST {
                let what = format!("{} answered with more than {LONGEST} bytes", self.base_url);
                return Err(Trouble::failure(what));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn broken(&self, error: &reqwest::Error) -> Trouble {
        let what = if error.is_connect() { "cannot be reached" } else { "broke off" };
        Trouble::failure(format!("the daemon at {} {what}", self.base_url))
            .hint("is `lf serve` running there?")
    }

    fn refused(&self, status: StatusCode, path: &str, answer: &Value) -> Trouble {
        match answer["message"].as_str().or(answer["error"]["message"].as_str()) {
            Some(message) if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Trouble::failure(message.to_owned()).hint(
                    "a daemon of yours is asked with your token when both use the same data directory; for others set LF_API_KEY",
                )
            }
            Some(message) => Trouble::failure(message.to_owned()),
            None => {
                let what = format!("{}{path} answered with status {status} and no JSON", self.base_url);
                Trouble::failure(what).hint("is it an `lf serve` of this version?")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_address_of_the_own_daemon_is_the_own_daemon() {
        let own: SocketAddr = "127.0.0.1:14345".parse().unwrap();
        for url in ["http://127.0.0.1:14345", "http://localhost:14345", "http://LOCALHOST:14345/"] {
            assert_eq!(at_own(url, own).as_deref(), Some("http://127.0.0.1:14345"), "{url}");
        }
        for url in [
            "https://127.0.0.1:14345",
            "http://127.0.0.2:14345",
            "http://127.0.0.1:14346",
            "http://[::1]:14345",
            "http://127.0.0.1.evil.example:14345",
            "http://127.0.0.1:14345@evil.example",
            "http://evil.example",
        ] {
            assert_eq!(at_own(url, own), None, "{url}");
        }
        let everywhere: SocketAddr = "0.0.0.0:1".parse().unwrap();
        let told = at_own("http://localhost:1/v1/projects/a/b", everywhere);
        assert_eq!(told.as_deref(), Some("http://127.0.0.1:1/v1/projects/a/b"));
        assert_eq!(at_own("http://10.0.0.1:1", everywhere), None);
    }
}
