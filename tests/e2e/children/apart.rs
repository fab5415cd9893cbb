//! Where the system gives no namespace, or half of one; and what is not to be seen from inside or changed from it.

use std::os::unix::fs::chown;
use std::time::Duration;

use lf_tests::client::{chat, post};
use lf_tests::project::TestProject;
use lf_tests::scripted_mcp::Script;
use lf_tests::wait::eventually;
use serde_json::{Value, json};

use super::model;

/// Somebody whom the kernel does not take nobody for.
const SOMEBODY: u32 = 4321;
/// For two runs of the program on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(60);

/// A server that runs this in a shell before it serves.
fn after(shell: &str) -> Value {
    let server = lf_tests::program::scripted_mcp();
    let script = Script::echoing(&["echo"]).to_argument();
    let shell = format!("{shell}\nexec \"$0\" \"$@\"");
    json!({"name": "m", "transport": "stdio", "command": "sh", "args": ["-c", shell, server, "stdio", script]})
}

/// As for all on Ubuntu since 23.10: a user namespace can be had, and nobody may say who they are in it. Here, as what it
/// would be said to cannot be written.
#[test]
fn where_a_user_namespace_is_of_no_use_a_server_runs_without_it_as_who_it_is() {
    let model = model();
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let told = directory.path().join("told");
    let telling =
        format!("{{ id -u; stat -c %u \"$HOME\"; readlink /proc/self/ns/user; }} > {}", told.display());
    let project = TestProject::with_model(&model.base_url(), &[after(&telling)]);
    for path in [project.path(), project.home(), &project.path().join("llamafarm.yaml"), directory.path()] {
        chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    let somebody =
        format!("exec setpriv --reuid={SOMEBODY} --regid={SOMEBODY} --clear-groups -- \"$0\" \"$@\"");
    let shell = format!("mount -o remount,bind,ro /proc && {somebody}");
    let daemon = project.serve_under(&["unshare", "--mount", "--", "sh", "-c", &shell]);
    post(&daemon.url("/v1/chat/completions"), &chat("hi")).ok();
    eventually("word of it", || daemon.log().contains("without=a process namespace").then_some(()));
    let told = std::fs::read_to_string(&told).unwrap();
    let ours = std::fs::read_link("/proc/self/ns/user").unwrap();
    assert_eq!(told, format!("{SOMEBODY}\n{SOMEBODY}\n{}\n", ours.display()));
    daemon.stop().ok();
    project.assert_nothing_left();
}

#[test]
fn a_strict_server_of_somebody_changes_no_mode_of_what_is_theirs() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let (told, kept) = (directory.path().join("told"), directory.path().join("kept"));
    std::fs::create_dir(&told).unwrap();
    std::fs::write(&kept, "kept").unwrap();
    let mode = std::fs::metadata(&kept).unwrap().permissions();
    let trying = format!(
        "chmod 777 {} 2>{}/error; touch {1}/file; chmod 700 {1}/file",
        kept.display(),
        told.display()
    );
    let mut server = after(&trying);
    let programs = lf_tests::program::scripted_mcp().parent().unwrap().to_owned();
    server["sandbox"] = json!({"profile": "strict", "read": [programs], "write": [told]});
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[server]);
    for path in [project.path(), project.home(), directory.path(), &told, &kept] {
        chown(path, Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    chown(project.path().join("llamafarm.yaml"), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    let somebody = [format!("--reuid={SOMEBODY}"), format!("--regid={SOMEBODY}")];
    let wrapper = ["setpriv", &somebody[0], &somebody[1], "--clear-groups", "--"];
    let finished = project.start_command(project.under(&wrapper, &["mcp", "tools"])).wait(LIMIT).ok();
    assert!(finished.stdout.contains("echo"), "{finished:?}");
    let error = std::fs::read_to_string(told.join("error")).unwrap();
    assert!(error.contains("Read-only file system"), "{error}");
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions(), mode);
    assert!(told.join("file").exists());
}

/// A directory that is the root of no file system, as for a service with `RootDirectory`, whose `/proc` others see too.
#[test]
fn the_proc_of_a_machine_is_not_hidden_from_it_by_what_a_server_sees() {
    let project = TestProject::with_model("http://127.0.0.1:9/v1", &[after("")]);
    let shell = "set -e
        mount -t tmpfs none /mnt; mkdir /mnt/root; cd /mnt/root
        for each in /*; do case $each in
            /mnt|/proc|/sys) mkdir .$each;;
            *) if [ -L $each ]; then cp -a $each .$each
               elif [ -d $each ]; then mkdir .$each; mount --rbind $each .$each; fi;;
        esac; done
        mount -t proc proc proc; mount --make-rshared /mnt; mount --make-rshared proc
        exec chroot . sh -ec 'cd \"$PWD_OF_IT\"; \"$0\" \"$@\"; \"$0\" \"$@\"; test -e /proc/$$/stat; echo it is there' \"$0\" \"$@\"";
    let mut command = project.under(&["unshare", "--mount", "--", "sh", "-c", shell], &["mcp", "tools"]);
    command.env("PWD_OF_IT", project.path());
    let finished = project.start_command(command).wait(LIMIT).ok();
    assert!(finished.stdout.contains("it is there"), "{finished:?}");
}

#[test]
fn a_server_has_no_terminal_to_write_to() {
    let directory = tempfile::tempdir().unwrap();
    let told = directory.path().join("told");
    let typing = format!("{{ echo overwritten >/dev/tty; }} 2>{}", told.display());
    for sandbox in [json!("default"), json!({"namespaces": false})] {
        let mut server = after(&typing);
        server["sandbox"] = sandbox;
        let project = TestProject::with_model("http://127.0.0.1:9/v1", &[server]);
        let shell = "exec script --quiet --return --command \"'$0' mcp tools\" /dev/null";
        let finished = project.start_command(project.under(&["sh", "-c", shell], &[])).wait(LIMIT).ok();
        assert!(finished.stdout.contains("echo"), "{finished:?}");
        assert!(!finished.stdout.contains("overwritten"), "{finished:?}");
        let told = std::fs::read_to_string(&told).unwrap();
        assert!(told.contains("No such device"), "{told}");
    }
}
