//! The real MCP servers and SDKs, installed from the pinned lists in `tests/peers`.

use std::path::PathBuf;

use crate::program::repository;

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

fn installed(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "`{}` is missing; run `tests/peers/install` to install the peers", path.display());
    path
}
