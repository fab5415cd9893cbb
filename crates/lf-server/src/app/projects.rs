//! The projects: the one that the program was started in, and those below the data directory. Files are looked at and
//! read aside of the runtime's threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lf_core::Project;
use lf_core::operator::Operator;
use lf_mcp::SessionPool;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::disk::place;
use super::generation::Opened;
use super::reader::Reader;
use super::{EditRefusal, Loader, Refusal};

/// For a project's files to be looked at and read, the wait for others included: a data directory may be on a network.
const READ_WAIT: Duration = Duration::from_secs(10);
/// Reads at the same time: a file system that hangs must not take every thread there is for blocking work.
const READS: usize = 8;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Projects {
    reader: Arc<Reader>,
    room: Arc<Semaphore>,
}

impl Projects {
    pub(super) fn new(
        main: Option<Opened>,
        data_dir: PathBuf,
        loader: Loader,
        pool: SessionPool,
        operator: Arc<Operator>,
    ) -> Self {
        let reader = Reader::new(main, data_dir, loader, pool, operator);
        Self { reader: Arc::new(reader), room: Arc::new(Semaphore::new(READS)) }
    }

    pub(super) fn main(&self) -> Option<Arc<Project>> {
        self.reader.main()
    }

    pub(super) fn data_dir(&self) -> &Path {
        &self.reader.data_dir
    }

    /// What answers from memory, without reading anything.
    pub(crate) fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// Dropping the future leaves a read running; what it finds is kept.
    pub(super) async fn find(&self, namespace: &str, name: &str) -> Result<Arc<Project>, Refusal> {
        if let Some(main) = self.reader.is_main(namespace, name) {
            return Ok(main);
        }
        let full = format!("{namespace}/{name}");
        let directory = place(&self.reader.data_dir, namespace, name)
            .ok_or_else(|| Refusal::UnknownProject(full.clone()))?;
        let read = self.aside(move |reader| reader.read(&directory)).await;
        read.unwrap_or_else(|reason| Some(Err(reason)))
            .ok_or_else(|| Refusal::UnknownProject(full.clone()))?
            .map_err(|reason| Refusal::BrokenProject { project: full, reason })
    }

    /// The projects below the data directory that can be read, by name.
    pub(super) async fn stored(&self) -> Vec<Arc<Project>> {
        self.aside(Reader::stored).await.unwrap_or_else(|reason| {
            tracing::warn!(error = reason, "the stored projects cannot be listed");
            Vec::new()
        })
    }

    /// Shows or changes what is stored. Dropping the future leaves a change running.
    pub(super) async fn edit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Reader) -> Result<T, EditRefusal> + Send + 'static,
    ) -> Result<T, EditRefusal> {
        self.aside(work).await.unwrap_or_else(|reason| Err(EditRefusal::Failed(reason)))
    }

    /// Does blocking work aside of the runtime's threads.
    ///
    /// # Errors
    /// When it does not end in time; it goes on then.
    pub(crate) async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Reader) -> T + Send + 'static,
    ) -> Result<T, String> {
        let (reader, room) = (self.reader.clone(), self.room.clone());
        let done = async {
            let permit = room.acquire_owned().await;
            let reading = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                work(&reader)
            });
            reading.await.map_err(|error| format!("reading it failed: {error}"))
        };
        timeout(READ_WAIT, done)
            .await
            .unwrap_or_else(|_| Err(format!("its files could not be read within {READ_WAIT:?}")))
    }
}

#[cfg(test)]
mod tests;
