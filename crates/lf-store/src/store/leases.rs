//! Whose turns they are, where several daemons share the store. A daemon that lives says so before its lease is over; the
//! turns of one that does not are anybody's. All times are the database's.

use crate::batch::Batch;
use crate::error::StoreError;
use crate::postgres::{LEASE, Lane, Postgres};

use super::turns::record;
use super::{Columns, Database, Store, TurnRecord};

impl Store {
    /// Whether other daemons may use it, too.
    pub fn is_shared(&self) -> bool {
        self.postgres().is_some()
    }

    pub(super) fn postgres(&self) -> Option<&Postgres> {
        match &*self.0 {
            Database::Sqlite(_) => None,
            Database::Postgres(postgres) => Some(postgres),
        }
    }

    /// Says that this daemon lives, and will for another [`LEASE`].
    pub async fn renew(&self) -> Result<(), StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(()) };
        let mut batch = Batch::default();
        batch.add(
            "INSERT INTO daemon (id, until)
             VALUES (?1, clock_timestamp() + CAST(?2 AS BIGINT) * interval '1 second')
             ON CONFLICT (id) DO UPDATE SET until = excluded.until",
            vec![postgres.owner().into(), i64::try_from(LEASE.as_secs()).unwrap_or(i64::MAX).into()],
        );
        // those that are long dead are of no more use
        batch.add("DELETE FROM daemon WHERE until < clock_timestamp() - interval '1 hour'", Vec::new());
        batch.add(
            "DELETE FROM ask WHERE NOT EXISTS (SELECT 1 FROM daemon WHERE daemon.id = ask.owner)
             OR (outcome IS NOT NULL AND since < clock_timestamp() - interval '1 minute')",
            Vec::new(),
        );
        postgres.commit(&batch, Lane::Pulse).await.map(drop)
    }

    /// Says that this daemon ends: others need not wait for its lease.
    pub async fn retire(&self) -> Result<(), StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(()) };
        let mut batch = Batch::default();
        batch.add("DELETE FROM daemon WHERE id = ?1", vec![postgres.owner().into()]);
        self.commit(batch).await.map(drop)
    }

    /// The turns that no other daemon runs: those of this one, and of daemons that are dead.
    pub async fn unattended(&self) -> Result<Vec<TurnRecord>, StoreError> {
        let Some(postgres) = self.postgres() else { return self.running().await };
        let sql = "SELECT id, conversation, state, created, updated FROM turn
                   WHERE state = 'running' AND (owner = ?1 OR NOT EXISTS (
                       SELECT 1 FROM daemon WHERE daemon.id = turn.owner AND until > clock_timestamp()
                   )) ORDER BY created";
        let rows = postgres.query(sql, vec![postgres.owner().into()], Lane::Pulse).await?;
        Ok(rows.into_iter().map(record).collect())
    }

    /// Makes this daemon the one that runs a turn. False when another one does, or it is over.
    pub async fn take_over(&self, turn: &str) -> Result<bool, StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(true) };
        let mut batch = Batch::default();
        batch.add(
            // a row that is locked is being written by the one whose turn it is, and is looked at again later
            "UPDATE turn SET owner = ?2 WHERE id = (
                 SELECT id FROM turn WHERE id = ?1 AND state = 'running' AND (owner = ?2 OR NOT EXISTS (
                     SELECT 1 FROM daemon WHERE daemon.id = turn.owner AND until > clock_timestamp()
                 )) FOR NO KEY UPDATE SKIP LOCKED
             )",
            vec![turn.into(), postgres.owner().into()],
        );
        Ok(self.commit(batch).await? == [1])
    }

    /// Asks the daemon that runs a turn to end it.
    pub async fn ask_to_stop(&self, turn: &str) -> Result<(), StoreError> {
        if !self.is_shared() {
            return Ok(());
        }
        let mut batch = Batch::default();
        batch.add("UPDATE turn SET stop = TRUE WHERE id = ?1 AND state = 'running'", vec![turn.into()]);
        self.commit(batch).await.map(drop)
    }

    /// The turns of this daemon that somebody asked another one to end.
    pub async fn to_stop(&self) -> Result<Vec<String>, StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(Vec::new()) };
        let sql = "SELECT id FROM turn WHERE state = 'running' AND stop AND owner = ?1";
        let rows = postgres.query(sql, vec![postgres.owner().into()], Lane::Pulse).await?;
        Ok(rows.into_iter().map(|row| Columns::of(row).text()).collect())
    }

    /// Says that this daemon makes a response.
    pub(super) fn own_response(&self, batch: &mut Batch, id: &str) {
        if let Some(postgres) = self.postgres() {
            let params = vec![id.into(), postgres.owner().into()];
            batch.add("UPDATE response SET owner = ?2 WHERE id = ?1", params);
        }
    }

    /// Says that nobody makes it any more.
    pub(super) fn disown_response(&self, batch: &mut Batch, id: &str) {
        if self.is_shared() {
            batch.add("UPDATE response SET owner = '', stop = FALSE WHERE id = ?1", vec![id.into()]);
        }
    }

    /// Says that this daemon makes a response no more, and it has no end.
    pub async fn let_go_of_response(&self, id: &str) -> Result<(), StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(()) };
        let mut batch = Batch::default();
        self.disown_response(&mut batch, id);
        postgres.commit(&batch, Lane::Pulse).await.map(drop)
    }

    /// The responses that this daemon is said to make, and whether somebody asked another one to end it.
    pub async fn own_responses(&self) -> Result<Vec<(String, bool)>, StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(Vec::new()) };
        let sql =
            "SELECT id, CASE WHEN stop THEN 1 ELSE 0 END FROM response WHERE owner = ?1 AND owner <> ''";
        let rows = postgres.query(sql, vec![postgres.owner().into()], Lane::Pulse).await?;
        let own = |row| {
            let mut columns = Columns::of(row);
            (columns.text(), columns.int() == 1)
        };
        Ok(rows.into_iter().map(own).collect())
    }

    /// Whether another daemon, which lives, makes a response.
    pub async fn is_made_elsewhere(&self, id: &str) -> Result<bool, StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(false) };
        let sql = "SELECT response.id FROM response JOIN daemon ON daemon.id = response.owner
                   WHERE response.id = ?1 AND daemon.id <> ?2 AND until > clock_timestamp()";
        Ok(!self.query(sql, vec![id.into(), postgres.owner().into()]).await?.is_empty())
    }

    /// Asks the other daemon that makes a response to end it. False where none does.
    pub async fn ask_to_stop_response(&self, id: &str) -> Result<bool, StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(false) };
        let mut batch = Batch::default();
        batch.add(
            "UPDATE response SET stop = TRUE WHERE id = ?1 AND owner <> ?2 AND EXISTS (
                 SELECT 1 FROM daemon WHERE daemon.id = response.owner AND until > clock_timestamp()
             )",
            vec![id.into(), postgres.owner().into()],
        );
        Ok(self.commit(batch).await? == [1])
    }

    /// The turns that run in a conversation, in whichever daemons.
    pub async fn running_in(&self, conversation: &str) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT id FROM turn WHERE conversation = ?1 AND state = 'running' ORDER BY created";
        let rows = self.query(sql, vec![conversation.into()]).await?;
        Ok(rows.into_iter().map(|row| Columns::of(row).text()).collect())
    }
}
