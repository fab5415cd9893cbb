//! What the operating system tells of changes.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Config, ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::settling::{Act, Happening, Settling};
use super::trail::trail;
use crate::app::Key;

/// Directories and files; what is beyond is looked at now and then only.
const WATCHED: usize = 4096;

/// What was noticed and not looked at yet.
#[derive(Default)]
pub(super) struct Noticed {
    inner: Mutex<Inner>,
    /// Told when there is something new.
    pub(super) woken: Notify,
}

#[derive(Default)]
struct Inner {
    /// Whose change it is when something happens at a path.
    places: HashMap<PathBuf, Vec<Key>>,
    settling: HashMap<Key, Settling>,
}

impl Noticed {
    /// The files of this project are not as they were read. What is known already and waits for its look is no new change.
    pub(super) fn touch(&self, key: &Key) {
        let mut inner = self.lock();
        let settling = inner.settling.entry(key.clone()).or_default();
        if settling.due().is_none() {
            settling.note(Instant::now(), Path::new(""), Happening::Touched);
            drop(inner);
            self.woken.notify_one();
        }
    }

    /// A look begins.
    pub(super) fn looked(&self, key: &Key) {
        self.lock().settling.entry(key.clone()).or_default().looked(Instant::now());
    }

    /// What a file says was noted.
    pub(super) fn noted(&self, key: &Key) {
        self.lock().settling.entry(key.clone()).or_default().noted();
    }

    /// A project is there no more.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().settling.remove(key);
    }

    pub(super) fn look_again(&self, key: &Key) {
        self.lock().settling.entry(key.clone()).or_default().look_again(Instant::now());
        self.woken.notify_one();
    }

    /// When the next look is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.lock().settling.values().filter_map(Settling::due).map(|(when, _)| when).min()
    }

    pub(super) fn due(&self, now: Instant) -> Vec<(Key, Act)> {
        let inner = self.lock();
        let due = inner.settling.iter().filter_map(|(key, settling)| {
            let (when, act) = settling.due()?;
            (when <= now).then(|| (key.clone(), act))
        });
        due.collect()
    }

    fn happened(&self, event: &Event) {
        let Some(happening) = happening(event) else { return };
        let now = Instant::now();
        let mut inner = self.lock();
        let Inner { places, settling } = &mut *inner;
        let mut noticed = false;
        if event.need_rescan() {
            // events were lost
            for key in places.values().flatten() {
                settling.entry(key.clone()).or_default().note(now, Path::new(""), Happening::Touched);
                noticed = true;
            }
        }
        for path in &event.paths {
            for key in places.get(path).into_iter().flatten() {
                settling.entry(key.clone()).or_default().note(now, path, happening);
                noticed = true;
            }
        }
        drop(inner);
        if noticed {
            self.woken.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `None` for what is no change, such as our own reading.
fn happening(event: &Event) -> Option<Happening> {
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Happening::Written),
        EventKind::Access(_) => None,
        EventKind::Modify(ModifyKind::Data(_)) => Some(Happening::Writing),
        _ => Some(Happening::Touched),
    }
}

/// Watches directories and files.
pub(super) struct Eyes {
    noticed: Arc<Noticed>,
    /// `None` where there is none: everything is looked at every [`super::POLL`] all the same.
    watcher: Option<RecommendedWatcher>,
    watched: HashMap<PathBuf, Identity>,
    has_warned: bool,
}

/// Tells a file from another one that takes its place.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { device: metadata.dev(), inode: metadata.ino(), created: metadata.created().ok() })
    }
}

impl Eyes {
    pub(super) fn new(noticed: Arc<Noticed>) -> Self {
        let told = noticed.clone();
        let handler = move |event: notify::Result<Event>| match event {
            Ok(event) => told.happened(&event),
            Err(error) => debug!(%error, "a change may have been missed"),
        };
        let config = Config::default().with_follow_symlinks(false);
        let mut eyes = Self { noticed, watcher: None, watched: HashMap::new(), has_warned: false };
        match RecommendedWatcher::new(handler, config) {
            Ok(watcher) => eyes.watcher = Some(watcher),
            Err(error) => eyes.warn(&error),
        }
        eyes
    }

    /// Whether some changes are not told.
    pub(super) fn are_blind(&self) -> bool {
        self.has_warned
    }

    /// Watches the files of these projects and all that leads to them, and nothing else.
    pub(super) fn rest_on(&mut self, files: &[(Key, PathBuf)]) {
        if self.watcher.is_none() {
            return;
        }
        let mut places: HashMap<PathBuf, Vec<Key>> = HashMap::new();
        let mut wanted: HashMap<PathBuf, Identity> = HashMap::new();
        for (key, file) in files {
            for place in places_of(key, file) {
                // the file itself as well: as a mount of its own it is in another directory than its path says
                let own = Some(place.as_path()).filter(|place| *key == Key::Main && place.is_file());
                for path in place.parent().into_iter().chain(own) {
                    if wanted.len() < WATCHED && !wanted.contains_key(path) {
                        wanted.extend(Identity::of(path).map(|identity| (path.to_owned(), identity)));
                    }
                }
                let keys = places.entry(place).or_default();
                if !keys.contains(key) {
                    keys.push(key.clone());
                }
            }
        }
        self.noticed.lock().places = places;
        self.watch(wanted);
    }

    fn watch(&mut self, wanted: HashMap<PathBuf, Identity>) {
        let Some(watcher) = &mut self.watcher else { return };
        self.watched.retain(|path, identity| {
            let stays = wanted.get(path) == Some(identity);
            if !stays {
                // it may have gone with its file
                let _ = watcher.unwatch(path);
            }
            stays
        });
        let mut trouble = None;
        for (path, identity) in wanted {
            if self.watched.contains_key(&path) {
                continue;
            }
            match watcher.watch(&path, RecursiveMode::NonRecursive) {
                Ok(()) => drop(self.watched.insert(path, identity)),
                Err(error) if is_a_limit(&error) => trouble = Some(error),
                Err(error) => debug!(path = %path.display(), %error, "it cannot be watched, and is polled"),
            }
        }
        if let Some(error) = trouble {
            self.warn(&error);
        }
    }

    fn warn(&mut self, error: &notify::Error) {
        if !std::mem::replace(&mut self.has_warned, true) {
            let every = super::POLL;
            warn!(%error, ?every, "changes of files cannot be watched; files are looked at instead (fs.inotify limits?)");
        }
    }
}

/// Where something happens when a project's files change.
fn places_of(key: &Key, file: &Path) -> Vec<PathBuf> {
    match key {
        Key::Main => [file.to_owned(), file.with_file_name(".env"), lf_config::lock_path(file)]
            .iter()
            .flat_map(|file| trail(file))
            .collect(),
        // no links lead to these; the name may change with its format
        Key::Stored(directory) => {
            let names = lf_config::FILE_NAMES.iter().chain([&".env", &"llamafarm.lock"]);
            names.map(|name| directory.join(name)).collect()
        }
    }
}

fn is_a_limit(error: &notify::Error) -> bool {
    // too many open files, in this process or in the system, and no space for another watch
    const LIMITS: [i32; 3] = [24, 23, 28];
    match &error.kind {
        ErrorKind::MaxFilesWatch => true,
        ErrorKind::Io(error) => error.raw_os_error().is_some_and(|code| LIMITS.contains(&code)),
        _ => false,
    }
}
