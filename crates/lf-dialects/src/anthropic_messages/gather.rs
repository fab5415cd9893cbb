//! Puts content blocks together from their beginnings and deltas, whatever their kind.

use serde_json::{Map, Value};

/// An answer has a few dozen; more than this is a broken upstream.
const MAX_BLOCKS: usize = 4096;

/// The content of one message, as far as it was told. Blocks and deltas of kinds this program does not know are kept
/// with all their fields: the API demands blocks back as it sent them.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    blocks: Vec<Gathering>,
    bytes: usize,
}

#[derive(Debug)]
struct Gathering {
    index: Option<u64>,
    block: Value,
    /// JSON text of the block's input, which is whole only at the block's end.
    input: String,
    open: bool,
}

impl Gathered {
    /// Counts what is about to be added; false where it would be more than `most`.
    pub(super) fn makes_room(&mut self, bytes: usize, most: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes <= most
    }

    pub(super) fn is_full(&self) -> bool {
        self.blocks.len() >= MAX_BLOCKS
    }

    pub(super) fn start(&mut self, index: Option<u64>, block: Value) {
        let block = if block.is_object() { block } else { Map::new().into() };
        self.blocks.push(Gathering { index, block, input: String::new(), open: true });
    }

    /// The kind of the block that was begun last.
    pub(super) fn last_kind(&self) -> Option<&str> {
        self.blocks.last()?.block["type"].as_str()
    }

    /// The kind of an open block.
    pub(super) fn kind(&self, index: Option<u64>) -> Option<&str> {
        self.blocks.iter().rfind(|each| each.open && each.index == index)?.block["type"].as_str()
    }

    /// Adds to an open block; a delta of no block is left out.
    pub(super) fn delta(&mut self, index: Option<u64>, delta: &Value) {
        let Some(each) = self.blocks.iter_mut().rfind(|each| each.open && each.index == index) else {
            return;
        };
        let Some(block) = each.block.as_object_mut() else { return };
        match delta["type"].as_str().unwrap_or_default() {
            "input_json_delta" => {
                each.input.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "citations_delta" => {
                let citations = block.entry("citations").or_insert_with(|| Value::Array(Vec::new()));
                match citations.as_array_mut() {
                    Some(citations) => citations.push(delta["citation"].clone()),
                    None => *citations = Value::Array(vec![delta["citation"].clone()]),
                }
            }
            _ => delta.as_object().into_iter().flatten().for_each(|(key, value)| add(block, key, value)),
        }
    }

    /// Ends a block, and gives it; `None` where it has ended or never begun.
    pub(super) fn stop(&mut self, index: Option<u64>) -> Option<&Value> {
        let each = self.blocks.iter_mut().rfind(|each| each.open && each.index == index)?;
        each.open = false;
        let input = std::mem::take(&mut each.input);
        if !input.trim().is_empty() {
            // text that was cut off is no input; its call says so itself
            let input: Map<String, Value> = serde_json::from_str(&input).unwrap_or_default();
            each.block["input"] = input.into();
        }
        Some(&each.block)
    }

    /// The indexes of the blocks that have not ended.
    pub(super) fn open(&self) -> Vec<Option<u64>> {
        self.blocks.iter().filter(|each| each.open).map(|each| each.index).collect()
    }

    /// The blocks so far, in the order they began.
    pub(super) fn take(&mut self) -> Vec<Value> {
        self.blocks.drain(..).map(|each| each.block).collect()
    }
}

/// Texts and lists of a delta continue those of the block; anything else takes their place.
fn add(block: &mut Map<String, Value>, key: &str, value: &Value) {
    if key == "type" {
        return;
    }
    match (block.get_mut(key), value) {
        (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
        (Some(Value::Array(list)), Value::Array(more)) => list.extend(more.iter().cloned()),
        _ => {
            block.insert(key.to_owned(), value.clone());
        }
    }
}

/// Whether the core's text and calls say all of these blocks, in their order: at most one text, then calls. `fields`
/// counts those fields of a block that say something.
pub(super) fn is_plain(blocks: &[Value], fields: impl Fn(&Map<String, Value>) -> usize) -> bool {
    blocks.iter().enumerate().all(|(at, block)| {
        let fields = block.as_object().map_or(0, &fields);
        match block["type"].as_str() {
            Some("text") => at == 0 && fields == 2,
            Some("tool_use") => fields == 4 && block["input"].is_object(),
            _ => false,
        }
    })
}
