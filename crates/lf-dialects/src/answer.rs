//! From an upstream's bytes to [`ModelDelta`]s: framing, dialect, and the rules every dialect shares about how an
//! answer ends.

mod state;
mod stops;

pub use lf_core::model::Dialect;
use lf_core::{ModelDelta, ModelError, ToolCall};

use self::state::SHOWN_BYTES;
pub(crate) use self::state::{Answer, is_reason, sanitised};
use self::stops::StopCutter;
use crate::assemble::Ending;
use crate::openai_chat::upstream_error;
use crate::sse::{LineDecoder, SseDecoder, SseEvent, TooLarge};
use crate::{ai_sdk, anthropic_messages, gemini, ollama, openai_chat, openai_responses};

/// A whole answer that was not streamed.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// Reads one answer, streamed or whole, incrementally. Text and reasoning come out at once; calls, usage and the
/// finish come out at the end. After an error nothing more comes out: no call of a broken answer may run.
#[derive(Debug)]
pub struct AnswerDecoder {
    framing: Framing,
    dialect: Dialect,
    answer: Answer,
    /// The first bytes, for an error to show.
    head: Vec<u8>,
    events: Vec<SseEvent>,
    lines: Vec<String>,
    told_anything: bool,
}

#[derive(Debug)]
enum Framing {
    /// Nothing but white space so far.
    Unknown,
    Sse(SseDecoder),
    Lines(LineDecoder),
    /// One JSON document (or, from a proxy, something else), whatever the upstream was asked for.
    Body(Vec<u8>),
}

impl AnswerDecoder {
    /// `url` is what errors name.
    pub fn new(dialect: Dialect, url: impl Into<String>) -> Self {
        Self {
            framing: Framing::Unknown,
            dialect,
            answer: Answer::new(url.into()),
            head: Vec::new(),
            events: Vec::new(),
            lines: Vec::new(),
            told_anything: false,
        }
    }

    /// Ends the answer at any of these texts, for stop sequences that the upstream was not told about.
    #[must_use]
    pub fn cut_at(mut self, stops: Vec<String>) -> Self {
        self.answer.stops = StopCutter::new(stops);
        self
    }

    /// Reads the next bytes, wherever they were cut, and appends what they tell. After an error or
    /// [`ModelDelta::Finish`] it tells nothing more.
    pub fn push(&mut self, bytes: &[u8], deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
        if self.answer.is_over() {
            return Ok(());
        }
        let result = self.read(bytes, deltas);
        self.guard(result, deltas)
    }

    /// The end of the bytes. An answer that has not ended as its dialect says it must is an error.
    pub fn finish(&mut self, deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
        if self.answer.is_over() {
            return Ok(());
        }
        let result = self.read_end(deltas);
        self.guard(result, deltas)
    }

    /// [`ModelDelta::Finish`] was told, or an error.
    pub fn is_over(&self) -> bool {
        self.answer.is_over()
    }

    /// The upstream has said why it stops; only usage and the end mark may follow. A caller that does not want to
    /// wait for them any longer calls [`Self::finish`].
    pub fn has_finish_reason(&self) -> bool {
        self.answer.raw.is_some()
    }

    /// Calls begun in an answer that broke off: for a person or a log, never to be run.
    pub fn abandoned_calls(&mut self) -> Vec<ToolCall> {
        self.answer.calls.finish(Ending::Cut)
    }

    fn guard(
        &mut self,
        result: Result<(), ModelError>,
        deltas: &mut Vec<ModelDelta>,
    ) -> Result<(), ModelError> {
        self.answer.end_cut(deltas);
        if self.answer.is_over() {
            return Ok(());
        }
        if result.is_err() {
            // what was said stays said; the calls before it do not run
            self.answer.tell_late(deltas);
        }
        self.answer.guard(result)
    }

    fn read(&mut self, bytes: &[u8], deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
        let room = SHOWN_BYTES.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        if matches!(self.framing, Framing::Unknown) {
            let Some(framing) = self.sniff() else { return Ok(()) };
            self.framing = framing;
            let seen = std::mem::take(&mut self.head);
            // What was held back while nothing was decided is white space, a mark, and at most these bytes.
            let skipped = seen.len() - room;
            self.feed(&seen[..skipped], deltas)?;
            self.head = seen;
        }
        self.feed(bytes, deltas)
    }

    /// Decides by the first byte that is neither white space nor a byte order mark.
    fn sniff(&self) -> Option<Framing> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        let head = self.head.strip_prefix(MARK).unwrap_or(&self.head);
        let first = head.trim_ascii_start().first().copied();
        if self.head.len() < MARK.len() && MARK.starts_with(&self.head) {
            return None;
        }
        match first {
            None if self.head.len() < SHOWN_BYTES => None,
            Some(b'{') if self.dialect == Dialect::Ollama => Some(Framing::Lines(LineDecoder::new())),
            Some(b'{' | b'[' | b'<') => Some(Framing::Body(Vec::new())),
            _ => Some(Framing::Sse(SseDecoder::new())),
        }
    }

    fn feed(&mut self, bytes: &[u8], deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
        match &mut self.framing {
            Framing::Unknown => Ok(()),
            Framing::Sse(decoder) => {
                let result = decoder.push(bytes, &mut self.events);
                self.read_events(deltas)?;
                result.map_err(|error| self.too_large(error))
            }
            Framing::Lines(decoder) => {
                let result = decoder.push(bytes, &mut self.lines);
                self.read_lines(deltas)?;
                result.map_err(|error| self.too_large(error))
            }
            Framing::Body(body) => {
                if body.len() + bytes.len() > MAX_BODY_BYTES {
                    return Err(self.answer.garbled(format!("a body of more than {MAX_BODY_BYTES} bytes")));
                }
                body.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn read_end(&mut self, deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
        match &mut self.framing {
            Framing::Unknown => {}
            Framing::Sse(decoder) => {
                let result = decoder.finish(&mut self.events);
                self.read_events(deltas)?;
                result.map_err(|error| self.too_large(error))?;
            }
            Framing::Lines(decoder) => {
                let result = decoder.finish(&mut self.lines);
                self.read_lines(deltas)?;
                result.map_err(|error| self.too_large(error))?;
            }
            Framing::Body(body) => {
                let body = std::mem::take(body);
                self.read_body(&body, deltas)?;
            }
        }
        if self.answer.is_over() {
            return Ok(());
        }
        if self.answer.raw.is_none() && !self.told_anything {
            let found = sanitised(&self.head);
            let found = if found.is_empty() { "an empty body".to_owned() } else { found };
            return Err(self.answer.garbled(found));
        }
        self.answer.close(deltas)
    }

    fn read_events(&mut self, deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
        for event in std::mem::take(&mut self.events) {
            self.read_data(&event.event, &event.data, deltas)?;
        }
        Ok(())
    }

    fn read_lines(&mut self, deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
        for line in std::mem::take(&mut self.lines) {
            self.read_data("", &line, deltas)?;
        }
        Ok(())
    }

    /// One document, an array of chunks, or a chunk a line.
    fn read_body(&mut self, body: &[u8], deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
        let text = String::from_utf8_lossy(body);
        let text = text.trim_start_matches('\u{feff}').trim();
        if let Ok(chunks) = serde_json::from_str::<Vec<&serde_json::value::RawValue>>(text) {
            return chunks.into_iter().try_for_each(|chunk| self.read_data("", chunk.get(), deltas));
        }
        if text.starts_with('<') {
            return Err(self.answer.garbled(sanitised(body)));
        }
        let first_line = text.lines().next().unwrap_or_default();
        if first_line.len() < text.len() && serde_json::from_str::<serde::de::IgnoredAny>(first_line).is_ok()
        {
            return text
                .lines()
                .filter(|line| !line.trim().is_empty())
                .try_for_each(|line| self.read_data("", line, deltas));
        }
        self.answer.whole = true;
        self.read_data("", text, deltas)
    }

    fn read_data(&mut self, event: &str, data: &str, deltas: &mut Vec<ModelDelta>) -> Result<(), ModelError> {
        // what follows a cut counts no more if it came in the same read
        if self.answer.is_over() || self.answer.cut || data.trim().is_empty() {
            return Ok(());
        }
        self.told_anything = true;
        if event == "error" && self.dialect != Dialect::Anthropic {
            let body = serde_json::from_str(data).unwrap_or_else(|_| data.into());
            return Err(upstream_error(&self.answer.url, &body));
        }
        let answer = &mut self.answer;
        match self.dialect {
            Dialect::OpenaiChat => openai_chat::read_chunk(answer, data, deltas),
            Dialect::OpenaiResponses => openai_responses::read_event(answer, data, deltas),
            Dialect::Anthropic => anthropic_messages::read_event(answer, data, deltas),
            Dialect::Gemini => gemini::read_chunk(answer, data, deltas),
            Dialect::Ollama => ollama::read_line(answer, data, deltas),
            Dialect::AiSdk => ai_sdk::read_event(answer, data, deltas),
        }
    }

    fn too_large(&self, error: TooLarge) -> ModelError {
        self.answer.garbled(error.to_string())
    }
}

#[cfg(test)]
pub(crate) mod tests;
