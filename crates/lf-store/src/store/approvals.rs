//! Calls that turns ended with because nobody had approved them, and tools that were approved for good.

use lf_core::ToolRef;
use lf_core::turn::Waiting;

use crate::batch::Batch;
use crate::error::StoreError;

use super::{Columns, Store, now, parts};

/// The calls with which the last turn of a conversation ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftWaiting {
    pub conversation: String,
    /// `namespace/project`
    pub scope: String,
    pub waiting: Waiting,
    /// Milliseconds since 1970.
    pub created: i64,
    /// As it is kept.
    pub(super) body: String,
}

/// Keeps the calls that a turn ends with. Nothing where the turn was deleted meanwhile: its conversation may have begun anew.
pub(super) fn leave(batch: &mut Batch, turn: &str, conversation: &str, waiting: &Waiting) {
    batch.add(
        "INSERT INTO waiting (conversation, body, created)
         SELECT conversation, CAST(?2 AS TEXT), CAST(?3 AS BIGINT) FROM turn WHERE id = ?4 AND conversation = ?1
         ON CONFLICT (conversation) DO UPDATE SET body = excluded.body, created = excluded.created",
        vec![conversation.into(), parts::json(waiting).into(), now().into(), turn.into()],
    );
}

impl Store {
    /// Keeps what was decided. False where that is not what waits any more.
    pub async fn decided(&self, left: &LeftWaiting, waiting: &Waiting) -> Result<bool, StoreError> {
        let mut batch = Batch::default();
        batch.add(
            "UPDATE waiting SET body = ?2 WHERE conversation = ?1 AND body = ?3",
            vec![left.conversation.as_str().into(), parts::json(waiting).into(), left.body.as_str().into()],
        );
        Ok(self.commit(batch).await? == [1])
    }

    /// Takes away what was left, for a turn that has it now. False where that is not what waits any more: another turn was
    /// quicker, or something was decided.
    pub async fn take_waiting(&self, left: &LeftWaiting) -> Result<bool, StoreError> {
        let mut batch = Batch::default();
        batch.add(
            "DELETE FROM waiting WHERE conversation = ?1 AND created = ?2 AND body = ?3",
            vec![left.conversation.as_str().into(), left.created.into(), left.body.as_str().into()],
        );
        Ok(self.commit(batch).await? == [1])
    }

    /// What a conversation's last turn ended with.
    pub async fn waiting(&self, conversation: &str) -> Result<Option<LeftWaiting>, StoreError> {
        let sql = "SELECT w.conversation, c.scope, w.body, w.created FROM waiting w
                   JOIN conversation c ON c.id = w.conversation WHERE w.conversation = ?1";
        self.query(sql, vec![conversation.into()]).await?.pop().map(left).transpose()
    }

    /// What all conversations' last turns ended with since then, oldest first.
    pub async fn all_waiting(&self, since: i64) -> Result<Vec<LeftWaiting>, StoreError> {
        let sql = "SELECT w.conversation, c.scope, w.body, w.created FROM waiting w
                   JOIN conversation c ON c.id = w.conversation WHERE w.created > ?1 ORDER BY w.created";
        self.query(sql, vec![since.into()]).await?.into_iter().map(left).collect()
    }

    /// From here on this tool asks no more in this conversation.
    pub async fn approve_always(&self, conversation: &str, tool: &ToolRef) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.add(
            "INSERT INTO approved (conversation, server, name) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            vec![conversation.into(), (&*tool.server).into(), (&*tool.name).into()],
        );
        self.commit(batch).await.map(drop)
    }

    /// The tools that were approved for all of a conversation.
    pub async fn approved(&self, conversation: &str) -> Result<Vec<ToolRef>, StoreError> {
        let sql = "SELECT server, name FROM approved WHERE conversation = ?1 ORDER BY server, name";
        let rows = self.query(sql, vec![conversation.into()]).await?;
        Ok(rows.into_iter().map(super::tool).collect())
    }
}

fn left(row: crate::batch::Row) -> Result<LeftWaiting, StoreError> {
    let mut columns = Columns::of(row);
    let (conversation, scope, body) = (columns.text(), columns.text(), columns.text());
    let waiting = serde_json::from_str(&body).map_err(|error| StoreError::Unreadable {
        what: "calls that wait in conversation",
        id: conversation.clone(),
        reason: error.to_string(),
    })?;
    Ok(LeftWaiting { conversation, scope, waiting, created: columns.int(), body })
}
