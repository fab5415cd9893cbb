//! A turn as our clients see it: content blocks one after the other, streamed or not.

use lf_core::model::Dialect;
use lf_core::{ChatEvent, FinishReason, ToolCall, Usage};
use serde_json::{Map, Value, json};

use super::OWN_SIGNATURE;
use super::encode::kept;
use super::request::ThinkingView;

/// A step in the life of the blocks. They follow each other; deltas and ends are those of the block begun last.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum BlockStep {
    Start(Value),
    Delta(Value),
    Stop,
}

/// What the blocks are made of so far.
#[derive(Debug)]
pub(super) struct Shown {
    thinking: ThinkingView,
    open: Option<Open>,
    /// White space that begins a block of text, held until the block has something to say: one of white space alone is
    /// refused by Anthropic when it comes back.
    blank: String,
    called: bool,
    /// The upstream's own word for why it stopped, if nothing followed it.
    stop_reason: Option<Value>,
    /// Further fields of the end: of `delta`, and beside it.
    delta: Map<String, Value>,
    beside: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Text,
    Thinking,
}

/// How a message ends.
#[derive(Debug)]
pub(super) struct MessageEnd {
    /// `stop_reason`, `stop_sequence`, and what the upstream says beside them.
    pub(super) delta: Map<String, Value>,
    pub(super) beside: Map<String, Value>,
    pub(super) usage: Value,
}

impl Shown {
    pub(super) fn new(thinking: ThinkingView) -> Self {
        Self {
            thinking,
            open: None,
            blank: String::new(),
            called: false,
            stop_reason: None,
            delta: Map::new(),
            beside: Map::new(),
        }
    }

    pub(super) fn event(&mut self, event: &ChatEvent, out: &mut Vec<BlockStep>) {
        match event {
            ChatEvent::Text(text) => self.text(text, out),
            ChatEvent::Reasoning(text) => self.reasoning(text, out),
            ChatEvent::Native(native) if native.dialect == Dialect::Anthropic => {
                self.native(&native.item, out);
            }
            // the signature of another model's thinking must not end up with this
            ChatEvent::Answering { .. } if self.open == Some(Open::Thinking) => self.close(out),
            ChatEvent::ClientCalls(calls) => calls.iter().for_each(|call| self.call(call, out)),
            _ => {}
        }
    }

    /// The end of a turn that went well.
    pub(super) fn end(
        &mut self,
        reason: FinishReason,
        usage: &Usage,
        stop_sequence: Option<&str>,
        out: &mut Vec<BlockStep>,
    ) -> MessageEnd {
        self.close(out);
        let mut delta = write_stop(reason, self.called, stop_sequence);
        if let Some(own) = self.stop_reason.take()
            && (delta["stop_reason"] == "end_turn" || is_length(&own) && delta["stop_reason"] == "max_tokens")
        {
            delta.insert("stop_reason".to_owned(), own);
        }
        for (key, value) in std::mem::take(&mut self.delta) {
            delta.entry(key).or_insert(value);
        }
        MessageEnd { delta, beside: std::mem::take(&mut self.beside), usage: write_usage(usage) }
    }

    fn text(&mut self, text: &str, out: &mut Vec<BlockStep>) {
        self.stop_reason = None;
        if self.open == Some(Open::Text) {
            out.push(BlockStep::Delta(json!({"type": "text_delta", "text": text})));
            return;
        }
        self.blank.push_str(text);
        if !self.blank.trim_start().is_empty() {
            self.start_text(out);
        }
    }

    /// Begins a text with what was held of it.
    fn start_text(&mut self, out: &mut Vec<BlockStep>) {
        let text = std::mem::take(&mut self.blank);
        self.start(json!({"type": "text", "text": ""}), out);
        self.open = Some(Open::Text);
        if !text.is_empty() {
            out.push(BlockStep::Delta(json!({"type": "text_delta", "text": text})));
        }
    }

    fn reasoning(&mut self, text: &str, out: &mut Vec<BlockStep>) {
        self.stop_reason = None;
        if self.thinking == ThinkingView::Hidden {
            return;
        }
        self.start_thinking(out);
        out.push(BlockStep::Delta(json!({"type": "thinking_delta", "thinking": text})));
    }

    fn start_thinking(&mut self, out: &mut Vec<BlockStep>) {
        if self.open != Some(Open::Thinking) {
            self.start(json!({"type": "thinking", "thinking": "", "signature": ""}), out);
            self.open = Some(Open::Thinking);
        }
    }

    /// What an Anthropic upstream said beyond the core's values.
    fn native(&mut self, item: &Value, out: &mut Vec<BlockStep>) {
        match item["type"].as_str().unwrap_or_default() {
            // also where the thinking itself is not shown: the API does the same
            "signature_delta" => {
                self.start_thinking(out);
                self.sign(item["signature"].as_str().unwrap_or(OWN_SIGNATURE), out);
            }
            "citations_delta" => {
                if self.open != Some(Open::Text) {
                    self.start_text(out);
                }
                out.push(BlockStep::Delta(item.clone()));
            }
            "content_block_stop" => self.close(out),
            "message_delta" => self.ending(item),
            _ => self.whole(item, out),
        }
    }

    fn ending(&mut self, item: &Value) {
        for (key, value) in item["delta"].as_object().into_iter().flatten() {
            match key.as_str() {
                "stop_reason" => self.stop_reason = Some(value.clone()),
                _ => drop(self.delta.insert(key.clone(), value.clone())),
            }
        }
        for (key, value) in item.as_object().into_iter().flatten() {
            if !["type", "delta", "usage"].contains(&key.as_str()) {
                self.beside.insert(key.clone(), value.clone());
            }
        }
    }

    /// A block of a kind that is told at once.
    fn whole(&mut self, block: &Value, out: &mut Vec<BlockStep>) {
        if !block.is_object() {
            return;
        }
        let mut block = block.clone();
        // the API streams the input of every kind of call
        let calls = block["type"].as_str().is_some_and(|kind| kind.ends_with("tool_use"));
        let input = block.get_mut("input").filter(|input| calls && input.is_object());
        let input = input.map(|input| std::mem::replace(input, json!({})).to_string());
        self.start(block, out);
        if let Some(input) = input {
            out.push(BlockStep::Delta(json!({"type": "input_json_delta", "partial_json": input})));
        }
        out.push(BlockStep::Stop);
    }

    fn call(&mut self, call: &ToolCall, out: &mut Vec<BlockStep>) {
        self.called = true;
        let mut block = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        for (key, value) in kept(&call.rest).into_iter().flatten() {
            block[key.as_str()] = value.clone();
        }
        self.start(block, out);
        let input = match call.arguments.value() {
            // the model's own bytes, where they are an object
            Ok(_) => call.arguments.for_replay(),
            Err(_) => "{}".to_owned(),
        };
        out.push(BlockStep::Delta(json!({"type": "input_json_delta", "partial_json": input})));
        out.push(BlockStep::Stop);
    }

    /// Begins a block, after the end of the one before.
    fn start(&mut self, block: Value, out: &mut Vec<BlockStep>) {
        self.close(out);
        out.push(BlockStep::Start(block));
    }

    fn close(&mut self, out: &mut Vec<BlockStep>) {
        self.blank.clear();
        match self.open {
            None => {}
            Some(Open::Thinking) => self.sign(OWN_SIGNATURE, out),
            Some(Open::Text) => {
                self.open = None;
                out.push(BlockStep::Stop);
            }
        }
    }

    /// Ends the thinking.
    fn sign(&mut self, signature: &str, out: &mut Vec<BlockStep>) {
        self.open = None;
        out.push(BlockStep::Delta(json!({"type": "signature_delta", "signature": signature})));
        out.push(BlockStep::Stop);
    }
}

fn is_length(stop_reason: &Value) -> bool {
    stop_reason == "model_context_window_exceeded"
}

pub(super) fn write_usage(usage: &Usage) -> Value {
    json!({
        // Anthropic counts apart what came from the cache and what went there
        "input_tokens": usage.input.saturating_sub(usage.cached).saturating_sub(usage.cache_written),
        "cache_creation_input_tokens": usage.cache_written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    })
}

/// `stop_reason` and `stop_sequence`; `called`: calls for the client were told.
fn write_stop(reason: FinishReason, called: bool, stop_sequence: Option<&str>) -> Map<String, Value> {
    let reason = match reason {
        FinishReason::Length => "max_tokens",
        FinishReason::ContentFilter => "refusal",
        FinishReason::Stop | FinishReason::ToolCalls if called => "tool_use",
        FinishReason::Stop | FinishReason::ToolCalls if stop_sequence.is_some() => "stop_sequence",
        FinishReason::Stop | FinishReason::ToolCalls => "end_turn",
    };
    let stop_sequence = stop_sequence.filter(|_| reason == "stop_sequence");
    let mut stop = Map::new();
    stop.insert("stop_reason".to_owned(), reason.into());
    stop.insert("stop_sequence".to_owned(), stop_sequence.into());
    stop
}
