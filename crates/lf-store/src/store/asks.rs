//! Calls that wait for a person in one of several daemons, for the others to show and to decide. Who has them keeps the
//! decision; here is only the way to it.

use lf_core::turn::Decision;

use crate::batch::Batch;
use crate::error::StoreError;
use crate::postgres::Lane;

use super::{Columns, Store, parts};

impl Store {
    /// Shows other daemons what waits in this one: each by its id, in the daemon's own words.
    pub async fn show_asks(&self, asks: &[(String, String)]) -> Result<(), StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(()) };
        let mut batch = Batch::default();
        for (id, body) in asks {
            batch.add(
                // the daemon that had it before is dead
                "INSERT INTO ask (id, owner, body) VALUES (?1, ?2, ?3)
                 ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, body = excluded.body,
                     decision = NULL, outcome = NULL, since = clock_timestamp()
                     WHERE ask.owner <> excluded.owner",
                vec![id.as_str().into(), postgres.owner().into(), body.as_str().into()],
            );
        }
        postgres.commit(&batch, Lane::Pulse).await.map(drop)
    }

    /// Takes asks back that wait no longer. Those that another daemon has decided stay until that is answered.
    pub async fn take_back_asks(&self, ids: &[String]) -> Result<(), StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(()) };
        let mut batch = Batch::default();
        for id in ids {
            batch.add(
                "DELETE FROM ask WHERE id = ?1 AND owner = ?2 AND decision IS NULL",
                vec![id.as_str().into(), postgres.owner().into()],
            );
        }
        postgres.commit(&batch, Lane::Pulse).await.map(drop)
    }

    /// What waits in the other daemons that live, in their words.
    pub async fn asks_elsewhere(&self) -> Result<Vec<String>, StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(Vec::new()) };
        let sql = "SELECT body FROM ask JOIN daemon ON daemon.id = ask.owner
                   WHERE until > clock_timestamp() AND owner <> ?1 AND decision IS NULL ORDER BY since, ask.id";
        let rows = self.query(sql, vec![postgres.owner().into()]).await?;
        Ok(rows.into_iter().map(|row| Columns::of(row).text()).collect())
    }

    /// Decides what waits in another daemon, which lives. False where nothing does, or somebody was faster.
    pub async fn decide_elsewhere(&self, id: &str, decision: &Decision) -> Result<bool, StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(false) };
        let mut batch = Batch::default();
        batch.add(
            "UPDATE ask SET decision = ?3 WHERE id = ?1 AND owner <> ?2 AND decision IS NULL AND EXISTS (
                 SELECT 1 FROM daemon WHERE daemon.id = ask.owner AND until > clock_timestamp()
             )",
            vec![id.into(), postgres.owner().into(), parts::json(decision).into()],
        );
        Ok(self.commit(batch).await? == [1])
    }

    /// What others decided about the asks of this daemon and were not answered yet. What a later program decided in its own
    /// way is not taken.
    pub async fn decided_elsewhere(&self) -> Result<Vec<(String, Decision)>, StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(Vec::new()) };
        let sql =
            "SELECT id, decision FROM ask WHERE owner = ?1 AND decision IS NOT NULL AND outcome IS NULL";
        let rows = postgres.query(sql, vec![postgres.owner().into()], Lane::Pulse).await?;
        let read = |row| {
            let mut columns = Columns::of(row);
            let (id, decision) = (columns.text(), columns.text());
            Some((id, serde_json::from_str(&decision).ok()?))
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }

    /// Tells who decided what came of it.
    pub async fn answer_decision(&self, id: &str, outcome: &str) -> Result<(), StoreError> {
        let Some(postgres) = self.postgres() else { return Ok(()) };
        let mut batch = Batch::default();
        batch.add(
            "UPDATE ask SET outcome = ?3, since = clock_timestamp() WHERE id = ?1 AND owner = ?2",
            vec![id.into(), postgres.owner().into(), outcome.into()],
        );
        self.commit(batch).await.map(drop)
    }

    /// What came of a decision about what waits elsewhere; nothing while that is not known.
    pub async fn answer_of(&self, id: &str) -> Result<Option<String>, StoreError> {
        let sql = "SELECT outcome FROM ask WHERE id = ?1 AND outcome IS NOT NULL";
        Ok(self.query(sql, vec![id.into()]).await?.pop().map(|row| Columns::of(row).text()))
    }
}
