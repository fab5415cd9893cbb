//! Where the programs under test are.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The built `lf`: `LF_BIN`, or the one in the target directory of this test program.
///
/// Fails when it is missing, or older than what it is built from: a test of yesterday's program proves nothing.
pub fn lf() -> &'static Path {
    static LF: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(path) = std::env::var_os("LF_BIN") {
            return PathBuf::from(path);
        }
        let path = beside_this_program("lf");
        let newer = newer_sources(&path);
        assert!(newer.is_empty(), "`lf` is older than {newer:?}; run `cargo build --workspace` first");
        path
    });
    &LF
}

/// The built scripted MCP server.
pub fn scripted_mcp() -> PathBuf {
    beside_this_program("lf-scripted-mcp")
}

/// The built program that keeps turns until it is killed.
pub fn store_writer() -> PathBuf {
    beside_this_program("lf-store-writer")
}

/// The built reference server of the conformance suite.
pub fn conformance_fixture() -> PathBuf {
    beside_this_program("lf-conformance-fixture")
}

fn beside_this_program(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("the path of this test program");
    let directory = this.ancestors().find(|path| path.join("deps").is_dir()).expect("a target directory");
    let path = directory.join(name);
    assert!(path.exists(), "there is no `{}`; run `cargo build --workspace` first", path.display());
    path
}

/// Sources of a program, by the list cargo keeps of them, that have changed since it was built.
fn newer_sources(program: &Path) -> Vec<PathBuf> {
    let Ok(list) = std::fs::read_to_string(program.with_extension("d")) else { return Vec::new() };
    let built = modified(program);
    let sources = list.split_once(": ").map_or("", |(_, sources)| sources);
    sources.split_whitespace().map(PathBuf::from).filter(|source| modified(source) > built).collect()
}

fn modified(path: &Path) -> Option<std::time::SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

/// The root of the checkout.
pub fn repository() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        tests.parent().expect("the package lies in the repository").to_owned()
    });
    &ROOT
}
