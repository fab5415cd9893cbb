//! When the model cannot be had as it was asked: the tools told in the prompt, a call read out of an error, another model
//! in its place. All of it only before anything of the answer has come.

use serde::{Deserialize, Serialize};

use crate::event::ChatEvent;
use crate::message::Message;
use crate::model::{FinishReason, ModelError, ToolChoice};
use crate::project::{Price, ToolCallStrategy};
use crate::text_calls::{self, Piece, TextEnd, TextFormat, TextScanner};
use crate::tool_set::ToolSet;

use super::AskModel;
use super::pictures;
use super::setup::shown;

/// Another model that takes over a turn: what of the turn is different with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StandIn {
    /// The name clients use for it.
    pub model: String,
    /// What the turn's own model and this one may both use.
    pub tools: ToolSet,
    pub parameters: serde_json::Map<String, serde_json::Value>,
    pub strategy: ToolCallStrategy,
    /// What it costs, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// Whether it is shown images.
    #[serde(default = "shown", skip_serializing_if = "Clone::clone")]
    pub images: bool,
    #[serde(with = "crate::text_calls::by_name")]
    pub text_formats: &'static [TextFormat],
    /// Keys of [`crate::AssistantMessage::rest`] that only the upstream before can read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sealed: Vec<String>,
}

/// What comes of an error that holds the model's own text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rescue {
    /// Its calls could be read: the answer is whole, and [`AskModel::finish`] is next.
    Answered,
    /// They could not; the same ask may do better the second time.
    AskAgain,
    /// There is nothing to rescue.
    Nothing,
}

/// The dialects that servers fail to read and report as `failed_generation`: Llama's function tags above all
/// (`freellmapi#291`).
const FAILED_FORMATS: [&str; 3] = ["llama_function_tag", "default", "llama3_json"];

impl AskModel {
    /// What nobody refused is paid for, whoever answers in the end.
    pub(super) fn refused(&mut self, error: &ModelError) {
        self.round.given_up |= error.is_given_up();
    }

    /// Whether the same ask can be made again with the tools told in the prompt: the strategy is `auto`, nothing of
    /// the answer has been seen, and the upstream says that the model has no tools.
    pub fn switch_to_prompt(&mut self, error: &ModelError) -> bool {
        let ModelError::Rejected { message, .. } = error else { return false };
        let message = message.to_lowercase();
        let about_tools = message.contains("tool") || message.contains("function");
        let refused = ["support", "enable", "unrecognized", "unknown", "not allowed", "extra inputs"]
            .iter()
            .any(|word| message.contains(word));
        if !(self.turn.may_switch && !self.turn.prompted && !self.round.begun && about_tools && refused) {
            return false;
        }
        self.turn.prompted = true;
        true
    }

    /// Reads the calls out of the refusal of an upstream that could not read them itself: a 400 `tool_use_failed` with
    /// the model's text in `failed_generation`, as Groq and its like answer.
    pub fn rescue(&mut self, error: &ModelError, events: &mut Vec<ChatEvent>) -> Rescue {
        let ModelError::Rejected { body: Some(body), .. } = error else { return Rescue::Nothing };
        let Some(text) = body.get("failed_generation").and_then(serde_json::Value::as_str) else {
            return Rescue::Nothing;
        };
        if self.round.begun || self.scanner.is_none() {
            return Rescue::Nothing;
        }
        let readings = FAILED_FORMATS.iter().filter_map(|name| text_calls::named(name));
        let found = readings.map(|formats| self.read_whole(formats, text)).find(|pieces| {
            let call = pieces.iter().any(|piece| matches!(piece, Piece::Call(_)));
            call && !pieces.iter().any(|piece| matches!(piece, Piece::Malformed { .. }))
        });
        let Some(pieces) = found else {
            return if std::mem::replace(&mut self.turn.rescued, true) {
                Rescue::Nothing
            } else {
                Rescue::AskAgain
            };
        };
        self.round.begun = true;
        self.round.came += text.len();
        self.take_pieces(pieces, events);
        self.round.finish = Some(FinishReason::ToolCalls);
        self.scanner = None;
        Rescue::Answered
    }

    fn read_whole(&self, formats: &'static [TextFormat], text: &str) -> Vec<Piece> {
        let mut scanner = TextScanner::new(formats).with_tools(self.turn.tools.specs());
        let mut pieces = scanner.push(text);
        pieces.extend(scanner.finish(TextEnd::Clean));
        pieces
    }

    /// Lets another model answer this ask and those that follow. False where it cannot: something of the answer has
    /// been seen, or the request forces a tool that the other model may not use.
    pub fn stand_in(&mut self, other: StandIn, events: &mut Vec<ChatEvent>) -> bool {
        let turn = &mut self.turn;
        let lacks = |name: &String| !other.tools.specs().iter().any(|spec| spec.name == *name);
        match &turn.request.tool_choice {
            _ if self.round.begun => return false,
            Some(ToolChoice::Tool(name)) if lacks(name) => return false,
            Some(ToolChoice::Required) if other.tools.is_empty() => return false,
            _ => {}
        }
        turn.tools = if turn.offers_results() { other.tools.with_results() } else { other.tools };
        turn.request.tools = turn.tools.specs();
        turn.request.parameters = other.parameters;
        if turn.is_last() {
            turn.ask_for_the_end();
        }
        turn.spend(&std::mem::take(&mut *self.round));
        turn.price = other.price;
        turn.images = other.images;
        turn.prompted = other.strategy == ToolCallStrategy::PromptBased;
        turn.may_switch = other.strategy == ToolCallStrategy::Auto;
        turn.text_formats = other.text_formats;
        for message in &mut turn.request.messages {
            if let Message::Assistant(said) = message {
                said.rest.retain(|key, _| !other.sealed.contains(key));
            }
        }
        self.scanner = turn.scanner();
        events.push(ChatEvent::Answering { model: other.model });
        let has = pictures::any(&turn.request.messages);
        turn.notice_pictures(has, events);
        true
    }
}
