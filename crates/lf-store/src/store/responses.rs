//! Responses that clients come back to. What each was asked and said are messages, so that those that go on from one another
//! keep every message once.

use lf_core::Message;
use serde_json::Value;

use crate::batch::{Batch, Row};
use crate::error::StoreError;

use super::{Columns, Conversation, Kind, Store, conversations, messages, now, parts};

/// What a response takes at least, in bytes: its rows and their indexes.
const ROWS: usize = 4096;

/// A kept response.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Unique in the store.
    pub id: String,
    /// Where it is found: `namespace/project` of its route, or nothing.
    pub scope: String,
    /// The conversation that it is part of.
    pub conversation: String,
    /// The response that it goes on from, of the same conversation.
    pub previous: Option<String>,
    /// Its messages are of this turn, which may have a journal.
    pub turn: String,
    /// The response object as it was last kept.
    pub body: Value,
    /// The request's input items.
    pub input: Value,
    /// How its turn is shown, where the response is read from the turn's journal.
    pub head: Option<Value>,
    /// Milliseconds since 1970.
    pub created: i64,
}

impl Store {
    /// Keeps a response that begins, with what was said to it where no turn keeps that. `alone` is the conversation that
    /// begins with it.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] also when the response that it goes on from was deleted meanwhile.
    pub async fn begin_response(
        &self,
        new: &Response,
        alone: Option<&Conversation>,
        said: &[(String, Message)],
    ) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        if let Some(alone) = alone {
            conversations::insert(&mut batch, alone);
        }
        let (body, input) = (new.body.to_string(), new.input.to_string());
        let size = ROWS
            + body.len()
            + input.len()
            + said.iter().map(|(_, said)| parts::json(said).len()).sum::<usize>();
        batch.add(
            "INSERT INTO response (id, scope, conversation, previous, turn, gone, body, input, head, size, created)
             VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7, ?8, ?9, ?10)",
            vec![
                new.id.as_str().into(),
                new.scope.as_str().into(),
                new.conversation.as_str().into(),
                new.previous.clone().into(),
                new.turn.as_str().into(),
                body.into(),
                input.into(),
                new.head.as_ref().map(Value::to_string).into(),
                i64::try_from(size).unwrap_or(i64::MAX).into(),
                new.created.into(),
            ],
        );
        self.own_response(&mut batch, &new.id);
        messages::add(&mut batch, (&new.conversation, Some(&new.turn)), now(), said);
        self.commit(batch).await.map(drop)
    }

    /// Keeps a response as it ended, with what it said. One that was deleted meanwhile stays so, and false is returned.
    pub async fn end_response(
        &self,
        response: &Response,
        body: &Value,
        said: &[(String, Message)],
    ) -> Result<bool, StoreError> {
        let body = body.to_string();
        let grown = body.len() + said.iter().map(|(_, said)| parts::json(said).len()).sum::<usize>();
        let mut batch = Batch::default();
        batch.add(
            "UPDATE response SET body = ?2, size = size + ?3 WHERE id = ?1 AND gone = 0",
            vec![response.id.as_str().into(), body.into(), i64::try_from(grown).unwrap_or(i64::MAX).into()],
        );
        self.disown_response(&mut batch, &response.id);
        messages::add(&mut batch, (&response.conversation, Some(&response.turn)), now(), said);
        // of a response that is gone nothing is added
        batch.add(
            "DELETE FROM message WHERE turn = ?1
             AND NOT EXISTS (SELECT 1 FROM response WHERE response.turn = ?1 AND gone = 0)
             AND NOT EXISTS (SELECT 1 FROM response WHERE previous = ?2)",
            vec![response.turn.as_str().into(), response.id.as_str().into()],
        );
        Ok(self.commit(batch).await?.first() == Some(&1))
    }

    /// `None` also for one of another scope.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`]
    pub async fn response(&self, scope: &str, id: &str) -> Result<Option<Response>, StoreError> {
        let sql = "SELECT id, scope, conversation, previous, turn, body, input, head, created FROM response
                   WHERE id = ?1 AND scope = ?2 AND gone = 0";
        let rows = self.query(sql, vec![id.into(), scope.into()]).await?;
        rows.into_iter().next().map(response).transpose()
    }

    /// All that was said up to the end of this response.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] names the message.
    pub async fn said_until(&self, response: &Response) -> Result<Vec<Message>, StoreError> {
        let all = self.messages(&response.conversation, 0).await?;
        let is_alone = self.conversation(&response.conversation).await?;
        if is_alone.is_none_or(|conversation| conversation.kind != Kind::Response) {
            let of = |kept: &messages::Kept| kept.turn.as_deref() == Some(&*response.turn);
            let end = all.iter().rposition(of).map_or(0, |last| last + 1);
            return Ok(all.into_iter().take(end).map(|kept| kept.message).collect());
        }
        let sql = "SELECT id, previous, turn FROM response WHERE conversation = ?1";
        let rows = self.query(sql, vec![response.conversation.as_str().into()]).await?;
        let known: std::collections::HashMap<String, (Option<String>, String)> = rows
            .into_iter()
            .map(|row| {
                let mut columns = Columns::of(row);
                (columns.text(), (columns.maybe(), columns.text()))
            })
            .collect();
        let mut path = vec![response.turn.as_str()];
        let mut before = response.previous.as_deref();
        while let Some((previous, turn)) = before.and_then(|id| known.get(id)) {
            path.push(turn);
            before = previous.as_deref();
        }
        let mut said = Vec::with_capacity(all.len());
        for turn in path.iter().rev() {
            let own = all.iter().filter(|kept| kept.turn.as_deref() == Some(turn));
            said.extend(own.map(|kept| kept.message.clone()));
        }
        Ok(said)
    }

    /// Forgets a response, its input, its answer and the journal of its turn; false where there was none. What later ones
    /// go on from stays with them until the last of them is deleted. Of a conversation that is kept otherwise, only the
    /// response goes. No turn may begin meanwhile where later ones go on from it.
    pub async fn delete_response(&self, scope: &str, id: &str) -> Result<bool, StoreError> {
        let Some(found) = self.response(scope, id).await? else { return Ok(false) };
        let conversation = found.conversation.clone();
        let own = self.conversation(&conversation).await?;
        let is_chain = own.is_some_and(|own| own.kind == Kind::Response);
        let mut next = Some((found.id, found.turn, found.previous));
        while let Some((id, turn, previous)) = next {
            if !self.erase(&id, &turn, &conversation).await? {
                break;
            }
            next = match previous {
                Some(previous) => self.deleted(&previous).await?,
                None => None,
            };
        }
        if is_chain {
            self.drop_parts(&conversation).await?;
        }
        Ok(true)
    }

    /// Of a response that is deleted: itself, its turn, and the one before it.
    async fn deleted(&self, id: &str) -> Result<Option<(String, String, Option<String>)>, StoreError> {
        let sql = "SELECT id, turn, previous FROM response WHERE id = ?1 AND gone = 1";
        let row = self.query(sql, vec![id.into()]).await?.pop();
        Ok(row.map(|row| {
            let mut columns = Columns::of(row);
            (columns.text(), columns.text(), columns.maybe())
        }))
    }

    /// Empties a response, and takes it away where no other goes on from it. True when it is away.
    async fn erase(&self, id: &str, turn: &str, conversation: &str) -> Result<bool, StoreError> {
        let mut batch = Batch::erasing();
        batch.add(
            "UPDATE response SET gone = 1, body = 'null', input = 'null', head = NULL WHERE id = ?1",
            vec![id.into()],
        );
        batch.add(
            "DELETE FROM turn WHERE id = ?1
             AND conversation IN (SELECT id FROM conversation WHERE kind = 'response')",
            vec![turn.into()],
        );
        batch.add(
            "DELETE FROM response WHERE id = ?1
             AND NOT EXISTS (SELECT 1 FROM response AS later WHERE later.previous = ?1)",
            vec![id.into()],
        );
        batch.add(
            "DELETE FROM message WHERE turn = ?1
             AND NOT EXISTS (SELECT 1 FROM response WHERE id = ?2)
             AND conversation IN (SELECT id FROM conversation WHERE kind = 'response')",
            vec![turn.into(), id.into()],
        );
        batch.add(
            "DELETE FROM conversation WHERE id = ?1 AND kind = 'response'
             AND NOT EXISTS (SELECT 1 FROM response WHERE conversation = ?1)",
            vec![conversation.into()],
        );
        Ok(self.commit(batch).await?.get(2) == Some(&1))
    }

    /// Some of the responses that were made before this time, or are beyond so many bytes of newer ones.
    pub async fn old_responses(&self, before: i64, bytes: i64) -> Result<Vec<Response>, StoreError> {
        let sql = "SELECT id, scope, conversation, previous, turn, 'null', 'null', NULL, created FROM (
                       SELECT id, scope, conversation, previous, turn, gone, created,
                              CAST(sum(size) OVER (ORDER BY created DESC, id) AS BIGINT) AS total FROM response
                   ) AS kept WHERE gone = 0 AND (created < ?1 OR total > ?2) ORDER BY created, id LIMIT 256";
        self.query(sql, vec![before.into(), bytes.into()]).await?.into_iter().map(response).collect()
    }
}

fn response(row: Row) -> Result<Response, StoreError> {
    let mut columns = Columns::of(row);
    let (id, scope, conversation) = (columns.text(), columns.text(), columns.text());
    let (previous, turn) = (columns.maybe(), columns.text());
    let value = |text: &str| {
        serde_json::from_str::<Value>(text).map_err(|error| StoreError::Unreadable {
            what: "response",
            id: id.clone(),
            reason: error.to_string(),
        })
    };
    let (body, input) = (value(&columns.text())?, value(&columns.text())?);
    let head = columns.maybe().map(|head| value(&head)).transpose()?;
    let created = columns.int();
    Ok(Response { id, scope, conversation, previous, turn, body, input, head, created })
}
