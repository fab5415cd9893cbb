//! What a condition is made of: names that exist, patterns that can be read, and bounds put around what may grow.

use std::collections::HashMap;
use std::ops::Range;

use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, SourceInfo};
use cel::{IdedExpr, Value};

use super::{MAX_LEVELS, MAX_LOOPS, MAX_PARTS, Mistake, Room, map_of};
use crate::policy::Labels;
use crate::policy::{Case, Earlier};
use crate::project::Hint;
use crate::tool::{Hints, ToolRef};

/// Names that a condition may use.
pub(in crate::policy) const VARIABLES: [&str; 8] =
    ["model", "key", "server", "tool", "labels", "annotations", "args", "earlier"];

/// Put around what a loop goes over. Nobody can write these names: they are no names of the language.
pub(super) const RANGE: &str = "@range";
/// Put around sums, which may be larger than their parts.
pub(super) const SUM: &str = "@sum";

/// All that may be called, operators aside: none of it depends on the clock or on chance.
const FUNCTIONS: [&str; 14] = [
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "int",
    "uint",
    "double",
    "bool",
    "bytes",
    "type",
    "dyn",
    "has",
];
const OPERATORS: [&str; 19] = [
    "_?_:_",
    "_&&_",
    "_||_",
    "!_",
    "_-_",
    "_+_",
    "_*_",
    "_/_",
    "_%_",
    "_==_",
    "_!=_",
    "_>=_",
    "_<=_",
    "_>_",
    "_<_",
    "-_",
    "_[_]",
    "@not_strictly_false",
    "@in",
];
/// Bytes that a compiled pattern may take.
const MAX_PATTERN: usize = 256 * 1024;

pub(super) struct Looked {
    pub(super) expression: IdedExpr,
    pub(super) patterns: HashMap<String, regex::Regex>,
    pub(super) needs: Needs,
}

/// Which variables a condition uses, and whether it can grow.
#[derive(Debug, Clone, Default)]
pub(super) struct Needs {
    variables: Vec<&'static str>,
    grows: bool,
}

impl Needs {
    pub(super) fn is_bounded(&self) -> bool {
        !self.grows
    }

    pub(super) fn values(
        &self,
        case: &Case<'_>,
        room: &mut Room,
    ) -> Result<Vec<(&'static str, Value)>, String> {
        let mut values = Vec::with_capacity(self.variables.len());
        for name in &self.variables {
            let value = match *name {
                "model" => room.text(case.model.unwrap_or_default())?,
                "key" => room.text(case.key.unwrap_or_default())?,
                "server" => room.text(&case.tool.server)?,
                "tool" => room.text(&case.tool.name)?,
                "labels" => labels(case.labels),
                "annotations" => annotations(case.hints),
                "args" => room.map(case.arguments.iter())?,
                _ => earlier(case.earlier, room)?,
            };
            values.push((*name, value));
        }
        Ok(values)
    }
}

fn labels(labels: Labels) -> Value {
    Value::List(labels.iter().map(|label| Value::from(label.name())).collect::<Vec<_>>().into())
}

fn annotations(hints: Hints) -> Value {
    map_of(Hint::ALL.into_iter().map(|hint| (hint.word().to_owned(), Value::Bool(hint.is_true_of(hints)))))
}

fn earlier(calls: &[Earlier], room: &mut Room) -> Result<Value, String> {
    let mut list = Vec::with_capacity(calls.len());
    for call in calls {
        let ToolRef { server, name } = &call.tool;
        list.push(map_of([
            ("server".to_owned(), room.text(server)?),
            ("tool".to_owned(), room.text(name)?),
            ("labels".to_owned(), labels(call.labels)),
            ("args".to_owned(), room.map(call.arguments.iter())?),
            ("done".to_owned(), Value::Bool(call.is_done)),
            ("failed".to_owned(), Value::Bool(call.has_failed)),
        ]));
    }
    Ok(Value::List(list.into()))
}

struct Look<'a> {
    places: &'a SourceInfo,
    text: &'a str,
    parts: usize,
    levels: usize,
    loops: usize,
    /// Names that loops around this place have.
    scope: Vec<String>,
    patterns: HashMap<String, regex::Regex>,
    needs: Needs,
}

pub(super) fn look(mut expression: IdedExpr, places: &SourceInfo, text: &str) -> Result<Looked, Mistake> {
    let mut look = Look {
        places,
        text,
        parts: 0,
        levels: 0,
        loops: 0,
        scope: Vec::new(),
        patterns: HashMap::new(),
        needs: Needs::default(),
    };
    look.at(&mut expression)?;
    Ok(Looked { expression, patterns: look.patterns, needs: look.needs })
}

impl Look<'_> {
    fn at(&mut self, part: &mut IdedExpr) -> Result<(), Mistake> {
        self.parts += 1;
        if self.parts > MAX_PARTS {
            return Err(self.mistake(None, format!("it has more than {MAX_PARTS} parts")));
        }
        if self.levels >= MAX_LEVELS {
            return Err(self.mistake(None, format!("it goes more than {MAX_LEVELS} levels deep")));
        }
        self.levels += 1;
        self.inside(part)?;
        self.levels -= 1;
        Ok(())
    }

    fn inside(&mut self, part: &mut IdedExpr) -> Result<(), Mistake> {
        let id = part.id;
        match &mut part.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => {
                let name = name.clone();
                self.name(&name, id)
            }
            Expr::Select(select) => {
                if let Expr::Ident(name) = &select.operand.expr
                    && name == "annotations"
                    && !Hint::ALL.iter().any(|hint| hint.word() == select.field)
                {
                    let known = Hint::ALL.map(Hint::word).join(", ");
                    let message = format!("there is no annotation `{}`", select.field);
                    return Err(Mistake {
                        hint: Some(format!("there are: {known}")),
                        ..self.mistake(Some(id), message)
                    });
                }
                self.at(&mut select.operand)
            }
            Expr::List(list) => list.elements.iter_mut().try_for_each(|element| self.at(element)),
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.at(&mut entry.key)?;
                    self.at(&mut entry.value)
                }
                EntryExpr::StructField(field) => self.at(&mut field.value),
            }),
            Expr::Struct(_) => Err(self.mistake(Some(id), "there are no types to make values of".to_owned())),
            Expr::Call(_) => self.call(part),
            Expr::Comprehension(comprehension) => {
                self.loops += 1;
                self.needs.grows = true;
                if self.loops > MAX_LOOPS {
                    let message = format!("it has more than {MAX_LOOPS} of `all`, `exists`, `map`, `filter`");
                    return Err(self.mistake(Some(id), message));
                }
                self.at(&mut comprehension.iter_range)?;
                let range = std::mem::take(&mut comprehension.iter_range);
                comprehension.iter_range = around(RANGE, range);
                self.at(&mut comprehension.accu_init)?;
                let depth = self.scope.len();
                self.scope.push(comprehension.iter_var.clone());
                self.scope.extend(comprehension.iter_var2.clone());
                self.scope.push(comprehension.accu_var.clone());
                self.at(&mut comprehension.loop_cond)?;
                self.at(&mut comprehension.loop_step)?;
                self.at(&mut comprehension.result)?;
                self.scope.truncate(depth);
                Ok(())
            }
        }
    }

    fn call(&mut self, part: &mut IdedExpr) -> Result<(), Mistake> {
        let id = part.id;
        let Expr::Call(call) = &mut part.expr else { return Ok(()) };
        let name = call.func_name.as_str();
        if !FUNCTIONS.contains(&name) && !OPERATORS.contains(&name) {
            let message = format!("there is no function `{name}`");
            let hint = format!("there are: {}, all, exists, exists_one, map, filter", FUNCTIONS.join(", "));
            return Err(Mistake { hint: Some(hint), ..self.mistake(Some(id), message) });
        }
        if name == "matches" {
            self.pattern(call)?;
        }
        // a loop's own way of adding to its result is bounded with the loop
        let gathers = matches!(call.args.first().map(|first| &first.expr), Some(Expr::Ident(name)) if name.starts_with('@'));
        let is_sum = name == "_+_" && !gathers;
        if let Some(target) = &mut call.target {
            self.at(target)?;
        }
        for argument in &mut call.args {
            self.at(argument)?;
        }
        if is_sum {
            self.needs.grows = true;
            let sum = std::mem::take(part);
            *part = around(SUM, sum);
        }
        Ok(())
    }

    fn name(&mut self, name: &str, id: u64) -> Result<(), Mistake> {
        if self.scope.iter().any(|known| known == name) || name.starts_with('@') {
            return Ok(());
        }
        let Some(known) = VARIABLES.iter().find(|known| **known == name) else {
            let message = format!("there is no variable `{name}`");
            let hint = Some(format!("there are: {}", VARIABLES.join(", ")));
            return Err(Mistake { hint, ..self.mistake(Some(id), message) });
        };
        if !self.needs.variables.contains(known) {
            self.needs.variables.push(known);
        }
        Ok(())
    }

    /// Patterns are compiled once, and so have to stand in the text.
    fn pattern(&mut self, call: &CallExpr) -> Result<(), Mistake> {
        let Some(last) = call.args.last() else { return Ok(()) };
        let Expr::Literal(LiteralValue::String(pattern)) = &last.expr else {
            let message = "the pattern of `matches` must be a text as it stands, in quotes".to_owned();
            return Err(self.mistake(Some(last.id), message));
        };
        let pattern = pattern.inner().to_string();
        match regex::RegexBuilder::new(&pattern).size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN).build() {
            Ok(compiled) => {
                self.patterns.insert(pattern, compiled);
                Ok(())
            }
            Err(error) => {
                let error = error.to_string();
                let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
                Err(self.mistake(Some(last.id), format!("the pattern cannot be read: {why}")))
            }
        }
    }

    fn mistake(&self, id: Option<u64>, message: String) -> Mistake {
        Mistake { span: self.place(id), message, hint: None }
    }

    /// The crate counts bytes, and its end is that of the last letter.
    fn place(&self, id: Option<u64>) -> Range<usize> {
        let whole = 0..self.text.len();
        let Some((start, stop)) = id.and_then(|id| self.places.offset_for(id)) else { return whole };
        let at = |place: u32| usize::try_from(place).unwrap_or(usize::MAX).min(self.text.len());
        let (start, stop) = (at(start), at(stop.saturating_add(1)));
        let (start, stop) = (self.text.floor_char_boundary(start), self.text.ceil_char_boundary(stop));
        if start < stop { start..stop } else { whole }
    }
}

fn around(function: &str, inner: IdedExpr) -> IdedExpr {
    let call = CallExpr { func_name: function.to_owned(), target: None, args: vec![inner] };
    IdedExpr { id: 0, expr: Expr::Call(call) }
}
