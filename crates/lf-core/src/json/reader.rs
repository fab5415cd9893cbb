//! The reader itself: a push-down machine that takes one character at a time, so that a stream and a whole text are
//! read by the same code, each character once.

mod strings;

use serde_json::{Map, Number, Value};

use super::Unreadable;

/// Containers inside containers; the limit of `serde_json`, so that what is read here can be read back.
const MAX_DEPTH: usize = 127;
/// Bytes of an unquoted key, a number or a literal.
const MAX_BARE: usize = 400;
/// Characters of a comment. An unclosed one must not read a whole answer.
const MAX_COMMENT: usize = 1024;

/// What one character did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    More,
    /// The value ended with this character.
    Done,
    /// The value (a number or a literal) ended before this character.
    DoneBefore,
    /// This character fits nothing; the reader is of no further use, except for [`Reader::finish`].
    Invalid(&'static str),
}

#[derive(Debug)]
enum Frame {
    Object { members: Map<String, Value>, key: Option<String> },
    Array(Vec<Value>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Value {
        after_comma: bool,
    },
    Key {
        after_comma: bool,
    },
    Colon,
    /// A value inside a container has ended.
    After,
    Quoted {
        close: char,
    },
    Escape {
        close: char,
    },
    Unicode {
        close: char,
    },
    Bare,
    /// After the first `/` of a comment, or in it; `from` is where it returns to.
    Comment {
        from: Resume,
        part: Comment,
        length: usize,
    },
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Resume {
    Value { after_comma: bool },
    Key { after_comma: bool },
    Colon,
    After,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comment {
    Slash,
    Line,
    Block,
    Star,
}

/// Closers that did not match their openers. Only one kind of slip has one reading.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Balance {
    Even,
    Missing,
    Extra,
}

#[derive(Debug)]
pub struct Reader {
    frames: Vec<Frame>,
    state: State,
    /// The string or bare word being read.
    buffer: String,
    digits: String,
    /// The first half of a surrogate pair.
    high: Option<u32>,
    root: Value,
    balance: Balance,
    repaired: bool,
    has_key: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    pub fn new() -> Self {
        Self {
            frames: Vec::new(),
            state: State::Value { after_comma: false },
            buffer: String::new(),
            digits: String::new(),
            high: None,
            root: Value::Null,
            balance: Balance::Even,
            repaired: false,
            has_key: false,
        }
    }

    /// Takes the next character.
    pub fn push(&mut self, character: char) -> Push {
        match self.state {
            State::Quoted { close } => self.quoted(character, close),
            State::Escape { close } => self.escape(character, close),
            State::Unicode { close } => self.unicode(character, close),
            State::Bare => self.bare(character),
            State::Value { after_comma } => self.value(character, after_comma),
            State::Key { after_comma } => self.key(character, after_comma),
            State::Colon => self.colon(character),
            State::After => self.after(character),
            State::Comment { from, part, length } => self.comment(character, from, part, length),
            State::Done => Push::DoneBefore,
        }
    }

    /// The text has ended: closes at most `missing` containers whose last member is complete, and nothing else.
    ///
    /// # Errors
    /// [`Unreadable::Incomplete`].
    pub fn finish(&mut self, missing: usize) -> Result<(), Unreadable> {
        if self.state == State::Bare && self.end_bare().is_err() {
            return Err(Unreadable::Incomplete { in_string: false });
        }
        let allowed = if self.balance == Balance::Even { missing } else { 0 };
        if self.state == State::After && self.frames.len() <= allowed {
            self.balance = Balance::Missing;
            self.repaired = true;
            while !self.frames.is_empty() {
                self.pop();
            }
        }
        match self.state {
            State::Done => Ok(()),
            _ => Err(Unreadable::Incomplete { in_string: self.in_string() }),
        }
    }

    /// The value that was read; `null` before its end.
    pub fn take(&mut self) -> Value {
        std::mem::take(&mut self.root)
    }

    /// The complete elements of an array that is not complete itself, in order.
    pub fn leading_elements(&mut self) -> Vec<Value> {
        match self.frames.first_mut() {
            Some(Frame::Array(elements)) => std::mem::take(elements),
            _ => Vec::new(),
        }
    }

    pub fn repaired(&self) -> bool {
        self.repaired
    }

    /// Whether every closer so far had its opener.
    pub fn balanced(&self) -> bool {
        self.balance == Balance::Even
    }

    pub fn in_string(&self) -> bool {
        matches!(self.state, State::Quoted { .. } | State::Escape { .. } | State::Unicode { .. })
    }

    /// Whether a key and its colon have been read: the text is meant as data then, not as a pair of braces in prose.
    pub fn has_key(&self) -> bool {
        self.has_key
    }

    /// Whether a key or a value would have to come next.
    pub fn expects_item(&self) -> bool {
        matches!(self.state, State::Value { .. } | State::Key { .. })
    }

    fn value(&mut self, character: char, after_comma: bool) -> Push {
        match character {
            '{' | '[' => return self.open(character),
            '"' | '\'' | '“' | '‘' => return self.open_string(character),
            ']' if matches!(self.frames.last(), Some(Frame::Array(_))) => {
                self.repaired |= after_comma;
                return self.pop();
            }
            '/' => return self.open_comment(Resume::Value { after_comma }),
            _ if is_blank(character) => {}
            _ if is_bare(character) => {
                self.buffer.clear();
                self.buffer.push(character);
                self.state = State::Bare;
            }
            _ => return Push::Invalid("expected a value"),
        }
        Push::More
    }

    fn key(&mut self, character: char, after_comma: bool) -> Push {
        match character {
            '"' | '\'' | '“' | '‘' => return self.open_string(character),
            '}' => {
                self.repaired |= after_comma;
                return self.pop();
            }
            '/' => return self.open_comment(Resume::Key { after_comma }),
            _ if is_blank(character) => {}
            _ if character.is_alphabetic() || matches!(character, '_' | '$') => {
                self.buffer.clear();
                self.buffer.push(character);
                self.state = State::Bare;
            }
            _ => return Push::Invalid("expected a key in quotes or `}`"),
        }
        Push::More
    }

    fn colon(&mut self, character: char) -> Push {
        match character {
            ':' => {
                self.has_key = true;
                self.state = State::Value { after_comma: false };
            }
            '/' => return self.open_comment(Resume::Colon),
            _ if is_blank(character) => {}
            _ => return Push::Invalid("expected `:` after the key"),
        }
        Push::More
    }

    fn after(&mut self, character: char) -> Push {
        match character {
            ',' => {
                self.state = match self.frames.last() {
                    Some(Frame::Object { .. }) => State::Key { after_comma: true },
                    _ => State::Value { after_comma: true },
                };
            }
            '}' | ']' => return self.close(character),
            '/' => return self.open_comment(Resume::After),
            _ if is_blank(character) => {}
            _ => return Push::Invalid("expected `,` or a closing bracket after the value"),
        }
        Push::More
    }

    fn open(&mut self, character: char) -> Push {
        if self.frames.len() == MAX_DEPTH {
            return Push::Invalid("nested too deep");
        }
        if character == '{' {
            self.frames.push(Frame::Object { members: Map::new(), key: None });
            self.state = State::Key { after_comma: false };
        } else {
            self.frames.push(Frame::Array(Vec::new()));
            self.state = State::Value { after_comma: false };
        }
        Push::More
    }

    /// A closer after a complete value. One that fits the container around this one closes both, and one that fits
    /// none is skipped: each once, and never both in one text, for then there is a second reading.
    fn close(&mut self, character: char) -> Push {
        let fits = |frame: Option<&Frame>| {
            matches!((frame, character), (Some(Frame::Object { .. }), '}') | (Some(Frame::Array(_)), ']'))
        };
        if fits(self.frames.last()) {
            return self.pop();
        }
        if self.balance != Balance::Even {
            return Push::Invalid("brackets do not match");
        }
        self.repaired = true;
        if fits(self.frames.iter().rev().nth(1)) {
            self.balance = Balance::Missing;
            self.pop();
            return self.pop();
        }
        if character == ']' && !self.frames.iter().any(|frame| matches!(frame, Frame::Array(_))) {
            self.balance = Balance::Extra;
            return Push::More;
        }
        Push::Invalid("brackets do not match")
    }

    fn pop(&mut self) -> Push {
        match self.frames.pop() {
            Some(Frame::Object { members, .. }) => self.complete(Value::Object(members)),
            Some(Frame::Array(elements)) => self.complete(Value::Array(elements)),
            None => Push::Invalid("brackets do not match"),
        }
    }

    fn complete(&mut self, value: Value) -> Push {
        self.state = State::After;
        match self.frames.last_mut() {
            Some(Frame::Object { members, key }) => {
                if let Some(key) = key.take() {
                    members.insert(key, value);
                }
                Push::More
            }
            Some(Frame::Array(elements)) => {
                elements.push(value);
                Push::More
            }
            None => {
                self.root = value;
                self.state = State::Done;
                Push::Done
            }
        }
    }

    fn bare(&mut self, character: char) -> Push {
        if is_bare(character) {
            if self.buffer.len() >= MAX_BARE {
                return Push::Invalid("a bare word is no value");
            }
            self.buffer.push(character);
            return Push::More;
        }
        match self.end_bare() {
            Ok(Push::Done) => Push::DoneBefore,
            Ok(_) => self.push(character),
            Err(problem) => Push::Invalid(problem),
        }
    }

    fn end_bare(&mut self) -> Result<Push, &'static str> {
        let word = std::mem::take(&mut self.buffer);
        if let Some(Frame::Object { key, .. }) = self.frames.last_mut()
            && key.is_none()
        {
            *key = Some(word);
            self.repaired = true;
            self.state = State::Colon;
            return Ok(Push::More);
        }
        let Some(value) = self.literal(&word) else { return Err("a bare word is no value") };
        Ok(self.complete(value))
    }

    fn literal(&mut self, word: &str) -> Option<Value> {
        match word {
            "true" => return Some(Value::Bool(true)),
            "false" => return Some(Value::Bool(false)),
            "null" => return Some(Value::Null),
            _ => {}
        }
        if let Ok(number) = serde_json::from_str::<Number>(word) {
            return Some(Value::Number(number));
        }
        self.repaired = true;
        match word {
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            "None" => Some(Value::Null),
            _ => loose_number(word).map(Value::Number),
        }
    }

    fn open_comment(&mut self, from: Resume) -> Push {
        self.state = State::Comment { from, part: Comment::Slash, length: 0 };
        Push::More
    }

    fn comment(&mut self, character: char, from: Resume, part: Comment, length: usize) -> Push {
        if length == MAX_COMMENT {
            return Push::Invalid("the comment does not end");
        }
        self.repaired = true;
        let next = match (part, character) {
            (Comment::Slash, '/') => Some(Comment::Line),
            (Comment::Slash, '*') => Some(Comment::Block),
            (Comment::Slash, _) => return Push::Invalid("expected a value"),
            (Comment::Line, '\n') | (Comment::Star, '/') => None,
            (Comment::Line, _) => Some(Comment::Line),
            (Comment::Block | Comment::Star, '*') => Some(Comment::Star),
            (Comment::Block | Comment::Star, _) => Some(Comment::Block),
        };
        self.state = match (next, from) {
            (Some(part), _) => State::Comment { from, part, length: length + 1 },
            (None, Resume::Value { after_comma }) => State::Value { after_comma },
            (None, Resume::Key { after_comma }) => State::Key { after_comma },
            (None, Resume::Colon) => State::Colon,
            (None, Resume::After) => State::After,
        };
        Push::More
    }
}

fn is_blank(character: char) -> bool {
    character.is_whitespace() || character == '\u{feff}'
}

fn is_bare(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '$' | '+' | '-' | '.')
}

/// `+1`, `.5` and `5.`: numbers to a person and to JavaScript.
fn loose_number(word: &str) -> Option<Number> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let or_zero = |part: &str| if part.is_empty() { "0".to_owned() } else { part.to_owned() };
    let text = if digits.contains('.') {
        format!("{sign}{}.{}", or_zero(whole), or_zero(fraction))
    } else {
        format!("{sign}{whole}")
    };
    serde_json::from_str(&text).ok()
}
