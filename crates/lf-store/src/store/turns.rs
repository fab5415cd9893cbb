//! Turns and their journals.

use std::collections::HashMap;

use lf_core::turn::{Entry, Waiting};
use lf_core::{BoxFuture, Journal, JournalError, Message};

use crate::batch::{Batch, Beginning, Of, Statement};
use crate::error::StoreError;

use super::conversations::not_found;
use super::{Columns, LeftWaiting, Store, approvals, messages, now, parts};

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
    /// Where daemons share the store, the turn begins only when nothing was said or decided since then, and no other one
    /// runs in the conversation; without it, in any case.
    pub after: Option<&'a Known>,
}

/// What a turn that begins knows of its conversation.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The last place in it.
    pub place: i64,
    /// What waits in it.
    pub waiting: Option<LeftWaiting>,
}

/// A turn that ends.
#[derive(Debug)]
pub struct End<'a> {
    pub turn: &'a str,
    pub conversation: &'a str,
    pub state: TurnState,
    /// What it added to its conversation, with the ids of the messages.
    pub said: &'a [(String, Message)],
    /// The calls that wait for an approval, until the next turn begins.
    pub waiting: Option<&'a Waiting>,
}

impl<'a> End<'a> {
    /// A turn that is finished with these words, and leaves nothing waiting.
    pub fn finished(turn: &'a str, conversation: &'a str, said: &'a [(String, Message)]) -> Self {
        Self { turn, conversation, state: TurnState::Finished, said, waiting: None }
    }
}

impl Store {
    /// Keeps what was said and the turn's first entry, both or none.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where there is no such conversation; [`StoreError::Overtaken`] when something was said or
    /// decided after [`Begin::after`].
    pub async fn begin(&self, begin: Begin<'_>) -> Result<TurnJournal, StoreError> {
        let at = now();
        let beginning = Beginning {
            turn: begin.turn.to_owned(),
            conversation: begin.conversation.to_owned(),
            after: begin
                .after
                .map(|known| (known.place, known.waiting.as_ref().map(|waiting| waiting.body.clone()))),
        };
        let mut batch = Batch { turn: Some(Of::Begun(beginning)), ..Batch::default() };
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
        match self.commit(std::mem::replace(&mut journal.batch, Batch::of(begin.turn))).await {
            Ok(_) => Ok(journal),
            Err(error) => match self.conversation(begin.conversation).await? {
                Some(_) => Err(error),
                None => Err(not_found(begin.conversation)),
            },
        }
    }

    /// Ends a turn. A database that several daemons share is waited for as long as its journal is.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where it was deleted meanwhile: a conversation of that name is another one by now;
    /// [`StoreError::Overtaken`] when another daemon has taken the turn over.
    pub async fn end(&self, end: End<'_>) -> Result<(), StoreError> {
        let at = now();
        let mut batch = Batch::of(end.turn);
        let ended = vec![end.turn.into(), end.state.name().into(), at.into()];
        batch.witness = Some(Statement {
            sql: "SELECT id FROM turn WHERE id = ?1 AND state = ?2 AND updated = ?3",
            params: ended.clone(),
        });
        batch.add("UPDATE turn SET state = ?2, updated = ?3 WHERE id = ?1", ended);
        messages::add(&mut batch, (end.conversation, Some(end.turn)), at, end.said);
        // of a turn that is gone nothing is added
        batch.add(
            "DELETE FROM message WHERE turn = ?1 AND NOT EXISTS (SELECT 1 FROM turn WHERE id = ?1)",
            vec![end.turn.into()],
        );
        if let Some(waiting) = end.waiting {
            approvals::leave(&mut batch, end.turn, end.conversation, waiting);
        }
        match self.commit(batch).await?.first() {
            Some(0) => Err(StoreError::NotFound { what: "turn", id: end.turn.to_owned() }),
            // none: it was done by a former try
            Some(_) | None => Ok(()),
        }
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

    /// What happened in a turn after its first `seen` entries.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] when it was kept by a program that knew more.
    pub async fn entries(&self, turn: &TurnRecord, seen: usize) -> Result<Vec<Entry>, StoreError> {
        let sql = "SELECT body FROM entry WHERE turn = ?1 AND n > ?2 ORDER BY n";
        let rows = self.query(sql, vec![turn.id.as_str().into(), place(seen).into()]).await?;
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
            next: place(entries) + 1,
            batch: Batch::of(&turn.id),
        }
    }
}

fn place(entries: usize) -> i64 {
    i64::try_from(entries).unwrap_or(i64::MAX - 1)
}

pub(super) fn record(row: Vec<crate::batch::Param>) -> TurnRecord {
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
            let mut batch = std::mem::replace(&mut self.batch, Batch::of(&self.turn));
            batch.witness = Some(Statement {
                sql: "SELECT n FROM entry WHERE turn = ?1 AND n = ?2",
                params: vec![self.turn.as_str().into(), (self.next - 1).into()],
            });
            let written = self.store.commit(batch).await;
            written
                .map(drop)
                .map_err(|error| JournalError { place: self.store.place(), reason: error.to_string() })
        })
    }
}
