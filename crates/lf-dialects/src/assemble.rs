//! Puts tool calls together from the fragments upstreams send, with the deviations seen in the wild.
//!
//! One slot per call. A fragment goes to the slot of its `index`; a new id on a used index is a new call; without an
//! index the id decides, else the latest slot. Ids and names are set once, arguments appended. Calls come out in the
//! order they were begun, and only at the end, when nothing can change them.

use lf_core::{Arguments, ToolCall};
use serde_json::{Map, Value};

/// All argument text of one answer.
const MAX_ARGUMENT_BYTES: usize = 16 * 1024 * 1024;
/// OpenAI takes 128 calls in a message; more than this is a broken upstream.
const MAX_CALLS: usize = 1024;

const CUT_OFF: &str = "the arguments were cut off before their end";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMuch;

/// What one delta says about one call.
#[derive(Debug, Default)]
pub(crate) struct Fragment<'a> {
    pub(crate) index: Option<u64>,
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) arguments: Piece<'a>,
    /// Provider state to go back with the call.
    pub(crate) rest: Map<String, Value>,
}

#[derive(Debug, Default)]
pub(crate) enum Piece<'a> {
    #[default]
    None,
    /// The next piece of the argument text.
    Text(&'a str),
    /// All arguments at once; takes the place of what came in pieces.
    Whole(String),
}

/// How the answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As the upstream meant it: what has one reading may be repaired.
    Clean,
    /// At a limit or an error: only what is complete as it stands is trusted.
    Cut,
}

#[derive(Debug, Default)]
pub(crate) struct Assembler {
    slots: Vec<Slot>,
    argument_bytes: usize,
    /// Number of the delta being read: two named entries of one delta are two calls.
    delta: u64,
}

#[derive(Debug, Default)]
struct Slot {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: ArgumentText,
    rest: Map<String, Value>,
    delta: u64,
}

impl Assembler {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// A call has a name, and so is one.
    pub(crate) fn any_named(&self) -> bool {
        self.slots.iter().any(|slot| !slot.name.is_empty())
    }

    /// Must be called before the entries of each delta.
    pub(crate) fn begin_delta(&mut self) {
        self.delta += 1;
    }

    pub(crate) fn add(&mut self, fragment: Fragment<'_>) -> Result<(), TooMuch> {
        self.count(&fragment.arguments)?;
        let at = match self.find(&fragment) {
            Some(at) => at,
            None if self.slots.len() == MAX_CALLS => return Err(TooMuch),
            None => {
                self.slots.push(Slot { index: fragment.index, ..Slot::default() });
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[at];
        slot.delta = self.delta;
        set_once(&mut slot.id, fragment.id);
        set_once(&mut slot.name, fragment.name);
        slot.rest.extend(fragment.rest);
        match fragment.arguments {
            Piece::None => {}
            Piece::Text(text) => slot.arguments.push(text),
            Piece::Whole(text) => slot.arguments = ArgumentText::whole(text),
        }
        Ok(())
    }

    fn count(&mut self, arguments: &Piece<'_>) -> Result<(), TooMuch> {
        self.argument_bytes += match arguments {
            Piece::None => 0,
            Piece::Text(text) => text.len(),
            Piece::Whole(text) => text.len(),
        };
        if self.argument_bytes > MAX_ARGUMENT_BYTES { Err(TooMuch) } else { Ok(()) }
    }

    /// A call told once more as a whole, after its pieces: completes the call of that id, else the one at that place.
    pub(crate) fn complete(&mut self, place: usize, fragment: Fragment<'_>) -> Result<(), TooMuch> {
        self.count(&fragment.arguments)?;
        // Entries of one message are calls of their own, numbered or not, even under one id.
        let earlier = |slot: &&Slot| slot.delta != self.delta;
        let by_id = |slot: &Slot| !slot.id.is_empty() && slot.id == fragment.id;
        let by_id = self.slots.iter().position(|slot| earlier(&slot) && by_id(slot));
        let unnamed = |slot: &&Slot| slot.id.is_empty() || fragment.id.is_empty();
        let at_place = || self.slots.get(place).filter(earlier).filter(unnamed);
        let at = match by_id.or_else(|| at_place().map(|_| place)) {
            Some(at) => at,
            None if self.slots.len() == MAX_CALLS => return Err(TooMuch),
            None => {
                let index = fragment.index.or(Some(place as u64));
                self.slots.push(Slot { index, ..Slot::default() });
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[at];
        slot.delta = self.delta;
        set_once(&mut slot.id, fragment.id);
        set_once(&mut slot.name, fragment.name);
        slot.rest.extend(fragment.rest);
        match fragment.arguments {
            Piece::Text(text) if !text.trim().is_empty() => {
                slot.arguments = ArgumentText::whole(text.to_owned());
            }
            Piece::Whole(text) => slot.arguments = ArgumentText::whole(text),
            Piece::Text(_) | Piece::None => {}
        }
        Ok(())
    }

    /// Whether a call was begun with this id.
    pub(crate) fn knows(&self, id: &str) -> bool {
        !id.is_empty() && self.slots.iter().any(|slot| slot.id == id)
    }

    pub(crate) fn has_index(&self, index: Option<u64>) -> bool {
        index.is_some() && self.slots.iter().any(|slot| slot.index == index)
    }

    /// An index of no slot, for dialects that tell calls whole and do not number them.
    pub(crate) fn next_index(&self) -> u64 {
        self.slots.len() as u64
    }

    fn find(&self, fragment: &Fragment<'_>) -> Option<usize> {
        let same_index = |slot: &&Slot| fragment.index.is_none() || slot.index == fragment.index;
        if !fragment.id.is_empty() {
            let by_id = |slot: &Slot| slot.id == fragment.id;
            let at = self.slots.iter().rposition(|slot| same_index(&slot) && by_id(slot));
            let at = at.or_else(|| self.slots.iter().rposition(|slot| slot.index.is_none() && by_id(slot)));
            if at.is_some() {
                return at;
            }
        }
        let at = match fragment.index {
            Some(_) => {
                let by_index = self.slots.iter().rposition(|slot| same_index(&slot));
                // The index may come late: what only continues a call continues the latest one that has none.
                let continues = fragment.id.is_empty() && fragment.name.is_empty();
                let latest = || self.slots.len().checked_sub(1).filter(|&at| self.slots[at].index.is_none());
                by_index.or_else(|| if continues { latest() } else { None })
            }
            None => self.slots.len().checked_sub(1),
        }?;
        let slot = &self.slots[at];
        (!self.is_another_call(slot, fragment)).then_some(at)
    }

    /// Whether a fragment that lands on this slot begins a new call all the same.
    fn is_another_call(&self, slot: &Slot, fragment: &Fragment<'_>) -> bool {
        if !fragment.id.is_empty() && !slot.id.is_empty() {
            return true;
        }
        if fragment.name.is_empty() || slot.name.is_empty() {
            return false;
        }
        let complete = slot.arguments.is_complete();
        if fragment.name != slot.name {
            return complete || (fragment.index.is_none() && slot.arguments.is_blank());
        }
        let brings_arguments = match &fragment.arguments {
            Piece::None => false,
            Piece::Text(text) => !text.trim().is_empty() && *text != slot.arguments.text,
            Piece::Whole(_) => true,
        };
        complete && brings_arguments && (slot.delta == self.delta || !slot.arguments.is_placeholder())
    }

    /// The calls, once nothing can change them. `id` is empty where the upstream sent none.
    pub(crate) fn finish(&mut self, ending: Ending) -> Vec<ToolCall> {
        let slots = std::mem::take(&mut self.slots);
        let last = slots.len().saturating_sub(1);
        slots.into_iter().enumerate().filter_map(|(at, slot)| slot.call(ending, at == last)).collect()
    }
}

fn set_once(field: &mut String, value: &str) {
    if field.is_empty() {
        field.push_str(value);
    }
}

impl Slot {
    fn call(self, ending: Ending, last: bool) -> Option<ToolCall> {
        if self.name.is_empty() && self.id.is_empty() && self.arguments.is_blank() {
            return None;
        }
        let whole = self.arguments.whole;
        let text = self.arguments.settle();
        let arguments = match ending {
            _ if self.name.is_empty() => Arguments::incomplete(text, "the call has no tool name"),
            Ending::Clean => Arguments::parse(text),
            Ending::Cut if whole || is_object(&text) => Arguments::parse(text),
            // A call that was followed by another one had ended; without arguments it is complete.
            Ending::Cut if text.trim().is_empty() && !last => Arguments::parse(text),
            Ending::Cut => Arguments::incomplete(text, CUT_OFF),
        };
        Some(ToolCall { id: self.id, name: self.name, arguments, rest: self.rest })
    }
}

/// A JSON object, or a JSON string that holds one.
fn is_object(text: &str) -> bool {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(_)) => true,
        Ok(Value::String(inner)) => serde_json::from_str::<Map<String, Value>>(&inner).is_ok(),
        _ => false,
    }
}

/// The argument text of one call, and whether its first JSON value has ended; linear in the text.
#[derive(Debug, Default)]
struct ArgumentText {
    text: String,
    whole: bool,
    nesting: Nesting,
    /// Where the latest piece starts.
    latest: usize,
    pieces: usize,
    /// Each piece so far began with the whole of the one before: the upstream resends instead of appending.
    cumulative: bool,
}

impl ArgumentText {
    fn whole(text: String) -> Self {
        let mut nesting = Nesting::default();
        nesting.read(text.as_bytes());
        Self { text, whole: true, nesting, ..Self::default() }
    }

    fn push(&mut self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        // Some upstreams open a call with `{}` and send the real arguments after it.
        if self.is_placeholder() && piece.trim_start().starts_with('{') {
            *self = Self::default();
        }
        self.cumulative = match self.pieces {
            0 => true,
            _ => self.cumulative && piece.starts_with(&self.text[self.latest..]),
        };
        self.pieces += 1;
        self.whole = false;
        self.latest = self.text.len();
        self.nesting.read(piece.as_bytes());
        self.text.push_str(piece);
    }

    fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    fn is_placeholder(&self) -> bool {
        self.text.len() < 8 && self.text.trim() == "{}"
    }

    fn is_complete(&self) -> bool {
        self.nesting.closed
    }

    /// The text without what the upstream sent again.
    fn settle(mut self) -> String {
        if self.pieces > 1 && self.cumulative && is_object(&self.text[self.latest..]) {
            return self.text.split_off(self.latest);
        }
        if let Some(end) = self.nesting.end
            && end < self.text.len()
        {
            let (first, second) = self.text.split_at(end);
            if first.trim() == second.trim() {
                self.text.truncate(end);
            }
        }
        self.text
    }
}

/// Follows brackets and strings of JSON text.
#[derive(Debug, Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
    read: usize,
    /// The first object or array has ended.
    closed: bool,
    /// The byte after its end.
    end: Option<usize>,
}

impl Nesting {
    fn read(&mut self, bytes: &[u8]) {
        let start = self.read;
        self.read += bytes.len();
        if self.closed {
            return;
        }
        for (at, &byte) in bytes.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.closed = true;
                        self.end = Some(start + at + 1);
                        return;
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
