//! Entries of `mcp.servers`.

use std::collections::HashSet;

use globset::{Glob, GlobMatcher};
use indexmap::IndexMap;
use lf_core::Secret;
use lf_core::project::{
    ApprovalOf, ApprovalRule, Disabled, Elicitation, Hint, HttpServer, McpServer, ProcessLimits, Protocol,
    StdioServer, ToolFilter, Transport,
};
use lf_core::tool::Approval;

use super::{Context, Reading, auth, broken, carry, is_header_value, provider::url_problem, retry, sandbox};
use crate::diagnostic::{Report, quote};
use crate::node::Node;
use crate::raw::{RawElicitation, RawProtocol, RawServer, RawTransport};
use crate::variables::{Syntax, expand};

const EXPANDED: [(&str, Syntax); 12] = [
    ("command", Syntax::Full),
    ("args", Syntax::Full),
    ("env", Syntax::Full),
    ("cwd", Syntax::Full),
    ("limits", Syntax::Full),
    ("sandbox", Syntax::Full),
    ("base_url", Syntax::Full),
    ("headers", Syntax::Full),
    ("auth", Syntax::Full),
    ("timeout", Syntax::Full),
    ("max_timeout", Syntax::Full),
    ("startup_timeout", Syntax::Full),
];
const STDIO_KEYS: [&str; 7] = ["command", "args", "env", "cwd", "inherit_env", "limits", "sandbox"];
const HTTP_KEYS: [&str; 3] = ["base_url", "headers", "auth"];

pub(super) fn read(
    name: &str,
    node: &Node,
    context: &Context<'_>,
    report: &mut Report<'_>,
) -> Result<McpServer, Disabled> {
    let thing = format!("MCP server {}", quote(name));
    let expanded = expand(node, &EXPANDED, &format!("{thing} is not available"), context.variables, report);
    let mut reading = Reading::new(thing, &expanded, context, report);
    let Some(raw) = reading.raw::<RawServer>() else { return Err(broken()) };
    let timeout = reading.duration(None, "timeout", McpServer::TIMEOUT);
    let max_timeout = reading.duration(None, "max_timeout", timeout * McpServer::TOTAL);
    let startup_timeout = reading.duration(None, "startup_timeout", McpServer::STARTUP_TIMEOUT);
    if max_timeout < timeout
        && let Some(node) = reading.node("max_timeout")
        && let Some(diagnostic) = reading.wrong(node, "`max_timeout` is shorter than `timeout`".to_owned())
    {
        diagnostic.hint(
            "`timeout` bounds the silence between two reports of progress, `max_timeout` the whole call",
        );
    }
    let tools = filter(&mut reading, &raw);
    let transport = match raw.transport {
        Some(RawTransport::Stdio) => stdio(&mut reading, &raw)
            .map(|stdio| Transport::Stdio(StdioServer { written: written(node), ..stdio })),
        Some(RawTransport::Http) => http(&mut reading, &raw).map(Transport::Http),
        Some(RawTransport::Sse) => http(&mut reading, &raw).map(Transport::Sse),
        None => None,
    };
    let Some(transport) = transport else { return Err(broken()) };
    carry::by_server(name, &transport, &expanded.used, context);
    let required = raw.required.unwrap_or(false);
    let retry = retry::read(&mut reading, raw.retry.as_ref());
    reading.finish(McpServer {
        name: name.to_owned(),
        transport,
        tools,
        timeout,
        max_timeout,
        startup_timeout,
        required,
        protocol: raw.protocol.map_or(Protocol::Auto, protocol),
        elicitation: match raw.elicitation {
            Some(RawElicitation::Decline) => Elicitation::Decline,
            Some(RawElicitation::Defaults) | None => Elicitation::Defaults,
        },
        retry,
    })
}

fn protocol(raw: RawProtocol) -> Protocol {
    match raw {
        RawProtocol::Auto => Protocol::Auto,
        RawProtocol::Legacy => Protocol::Legacy,
        RawProtocol::Modern => Protocol::Modern,
        RawProtocol::V20241105 => Protocol::Revision("2024-11-05"),
        RawProtocol::V20250326 => Protocol::Revision("2025-03-26"),
        RawProtocol::V20250618 => Protocol::Revision("2025-06-18"),
        RawProtocol::V20251125 => Protocol::Revision("2025-11-25"),
        RawProtocol::V20260728 => Protocol::Revision("2026-07-28"),
    }
}

fn stdio(reading: &mut Reading<'_, '_, '_>, raw: &RawServer) -> Option<StdioServer> {
    without_effect(reading, &HTTP_KEYS, "stdio");
    let Some(command) = raw.command.clone() else {
        reading.lacks("command", "transport `stdio` starts a program: name it in `command`");
        return None;
    };
    let is_variable = reading.node("command").is_some_and(|node| reading.expanded.is_from_variable(node));
    if raw.args.is_none()
        && !is_variable
        && command.trim().contains(char::is_whitespace)
        && !command.contains('/')
    {
        let words: Vec<&str> = command.split_whitespace().collect();
        let hint = format!("write `command: {}` and `args: [{}]`", words[0], words[1..].join(", "));
        let span = reading.expanded.node.span_of("command");
        reading.report.warning(&span, "`command` holds spaces; it is the name of one program").hint(hint);
    }
    for key in ["command", "args", "env", "cwd"] {
        if let Some(node) = reading.node(key) {
            without_nul(reading, node);
        }
    }
    for entry in reading.node("env").map(Node::entries).unwrap_or_default() {
        if entry.key.is_empty() || entry.key.contains(['=', '\0']) {
            let message = format!("{} cannot be the name of a variable", quote(&entry.key));
            reading.report.error(&entry.key_span, message);
        }
    }
    let directory = reading.context.directory;
    let defaults = ProcessLimits::default();
    let processes = raw.limits.as_ref().and_then(|limits| limits.processes);
    let limits = ProcessLimits {
        memory: reading.size("limits", "memory", defaults.memory),
        processes: processes
            .map_or(defaults.processes, |processes| Some(processes).filter(|count| *count > 0)),
    };
    let sandbox = sandbox::read(reading, raw.sandbox.as_ref(), &command);
    Some(StdioServer {
        command,
        args: raw.args.clone().unwrap_or_default(),
        env: raw.env.clone().into_iter().flatten().collect(),
        inherit_env: raw.inherit_env.clone().unwrap_or_default(),
        cwd: raw.cwd.as_ref().map_or_else(|| directory.to_owned(), |cwd| directory.join(cwd)),
        limits,
        sandbox,
        pin: None,
        written: Secret::default(),
    })
}

/// What of an entry decides which process it becomes.
fn written(node: &Node) -> Secret {
    let said = STDIO_KEYS.iter().filter_map(|key| Some(format!("{key}: {}", node.get(key)?.to_json())));
    Secret::from(said.collect::<Vec<_>>().join("\n"))
}

fn http(reading: &mut Reading<'_, '_, '_>, raw: &RawServer) -> Option<HttpServer> {
    without_effect(
        reading,
        &STDIO_KEYS,
        if raw.transport == Some(RawTransport::Sse) { "sse" } else { "http" },
    );
    let (Some(base_url), Some(node)) = (raw.base_url.clone(), reading.node("base_url")) else {
        reading.lacks("base_url", "transports `http` and `sse` connect to a URL: give it in `base_url`");
        return None;
    };
    if let Some(problem) = url_problem(&base_url)
        && let Some(diagnostic) =
            reading.wrong(node, format!("`base_url` is no URL to connect to: {problem}"))
    {
        diagnostic.hint("a URL looks like `https://host:port/mcp`");
    }
    let mut seen = HashSet::new();
    for entry in reading.node("headers").map(Node::entries).unwrap_or_default() {
        if !is_header_name(&entry.key) {
            let message = format!("{} cannot be the name of a header", quote(&entry.key));
            reading.report.error(&entry.key_span, message).label("letters, digits and `-`");
        }
        if !seen.insert(entry.key.to_ascii_lowercase()) {
            let message = format!("the header {} is given twice", quote(&entry.key));
            reading
                .report
                .error(&entry.key_span, message)
                .hint("case makes no difference in names of headers");
        }
        if !is_header_value(entry.node.as_str().unwrap_or_default()) {
            let message =
                format!("the value of header {} holds a line break or control character", quote(&entry.key));
            reading.wrong(&entry.node, message);
        }
    }
    let auth = raw.auth.as_ref().and_then(|raw| auth::read(reading, raw));
    let mut headers: Vec<(String, Secret)> = raw.headers.clone().into_iter().flatten().collect();
    headers.retain(|(name, _)| auth.is_none() || !name.eq_ignore_ascii_case("authorization"));
    let in_url = carry::in_url(&reading.expanded.used);
    Some(HttpServer { headers, auth, in_url, ..HttpServer::new(base_url) })
}

fn without_effect(reading: &mut Reading<'_, '_, '_>, keys: &[&str], transport: &str) {
    for key in keys {
        if let Some(entry) = reading.expanded.node.entry(key) {
            let message = format!("{} has no effect with transport `{transport}`", quote(key));
            reading.report.warning(&entry.key_span, message);
        }
    }
}

fn without_nul(reading: &mut Reading<'_, '_, '_>, node: &Node) {
    if node.as_str().is_some_and(|text| text.contains('\0')) {
        reading.wrong(node, "a NUL character cannot be handed to a program".to_owned());
    }
    node.items().iter().for_each(|item| without_nul(reading, item));
    node.entries().iter().for_each(|entry| without_nul(reading, &entry.node));
}

/// A token of RFC 9110, section 5.6.2.
fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// `tools` and `approval` together.
fn filter(reading: &mut Reading<'_, '_, '_>, raw: &RawServer) -> ToolFilter {
    let node = &reading.expanded.node;
    let tools = node.get("tools");
    let mut filter = ToolFilter {
        allow: tools.and_then(|tools| tools.get("allow")).map(|list| globs(list, reading.report)),
        deny: tools
            .and_then(|tools| tools.get("deny"))
            .map(|list| globs(list, reading.report))
            .unwrap_or_default(),
        rename: IndexMap::new(),
        approval: Vec::new(),
    };
    if let Some(approval) = node.entry("approval").filter(|_| raw.approval.is_some()) {
        match approval.node.as_str() {
            Some(word) => filter.approval.extend(rule("*", &approval.node, word, reading.report)),
            None => {
                for entry in approval.node.entries() {
                    let word = entry.node.as_str().unwrap_or_default();
                    let pattern = Node::text(entry.key.clone(), entry.key_span.clone());
                    filter.approval.extend(rule(&entry.key, &pattern, word, reading.report));
                }
            }
        }
    }
    for entry in tools.and_then(|tools| tools.get("rename")).map(Node::entries).unwrap_or_default() {
        let new = entry.node.as_str().unwrap_or_default();
        let fits = new.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        if new.is_empty() || new.len() > 128 || !fits {
            let message = format!("a tool cannot be renamed to {}", quote(new));
            reading
                .report
                .error(&entry.node.span, message)
                .label("letters, digits, `.`, `_` and `-`, at most 128");
        } else if filter.rename.values().any(|earlier| earlier == new) {
            let message = format!("two tools are renamed to {}", quote(new));
            reading.report.error(&entry.node.span, message).label("the second one");
        }
        filter.rename.insert(entry.key.clone(), new.to_owned());
    }
    filter
}

fn rule(pattern: &str, node: &Node, word: &str, report: &mut Report<'_>) -> Option<ApprovalRule> {
    let approval = match word {
        "auto" => Approval::Auto,
        "ask" => Approval::Ask,
        "deny" => Approval::Deny,
        // told by the check of structure
        _ => return None,
    };
    let of = match Hint::ALL.into_iter().find(|hint| hint.name() == pattern) {
        Some(hint) => ApprovalOf::Hint(hint),
        None => ApprovalOf::Tools(glob(pattern, node, report)?),
    };
    Some(ApprovalRule { of, approval })
}

pub(super) fn globs(list: &Node, report: &mut Report<'_>) -> Vec<GlobMatcher> {
    list.items().iter().filter_map(|item| glob(item.as_str()?, item, report)).collect()
}

pub(super) fn glob(pattern: &str, node: &Node, report: &mut Report<'_>) -> Option<GlobMatcher> {
    match Glob::new(pattern) {
        Ok(glob) => Some(glob.compile_matcher()),
        Err(error) => {
            report.error(&node.span, format!("{} is no glob: {}", quote(pattern), error.kind()));
            None
        }
    }
}
