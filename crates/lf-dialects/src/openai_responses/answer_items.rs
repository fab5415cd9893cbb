//! What is known of an answer's items while they come.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::request_input::{is_open, is_sealed};
use super::{ITEMS, RESPONSES_ONLY};

/// All items of one answer that are kept, as JSON text.
const MAX_ITEM_BYTES: usize = 16 * 1024 * 1024;
/// An answer has a few dozen; more than this is a broken upstream.
const MAX_ITEMS: usize = 4096;

/// Which item an event is about. Some servers leave the index out, some give an item another id with each event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Index(u64),
    Id(String),
}

impl Place {
    pub(super) fn of(event: &Value) -> Self {
        match event["output_index"].as_u64() {
            Some(index) => Self::Index(index),
            None => {
                let id = event["item_id"].as_str().or_else(|| event["item"]["id"].as_str());
                Self::Id(id.unwrap_or_default().to_owned())
            }
        }
    }

    pub(super) fn index(&self) -> Option<u64> {
        match self {
            Self::Index(index) => Some(*index),
            Self::Id(_) => None,
        }
    }
}

/// A part of an item's reasoning: parts are told apart by a blank line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReasoningPart {
    pub(super) place: Place,
    pub(super) list: &'static str,
    pub(super) index: u64,
}

/// The items of one answer so far.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Bytes told of each message.
    texts: HashMap<Place, usize>,
    /// Items whose reasoning was told.
    reasoned: HashSet<Place>,
    last_reasoning: Option<ReasoningPart>,
    /// Calls whose arguments came in pieces.
    argued: HashSet<Place>,
    /// What came whole, in its order; messages and calls as marks of their places.
    items: Vec<Value>,
    item_bytes: usize,
    /// The model would not answer.
    pub(super) refused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManyItems;

impl Reading {
    pub(super) fn told_text(&self) -> bool {
        !self.texts.is_empty()
    }

    pub(super) fn told_text_of(&self, place: &Place) -> bool {
        self.texts.contains_key(place)
    }

    pub(super) fn add_text(&mut self, place: &Place, bytes: usize) -> Result<(), TooManyItems> {
        if let Some(told) = self.texts.get_mut(place) {
            *told += bytes;
            return Ok(());
        }
        bound(self.texts.len())?;
        self.texts.insert(place.clone(), bytes);
        Ok(())
    }

    pub(super) fn told_reasoning_of(&self, place: &Place) -> bool {
        self.reasoned.contains(place)
    }

    /// Notes the part that is told next, and gives whether it begins behind another one.
    pub(super) fn begin_reasoning(&mut self, part: ReasoningPart) -> Result<bool, TooManyItems> {
        if self.last_reasoning.as_ref() == Some(&part) {
            return Ok(false);
        }
        bound(self.reasoned.len())?;
        self.reasoned.insert(part.place.clone());
        Ok(self.last_reasoning.replace(part).is_some())
    }

    pub(super) fn told_arguments_of(&self, place: &Place) -> bool {
        self.argued.contains(place)
    }

    pub(super) fn mark_arguments(&mut self, place: &Place) {
        if !self.argued.contains(place) {
            self.argued.insert(place.clone());
        }
    }

    /// A message that ended.
    pub(super) fn mark_message(&mut self, place: &Place, item: &Value) -> Result<(), TooManyItems> {
        let bytes = self.texts.get(place).copied().unwrap_or_default();
        if bytes == 0 {
            return Ok(());
        }
        let mut mark = json!({"type": "message", "bytes": bytes});
        if let Some(phase) = item.get("phase").filter(|phase| !phase.is_null()) {
            mark["phase"] = phase.clone();
        }
        self.keep(mark)
    }

    /// A call that ended.
    pub(super) fn mark_call(&mut self) -> Result<(), TooManyItems> {
        self.keep(json!({"type": "function_call"}))
    }

    /// An item that only this dialect has.
    pub(super) fn keep(&mut self, item: Value) -> Result<(), TooManyItems> {
        bound(self.items.len())?;
        self.item_bytes += item.to_string().len();
        if self.item_bytes > MAX_ITEM_BYTES {
            return Err(TooManyItems);
        }
        self.items.push(item);
        Ok(())
    }

    pub(super) fn has_items(&self) -> bool {
        self.items.iter().any(|item| !is_mark(item))
    }

    /// Some servers seal the reasoning only in the event that ends the answer.
    pub(super) fn seal(&mut self, output: &[Value]) {
        let unsealed = self.items.iter_mut().filter(|item| item["type"] == "reasoning" && !is_sealed(item));
        for item in unsealed {
            let same = |sealed: &&Value| sealed["id"] == item["id"] && is_sealed(sealed);
            if let Some(sealed) = output.iter().find(same) {
                item["encrypted_content"] = sealed["encrypted_content"].clone();
            }
        }
    }

    /// What must come back with the message; nothing where the message itself says all.
    pub(super) fn finish(&mut self) -> Map<String, Value> {
        let items = std::mem::take(&mut self.items);
        let says_more = |item: &Value| match item["type"].as_str() {
            Some("message") => item.get("phase").is_some(),
            Some("function_call") => false,
            Some("reasoning") => is_sealed(item) || is_open(item),
            _ => true,
        };
        let mut state = Map::new();
        if items.iter().any(says_more) {
            state.insert(RESPONSES_ONLY.to_owned(), json!({ ITEMS: items }));
        }
        state
    }
}

fn is_mark(item: &Value) -> bool {
    item["type"] == "message" || item["type"] == "function_call"
}

fn bound(count: usize) -> Result<(), TooManyItems> {
    if count < MAX_ITEMS { Ok(()) } else { Err(TooManyItems) }
}
