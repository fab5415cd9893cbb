//! Resources whose changes a client wants to be told, watched for as long as it wants that.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lf_core::McpServer;
use lf_core::project::Generation;
use rmcp::model::{ClientRequest, CustomRequest, SubscriptionFilter};
use serde_json::json;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::caller::Caller;
use super::catalogue::List;
use super::inbox::News;
use super::refused;
use super::together::Together;
use crate::connection::AskError;
use crate::endpoint::Refused;
use crate::pool::SessionPool;
use crate::session::InUse;

/// Resources that are watched over one connection; of a modern one, streams for them.
const MAX_WATCHED: usize = 256;
/// For a modern server to agree.
const AGREEMENT: Duration = Duration::from_secs(5);
/// Between two attempts to watch on after the connection was lost, doubled each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A resource that is watched until this is dropped.
#[derive(Debug)]
pub struct Watch {
    _stop: DropGuard,
}

impl SessionPool {
    /// What all relaying sessions tell from now on, with the server it is of.
    pub fn news(&self) -> broadcast::Receiver<(Arc<McpServer>, News)> {
        self.surroundings().relay.feed.listen()
    }

    /// Has all who listen look at this server's tools again: what is offered of them is another.
    pub fn retell_tools(&self, server: &Arc<McpServer>) {
        self.surroundings().relay.feed.tell(server, News::Changed(List::Tools));
    }

    /// Has a server tell when a resource changes; that is among the news then. After a lost connection it is told again,
    /// and the resource counts as changed.
    ///
    /// # Errors
    /// When the server cannot be reached or does not want to.
    pub async fn watch(&self, server: &Arc<McpServer>, uri: &str, caller: &Caller) -> Result<Watch, Refused> {
        let stop = self.until_shutdown();
        let (began, beginning) = oneshot::channel();
        let task = Watching {
            pool: self.clone(),
            server: server.clone(),
            uri: uri.to_owned(),
            caller: caller.clone(),
        };
        let stopped = stop.clone();
        self.surroundings().tracker.spawn(async move { task.run(began, stopped).await });
        let watch = Watch { _stop: stop.drop_guard() };
        let gone = || Refused::Unavailable("the sessions are shut down".to_owned());
        beginning.await.unwrap_or_else(|_| Err(gone())).map(|()| watch)
    }
}

struct Watching {
    pool: SessionPool,
    server: Arc<McpServer>,
    uri: String,
    caller: Caller,
}

impl Watching {
    async fn run(self, began: oneshot::Sender<Result<(), Refused>>, stop: CancellationToken) {
        let mut began = Some(began);
        let mut pause = FIRST_PAUSE;
        loop {
            let live = tokio::select! {
                live = self.pool.relaying(&self.server, &self.caller) => live,
                () = stop.cancelled() => return,
            };
            match live {
                Ok(live) => {
                    let told = self.watch(live, &mut began, &stop).await;
                    match told {
                        Err(refused) if began.is_some() => return end(began, refused),
                        Err(Refused::Upstream { .. }) => return,
                        Ok(()) => pause = FIRST_PAUSE,
                        Err(_) => {}
                    }
                }
                Err(failure) if began.is_some() => {
                    return end(began, super::unavailable(&self.server, &failure));
                }
                Err(_) => {}
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => return,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Watches over one connection until that ends or nobody wants it any more.
    async fn watch(
        &self,
        live: InUse,
        began: &mut Option<oneshot::Sender<Result<(), Refused>>>,
        stop: &CancellationToken,
    ) -> Result<(), Refused> {
        let generation = live.link.about.generation;
        let mut wanted = live.link.signals.inbox.watched.want(&self.uri, generation).ok_or_else(|| {
            let message =
                format!("{MAX_WATCHED} resources of MCP server `{}` are watched already", self.server.name);
            Refused::Unavailable(message)
        })?;
        match generation {
            Generation::Legacy => self.subscribe(&live, &wanted).await?,
            Generation::Modern => return self.listen(&live, began, stop).await,
        }
        self.begin(began);
        tokio::select! {
            () = live.over() => Ok(()),
            () = stop.cancelled() => {
                self.unsubscribe(&live, &mut wanted).await;
                Ok(())
            }
        }
    }

    fn begin(&self, began: &mut Option<oneshot::Sender<Result<(), Refused>>>) {
        match began.take() {
            Some(began) => drop(began.send(Ok(()))),
            // what happened while nobody watched was not told
            None => self
                .pool
                .surroundings()
                .relay
                .feed
                .tell(&self.server, News::Updated(json!({"uri": self.uri}))),
        }
    }

    /// Has the server tell, where it does not tell somebody else already.
    async fn subscribe(&self, live: &InUse, wanted: &Wanted) -> Result<(), Refused> {
        let asking = async { self.ask(live, "resources/subscribe").await.map(|()| true) };
        let told = wanted.told.get(self.server.timeout, |is_told| *is_told, asking).await;
        live.doubt_if_silent(&told);
        match told {
            Ok(_) => Ok(()),
            Err(error) => Err(refused(error, &self.server, live).await),
        }
    }

    /// The reverse, for the last who wanted it. Who wants it again meanwhile asks after this.
    async fn unsubscribe(&self, live: &InUse, wanted: &mut Wanted) {
        let told = wanted.told.clone();
        let asking = async {
            if !wanted.leave() {
                return Ok(true);
            }
            if let Err(error) = self.ask(live, "resources/unsubscribe").await {
                let error = live.link.failure_of(error, "`resources/unsubscribe`");
                tracing::debug!(server = self.server.name, %error, "a subscription was not ended");
            }
            Ok(false)
        };
        let _ = told.get(self.server.timeout, |is_told| !*is_told, asking).await;
    }

    async fn ask(&self, live: &InUse, method: &str) -> Result<(), AskError> {
        let request = CustomRequest::new(method, Some(json!({"uri": self.uri})));
        let limits = (self.server.timeout, self.server.timeout);
        live.link.ask(ClientRequest::CustomRequest(request), limits).await.map(drop)
    }

    /// A modern server tells over a stream of its own.
    async fn listen(
        &self,
        live: &InUse,
        began: &mut Option<oneshot::Sender<Result<(), Refused>>>,
        stop: &CancellationToken,
    ) -> Result<(), Refused> {
        let filter = SubscriptionFilter::builder().resource_subscription(self.uri.as_str()).build();
        let name = watch::Sender::new(None);
        let named = |id| drop(name.send_replace(Some(id)));
        let mut naming = name.subscribe();
        let mut listening = Box::pin(live.link.listen_to(filter, &named));
        let limit = AGREEMENT.min(self.server.timeout);
        let agreed = timeout(limit, async {
            let Ok(Some(id)) = naming.wait_for(Option::is_some).await.map(|id| id.clone()) else {
                return std::future::pending().await;
            };
            live.link.signals.inbox.acknowledged(&id).await
        });
        let refusal = tokio::select! {
            ended = &mut listening => match ended {
                Ok(()) => Refused::Unavailable("the server ended the subscription".to_owned()),
                Err(error) => return Err(refused(error, &self.server, live).await),
            },
            agreed = agreed => match agreed {
                Ok(uris) if uris.contains(&self.uri) => return self.listen_on(live, began, stop, listening).await,
                Ok(_) => {
                    let message = format!("MCP server `{}` does not tell of changes of `{}`", self.server.name, self.uri);
                    Refused::upstream(-32_602, message)
                }
                Err(_) => {
                    Refused::Unavailable(format!("MCP server `{}` agreed to no subscription within {limit:?}", self.server.name))
                }
            },
            () = stop.cancelled() => return Ok(()),
        };
        Err(refusal)
    }

    /// Watches over a stream that the server agreed to.
    async fn listen_on(
        &self,
        live: &InUse,
        began: &mut Option<oneshot::Sender<Result<(), Refused>>>,
        stop: &CancellationToken,
        listening: impl Future<Output = Result<(), AskError>>,
    ) -> Result<(), Refused> {
        self.begin(began);
        tokio::select! {
            () = live.over() => Ok(()),
            ended = listening => match ended {
                Ok(()) => Ok(()),
                Err(error) => Err(refused(error, &self.server, live).await),
            },
            () = stop.cancelled() => Ok(()),
        }
    }
}

/// The resources that one connection is asked to tell of.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<String, Resource>>);

#[derive(Debug, Default)]
struct Resource {
    /// How many clients want it.
    wanted: usize,
    /// Whether the server was asked to tell.
    told: Arc<Together<bool>>,
}

impl Watched {
    /// Counts one who wants a resource for as long as the guard lives; `None` when there is no room. A legacy server is
    /// asked once for all, a modern one tells each over a stream.
    fn want(self: &Arc<Self>, uri: &str, generation: Generation) -> Option<Wanted> {
        let mut all = self.lock();
        let others = match generation {
            Generation::Legacy => all.keys().filter(|known| *known != uri).count(),
            Generation::Modern => all.values().map(|resource| resource.wanted).sum(),
        };
        if others >= MAX_WATCHED {
            return None;
        }
        let resource = all.entry(uri.to_owned()).or_default();
        resource.wanted += 1;
        let (uri, told) = (uri.to_owned(), resource.told.clone());
        Some(Wanted { watched: self.clone(), uri, told, is_counted: true })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Resource>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who wants a resource.
struct Wanted {
    watched: Arc<Watched>,
    uri: String,
    told: Arc<Together<bool>>,
    is_counted: bool,
}

impl Wanted {
    /// Wants it no longer. Returns whether nobody else does; what is known of the resource is kept until this is dropped.
    fn leave(&mut self) -> bool {
        let mut all = self.watched.lock();
        let Some(resource) = all.get_mut(&self.uri) else { return false };
        resource.wanted -= usize::from(std::mem::take(&mut self.is_counted));
        resource.wanted == 0
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if self.leave() {
            self.watched.lock().retain(|uri, resource| *uri != self.uri || resource.wanted > 0);
        }
    }
}

fn end(began: Option<oneshot::Sender<Result<(), Refused>>>, refused: Refused) {
    if let Some(began) = began {
        let _ = began.send(Err(refused));
    }
}
