//! What was said.

use lf_core::Message;

use crate::batch::{Batch, Row};
use crate::error::StoreError;

use super::{Columns, Store, now};

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    pub id: String,
    /// Its place, counted from 1; places of deleted messages stay empty.
    pub seq: i64,
    /// Milliseconds since 1970.
    pub created: i64,
    /// The turn that it is of.
    pub turn: Option<String>,
    pub message: Message,
}

impl Store {
    /// The messages after this place, in order.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] names the message.
    pub async fn messages(&self, conversation: &str, after: i64) -> Result<Vec<Kept>, StoreError> {
        let sql = "SELECT id, seq, created, turn, body FROM message
                   WHERE conversation = ?1 AND seq > ?2 ORDER BY seq";
        let rows = self.query(sql, vec![conversation.into(), after.into()]).await?;
        rows.into_iter().map(kept).collect()
    }

    /// A part of the messages after this place, in order, and whether there are more behind it: at most `count`, and none that
    /// begins behind so many `bytes` of what is kept of them.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] names the message.
    pub async fn messages_within(
        &self,
        conversation: &str,
        after: i64,
        (count, bytes): (u32, i64),
    ) -> Result<(Vec<Kept>, bool), StoreError> {
        let sql = "SELECT id, seq, created, turn, body FROM (
                       SELECT id, seq, created, turn, body,
                              sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS ahead
                       FROM (SELECT id, seq, created, turn, body FROM message
                             WHERE conversation = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3) AS taken
                   ) AS measured WHERE ahead < ?4 ORDER BY seq";
        let params = vec![conversation.into(), after.into(), i64::from(count).into(), bytes.into()];
        let found = self.query(sql, params).await?.into_iter().map(kept).collect::<Result<Vec<_>, _>>()?;
        let Some(last) = found.last() else { return Ok((found, false)) };
        let sql = "SELECT 1 FROM message WHERE conversation = ?1 AND seq > ?2 LIMIT 1";
        let has_more = !self.query(sql, vec![conversation.into(), last.seq.into()]).await?.is_empty();
        Ok((found, has_more))
    }

    /// Those of one turn, in order: what was said to it, and what it said.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] names the message.
    pub async fn messages_of(&self, turn: &str) -> Result<Vec<Kept>, StoreError> {
        let sql = "SELECT id, seq, created, turn, body FROM message WHERE turn = ?1 ORDER BY seq";
        self.query(sql, vec![turn.into()]).await?.into_iter().map(kept).collect()
    }

    /// One message; `None` where the conversation has none of this id.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`]
    pub async fn message(&self, conversation: &str, id: &str) -> Result<Option<Kept>, StoreError> {
        let sql = "SELECT id, seq, created, turn, body FROM message WHERE conversation = ?1 AND id = ?2";
        let rows = self.query(sql, vec![conversation.into(), id.into()]).await?;
        rows.into_iter().next().map(kept).transpose()
    }

    /// Adds to a conversation what is of no turn, behind the last place in it that the caller knows of.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] where there is no such conversation; [`StoreError::Overtaken`] where a turn of another
    /// daemon runs in it, or something was said after that place.
    pub async fn append(
        &self,
        conversation: &str,
        after: i64,
        said: &[(String, Message)],
    ) -> Result<(), StoreError> {
        if self.conversation(conversation).await?.is_none() {
            return Err(super::conversations::not_found(conversation));
        }
        let mut batch = Batch::quiet(conversation, Some(after));
        add(&mut batch, (conversation, None), now(), said);
        self.commit(batch).await.map(drop)
    }

    /// False where there was none. Its words also leave the journals: those of its own turn, and of every turn that was
    /// begun with it, lose their entries. No turn of the conversation may be running, or begin meanwhile, in this daemon.
    ///
    /// # Errors
    /// [`StoreError::Overtaken`] where a turn of another daemon runs in the conversation; then nothing is deleted.
    pub async fn delete_message(&self, conversation: &str, id: &str) -> Result<bool, StoreError> {
        let mut batch = Batch { erases: true, ..Batch::quiet(conversation, None) };
        // the time of a message is the end of its turn, or its beginning; of one without a turn its own
        for sql in [
            "DELETE FROM response WHERE conversation = ?1 AND turn IN (
                     SELECT later.id FROM turn AS later, message
                     LEFT JOIN turn AS own ON own.id = message.turn
                     WHERE message.conversation = ?1 AND message.id = ?2
                       AND later.conversation = ?1 AND later.created >= coalesce(own.created, message.created)
                 )",
            "DELETE FROM entry WHERE turn IN (
                     SELECT later.id FROM turn AS later, message
                     LEFT JOIN turn AS own ON own.id = message.turn
                     WHERE message.conversation = ?1 AND message.id = ?2
                       AND later.conversation = ?1 AND later.created >= coalesce(own.created, message.created)
                 )",
        ] {
            batch.add(sql, vec![conversation.into(), id.into()]);
        }
        batch.add(
            "DELETE FROM waiting WHERE conversation = ?1 AND EXISTS (
                 SELECT 1 FROM message WHERE message.conversation = ?1 AND message.id = ?2 AND message.turn = (
                     SELECT id FROM turn WHERE turn.conversation = ?1 ORDER BY created DESC, id DESC LIMIT 1
                 )
             )",
            vec![conversation.into(), id.into()],
        );
        batch.add(
            "DELETE FROM message WHERE conversation = ?1 AND id = ?2",
            vec![conversation.into(), id.into()],
        );
        let deleted = self.commit(batch).await?.last() == Some(&1);
        self.drop_parts(conversation).await?;
        Ok(deleted)
    }
}

fn kept(row: Row) -> Result<Kept, StoreError> {
    let mut columns = Columns::of(row);
    let (id, seq, created, turn) = (columns.text(), columns.int(), columns.int(), columns.maybe());
    match serde_json::from_str(&columns.text()) {
        Ok(message) => Ok(Kept { id, seq, created, turn, message }),
        Err(error) => Err(StoreError::Unreadable { what: "message", id, reason: error.to_string() }),
    }
}

/// Adds messages at the end of a conversation.
pub(super) fn add(
    batch: &mut Batch,
    (conversation, turn): (&str, Option<&str>),
    at: i64,
    messages: &[(String, Message)],
) {
    // first: the row holds up others that add to this conversation, who would take the same places
    batch.add("UPDATE conversation SET updated = ?2 WHERE id = ?1", vec![conversation.into(), at.into()]);
    for (id, message) in messages {
        let body = super::parts::json(message);
        batch.add(
            "INSERT INTO message (conversation, seq, id, created, turn, body, text)
             SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4, ?5, ?6 FROM message WHERE conversation = ?1",
            vec![
                conversation.into(),
                id.as_str().into(),
                at.into(),
                turn.into(),
                body.into(),
                spoken(message).into(),
            ],
        );
    }
}

/// What can be searched for.
fn spoken(message: &Message) -> String {
    match message {
        Message::System(said) | Message::User(said) => said.content.text(),
        Message::Assistant(said) => said.content.text(),
        Message::Tool(result) => result.content.text(),
    }
}
