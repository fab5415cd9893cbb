//! TOML into the tree.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Entry, MAX_DEPTH, MAX_NODES, Node, Value};
use crate::diagnostic::{Report, Span};

pub(super) fn read(text: &str, report: &mut Report<'_>) -> Option<Node> {
    let (table, mistakes) = DeTable::parse_recoverable(text);
    for mistake in &mistakes {
        let span = mistake.span().unwrap_or(0..0);
        report.error(&span, format!("not valid TOML: {}", mistake.message()));
    }
    if !mistakes.is_empty() {
        return None;
    }
    let mut builder = Builder { left: MAX_NODES };
    let span = table.span();
    let Some(node) = builder.table(table.get_ref(), 0..span.end.min(1), 0) else {
        report
            .error(&(0..0), format!("the file holds more than {MAX_NODES} values, or is nested too deeply"));
        return None;
    };
    Some(node)
}

struct Builder {
    left: usize,
}

impl Builder {
    fn table(&mut self, table: &DeTable<'_>, span: Span, depth: usize) -> Option<Node> {
        let mut entries = Vec::with_capacity(table.len());
        for (key, value) in table {
            let node = self.node(value, depth + 1)?;
            entries.push(Entry { key: key.get_ref().to_string(), key_span: key.span(), node });
        }
        // the table is sorted by key; the order of the file is that of the positions
        entries.sort_by_key(|entry| entry.key_span.start);
        Some(Node::map(entries, span))
    }

    fn node(&mut self, value: &Spanned<DeValue<'_>>, depth: usize) -> Option<Node> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let span = value.span();
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(integer) => match i64::from_str_radix(integer.as_str(), integer.radix()) {
                Ok(integer) => Value::Plain(integer.to_string()),
                Err(_) => Value::Text(integer.to_string()),
            },
            DeValue::Float(float) => Value::Plain(float.as_str().to_owned()),
            DeValue::Boolean(boolean) => Value::Plain(boolean.to_string()),
            DeValue::Datetime(datetime) => Value::Text(datetime.to_string()),
            DeValue::Array(array) => {
                Value::List(array.iter().map(|item| self.node(item, depth + 1)).collect::<Option<_>>()?)
            }
            DeValue::Table(table) => return self.table(table, span, depth),
        };
        Some(Node { value, span })
    }
}
