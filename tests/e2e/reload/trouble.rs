//! What is at the place of the file is no file, or none that can be used.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use lf_tests::client::get;
use lf_tests::project::TestProject;
use lf_tests::wait::within;

use super::{POLLED, SOON, becomes, chats_with, is_refused, models, names};

/// Puts something else there than a file that can be used, and a word of why it cannot.
type Trouble = (&'static str, fn(&Path), &'static str);

const TROUBLE: [Trouble; 11] = [
    ("nothing", |_| {}, "cannot read"),
    ("a directory", |path| std::fs::create_dir(path).unwrap(), "a directory"),
    (
        "a pipe",
        |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        "a pipe or device",
    ),
    ("an endless device", |path| symlink("/dev/zero", path).unwrap(), "a pipe or device"),
    ("a link to itself", |path| symlink("llamafarm.yaml", path).unwrap(), "cannot read"),
    ("a link to nowhere", |path| symlink("nowhere", path).unwrap(), "cannot read"),
    ("too much", |path| std::fs::write(path, vec![b' '; 1024 * 1024 + 1]).unwrap(), "larger than"),
    ("no text", |path| std::fs::write(path, [b'a', 0xff, b'\n']).unwrap(), "not UTF-8"),
    ("an empty file", |path| std::fs::write(path, "").unwrap(), "the file is empty"),
    (
        "only its beginning",
        |path| std::fs::write(path, "version: v1\nname: demo\n").unwrap(),
        "no `runtime.models` any more",
    ),
    ("no mapping", |path| std::fs::write(path, "- a\n").unwrap(), ""),
];

fn remove(path: &Path) {
    let _ = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path));
}

#[test]
fn whatever_is_at_its_place_the_daemon_goes_on_and_recovers() {
    let project = TestProject::new(&models(&["first"]));
    let daemon = project.serve();
    let path = project.path().join("llamafarm.yaml");
    let mut last = "first".to_owned();
    for (at, (what, make, why)) in TROUBLE.iter().enumerate() {
        println!("{what}");
        remove(&path);
        make(&path);
        let refused = is_refused(&daemon, POLLED);
        within(SOON, what, || {
            let message = super::status(&daemon)["refused"]["message"].as_str().unwrap().to_owned();
            message.contains(why).then_some(())
        });
        assert!(refused["at"].is_string());
        assert_eq!(get(&daemon.url("/health")).ok()["config_error"]["file"], "llamafarm.yaml");
        assert_eq!(names(&daemon), [last.clone()]);
        chats_with(&daemon, &last);
        remove(&path);
        last = format!("m{at}");
        std::fs::write(&path, models(&[&last])).unwrap();
        becomes(&daemon, SOON, &[&last]);
        assert!(super::status(&daemon)["refused"].is_null());
    }
}

#[test]
fn a_file_that_may_not_be_read_any_more_leaves_the_last_good_one() {
    let project = TestProject::new(&models(&["first"]));
    // root may read everything
    let path = project.path().join("llamafarm.yaml");
    for file in [project.path(), project.home(), &path] {
        std::os::unix::fs::chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let nobody = NOBODY.to_string();
    let daemon = project.serve_under(&["setpriv", "--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    Command::new("chmod").arg("000").arg(&path).status().unwrap();
    let refused = is_refused(&daemon, SOON);
    assert!(refused["message"].as_str().unwrap().contains("ermission denied"), "{refused}");
    chats_with(&daemon, "first");
    Command::new("chmod").arg("644").arg(&path).status().unwrap();
    within(SOON, "the file to be right again", || super::status(&daemon)["refused"].is_null().then_some(()));
    std::fs::write(&path, models(&["second"])).unwrap();
    becomes(&daemon, SOON, &["second"]);
}

/// A user without rights.
const NOBODY: u32 = 65_534;

#[test]
fn a_directory_that_is_moved_away_and_back_is_found_again() {
    let outer = TestProject::new("");
    let (here, there) = (outer.path().join("here"), outer.path().join("there"));
    std::fs::create_dir(&here).unwrap();
    std::fs::write(here.join("llamafarm.yaml"), models(&["first"])).unwrap();
    let file = here.join("llamafarm.yaml").display().to_string();
    let daemon = outer.serve_with(&["--config", &file]);
    std::fs::rename(&here, &there).unwrap();
    is_refused(&daemon, SOON);
    chats_with(&daemon, "first");
    // what happens elsewhere is not ours
    std::fs::write(there.join("llamafarm.yaml"), models(&["elsewhere"])).unwrap();
    std::fs::create_dir(&here).unwrap();
    std::fs::write(here.join("llamafarm.yaml"), models(&["second"])).unwrap();
    becomes(&daemon, SOON, &["second"]);
    std::fs::remove_dir_all(&here).unwrap();
    is_refused(&daemon, SOON);
    std::fs::rename(&there, &here).unwrap();
    becomes(&daemon, SOON, &["elsewhere"]);
    for at in 0..3 {
        let name = format!("m{at}");
        std::fs::write(&file, models(&[&name])).unwrap();
        becomes(&daemon, SOON, &[&name]);
    }
    assert_eq!(daemon.stop().status, Some(0));
}

#[test]
fn a_link_on_the_way_that_leads_elsewhere_now_is_followed() {
    let outer = TestProject::new("");
    for release in ["one", "two"] {
        std::fs::create_dir(outer.path().join(release)).unwrap();
        std::fs::write(outer.path().join(release).join("llamafarm.yaml"), models(&[release])).unwrap();
    }
    symlink("one", outer.path().join("current")).unwrap();
    let file = outer.path().join("current/llamafarm.yaml").display().to_string();
    let daemon = outer.serve_with(&["--config", &file]);
    symlink("two", outer.path().join("next")).unwrap();
    std::fs::rename(outer.path().join("next"), outer.path().join("current")).unwrap();
    becomes(&daemon, SOON, &["two"]);
    std::fs::write(outer.path().join("two/llamafarm.yaml"), models(&["edited"])).unwrap();
    becomes(&daemon, SOON, &["edited"]);
    assert_eq!(daemon.stop().status, Some(0));
}
