//! What a client of the modern generation listens to over one long request.

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use rmcp::ErrorData;
use rmcp::model::{
    PromptListChangedNotification, ResourceListChangedNotification, ResourceUpdatedNotification,
    ServerNotification, SubscriptionFilter, ToolListChangedNotification,
};
use rmcp::service::{SubscriptionContext, SubscriptionSendError};
use tokio_util::sync::CancellationToken;

use super::coalesced::coalesced;
use super::{List, News, Offer};
use crate::relay::{Caller, Watch};

/// Resources of one subscription.
const MAX_WATCHED: usize = 256;

/// News that arrive from now on, with what is watched for them.
pub(super) struct Listening {
    news: BoxStream<'static, News>,
    watched: Vec<(String, Watch)>,
}

impl Listening {
    /// Begins to listen. Resources that cannot be watched are left out.
    pub(super) async fn begin(offer: &dyn Offer, wanted: &SubscriptionFilter, caller: &Caller) -> Self {
        let news = coalesced(offer.news());
        let uris = wanted.resource_subscriptions.iter().flatten().take(MAX_WATCHED);
        let watching = uris.map(|uri| async move {
            match offer.watch(uri, caller).await {
                Ok(watch) => Some((uri.clone(), watch)),
                Err(error) => {
                    tracing::debug!(uri, %error, "a resource cannot be watched");
                    None
                }
            }
        });
        let watched = futures_util::future::join_all(watching).await.into_iter().flatten().collect();
        Self { news, watched }
    }

    /// What of the wanted is told.
    pub(super) fn accepted(&self, wanted: &SubscriptionFilter) -> SubscriptionFilter {
        let watched: Vec<String> = self.watched.iter().map(|(uri, _)| uri.clone()).collect();
        let mut accepted = wanted.clone();
        accepted.resource_subscriptions = (!watched.is_empty()).then_some(watched);
        accepted
    }

    /// Tells what happens until the client leaves, or the daemon stops.
    pub(super) async fn tell(
        mut self,
        subscription: &SubscriptionContext,
        stop: &CancellationToken,
    ) -> Result<(), ErrorData> {
        loop {
            let news = tokio::select! {
                news = self.news.next() => news,
                () = subscription.cancelled() => return Ok(()),
                () = stop.cancelled() => return Ok(()),
            };
            let Some(news) = news else { return Ok(()) };
            let Some(notification) = notification(news) else { continue };
            match subscription.sink().send(notification).await {
                Ok(())
                | Err(
                    SubscriptionSendError::NotificationNotAccepted(_)
                    | SubscriptionSendError::UnsupportedNotification(_),
                ) => {}
                // nobody listens any more
                Err(_) => return Ok(()),
            }
        }
    }
}

fn notification(news: News) -> Option<ServerNotification> {
    Some(match news {
        News::Changed(List::Tools) => {
            ServerNotification::ToolListChangedNotification(ToolListChangedNotification::default())
        }
        News::Changed(List::Prompts) => {
            ServerNotification::PromptListChangedNotification(PromptListChangedNotification::default())
        }
        News::Changed(List::Resources | List::Templates) => {
            ServerNotification::ResourceListChangedNotification(ResourceListChangedNotification::default())
        }
        News::Updated(update) => {
            let params = serde_json::from_value(update).ok()?;
            ServerNotification::ResourceUpdatedNotification(ResourceUpdatedNotification::new(params))
        }
        // of no request: clients of this generation are told messages with their requests only
        News::Log(_) => return None,
    })
}
