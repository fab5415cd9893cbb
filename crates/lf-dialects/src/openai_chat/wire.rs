//! The view of a `chat.completion.chunk` (and of a whole `chat.completion`) that reading needs. Borrows where it can;
//! fields of an unexpected type are kept as values instead of failing the chunk.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) choices: Option<Vec<Choice<'a>>>,
    pub(super) usage: Option<Value>,
    pub(super) x_groq: Option<Value>,
    pub(super) error: Option<Value>,
    #[serde(borrow)]
    pub(super) object: Loose<'a>,
    pub(super) message: Option<Value>,
    pub(super) detail: Option<Value>,
    pub(super) code: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    #[serde(borrow)]
    pub(super) index: Loose<'a>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) message: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Loose<'a>,
    #[serde(borrow)]
    pub(super) stop_reason: Loose<'a>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) content: Loose<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: Loose<'a>,
    #[serde(borrow)]
    pub(super) reasoning: Loose<'a>,
    pub(super) reasoning_details: Option<Value>,
    #[serde(borrow)]
    pub(super) refusal: Loose<'a>,
    pub(super) tool_calls: Option<Value>,
    pub(super) function_call: Option<Value>,
}

/// A string without copying it, or any other value.
#[derive(Debug)]
pub(super) enum Loose<'a> {
    Text(Cow<'a, str>),
    Other(Value),
}

impl Default for Loose<'_> {
    fn default() -> Self {
        Self::Other(Value::Null)
    }
}

impl Loose<'_> {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Other(_) => "",
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Loose<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LooseVisitor)
    }
}

struct LooseVisitor;

impl<'de> Visitor<'de> for LooseVisitor {
    type Value = Loose<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Loose::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Loose::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Self::Value, E> {
        Ok(Loose::Text(Cow::Owned(text)))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Loose::default())
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Loose::Other(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Loose::Other(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Loose::Other(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Loose::Other(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(Loose::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(de::value::MapAccessDeserializer::new(map)).map(Loose::Other)
    }
}

/// Half a surrogate pair, which serde_json refuses, made a replacement character. `None` where there is none.
pub(super) fn without_lone_surrogates(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    let mut fixed: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    while at + 1 < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        let Some(unit) = escape_at(bytes, at) else {
            at += 2;
            continue;
        };
        let paired = (0xd800..0xdc00).contains(&unit)
            && escape_at(bytes, at + 6).is_some_and(|low| (0xdc00..0xe000).contains(&low));
        if paired {
            at += 12;
            continue;
        }
        if (0xd800..0xe000).contains(&unit) {
            let text = fixed.get_or_insert_with(String::new);
            text.push_str(&json[copied..at]);
            text.push_str("\\ufffd");
            copied = at + 6;
        }
        at += 6;
    }
    let mut fixed = fixed?;
    fixed.push_str(&json[copied..]);
    Some(fixed)
}

/// The UTF-16 unit of an escape (`\u` and four digits) that starts here.
fn escape_at(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
