//! What reads the files of projects; used on threads that may block.

mod record;
mod slot;
mod trust;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant, SystemTime};

use lf_core::Project;
use lf_core::audit::Record;
use lf_core::operator::Operator;
use lf_mcp::SessionPool;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::Loader;
use super::approvals::Approvals;
use super::disk::{self, file_in, place};
use super::generation::{Broken, ConfigStatus, Generation, Opened, RefusedEdit};
use crate::audit::Audit;
use crate::reload::{How, QUIET, may_be_cut};
use record::{on_record, refusal, taken};
pub(super) use slot::{Mark, mark};
use slot::{Slot, State};

/// A file that changes under every one of so many reads is left to the next look.
const READS: usize = 3;

pub(crate) struct Reader {
    pub(super) data_dir: PathBuf,
    pub(super) approvals: Approvals,
    loader: Loader,
    pool: SessionPool,
    pub(super) audit: Arc<Audit>,
    /// Whether what is read first is put on record: a daemon goes by it.
    is_recorded: AtomicBool,
    slots: RwLock<Slots>,
    /// Told of each project that is read for the first time.
    pub(crate) first_read: Notify,
}

/// Which project.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The one that the program was started in.
    Main,
    /// By directory.
    Stored(PathBuf),
}

/// Everything that is loaded.
#[derive(Default)]
struct Slots {
    main: Option<Slot>,
    stored: HashMap<PathBuf, Slot>,
}

impl Slots {
    fn get(&self, key: &Key) -> Option<&Slot> {
        match key {
            Key::Main => self.main.as_ref(),
            Key::Stored(directory) => self.stored.get(directory),
        }
    }

    fn get_mut(&mut self, key: &Key) -> Option<&mut Slot> {
        match key {
            Key::Main => self.main.as_mut(),
            Key::Stored(directory) => self.stored.get_mut(directory),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Slot> {
        self.main.iter().chain(self.stored.values())
    }

    fn has(&self, server: &lf_core::McpServer) -> bool {
        self.all().any(|slot| slot.project().servers.values().flatten().any(|other| **other == *server))
    }
}

/// What came of a look at a project's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// They are as they were, or say the same.
    Same,
    /// They are being written, as it seems: another look is needed.
    Unsettled,
    Taken,
    Refused,
    /// A stored project is there no more.
    Gone,
}

impl Reader {
    pub(super) fn new(
        main: Option<Opened>,
        data_dir: PathBuf,
        loader: Loader,
        pool: SessionPool,
        operator: Arc<Operator>,
        audit: Arc<Audit>,
    ) -> Self {
        let approvals = Approvals::new(data_dir.clone(), pool.clone(), operator);
        let slots = RwLock::default();
        let (first_read, is_recorded) = (Notify::new(), AtomicBool::new(false));
        let reader = Self { data_dir, approvals, loader, pool, audit, is_recorded, slots, first_read };
        if let Some(mut main) = main {
            let path = main.path.take().map(|path| std::path::absolute(&path).unwrap_or(path));
            let path = path.unwrap_or_default();
            let programs = reader.finish(&Key::Main, &mut main.project);
            let state = State::of(&path, &reader.approvals.path(), programs);
            // it was read a while ago, and nobody has looked since
            let mut slot = Slot::new(state, main);
            slot.is_unseen = true;
            reader.write().main = Some(slot);
        }
        reader
    }

    /// Puts on record what a daemon begins with. Whatever only looks at a file leaves nothing behind.
    pub(crate) fn begin_record(&self) {
        let slots = self.slots();
        self.is_recorded.store(true, Ordering::Relaxed);
        slots.main.iter().chain(slots.stored.values()).for_each(|slot| self.audit.record(taken(slot)));
    }

    /// The project that the program was started in, as it is now.
    pub(super) fn main(&self) -> Option<Arc<Project>> {
        self.slots().main.as_ref().map(|slot| slot.project().clone())
    }

    /// Its file, which may be a link.
    pub(super) fn main_file(&self) -> Option<PathBuf> {
        let slots = self.slots();
        slots.main.as_ref().map(|slot| slot.file().to_owned()).filter(|file| !file.as_os_str().is_empty())
    }

    /// A project as it is now. Reads nothing.
    pub(crate) fn current(&self, key: &Key) -> Option<Arc<Project>> {
        self.slots().get(key).map(|slot| slot.project().clone())
    }

    /// Which project a name means; there need be none.
    pub(crate) fn key_of(&self, namespace: &str, name: &str) -> Option<Key> {
        if self.is_main(namespace, name).is_some() {
            return Some(Key::Main);
        }
        place(&self.data_dir, namespace, name).map(Key::Stored)
    }

    pub(super) fn is_main(&self, namespace: &str, name: &str) -> Option<Arc<Project>> {
        self.main().filter(|main| main.namespace == namespace && main.name == name)
    }

    /// A stored project; `None` where there is none. One whose file cannot be used any more is as it was last.
    pub(super) fn read(&self, directory: &Path) -> Option<Result<Arc<Project>, String>> {
        self.read_as(directory, How::Asked)
    }

    /// The same where its file is known to be whole.
    pub(super) fn read_written(&self, directory: &Path) -> Option<Result<Arc<Project>, String>> {
        self.read_as(directory, How::Forced)
    }

    fn read_as(&self, directory: &Path, how: How) -> Option<Result<Arc<Project>, String>> {
        let key = Key::Stored(directory.to_owned());
        if let Err(broken) = self.look(&key, how) {
            return Some(Err(broken.reason));
        }
        self.current(&key).map(Ok)
    }

    /// Looks at a project's files, and takes what they say if they changed and are right.
    ///
    /// # Errors
    /// When they cannot be used, and there is nothing to go on with.
    pub(crate) fn look(&self, key: &Key, how: How) -> Result<Look, Broken> {
        for _ in 0..READS {
            let state = self.state_of(key);
            let looks = match self.begin(key, &state, how) {
                Begin::End(look) => return Ok(look),
                Begin::Wait(pause) => {
                    std::thread::sleep(pause);
                    continue;
                }
                Begin::Read(looks) => looks,
            };
            let opened = match (key, state.file) {
                // its file may be on its way, and its directory is what it is
                (Key::Stored(directory), None) if looks.is_none() || !state.has_directory => {
                    if let Some(gone) = self.take_away(directory) {
                        self.audit.record(Record { outcome: Some("gone"), ..on_record(&gone) });
                    }
                    return Ok(Look::Gone);
                }
                (Key::Stored(_), None) => {
                    let path = state.path.display();
                    Err(Broken::new(format!("cannot read {path}: it is gone, or a link")))
                }
                _ => (self.loader)(&state.path),
            };
            if self.state_of(key) != state {
                continue;
            }
            if let Some(look) = self.settle(key, looks, (state, opened), how)? {
                return Ok(look);
            }
        }
        Ok(Look::Unsettled)
    }

    /// Reads what a file says now, and takes nothing of it.
    pub(crate) fn note(&self, key: &Key) {
        let text = lf_config::read(&self.state_of(key).path);
        if let (Some(slot), Ok(text)) = (self.write().get_mut(key), text) {
            slot.note(&text);
        }
    }

    /// Whether there is something to read.
    fn begin(&self, key: &Key, state: &State, how: How) -> Begin {
        let mut slots = self.write();
        let Some(slot) = slots.get_mut(key) else {
            // nothing can be answered with meanwhile
            return match state.settles_in(SystemTime::now()) {
                Some(pause) if how == How::Asked => Begin::Wait(pause),
                _ => Begin::Read(None),
            };
        };
        if state.path.as_os_str().is_empty() || (how != How::Forced && slot.is_as(state)) {
            slot.changing = None;
            return Begin::End(Look::Same);
        }
        if how == How::Asked && !slot.has_settled(state, Instant::now()) {
            return Begin::End(Look::Unsettled);
        }
        Begin::Read(Some(slot.looks))
    }

    /// Takes what was found, or refuses it. `None` when another look was faster.
    fn settle(
        &self,
        key: &Key,
        looks: Option<u64>,
        (state, opened): (State, Result<Opened, Broken>),
        how: How,
    ) -> Result<Option<Look>, Broken> {
        let mut opened = match opened {
            Ok(opened) => opened,
            Err(broken) => return self.refuse(key, looks, state, broken),
        };
        if let Some(look) = self.hold(key, &opened.text, how) {
            return Ok(Some(look));
        }
        let programs = self.finish(key, &mut opened.project);
        let lost = self.slots().get(key).and_then(|slot| slot.loses_all(&opened.project));
        if let Some(broken) = lost.filter(|_| how != How::Forced) {
            return self.refuse(key, looks, state, broken);
        }
        let state = state.with(programs);
        let mut slots = self.write();
        let Some(slot) = slots.get_mut(key) else {
            let Key::Stored(directory) = key else { return Ok(Some(Look::Same)) };
            let slot = Slot::new(state, opened);
            if self.is_recorded.load(Ordering::Relaxed) {
                self.audit.record(taken(&slot));
            }
            slots.stored.insert(directory.clone(), slot);
            self.first_read.notify_one();
            return Ok(Some(Look::Taken));
        };
        if Some(slot.looks) != looks {
            return Ok(None);
        }
        let was_refused = slot.refused.is_some();
        let Some(old) = slot.take(state, opened) else {
            if was_refused {
                info!(file = %slot.file().display(), generation = slot.active.number, "the configuration is right again, and as it was");
            }
            return Ok(Some(Look::Same));
        };
        told(slot);
        self.audit.record(taken(slot));
        self.retell(&old.project, slot.project());
        self.retire(&old.project, &slots);
        Ok(Some(Look::Taken))
    }

    fn refuse(
        &self,
        key: &Key,
        looks: Option<u64>,
        state: State,
        mut broken: Broken,
    ) -> Result<Option<Look>, Broken> {
        if matches!(key, Key::Main)
            && state.file.is_none()
            && let Some(other) =
                disk::FILES.iter().map(|file| state.path.with_file_name(file)).find(|path| path.exists())
        {
            let (gone, there) = (state.path.display(), other.display());
            broken = Broken::new(format!("{gone} is gone, and {there} is there: the next start reads it"));
        }
        let mut slots = self.write();
        let Some(slot) = slots.get_mut(key) else { return Err(broken) };
        if Some(slot.looks) != looks {
            return Ok(None);
        }
        slot.refuse(state, broken);
        refused(slot);
        self.audit.record(refusal(slot));
        Ok(Some(Look::Refused))
    }

    /// Whether the text looks like a part of a file that is being written.
    fn hold(&self, key: &Key, text: &str, how: How) -> Option<Look> {
        let mut slots = self.write();
        let slot = slots.get_mut(key)?;
        let last = (&*slot.last, slot.last_read.elapsed());
        let held = may_be_cut(text, &slot.text, last, how);
        slot.note(text);
        held.then_some(Look::Unsettled)
    }

    fn state_of(&self, key: &Key) -> State {
        let (main, programs) = {
            let slots = self.slots();
            let main = slots.main.as_ref().map(|slot| slot.file().to_owned());
            (main, slots.get(key).map(Slot::programs).unwrap_or_default())
        };
        let found = match key {
            Key::Main => main,
            Key::Stored(directory) => file_in(directory),
        };
        let path = match (&found, key) {
            (None, Key::Stored(directory)) => directory.join(disk::FILES[0]),
            _ => found.clone().unwrap_or_default(),
        };
        let state = State::of(&path, &self.approvals.path(), programs);
        // a link is no file of a stored project
        if found.is_some() { state } else { state.without_file() }
    }

    /// Projects whose files are not as they were at the last look, each once.
    pub(crate) fn changed(&self) -> Vec<Key> {
        let keys = self.keys();
        let changed = keys.into_iter().filter(|key| {
            let state = self.state_of(key);
            self.slots().get(key).is_some_and(|slot| !slot.is_as(&state))
        });
        changed.collect()
    }

    /// What is loaded and has files, with the file of each.
    pub(crate) fn files(&self) -> Vec<(Key, PathBuf)> {
        let slots = self.slots();
        let main = slots.main.iter().map(|slot| (Key::Main, slot.file().to_owned()));
        let stored = slots.stored.iter().map(|(at, slot)| (Key::Stored(at.clone()), slot.file().to_owned()));
        main.chain(stored).filter(|(_, file)| !file.as_os_str().is_empty()).collect()
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        self.files().into_iter().map(|(key, _)| key).collect()
    }

    /// Where everything that is loaded stands: the main project first, the others by name.
    pub(crate) fn status(&self) -> Vec<ConfigStatus> {
        let slots = self.slots();
        let main = slots.main.iter().map(|slot| slot.status(true));
        let mut stored: Vec<ConfigStatus> = slots.stored.values().map(|slot| slot.status(false)).collect();
        stored.sort_by(|one, other| one.file.cmp(&other.file));
        main.chain(stored).collect()
    }

    pub(super) fn forget(&self, directory: &Path) {
        drop(self.take_away(directory));
    }

    fn take_away(&self, directory: &Path) -> Option<Slot> {
        let mut slots = self.write();
        let old = slots.stored.remove(directory)?;
        self.retire(old.project(), &slots);
        Some(old)
    }

    /// Has clients look again at tools that are held against something else now.
    fn retell(&self, old: &Project, new: &Project) {
        for (name, server) in &new.servers {
            if let (Ok(server), false) = (server, old.pins.agrees(&new.pins, name)) {
                self.pool.retell_tools(server);
            }
        }
    }

    /// Takes down the sessions with servers that no project has any more: nothing could ever use them again.
    fn retire(&self, old: &Project, slots: &Slots) {
        for server in old.servers.values().flatten() {
            if !slots.has(server) {
                self.pool.retire(server);
            }
        }
    }

    /// The same for sessions that a call began which was on its way when its server left.
    pub(crate) fn sweep(&self) {
        self.pool.retain(|server| self.slots().has(server));
    }

    /// Removes what writers left behind that were cut off.
    pub(crate) fn tidy(&self) {
        if let Err(error) = disk::tidy(&self.data_dir, &self.directories()) {
            warn!(%error, "what an earlier process left in the data directory cannot be removed");
        }
    }

    pub(super) fn stored(&self) -> Vec<Arc<Project>> {
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

    fn slots(&self) -> RwLockReadGuard<'_, Slots> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Slots> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Begin {
    End(Look),
    Wait(Duration),
    /// With the number of looks that were taken before; `None` where nothing is known yet.
    Read(Option<u64>),
}

fn told(slot: &Slot) {
    let Generation { number, project, hash, diagnostics, .. } = &*slot.active;
    let name = format!("{}/{}", project.namespace, project.name);
    info!(project = name, generation = number, hash, file = %slot.file().display(), "configuration reloaded");
    for one in diagnostics {
        info!(project = name, "{}", one.line(slot.file()));
    }
}

fn refused(slot: &Slot) {
    let Some(RefusedEdit { broken, .. }) = slot.refused.as_deref() else { return };
    let project = slot.project();
    let name = format!("{}/{}", project.namespace, project.name);
    warn!(
        project = name,
        generation = slot.active.number,
        error = broken.reason,
        "the changed configuration is refused, and the last one stays active"
    );
    for one in &broken.diagnostics {
        warn!(project = name, "{}", one.line(slot.file()));
    }
}

#[cfg(test)]
mod tests;
