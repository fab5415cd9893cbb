//! Conditions of rules, in CEL. This is the one place that knows the language's crate, and it bounds what a condition may
//! cost: in text, in parts, in steps, in the size of what it looks at, and in time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cel::extractors::This;
use cel::objects::{Key, Map as CelMap};
use cel::parser::Parser;
use cel::{Context, Env, ExecutionError, IdedExpr, Value};
use serde_json::Value as Json;

use super::Case;

mod look;

pub(super) use look::VARIABLES;

/// Bytes of one condition.
pub const MAX_TEXT: usize = 2_000;
/// Parts of one condition, after its macros are written out.
const MAX_PARTS: usize = 256;
/// `all`, `exists`, `map`, `filter` and the like in one condition: each may multiply what the one before it made.
const MAX_LOOPS: usize = 3;
/// How many brackets may stand in one another, with signs and choices that are open: the parser goes down with them.
const MAX_DEPTH: usize = 24;
/// How deep the compiled parts may go: each level is a call when a condition is decided, on threads with 2 MiB of stack.
const MAX_LEVELS: usize = 40;
/// For the parser.
const STACK: usize = 32 << 20;
/// Elements that all loops of one evaluation go over together.
const MAX_STEPS: usize = 10_000;
/// Bytes of arguments that a condition looks at, and of any text that it makes. What a call carries beyond is an error.
const MAX_VALUE: usize = 256 * 1024;
/// Values in what a condition looks at, and in any list that it makes.
const MAX_VALUES: usize = 10_000;
/// Bytes of all that is put together with `+` in one evaluation: a loop may keep every one of them.
const MAX_SUMS: usize = 16 << 20;
/// The conditions of one call together.
pub const TIME: Duration = Duration::from_millis(100);

/// A condition, compiled.
#[derive(Clone)]
pub struct Condition {
    text: String,
    expression: Arc<IdedExpr>,
    environment: Arc<Env>,
    patterns: Arc<HashMap<String, regex::Regex>>,
    needs: look::Needs,
}

/// What is wrong with a condition, and where in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Bytes of the text; all of it where the place is not known.
    pub span: std::ops::Range<usize>,
    pub message: String,
    pub hint: Option<String>,
}

impl std::fmt::Debug for Condition {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Condition").field(&self.text).finish()
    }
}

impl Condition {
    /// # Errors
    /// The first [`Mistake`] that is found: in its grammar, in a name, in a pattern, or that it is too large.
    pub fn compile(text: &str) -> Result<Self, Mistake> {
        let wrong = |message: String| Mistake { span: 0..text.len(), message, hint: None };
        if text.len() > MAX_TEXT {
            return Err(wrong(format!("it has {} bytes; at most {MAX_TEXT} are read", text.len())));
        }
        if depth(text) > MAX_DEPTH {
            return Err(wrong(format!("it is more than {MAX_DEPTH} levels deep")));
        }
        // the parser goes down a dozen calls with each level, and whoever reads a file may have little stack
        let read = std::thread::scope(|scope| {
            let reader = std::thread::Builder::new().stack_size(STACK);
            let reader = reader.spawn_scoped(scope, || Self::read(text)).ok()?;
            reader.join().ok()
        });
        read.unwrap_or_else(|| Err(wrong("it cannot be read".to_owned())))
    }

    fn read(text: &str) -> Result<Self, Mistake> {
        let parser = Parser::new().max_recursion_depth(64).error_recovery_limit(1);
        let (expression, places) = parser.parse_with_source_info(text).map_err(|errors| {
            let first = errors.errors.first();
            let at = first.map_or(0, |first| offset(text, first.pos));
            let message = first.map_or_else(|| "it cannot be read".to_owned(), |first| said(&first.msg));
            // what is missing is missing after the last character
            let begin = text.floor_char_boundary(at.min(text.len().saturating_sub(1)));
            let end = text.ceil_char_boundary(begin + 1);
            Mistake { span: begin..end, message, hint: None }
        })?;
        let look::Looked { expression, patterns, needs } = look::look(expression, &places, text)?;
        Ok(Self {
            text: text.to_owned(),
            expression: Arc::new(expression),
            environment: Arc::new(Env::stdlib()),
            patterns: Arc::new(patterns),
            needs,
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is true of a call.
    ///
    /// # Errors
    /// Why that cannot be said: a name that the call does not have, values that do not go together, or a bound.
    pub(super) fn holds(&self, case: &Case<'_>, end: Instant) -> Result<bool, String> {
        if Instant::now() > end {
            return Err(format!("the conditions of this call took longer than {TIME:?}"));
        }
        let mut context = Context::with_env(self.environment.clone());
        let mut room = Room { bytes: MAX_VALUE, values: MAX_VALUES };
        for (name, value) in self.needs.values(case, &mut room)? {
            context.add_variable_from_value(name, value);
        }
        self.bound(&mut context, end).map_err(|error| error.to_string())?;
        match context.resolve(&self.expression) {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(format!("it gives a value of type {}, and not true or false", type_of(&other))),
            Err(error) => Err(shortened(undecided(&error, &self.text))),
        }
    }

    /// The functions that the compiled expression has besides the language's own.
    fn bound(&self, context: &mut Context<'_, '_>, end: Instant) -> Result<(), cel::DeclarationError> {
        if !self.patterns.is_empty() {
            let patterns = self.patterns.clone();
            context.add_function("matches", move |This(text): This<Arc<String>>, pattern: Arc<String>| {
                if Instant::now() > end {
                    return Err(ExecutionError::function_error("matches", format!("more than {TIME:?}")));
                }
                match patterns.get(pattern.as_str()) {
                    Some(pattern) => Ok(pattern.is_match(&text)),
                    None => Err(ExecutionError::function_error(
                        "matches",
                        "the pattern must be a text as it stands",
                    )),
                }
            })?;
        }
        if self.needs.is_bounded() {
            return Ok(());
        }
        let left = AtomicUsize::new(MAX_STEPS);
        context.add_function(look::RANGE, move |range: Value| {
            let steps = match &range {
                Value::List(list) => list.len(),
                Value::Map(map) => map.map.len(),
                _ => 0,
            };
            let taken =
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(steps + 1));
            if taken.is_err() {
                return Err(ExecutionError::function_error("loop", format!("more than {MAX_STEPS} steps")));
            }
            if Instant::now() > end {
                return Err(ExecutionError::function_error("loop", format!("more than {TIME:?}")));
            }
            Ok(range)
        })?;
        let room = AtomicUsize::new(MAX_SUMS);
        context.add_function(look::SUM, move |sum: Value| {
            let (size, most) = match &sum {
                Value::String(text) => (text.len(), MAX_VALUE),
                Value::Bytes(bytes) => (bytes.len(), MAX_VALUE),
                Value::List(list) => {
                    (list.len().saturating_mul(size_of::<Value>()), MAX_VALUES * size_of::<Value>())
                }
                _ => (0, 0),
            };
            let taken = |room: usize| room.checked_sub(size);
            match size > most || room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_err() {
                true => Err(ExecutionError::function_error("+", "the result is too large")),
                false => Ok(sum),
            }
        })
    }
}

/// What values may still take.
struct Room {
    bytes: usize,
    values: usize,
}

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        let room = self.bytes.checked_sub(bytes).zip(self.values.checked_sub(1));
        let (bytes, values) = room.ok_or_else(|| {
            format!("the call carries more than {MAX_VALUE} bytes or {MAX_VALUES} values of arguments")
        })?;
        *self = Self { bytes, values };
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<Value, String> {
        self.take(text.len())?;
        Ok(Value::from(text))
    }

    fn json(&mut self, json: &Json) -> Result<Value, String> {
        Ok(match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => {
                self.take(8)?;
                match (number.as_i64(), number.as_u64(), number.as_f64()) {
                    (Some(number), _, _) => Value::Int(number),
                    (_, Some(number), _) => Value::UInt(number),
                    (_, _, Some(number)) => Value::Float(number),
                    _ => return Err("a number of the arguments is none that can be compared".to_owned()),
                }
            }
            Json::String(text) => self.text(text)?,
            Json::Array(list) => {
                self.take(0)?;
                let list: Result<Vec<Value>, String> = list.iter().map(|item| self.json(item)).collect();
                Value::List(list?.into())
            }
            Json::Object(fields) => {
                self.take(0)?;
                self.map(fields.iter())?
            }
        })
    }

    fn map<'a>(&mut self, fields: impl Iterator<Item = (&'a String, &'a Json)>) -> Result<Value, String> {
        let mut map = BTreeMap::new();
        for (key, value) in fields {
            self.take(key.len())?;
            map.insert(key.clone(), self.json(value)?);
        }
        Ok(map_of(map))
    }
}

fn map_of(fields: impl IntoIterator<Item = (String, Value)>) -> Value {
    let map = fields.into_iter().map(|(key, value)| (Key::String(key.into()), value)).collect();
    Value::Map(CelMap { map: Arc::new(map) })
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Int(_) => "int",
        Value::UInt(_) => "uint",
        Value::Float(_) => "double",
        Value::String(_) => "string",
        Value::Bytes(_) => "bytes",
        Value::Null => "null",
        _ => "another kind",
    }
}

/// Why a condition could not be decided. What the language says has the values in it, which are the caller's own and belong in
/// no log: types are told instead, and names where the condition has them itself.
fn undecided(error: &ExecutionError, text: &str) -> String {
    use ExecutionError as Error;
    let two = |one: &Value, other: &Value| format!("{} and {}", type_of(one), type_of(other));
    match error {
        Error::NoSuchKey(key) if text.contains(key.as_str()) => error.to_string(),
        Error::NoSuchKey(_) => "No such key".to_owned(),
        Error::NoSuchOverload(_)
        | Error::InvalidArgumentCount { .. }
        | Error::MissingArgumentOrTarget
        | Error::UndeclaredReference(_) => error.to_string(),
        // our own
        Error::FunctionError { function, .. } if ["loop", "+", "matches"].contains(&function.as_str()) => {
            error.to_string()
        }
        Error::FunctionError { function, .. } => {
            format!("`{function}` cannot take the value that it is given")
        }
        Error::UnsupportedBinaryOperator(operator, one, other) => {
            format!("`{operator}` cannot take {}", two(one, other))
        }
        Error::Overflow(operator, one, other) => format!("Overflow from `{operator}` of {}", two(one, other)),
        Error::ValuesNotComparable(one, other) => format!("{} cannot be compared", two(one, other)),
        Error::UnsupportedIndex(index, of) => format!("{} is no index of {}", type_of(index), type_of(of)),
        Error::IndexOutOfBounds(_) => "Index out of bounds".to_owned(),
        Error::DivisionByZero(_) | Error::RemainderByZero(_) => "Division by zero".to_owned(),
        _ => "its values do not go together".to_owned(),
    }
}

/// A pattern or a name may be long.
fn shortened(mut error: String) -> String {
    const LONGEST: usize = 300;
    if error.len() > LONGEST {
        error.truncate(error.floor_char_boundary(LONGEST));
        error.push('…');
    }
    error
}

/// How deep the parser will go, at most: what is in quotes counts as well.
fn depth(text: &str) -> usize {
    let (mut brackets, mut signs, mut choices, mut deepest) = (0usize, 0usize, 0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => brackets += 1,
            b')' | b']' | b'}' => brackets = brackets.saturating_sub(1),
            b'?' => choices += 1,
            _ => {}
        }
        signs = match byte {
            b'!' | b'-' => signs + 1,
            b' ' => signs,
            _ => 0,
        };
        deepest = deepest.max(brackets + signs + choices);
    }
    deepest
}

/// From a line and a column, both from 1, to a place in the text.
fn offset(text: &str, (line, column): (isize, isize)) -> usize {
    let before = usize::try_from(line - 1).unwrap_or_default();
    let begin: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    let column = usize::try_from(column - 1).unwrap_or_default();
    let at = text[begin..].char_indices().nth(column).map_or(text.len(), |(at, _)| begin + at);
    at.min(text.len())
}

/// What the parser says, as a fragment.
fn said(message: &str) -> String {
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    if message.contains("<EOF>") && message.starts_with("mismatched") {
        return "something is missing at its end".to_owned();
    }
    // the words that could stand there are nearly all there are
    let message = message.split(" expecting ").next().unwrap_or(message);
    shortened(message.replace("'<EOF>'", "its end").replace('\'', "`"))
}

#[cfg(test)]
mod tests;
