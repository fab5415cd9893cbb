//! Deleting a conversation in which something runs or waits.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use lf_store::StoreError;

use super::Memory;

/// The conversations that are being deleted: what waits in one does not begin any more.
#[derive(Default)]
pub(super) struct Forgotten(Mutex<HashSet<String>>);

/// Takes the mark away, also where deleting failed.
struct Mark<'a>(&'a Forgotten, &'a str);

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).remove(self.1);
    }
}

impl Forgotten {
    pub(super) fn has(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    fn mark<'a>(&'a self, id: &'a str) -> Mark<'a> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
        Mark(self, id)
    }
}

impl Memory {
    /// False where there was none. What runs in it is stopped.
    ///
    /// # Errors
    /// When it cannot be deleted now.
    pub(crate) async fn forget(&self, id: &str) -> Result<bool, StoreError> {
        let _mark = self.forgotten.mark(id);
        for turn in self.store.running_in(id).await? {
            self.stop(&turn).await?;
        }
        match self.store.delete(id).await {
            Ok(()) => Ok(true),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
