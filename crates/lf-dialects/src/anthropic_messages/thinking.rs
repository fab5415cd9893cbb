//! How much a Claude model is to think, in the words of its generation.

use lf_core::{Message, ModelRequest, ToolChoice};
use serde_json::Value;

use super::encode::kept;

/// What a model takes. Facts: Anthropic's guides "Extended thinking", "Adaptive thinking" and "Effort".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Generation {
    /// Before Claude 3.7: does not think.
    Unthinking,
    /// Claude 3.7 up to 4.1, Haiku and Sonnet 4.5: a budget of tokens.
    Budget,
    /// Opus 4.5, and models whose names say nothing: `output_config.effort`.
    Effort,
    /// From 4.6 on: effort, and thinking that the model measures itself.
    Adaptive,
    /// From Opus 4.7 on: the same, with `xhigh`.
    AdaptiveXhigh,
    /// Fable and Mythos: the same, and they never stop thinking.
    Always,
}

/// Reads the name, however a reseller spells it: `claude-sonnet-4-20250514`, `anthropic/claude-3.7-sonnet`,
/// `eu.anthropic.claude-opus-4-1-20250805-v1:0`.
pub(super) fn generation(model: &str) -> Generation {
    let model = model.to_ascii_lowercase();
    let Some((_, name)) = model.split_once("claude") else { return Generation::Effort };
    if name.contains("fable") || name.contains("mythos") {
        return Generation::Always;
    }
    let mut words = name.split(|char: char| !char.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let number = |word: &str| word.parse::<u32>().ok().filter(|_| word.len() <= 2);
    let Some(major) = words.by_ref().find_map(number) else { return Generation::Effort };
    let minor = words.next().and_then(number).unwrap_or(0);
    match (major, minor) {
        (0..=2, _) | (3, 0..=6) => Generation::Unthinking,
        (3, _) | (4, 0..=4) => Generation::Budget,
        (4, 5) if name.contains("opus") => Generation::Effort,
        (4, 5) => Generation::Budget,
        (4, 6) => Generation::Adaptive,
        _ => Generation::AdaptiveXhigh,
    }
}

/// `output_config.effort` for OpenAI's word.
pub(super) fn effort(word: &str, generation: Generation) -> &str {
    match (word, generation) {
        ("minimal", _) => "low",
        ("xhigh", Generation::Adaptive) => "max",
        ("xhigh", Generation::Effort) => "high",
        (word, _) => word,
    }
}

/// The fewest tokens that may be thought.
const MIN_BUDGET: u64 = 1024;

/// Tokens for OpenAI's word, and the limit of the answer, which counts them too. `None` where the limit of the caller's
/// leaves no room.
pub(super) fn budget(word: &str, asked: Option<u64>, default: u64) -> Option<(u64, u64)> {
    let wanted = match word {
        "minimal" => MIN_BUDGET,
        "low" => 2048,
        "medium" => 8192,
        "high" => 16_384,
        // with the answer it must stay below 32,000, the limit of Opus 4
        _ => 24_576,
    };
    let Some(limit) = asked else { return Some((wanted, wanted.saturating_add(default))) };
    // a quarter at least is for the answer
    let budget = wanted.min(limit - limit / 4);
    (budget >= MIN_BUDGET && budget < limit).then_some((budget, limit))
}

/// A call is forced: the API refuses that together with thinking.
pub(super) fn is_forced(request: &ModelRequest) -> bool {
    matches!(request.tool_choice, Some(ToolChoice::Required | ToolChoice::Tool(_)))
}

/// A parameter that the API refuses together with thinking.
pub(super) fn sampling(request: &ModelRequest) -> Option<&'static str> {
    let number = |key: &str| request.parameters.get(key).and_then(Value::as_f64);
    let given = |key: &str, fine: fn(f64) -> bool| number(key).is_some_and(|value| !fine(value));
    if given("temperature", |temperature| temperature == 1.0) {
        return Some("temperature");
    }
    if given("top_p", |top_p| (0.95..=1.0).contains(&top_p)) {
        return Some("top_p");
    }
    given("top_k", |_| false).then_some("top_k")
}

/// Whether the conversation stands within a round of calls that began without thinking, or whose thinking was lost:
/// with a budget such a round cannot go on thinking.
pub(super) fn goes_on_without(messages: &[Message]) -> bool {
    let last = messages.iter().rev().find(|message| !matches!(message, Message::Tool(_)));
    let Some(Message::Assistant(said)) = last else { return false };
    let first = kept(&said.rest).and_then(|kept| kept.get("content")).and_then(|content| content.get(0));
    !first.is_some_and(|block| block["type"] == "thinking" || block["type"] == "redacted_thinking")
}
