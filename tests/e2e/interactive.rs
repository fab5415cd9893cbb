//! `lf chat` with a person in front of it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use lf_tests::project::{TestProject, scripted};
use lf_tests::scripted_mcp::{Act, Generation, Script, ScriptedTool};
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::{PATIENCE, eventually, within};
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
        Self::start_with(project, None)
    }

    /// With the turns in a daemon, where one is given.
    fn start_with(project: &TestProject, daemon: Option<&str>) -> Self {
        let pty = openpty(None, None).unwrap();
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = project.command(&["chat"]);
        if let Some(daemon) = daemon {
            command.args(["--server", daemon]);
        }
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
        let status = within(PATIENCE, &what, || self.lf.try_wait().unwrap());
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

/// What a server asks, filled in by a person at the terminal.
fn form() -> serde_json::Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Your name", "minLength": 2},
            "age": {"type": "integer", "minimum": 1, "default": 30},
            "colour": {"type": "string", "enum": ["red", "blue"]},
        },
        "required": ["name", "age", "colour"],
    })
}

fn asking(protocol: &str) -> serde_json::Value {
    let script =
        Script { generation: Generation::Dual, ..Script::with([ScriptedTool::new("ask", Act::Ask(form()))]) };
    let mut server = scripted("desk", &script);
    server["protocol"] = json!(protocol);
    server
}

#[test]
fn what_a_server_asks_is_asked_of_the_person_who_chats() {
    for protocol in ["legacy", "modern"] {
        let model = ScriptedModel::start([Reply::call("a", "~ask", json!({})), Reply::text("noted")]);
        let project = TestProject::with_model(&model.base_url(), &[asking(protocol)]);
        let mut chat = Chat::start(&project);
        chat.type_line("hi");
        chat.wait_for("MCP server `desk` asks during `ask`: Who is asking?");
        chat.wait_for("Your name (text)");
        chat.wait_for("name> ");
        // too short, and asked again
        chat.type_line("x");
        chat.wait_for("shorter than 2");
        chat.type_line("Ada");
        chat.wait_for("age (whole number, default 30)");
        chat.wait_for("age> ");
        chat.type_line("");
        chat.wait_for("2 blue");
        chat.wait_for("colour> ");
        chat.type_line("2");
        chat.wait_for("send this?");
        chat.type_line("");
        chat.wait_for("noted");
        chat.wait_for("accepted with values, by whoever was asked");
        chat.wait_for_prompt();
        chat.keyboard.write_all(b"\x04").unwrap();
        assert_eq!(chat.end(), Some(0), "{protocol}: {}", chat.screen());
        let answer = json!({"action": "accept", "content": {"name": "Ada", "age": 30, "colour": "blue"}});
        let asked = model.request(1);
        let result = asked.messages().last().unwrap()["content"].as_str().unwrap().to_owned();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&result).unwrap(), answer, "{protocol}");
        model.finish();
    }
}

#[test]
fn ctrl_c_at_a_question_declines_it_and_the_chat_goes_on() {
    let model = ScriptedModel::start([Reply::call("a", "~ask", json!({})), Reply::text("never mind")]);
    let project = TestProject::with_model(&model.base_url(), &[asking("auto")]);
    let mut chat = Chat::start(&project);
    chat.type_line("hi");
    chat.wait_for("name> ");
    chat.wait_for_prompt();
    chat.keyboard.write_all(b"\x03").unwrap();
    chat.wait_for("never mind");
    chat.wait_for("declined, by whoever was asked");
    chat.wait_for_prompt();
    chat.keyboard.write_all(b"\x04").unwrap();
    assert_eq!(chat.end(), Some(0));
    model.finish();
}

#[test]
fn a_call_that_must_be_approved_is_asked_about_at_the_terminal() {
    for through_daemon in [false, true] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let script = Script { log: Some(log.path().to_owned()), ..Script::echoing(&["wipe"]) };
        let mut server = scripted("disk", &script);
        server["approval"] = json!("ask");
        let replies = (0..3).flat_map(|n| {
            [Reply::call(&format!("c{n}"), "disk__wipe", json!({"n": n})), Reply::text(&format!("done {n}"))]
        });
        let model = ScriptedModel::start(replies);
        let project = TestProject::with_model(&model.base_url(), &[server]);
        let daemon = through_daemon.then(|| project.serve());
        let calls = || std::fs::read_to_string(log.path()).unwrap().matches("call wipe").count();
        let server = daemon.as_ref().map(|daemon| daemon.url(""));
        let mut chat = Chat::start_with(&project, server.as_deref());
        chat.type_line("first");
        chat.wait_for("wants to run `wipe` of MCP server `disk`");
        chat.wait_for("run it?");
        chat.type_line("perhaps");
        chat.wait_for("answer yes, no or always");
        assert_eq!(calls(), 0);
        chat.type_line("no");
        chat.wait_for("done 0");
        assert_eq!(calls(), 0, "a no runs nothing");
        chat.type_line("second");
        eventually("the second question", || {
            (chat.screen().matches("wants to run").count() == 2).then_some(())
        });
        chat.type_line("always");
        chat.wait_for("done 1");
        chat.type_line("third");
        chat.wait_for("done 2");
        assert_eq!((calls(), chat.screen().matches("wants to run").count()), (2, 2));
        chat.wait_for_prompt();
        chat.keyboard.write_all(b"\x04").unwrap();
        assert_eq!(chat.end(), Some(0), "{}", chat.screen());
        model.finish();
    }
}
