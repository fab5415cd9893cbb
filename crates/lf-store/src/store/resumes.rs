//! What clients come back for with the results of their own calls.

use std::sync::Arc;

use lf_core::Message;
use lf_core::turn::Resume;

use crate::batch::Batch;
use crate::error::StoreError;

use super::{Columns, Store, now, parts};

/// What one takes at least, in bytes: its rows and their indexes.
const ROWS: usize = 4096;

impl Store {
    /// Keeps what leads back to a turn from each of its calls.
    pub async fn remember(&self, resume: &Resume) -> Result<(), StoreError> {
        let Some(id) = resume.ids.first() else { return Ok(()) };
        let body = parts::json(&*resume.messages);
        let size = i64::try_from(ROWS + body.len()).unwrap_or(i64::MAX);
        let mut batch = Batch::default();
        batch.add(
            "INSERT INTO resume (id, body, size, created) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            vec![id.as_str().into(), body.into(), size.into(), now().into()],
        );
        for call in &resume.ids {
            batch.add(
                "INSERT INTO resume_call (call, resume) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                vec![call.as_str().into(), id.as_str().into()],
            );
        }
        self.commit(batch).await.map(drop)
    }

    /// What this call leads back to.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`]
    pub async fn remembered(&self, call: &str) -> Result<Option<Resume>, StoreError> {
        let sql = "SELECT resume.id, resume.body FROM resume
                   JOIN resume_call ON resume_call.resume = resume.id WHERE resume_call.call = ?1";
        let Some(row) = self.query(sql, vec![call.into()]).await?.pop() else { return Ok(None) };
        let mut columns = Columns::of(row);
        let (id, body) = (columns.text(), columns.text());
        let messages: Vec<Message> = serde_json::from_str(&body).map_err(|error| StoreError::Unreadable {
            what: "call",
            id: call.to_owned(),
            reason: error.to_string(),
        })?;
        let sql = "SELECT call FROM resume_call WHERE resume = ?1 ORDER BY call";
        let calls = self.query(sql, vec![id.into()]).await?;
        let ids = calls.into_iter().map(|row| Columns::of(row).text()).collect();
        Ok(Some(Resume { ids, messages: Arc::from(messages) }))
    }

    /// Forgets what was kept before this time, or is beyond so many bytes of newer ones.
    pub async fn trim_remembered(&self, before: i64, bytes: i64) -> Result<(), StoreError> {
        let mut batch = Batch::erasing();
        batch.add(
            "DELETE FROM resume WHERE id IN (
                 SELECT id FROM (
                     SELECT id, created, CAST(sum(size) OVER (ORDER BY created DESC, id) AS BIGINT) AS total
                     FROM resume
                 ) AS kept WHERE created < ?1 OR total > ?2
             )",
            vec![before.into(), bytes.into()],
        );
        self.commit(batch).await.map(drop)
    }
}
