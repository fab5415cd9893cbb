//! What a message asks for, by rule, and the tool that does it.

use lf_core::model::ToolSpec;
use serde_json::{Map, Value};

use super::arithmetic::Sum;

/// A tool as the rules see it.
pub(super) struct Offer {
    pub name: String,
    parameters: Value,
}

impl Offer {
    pub(super) fn of(spec: &ToolSpec) -> Self {
        Self { name: spec.name.clone(), parameters: (*spec.schema).clone() }
    }

    pub(super) fn of_json(function: &Value) -> Option<Self> {
        Some(Self { name: function["name"].as_str()?.to_owned(), parameters: function["parameters"].clone() })
    }

    /// The part after the server's name, in lower case.
    fn own_name(&self) -> String {
        self.name.rsplit("__").next().unwrap_or(&self.name).to_lowercase()
    }

    fn has(&self, property: &str) -> bool {
        self.parameters["properties"].get(property).is_some()
    }

    fn required(&self) -> impl Iterator<Item = &str> {
        self.parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    /// The arguments, when this tool has a property for each value and nothing else is required.
    fn filled(&self, values: &[(&[&str], Value)]) -> Option<Map<String, Value>> {
        let mut arguments = Map::new();
        for (names, value) in values {
            let name = names.iter().find(|name| self.has(name))?;
            arguments.insert((*name).to_owned(), value.clone());
        }
        self.required().all(|name| arguments.contains_key(name)).then_some(arguments)
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum Wish {
    List(String),
    Read(String),
    Search { text: String, place: String },
    Sum(Sum),
}

const PATH: &[&str] =
    &["path", "directory", "dir", "folder", "file", "file_path", "filepath", "filename", "uri"];
const TEXT: &[&str] = &["pattern", "query", "text", "q", "term", "search"];

impl Wish {
    /// The first tool that does this, with its arguments.
    pub(super) fn call(&self, offers: &[Offer]) -> Option<(String, Map<String, Value>)> {
        let string = |text: &str| Value::String(text.to_owned());
        match self {
            Self::List(place) => pick(offers, &["list", "ls", "dir"], &[&[(PATH, string(place))], &[]]),
            Self::Read(file) => pick(offers, &["read", "cat", "get_file"], &[&[(PATH, string(file))]]),
            Self::Search { text, place } => pick(
                offers,
                &["search", "grep", "find"],
                &[&[(TEXT, string(text)), (PATH, string(place))], &[(TEXT, string(text))]],
            ),
            Self::Sum(sum) => {
                let (a, b) = sum.plain_addition()?;
                pick(offers, &["sum", "add"], &[&[(&["a", "x"], a.into()), (&["b", "y"], b.into())]])
            }
        }
    }
}

type Values<'a> = &'a [(&'a [&'a str], Value)];

fn pick(offers: &[Offer], words: &[&str], ways: &[Values<'_>]) -> Option<(String, Map<String, Value>)> {
    for word in words {
        // the shortest name is the plainest tool: `list` before `list_allowed_directories`
        let mut fitting: Vec<&Offer> =
            offers.iter().filter(|offer| has_word(&offer.own_name(), word)).collect();
        fitting.sort_by_key(|offer| offer.name.len());
        for way in ways {
            for offer in &fitting {
                if let Some(arguments) = offer.filled(way) {
                    return Some((offer.name.clone(), arguments));
                }
            }
        }
    }
    None
}

fn has_word(name: &str, word: &str) -> bool {
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| part == word) || name == word
}

/// The wishes of a message, in its order; "and" and ";" separate them.
pub(super) fn wishes(question: &str) -> Vec<Wish> {
    let mut wishes = Vec::new();
    for clause in
        question.split([';', '\n']).flat_map(|part| part.split(" and ")).flat_map(|p| p.split(", then "))
    {
        if let Some(wish) = wish(clause) {
            wishes.push(wish);
        }
    }
    wishes.truncate(8);
    wishes
}

fn wish(clause: &str) -> Option<Wish> {
    let clause = clause.trim().trim_end_matches(['?', '!', '.']).trim();
    if let Some(sum) = Sum::find(clause) {
        return Some(Wish::Sum(sum));
    }
    let lower = clause.to_lowercase();
    let after = |word: &str| lower.find(word).map(|at| &clause[at + word.len()..]);
    if let Some(at) = ["search", "look", "grep", "find"].iter().find_map(|word| find_word(&lower, word)) {
        return search(clause, &lower, at);
    }
    if ["read ", "show me ", "show ", "open ", "print ", "cat "].iter().any(|word| lower.starts_with(word))
        || lower.contains(" read ")
    {
        return target(clause).map(read_or_list);
    }
    for words in ["what is in ", "what's in ", "what does ", "what is inside ", "contents of ", "content of "]
    {
        if let Some(rest) = after(words) {
            return target(rest).map(read_or_list);
        }
    }
    if lower.contains("list")
        || lower.contains("what files")
        || lower.contains("which files")
        || lower.starts_with("ls")
    {
        return Some(Wish::List(folder(clause)));
    }
    None
}

fn find_word(text: &str, word: &str) -> Option<usize> {
    text.starts_with(word)
        .then_some(word.len())
        .or_else(|| text.find(&format!(" {word} ")).map(|at| at + word.len() + 2))
}

fn search(clause: &str, lower: &str, at: usize) -> Option<Wish> {
    let start = lower[at..].find("for ").map_or(at, |offset| at + offset + "for ".len());
    let (text, place) = match lower[start..].rfind(" in ") {
        Some(offset) => (&clause[start..start + offset], folder(&clause[start + offset + 4..])),
        None => (
            &clause[start..],
            lower[at..start].find(" in ").map_or_else(|| ".".to_owned(), |_| folder(&clause[at..start])),
        ),
    };
    let text = unquoted(text.trim());
    (!text.is_empty()).then(|| Wish::Search { text: text.to_owned(), place })
}

fn read_or_list(target: String) -> Wish {
    let name = target.rsplit('/').next().unwrap_or(&target);
    if name.contains('.') && !name.starts_with('.') { Wish::Read(target) } else { Wish::List(target) }
}

/// The word that looks most like a file or folder: quoted, with a dot or slash, or else the last one.
fn target(text: &str) -> Option<String> {
    if let Some(quoted) = quoted(text) {
        return Some(quoted.to_owned());
    }
    let words: Vec<&str> = text.split_whitespace().map(clean).filter(|word| !word.is_empty()).collect();
    let path = words.iter().rev().find(|word| word.contains('.') || word.contains('/'));
    if let Some(path) = path {
        return Some((*path).to_owned());
    }
    let common = [
        "the",
        "a",
        "file",
        "folder",
        "directory",
        "my",
        "this",
        "that",
        "contents",
        "content",
        "of",
        "say",
        "here",
        "it",
    ];
    let named = words.iter().rev().find(|word| !common.contains(&word.to_lowercase().as_str()));
    Some(named.map_or_else(|| ".".to_owned(), |word| (*word).to_owned()))
}

fn folder(text: &str) -> String {
    if let Some(quoted) = quoted(text) {
        return quoted.to_owned();
    }
    text.split_whitespace()
        .map(clean)
        .rev()
        .find(|word| word.contains('/') || (word.starts_with('.') && word.len() > 1))
        .map_or_else(|| ".".to_owned(), str::to_owned)
}

fn clean(word: &str) -> &str {
    word.trim_matches(|c: char| matches!(c, ',' | '?' | '!' | ':' | '"' | '\'' | '`' | '(' | ')'))
        .trim_end_matches('.')
}

fn quoted(text: &str) -> Option<&str> {
    ['"', '`', '\''].iter().find_map(|quote| {
        let start = text.find(*quote)? + 1;
        let end = start + text[start..].find(*quote)?;
        (end > start).then(|| &text[start..end])
    })
}

fn unquoted(text: &str) -> &str {
    quoted(text).unwrap_or(text).trim()
}
