//! The projects: the one that the program was started in, and those below the data directory, which are read when they
//! are asked for and again when their files have changed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use lf_core::Project;
use lf_core::operator::Operator;
use lf_mcp::SessionPool;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::approvals::{Approvals, Pending};
use super::disk::{file_in, place};
use super::{EditRefusal, Loader, Refusal};

/// For a project's files to be looked at and read, the wait for others included: a data directory may be on a network.
const READ_WAIT: Duration = Duration::from_secs(10);
/// Reads at the same time: a file system that hangs must not take every thread there is for blocking work.
const READS: usize = 8;

pub(super) struct Projects {
    reader: Arc<Reader>,
    room: Arc<Semaphore>,
}

/// What reads files; used on threads that may block.
pub(super) struct Reader {
    pub(super) main: Option<Arc<Project>>,
    pub(super) data_dir: PathBuf,
    pub(super) approvals: Approvals,
    loader: Loader,
    pool: SessionPool,
    /// By directory.
    loaded: Mutex<HashMap<PathBuf, Loaded>>,
}

struct Loaded {
    state: State,
    project: Arc<Project>,
    /// What was approved, or waits for it, as it was then.
    programs: Vec<(PathBuf, Option<Mark>)>,
}

/// How the files that make a project were when it was read.
#[derive(PartialEq)]
struct State {
    path: PathBuf,
    file: Mark,
    /// Variables come from it.
    dotenv: Option<Mark>,
    approvals: Option<Mark>,
}

/// Changes with a file's content.
pub(super) type Mark = (SystemTime, u64);

pub(super) fn mark(path: &Path) -> Option<Mark> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

impl Projects {
    pub(super) fn new(
        main: Option<Project>,
        data_dir: PathBuf,
        loader: Loader,
        pool: SessionPool,
        operator: Arc<Operator>,
    ) -> Self {
        let approvals = Approvals::new(data_dir.clone(), pool.clone(), operator);
        let main = main.map(|mut main| {
            // a stored project is no more trusted for being the working directory
            if is_stored(&data_dir, &main) {
                approvals.hold_back(&mut main);
            } else {
                approvals.hold_back_main(&mut main);
            }
            Arc::new(main)
        });
        let reader = Reader { main, data_dir, approvals, loader, pool, loaded: Mutex::default() };
        Self { reader: Arc::new(reader), room: Arc::new(Semaphore::new(READS)) }
    }

    pub(super) fn main(&self) -> Option<&Arc<Project>> {
        self.reader.main.as_ref()
    }

    pub(super) fn data_dir(&self) -> &Path {
        &self.reader.data_dir
    }

    /// Dropping the future leaves a read running; what it finds is kept.
    pub(super) async fn find(&self, namespace: &str, name: &str) -> Result<Arc<Project>, Refusal> {
        let main = self.main().filter(|main| main.namespace == namespace && main.name == name);
        if let Some(main) = main {
            return Ok(main.clone());
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
    async fn aside<T: Send + 'static>(
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

impl Reader {
    /// `None` where there is no project.
    pub(super) fn read(&self, directory: &Path) -> Option<Result<Arc<Project>, String>> {
        // before the read: a change in between is seen by the next look
        let Some(state) = State::of(directory, &self.approvals.path()) else {
            self.forget(directory);
            return None;
        };
        if let Some(known) = self.loaded().get(directory).filter(|loaded| loaded.is_as(&state)) {
            return Some(Ok(known.project.clone()));
        }
        Some((self.loader)(&state.path).map(|mut project| {
            // a stored project is what its directory says, as every route names it
            let name = |directory: Option<&Path>| {
                directory.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned())
            };
            project.name = name(Some(directory)).unwrap_or(project.name);
            project.namespace = name(directory.parent()).unwrap_or(project.namespace);
            let programs = self.approvals.hold_back(&mut project);
            let programs = programs.into_iter().map(|path| (path.clone(), mark(&path))).collect();
            let project = Arc::new(project);
            let mut loaded = self.loaded();
            let new = Loaded { state, project: project.clone(), programs };
            if let Some(old) = loaded.insert(directory.to_owned(), new) {
                self.retire(&old.project, &loaded);
            }
            project
        }))
    }

    /// What of a project waits for an approval.
    pub(super) fn pending(&self, namespace: &str, name: &str) -> Result<Pending, EditRefusal> {
        if let Some(main) = self.main_elsewhere(namespace, name) {
            return self.approvals.pending_of_main(main).map_err(EditRefusal::Failed);
        }
        let unknown = || EditRefusal::NotFound(format!("{namespace}/{name}"));
        let directory = place(&self.data_dir, namespace, name).ok_or_else(unknown)?;
        let path = file_in(&directory).ok_or_else(unknown)?;
        let mut project = (self.loader)(&path).map_err(EditRefusal::Failed)?;
        (project.namespace, project.name) = (namespace.to_owned(), name.to_owned());
        self.approvals.pending(&project).map_err(EditRefusal::Failed)
    }

    pub(super) fn approve(&self, namespace: &str, name: &str, pending: &Pending) -> Result<(), EditRefusal> {
        let approved = match self.main_elsewhere(namespace, name) {
            Some(main) => self.approvals.approve_main(main, pending),
            None => self.approvals.approve(&format!("{namespace}/{name}"), pending),
        };
        approved.map_err(EditRefusal::Failed)
    }

    /// The project that the program was started in, where that is not a stored one.
    fn main_elsewhere(&self, namespace: &str, name: &str) -> Option<&Arc<Project>> {
        self.is_main(namespace, name).filter(|main| !is_stored(&self.data_dir, main))
    }

    /// A project as its file says, before anything of it is held back.
    pub(super) fn as_written(&self, path: &Path) -> Option<Project> {
        (self.loader)(path).ok()
    }

    pub(super) fn is_main(&self, namespace: &str, name: &str) -> Option<&Arc<Project>> {
        self.main.as_ref().filter(|main| main.namespace == namespace && main.name == name)
    }

    pub(super) fn forget(&self, directory: &Path) {
        let mut loaded = self.loaded();
        if let Some(old) = loaded.remove(directory) {
            self.retire(&old.project, &loaded);
        }
    }

    /// Takes down the sessions with servers that no project has any more: nothing could ever use them again.
    fn retire(&self, old: &Project, loaded: &HashMap<PathBuf, Loaded>) {
        let still_there = || self.main.iter().chain(loaded.values().map(|loaded| &loaded.project));
        for server in old.servers.values().flatten() {
            let kept =
                still_there().any(|project| project.servers.values().flatten().any(|other| other == server));
            if !kept {
                self.pool.retire(server);
            }
        }
    }

    fn stored(&self) -> Vec<Arc<Project>> {
        self.directories().iter().filter_map(|directory| self.read(directory)?.ok()).collect()
    }

    /// Of the stored projects, in the order of their names.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let names = |path: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            let mut names: Vec<String> =
                entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
            names.sort();
            names
        };
        let projects = self.data_dir.join("projects");
        let mut found = Vec::new();
        for namespace in names(&projects) {
            for name in names(&projects.join(&namespace)) {
                found.extend(place(&self.data_dir, &namespace, &name).filter(|path| path.is_dir()));
            }
        }
        found
    }

    fn loaded(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_stored(data_dir: &Path, project: &Project) -> bool {
    let stored = place(data_dir, &project.namespace, &project.name);
    stored.and_then(|path| path.canonicalize().ok()).is_some_and(|stored| stored == project.root)
}

impl Loaded {
    fn is_as(&self, state: &State) -> bool {
        self.state == *state && self.programs.iter().all(|(path, then)| mark(path) == *then)
    }
}

impl State {
    fn of(directory: &Path, approvals: &Path) -> Option<Self> {
        let path = file_in(directory)?;
        Some(Self {
            file: mark(&path)?,
            path,
            dotenv: mark(&directory.join(".env")),
            approvals: mark(approvals),
        })
    }
}

#[cfg(test)]
mod tests;
