//! Turns and their journals.

use std::collections::HashMap;

use lf_core::turn::Entry;
use lf_core::{BoxFuture, Journal, JournalError, Message};

use crate::error::StoreError;
use crate::sqlite::Batch;

use super::{Columns, Store, messages, now, parts};

/// How a turn stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnState {
    /// It runs, or ran when its daemon died.
    Running,
    Finished,
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl TurnState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    fn named(name: &str) -> Self {
        match name {
            "running" => Self::Running,
            "failed" => Self::Failed,
            "cancelled" => Self::Cancelled,
            _ => Self::Finished,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRecord {
    pub id: String,
    pub conversation: String,
    pub state: TurnState,
    /// Milliseconds since 1970.
    pub created: i64,
    pub updated: i64,
}

/// A turn that begins: from here on it is continued, whatever happens to the daemon.
#[derive(Debug)]
pub struct Begin<'a> {
    pub turn: &'a str,
    pub conversation: &'a str,
    /// What the client said, with the ids of the messages.
    pub said: &'a [(String, Message)],
    pub begun: &'a Entry,
}

impl Store {
    /// Keeps what was said and the turn's first entry, both or none.
    pub async fn begin(&self, begin: Begin<'_>) -> Result<TurnJournal, StoreError> {
        let at = now();
        let mut batch = Batch::default();
        messages::add(&mut batch, (begin.conversation, Some(begin.turn)), at, begin.said);
        batch.add(
            "INSERT INTO turn (id, conversation, state, created, updated) VALUES (?1, ?2, 'running', ?3, ?4)",
            vec![begin.turn.into(), begin.conversation.into(), at.into(), at.into()],
        );
        // the turn has them now, and its first entry says so; one of a chain of responses may be of another branch
        batch.add(
            "DELETE FROM waiting WHERE conversation = ?1
             AND NOT EXISTS (SELECT 1 FROM conversation WHERE id = ?1 AND kind = 'response')",
            vec![begin.conversation.into()],
        );
        let mut journal = TurnJournal {
            store: self.clone(),
            turn: begin.turn.to_owned(),
            conversation: begin.conversation.to_owned(),
            next: 1,
            batch,
        };
        journal.append(begin.begun);
        self.commit(std::mem::take(&mut journal.batch)).await?;
        Ok(journal)
    }

    /// Ends a turn with what it said.
    pub async fn end(
        &self,
        turn: &str,
        conversation: &str,
        state: TurnState,
        said: &[(String, Message)],
    ) -> Result<(), StoreError> {
        let at = now();
        let mut batch = Batch::default();
        batch.add(
            "UPDATE turn SET state = ?2, updated = ?3 WHERE id = ?1",
            vec![turn.into(), state.name().into(), at.into()],
        );
        messages::add(&mut batch, (conversation, Some(turn)), at, said);
        self.commit(batch).await.map(drop)
    }

    pub async fn turn(&self, id: &str) -> Result<Option<TurnRecord>, StoreError> {
        let sql = "SELECT id, conversation, state, created, updated FROM turn WHERE id = ?1";
        Ok(self.query(sql, vec![id.into()]).await?.pop().map(record))
    }

    /// The turns that no daemon has brought to an end.
    pub async fn running(&self) -> Result<Vec<TurnRecord>, StoreError> {
        let sql = "SELECT id, conversation, state, created, updated FROM turn WHERE state = 'running'
                   ORDER BY created";
        Ok(self.query(sql, Vec::new()).await?.into_iter().map(record).collect())
    }

    /// What happened in a turn, from its beginning.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] when it was kept by a program that knew more.
    pub async fn entries(&self, turn: &TurnRecord) -> Result<Vec<Entry>, StoreError> {
        let sql = "SELECT body FROM entry WHERE turn = ?1 ORDER BY n";
        let rows = self.query(sql, vec![turn.id.as_str().into()]).await?;
        let mut known = HashMap::new();
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            let body = Columns::of(row).text();
            entries.push(self.put_together((&turn.conversation, &turn.id), &body, &mut known).await?);
        }
        Ok(entries)
    }

    /// False where the journal of a turn was deleted.
    pub async fn has_entries(&self, turn: &str) -> Result<bool, StoreError> {
        let sql = "SELECT n FROM entry WHERE turn = ?1 LIMIT 1";
        Ok(!self.query(sql, vec![turn.into()]).await?.is_empty())
    }

    /// Goes on with the journal of a turn that has so many entries.
    pub fn journal(&self, turn: &TurnRecord, entries: usize) -> TurnJournal {
        TurnJournal {
            store: self.clone(),
            turn: turn.id.clone(),
            conversation: turn.conversation.clone(),
            next: i64::try_from(entries).unwrap_or(i64::MAX) + 1,
            batch: Batch::default(),
        }
    }
}

fn record(row: Vec<crate::sqlite::Param>) -> TurnRecord {
    let mut columns = Columns::of(row);
    TurnRecord {
        id: columns.text(),
        conversation: columns.text(),
        state: TurnState::named(&columns.text()),
        created: columns.int(),
        updated: columns.int(),
    }
}

/// Writes what happens in one turn.
pub struct TurnJournal {
    store: Store,
    turn: String,
    conversation: String,
    next: i64,
    batch: Batch,
}

impl Journal for TurnJournal {
    fn append(&mut self, entry: &Entry) {
        let body = parts::take_apart(&mut self.batch, &self.conversation, entry);
        self.batch.add(
            "INSERT INTO entry (turn, n, body) VALUES (?1, ?2, ?3)",
            vec![self.turn.as_str().into(), self.next.into(), body.into()],
        );
        self.next += 1;
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            if self.batch.is_empty() {
                return Ok(());
            }
            let batch = std::mem::take(&mut self.batch);
            let written = self.store.commit(batch).await;
            written.map(drop).map_err(|error| JournalError {
                place: self.store.path().display().to_string(),
                reason: error.to_string(),
            })
        })
    }
}
