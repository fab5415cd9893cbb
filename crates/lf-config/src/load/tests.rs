use std::fs;
use std::time::Duration;

use super::*;
use crate::tests::own_time;

const FILE: &str = "version: v1\nname: farm\nnamespace: default\nruntime: {models: [{name: m, provider: openai, model: '${env:MODEL}'}]}\n";

#[test]
fn the_nearest_file_upward_is_found_up_to_the_root_of_the_repository() {
    let top = tempfile::tempdir().expect("a directory");
    let inner = top.path().join("repo/a/b");
    fs::create_dir_all(&inner).expect("created");
    fs::write(top.path().join("llamafarm.yaml"), FILE).expect("written");
    assert_eq!(find(&inner).expect("found"), top.path().join("llamafarm.yaml"));
    fs::create_dir(top.path().join("repo/.git")).expect("created");
    assert!(matches!(find(&inner), Err(LoadError::NotFound { .. })));
    fs::write(top.path().join("repo/llamafarm.json"), FILE).expect("written");
    fs::write(top.path().join("repo/llamafarm.yml"), FILE).expect("written");
    assert_eq!(find(&inner).expect("found"), top.path().join("repo/llamafarm.yml"));
}

#[test]
fn the_dotenv_beside_the_file_is_read_and_the_root_is_its_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("llamafarm.yaml");
    fs::write(&path, FILE).expect("written");
    fs::write(directory.path().join(".env"), "MODEL=from-file\n").expect("written");
    let loaded = load(&path, |_| Some("from-process".to_owned())).expect("loads");
    assert_eq!(loaded.project.models["m"].as_ref().expect("usable").model, "from-file");
    assert_eq!(loaded.project.root, directory.path().canonicalize().expect("exists"));
}

#[test]
fn a_directory_called_dotenv_is_passed_over_with_a_warning() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("llamafarm.yaml");
    fs::write(&path, FILE).expect("written");
    fs::create_dir(directory.path().join(".env")).expect("created");
    let loaded = load(&path, |_| Some("gpt-4".to_owned())).expect("loads");
    assert_eq!(loaded.diagnostics[0].message, "`.env` is a directory and is not read");
}

#[test]
fn what_is_no_file_is_refused_without_waiting() {
    let start = own_time();
    let directory = tempfile::tempdir().expect("a directory");
    assert!(matches!(load(directory.path(), |_| None), Err(LoadError::NotAFile { what: "a directory", .. })));
    #[cfg(unix)]
    {
        let device = load(Path::new("/dev/zero"), |_| None);
        assert!(matches!(device, Err(LoadError::NotAFile { what: "a pipe or device", .. })));
        let looped = directory.path().join("llamafarm.yaml");
        std::os::unix::fs::symlink(&looped, &looped).expect("linked");
        assert!(matches!(load(&looped, |_| None), Err(LoadError::Unreadable { .. })));
        let pipe = directory.path().join("pipe.yaml");
        // the pipe has no writer: opening it in the usual way would wait for ever
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
        assert!(matches!(load(&pipe, |_| None), Err(LoadError::NotAFile { .. })));
    }
    let binary = directory.path().join("binary.yaml");
    fs::write(&binary, b"name: \xff\xfe").expect("written");
    assert!(matches!(load(&binary, |_| None), Err(LoadError::NotText { at: 6, .. })));
    assert!(matches!(load(&directory.path().join("none.yaml"), |_| None), Err(LoadError::Unreadable { .. })));
    assert!(own_time() - start < Duration::from_secs(2));
}
