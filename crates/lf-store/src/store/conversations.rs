//! Conversations: what they are called and which tools they use.

use lf_core::ToolRef;

use crate::batch::{Batch, Row};
use crate::error::StoreError;

use super::{Columns, Store, now};

/// Which view of the store a conversation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Made and named through `/conversations`.
    Conversation,
    /// A client's `X-Session-ID`.
    Session,
    /// Responses of the Responses API that go on from one another.
    Response,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Conversation => "conversation",
            Self::Session => "session",
            Self::Response => "response",
        }
    }

    fn named(name: &str) -> Self {
        match name {
            "session" => Self::Session,
            "response" => Self::Response,
            _ => Self::Conversation,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// Unique in the store.
    pub id: String,
    /// `namespace/project`.
    pub scope: String,
    pub kind: Kind,
    /// Who made it; empty for whoever asked without a key.
    pub owner: String,
    pub title: Option<String>,
    /// Goes before everything that is said.
    pub system: Option<String>,
    /// The name of a model of the project; without one its default.
    pub model: Option<String>,
    /// Milliseconds since 1970.
    pub created: i64,
    /// When something was last said or changed.
    pub updated: i64,
}

/// What is to be changed of a conversation: what is `None` stays, and what is `Some(None)` is taken away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    pub title: Option<Option<String>>,
    pub system: Option<Option<String>>,
    pub model: Option<Option<String>>,
}

/// A part of a long list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    pub offset: u32,
    pub limit: u32,
}

fn conversation(row: Row) -> Conversation {
    let mut columns = Columns::of(row);
    Conversation {
        id: columns.text(),
        scope: columns.text(),
        kind: Kind::named(&columns.text()),
        owner: columns.text(),
        title: columns.maybe(),
        system: columns.maybe(),
        model: columns.maybe(),
        created: columns.int(),
        updated: columns.int(),
    }
}

impl Store {
    /// Keeps a new conversation, or does nothing when there is one of this id.
    pub async fn create(&self, new: &Conversation) -> Result<bool, StoreError> {
        let mut batch = Batch::default();
        insert(&mut batch, new);
        Ok(self.commit(batch).await? == [1])
    }

    pub async fn conversation(&self, id: &str) -> Result<Option<Conversation>, StoreError> {
        let sql = "SELECT id, scope, kind, owner, title, system, model, created, updated
                   FROM conversation WHERE id = ?1";
        Ok(self.query(sql, vec![id.into()]).await?.pop().map(conversation))
    }

    /// Those of a project, of this owner or of all, the last used first.
    pub async fn conversations(
        &self,
        scope: &str,
        kind: Kind,
        owner: Option<&str>,
        page: Page,
    ) -> Result<Vec<Conversation>, StoreError> {
        let sql = "SELECT id, scope, kind, owner, title, system, model, created, updated
                   FROM conversation WHERE scope = ?1 AND kind = ?2 AND owner = coalesce(?5, owner)
                   ORDER BY updated DESC, id LIMIT ?3 OFFSET ?4";
        let params = vec![
            scope.into(),
            kind.name().into(),
            i64::from(page.limit).into(),
            i64::from(page.offset).into(),
            owner.map(str::to_owned).into(),
        ];
        Ok(self.query(sql, params).await?.into_iter().map(conversation).collect())
    }

    /// Those in which all these words were said or stand in the title, the last used first.
    pub async fn search(
        &self,
        scope: &str,
        words: &str,
        owner: Option<&str>,
        page: Page,
    ) -> Result<Vec<Conversation>, StoreError> {
        let words: Vec<&str> = words.split_whitespace().collect();
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let (sql, asked) = self.0.search(&words);
        let params = vec![
            scope.into(),
            asked.into(),
            words.join(" ").into(),
            i64::from(page.limit).into(),
            i64::from(page.offset).into(),
            owner.map(str::to_owned).into(),
        ];
        Ok(self.query(sql, params).await?.into_iter().map(conversation).collect())
    }

    /// Changes what is named and nothing else: of changes at once none is lost, and of those of one field the last stays.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]
    pub async fn change(&self, id: &str, change: Change) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.add("UPDATE conversation SET updated = ?2 WHERE id = ?1", vec![id.into(), now().into()]);
        let Change { title, system, model } = change;
        for (sql, field) in [
            ("UPDATE conversation SET title = ?2 WHERE id = ?1", title),
            ("UPDATE conversation SET system = ?2 WHERE id = ?1", system),
            ("UPDATE conversation SET model = ?2 WHERE id = ?1", model),
        ] {
            if let Some(text) = field {
                batch.add(sql, vec![id.into(), text.into()]);
            }
        }
        self.found(batch, id).await
    }

    /// Forgets a conversation with all that was said in it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]
    pub async fn delete(&self, id: &str) -> Result<(), StoreError> {
        let mut batch = Batch::erasing();
        // messages by their own statement: the index of words is kept by a trigger on them
        batch.add("DELETE FROM message WHERE conversation = ?1", vec![id.into()]);
        batch.add("DELETE FROM conversation WHERE id = ?1", vec![id.into()]);
        match self.commit(batch).await?.last() {
            Some(0) | None => Err(not_found(id)),
            Some(_) => Ok(()),
        }
    }

    async fn found(&self, batch: Batch, id: &str) -> Result<(), StoreError> {
        match self.commit(batch).await?.first() {
            Some(0) | None => Err(not_found(id)),
            Some(_) => Ok(()),
        }
    }

    /// The tools that were switched on for this conversation alone; none means that nobody chose.
    pub async fn tools(&self, conversation: &str) -> Result<Vec<ToolRef>, StoreError> {
        let sql = "SELECT server, name FROM tool WHERE conversation = ?1 ORDER BY server, name";
        let rows = self.query(sql, vec![conversation.into()]).await?;
        Ok(rows.into_iter().map(super::tool).collect())
    }

    pub async fn switch_on(&self, conversation: &str, tool: &ToolRef) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.add(
            "INSERT INTO tool (conversation, server, name) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            vec![conversation.into(), (&*tool.server).into(), (&*tool.name).into()],
        );
        self.commit(batch).await.map(drop)
    }

    /// False where it was not on.
    pub async fn switch_off(&self, conversation: &str, tool: &ToolRef) -> Result<bool, StoreError> {
        let mut batch = Batch::default();
        batch.add(
            "DELETE FROM tool WHERE conversation = ?1 AND server = ?2 AND name = ?3",
            vec![conversation.into(), (&*tool.server).into(), (&*tool.name).into()],
        );
        Ok(self.commit(batch).await? == [1])
    }
}

/// Does nothing when there is one of this id.
pub(super) fn insert(batch: &mut Batch, new: &Conversation) {
    batch.add(
        "INSERT INTO conversation (id, scope, kind, title, system, model, created, updated, owner)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO NOTHING",
        vec![
            new.id.as_str().into(),
            new.scope.as_str().into(),
            new.kind.name().into(),
            new.title.clone().into(),
            new.system.clone().into(),
            new.model.clone().into(),
            new.created.into(),
            new.updated.into(),
            new.owner.as_str().into(),
        ],
    );
}

pub(super) fn not_found(id: &str) -> StoreError {
    StoreError::NotFound { what: "conversation", id: id.to_owned() }
}
