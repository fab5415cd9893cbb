//! The way out for every request that a server's words lead to: what it may name as a place, and what is read there.
//!
//! A tool server tells where its metadata is, that tells of an authorization server, and that of its endpoints. Each is
//! requested from here, and so could be anything that this machine reaches. So the address counts, at the moment it is
//! dialled, and not the name: only public ones, and those of the server's own kind.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use lf_core::place::{Place, Reach};
use lf_egress::{Egress as Way, Resolver};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use thiserror::Error;
use url::Url;

use crate::failure::{Failure, excerpt};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For one request, from the dialling to the last byte.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Of one answer, in bytes. Metadata has some kilobytes.
const MAX_BODY: usize = 256 * 1024;
const MAX_URL: usize = 4 * 1024;
/// Within one origin.
const MAX_REDIRECTS: usize = 3;

/// A name or address that is not dialled.
#[derive(Debug, Error)]
#[error("`{host}` is not requested: its address is {}", place.name())]
struct Refused {
    host: String,
    place: Place,
}

/// Which addresses are dialled.
#[derive(Clone)]
struct Guard {
    /// The kind of the tool server's own address.
    own: Place,
    resolver: Resolver,
}

impl Guard {
    fn permits(&self, place: Place) -> bool {
        match place {
            Place::Public => true,
            Place::LinkLocal | Place::Nowhere => false,
            Place::Private | Place::Loopback => place == self.own,
        }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, host) = (self.clone(), excerpt(name.as_str(), 100));
        Box::pin(async move {
            let found: Vec<SocketAddr> = guard.resolver.resolve(name).await?.collect();
            let first = found.first().map(|address| Place::of(address.ip()));
            let permitted: Vec<SocketAddr> =
                found.into_iter().filter(|address| guard.permits(Place::of(address.ip()))).collect();
            match first {
                Some(place) if permitted.is_empty() => Err(Refused { host, place }.into()),
                _ => Ok(Box::new(permitted.into_iter()) as Addrs),
            }
        })
    }
}

/// An answer, read whole.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    /// Where a redirect that was not followed leads.
    pub(super) location: Option<String>,
}

/// A tool server whose words are followed.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) url: Url,
    pub(super) reach: Reach,
}

/// The requests that one tool server may cause.
#[derive(Clone)]
pub(super) struct Egress {
    guard: Guard,
    roots: Vec<Vec<u8>>,
    client: reqwest::Client,
}

impl Egress {
    /// For a server that the file names.
    ///
    /// # Errors
    /// When no client can be set up.
    pub(super) async fn of(server: &Server, way: &Way) -> Result<Self, Failure> {
        let own = match (server.reach, literal(&server.url)) {
            // nobody who may say so has said that it is anything else
            (Reach::Public, _) => Place::Public,
            (Reach::Named, Some(place)) => place,
            (Reach::Named, None) => resolved(&server.url, way).await?,
        };
        let guard = Guard { own, resolver: way.resolver.clone() };
        let client = client(&guard, &way.roots, Policy::custom(redirect))?;
        Ok(Self { guard, roots: way.roots.clone(), client })
    }

    /// A URL that a server named, when it may be requested or shown to a person: https, or http on this machine where
    /// the server is on it too; an address that is permitted, where it is one.
    pub(super) fn check(&self, text: &str, what: &str) -> Result<Url, Failure> {
        let wrong = |why: &str| Failure::new(format!("{what} `{}` is refused: {why}", excerpt(text, 200)));
        // a URL parser is lenient with these
        if text.len() > MAX_URL || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(wrong("it is not a URL"));
        }
        let url = Url::parse(text).map_err(|_| wrong("it is not a URL"))?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            return Err(wrong("it has more than a place in it"));
        }
        match (url.scheme(), literal(&url)) {
            ("https", None) => Ok(url),
            ("https", Some(place)) if self.guard.permits(place) => Ok(url),
            ("http", Some(Place::Loopback)) if self.guard.own == Place::Loopback => Ok(url),
            ("https" | "http", Some(place)) if !self.guard.permits(place) => {
                Err(wrong(&format!("its address is {}", place.name())))
            }
            _ => Err(wrong("only https is used, or http on this machine for a server on it")),
        }
    }

    pub(super) async fn get(&self, url: &Url) -> Result<Answer, Failure> {
        let request = self.client.get(url.clone()).header(header::ACCEPT, "application/json");
        read(request, url).await
    }

    pub(super) async fn post_json(&self, url: &Url, body: &serde_json::Value) -> Result<Answer, Failure> {
        let request = self.client.post(url.clone()).header(header::ACCEPT, "application/json").json(body);
        read(request, url).await
    }

    pub(super) async fn post_form(
        &self,
        url: &Url,
        fields: &[(&str, String)],
        authorization: Option<&str>,
    ) -> Result<Answer, Failure> {
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let mut request = self
            .client
            .post(url.clone())
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        if let Some(authorization) = authorization {
            let mut value = HeaderValue::from_str(authorization)
                .map_err(|_| Failure::new("the client's id or secret cannot be sent"))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        read(request, url).await
    }

    /// A page without following where it leads.
    pub(super) async fn get_page(&self, url: &Url) -> Result<Answer, Failure> {
        let client = client(&self.guard, &self.roots, Policy::none())?;
        read(client.get(url.clone()), url).await
    }
}

/// The kind of an address that a URL has instead of a name; the names of this machine are known too.
fn literal(url: &Url) -> Option<Place> {
    Place::of_host(url.host_str()?)
}

/// The kind of the addresses behind a server's name. That a public server says it is private must not open the private
/// network to it: so only a peer that has shown the certificate for the name counts.
async fn resolved(server: &Url, way: &Way) -> Result<Place, Failure> {
    let name = server.host_str().unwrap_or_default().parse::<Name>();
    let (Ok(name), "https") = (name, server.scheme()) else { return Ok(Place::Public) };
    let Ok(mut addresses) = way.resolver.resolve(name).await else { return Ok(Place::Public) };
    if addresses.all(|address| Place::of(address.ip()) == Place::Public) {
        return Ok(Place::Public);
    }
    let guard = Guard { own: Place::Private, resolver: way.resolver.clone() };
    let client = client(&guard, &way.roots, Policy::none())?;
    let reached = client.head(server.clone()).send().await;
    let place = reached.ok().and_then(|answer| answer.remote_addr()).map(|address| Place::of(address.ip()));
    Ok(place.unwrap_or(Place::Public))
}

#[expect(clippy::disallowed_methods, reason = "its guard permits less than that of the other way out")]
fn client(guard: &Guard, roots: &[Vec<u8>], redirects: Policy) -> Result<reqwest::Client, Failure> {
    let roots = roots.iter().filter_map(|root| reqwest::Certificate::from_der(root).ok());
    reqwest::Client::builder()
        .tls_certs_merge(roots)
        .user_agent(concat!("lf/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TIMEOUT)
        .pool_max_idle_per_host(0)
        // behind a proxy, the name would be looked up where no guard is
        .no_proxy()
        .dns_resolver(Arc::new(guard.clone()))
        .redirect(redirects)
        .build()
        .map_err(|error| Failure::new(format!("no HTTP client can be set up: {error}")))
}

/// Within the origin only: what was checked of it holds there.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let same_origin =
        attempt.previous().last().is_some_and(|previous| previous.origin() == attempt.url().origin());
    if same_origin && attempt.previous().len() <= MAX_REDIRECTS { attempt.follow() } else { attempt.stop() }
}

async fn read(request: reqwest::RequestBuilder, url: &Url) -> Result<Answer, Failure> {
    let mut response = request.send().await.map_err(|error| told(&error, url))?;
    let status = response.status();
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
    let location = location.map(str::to_owned);
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| told(&error, url))? {
        if body.len() + chunk.len() > MAX_BODY {
            return Err(Failure::new(format!("{} answered with more than {MAX_BODY} bytes", place(url))));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, body, location })
}

/// Scheme, host and port: what may be shown of any URL.
pub(super) fn place(url: &Url) -> String {
    excerpt(&url.origin().ascii_serialization(), 200)
}

fn told(error: &reqwest::Error, url: &Url) -> Failure {
    let mut innermost: &dyn StdError = error;
    while let Some(source) = innermost.source() {
        if source.is::<Refused>() {
            return Failure::new(source.to_string());
        }
        innermost = source;
    }
    if error.is_timeout() {
        return Failure::new(format!("{} did not answer within {} s", place(url), TIMEOUT.as_secs()));
    }
    Failure::new(format!("no answer from {}: {}", place(url), excerpt(&innermost.to_string(), 200)))
}

#[cfg(test)]
mod tests;
