//! Programs that run beside a test.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Finished;
use crate::keys;
use crate::wait::{PATIENCE, eventually, within};

/// A started program whose output is read all along; killed with this value.
pub struct Background {
    child: Child,
    stdout: Arc<Mutex<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdout = Arc::default();
        let stderr = Arc::default();
        let mut readers = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            readers.push(read_along(pipe, Arc::clone(&stdout)));
        }
        if let Some(pipe) = child.stderr.take() {
            readers.push(read_along(pipe, Arc::clone(&stderr)));
        }
        Self { child, stdout, stderr, readers }
    }

    /// Writes to its stdin; it stays open.
    pub fn write_input(&mut self, text: &str) {
        let stdin = self.child.stdin.as_mut().expect("stdin is a pipe");
        // A program that has ended already is found out by what it left.
        let _ = stdin.write_all(text.as_bytes());
    }

    pub fn close_input(&mut self) {
        self.child.stdin = None;
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout.lock().unwrap()).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr.lock().unwrap()).into_owned()
    }

    /// Waits for a text on stdout.
    pub fn wait_for_output(&self, text: &str) {
        eventually(&format!("`{text}` on stdout"), || self.stdout().contains(text).then_some(()));
    }

    /// Waits for a text on stderr.
    pub fn wait_for_message(&self, text: &str) {
        eventually(&format!("`{text}` on stderr"), || self.stderr().contains(text).then_some(()));
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("the program is there to be signalled");
    }

    /// Waits for its end, and for all of its output.
    pub fn wait(mut self, limit: Duration) -> Finished {
        self.close_input();
        let mut status = None;
        let what = format!("the end of the program; it has said:\n{}", self.stderr());
        within(limit, &what, || {
            status = self.child.try_wait().expect("the program can be waited for");
            status
        });
        // A grandchild that holds the pipe would keep the readers for ever; what is left is in the buffers then.
        eventually("the end of the program's output", || {
            self.readers.iter().all(JoinHandle::is_finished).then_some(())
        });
        Finished {
            status: status.and_then(|status| status.code()),
            stdout: self.stdout(),
            stderr: self.stderr(),
        }
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_along(mut pipe: impl Read + Send + 'static, into: Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut block = [0; 8192];
        while let Ok(count @ 1..) = pipe.read(&mut block) {
            into.lock().unwrap().extend_from_slice(&block[..count]);
        }
    })
}

/// A running `lf serve`.
pub struct Daemon {
    program: Background,
    url: String,
    _token: Box<keys::Remembered>,
}

impl Daemon {
    pub(super) fn new(mut program: Background, data_dir: &Path) -> Self {
        let url = eventually("`lf serve` to listen", || {
            let said = program.stderr();
            // Only whole lines: the last one may still be coming.
            let lines = said.rsplit_once('\n').map_or("", |(lines, _)| lines).lines();
            if let Some((_, rest)) = lines.filter_map(|line| line.split_once("listening on ")).next() {
                return Some(rest.split_whitespace().next().unwrap_or_default().to_owned());
            }
            assert!(
                !program.has_ended(),
                "`lf serve` has ended:\n{}\n{}",
                program.stderr(),
                program.stdout()
            );
            None
        });
        let token = Box::new(keys::remember(port_of(&url), data_dir));
        Self { program, url, _token: token }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url.trim_end_matches('/'))
    }

    pub fn pid(&self) -> u32 {
        self.program.child.id()
    }

    pub fn port(&self) -> u16 {
        port_of(&self.url)
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.program.stderr()
    }

    pub fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// Waits for its end.
    pub fn wait(self, limit: Duration) -> Finished {
        self.program.wait(limit)
    }

    /// SIGTERM, and its end.
    pub fn stop(self) -> Finished {
        self.signal(Signal::SIGTERM);
        self.wait(PATIENCE)
    }
}

fn port_of(url: &str) -> u16 {
    url.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}

/// A program that prints a URL on its first line, or listens on a port it is given; killed with this value.
pub struct Listener {
    child: Child,
    url: String,
}

impl Listener {
    /// Starts a program that prints its URL as its first line.
    pub fn printing_its_url(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the peer can be started");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("the peer says where it is");
        Self { child, url: line.trim().to_owned() }
    }

    /// Starts the scripted MCP server over `http` or `sse`.
    pub fn scripted_mcp(transport: &str, script: &crate::scripted_mcp::Script) -> Self {
        let mut command = Command::new(crate::program::scripted_mcp());
        command.args([transport, &script.to_argument()]);
        Self::printing_its_url(command)
    }

    /// Starts a program on a port of its own, and waits until it accepts connections there.
    pub fn on_free_port(path: &str, command: impl FnOnce(u16) -> Command) -> Self {
        let port = unused_port();
        let mut command = command(port);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        eventually("the peer to listen", || {
            let ended = child.try_wait().expect("the peer can be waited for");
            assert!(ended.is_none(), "{command:?} has ended: {ended:?}");
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        });
        Self { child, url: format!("http://127.0.0.1:{port}{path}") }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends it without warning.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port below those that the kernel gives to connections and to listeners that take any: a peer that needs seconds to
/// start finds it as free as it was.
pub fn unused_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    let own = u16::try_from(std::process::id() % u32::from(COUNT)).expect("a remainder of `COUNT`");
    loop {
        let offset = own.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        if std::net::TcpListener::bind(("127.0.0.1", FIRST + offset)).is_ok() {
            return FIRST + offset;
        }
    }
}
