//! What was said.

use lf_core::Message;

use crate::batch::{Batch, Row};
use crate::error::StoreError;

use super::{Columns, Store};

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

    /// False where there was none. A call and its results go together: neither is sent to a model without the other.
    pub async fn delete_message(&self, conversation: &str, id: &str) -> Result<bool, StoreError> {
        let mut batch = Batch::default();
        batch.add(
            "DELETE FROM message WHERE conversation = ?1 AND id = ?2",
            vec![conversation.into(), id.into()],
        );
        Ok(self.commit(batch).await? == [1])
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
    conversation: &str,
    turn: &str,
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
