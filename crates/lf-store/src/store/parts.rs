//! Long parts of a turn's first entry, kept once for each conversation: every turn begins with all that was said before,
//! and with the same tools.

use std::collections::{HashMap, HashSet};

use lf_core::turn::Entry;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::batch::Batch;
use crate::dialect::DROP_SHARED_PARTS;
use crate::error::StoreError;

use super::{Columns, Store};

/// Where the parts of an entry are. In their place stands the hash.
const PLACES: [&str; 3] = ["/begun/tools", "/begun/request/messages", "/stood_in/tools"];

pub(super) fn json(value: &(impl Serialize + ?Sized)) -> String {
    // values of the core have text keys alone, so that there is nothing that JSON could not say
    serde_json::to_string(value).unwrap_or_default()
}

/// The entry as it is kept.
pub(super) fn take_apart(batch: &mut Batch, conversation: &str, entry: &Entry) -> String {
    if !matches!(entry, Entry::Begun(_) | Entry::StoodIn(_)) {
        return json(entry);
    }
    let Ok(mut value) = serde_json::to_value(entry) else { return json(entry) };
    for place in PLACES {
        match value.pointer_mut(place) {
            Some(Value::Array(items)) => items.iter_mut().for_each(|item| put(batch, conversation, item)),
            Some(part) => put(batch, conversation, part),
            None => {}
        }
    }
    value.to_string()
}

fn put(batch: &mut Batch, conversation: &str, part: &mut Value) {
    let body = part.to_string();
    let hash: String = Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    batch.add(
        "INSERT INTO part (conversation, hash, body) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        vec![conversation.into(), hash.as_str().into(), body.into()],
    );
    *part = hash.into();
}

impl Store {
    /// Forgets the parts of a conversation that no entry needs any more. No turn of this daemon may begin in it meanwhile.
    pub(super) async fn drop_parts(&self, conversation: &str) -> Result<(), StoreError> {
        if self.is_shared() {
            let mut batch = Batch::erasing();
            for sql in DROP_SHARED_PARTS {
                batch.add(sql, vec![conversation.into()]);
            }
            return self.commit(batch).await.map(drop);
        }
        let sql = "SELECT entry.body FROM entry JOIN turn ON turn.id = entry.turn
                   WHERE turn.conversation = ?1
                     AND (entry.body LIKE '{\"begun\"%' OR entry.body LIKE '{\"stood_in\"%')";
        let mut needed: HashSet<String> = HashSet::new();
        for row in self.query(sql, vec![conversation.into()]).await? {
            let value: Value = serde_json::from_str(&Columns::of(row).text()).unwrap_or_default();
            let parts = PLACES.iter().filter_map(|place| value.pointer(place));
            let parts =
                parts.flat_map(|part| part.as_array().map_or(std::slice::from_ref(part), Vec::as_slice));
            needed.extend(parts.filter_map(Value::as_str).map(str::to_owned));
        }
        let mut batch = Batch::erasing();
        for row in
            self.query("SELECT hash FROM part WHERE conversation = ?1", vec![conversation.into()]).await?
        {
            let hash = Columns::of(row).text();
            if !needed.contains(&hash) {
                batch.add(
                    "DELETE FROM part WHERE conversation = ?1 AND hash = ?2",
                    vec![conversation.into(), hash.into()],
                );
            }
        }
        if batch.is_empty() { Ok(()) } else { self.commit(batch).await.map(drop) }
    }

    /// The entry as it was.
    pub(super) async fn put_together(
        &self,
        (conversation, turn): (&str, &str),
        body: &str,
        known: &mut HashMap<String, Value>,
    ) -> Result<Entry, StoreError> {
        let unreadable =
            |reason: String| StoreError::Unreadable { what: "turn", id: turn.to_owned(), reason };
        if !body.starts_with("{\"begun\"") && !body.starts_with("{\"stood_in\"") {
            return serde_json::from_str(body).map_err(|error| unreadable(error.to_string()));
        }
        if known.is_empty() {
            let sql = "SELECT hash, body FROM part WHERE conversation = ?1";
            for row in self.query(sql, vec![conversation.into()]).await? {
                let mut columns = Columns::of(row);
                let (hash, body) = (columns.text(), columns.text());
                let value = serde_json::from_str(&body).map_err(|error| unreadable(error.to_string()))?;
                known.insert(hash, value);
            }
        }
        let mut value: Value = serde_json::from_str(body).map_err(|error| unreadable(error.to_string()))?;
        let get = |part: &mut Value| {
            let hash = part.as_str().unwrap_or_default();
            let whole = known.get(hash).ok_or_else(|| unreadable(format!("its part {hash} is missing")))?;
            *part = whole.clone();
            Ok::<(), StoreError>(())
        };
        for place in PLACES {
            match value.pointer_mut(place) {
                Some(Value::Array(items)) => items.iter_mut().try_for_each(get)?,
                Some(part) => get(part)?,
                None => {}
            }
        }
        serde_json::from_value(value).map_err(|error| unreadable(error.to_string()))
    }
}
