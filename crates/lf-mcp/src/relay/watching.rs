//! Resources whose changes a client wants to be told, watched for as long as it wants that.

use std::sync::Arc;
use std::time::Duration;

use lf_core::McpServer;
use lf_core::project::Generation;
use rmcp::model::{ClientRequest, CustomRequest, SubscriptionFilter};
use serde_json::json;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::caller::Caller;
use super::inbox::News;
use super::refused;
use crate::connection::AskError;
use crate::endpoint::Refused;
use crate::pool::SessionPool;
use crate::session::InUse;

/// Resources that are watched over one connection.
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
        match live.link.about.generation {
            Generation::Legacy => self.subscribe(&live).await?,
            Generation::Modern => return self.listen(&live, began, stop).await,
        }
        self.begin(began);
        tokio::select! {
            () = live.over() => Ok(()),
            () = stop.cancelled() => {
                self.unsubscribe(&live).await;
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

    async fn subscribe(&self, live: &InUse) -> Result<(), Refused> {
        let mut watched = live.link.signals.inbox.watched.lock().await;
        if !watched.contains_key(&self.uri) {
            if watched.len() == MAX_WATCHED {
                let message =
                    format!("more than {MAX_WATCHED} resources of MCP server `{}`", self.server.name);
                return Err(Refused::Unavailable(message));
            }
            if let Err(error) = self.ask(live, "resources/subscribe").await {
                return Err(refused(error, &self.server, live).await);
            }
        }
        *watched.entry(self.uri.clone()).or_default() += 1;
        Ok(())
    }

    async fn unsubscribe(&self, live: &InUse) {
        let mut watched = live.link.signals.inbox.watched.lock().await;
        let Some(count) = watched.get_mut(&self.uri) else { return };
        *count -= 1;
        if *count == 0 {
            watched.remove(&self.uri);
            if let Err(error) = self.ask(live, "resources/unsubscribe").await {
                let error = live.link.failure_of(error, "`resources/unsubscribe`");
                tracing::debug!(server = self.server.name, %error, "a subscription was not ended");
            }
        }
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
        let agreed = async {
            let Ok(id) = naming.wait_for(Option::is_some).await.map(|id| id.clone()) else { return };
            let Some(id) = id else { return };
            let _ = timeout(AGREEMENT, live.link.signals.inbox.acknowledged(&id)).await;
        };
        tokio::select! {
            ended = &mut listening => match ended {
                Ok(()) => return Err(Refused::Unavailable("the server ended the subscription".to_owned())),
                Err(error) => return Err(refused(error, &self.server, live).await),
            },
            () = agreed => {}
            () = stop.cancelled() => return Ok(()),
        }
        self.begin(began);
        tokio::select! {
            () = live.over() => Ok(()),
            ended = &mut listening => match ended {
                Ok(()) => Ok(()),
                Err(error) => Err(refused(error, &self.server, live).await),
            },
            () = stop.cancelled() => Ok(()),
        }
    }
}

fn end(began: Option<oneshot::Sender<Result<(), Refused>>>, refused: Refused) {
    if let Some(began) = began {
        let _ = began.send(Err(refused));
    }
}
