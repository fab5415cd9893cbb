//! `sandbox` of an MCP server: what it is read as, and what is wrong with it.

use std::path::{Path, PathBuf};

use lf_core::project::{Sandbox, SandboxNetwork, SandboxProfile, Transport};

use crate::tests::{diagnose, load_text};
use crate::{Source, Style, Variables, parse};

fn text(command: &str, sandbox: &str) -> String {
    format!(
        "mcp:\n  servers:\n    - {{name: a, transport: stdio, command: {command}, sandbox: {sandbox}}}\n\
         runtime:\n  models:\n    - {{name: m, provider: demo}}\n"
    )
}

fn read(sandbox: &str) -> Sandbox {
    let loaded = load_text(&text("x", sandbox));
    assert!(loaded.diagnostics.is_empty(), "{sandbox}: {:?}", loaded.diagnostics);
    let server = loaded.project.servers["a"].as_ref().unwrap();
    let Transport::Stdio(stdio) = &server.transport else { panic!("{server:?}") };
    stdio.sandbox.clone()
}

#[test]
fn a_profile_alone_is_a_sandbox_and_strict_insists_on_all_of_it() {
    for (word, profile, require) in [
        ("off", SandboxProfile::Off, false),
        ("default", SandboxProfile::Default, false),
        ("strict", SandboxProfile::Strict, true),
    ] {
        let expected = Sandbox { profile, require, ..Sandbox::default() };
        assert_eq!(read(word), expected);
        assert_eq!(read(&format!("{{profile: {word}}}")), expected);
    }
    assert_eq!(
        read("{require: true, namespaces: false}"),
        Sandbox { require: true, shares_processes: true, ..Sandbox::default() }
    );
}

#[test]
fn who_names_files_or_a_network_wants_the_rest_refused() {
    let sandbox = read("{read: [., /opt/x], write: [out], network: [443, 53], require: false}");
    assert_eq!(
        sandbox,
        Sandbox {
            profile: SandboxProfile::Strict,
            read: vec![PathBuf::from("/srv/farm/."), PathBuf::from("/opt/x")],
            write: vec![PathBuf::from("/srv/farm/out")],
            network: SandboxNetwork::Ports(vec![443, 53]),
            require: false,
            shares_processes: false,
        }
    );
    assert_eq!(read("{network: all}").network, SandboxNetwork::All);
    for none in ["none", "[]"] {
        let sandbox = read(&format!("{{network: {none}}}"));
        assert_eq!((sandbox.profile, sandbox.network), (SandboxProfile::Strict, SandboxNetwork::None));
    }
}

#[test]
fn what_would_bound_nothing_is_an_error_and_never_passed_over() {
    for (sandbox, said) in [
        ("{profile: default, read: [.]}", "`read` is not bounded by the profile `default`"),
        ("{profile: off, network: none}", "`network` is not bounded by the profile `off`"),
        ("{profile: off, require: true}", "`require` is not bounded by the profile `off`"),
        ("{read: ['~/docs']}", "`~/docs` begins with `~`, which only a shell understands"),
        ("paranoid", "paranoid"),
        ("{profile: paranoid}", "paranoid"),
        ("{network: [70000]}", "70000"),
        ("{network: internet}", "internet"),
        ("{reed: [.]}", "unknown key `reed`"),
    ] {
        let told = diagnose(&text("x", sandbox));
        assert!(told.contains("error: ") && told.contains(said), "{sandbox}:\n{told}");
    }
}

#[test]
fn what_a_variable_holds_stands_in_no_message_about_a_path() {
    let text =
        format!("version: v1\nname: farm\nnamespace: default\n{}", text("x", "{read: ['${env:CANARY}']}"));
    let source = Source { path: "llamafarm.yaml".into(), text };
    let variables = Variables::new(None, |name| (name == "CANARY").then(|| "~/canary".to_owned()));
    let loaded = parse(&source, Path::new("/srv/farm"), &variables).unwrap_or_else(|told| panic!("{told}"));
    let told = loaded.render_diagnostics(Style::Plain);
    assert!(told.contains("`'${env:CANARY}'` begins with `~`"), "{told}");
    assert!(!told.contains("canary"), "{told}");
}

#[test]
fn a_program_that_confines_by_itself_is_warned_about_in_strict_alone() {
    for command in ["docker", "/usr/bin/podman", "bwrap"] {
        let told = diagnose(&text(command, "strict"));
        assert!(told.contains("warning: ") && told.contains("write `sandbox: default`"), "{told}");
        assert_eq!(diagnose(&text(command, "default")), "");
    }
}

#[test]
fn a_remote_server_has_no_sandbox() {
    let told = diagnose(
        "mcp:\n  servers:\n    - {name: a, transport: http, base_url: https://x.example, sandbox: strict}\n",
    );
    assert!(told.contains("`sandbox` has no effect with transport `http`"), "{told}");
}
