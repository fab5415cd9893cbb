//! Holds the tree against the JSON Schema: every mistake of structure is told, and what is wrong is taken out, so that
//! the checks that follow can go on with the rest.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde_json::{Map, Value as Json};

use crate::diagnostic::{Report, Span, did_you_mean, nearest, quote};
use crate::node::{Entry, Node, Value};
use crate::raw;
use crate::schema;

/// Words of an enumeration that are shown.
const MAX_LISTED: usize = 12;

static NO_PROPERTIES: LazyLock<Map<String, Json>> = LazyLock::new(Map::new);

/// Keys that were given, wrongly: what was taken out has been told and is not to be called missing.
#[derive(Debug, Default)]
pub(crate) struct Removed(HashSet<(usize, String)>);

impl Removed {
    pub(crate) fn contains(&self, map: &Node, key: &str) -> bool {
        self.0.contains(&(map.span.start, key.to_owned()))
    }
}

/// Checks the whole file.
pub(crate) fn structure(root: &mut Node, report: &mut Report<'_>) -> Removed {
    let mut checker =
        Checker { root: schema::shared(), report, removed: Removed::default(), unused: Vec::new() };
    checker.check(root, schema::shared(), "the file", Place::Root);
    let Checker { removed, unused, .. } = checker;
    if let Some((first, _)) = unused.first() {
        let names = unused.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ");
        report.note(first, format!("kept, but not used by this version: {names}"));
    }
    removed
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Inside,
}

#[derive(PartialEq, Eq)]
enum Verdict {
    Keep,
    /// It is wrong.
    Remove,
    /// It says nothing.
    Skip,
}

struct Checker<'a, 'r, 's> {
    root: &'a Json,
    report: &'r mut Report<'s>,
    removed: Removed,
    unused: Vec<(Span, String)>,
}

impl<'a> Checker<'a, '_, '_> {
    /// `what` names the value in messages: a key in backticks, or a thing such as "MCP server `fs`".
    fn check(&mut self, node: &mut Node, schema: &'a Json, what: &str, place: Place) -> Verdict {
        let schema = self.resolve(schema);
        if let Some(words) = enumeration(schema) {
            return self.word(node, &words, what);
        }
        if let Some(Json::Array(branches)) = schema.get("anyOf") {
            let fits = |branch: &&'a Json| {
                let branch = self.resolve(branch);
                let types = enumeration(branch).map_or_else(|| types(branch), |_| vec!["string"]);
                types.iter().any(|&one| fits_type(node, one))
            };
            return match branches.iter().find(fits) {
                Some(branch) => self.check(node, branch, what, Place::Inside),
                None => self.wrong_type(node, &["string", "object"], what),
            };
        }
        let types = types(schema);
        if !types.is_empty() && !types.iter().any(|&one| fits_type(node, one)) {
            return self.wrong_type(node, &types, what);
        }
        // text is wanted: what it could mean elsewhere does not matter
        if types.contains(&"string")
            && let Value::Plain(text) = &node.value
        {
            node.value = Value::Text(text.clone());
        }
        match &mut node.value {
            Value::Map(_) => self.map(node, schema, place),
            Value::List(_) => self.list(node, schema, what),
            Value::Plain(_) | Value::Text(_) => return self.scalar(node, schema, what),
        }
        Verdict::Keep
    }

    fn resolve(&self, schema: &'a Json) -> &'a Json {
        let reference = schema.get("$ref").and_then(Json::as_str);
        reference.and_then(|path| self.root.pointer(path.trim_start_matches('#'))).unwrap_or(schema)
    }

    fn wrong_type(&mut self, node: &Node, types: &[&str], what: &str) -> Verdict {
        let expected = types.iter().map(|one| type_name(one)).collect::<Vec<_>>().join(" or ");
        let found = match node.kind() {
            "empty" => "empty".to_owned(),
            kind => format!("not {kind}").replace("not not", "not"),
        };
        let message = match found.as_str() {
            "empty" => format!("{what} is empty; it must be {expected}"),
            found => format!("{what} must be {expected}, {found}"),
        };
        let hint = self.type_hint(node, types, what);
        self.report.error(&node.span, message).label(format!("expected {expected}")).maybe_hint(hint);
        Verdict::Remove
    }

    fn type_hint(&self, node: &Node, types: &[&str], what: &str) -> Option<String> {
        let key = what.trim_matches('`');
        if key == "mcp_servers" && node.is_null() {
            return Some(
                "`[]` gives the model no servers; without the key it may use all of them".to_owned(),
            );
        }
        match (types, node.as_str()) {
            (_, Some(_)) if node.is_null() => Some("give it a value, or remove the key".to_owned()),
            (["string"], Some(text)) => Some(format!("put quotes around it: \"{text}\"")),
            (["array"], Some(text)) if !text.contains('\n') => Some(format!("write `{key}: [{text}]`")),
            (["boolean"], Some("yes" | "on" | "y" | "Yes" | "YES" | "On" | "ON")) => {
                Some("write `true`".to_owned())
            }
            (["boolean"], Some("no" | "off" | "n" | "No" | "NO" | "Off" | "OFF")) => {
                Some("write `false`".to_owned())
            }
            (["array"], None) => Some("start each entry with `- `".to_owned()),
            _ => None,
        }
    }

    fn word(&mut self, node: &mut Node, words: &[&str], what: &str) -> Verdict {
        let Some(text) = node.as_str().filter(|_| !node.is_null()) else {
            return self.wrong_type(node, &["string"], what);
        };
        if words.contains(&text) {
            let text = text.to_owned();
            node.value = Value::Text(text);
            return Verdict::Keep;
        }
        let mut list = words.iter().take(MAX_LISTED).map(|word| quote(word)).collect::<Vec<_>>().join(", ");
        if words.len() > MAX_LISTED {
            list.push_str(", …");
        }
        let hint = did_you_mean(text, words.iter().copied()).or_else(|| other_word(text, words));
        let message = format!("{what} cannot be {}", quote(text));
        self.report.error(&node.span, message).label(format!("expected {list}")).maybe_hint(hint);
        Verdict::Remove
    }

    fn map(&mut self, node: &mut Node, schema: &'a Json, place: Place) {
        let thing = thing(node, schema, place);
        let span = node.span.clone();
        let Value::Map(entries) = &mut node.value else { return };
        let properties = schema.get("properties").and_then(Json::as_object).unwrap_or(&NO_PROPERTIES);
        for required in schema.get("required").and_then(Json::as_array).into_iter().flatten() {
            let key = required.as_str().unwrap_or_default();
            // what the root lacks has a default and is told elsewhere
            if place == Place::Inside && !entries.iter().any(|entry| entry.key == key) {
                let misspelt = entries.iter().any(|entry| meant(&entry.key, properties) == Some(key));
                if !misspelt {
                    self.report.error(&span, format!("{thing} has no {}", quote(key))).label("in this entry");
                }
            }
        }
        let additional = schema.get("additionalProperties");
        entries.retain_mut(|entry| {
            let verdict = self.entry(entry, properties, additional, &thing, place);
            if verdict == Verdict::Remove && !self.report.is_full() {
                let key = meant(&entry.key, properties).unwrap_or(&entry.key);
                self.removed.0.insert((span.start, key.to_owned()));
            }
            verdict == Verdict::Keep
        });
    }

    fn entry(
        &mut self,
        entry: &mut Entry,
        properties: &'a Map<String, Json>,
        additional: Option<&'a Json>,
        thing: &str,
        place: Place,
    ) -> Verdict {
        let what = quote(&entry.key);
        let Some(schema) = properties.get(&entry.key) else {
            return match additional {
                Some(Json::Bool(false)) => self.unknown_key(entry, properties, thing),
                Some(schema @ Json::Object(_)) => self.check(&mut entry.node, schema, &what, Place::Inside),
                _ if place == Place::Root => self.unknown_section(entry, properties),
                _ => Verdict::Keep,
            };
        };
        if schema.get("x-unused").is_some() {
            self.unused.push((entry.key_span.clone(), what));
            return Verdict::Keep;
        }
        let section = matches!(entry.key.as_str(), "mcp" | "runtime" | "servers" | "models")
            || (place == Place::Root && entry.key == "prompts");
        if section && entry.node.is_null() {
            self.report
                .warning(&entry.key_span, format!("{what} is empty"))
                .label("read as if it were absent");
            return Verdict::Skip;
        }
        let verdict = self.check(&mut entry.node, schema, &what, Place::Inside);
        if let Some(default) = schema.get("x-later")
            && verdict == Verdict::Keep
            && entry.node.to_json() != *default
        {
            self.report
                .warning(&entry.key_span, format!("{what} is understood but not acted on yet"))
                .label("has no effect");
        }
        verdict
    }

    fn unknown_key(&mut self, entry: &Entry, properties: &Map<String, Json>, thing: &str) -> Verdict {
        let better = if self.report.is_full() { None } else { better_key(&entry.key, properties) };
        let hint = match better {
            Some(key) => format!("did you mean {}?", quote(key)),
            None => {
                let keys = properties.iter().filter(|(_, schema)| schema.get("x-later").is_none());
                format!("known keys: {}", keys.map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(", "))
            }
        };
        let message = format!("{thing} has an unknown key {}", quote(&entry.key));
        self.report.error(&entry.key_span, message).label("not a key of this entry").hint(hint);
        Verdict::Remove
    }

    fn unknown_section(&mut self, entry: &Entry, properties: &Map<String, Json>) -> Verdict {
        let hint = match entry.key.as_str() {
            "mcpServers" | "mcp_servers" | "servers" => {
                Some("MCP servers are listed under `mcp: servers:`".to_owned())
            }
            "models" | "model" | "default_model" => {
                Some("models are listed under `runtime: models:`".to_owned())
            }
            key => did_you_mean(key, properties.keys().map(String::as_str)),
        };
        let message = format!("unknown section {}", quote(&entry.key));
        self.report.warning(&entry.key_span, message).label("not used").maybe_hint(hint);
        Verdict::Remove
    }

    fn list(&mut self, node: &mut Node, schema: &'a Json, what: &str) {
        let Value::List(items) = &mut node.value else { return };
        if let Some(schema @ Json::Object(_)) = schema.get("items") {
            let what = format!("an entry of {what}");
            items.retain_mut(|item| self.check(item, schema, &what, Place::Inside) == Verdict::Keep);
        }
        if schema.get("uniqueItems") == Some(&Json::Bool(true)) {
            let mut seen = HashSet::new();
            let mut repeated = Vec::new();
            for item in items.iter() {
                if let Some(text) = item.as_str()
                    && !seen.insert(text.to_owned())
                {
                    repeated.push((item.span.clone(), text.to_owned()));
                }
            }
            for (span, text) in repeated {
                self.report
                    .error(&span, format!("{what} names {} twice", quote(&text)))
                    .label("the second time");
            }
        }
    }

    fn scalar(&mut self, node: &Node, schema: &Json, what: &str) -> Verdict {
        let Some(text) = node.as_str() else { return Verdict::Keep };
        if let Some(pattern) = schema.get("pattern").and_then(Json::as_str)
            && let Some(expected) = mismatch(pattern, text)
        {
            self.report
                .error(&node.span, format!("{what} cannot be {}", quote(text)))
                .label(format!("expected {expected}"));
            return Verdict::Remove;
        }
        if schema.get("minLength").and_then(Json::as_u64) == Some(1) && text.trim().is_empty() {
            self.report
                .error(&node.span, format!("{what} is empty"))
                .hint("give it a value, or remove the key");
            return Verdict::Remove;
        }
        self.range(&node.span, &node.to_json(), schema, what)
    }

    fn range(&mut self, span: &Span, value: &Json, schema: &Json, what: &str) -> Verdict {
        let (Some(number), Some(minimum)) = (value.as_f64(), schema.get("minimum").and_then(Json::as_f64))
        else {
            return Verdict::Keep;
        };
        let maximum = schema.get("maximum").and_then(Json::as_f64);
        if number >= minimum && maximum.is_none_or(|maximum| number <= maximum) {
            return Verdict::Keep;
        }
        let expected = match maximum {
            Some(maximum) => format!("expected {minimum} to {maximum}"),
            None => format!("expected at least {minimum}"),
        };
        self.report.error(span, format!("{what} cannot be {value}")).label(expected);
        Verdict::Remove
    }
}

/// What a mapping is called in messages.
fn thing(node: &Node, schema: &Json, place: Place) -> String {
    if place == Place::Root {
        return "the file".to_owned();
    }
    let title = schema.get("title").and_then(Json::as_str).unwrap_or("this mapping");
    match node.get("name").and_then(Node::as_str) {
        Some(name) => format!("{title} {}", quote(name)),
        None => match title.strip_prefix("section ") {
            Some(section) => quote(section),
            None => format!("this {}", title.trim_start_matches("this ")),
        },
    }
}

/// The words of an enumeration, in either of the forms a schema has for it.
fn enumeration(schema: &Json) -> Option<Vec<&str>> {
    if let Some(only) = schema.get("const").and_then(Json::as_str) {
        return Some(vec![only]);
    }
    if let Some(Json::Array(words)) = schema.get("enum") {
        return Some(words.iter().filter_map(Json::as_str).collect());
    }
    let Some(Json::Array(branches)) = schema.get("oneOf") else { return None };
    let words: Vec<Vec<&str>> = branches.iter().map(enumeration).collect::<Option<_>>()?;
    Some(words.into_iter().flatten().collect())
}

fn types(schema: &Json) -> Vec<&str> {
    match schema.get("type") {
        Some(Json::String(one)) => vec![one],
        Some(Json::Array(types)) => types.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}

fn fits_type(node: &Node, one: &str) -> bool {
    match (&node.value, one) {
        (Value::Map(_), "object") | (Value::List(_), "array") | (Value::Text(_), "string") => true,
        (Value::Plain(_), _) => match (node.to_json(), one) {
            (Json::String(_), "string") | (Json::Bool(_), "boolean") | (Json::Number(_), "number") => true,
            (Json::Number(number), "integer") => number.is_i64() || number.is_u64(),
            _ => false,
        },
        _ => false,
    }
}

fn type_name(one: &str) -> &'static str {
    match one {
        "object" => "a mapping",
        "array" => "a list",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        _ => "a string",
    }
}

fn mismatch(pattern: &str, text: &str) -> Option<&'static str> {
    let (fits, expected) = match pattern {
        raw::NAME => {
            (is_name(text), "letters, digits, `.`, `_` and `-`, starting with a letter or digit, at most 63")
        }
        raw::MODEL_NAME => {
            let fits = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:@-".contains(&byte));
            let fits = fits && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.len() <= 128;
            (
                fits,
                "letters, digits, `.`, `_`, `:`, `@` and `-`, starting with a letter or digit, at most 128",
            )
        }
        raw::LOOSE_NAME => {
            let fits = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
            (fits && (1..=128).contains(&text.len()), "letters, digits, `.`, `_` and `-`, at most 128")
        }
        raw::VARIABLE => {
            let fits = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            (
                fits && !text.starts_with(|c: char| c.is_ascii_digit()) && !text.is_empty(),
                "the name of a variable",
            )
        }
        _ => (true, ""),
    };
    (!fits).then_some(expected)
}

pub(crate) fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The known key that an unknown one probably stands for.
fn meant<'p>(key: &str, properties: &'p Map<String, Json>) -> Option<&'p str> {
    if properties.contains_key(key) { None } else { better_key(key, properties) }
}

/// The key that was probably meant: what other programs call it, or a word near to it.
fn better_key<'p>(key: &str, properties: &'p Map<String, Json>) -> Option<&'p str> {
    let other = match key.to_lowercase().replace(['-', '_'], "").as_str() {
        "url" | "endpoint" | "baseurl" | "uri" | "serverurl" => "base_url",
        "type" | "kind" => "transport",
        "environment" | "envs" => "env",
        "arguments" | "argv" => "args",
        "cmd" | "executable" => "command",
        "workingdirectory" | "workdir" | "workingdir" => "cwd",
        "apikey" | "key" | "token" => "api_key",
        "servers" | "mcpservers" | "mcp" => "mcp_servers",
        "modelname" => "model",
        "inputschema" | "schema" => "parameters",
        "text" => "content",
        "parameters" | "params" => "model_api_parameters",
        "maxiterations" | "maxrounds" => "rounds",
        _ => "",
    };
    let known = properties.get_key_value(other).map(|(key, _)| key.as_str());
    known.or_else(|| nearest(key, properties.keys().map(String::as_str)))
}

fn other_word(text: &str, words: &[&str]) -> Option<String> {
    let other = match text.to_lowercase().replace(['-', '_', ' '], "").as_str() {
        "streamablehttp" | "https" | "streaminghttp" | "remote" => "http",
        "local" | "process" | "command" => "stdio",
        "native" | "nativeapi" | "tools" => "native_api",
        "prompt" | "xml" | "promptbased" => "prompt_based",
        "google" | "vertex" => "gemini",
        "claude" => "anthropic",
        "vllm" | "lmstudio" | "openaicompatible" | "litellm" | "openrouter" | "azure" | "groq" => "openai",
        "1" | "1.0" | "v1.0" => "v1",
        _ => return None,
    };
    words.contains(&other).then(|| format!("did you mean {}?", quote(other)))
}
