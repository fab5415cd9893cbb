//! `sandbox` of an MCP server.

use std::path::PathBuf;

use lf_core::project::{Sandbox, SandboxNetwork, SandboxProfile};

use super::Reading;
use crate::diagnostic::quote;
use crate::node::Node;
use crate::raw::{RawSandbox, RawSandboxNetwork, RawSandboxProfile, RawSandboxRules, RawSandboxWord};

/// Programs that hand the work to another one, which confines it: in a sandbox they would not get that far.
const CONFINING: [&str; 6] = ["docker", "podman", "nerdctl", "bwrap", "firejail", "flatpak"];

pub(super) fn read(reading: &mut Reading<'_, '_, '_>, raw: Option<&RawSandbox>, command: &str) -> Sandbox {
    let (Some(raw), Some(node)) = (raw, reading.node("sandbox")) else { return Sandbox::default() };
    let rules = match raw {
        RawSandbox::Profile(profile) => {
            &RawSandboxRules { profile: Some(*profile), ..RawSandboxRules::default() }
        }
        RawSandbox::Rules(rules) => rules,
    };
    let names_something = rules.read.is_some() || rules.write.is_some() || rules.network.is_some();
    let profile = match rules.profile {
        Some(RawSandboxProfile::Off) => SandboxProfile::Off,
        Some(RawSandboxProfile::Strict) => SandboxProfile::Strict,
        None if names_something => SandboxProfile::Strict,
        None | Some(RawSandboxProfile::Default) => SandboxProfile::Default,
    };
    let effects: &[&str] = match profile {
        SandboxProfile::Off => &["read", "write", "network", "require", "namespaces"],
        SandboxProfile::Default => &["read", "write", "network"],
        SandboxProfile::Strict => &[],
    };
    // who writes what it may do wants the rest refused
    for entry in node.entries().iter().filter(|entry| effects.contains(&entry.key.as_str())) {
        let message = format!("{} is not bounded by the profile `{}`", quote(&entry.key), profile.name());
        if let Some(diagnostic) = reading.wrong(&entry.node, message) {
            diagnostic.hint("write `profile: strict`, or leave it out");
        }
    }
    let is_strict = profile == SandboxProfile::Strict;
    let program = std::path::Path::new(command).file_name().and_then(|name| name.to_str()).unwrap_or(command);
    if is_strict && CONFINING.contains(&program) {
        let message = format!("`{program}` cannot do its work in the profile `strict`");
        reading.report.warning(&node.span, message).hint(
            "it confines what it runs by itself: write `sandbox: default`, and the bounds in its arguments; podman \
             and firejail of others than root need `sandbox: {namespaces: false}`",
        );
    }
    Sandbox {
        profile,
        read: paths(reading, node, "read", rules.read.as_deref()),
        write: paths(reading, node, "write", rules.write.as_deref()),
        network: match &rules.network {
            Some(RawSandboxNetwork::Word(RawSandboxWord::All)) => SandboxNetwork::All,
            Some(RawSandboxNetwork::Ports(ports)) if !ports.is_empty() => {
                SandboxNetwork::Ports(ports.clone())
            }
            Some(RawSandboxNetwork::Word(RawSandboxWord::None) | RawSandboxNetwork::Ports(_)) | None => {
                SandboxNetwork::None
            }
        },
        require: rules.require.unwrap_or(is_strict),
        shares_processes: rules.namespaces == Some(false),
    }
}

fn paths(
    reading: &mut Reading<'_, '_, '_>,
    node: &Node,
    key: &str,
    paths: Option<&[String]>,
) -> Vec<PathBuf> {
    let items = node.get(key).map(Node::items).unwrap_or_default();
    for item in items {
        let text = item.as_str().unwrap_or_default();
        if text == "~" || text.starts_with("~/") {
            let message = format!("{} begins with `~`, which only a shell understands", reading.quoted(item));
            if let Some(diagnostic) = reading.wrong(item, message) {
                diagnostic.hint("write `${HOME}` for the home directory");
            }
        } else if text.contains('\0') {
            reading.wrong(item, "a NUL character cannot be in a path".to_owned());
        }
    }
    let directory = reading.context.directory;
    paths.into_iter().flatten().map(|path| directory.join(path)).collect()
}
