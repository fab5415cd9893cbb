//! A lock as text: TOML, whose texts of many lines can hold escapes, so that a diff shows both lines and what is hidden.

use std::fmt::Write as _;

use lf_core::pins::{Lock, Pinned, hash};
use lf_core::visible;
use serde_json::{Map, Value};

use super::{VERSION, hexadecimal, server_hash};

const HEAD: &str = "\
# What the MCP servers of this project and their tools were when somebody looked at them. Tools that differ are held back.
# Written by `lf mcp lock`. Look at changes of it as at changes of code; `lf mcp diff` shows what differs now.
";

/// The text of a lock: the same for the same content, whatever the order in which it was listed.
pub fn write(lock: &Lock) -> String {
    let mut text = format!("{HEAD}version = {VERSION}\n");
    for (name, pinned) in &lock.servers {
        write_server(name, pinned, &mut text);
    }
    text
}

/// Something out of a lock as it is shown in one: hidden characters escaped, ends of lines kept.
pub fn shown(value: &Value) -> String {
    let Value::String(text) = value else { return json_text(value) };
    let mut out = String::new();
    for c in text.chars() {
        if c == '\n' { out.push(c) } else { escaped(c, &mut out) }
    }
    out
}

fn write_server(name: &str, pinned: &Pinned, out: &mut String) {
    let Pinned { origin, peer, tools, .. } = pinned;
    let sha256 = hexadecimal(&server_hash(name, origin, peer));
    let _ = write!(out, "\n[[server]]\nname = {}\nsha256 = \"{sha256}\"\n", quoted(name));
    if let Some(instructions) = &peer.instructions {
        let _ = writeln!(out, "instructions = {}", quoted(instructions));
    }
    for (title, table) in [("origin", origin), ("info", &peer.info)] {
        let _ = writeln!(out, "\n[server.{title}]");
        for (key, value) in in_order(table) {
            let _ = writeln!(out, "{} = {}", key_of(key), inline(value));
        }
    }
    let mut tools: Vec<(&String, &Value)> = tools.iter().collect();
    tools.sort_unstable_by_key(|(name, _)| *name);
    for (name, definition) in tools {
        write_tool(name, definition, out);
    }
}

fn write_tool(name: &str, definition: &Value, out: &mut String) {
    let sha256 = hexadecimal(&hash(definition));
    let _ = write!(out, "\n[[server.tool]]\nname = {}\nsha256 = \"{sha256}\"\n", quoted(name));
    let mut rest = definition.as_object().cloned().unwrap_or_default();
    rest.shift_remove("name");
    if let Some(description) = rest.get("description").and_then(Value::as_str) {
        let _ = writeln!(out, "description = {}", quoted(description));
        rest.shift_remove("description");
    }
    let _ = writeln!(out, "definition = '''\n{}'''", json_text(&Value::Object(rest)));
}

/// Indented, with sorted keys, and without what cannot stand in a literal text.
fn json_text(value: &Value) -> String {
    let text = serde_json::to_string_pretty(&sorted(value)).unwrap_or_default();
    let mut out = String::with_capacity(text.len());
    for c in text.replace("'''", "''\\u0027").chars() {
        match c {
            '\n' => out.push(c),
            c if visible::is_hidden(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = in_order(fields);
            Value::Object(
                fields.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

fn in_order(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
    fields.sort_unstable_by_key(|(key, _)| *key);
    fields
}

fn key_of(key: &str) -> String {
    let is_bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_bare { key.to_owned() } else { single_line(key) }
}

/// A value in one line. There is no null in TOML; what is null is not there.
fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => single_line(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().filter(|item| !item.is_null()).map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let fields = in_order(fields).into_iter().filter(|(_, value)| !value.is_null());
            let fields: Vec<String> =
                fields.map(|(key, value)| format!("{} = {}", key_of(key), inline(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    if !text.contains('\n') {
        return single_line(text);
    }
    let mut out = String::from("\"\"\"\n");
    let mut quotes = 0;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        quotes = if c == '"' { quotes + 1 } else { 0 };
        match c {
            '\n' => out.push(c),
            // three in a row would end it
            '"' if quotes < 3 && rest.peek().is_some() => out.push(c),
            '"' => {
                out.push_str("\\\"");
                quotes = 0;
            }
            c => escaped(c, &mut out),
        }
    }
    out + "\"\"\""
}

fn single_line(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => escaped(c, &mut out),
        }
    }
    out.push('"');
    out
}

fn escaped(c: char, out: &mut String) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        c if visible::is_hidden(c) => {
            let code = u32::from(c);
            let _ = if code < 0x1_0000 { write!(out, "\\u{code:04x}") } else { write!(out, "\\U{code:08x}") };
        }
        c => out.push(c),
    }
}
