//! The ways in which programs replace a file.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lf_tests::disk::Mount;
use lf_tests::project::{Daemon, TestProject};
use lf_tests::wait::{PATIENCE, eventually};

use super::{POLLED, SOON, becomes, generation, models, names, status};

/// Puts a text into a file.
type Way = fn(&Path, &str);

const WAYS: [(&str, Way); 14] = [
    ("truncated and written", |path, text| std::fs::write(path, text).unwrap()),
    ("mv", |path, text| {
        let other = path.with_extension("new");
        std::fs::write(&other, text).unwrap();
        run(Command::new("mv").arg(other).arg(path));
    }),
    ("mv from elsewhere", |path, text| {
        let elsewhere = tempfile::tempdir().unwrap();
        let other = elsewhere.path().join("other.yaml");
        std::fs::write(&other, text).unwrap();
        run(Command::new("mv").arg(other).arg(path));
    }),
    ("cp", |path, text| {
        let other = path.with_extension("new");
        std::fs::write(&other, text).unwrap();
        run(Command::new("cp").arg(other).arg(path));
    }),
    ("sed -i", |path, text| {
        // each line is printed as it is wanted, and what is there is deleted
        let mut script = String::from("1i\\\n");
        script.push_str(&text.trim_end().replace('\n', "\\\n"));
        script.push_str("\nd");
        run(Command::new("sed").arg("-i").arg(script).arg(path));
    }),
    // vim, `backupcopy=no`: the file is renamed away, and written anew
    ("vim with a new file", |path, text| {
        let backup = path.with_extension("yaml~");
        std::fs::rename(path, &backup).unwrap();
        let mut file = OpenOptions::new().write(true).create_new(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.sync_all().unwrap();
        drop(file);
        std::fs::remove_file(backup).unwrap();
    }),
    // vim, `backupcopy=yes`: the file is copied away, and written where it is
    ("vim with a copy", |path, text| {
        let backup = path.with_extension("yaml~");
        std::fs::copy(path, &backup).unwrap();
        let mut file = OpenOptions::new().write(true).truncate(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.sync_all().unwrap();
        drop(file);
        std::fs::remove_file(backup).unwrap();
    }),
    // emacs: a lock that is a link to nowhere, the old file renamed to its backup, the new one written in two pieces
    ("emacs", |path, text| {
        let lock = path.with_file_name(".#llamafarm.yaml");
        symlink("somebody@somewhere.1:1", &lock).unwrap();
        std::fs::rename(path, path.with_extension("yaml~")).unwrap();
        let mut file = File::create(path).unwrap();
        let (one, two) = text.split_at(text.len() / 2);
        file.write_all(one.as_bytes()).unwrap();
        file.write_all(two.as_bytes()).unwrap();
        drop(file);
        std::fs::remove_file(lock).unwrap();
    }),
    // nano: truncated and written where it is, line by line
    ("nano", |path, text| {
        let mut file = OpenOptions::new().write(true).truncate(true).open(path).unwrap();
        for line in text.split_inclusive('\n') {
            file.write_all(line.as_bytes()).unwrap();
        }
    }),
    // VS Code: written over what is there, and then cut to its length
    ("written and then cut", |path, text| {
        let mut file = OpenOptions::new().write(true).truncate(false).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_len(text.len() as u64).unwrap();
    }),
    ("deleted and made again", |path, text| {
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, text).unwrap();
    }),
    ("ln -f", |path, text| {
        let other = path.with_extension("new");
        std::fs::write(&other, text).unwrap();
        run(Command::new("ln").arg("-f").arg(&other).arg(path));
        std::fs::remove_file(other).unwrap();
    }),
    ("ln -sfn", |path, text| {
        let other = tempfile::Builder::new().prefix("of").tempdir_in(path.parent().unwrap()).unwrap().keep();
        std::fs::write(other.join("there.yaml"), text).unwrap();
        run(Command::new("ln").arg("-sfn").arg(other.join("there.yaml")).arg(path));
    }),
    // after the link: through it, where it leads
    ("written through a link", |path, text| std::fs::write(path, text).unwrap()),
];

fn run(command: &mut Command) {
    let output = command.output().expect("the program can be started");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

#[test]
fn however_a_file_is_replaced_it_is_seen() {
    let project = TestProject::new(&models(&["first"]));
    let daemon = project.serve();
    let path = project.path().join("llamafarm.yaml");
    for round in 0..2 {
        for (at, (way, replace)) in WAYS.iter().enumerate() {
            let name = format!("m{round}-{at}");
            replace(&path, &models(&[&name]));
            println!("{way}");
            becomes(&daemon, SOON, &[&name]);
        }
    }
    assert_eq!(generation(&daemon), 1 + 2 * WAYS.len() as u64);
}

#[test]
fn editors_that_are_there_are_seen() {
    let project = TestProject::new(&models(&["first"]));
    let daemon = project.serve();
    let substitute = |from: &str, to: &str| format!("%s/name: {from},/name: {to},/");
    let edits: [(&str, Vec<String>, &str, &str); 2] = [
        (
            "vim",
            vec![
                "-u".into(),
                "NONE".into(),
                "-es".into(),
                "-c".into(),
                substitute("first", "vim"),
                "-c".into(),
                "wq".into(),
            ],
            "first",
            "vim",
        ),
        ("sed", vec!["-i".into(), "s/name: [a-z]*, p/name: sed, p/".into()], "", "sed"),
    ];
    for (program, arguments, _, name) in edits {
        let mut command = Command::new(program);
        command.args(arguments).arg("llamafarm.yaml").current_dir(project.path()).env("HOME", project.home());
        match command.stdin(Stdio::null()).output() {
            Ok(_) => becomes(&daemon, SOON, &[name]),
            Err(error) => println!("{program} is not here: {error}"),
        }
    }
    assert_eq!(names(&daemon), ["sed"]);
}

/// A volume as Kubernetes makes it of a ConfigMap: links through `..data`, which is swapped for each change.
struct Volume {
    at: PathBuf,
    versions: usize,
}

impl Volume {
    fn publish(&mut self, text: &str, dotenv: &str) {
        self.versions += 1;
        let version = format!("..2026_11_{:02}", self.versions);
        std::fs::create_dir(self.at.join(&version)).unwrap();
        std::fs::write(self.at.join(&version).join("llamafarm.yaml"), text).unwrap();
        std::fs::write(self.at.join(&version).join(".env"), dotenv).unwrap();
        let old = std::fs::read_link(self.at.join("..data")).ok();
        symlink(&version, self.at.join("..data_tmp")).unwrap();
        std::fs::rename(self.at.join("..data_tmp"), self.at.join("..data")).unwrap();
        match old {
            Some(old) => std::fs::remove_dir_all(self.at.join(old)).unwrap(),
            None => {
                for name in ["llamafarm.yaml", ".env"] {
                    symlink(format!("..data/{name}"), self.at.join(name)).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_volume_of_kubernetes_is_seen_to_change() {
    let project = TestProject::new("");
    std::fs::remove_file(project.path().join("llamafarm.yaml")).unwrap();
    let mut volume = Volume { at: project.path().to_owned(), versions: 0 };
    let keyed = |name: &str| {
        format!(
            "{}    - {{name: keyed, provider: openai, model: m, api_key: '${{env:KEY}}'}}\n",
            models(&[name])
        )
    };
    volume.publish(&keyed("m0"), "");
    let daemon = project.serve();
    for version in 1..=5 {
        let name = format!("m{version}");
        volume.publish(&keyed(&name), "");
        becomes(&daemon, SOON, &[&name, "keyed"]);
    }
    // only a variable beside the file changes
    let before = generation(&daemon);
    volume.publish(&keyed("m5"), "KEY=sk-1\n");
    lf_tests::wait::within(SOON, "the variable to count", || (generation(&daemon) > before).then_some(()));
    let shown = lf_tests::client::get(&daemon.url("/v1/projects/default/demo")).ok();
    assert_eq!(shown["project"]["config"]["runtime"]["models"][0]["name"], "m5", "through its links");
}

#[test]
fn a_file_that_is_a_mount_of_its_own_is_seen_to_change() {
    let project = TestProject::new(&models(&["inside"]));
    let outside = tempfile::tempdir().unwrap();
    let source = outside.path().join("shared.yaml");
    std::fs::write(&source, models(&["first"])).unwrap();
    let path = project.path().join("llamafarm.yaml");
    let mounted = Mount::bind(&source, &path);
    let daemon = project.serve();
    assert_eq!(names(&daemon), ["first"]);
    std::fs::write(&source, models(&["second"])).unwrap();
    becomes(&daemon, SOON, &["second"]);
    // what is mounted is changed: nothing tells that, so it is found by looking
    mounted.unmount();
    becomes(&daemon, POLLED, &["inside"]);
    std::fs::write(&path, models(&["inside", "too"])).unwrap();
    becomes(&daemon, SOON, &["inside", "too"]);
    let mounted = Mount::bind(&source, &path);
    becomes(&daemon, POLLED, &["second"]);
    drop(daemon);
    mounted.unmount();
}

/// Writes in pieces, and looks all the while at what is active. `None` where this machine let so much time pass between two
/// pieces that what was there may count as whole.
fn in_pieces(
    daemon: &Daemon,
    pieces: &[&str],
    mut write: impl FnMut(usize, &str) + Send,
    allowed: [&[&str]; 2],
) -> Option<()> {
    const PAUSE: Duration = Duration::from_millis(200);
    const TOO_LONG: Duration = Duration::from_millis(450);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut longest = Duration::ZERO;
            for (at, piece) in pieces.iter().enumerate() {
                write(at, piece);
                let written = Instant::now();
                std::thread::park_timeout(PAUSE);
                longest = longest.max(written.elapsed());
            }
            longest
        });
        let mut seen = Vec::new();
        while !writer.is_finished() {
            seen.push(names(daemon));
        }
        if writer.join().unwrap() > TOO_LONG {
            return None;
        }
        for now in seen {
            let is_whole = allowed.iter().any(|allowed| now == *allowed);
            assert!(is_whole, "{now:?} was never a whole file; {}", daemon.log());
        }
        Some(())
    })
}

#[test]
fn no_beginning_of_a_file_that_is_being_written_becomes_active() {
    let (old, new) = (["a", "b", "c", "d", "e"], ["a", "b", "x", "d", "e"]);
    let project = TestProject::new(&models(&old));
    let daemon = project.serve();
    let path = project.path().join("llamafarm.yaml");
    // each piece ends with a model, so that all beginnings are right
    let pieces_of = |text: &str| -> Vec<String> {
        let pieces: Vec<String> = text.split_inclusive("demo}\n").map(str::to_owned).collect();
        assert_eq!(pieces.len(), 5);
        pieces
    };
    let in_one_go = || {
        let mut file = None;
        let path = path.clone();
        move |at: usize, piece: &str| {
            let open = file.get_or_insert_with(|| File::create(&path).unwrap());
            open.write_all(piece.as_bytes()).unwrap();
            if at == 4 {
                open.sync_all().unwrap();
                file = None;
            }
        }
    };
    // as a shell does: opened for each piece
    let opened_again = || {
        let path = path.clone();
        move |at: usize, piece: &str| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(at == 0).append(at > 0);
            options.open(&path).unwrap().write_all(piece.as_bytes()).unwrap();
        }
    };
    let round = |write: &mut (dyn FnMut(usize, &str) + Send)| {
        std::fs::write(&path, models(&old)).unwrap();
        becomes(&daemon, PATIENCE, &old);
        let before = status(&daemon)["generation"].as_u64().unwrap();
        let text = models(&new);
        let pieces = pieces_of(&text);
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        in_pieces(&daemon, &pieces, write, [&old, &new])?;
        becomes(&daemon, SOON, &new);
        assert_eq!(status(&daemon)["generation"], before + 1);
        Some(())
    };
    eventually("pieces that follow soon on each other", || round(&mut in_one_go()));
    eventually("pieces that follow soon on each other", || round(&mut opened_again()));
}

#[test]
fn without_inotify_changes_are_found_by_looking() {
    let project = TestProject::new(&models(&["first"]));
    // a user namespace of its own has limits of its own
    let limit = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$0\" \"$@\"";
    let daemon = project.serve_under(&["unshare", "-U", "-r", "sh", "-c", limit]);
    lf_tests::wait::within(PATIENCE, "the warning", || {
        daemon.log().contains("changes of files cannot be watched").then_some(())
    });
    for name in ["second", "third"] {
        std::fs::write(project.path().join("llamafarm.yaml"), models(&[name])).unwrap();
        becomes(&daemon, POLLED, &[name]);
    }
    project.write("llamafarm.yaml", "version: [");
    super::is_refused(&daemon, POLLED);
    assert_eq!(daemon.log().matches("cannot be watched").count(), 1, "{}", daemon.log());
}
