//! When a file that is being changed is whole, as far as can be told from the outside. Decides; never waits or reads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Without a change, after which a file counts as written.
pub(crate) const QUIET: Duration = Duration::from_millis(200);
/// The same for a file that was written in place shortly before: it may come in pieces.
const RESTLESS: Duration = Duration::from_millis(700);
/// After a look, for which a change in place makes a file restless.
const RECENT: Duration = Duration::from_secs(1);
/// From the first change on, after which a file is looked at that does not come to rest. Where it is written in place, its
/// text is noted halfway, to tell a file that grows from one that is replaced again and again.
const LONGEST: Duration = Duration::from_millis(900);
const HALFWAY: Duration = Duration::from_millis(450);
/// Since the last change of a file that somebody still has open for writing.
const OPEN_QUIET: Duration = Duration::from_secs(5);
/// From the first change on, however it goes on being written.
const OPEN_LONGEST: Duration = Duration::from_secs(30);

/// How sure it is that a file is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// A request wants it: nothing is known but what the file is like.
    Asked,
    /// Nothing changed for [`QUIET`].
    Quiet,
    /// Nothing changed for long.
    Calm,
    /// It is written all the time.
    Hurried,
    /// Somebody says so.
    Forced,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Only what the file says is to be noted.
    Note,
    Look(How),
}

/// What is noticed of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happening {
    /// Its content changes where it is.
    Writing,
    /// Whoever wrote it has closed it.
    Written,
    /// Anything else, such as another file that takes its name.
    Touched,
}

/// The files of one project.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// Since the last look.
    first: Option<Instant>,
    last: Option<Instant>,
    looked: Option<Instant>,
    is_restless: bool,
    /// Since the last look, something was written where it is.
    in_place: bool,
    is_noted: bool,
    /// What somebody is writing.
    open: BTreeSet<PathBuf>,
}

impl Settling {
    pub(super) fn note(&mut self, now: Instant, path: &Path, happening: Happening) {
        self.first.get_or_insert(now);
        self.last = Some(now);
        match happening {
            Happening::Writing => drop(self.open.insert(path.to_owned())),
            Happening::Written | Happening::Touched => drop(self.open.remove(path)),
        }
        let is_recent = self.looked.is_some_and(|looked| now.duration_since(looked) < RECENT);
        self.in_place |= happening != Happening::Touched;
        self.is_restless |= self.in_place && is_recent;
    }

    /// When to do what.
    pub(super) fn due(&self) -> Option<(Instant, Act)> {
        let (first, last) = (self.first?, self.last?);
        if !self.open.is_empty() {
            return Some(((last + OPEN_QUIET).min(first + OPEN_LONGEST), Act::Look(How::Calm)));
        }
        let (quiet, how) = if self.is_restless { (RESTLESS, How::Calm) } else { (QUIET, How::Quiet) };
        let rests = last + quiet;
        if self.in_place && !self.is_noted && rests > first + HALFWAY {
            return Some((first + HALFWAY, Act::Note));
        }
        match rests <= first + LONGEST {
            true => Some((rests, Act::Look(how))),
            false if self.in_place => Some((first + LONGEST, Act::Look(How::Hurried))),
            false => Some((first + LONGEST, Act::Look(How::Quiet))),
        }
    }

    pub(super) fn noted(&mut self) {
        self.is_noted = true;
    }

    pub(super) fn looked(&mut self, now: Instant) {
        *self = Self { looked: Some(now), ..Self::default() };
    }

    /// It was not whole, as it seems.
    pub(super) fn look_again(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.last.get_or_insert(now);
        self.is_restless = true;
    }
}

/// Whether a text that is right may still be a part of what is to come: a beginning of the `active` one, or more of what
/// was there when it was read `last`, so long ago. Only for a file that has not been at rest for long.
pub(crate) fn may_be_cut(text: &str, active: &str, (last, ago): (&str, Duration), how: How) -> bool {
    let is_part_of = |whole: &str| text.len() < whole.len() && whole.starts_with(text);
    let lost_its_end = active.ends_with('\n') && !text.ends_with('\n');
    let grows = text.starts_with(last) && (text.len() > last.len() || ago < RESTLESS);
    match how {
        How::Calm | How::Forced => false,
        How::Quiet | How::Asked => is_part_of(active) || lost_its_end,
        How::Hurried => is_part_of(active) || lost_its_end || grows,
    }
}

#[cfg(test)]
mod tests;
