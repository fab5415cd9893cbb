//! `lf chat` with a person in front of it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lf_tests::project::{TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::{eventually, within};
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use serde_json::json;

/// `lf chat` in a terminal.
struct Chat {
    lf: Child,
    keyboard: File,
    terminal: OwnedFd,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Chat {
    fn start(project: &TestProject) -> Self {
        let pty = openpty(None, None).unwrap();
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = project.command(&["chat"]);
        command.env("TERM", "xterm").stdin(side()).stdout(side()).stderr(side());
        let lf = command.spawn().unwrap();
        let keyboard = File::from(pty.master);
        let mut output = keyboard.try_clone().unwrap();
        let screen = Arc::<Mutex<Vec<u8>>>::default();
        let shown = screen.clone();
        // ends with the last holder of the other side
        std::thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut block) {
                shown.lock().unwrap().extend_from_slice(&block[..count]);
            }
        });
        Self { lf, keyboard, terminal: pty.slave, screen }
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    fn wait_for(&self, text: &str) {
        eventually(&format!("`{text}` on the screen"), || self.screen().contains(text).then_some(()));
    }

    /// Waits until a line can be typed.
    fn wait_for_prompt(&self) {
        eventually("the prompt", || (!self.is_as_found()).then_some(()));
    }

    /// Whether the terminal shows what is typed, line by line.
    fn is_as_found(&self) -> bool {
        let flags = tcgetattr(&self.terminal).unwrap().local_flags;
        flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }

    fn type_line(&mut self, line: &str) {
        self.wait_for_prompt();
        self.keyboard.write_all(format!("{line}\r").as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.lf.id()).unwrap()), signal).unwrap();
    }

    /// Its exit status, which must come soon.
    fn end(&mut self) -> Option<i32> {
        let what = format!("the end of the chat; the screen shows:\n{}", self.screen());
        let status = within(Duration::from_secs(10), &what, || self.lf.try_wait().unwrap());
        assert!(self.is_as_found(), "the terminal is left changed");
        status.code()
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let _ = self.lf.kill();
        let _ = self.lf.wait();
    }
}

#[test]
fn a_signal_at_the_prompt_ends_the_chat_at_once_and_leaves_nothing() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let model = ScriptedModel::start([Reply::text("hello there")]);
        let server = Script { grandchildren: 1, ..Script::echoing(&["echo"]) };
        let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
        let mut chat = Chat::start(&project);
        assert!(chat.is_as_found());
        chat.type_line("hi");
        chat.wait_for("hello there");
        chat.wait_for_prompt();
        assert!(!project.children().is_empty(), "the session is open");
        chat.signal(signal);
        assert_eq!(chat.end(), Some(1), "{signal}");
        eventually("pastes as they were", || chat.screen().ends_with("\x1b[?2004l\r\n").then_some(()));
        project.assert_nothing_left();
        model.finish();
    }
}

#[test]
fn an_interrupt_stops_an_answer_and_sigterm_the_chat() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let tools = [ScriptedTool::new("hang", Act::Hang)];
    let server = Script { log: Some(log.path().to_owned()), ..Script::with(tools) };
    let model =
        ScriptedModel::start([Reply::call("a", "~hang", json!({})), Reply::call("b", "~hang", json!({}))]);
    let project = TestProject::with_model(&model.base_url(), &[scripted("m", &server)]);
    let calls = || std::fs::read_to_string(log.path()).unwrap().matches("call hang").count();
    let mut chat = Chat::start(&project);
    for (count, signal) in [(1, Signal::SIGINT), (2, Signal::SIGTERM)] {
        chat.type_line("hi");
        eventually("the call to run", || (calls() == count).then_some(()));
        chat.signal(signal);
    }
    assert_eq!(chat.end(), Some(1));
    assert_eq!(chat.screen().matches("stopped").count(), 2, "{}", chat.screen());
    project.assert_nothing_left();
    model.finish();
}

#[test]
fn ctrl_d_ends_the_chat() {
    let model = ScriptedModel::start([]);
    let project = TestProject::with_model(&model.base_url(), &[]);
    let mut chat = Chat::start(&project);
    chat.wait_for_prompt();
    chat.keyboard.write_all(b"\x04").unwrap();
    assert_eq!(chat.end(), Some(0));
}
