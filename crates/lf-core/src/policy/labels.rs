//! What tools bring into a conversation, and what they can take out of it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

/// What the file says of a tool's results, or of where its arguments go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// Its results are not for everybody.
    Private,
    /// Its results may be written by anybody, and say anything.
    Untrusted,
    /// What it is given may leave the house.
    Egress,
}

impl Label {
    pub const ALL: [Self; 3] = [Self::Private, Self::Untrusted, Self::Egress];

    /// As the file writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Untrusted => "untrusted",
            Self::Egress => "egress",
        }
    }

    pub(super) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Labels(u8);

impl Labels {
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    pub fn has(self, label: Label) -> bool {
        self.0 & label.bit() != 0
    }

    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What a server says of a tool as it lists it: a daemon that is asked for tools tells their labels on. Its word adds
    /// to what the file says, and takes nothing away.
    pub fn told(tool: &Value) -> Self {
        Self::named(tool.get("_meta").and_then(|meta| meta.get(Self::TOLD)))
    }

    /// What a message carries that stands for others, as a summary does: `rest` is its own.
    pub fn carried(rest: &Map<String, Value>) -> Self {
        Self::named(rest.get(Self::CARRIED))
    }

    /// Has a message carry them, for who reads it later: no API is sent them.
    pub fn carry(self, rest: &mut Map<String, Value>) {
        if !self.is_empty() {
            rest.insert(Self::CARRIED.to_owned(), json!(self));
        }
    }

    /// Those of a list of names that there are.
    pub fn named(names: Option<&Value>) -> Self {
        let names = names.and_then(Value::as_array).into_iter().flatten();
        let words: Vec<&str> = names.filter_map(Value::as_str).collect();
        Label::ALL.into_iter().filter(|label| words.contains(&label.name())).collect()
    }

    /// Tells them on with a tool's listing.
    pub fn tell(self, tool: &mut Value) {
        if self.is_empty() || !tool.is_object() {
            return;
        }
        let words: Vec<&str> = self.iter().map(Label::name).collect();
        if !tool["_meta"].is_object() {
            tool["_meta"] = json!({});
        }
        tool["_meta"][Self::TOLD] = json!(words);
    }

    /// Key of `_meta`.
    const TOLD: &str = "io.lf/labels";
    /// Key of a message's `rest`.
    const CARRIED: &str = "$labels";

    pub fn iter(self) -> impl Iterator<Item = Label> {
        Label::ALL.into_iter().filter(move |label| self.has(*label))
    }
}

impl FromIterator<Label> for Labels {
    fn from_iter<I: IntoIterator<Item = Label>>(labels: I) -> Self {
        Self(labels.into_iter().fold(0, |bits, label| bits | label.bit()))
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<Label>::deserialize(deserializer).map(|labels| labels.into_iter().collect())
    }
}
