//! The house rules that a program can check.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};
use lf_tests::program::repository;
use lf_tests::project::TestProject;
use serde_json::Value;
use walkdir::WalkDir;

/// The workspace as it is built on this machine.
fn metadata() -> Metadata {
    let version = Command::new("rustc").arg("-vV").output().expect("rustc can be started");
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned();
    let mut command = MetadataCommand::new();
    command.manifest_path(repository().join("Cargo.toml"));
    // What this test needs was fetched to build it.
    command.other_options([
        "--filter-platform".to_owned(),
        host,
        "--locked".to_owned(),
        "--offline".to_owned(),
    ]);
    command.exec().expect("cargo knows the workspace")
}

/// Every file of the checkout that is not made by a tool.
fn files() -> Vec<PathBuf> {
    let made = ["target", ".git", "node_modules", ".venv", "__pycache__"];
    WalkDir::new(repository())
        .into_iter()
        .filter_entry(|entry| !made.iter().any(|name| entry.file_name() == *name))
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .collect()
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix(repository()).unwrap()
}

/// Everything a package needs to be built into a program, by name.
fn reached(metadata: &Metadata, package: &str) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().unwrap();
    let nodes: HashMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let start =
        metadata.workspace_packages().into_iter().find(|found| found.name.as_str() == package).unwrap();
    let mut seen = BTreeSet::new();
    let mut open = vec![&start.id];
    while let Some(id) = open.pop() {
        for dependency in &nodes[id].deps {
            let normal = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if normal && seen.insert(&dependency.pkg) {
                open.push(&dependency.pkg);
            }
        }
    }
    seen.into_iter().map(|id| metadata[id].name.to_string()).collect()
}

/// What a package names in its own manifest, tests left out.
fn named(metadata: &Metadata, package: &str) -> BTreeSet<String> {
    let package =
        metadata.workspace_packages().into_iter().find(|found| found.name.as_str() == package).unwrap();
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind == DependencyKind::Normal)
        .map(|dependency| dependency.name.clone())
        .collect()
}

#[test]
fn the_core_the_dialects_and_the_keeper_reach_no_runtime_and_no_network() {
    let metadata = metadata();
    for package in ["lf-core", "lf-dialects", "lf-keeper"] {
        let reached = reached(&metadata, package);
        for heavy in ["tokio", "reqwest", "axum", "hyper", "mio", "socket2"] {
            assert!(!reached.contains(heavy), "{package} reaches {heavy}");
        }
    }
}

#[test]
fn dependencies_point_downwards_only() {
    let metadata = metadata();
    let below: &[(&str, &[&str])] = &[
        ("lf-core", &[]),
        ("lf-dialects", &["lf-core"]),
        ("lf-config", &["lf-core"]),
        ("lf-egress", &["lf-core"]),
        ("lf-models", &["lf-core", "lf-dialects", "lf-egress"]),
        ("lf-keeper", &[]),
        ("lf-mcp", &["lf-core", "lf-egress", "lf-keeper"]),
        ("lf-store", &["lf-core"]),
        ("lf-server", &["lf-core", "lf-dialects", "lf-config", "lf-models", "lf-mcp", "lf-store"]),
    ];
    for (package, allowed) in below {
        for dependency in named(&metadata, package).iter().filter(|name| name.starts_with("lf-")) {
            assert!(allowed.contains(&dependency.as_str()), "{package} depends on {dependency}");
        }
    }
}

#[test]
fn each_outside_language_has_one_crate() {
    let metadata = metadata();
    let owners: &[(&str, &[&str])] = &[
        ("rmcp", &["lf-mcp", "lf-conformance-fixture"]),
        ("axum", &["lf-server", "lf-tests", "lf-conformance-fixture"]),
        ("serde-saphyr", &["lf-config"]),
        ("rusqlite", &["lf-store"]),
        ("tokio-postgres", &["lf-store"]),
        ("toml", &["lf-config"]),
        ("landlock", &["lf-keeper"]),
        ("seccompiler", &["lf-keeper"]),
        ("clap", &["lf"]),
        ("anyhow", &["lf", "lf-tests", "lf-conformance-fixture"]),
    ];
    for package in metadata.workspace_packages() {
        let named = named(&metadata, package.name.as_str());
        for (dependency, owners) in owners {
            let allowed = owners.contains(&package.name.as_str()) || !named.contains(*dependency);
            assert!(allowed, "{} names {dependency}", package.name);
        }
    }
}

#[test]
fn no_file_is_longer_than_five_hundred_lines() {
    for path in files() {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 500, "{} has {lines} lines", relative(&path).display());
    }
}

#[test]
fn no_module_is_a_file_named_mod() {
    for path in files() {
        assert!(!path.ends_with("mod.rs"), "{}", relative(&path).display());
    }
}

#[test]
fn no_file_names_a_place_on_somebody_s_machine() {
    let places = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/bash", "_jobs")];
    for path in files() {
        // Files that are no text say nothing.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for place in places {
            assert!(!text.contains(place), "{} names {place}", relative(&path).display());
        }
    }
}

#[test]
fn the_architecture_can_be_read_in_one_sitting() {
    let text =
        std::fs::read_to_string(repository().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    let lines = text.lines().count();
    assert!(lines <= 200, "ARCHITECTURE.md has {lines} lines");
}

#[test]
fn the_schema_in_the_repository_is_the_program_s() {
    let path = repository().join("schema/llamafarm.schema.json");
    let stored: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("the schema is there")).unwrap();
    let made = TestProject::new("").run(&["config", "schema"]).ok().json();
    assert_eq!(stored, made, "run `lf config schema > schema/llamafarm.schema.json`");
}

/// The fenced blocks of a document that are in one of these languages.
fn blocks(text: &str, languages: &[&str]) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<(bool, String)> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(_), Some((wanted, block))) => {
                if *wanted {
                    blocks.push(std::mem::take(block));
                }
                open = None;
            }
            (Some(language), None) => open = Some((languages.contains(&language.trim()), String::new())),
            (None, Some((_, block))) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

fn readme() -> String {
    std::fs::read_to_string(repository().join("README.md")).expect("README.md is there")
}

/// Sets every variable that a configuration names, and asks `lf` what it thinks.
fn assert_right(text: &str, what: &str) {
    let mut project = TestProject::new(text);
    for rest in text.split("${").skip(1) {
        let name = rest.split(['}', ':']).next().unwrap_or_default();
        let name = if name == "env" { rest[4..].split(['}', ':']).next().unwrap_or_default() } else { name };
        project = project.variable(name, "set");
    }
    let finished = project.run(&["config", "validate"]);
    assert_eq!(finished.status, Some(0), "{what}:\n{}\n{}", finished.stdout, finished.stderr);
}

#[test]
fn every_configuration_in_the_readme_is_right() {
    let readme = readme();
    let blocks = blocks(&readme, &["yaml", "yml"]);
    assert!(!blocks.is_empty());
    for block in blocks {
        // A fragment stands below the three lines that every file begins with.
        let head = "version: v1\nname: demo\nnamespace: default\n";
        let text = if block.contains("version:") { block } else { format!("{head}{block}") };
        assert_right(&text, &text);
    }
}

#[test]
fn every_command_in_the_readme_exists() {
    let readme = readme();
    let project = TestProject::new("");
    let mut seen = 0;
    for block in blocks(&readme, &["sh", "bash", "console", "shell"]) {
        for line in block.lines() {
            let line = line.trim_start_matches("$ ").trim();
            let Some(rest) = line.strip_prefix("lf ") else { continue };
            let plain = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            let words: Vec<&str> = rest.split_whitespace().take_while(plain).take(2).collect();
            let nested = ["config", "models", "mcp"].contains(&words[0]);
            let words = &words[..words.len().min(1 + usize::from(nested))];
            project.run(&[words, &["--help"]].concat()).ok();
            seen += 1;
        }
    }
    assert!(seen > 0, "the README shows no command");
}

#[test]
fn every_example_is_right() {
    let mut examples: Vec<PathBuf> =
        files().into_iter().filter(|path| path.ends_with("llamafarm.yaml")).collect();
    examples.push(repository().join("llamafarm.yaml.example"));
    for example in examples {
        let text = std::fs::read_to_string(&example).expect("the example is there");
        assert_right(&text, &relative(&example).display().to_string());
    }
}
