//! Which session with a server a client's requests go over.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lf_core::McpServer;
use lf_core::project::Generation;

use super::caller::{Abilities, Caller};
use super::held::Parking;
use super::inbox::Feed;
use crate::connection::Lane;
use crate::failure::Failure;
use crate::pool::SessionPool;
use crate::session::InUse;

/// Sessions with one server for clients that can be asked different things, the one for clients that can be asked nothing
/// among them. Beyond that, a client's server is told that it can be asked nothing.
const MAX_SESSIONS: usize = 8;

/// What the relaying sessions of a pool share.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    pub(crate) feed: Feed,
    pub(super) parking: Parking,
    /// Servers that turned out to refuse `initialize`.
    modern_only: Mutex<HashSet<Arc<McpServer>>>,
}

impl Relay {
    pub(crate) fn forget(&self, server: &McpServer) {
        self.modern_only().remove(server);
    }

    fn modern_only(&self) -> MutexGuard<'_, HashSet<Arc<McpServer>>> {
        self.modern_only.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn modern() -> Lane {
    // what the clients can be asked goes with each request
    Lane { generation: Some(Generation::Modern), relays: Some(Abilities::default()) }
}

impl SessionPool {
    /// What a client can be asked, where there is a session for that or room for one; else nothing.
    fn room_for(&self, server: &McpServer, wanted: Abilities) -> Abilities {
        let nothing = Abilities::default();
        let mut known: HashSet<Abilities> =
            self.lanes(server).into_iter().filter_map(|lane| lane.relays).collect();
        known.remove(&nothing);
        match known.contains(&wanted) || known.len() < MAX_SESSIONS - 1 {
            true => wanted,
            false => nothing,
        }
    }

    /// Ends when a server can be asked for this client, or cannot be.
    pub async fn ready(&self, server: &Arc<McpServer>, caller: &Caller) {
        // why it is down is told when it is asked
        drop(self.relaying(server, caller).await);
    }

    /// The session for a client's requests, started if needed: of the client's generation where the server knows it.
    pub(crate) async fn relaying(&self, server: &Arc<McpServer>, caller: &Caller) -> Result<InUse, Failure> {
        let surroundings = self.surroundings().clone();
        let pinned = server.protocol.generation();
        let is_modern_only = surroundings.relay.modern_only().contains(server);
        let known = pinned.or_else(|| surroundings.generations.of(server));
        let abilities = self.room_for(server, caller.abilities);
        let legacy = Lane { generation: Some(Generation::Legacy), relays: Some(abilities) };
        match (caller.generation, known) {
            (_, Some(Generation::Modern)) if pinned.is_some() || is_modern_only => {
                self.live_in(server, modern()).await
            }
            (Generation::Modern, Some(Generation::Modern)) => self.live_in(server, modern()).await,
            (Generation::Modern, None) => {
                let unknown = Lane { generation: None, relays: Some(abilities) };
                let live = self.live_in(server, unknown).await?;
                let found = match live.link.about.generation {
                    Generation::Modern => modern(),
                    Generation::Legacy => legacy,
                };
                self.move_session(server, unknown, found);
                Ok(live)
            }
            (Generation::Modern, Some(Generation::Legacy)) => self.live_in(server, legacy).await,
            (Generation::Legacy, _) => match self.live_in(server, legacy).await {
                Err(failure) if pinned.is_none() && known != Some(Generation::Legacy) => {
                    match self.live_in(server, modern()).await {
                        Ok(live) => {
                            surroundings.relay.modern_only().insert(server.clone());
                            Ok(live)
                        }
                        // why the older generation failed says more about a server that is just down
                        Err(_) => Err(failure),
                    }
                }
                reached => reached,
            },
        }
    }
}
