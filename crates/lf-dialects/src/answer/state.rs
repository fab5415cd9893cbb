//! What is known of an answer while it is read, and the rules every dialect shares about how it ends.

use indexmap::IndexSet;
use lf_core::model::Native;
use lf_core::{FinishReason, ModelDelta, ModelError, Usage};
use serde_json::{Map, Value};

use super::stops::StopCutter;
use crate::anthropic_messages::Gathered;
use crate::assemble::{Assembler, Ending, Fragment, TooMuch};
use crate::openai_responses;

/// How much of what cannot be read is shown.
pub(super) const SHOWN_BYTES: usize = 200;

/// The first characters of an answer that makes no sense, without control characters.
pub(crate) fn sanitised(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN_BYTES)]);
    let words =
        text.split(|char: char| char.is_whitespace() || char.is_control()).filter(|word| !word.is_empty());
    let mut shown = words.collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = shown.char_indices().nth(SHOWN_BYTES) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// What every dialect fills in while an answer is read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) url: String,
    pub(crate) calls: Assembler,
    /// The latest count: upstreams that send several send running totals.
    pub(crate) usage: Option<Usage>,
    reason: Option<FinishReason>,
    /// The upstream's spelling of why it stops.
    pub(super) raw: Option<String>,
    /// Text after the first call that has a name: the call comes before it.
    late: String,
    pub(super) stops: StopCutter,
    /// A sequence of ours ended the text: what the upstream says after it does not count.
    pub(super) cut: bool,
    /// The stop sequence that ended the text, where one is known.
    pub(crate) stop_sequence: Option<String>,
    told_text: bool,
    told_reasoning: bool,
    /// Text or reasoning came in deltas: a message that follows them repeats it.
    pub(crate) streamed_text: bool,
    pub(crate) streamed_reasoning: bool,
    /// The bytes are one document and not a stream.
    pub(super) whole: bool,
    /// The answer may end here although no reason was given: the dialect has none, or the document is whole.
    pub(crate) complete: bool,
    /// Ids of calls whose end the dialect has yet to tell.
    pub(crate) open_calls: IndexSet<String>,
    /// What must come back with the message.
    pub(crate) state: Map<String, Value>,
    /// Anthropic: the content as it came.
    pub(crate) gathered: Gathered,
    /// OpenAI Responses: the items so far.
    pub(crate) responses: openai_responses::Reading,
    over: bool,
}

impl Answer {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            calls: Assembler::default(),
            usage: None,
            reason: None,
            raw: None,
            late: String::new(),
            stops: StopCutter::default(),
            cut: false,
            stop_sequence: None,
            told_text: false,
            told_reasoning: false,
            streamed_text: false,
            streamed_reasoning: false,
            whole: false,
            complete: false,
            open_calls: IndexSet::new(),
            state: Map::new(),
            gathered: Gathered::default(),
            responses: openai_responses::Reading::default(),
            over: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn guard(&mut self, result: Result<(), ModelError>) -> Result<(), ModelError> {
        self.over |= result.is_err();
        result
    }

    pub(crate) fn text(&mut self, text: impl Into<String>, deltas: &mut Vec<ModelDelta>) {
        let text = text.into();
        if !text.is_empty() {
            self.told_text = true;
            if self.cut {
                return;
            }
            let (text, stop) = self.stops.push(text);
            if stop.is_some() {
                self.cut = true;
                self.stop_sequence = stop;
            }
            self.tell(text, deltas);
        }
    }

    fn tell(&mut self, text: String, deltas: &mut Vec<ModelDelta>) {
        if text.is_empty() {
            return;
        }
        if self.calls.any_named() {
            self.late.push_str(&text);
        } else {
            deltas.push(ModelDelta::Text(text));
        }
    }

    /// Tells the text that waited, for calls or for the rest of a stop sequence.
    pub(super) fn tell_late(&mut self, deltas: &mut Vec<ModelDelta>) {
        let held = self.stops.finish();
        self.late.push_str(&held);
        if !self.late.is_empty() {
            deltas.push(ModelDelta::Text(std::mem::take(&mut self.late)));
        }
    }

    /// A message as such, not a piece of one: in a document of its own it is the whole answer.
    pub(crate) fn whole_message(&mut self) {
        self.complete |= self.whole;
    }

    pub(crate) fn reasoning(&mut self, text: impl Into<String>, deltas: &mut Vec<ModelDelta>) {
        let text = text.into();
        if !text.is_empty() && !self.cut {
            self.told_reasoning = true;
            deltas.push(ModelDelta::Reasoning(text));
        }
    }

    /// Something that only the upstream's own dialect has, after all text so far.
    pub(crate) fn native(&mut self, native: Native, deltas: &mut Vec<ModelDelta>) {
        if self.cut {
            return;
        }
        // what begins like a stop sequence does not go on behind this
        let held = self.stops.finish();
        self.tell(held, deltas);
        deltas.push(ModelDelta::Native(native));
    }

    pub(crate) fn call(&mut self, fragment: Fragment<'_>) -> Result<(), ModelError> {
        if self.cut {
            return Ok(());
        }
        self.calls.add(fragment).map_err(|TooMuch| self.too_many_calls())
    }

    /// A call that may repeat one that came in pieces; `place` is its position in the message.
    pub(crate) fn whole_call(&mut self, place: usize, fragment: Fragment<'_>) -> Result<(), ModelError> {
        if self.cut {
            return Ok(());
        }
        self.calls.complete(place, fragment).map_err(|TooMuch| self.too_many_calls())
    }

    fn too_many_calls(&self) -> ModelError {
        self.garbled("more tool calls or arguments than any answer has".to_owned())
    }

    /// What was told so far came in deltas.
    pub(crate) fn mark_streamed(&mut self) {
        self.streamed_text |= self.told_text;
        self.streamed_reasoning |= self.told_reasoning;
    }

    /// Notes why the upstream stops. Of several reasons, one that cuts the answer wins, else the first.
    pub(crate) fn finish_reason(&mut self, raw: &str) -> Result<(), ModelError> {
        if raw.is_empty() {
            return Ok(());
        }
        let reason = match finish_reason(raw) {
            Some(reason) => reason,
            None => {
                let message = format!("the answer ended with finish reason `{raw}`");
                return Err(ModelError::Failed {
                    url: self.url.clone(),
                    status: 200,
                    message,
                    retry_after: None,
                });
            }
        };
        let cuts = |reason| matches!(reason, FinishReason::Length | FinishReason::ContentFilter);
        if self.reason.is_none_or(|earlier| cuts(reason) && !cuts(earlier)) {
            self.reason = Some(reason);
            self.raw = Some(raw.to_owned());
        }
        Ok(())
    }

    /// The dialect's end mark. Without any answer before it, it hides an error.
    pub(crate) fn end_mark(&mut self, deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
        if self.raw.is_none() && !self.told_text && !self.told_reasoning && self.calls.is_empty() {
            return Err(self.garbled("an end mark without an answer".to_owned()));
        }
        self.end(deltas);
        Ok(())
    }

    /// Ends an answer that a stop sequence of ours has cut, without waiting for the upstream: its counts stay unknown
    /// where they come last.
    pub(super) fn end_cut(&mut self, deltas: &mut Vec<ModelDelta>) {
        if self.cut && !self.over {
            self.reason = Some(FinishReason::Stop);
            self.raw = Some("stop".to_owned());
            self.end(deltas);
        }
    }

    fn end(&mut self, deltas: &mut Vec<ModelDelta>) {
        let reason = self.reason.unwrap_or(FinishReason::Stop);
        let ending = match reason {
            FinishReason::Length | FinishReason::ContentFilter => Ending::Cut,
            // a call that was still growing when we cut
            _ if self.cut => Ending::Cut,
            FinishReason::Stop | FinishReason::ToolCalls => Ending::Clean,
        };
        if self.late.is_empty() {
            let held = self.stops.finish();
            deltas.extend((!held.is_empty()).then_some(ModelDelta::Text(held)));
        }
        let calls = self.calls.finish(ending);
        let reason = match reason {
            FinishReason::Stop if !calls.is_empty() => FinishReason::ToolCalls,
            FinishReason::ToolCalls if calls.is_empty() => FinishReason::Stop,
            reason => reason,
        };
        deltas.extend(calls.into_iter().map(ModelDelta::Call));
        self.tell_late(deltas);
        // of an answer that was cut it says more than the client is shown
        if !self.state.is_empty() && !self.cut {
            deltas.push(ModelDelta::State(std::mem::take(&mut self.state)));
        }
        deltas.extend(self.usage.map(ModelDelta::Usage));
        let stop_sequence = self.stop_sequence.take();
        deltas.push(ModelDelta::Finish { reason, raw: self.raw.clone(), stop_sequence });
        self.over = true;
    }

    /// The end of the bytes: good only where the upstream has said why it stops.
    pub(super) fn close(&mut self, deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
        if self.raw.is_none() && !self.complete {
            return Err(ModelError::Garbled {
                url: self.url.clone(),
                expected: "whole answer".into(),
                found: "a stream that ended without a finish reason".to_owned(),
            });
        }
        self.end(deltas);
        Ok(())
    }

    pub(crate) fn garbled(&self, found: String) -> ModelError {
        ModelError::Garbled { url: self.url.clone(), expected: "model answer".into(), found }
    }

    pub(crate) fn not_json(&self, data: &str, error: &serde_json::Error) -> ModelError {
        self.garbled(format!("{} ({error})", sanitised(data.as_bytes())))
    }
}

/// Whether a word is a reason, and no stop sequence of a client's.
pub(crate) fn is_reason(word: &str) -> bool {
    matches!(word, "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" | "stop_token")
        || finish_reason(word) != Some(FinishReason::Stop)
}

/// The canonical reason for every spelling seen; `None` for those that say the answer failed. What is not known
/// counts as an ordinary stop: the answer is there.
fn finish_reason(raw: &str) -> Option<FinishReason> {
    Some(match raw.to_ascii_lowercase().as_str() {
        "tool_calls" | "tool_call" | "tool-calls" | "function_call" | "tool_use" => FinishReason::ToolCalls,
        "length"
        | "max_tokens"
        | "max_output_tokens"
        | "incomplete"
        | "model_length"
        | "model_context_window_exceeded" => FinishReason::Length,
        "content_filter"
        | "content-filter"
        | "sensitive"
        | "safety"
        | "recitation"
        | "refusal"
        | "blocklist"
        | "prohibited_content"
        | "spii"
        | "image_safety"
        | "language"
        | "image_prohibited_content"
        | "image_recitation" => FinishReason::ContentFilter,
        "error"
        | "network_error"
        | "insufficient_system_resource"
        | "malformed_function_call"
        | "malformed_response"
        | "unexpected_tool_call"
        | "too_many_tool_calls"
        | "missing_thought_signature" => {
            return None;
        }
        _ => FinishReason::Stop,
    })
}
