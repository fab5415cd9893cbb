//! The resolved configuration, for people to look at: defaults filled in, secrets masked.

use std::time::Duration;

use lf_core::model::Dialect;
use lf_core::project::{Model, Project, Provider, ToolCallStrategy, Transport};
use lf_core::{Secret, secret};
use serde_json::{Map, Value as Json, json};

use crate::node::Node;

pub(crate) const MASK: &str = "********";

/// The file's own tree, with what it leaves open filled in from the project.
pub(crate) fn resolved(root: &Node, project: &Project) -> Json {
    let mut json = root.to_json();
    mask_all(&mut json, "");
    for server in list(&mut json, "mcp", "servers") {
        let Some(name) = name(server) else { continue };
        if let Some(Ok(resolved)) = project.servers.get(&name) {
            if let Transport::Http(http) | Transport::Sse(http) = &resolved.transport {
                server.insert("base_url".to_owned(), json!(shown_url(&http.base_url, &http.in_url)));
            }
            fill(server, "timeout", json!(duration(resolved.timeout)));
            fill(server, "max_timeout", json!(duration(resolved.max_timeout)));
            fill(server, "startup_timeout", json!(duration(resolved.startup_timeout)));
            fill(server, "required", json!(resolved.required));
            fill(server, "protocol", json!(resolved.protocol.name()));
            fill(server, "elicitation", json!(resolved.elicitation.name()));
        }
    }
    for model in list(&mut json, "runtime", "models") {
        let Some(name) = name(model) else { continue };
        if let Some(Ok(resolved)) = project.models.get(&name) {
            fill_model(model, resolved);
        }
    }
    if let (Some(default), Some(runtime)) =
        (&project.default_model, json.get_mut("runtime").and_then(Json::as_object_mut))
    {
        runtime.shift_insert(0, "default_model".to_owned(), json!(default));
    }
    json
}

/// As YAML; entries that cannot be used are named in comments at the top.
pub(crate) fn yaml(json: &Json, project: &Project) -> String {
    let mut text = String::new();
    let servers = project
        .servers
        .iter()
        .filter_map(|(name, server)| Some(("MCP server", name, server.as_ref().err()?)));
    let models =
        project.models.iter().filter_map(|(name, model)| Some(("model", name, model.as_ref().err()?)));
    for (kind, name, disabled) in servers.chain(models) {
        text.push_str(&format!("# {kind} `{name}` is not available: {}\n", disabled.reason));
    }
    text.push_str(
        &serde_yaml::to_string(json).unwrap_or_else(|error| format!("# cannot be shown: {error}\n")),
    );
    text
}

fn fill_model(model: &mut Map<String, Json>, resolved: &Model) {
    fill(model, "model", json!(resolved.model));
    if !resolved.base_url.is_empty() {
        model.insert("base_url".to_owned(), json!(shown_url(&resolved.base_url, &resolved.in_url)));
    }
    if resolved.api_key.is_some() {
        fill(model, "api_key", json!(MASK));
    }
    fill(
        model,
        "tool_call_strategy",
        json!(match resolved.strategy {
            ToolCallStrategy::NativeApi => "native_api",
            ToolCallStrategy::PromptBased => "prompt_based",
            ToolCallStrategy::Auto => "auto",
        }),
    );
    if !matches!(resolved.provider, Provider::Demo | Provider::Replay)
        && let Some(api) = api(resolved.dialect)
    {
        fill(model, "api", json!(api));
    }
    if let Some(format) = &resolved.tool_call_format {
        fill(model, "tool_call_format", json!(format));
    }
    model.insert("mcp_servers".to_owned(), json!(resolved.servers));
    model.insert("prompts".to_owned(), json!(resolved.prompts));
    fill(model, "input", if resolved.images { json!(["text", "image"]) } else { json!(["text"]) });
    let limits = &resolved.limits;
    let held = model.get("limits").and_then(Json::as_object).cloned().unwrap_or_default();
    model.insert(
        "limits".to_owned(),
        json!({
            "rounds": limits.rounds,
            "parallel_calls": limits.parallel_calls,
            "result_tokens": limits.result_tokens,
            "result_bytes": limits.result_bytes,
            "turn_timeout": duration(limits.turn_timeout),
            "final_timeout": duration(limits.final_timeout),
            "approval_timeout": duration(limits.approval_timeout),
            "queue_timeout": duration(limits.queue_timeout),
            "repeat_calls": limits.repeat_calls,
        }),
    );
    // these have no default
    for key in ["tokens", "cost_usd"] {
        if let (Some(value), Some(shown)) =
            (held.get(key), model.get_mut("limits").and_then(Json::as_object_mut))
        {
            shown.insert(key.to_owned(), value.clone());
        }
    }
}

/// As the file says it.
fn api(dialect: Dialect) -> Option<&'static str> {
    Some(match dialect {
        Dialect::OpenaiChat => "chat_completions",
        Dialect::OpenaiResponses => "responses",
        Dialect::Anthropic => "messages",
        Dialect::Gemini => "generate_content",
        Dialect::Ollama => "ollama",
        Dialect::AiSdk => return None,
    })
}

fn fill(entry: &mut Map<String, Json>, key: &str, value: Json) {
    entry.entry(key).or_insert(value);
}

fn name(entry: &Map<String, Json>) -> Option<String> {
    entry.get("name").and_then(Json::as_str).map(str::to_owned)
}

fn list<'j>(json: &'j mut Json, section: &str, key: &str) -> impl Iterator<Item = &'j mut Map<String, Json>> {
    let list = json.get_mut(section).and_then(|section| section.get_mut(key)).and_then(Json::as_array_mut);
    list.into_iter().flatten().filter_map(Json::as_object_mut)
}

fn duration(duration: Duration) -> String {
    match duration.as_millis() {
        millis if millis % 1000 != 0 => format!("{millis}ms"),
        millis => format!("{}s", millis / 1000),
    }
}

/// Everything under `key` (and, in lists, after a flag such as `--token`) that is or may be a secret.
pub(crate) fn mask_all(json: &mut Json, key: &str) {
    match json {
        Json::Object(map) => {
            for (name, value) in map.iter_mut() {
                match (key, value) {
                    ("headers", Json::String(text)) => *text = mask_header(text),
                    (_, value @ Json::String(_)) if is_secret_name(name) => mask_string(value),
                    (_, value) => mask_all(value, name),
                }
            }
        }
        Json::Array(items) => {
            let mut after_secret_flag = false;
            for item in items {
                match item {
                    Json::String(_) if after_secret_flag => mask_string(item),
                    Json::String(text) if key == "args" => *text = mask_argument(text),
                    _ => mask_all(item, key),
                }
                after_secret_flag = item
                    .as_str()
                    .is_some_and(|text| text.starts_with('-') && !text.contains('=') && is_secret_name(text));
            }
        }
        Json::String(text) => *text = mask_text(text),
        _ => {}
    }
}

fn mask_string(value: &mut Json) {
    if let Json::String(text) = value {
        *text = if text.is_empty() { String::new() } else { mask_literal(text) };
    }
}

/// References stay, as they name a secret and are none; their defaults and all other text go.
fn mask_literal(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((reference, after)) = after.split_once('}') else { break };
        if !before.is_empty() {
            out.push_str(MASK);
        }
        match reference.split_once(":-") {
            Some((name, _)) => out.push_str(&format!("${{{name}:-{MASK}}}")),
            None => out.push_str(&format!("${{{reference}}}")),
        }
        rest = after;
    }
    if !rest.is_empty() {
        out.push_str(MASK);
    }
    out
}

fn mask_header(text: &str) -> String {
    match text.split_once(' ') {
        Some((scheme @ ("Bearer" | "Basic" | "Token"), rest)) => format!("{scheme} {}", mask_literal(rest)),
        _ => mask_literal(text),
    }
}

/// A text that is no secret as a whole but may hold one: `--token=…`, a URL with a password, a key by its look.
fn mask_text(text: &str) -> String {
    // prose
    if text.contains(char::is_whitespace) {
        return text.to_owned();
    }
    if let Some((name, value)) = text.split_once('=')
        && !name.contains("://")
        && is_secret_name(name)
    {
        return format!("{name}={}", mask_literal(value));
    }
    if text.contains("://") {
        return mask_url(text);
    }
    if is_key(text) { MASK.to_owned() } else { text.to_owned() }
}

/// An argument may be a header, or a line of a shell.
fn mask_argument(text: &str) -> String {
    match text.split_once(':') {
        Some((name, value))
            if !value.starts_with("//") && is_secret_name(name) && !name.contains(char::is_whitespace) =>
        {
            let blank = &value[..value.len() - value.trim_start().len()];
            format!("{name}:{blank}{}", mask_header(value.trim_start()))
        }
        _ => text.split_inclusive(char::is_whitespace).map(mask_word).collect(),
    }
}

/// With the blank after it.
fn mask_word(word: &str) -> String {
    let bare = word.trim_end();
    format!("{}{}", mask_text(bare), &word[bare.len()..])
}

/// Whether a word is a key by its look.
pub(crate) fn is_key(word: &str) -> bool {
    const LOOKS: [&str; 9] = ["sk-", "sk_", "ghp_", "gho_", "github_pat_", "glpat-", "xox", "AKIA", "eyJ"];
    LOOKS.iter().any(|look| word.starts_with(look)) && word.len() >= 16
}

/// Without what variables hold of it, either.
fn shown_url(url: &str, in_url: &[Secret]) -> String {
    mask_url(&secret::without(url, &in_url.iter().map(Secret::expose).collect::<Vec<_>>()))
}

fn mask_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let authority = match authority.rsplit_once('@') {
        Some((credentials, host)) => format!("{}@{host}", mask_literal(credentials)),
        None => authority.to_owned(),
    };
    let path = match path.split_once('?') {
        Some((path, query)) => {
            let query = query.split('&').map(|pair| match pair.split_once('=') {
                Some((name, value)) => format!("{name}={}", mask_literal(value)),
                None => pair.to_owned(),
            });
            format!("{path}?{}", query.collect::<Vec<_>>().join("&"))
        }
        None => path.to_owned(),
    };
    format!("{scheme}://{authority}{path}")
}

pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_lowercase().replace('-', "_");
    // how many tokens a model may use is no secret
    if name.ends_with("tokens") || name == "token_endpoint_auth_method" {
        return false;
    }
    ["key", "token", "secret", "password", "passwd", "pwd", "credential", "authorization"]
        .iter()
        .any(|word| name.split('_').any(|part| part == *word) || name.ends_with(word))
}

#[cfg(test)]
mod tests;
