//! `${…}` references, and the variables they name.
//!
//! References are replaced in the tree after parsing, so that a value can never become YAML.

use std::collections::{HashMap, HashSet};

use lf_core::Secret;

use crate::diagnostic::{Report, Span, quote};
use crate::node::{Node, Value};

type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Where variables come from: the project's `.env` first, then the process.
pub struct Variables<'a> {
    dotenv: HashMap<String, String>,
    process: Box<Lookup<'a>>,
    problems: Vec<String>,
}

impl<'a> Variables<'a> {
    /// `dotenv` is the text of the `.env` beside the file. A line of it that cannot be read is skipped and becomes a
    /// warning of [`crate::parse`]; its text is not shown, as it may hold a secret.
    pub fn new(dotenv: Option<&str>, process: impl Fn(&str) -> Option<String> + 'a) -> Self {
        let (dotenv, problems) = dotenv.map(read_dotenv).unwrap_or_default();
        Self { dotenv, process: Box::new(process), problems }
    }

    /// No variables at all.
    pub fn none() -> Self {
        Self::new(None, |_| None)
    }

    pub fn get(&self, name: &str) -> Option<String> {
        self.dotenv.get(name).cloned().or_else(|| (self.process)(name))
    }

    /// A variable that is set and not empty.
    pub(crate) fn usual(&self, name: &str) -> Option<String> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// The same of the process alone: what stands beside the file is the word of whoever wrote the file.
    pub(crate) fn usual_of_process(&self, name: &str) -> Option<String> {
        (self.process)(name).filter(|value| !value.is_empty())
    }

    /// Something about `.env` that the reader of the file should know.
    pub(crate) fn add_problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }
}

/// `KEY=value` lines; `export` before the key, `#` comments, single quotes (as is) and double quotes (with `\n`, `\"`
/// and the like). Nothing is substituted inside values.
fn read_dotenv(text: &str) -> (HashMap<String, String>, Vec<String>) {
    let mut variables = HashMap::new();
    let mut problems = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let parts = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        match parts.filter(|(key, _)| is_variable(key)).and_then(|(key, value)| Some((key, unquote(value)?)))
        {
            // the first one wins, as in a shell that keeps what is set
            Some((key, value)) => {
                variables.entry(key.to_owned()).or_insert(value);
            }
            None => problems.push(format!("line {} of `.env` is not `NAME=value` and is skipped", index + 1)),
        }
    }
    (variables, problems)
}

fn unquote(value: &str) -> Option<String> {
    if let Some(rest) = value.strip_prefix('\'') {
        let (inner, after) = rest.split_once('\'')?;
        return is_comment(after).then(|| inner.to_owned());
    }
    let Some(rest) = value.strip_prefix('"') else {
        let end = value.find(" #").or_else(|| value.find("\t#")).unwrap_or(value.len());
        return Some(value[..end].trim_end().to_owned());
    };
    let mut inner = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return is_comment(chars.as_str()).then_some(inner),
            '\\' => match chars.next()? {
                'n' => inner.push('\n'),
                'r' => inner.push('\r'),
                't' => inner.push('\t'),
                other => inner.push(other),
            },
            other => inner.push(other),
        }
    }
}

fn is_comment(after: &str) -> bool {
    let after = after.trim_start();
    after.is_empty() || after.starts_with('#')
}

pub(crate) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Which references a text may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// `${env:NAME}` and `${NAME}`, with or without `:-default`.
    Full,
    /// `${env:NAME}` only: prose and schemas talk of `${NAME}` without meaning a variable.
    EnvOnly,
}

/// A tree whose references are replaced, and what to know about it.
pub(crate) struct Expanded {
    pub(crate) node: Node,
    /// Starts of the scalars that held a reference: what is wrong with them may not be the file's fault.
    touched: HashSet<usize>,
    /// Starts of the scalars with a reference that has no value.
    tainted: HashSet<usize>,
    /// Why the entry cannot be used, one sentence per missing variable.
    pub(crate) missing: Vec<String>,
    /// The variables that the tree refers to.
    pub(crate) used: Vec<Used>,
}

/// A reference to a variable.
pub(crate) struct Used {
    /// The key of the entry, and the innermost one.
    pub(crate) key: String,
    pub(crate) leaf: String,
    pub(crate) variable: String,
    /// What was put into the tree; `None` where there is nothing, or the default.
    pub(crate) value: Option<Secret>,
    /// There is neither a value nor a default.
    pub(crate) is_missing: bool,
}

impl Expanded {
    pub(crate) fn is_from_variable(&self, node: &Node) -> bool {
        self.touched.contains(&node.span.start)
    }

    /// The same for anything in it.
    pub(crate) fn holds_variable(&self, node: &Node) -> bool {
        self.is_from_variable(node)
            || node.items().iter().any(|item| self.holds_variable(item))
            || node.entries().iter().any(|entry| self.holds_variable(&entry.node))
    }

    /// Its text is not what the file means.
    pub(crate) fn is_incomplete(&self, node: &Node) -> bool {
        self.tainted.contains(&node.span.start)
    }
}

/// Replaces references in these keys' values, however deep. A missing variable becomes a warning that says what it
/// costs: `costs` is what stands after "so".
pub(crate) fn expand(
    node: &Node,
    keys: &[(&str, Syntax)],
    costs: &str,
    variables: &Variables<'_>,
    report: &mut Report<'_>,
) -> Expanded {
    let node = node.clone();
    let mut expanded = Expanded {
        node,
        touched: HashSet::new(),
        tainted: HashSet::new(),
        missing: Vec::new(),
        used: Vec::new(),
    };
    let mut tree = std::mem::replace(&mut expanded.node, Node::text("", 0..0));
    let (key, leaf) = (String::new(), String::new());
    let mut expander = Expander { variables, report, expanded: &mut expanded, costs, key, leaf };
    for (key, syntax) in keys {
        if let Some(child) = tree.get_mut(key) {
            expander.key = (*key).to_owned();
            expander.leaf.clone_from(&expander.key);
            expander.walk(child, *syntax);
        }
    }
    expanded.node = tree;
    expanded
}

struct Expander<'e, 'r, 's> {
    variables: &'e Variables<'e>,
    report: &'e mut Report<'s>,
    expanded: &'r mut Expanded,
    costs: &'e str,
    key: String,
    leaf: String,
}

impl Expander<'_, '_, '_> {
    fn walk(&mut self, node: &mut Node, syntax: Syntax) {
        match &mut node.value {
            Value::List(items) => items.iter_mut().for_each(|item| self.walk(item, syntax)),
            Value::Map(entries) => {
                for entry in entries {
                    self.leaf.clone_from(&entry.key);
                    self.walk(&mut entry.node, syntax);
                }
            }
            Value::Plain(text) | Value::Text(text) => {
                if text.contains("${")
                    && let Some(value) = self.scalar(text, &node.span, syntax)
                {
                    node.value = Value::Text(value);
                }
            }
        }
    }

    /// `None` where nothing is to be replaced.
    fn scalar(&mut self, text: &str, span: &Span, syntax: Syntax) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut found = false;
        while let Some(start) = rest.find("${") {
            let (before, from) = rest.split_at(start);
            if let Some(before) = before.strip_suffix('$') {
                // `$${` is a way to write `${`
                found = true;
                out.push_str(before);
                out.push_str("${");
                rest = &from[2..];
                continue;
            }
            out.push_str(before);
            let Some(end) = from.find('}') else {
                self.unbalanced(from, span, syntax);
                out.push_str(from);
                rest = "";
                break;
            };
            let (reference, after) = from.split_at(end + 1);
            rest = after;
            match self.reference(reference, span, syntax) {
                Some(value) => {
                    found = true;
                    self.expanded.touched.insert(span.start);
                    out.push_str(&value);
                }
                None => out.push_str(reference),
            }
        }
        out.push_str(rest);
        found.then_some(out)
    }

    fn unbalanced(&mut self, from: &str, span: &Span, syntax: Syntax) {
        if syntax == Syntax::EnvOnly && !from.starts_with("${env:") {
            return;
        }
        let at = self.locate("${", from.lines().next().unwrap_or(from), span);
        self.report
            .error(&at, "`${` is never closed")
            .hint("a reference looks like `${env:NAME}`; `$${` is a literal `${`");
    }

    /// The value of one `${…}`; `None` for what is no reference.
    fn reference(&mut self, reference: &str, span: &Span, syntax: Syntax) -> Option<String> {
        let inner = &reference[2..reference.len() - 1];
        if let Some(path) = inner.strip_prefix("file:") {
            if syntax == Syntax::Full {
                let at = self.locate(reference, reference, span);
                let name = path.split(":-").next().and_then(|path| path.rsplit(':').next()).unwrap_or("NAME");
                self.report.error(&at, "`${file:…}` references are not supported").hint(format!(
                    "put the variable into `.env` beside the file and write `${{env:{name}}}`"
                ));
            }
            return None;
        }
        let (is_env, named) = match inner.strip_prefix("env:") {
            Some(named) => (true, named),
            None => (false, inner),
        };
        if !is_env && syntax == Syntax::EnvOnly {
            return None;
        }
        let (name, default) = match named.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (named, None),
        };
        let nested = default.is_some_and(|default| default.contains("${"));
        if !is_variable(name) || nested {
            if is_env || nested {
                let at = self.locate(reference, reference, span);
                self.report.error(&at, format!("{} is no reference to a variable", quote(reference))).hint(
                    "write `${env:NAME}` or `${env:NAME:-default}`; a default cannot hold a further `${…}`",
                );
            }
            return None;
        }
        Some(self.value(reference, name, default.is_some(), span))
    }

    fn value(&mut self, reference: &str, name: &str, has_default: bool, span: &Span) -> String {
        let value = self.variables.get(name).filter(|value| !(has_default && value.is_empty()));
        self.expanded.used.push(Used {
            key: self.key.clone(),
            leaf: self.leaf.clone(),
            variable: name.to_owned(),
            value: value.as_deref().filter(|value| !value.is_empty()).map(Secret::from),
            is_missing: value.is_none() && !has_default,
        });
        // the reference alone goes through shellexpand: in the text around it, `$$` and `$HOME` stay as they are
        let expanded = shellexpand::env_with_context(reference, |_: &str| value.clone().map(Some).ok_or(()));
        match expanded {
            Ok(value) => value.into_owned(),
            Err(_) => {
                let at = self.locate(reference, reference, span);
                self.expanded.tainted.insert(span.start);
                let reason = format!("variable {} is not set ({})", quote(name), self.report.place(at.start));
                self.report
                    .warning(&at, format!("variable {} is not set, so {}", quote(name), self.costs))
                    .hint(format!(
                        "set it, put it into `.env` beside the file, or write `${{env:{name}:-default}}`"
                    ));
                if !self.expanded.missing.contains(&reason) {
                    self.expanded.missing.push(reason);
                }
                String::new()
            }
        }
    }

    /// Where in the scalar the reference stands; the scalar itself where escapes or folding hide it.
    fn locate(&self, needle: &str, shown: &str, span: &Span) -> Span {
        let text = self.report.source.text.get(span.clone()).unwrap_or("");
        let at = text
            .find(shown)
            .map(|at| (at, shown.len()))
            .or_else(|| text.find(needle).map(|at| (at, needle.len())));
        at.map_or_else(|| span.clone(), |(at, length)| span.start + at..span.start + at + length)
    }
}
