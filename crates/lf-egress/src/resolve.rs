//! Host names to addresses, aside of the runtime's threads.
//!
//! The system's resolver blocks and knows no limit. A name that is asked for by any number of connects occupies one
//! thread, and one that was not found is not asked for again at once.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::time::Instant;

/// For which a name that was not found is taken for missing.
const MISSING: Duration = Duration::from_secs(5);
/// A look-up that takes longer is not joined any more: its outcome may be of another network.
const STALE: Duration = Duration::from_secs(60);
/// Names that are remembered.
const MAX_NAMES: usize = 256;

type Found = Result<Arc<[SocketAddr]>, (Arc<str>, Instant)>;
pub type LookUp = dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

/// A resolver; clones share what they know.
#[derive(Clone)]
pub struct Resolver {
    look_up: Arc<LookUp>,
    names: Arc<Mutex<HashMap<String, Asked>>>,
}

struct Asked {
    since: Instant,
    found: Shared<BoxFuture<'static, Found>>,
}

impl Resolver {
    /// The system's.
    pub fn system() -> Self {
        Self::new(Arc::new(|host| {
            async move {
                let looking = crate::blocking::run(move || (host, 0).to_socket_addrs());
                Ok(looking.await??.collect())
            }
            .boxed()
        }))
    }

    /// One that answers every question like this.
    pub fn scripted(answer: impl Fn() -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self::new(Arc::new(move |_| std::future::ready(answer()).boxed()))
    }

    /// One that asks this.
    pub fn new(look_up: Arc<LookUp>) -> Self {
        Self { look_up, names: Arc::default() }
    }

    /// The look-up of this name: one that runs, one that failed just now, or another.
    fn ask(&self, host: &str) -> Shared<BoxFuture<'static, Found>> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_use = |asked: &Asked| match asked.found.peek() {
            None => asked.since.elapsed() < STALE,
            Some(Ok(_)) => false,
            Some(Err((_, when))) => when.elapsed() < MISSING,
        };
        if let Some(asked) = names.get(host).filter(|asked| is_of_use(asked)) {
            return asked.found.clone();
        }
        if names.len() >= MAX_NAMES {
            names.retain(|_, asked| is_of_use(asked));
        }
        let looking = (self.look_up)(host.to_owned());
        let found = async move {
            match looking.await {
                Ok(addresses) => Ok(addresses.into()),
                Err(error) => Err((error.to_string().into(), Instant::now())),
            }
        };
        let found = found.boxed().shared();
        if names.len() < MAX_NAMES {
            names.insert(host.to_owned(), Asked { since: Instant::now(), found: found.clone() });
        }
        found
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let found = self.ask(name.as_str());
        Box::pin(async move {
            match found.await {
                Ok(addresses) => {
                    let addresses: Vec<SocketAddr> = addresses.iter().copied().collect();
                    Ok(Box::new(addresses.into_iter()) as Addrs)
                }
                Err((reason, _)) => Err(io::Error::other(reason.to_string()).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests;
