//! A project in a directory of its own, and the `lf` program in it.

mod background;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scripted_mcp::Script;
use crate::{processes, program};

pub use background::{Background, Daemon, Listener, unused_port};

/// How long `lf` may take to do anything at all.
const LIMIT: Duration = Duration::from_secs(60);

/// A directory with a `llamafarm.yaml`, and a `HOME` that tells its processes from all others.
pub struct TestProject {
    directory: TempDir,
    home: TempDir,
    variables: Vec<(String, String)>,
}

/// What a finished `lf` left behind.
#[derive(Debug)]
pub struct Finished {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Its output, after it ended well.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.status, Some(0), "lf failed:\n{}\n{}", self.stdout, self.stderr);
        self
    }

    /// Its stderr, after it ended with this status.
    #[track_caller]
    pub fn failed(self, status: i32) -> String {
        assert_eq!(self.status, Some(status), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self.stderr
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in stdout:\n{}", self.stdout))
    }
}

impl TestProject {
    /// With this text as `llamafarm.yaml`.
    pub fn new(yaml: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("lf-project-").tempdir().expect("a directory");
        let home = tempfile::Builder::new().prefix("lf-home-").tempdir().expect("a directory");
        let project = Self { directory, home, variables: Vec::new() };
        project.write("llamafarm.yaml", yaml);
        project
    }

    /// With this content; JSON is YAML, but for characters that only JSON takes as they are.
    pub fn of(content: &Value) -> Self {
        let is_raw = |c: char| c.is_control() && c != '\n';
        let escaped = |c: char| if is_raw(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
        Self::new(&format!("{content:#}").chars().map(escaped).collect::<String>())
    }

    /// With one model, `assistant`, at this upstream, and these MCP servers.
    pub fn with_model(base_url: &str, servers: &[Value]) -> Self {
        Self::of(&document(json!({}), base_url, servers))
    }

    /// With one model, `assistant`, in whose place this cassette answers: without upstream and servers.
    pub fn playing(cassette: &Path) -> Self {
        let model = json!({"name": "assistant", "provider": "replay", "model": cassette});
        Self::of(&document_of(&[model], &[]))
    }

    /// The same with a cassette of `tests/cassettes`.
    pub fn playing_ours(name: &str) -> Self {
        Self::playing(&program::repository().join("tests/cassettes").join(name))
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Where its `lf` keeps what it keeps.
    pub fn data_dir(&self) -> PathBuf {
        self.home().join("data")
    }

    /// Makes a key of the daemon.
    pub fn key(&self, arguments: &[&str]) -> String {
        let made = self.run(&[&["keys", "create"], arguments].concat()).ok();
        made.stdout.trim().to_owned()
    }

    /// Writes a file of the project.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("the directory can be made");
        }
        std::fs::write(&path, text).expect("the file can be written");
        path
    }

    /// Writes `operator.yaml`, which says what projects may have.
    pub fn operator(self, yaml: &str) -> Self {
        let data = self.home().join("data");
        std::fs::create_dir_all(&data).expect("the directory can be made");
        std::fs::write(data.join("operator.yaml"), yaml).expect("the file can be written");
        self
    }

    /// An environment variable of `lf`.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// `lf` with these arguments in the project's directory; nothing but `PATH` comes from outside.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program::lf());
        command.args(arguments).current_dir(self.path()).env_clear().env("HOME", self.home());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("LF_DATA_DIR", self.home().join("data"));
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs `lf` to its end.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        self.start(arguments).wait(LIMIT)
    }

    /// Starts `lf` and reads along.
    pub fn start(&self, arguments: &[&str]) -> Background {
        Background::start(self.command(arguments))
    }

    /// Starts what [`TestProject::command`] made, and reads along.
    pub fn start_command(&self, command: Command) -> Background {
        Background::start(command)
    }

    /// Starts `lf` with this on its stdin.
    pub fn start_with_input(&self, arguments: &[&str], input: &str) -> Background {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped());
        let mut background = Background::start(command);
        background.write_input(input);
        background
    }

    /// `lf serve` on a free port, when it listens.
    pub fn serve(&self) -> Daemon {
        self.serve_with(&[])
    }

    /// As [`TestProject::serve`], with room for this many open files and connections.
    pub fn serve_with_files(&self, files: u32) -> Daemon {
        self.serve_under(&["sh", "-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")])
    }

    /// As [`TestProject::serve`], started by this program, which becomes `lf`.
    pub fn serve_under(&self, wrapper: &[&str]) -> Daemon {
        Daemon::new(self.start_command(self.under(wrapper, &["serve", "--port", "0"])), &self.data_dir())
    }

    /// As [`TestProject::command`], started by this program, which becomes `lf`.
    pub fn under(&self, wrapper: &[&str], arguments: &[&str]) -> Command {
        let inner = self.command(arguments);
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]);
        command.arg(inner.get_program()).args(inner.get_args()).current_dir(self.path()).env_clear();
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// As [`TestProject::serve`], on this port.
    pub fn serve_at(&self, port: u16) -> Daemon {
        Daemon::new(self.start(&["serve", "--port", &port.to_string()]), &self.data_dir())
    }

    /// As [`TestProject::serve`], with further arguments.
    pub fn serve_with(&self, arguments: &[&str]) -> Daemon {
        let mut all = vec!["serve", "--port", "0"];
        all.extend(arguments);
        Daemon::new(self.start(&all), &self.data_dir())
    }

    /// Fails when `lf`, or anything that came from it, is still there after twenty seconds.
    pub fn assert_nothing_left(&self) {
        processes::assert_none_left(self.home(), Duration::from_secs(20));
    }

    /// Everything that runs for this project now, but for `lf` itself.
    pub fn children(&self) -> Vec<processes::Process> {
        let lf = program::lf().display().to_string();
        let is_lf = |command: &str| command.split(' ').next() == Some(lf.as_str());
        let all = processes::with_home(self.home());
        all.into_iter().filter(|process| !is_lf(&process.command)).collect()
    }
}

impl Drop for TestProject {
    fn drop(&mut self) {
        processes::kill_all(self.home());
    }
}

/// The document of a project with one model, `assistant`; `model` adds to it or changes it.
pub fn document(model: Value, base_url: &str, servers: &[Value]) -> Value {
    let mut entry = json!({
        "name": "assistant",
        "provider": "openai",
        "model": "scripted",
        "base_url": base_url,
        "api_key": "sk-scripted",
    });
    let Value::Object(model) = model else { panic!("a model is a mapping") };
    entry.as_object_mut().expect("made above").extend(model);
    document_of(&[entry], servers)
}

/// The document of a project with these models, the first of which is its default.
pub fn document_of(models: &[Value], servers: &[Value]) -> Value {
    json!({
        "version": "v1",
        "name": "demo",
        "namespace": "default",
        "mcp": {"servers": servers},
        "runtime": {"default_model": models[0]["name"], "models": models},
    })
}

/// An entry of `mcp.servers` that runs a program.
pub fn stdio(name: &str, command: &Path, arguments: &[&str]) -> Value {
    json!({"name": name, "transport": "stdio", "command": command, "args": arguments})
}

/// An entry of `mcp.servers` that runs the scripted server.
pub fn scripted(name: &str, script: &Script) -> Value {
    stdio(name, &program::scripted_mcp(), &["stdio", &script.to_argument()])
}

/// An entry of `mcp.servers` at a URL.
pub fn remote(name: &str, transport: &str, base_url: &str) -> Value {
    json!({"name": name, "transport": transport, "base_url": base_url})
}
