//! Which parts of a line that is about to be shown may be secrets.
//!
//! The file may be wrong in any way, so there is no tree to ask: lines are read for what they look like, and in doubt
//! something is hidden.

use std::ops::Range;

use super::{Source, Span};
use crate::show::{is_key, is_secret_name};

/// Everything below these keys is hidden.
const SECRET_SECTIONS: [&str; 2] = ["headers", "auth"];

/// What `auth` says that is no secret.
const OPEN_KEYS: [&str; 8] = [
    "type",
    "client_id",
    "scopes",
    "redirect_uri",
    "redirect_port",
    "client_metadata_url",
    "issuer",
    "token_endpoint_auth_method",
];

/// The line with a `*` for each character of a secret, and the same part of it.
pub(super) fn without_secrets(source: &Source, line: &Span, part: &Span) -> (String, Span) {
    let shown = &source.text[line.clone()];
    let hidden = hidden(source, line);
    let mut masked = String::with_capacity(shown.len());
    let (mut from, mut to) = (None, None);
    for (at, c) in shown.char_indices() {
        if at >= part.start {
            from.get_or_insert(masked.len());
        }
        if at >= part.end {
            to.get_or_insert(masked.len());
        }
        masked.push(if hidden.iter().any(|range| range.contains(&at)) { '*' } else { c });
    }
    let end = masked.len();
    (masked, from.unwrap_or(end)..to.unwrap_or(end))
}

/// Parts of the line, in its bytes.
fn hidden(source: &Source, line: &Span) -> Vec<Range<usize>> {
    let (before, shown) = (&source.text[..line.start], &source.text[line.clone()]);
    let is_toml = source.path.extension().is_some_and(|extension| extension == "toml");
    let mut scan = Scan { is_toml, ..Scan::default() };
    if source.text.trim_start().starts_with('{') {
        // JSON need not be indented: its brackets are counted from the start
        before.lines().for_each(|line| scan.line(line));
    } else {
        scan.above = match scan.is_toml {
            true if shown.trim_start().starts_with('[') => Vec::new(),
            true => table_above(before),
            false => keys_above(before, shown),
        };
        let last = before.lines().rev().map(|line| without_dashes(line).trim()).find(|line| !line.is_empty());
        scan.after_flag = last.is_some_and(|line| is_secret_flag(line.trim_matches(['"', '\'', ','])));
    }
    scan.hidden.clear();
    scan.line(shown);
    scan.hidden
}

/// The keys that a line of YAML is below, by its indentation.
fn keys_above(before: &str, line: &str) -> Vec<String> {
    let column = |line: &str| line.len() - without_dashes(line).len();
    let is_item = |line: &str| line.trim_start().starts_with('-');
    let indent = line.len() - line.trim_start().len();
    // the items of a list may stand right below their key
    let mut limit = indent + usize::from(is_item(line));
    let mut keys = Vec::new();
    for earlier in before.lines().rev() {
        let content = without_dashes(earlier);
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if limit == 0 {
            break;
        }
        if column(earlier) < limit {
            limit = column(earlier);
            keys.extend(key_of(content).map(|(key, _)| key));
        }
    }
    keys
}

/// The table that a line of TOML is in.
fn table_above(before: &str) -> Vec<String> {
    let mut headers = before.lines().rev().map(str::trim).filter(|line| line.starts_with('['));
    let header = headers.next().unwrap_or_default();
    dotted(header.trim_matches(['[', ']']))
}

fn dotted(name: &str) -> Vec<String> {
    name.split('.').map(|part| unquoted(part).to_owned()).collect()
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\''])
}

/// The content of a line, after its indentation and the marks of list items.
fn without_dashes(line: &str) -> &str {
    let mut content = line.trim_start();
    while let Some(rest) = content.strip_prefix('-').filter(|rest| rest.starts_with([' ', '\t'])) {
        content = rest.trim_start();
    }
    content
}

/// The key at the start of a line of YAML, and where what follows its colon begins.
fn key_of(content: &str) -> Option<(String, usize)> {
    let ends = content.match_indices(':').map(|(at, _)| at);
    let end = ends.into_iter().find(|at| {
        let next = content[at + 1..].chars().next();
        let quoted = content[..*at].ends_with(['"', '\'']);
        quoted || next.is_none_or(char::is_whitespace)
    })?;
    Some((unquoted(&content[..end]).to_owned(), end + 1))
}

/// Reads lines one after another.
#[derive(Default)]
struct Scan {
    is_toml: bool,
    /// Keys that the line is below.
    above: Vec<String>,
    /// The keys of the brackets that are open.
    open: Vec<Option<String>>,
    /// The key of the value that comes next, or has come.
    key: Option<String>,
    has_value: bool,
    /// The value before was a flag such as `--token`.
    after_flag: bool,
    hidden: Vec<Range<usize>>,
}

impl Scan {
    fn line(&mut self, line: &str) {
        if self.has_value {
            self.key = None;
        }
        let mut at = line.len() - without_dashes(line).len();
        while let Some(c) = line[at..].chars().next() {
            match c {
                '{' | '[' => {
                    let key = self.key.take();
                    self.open.push(key);
                }
                '}' | ']' => {
                    self.open.pop();
                    self.key = None;
                }
                ',' => self.key = None,
                '"' | '\'' => {
                    at = self.quoted(line, at, c);
                    continue;
                }
                c if c.is_whitespace() => {}
                _ => {
                    at = self.plain(line, at);
                    continue;
                }
            }
            at += c.len_utf8();
        }
    }

    fn quoted(&mut self, line: &str, at: usize, quote: char) -> usize {
        let inner = at + 1..closing(line, at + 1, quote);
        let end = (inner.end + 1).min(line.len());
        let rest = &line[end..];
        let gap = rest.len() - rest.trim_start().len();
        if self.key.is_none() && rest[gap..].starts_with(self.separator()) {
            self.set_key(line[inner].to_owned());
            return end + gap + 1;
        }
        self.value(line, inner);
        end
    }

    fn plain(&mut self, line: &str, at: usize) -> usize {
        let rest = &line[at..];
        if self.key.is_none()
            && let Some((key, length)) = self.plain_key(rest)
        {
            self.set_key(key);
            return at + length;
        }
        let end = match self.open.is_empty() {
            true => line.len(),
            false => at + flow_end(rest),
        };
        // it begins with a sign of its own, such as an `}` too many
        let end = end.max(at + rest.chars().next().map_or(1, char::len_utf8));
        self.value(line, at..end);
        end
    }

    fn plain_key(&mut self, rest: &str) -> Option<(String, usize)> {
        let rest = match self.open.is_empty() {
            true => rest,
            false => &rest[..rest.find([',', '{', '}', '[', ']', '"']).unwrap_or(rest.len())],
        };
        if !self.is_toml {
            return key_of(rest);
        }
        let end = rest.find('=')?;
        let mut names = dotted(&rest[..end]);
        let key = names.pop()?;
        self.above.extend(names);
        Some((key, end + 1))
    }

    fn separator(&self) -> char {
        if self.is_toml { '=' } else { ':' }
    }

    fn value(&mut self, line: &str, range: Range<usize>) {
        let text = &line[range.clone()];
        if std::mem::take(&mut self.after_flag) || self.is_secret() {
            self.hide(text, range.start);
        } else {
            self.after_flag = is_secret_flag(text.trim());
            self.hide_words(text, range.start, self.key.is_none());
        }
        // kept for what else may belong to this value
        self.has_value = true;
    }

    fn set_key(&mut self, key: String) {
        self.key = Some(key);
        self.has_value = false;
    }

    /// Whether the value of `key` is a secret by its name or place.
    fn is_secret(&self) -> bool {
        let around = || self.above.iter().chain(self.open.iter().flatten());
        let is_section = |name: &String| SECRET_SECTIONS.contains(&name.to_ascii_lowercase().as_str());
        match &self.key {
            Some(key) if OPEN_KEYS.contains(&key.as_str()) => {
                around().any(|name| name.eq_ignore_ascii_case("headers"))
            }
            key => key.iter().chain(around()).any(|name| is_section(name) || is_secret_name(name)),
        }
    }

    /// Hides a secret; the names of variables stay, and so does the kind of a header.
    fn hide(&mut self, text: &str, at: usize) {
        let kind = ["Bearer ", "Basic ", "Token "].iter().find(|kind| text.starts_with(**kind));
        let mut start = kind.map_or(0, |kind| kind.len());
        while let Some(found) = text[start..].find("${") {
            let reference = start + found;
            let closed = text[reference..].find('}').map(|length| reference + length);
            let end = closed.unwrap_or(text.len());
            let default = text[reference..end].find(":-").map_or(end, |length| reference + length + 2);
            if closed.is_some() || names_variable(&text[reference + 2..default]) {
                self.hidden.push(at + start..at + reference);
                self.hidden.push(at + default..at + end);
            } else {
                self.hidden.push(at + start..at + end);
            }
            start = (end + 1).min(text.len());
        }
        self.hidden.push(at + start..at + text.len());
    }

    /// Hides what looks like a secret in text that is none as a whole. `is_bare`: nothing says what it is, so it may be
    /// a key without its colon.
    fn hide_words(&mut self, text: &str, at: usize, is_bare: bool) {
        let mut named = false;
        for (index, word) in text.split_whitespace().enumerate() {
            // of this very text
            let start = word.as_ptr() as usize - text.as_ptr() as usize;
            let name_end = word.find([':', '=']);
            let value = name_end.filter(|end| is_secret_name(word[..*end].trim_matches(['"', '\''])));
            if std::mem::take(&mut named) {
                self.hide(&text[start..], at + start);
                return;
            }
            match value {
                Some(end) if end + 1 == word.len() => named = true,
                Some(end) => self.hide(&word[end + 1..], at + start + end + 1),
                None if is_secret_flag(word) || (is_bare && index == 0 && is_secret_name(word)) => {
                    named = true;
                }
                None if is_key(word.trim_matches(['"', '\''])) => self.hide(word, at + start),
                None => self.hide_in_url(word, at + start),
            }
        }
    }

    /// Credentials and the values of a query.
    fn hide_in_url(&mut self, word: &str, at: usize) {
        let Some((scheme, rest)) = word.split_once("://") else { return };
        let host = scheme.len() + 3;
        let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        if let Some(end) = rest[..authority].rfind('@') {
            self.hide(&rest[..end], at + host);
        }
        let Some(query) = word.find('?') else { return };
        let mut start = query + 1;
        for pair in word[start..].split('&') {
            if let Some(equals) = pair.find('=') {
                self.hide(&pair[equals + 1..], at + start + equals + 1);
            }
            start += pair.len() + 1;
        }
    }
}

/// Where a text without quotes ends between brackets; `${…}` is a part of it.
fn flow_end(rest: &str) -> usize {
    let mut from = 0;
    while let Some(found) = rest[from..].find([',', '{', '}', '[', ']']) {
        let at = from + found;
        let reference = rest[at..].starts_with('{') && rest[..at].ends_with('$');
        match rest[at..].find('}').filter(|_| reference) {
            Some(length) => from = at + length + 1,
            None => return at,
        }
    }
    rest.len()
}

/// Where a quoted text ends; the end of the line for one that is not closed.
fn closing(line: &str, from: usize, quote: char) -> usize {
    let mut chars = line[from..].char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        match c {
            '\\' if quote == '"' => drop(chars.next()),
            // a quote in single quotes is doubled
            '\'' if quote == '\'' && next == Some('\'') => drop(chars.next()),
            c if c == quote => return from + at,
            _ => {}
        }
    }
    line.len()
}

/// Whether a reference that is not closed is one: a key may begin with the same signs.
fn names_variable(inner: &str) -> bool {
    let name = inner.trim_end_matches(":-");
    let name = name.strip_prefix("env:").unwrap_or(name);
    name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

fn is_secret_flag(word: &str) -> bool {
    word.starts_with('-') && !word.contains(['=', ' ']) && is_secret_name(word)
}

#[cfg(test)]
mod tests;
