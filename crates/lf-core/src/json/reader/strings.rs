//! Inside a string: its escapes, and what models write instead of them.

use serde_json::Value;

use super::{Frame, Push, Reader, State};

impl Reader {
    pub(super) fn open_string(&mut self, character: char) -> Push {
        let close = match character {
            '“' => '”',
            '‘' => '’',
            same => same,
        };
        self.repaired |= close != '"';
        self.buffer.clear();
        self.state = State::Quoted { close };
        Push::More
    }

    pub(super) fn quoted(&mut self, character: char, close: char) -> Push {
        if character == '\\' {
            self.state = State::Escape { close };
            return Push::More;
        }
        self.flush_high();
        if character == close {
            return self.end_string();
        }
        self.repaired |= u32::from(character) < 0x20;
        self.buffer.push(character);
        Push::More
    }

    /// An escape that JSON does not know stays as it was written: `\d` in a pattern means both characters.
    pub(super) fn escape(&mut self, character: char, close: char) -> Push {
        self.state = State::Quoted { close };
        if character == 'u' {
            self.digits.clear();
            self.state = State::Unicode { close };
            return Push::More;
        }
        self.flush_high();
        let plain = match character {
            '"' | '\\' | '/' => character,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            other => {
                self.repaired = true;
                if other != '\'' && other != close {
                    self.buffer.push('\\');
                }
                other
            }
        };
        self.buffer.push(plain);
        Push::More
    }

    pub(super) fn unicode(&mut self, character: char, close: char) -> Push {
        if !character.is_ascii_hexdigit() {
            self.flush_high();
            self.repaired = true;
            self.buffer.push_str("\\u");
            self.buffer.push_str(&self.digits);
            self.state = State::Quoted { close };
            return self.quoted(character, close);
        }
        self.digits.push(character);
        if self.digits.len() < 4 {
            return Push::More;
        }
        self.state = State::Quoted { close };
        let unit = u32::from_str_radix(&self.digits, 16).unwrap_or_default();
        match (self.high.take(), unit) {
            (Some(high), 0xdc00..=0xdfff) => {
                let code = 0x1_0000 + ((high - 0xd800) << 10) + (unit - 0xdc00);
                self.buffer.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            (high, _) => {
                self.high = high;
                self.flush_high();
                match unit {
                    0xd800..=0xdbff => self.high = Some(unit),
                    _ => self.push_unit(unit),
                }
            }
        }
        Push::More
    }

    fn push_unit(&mut self, unit: u32) {
        self.repaired |= char::from_u32(unit).is_none();
        self.buffer.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
    }

    fn flush_high(&mut self) {
        if self.high.take().is_some() {
            self.repaired = true;
            self.buffer.push(char::REPLACEMENT_CHARACTER);
        }
    }

    fn end_string(&mut self) -> Push {
        let text = std::mem::take(&mut self.buffer);
        match self.frames.last_mut() {
            Some(Frame::Object { key, .. }) if key.is_none() => {
                *key = Some(text);
                self.state = State::Colon;
                Push::More
            }
            _ => self.complete(Value::String(text)),
        }
    }
}
