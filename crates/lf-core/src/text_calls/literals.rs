//! Values that are written neither as JSON nor as plain text: Python's literals, and Gemma's objects.

use serde_json::{Map, Value};

use super::TextCall;
use super::shape::Found;
use super::typed;
use crate::Arguments;
use crate::model::ToolSpec;

/// Containers inside each other.
pub(super) const MAX_DEPTH: usize = 64;

/// Reads one text from left to right. `Err` says what is wrong with it.
pub(super) struct Literals<'a> {
    text: &'a str,
    at: usize,
    tools: &'a [ToolSpec],
    /// What stands around a string beside quotes, in dialects with a token for it.
    quotes: &'static [&'static str],
}

type Read<T> = Result<T, String>;

impl<'a> Literals<'a> {
    pub(super) fn new(text: &'a str, tools: &'a [ToolSpec], quotes: &'static [&'static str]) -> Self {
        Self { text, at: 0, tools, quotes }
    }

    /// `[f(a=1), g()]`, or the calls alone, separated by commas, semicolons or white space. A call that cannot be read
    /// ends the list.
    pub(super) fn python_calls(&mut self) -> Vec<Found> {
        self.skip_blanks();
        self.eat("[");
        let mut calls = Vec::new();
        loop {
            while self.skip_blanks() || self.eat(",") || self.eat(";") {}
            if self.rest().is_empty() || self.rest().starts_with(']') {
                return calls;
            }
            let call = self.python_call();
            let failed = call.is_err();
            calls.push(call);
            if failed {
                return calls;
            }
        }
    }

    fn python_call(&mut self) -> Read<TextCall> {
        let name = self.name().to_owned();
        if name.is_empty() || !self.eat("(") {
            return Err(self.unexpected("a call is written name(argument=value)"));
        }
        let mut arguments = Map::new();
        let mut positional = 0;
        loop {
            self.skip_blanks();
            if self.eat(")") {
                let arguments = Arguments::from_object(arguments);
                return Ok(TextCall { name, server: None, id: None, arguments });
            }
            let key = match self.keyword() {
                Some(key) => key,
                None => {
                    positional += 1;
                    self.positional_key(&name, positional)?
                }
            };
            let value = self.value(0)?;
            arguments.insert(key, value);
            self.skip_blanks();
            if !self.eat(",") && !self.rest().starts_with(')') {
                return Err(self.unexpected("expected `,` or `)`"));
            }
        }
    }

    /// `key=`, but not `key==`.
    fn keyword(&mut self) -> Option<String> {
        let start = self.at;
        let key = self.name().to_owned();
        self.skip_blanks();
        if !key.is_empty() && self.eat("=") && !self.rest().starts_with('=') {
            self.skip_blanks();
            return Some(key);
        }
        self.at = start;
        None
    }

    /// The parameter that an argument without a name is for: the one at its place in the schema.
    fn positional_key(&self, name: &str, position: usize) -> Read<String> {
        typed::schema(self.tools, name)
            .and_then(|schema| schema.get("properties")?.as_object()?.keys().nth(position - 1).cloned())
            .ok_or_else(|| format!("argument {position} of `{name}` has no name"))
    }

    fn value(&mut self, depth: usize) -> Read<Value> {
        if depth > MAX_DEPTH {
            return Err("the arguments are nested too deeply".to_owned());
        }
        self.skip_blanks();
        match self.rest().chars().next() {
            Some('[') => self.sequence("]", depth),
            Some('(') => self.sequence(")", depth),
            Some('{') => self.object(depth),
            Some('\'' | '"') => self.strings(),
            _ => self.word(),
        }
    }

    fn sequence(&mut self, close: &str, depth: usize) -> Read<Value> {
        self.at += 1;
        let mut elements = Vec::new();
        loop {
            self.skip_blanks();
            if self.eat(close) {
                return Ok(Value::Array(elements));
            }
            elements.push(self.value(depth + 1)?);
            self.skip_blanks();
            if !self.eat(",") && !self.rest().starts_with(close) {
                return Err(self.unexpected("expected `,` or the end of a list"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Read<Value> {
        self.at += 1;
        let mut members = Map::new();
        loop {
            self.skip_blanks();
            if self.eat("}") {
                return Ok(Value::Object(members));
            }
            let key = match self.value(depth + 1)? {
                Value::String(key) => key,
                Value::Number(key) => key.to_string(),
                _ => return Err(self.unexpected("a key is a string")),
            };
            self.skip_blanks();
            if !self.eat(":") {
                return Err(self.unexpected("expected `:`"));
            }
            members.insert(key, self.value(depth + 1)?);
            self.skip_blanks();
            if !self.eat(",") && !self.rest().starts_with('}') {
                return Err(self.unexpected("expected `,` or `}`"));
            }
        }
    }

    /// One string, or several that stand side by side.
    fn strings(&mut self) -> Read<Value> {
        let mut text = String::new();
        while self.rest().starts_with(['"', '\'']) {
            self.string(&mut text, false)?;
            self.skip_blanks();
        }
        Ok(Value::String(text))
    }

    /// In a raw string a backslash is only itself.
    fn string(&mut self, text: &mut String, raw: bool) -> Read<()> {
        let quote = &self.rest()[..1];
        let triple = quote.repeat(3);
        let close = if self.rest().starts_with(&triple) { triple.as_str() } else { quote };
        self.at += close.len();
        loop {
            if self.eat(close) {
                return Ok(());
            }
            match self.next() {
                Some('\\') if raw => text.extend(['\\'].into_iter().chain(self.next())),
                Some('\\') => self.escape(text)?,
                Some(character) => text.push(character),
                None => return Err("the text ends inside a string".to_owned()),
            }
        }
    }

    /// Python's escapes and JSON's; a backslash before anything else stays.
    fn escape(&mut self, text: &mut String) -> Read<()> {
        let Some(character) = self.next() else { return Err("the text ends inside a string".to_owned()) };
        match character {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            '0' => text.push('\0'),
            '\n' => {}
            '\\' | '\'' | '"' | '/' => text.push(character),
            'x' => text.push(self.code(2)?),
            'u' => text.push(self.unit()?),
            'U' => text.push(self.code(8)?),
            other => text.extend(['\\', other]),
        }
        Ok(())
    }

    fn hexadecimal(&mut self, digits: usize) -> Read<u32> {
        let code = self.rest().get(..digits).and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += if code.is_some() { digits } else { 0 };
        code.ok_or_else(|| self.unexpected("an escape is not hexadecimal"))
    }

    fn code(&mut self, digits: usize) -> Read<char> {
        let code = self.hexadecimal(digits)?;
        char::from_u32(code).ok_or_else(|| self.unexpected("an escape is no character"))
    }

    /// A UTF-16 unit, or a pair of them.
    fn unit(&mut self) -> Read<char> {
        let mut units = vec![u16::try_from(self.hexadecimal(4)?).unwrap_or(u16::MAX)];
        if (0xd800..0xdc00).contains(&units[0]) && self.eat("\\u") {
            units.push(u16::try_from(self.hexadecimal(4)?).unwrap_or(u16::MAX));
        }
        String::from_utf16(&units)
            .ok()
            .and_then(|text| text.chars().next())
            .ok_or_else(|| self.unexpected("an escape is no character"))
    }

    fn word(&mut self) -> Read<Value> {
        let rest = self.rest();
        let length =
            rest.find(|c: char| c.is_whitespace() || ",()[]{}:='\"".contains(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        if matches!(word, "f" | "u" | "b" | "r") && after.starts_with(['"', '\'']) {
            self.at += length;
            let mut text = String::new();
            self.string(&mut text, word == "r")?;
            return Ok(Value::String(text));
        }
        let plain = word.replace('_', "");
        let number = if word.starts_with('_') { None } else { typed::number(plain.trim_start_matches('+')) };
        let value = match word {
            "True" | "true" => Some(Value::Bool(true)),
            "False" | "false" => Some(Value::Bool(false)),
            "None" | "null" => Some(Value::Null),
            _ => number.or_else(|| odd_number(&plain)),
        };
        match value {
            Some(value) => {
                self.at += length;
                Ok(value)
            }
            None => Err(self.unexpected("expected a value")),
        }
    }

    /// `call:f{k:<token>v<token>,n:3}`, from the name on.
    pub(super) fn gemma_call(&mut self) -> Found {
        self.skip_blanks();
        if self.eat("call:") {
            self.skip_blanks();
        }
        let name = self.name().to_owned();
        self.skip_blanks();
        if name.is_empty() || !self.rest().starts_with('{') {
            return Err(self.unexpected("a call is written call:name{key:value}"));
        }
        let Value::Object(arguments) = self.gemma_object(&name, 0)? else { return Err(String::new()) };
        if !self.rest().trim().is_empty() {
            return Err(self.unexpected("expected the end of the call"));
        }
        Ok(TextCall { name, server: None, id: None, arguments: Arguments::from_object(arguments) })
    }

    fn gemma_object(&mut self, tool: &str, depth: usize) -> Read<Value> {
        if depth > MAX_DEPTH {
            return Err("the arguments are nested too deeply".to_owned());
        }
        self.at += 1;
        let mut members = Map::new();
        loop {
            while self.skip_blanks() || self.eat(",") {}
            if self.eat("}") {
                return Ok(Value::Object(members));
            }
            if self.rest().starts_with(']') {
                return Err(self.unexpected("expected `,` or `}`"));
            }
            let key = match self.quoted()? {
                Some(key) => key,
                None => {
                    let rest = self.rest();
                    let length = rest.find([':', '{', '}', ',']).unwrap_or(rest.len());
                    self.at += length;
                    rest[..length].trim().trim_matches('"').to_owned()
                }
            };
            self.skip_blanks();
            if key.is_empty() || !self.eat(":") {
                return Err(self.unexpected("expected `:` after a key"));
            }
            let value = self.gemma_value(tool, if depth == 0 { &key } else { "" }, depth + 1)?;
            members.insert(key, value);
        }
    }

    fn gemma_value(&mut self, tool: &str, key: &str, depth: usize) -> Read<Value> {
        if depth > MAX_DEPTH {
            return Err("the arguments are nested too deeply".to_owned());
        }
        self.skip_blanks();
        if let Some(text) = self.quoted()? {
            // everything may stand between tokens: what the schema says it is
            return Ok(typed::value(self.tools, tool, key, &text));
        }
        match self.rest().chars().next() {
            Some('{') => self.gemma_object(tool, depth),
            Some('"') => {
                let mut text = String::new();
                self.string(&mut text, false)?;
                Ok(Value::String(text))
            }
            Some('[') => {
                self.at += 1;
                let mut elements = Vec::new();
                loop {
                    while self.skip_blanks() || self.eat(",") {}
                    if self.eat("]") {
                        return Ok(Value::Array(elements));
                    }
                    // a value ends before it, so nothing would ever be read of it
                    if self.rest().starts_with('}') {
                        return Err(self.unexpected("expected `,` or the end of a list"));
                    }
                    if self.rest().is_empty() {
                        return Err("the text ends inside a list".to_owned());
                    }
                    elements.push(self.gemma_value(tool, "", depth + 1)?);
                }
            }
            _ => {
                let rest = self.rest();
                let length = rest.find([',', '}', ']']).ok_or("the text ends inside a value")?;
                self.at += length;
                Ok(typed::word(self.tools, tool, key, rest[..length].trim()))
            }
        }
    }

    /// A string between tokens.
    fn quoted(&mut self) -> Read<Option<String>> {
        let Some(token) = self.quotes.iter().find(|token| self.rest().starts_with(**token)) else {
            return Ok(None);
        };
        self.at += token.len();
        let length = self.rest().find(token).ok_or("the text ends inside a string")?;
        let text = self.rest()[..length].to_owned();
        self.at += length + token.len();
        Ok(Some(text))
    }

    fn name(&mut self) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Option<char> {
        let character = self.rest().chars().next()?;
        self.at += character.len_utf8();
        Some(character)
    }

    fn eat(&mut self, word: &str) -> bool {
        let eaten = self.rest().starts_with(word);
        self.at += if eaten { word.len() } else { 0 };
        eaten
    }

    fn skip_blanks(&mut self) -> bool {
        let rest = self.rest();
        let blanks = rest.len() - rest.trim_start().len();
        self.at += blanks;
        blanks > 0
    }

    fn unexpected(&self, problem: &str) -> String {
        format!("{problem}, at character {} of the call", self.text[..self.at].chars().count() + 1)
    }
}

/// What a tool's name is made of where nothing stands around it.
pub(super) fn is_name(character: char) -> bool {
    character.is_alphanumeric() || "_-.:/".contains(character)
}

/// `.5` and `5.`, which Python takes and JSON does not.
fn odd_number(word: &str) -> Option<Value> {
    let (sign, digits) = word.strip_prefix('-').map_or(("", word), |digits| ("-", digits));
    let whole = if digits.starts_with('.') { "0" } else { "" };
    let fraction = if digits.ends_with('.') { "0" } else { "" };
    if whole.is_empty() && fraction.is_empty() || digits.len() < 2 {
        return None;
    }
    typed::number(&format!("{sign}{whole}{digits}{fraction}"))
}
