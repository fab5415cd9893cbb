//! Everything that decides which file a path means.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// As the kernel has it.
const LINKS: usize = 40;

/// The places at which a change can make another file of `path`: each link on the way, the last directory, and the file
/// itself, all by names without links before their last part. `path` should be absolute; what is not there ends it.
pub(super) fn trail(path: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    let mut links = 0;
    let mut at = PathBuf::from("/");
    let mut parts: VecDeque<OsString> = names(path).collect();
    while let Some(part) = parts.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        let place = at.join(&part);
        match std::fs::read_link(&place) {
            Ok(target) if links < LINKS => {
                links += 1;
                places.push(place);
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                names(&target).rev().for_each(|name| parts.push_front(name));
            }
            _ => {
                let is_near_the_end = parts.len() < 2;
                if is_near_the_end || place.symlink_metadata().is_err() {
                    places.push(place.clone());
                }
                at = place;
            }
        }
    }
    places
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_and_the_file_are_on_the_way() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().canonicalize().unwrap();
        std::fs::create_dir_all(at.join("..one")).unwrap();
        std::fs::write(at.join("..one/a.yaml"), "").unwrap();
        symlink("..one", at.join("..data")).unwrap();
        symlink("..data/a.yaml", at.join("a.yaml")).unwrap();
        let found = trail(&at.join("a.yaml"));
        let own: Vec<_> = found.iter().filter_map(|place| place.strip_prefix(&at).ok()).collect();
        assert_eq!(own, ["", "a.yaml", "..data", "..one", "..one/a.yaml"].map(Path::new));
    }

    #[test]
    fn a_file_that_is_not_there_has_the_way_to_where_it_would_be() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().canonicalize().unwrap();
        let found = trail(&at.join("gone/further/a.yaml"));
        let own: Vec<_> = found.iter().filter_map(|place| place.strip_prefix(&at).ok()).collect();
        assert_eq!(own, ["gone", "gone/further", "gone/further/a.yaml"].map(Path::new));
    }

    #[test]
    fn links_in_a_circle_end() {
        let home = tempfile::tempdir().unwrap();
        symlink("b", home.path().join("a")).unwrap();
        symlink("a", home.path().join("b")).unwrap();
        assert!(trail(&home.path().join("a")).len() <= LINKS + 2);
    }
}
