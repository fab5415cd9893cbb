//! The way out for every HTTP request to a model's API or an MCP server: which addresses are dialled.
//!
//! A name says little about where a connection ends. So the address counts, at the moment it is dialled: what the resolver
//! answers is looked at on its way to the connector, and an address that stands in the URL itself before anything is sent.
//! Redirects are followed within one origin at most, so that what was looked at stays true.
//!
//! Who is dialled with what rights is a [`Reach`]; what a request carries is not decided here.

pub mod blocking;

mod resolve;

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use lf_core::operator::Operator;
use lf_core::place::{Place, Reach};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{ClientBuilder, StatusCode};
use thiserror::Error;
use url::Url;

pub use resolve::{LookUp, Resolver};

/// Of one request; same-origin 307 and 308 only.
const MAX_REDIRECTS: usize = 5;

/// A host that is not dialled.
#[derive(Debug, Clone, Error)]
#[error("`{host}` is not connected to: its address is {}{}", place.name(), hint(*place))]
pub struct Refused {
    pub host: String,
    pub place: Place,
}

fn hint(place: Place) -> &'static str {
    match place {
        Place::Private | Place::Loopback => ", and no operator has listed it (`egress` in `operator.yaml`)",
        _ => "",
    }
}

impl Refused {
    /// The refusal that is at the bottom of an error, if it is one.
    pub fn within(error: &reqwest::Error) -> Option<&Self> {
        let mut inner: &dyn StdError = error;
        while let Some(source) = inner.source() {
            if let Some(refused) = source.downcast_ref() {
                return Some(refused);
            }
            inner = source;
        }
        None
    }
}

/// Which addresses are dialled.
#[derive(Clone)]
struct Guard {
    reach: Reach,
    operator: Arc<Operator>,
    resolver: Resolver,
}

impl Guard {
    fn permits(&self, host: &str, address: SocketAddr) -> Result<(), Place> {
        let place = Place::of(address.ip());
        let listed = || self.operator.lists(address.ip()) || self.operator.lists_host(host);
        let is_permitted = match place {
            Place::Public => true,
            // whoever says so: what is there answers without knowing who asks, and with secrets
            Place::LinkLocal => false,
            Place::Private | Place::Loopback | Place::Nowhere => self.reach == Reach::Named || listed(),
        };
        if is_permitted { Ok(()) } else { Err(place) }
    }

    /// Looks at an address that a URL has in the place of a name.
    fn check(&self, url: &Url) -> Result<(), Refused> {
        let Some(host) = url.host_str() else { return Ok(()) };
        let Some(place) = Place::of_host(host) else { return Ok(()) };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let address = bare.parse().unwrap_or(std::net::IpAddr::from([127, 0, 0, 1]));
        let permitted = self.permits(host, SocketAddr::new(address, 0));
        permitted.map_err(|_| Refused { host: host.to_owned(), place })
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = guard.resolver.resolve(name).await?.collect();
            let mut refused = None;
            let mut permitted = Vec::with_capacity(found.len());
            for address in found {
                match guard.permits(&host, address) {
                    Ok(()) => permitted.push(address),
                    Err(place) => refused = Some(place),
                }
            }
            match refused {
                Some(place) if permitted.is_empty() => Err(Refused { host, place }.into()),
                _ => Ok(Box::new(permitted.into_iter()) as Addrs),
            }
        })
    }
}

/// What all clients of a process share.
#[derive(Clone)]
pub struct Egress {
    pub operator: Arc<Operator>,
    /// Certificates, in DER, of authorities that are trusted besides the system's.
    pub roots: Vec<Vec<u8>>,
    pub resolver: Resolver,
}

impl Egress {
    pub fn new(operator: Arc<Operator>, roots: Vec<Vec<u8>>) -> Self {
        Self { operator, roots, resolver: Resolver::system() }
    }

    fn guard(&self, reach: Reach) -> Guard {
        Guard { reach, operator: self.operator.clone(), resolver: self.resolver.clone() }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the way out")]
    fn build(&self, reach: Reach, shape: &Shape) -> reqwest::Result<reqwest::Client> {
        let builder = || {
            let builder = shape(ClientBuilder::new()).dns_resolver(Arc::new(self.guard(reach)));
            match reach {
                Reach::Named => builder,
                // behind a proxy, the name would be looked up where no guard is
                Reach::Public => builder.no_proxy(),
            }
        };
        let roots = self.roots.iter().filter_map(|root| reqwest::Certificate::from_der(root).ok());
        let roots: Vec<reqwest::Certificate> = roots.collect();
        let built = builder().tls_certs_merge(roots.clone()).build();
        // A system without any certificates still reaches what is not encrypted, or what was named.
        let built = built.or_else(|_| builder().tls_certs_only(roots).build());
        built.or_else(|_| builder().tls_certs_only([]).build())
    }
}

type Shape = dyn Fn(ClientBuilder) -> ClientBuilder + Send + Sync;

/// Clients of one kind, one for each [`Reach`]. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Clients(Arc<Inner>);

struct Inner {
    egress: Egress,
    shape: Box<Shape>,
    named: reqwest::Client,
    public: OnceLock<reqwest::Client>,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clients")
    }
}

/// Why there is no client for a URL.
#[derive(Debug, Error)]
pub enum NoClient {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Broken(#[from] reqwest::Error),
}

impl Clients {
    /// `shape` sets timeouts and headers; it follows no redirects but by [`same_origin`]. A rustls provider must have
    /// been installed in the process.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(
        egress: Egress,
        shape: impl Fn(ClientBuilder) -> ClientBuilder + Send + Sync + 'static,
    ) -> reqwest::Result<Self> {
        let shape: Box<Shape> = Box::new(shape);
        let named = egress.build(Reach::Named, &*shape)?;
        Ok(Self(Arc::new(Inner { egress, shape, named, public: OnceLock::new() })))
    }

    /// The client for requests to this URL, and others of its origin.
    ///
    /// # Errors
    /// When its address is one that is not dialled, or when no client can be set up.
    pub fn to(&self, url: &str, reach: Reach) -> Result<&reqwest::Client, NoClient> {
        let inner = &*self.0;
        // what is no URL is told by who sends the request
        if let Ok(url) = Url::parse(url) {
            inner.egress.guard(reach).check(&url)?;
        }
        if reach == Reach::Named {
            return Ok(&inner.named);
        }
        if let Some(client) = inner.public.get() {
            return Ok(client);
        }
        let client = inner.egress.build(reach, &*inner.shape)?;
        Ok(inner.public.get_or_init(|| client))
    }
}

/// Follows 307 and 308 within the origin: credentials never cross one, and a POST never becomes a GET.
pub fn same_origin() -> Policy {
    Policy::custom(follow)
}

fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let keeps_method =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let same_origin =
        attempt.previous().last().is_some_and(|previous| previous.origin() == attempt.url().origin());
    if keeps_method && same_origin && attempt.previous().len() <= MAX_REDIRECTS {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

#[cfg(test)]
mod tests;
