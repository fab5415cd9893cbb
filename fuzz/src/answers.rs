//! Streams: the framing, and the answers in it.

use lf_core::{ModelDelta, ModelError, ToolCall};
use lf_dialects::sse::{LineDecoder, SseDecoder, SseEvent, TooLarge};
use lf_dialects::{AnswerDecoder, Dialect};
use serde_json::{Map, Value, json};

use super::sizes;

/// An answer whose bytes hold this is read with stop sequences.
const STOP: &str = "END";

/// Events and lines are the same wherever the bytes are cut, and no longer than the bytes.
pub fn sse(bytes: &[u8]) {
    let (events, lines) = (events(bytes, usize::MAX), lines(bytes, usize::MAX));
    for size in sizes(bytes) {
        assert_eq!(self::events(bytes, size), events, "cut into {size}");
        assert_eq!(self::lines(bytes, size), lines, "cut into {size}");
    }
    // a byte that is no UTF-8 becomes three
    let most = 3 * bytes.len();
    assert!(events.0.iter().map(|event| event.event.len() + event.data.len()).sum::<usize>() <= most);
    assert!(lines.0.iter().map(String::len).sum::<usize>() <= most);
    assert!(lines.0.iter().all(|line| !line.contains(['\n', '\r'])));
}

fn events(bytes: &[u8], size: usize) -> (Vec<SseEvent>, Result<(), TooLarge>) {
    let mut decoder = SseDecoder::new();
    let mut events = Vec::new();
    let result = bytes.chunks(size).try_for_each(|piece| decoder.push(piece, &mut events));
    let result = result.and_then(|()| decoder.finish(&mut events));
    (events, result)
}

fn lines(bytes: &[u8], size: usize) -> (Vec<String>, Result<(), TooLarge>) {
    let mut decoder = LineDecoder::new();
    let mut lines = Vec::new();
    let result = bytes.chunks(size).try_for_each(|piece| decoder.push(piece, &mut lines));
    let result = result.and_then(|()| decoder.finish(&mut lines));
    (lines, result)
}

/// An answer is the same wherever its bytes are cut, ends once, says nothing after its end, runs no call once it has
/// failed, and is not much longer than its bytes.
pub fn answer(dialect: Dialect, bytes: &[u8]) {
    let whole = Told::read(dialect, bytes, usize::MAX);
    whole.check(bytes);
    for size in sizes(bytes) {
        assert_eq!(Told::read(dialect, bytes, size), whole, "cut into {size}");
    }
}

#[derive(Debug, PartialEq)]
struct Told {
    deltas: Vec<ModelDelta>,
    error: Option<ModelError>,
    abandoned: Vec<ToolCall>,
}

impl Told {
    fn read(dialect: Dialect, bytes: &[u8], size: usize) -> Self {
        let stops = bytes.windows(STOP.len()).any(|window| window == STOP.as_bytes());
        let stops = if stops { vec![STOP.to_owned(), "\n\n#".to_owned()] } else { Vec::new() };
        let mut decoder = AnswerDecoder::new(dialect, "http://up").cut_at(stops);
        let mut deltas = Vec::new();
        let result = bytes.chunks(size).try_for_each(|piece| decoder.push(piece, &mut deltas));
        let result = result.and_then(|()| decoder.finish(&mut deltas));
        assert!(decoder.is_over(), "an end that is none");
        let told = deltas.len();
        assert_eq!(decoder.push(bytes, &mut deltas), Ok(()));
        assert_eq!(decoder.finish(&mut deltas), Ok(()));
        assert_eq!(deltas.len(), told, "something after the end");
        let abandoned = decoder.abandoned_calls();
        Self { deltas: joined(deltas), error: result.err(), abandoned }
    }

    fn check(&self, bytes: &[u8]) {
        let count = |test: fn(&ModelDelta) -> bool| self.deltas.iter().filter(|delta| test(delta)).count();
        let finishes = count(|delta| matches!(delta, ModelDelta::Finish { .. }));
        let calls = count(|delta| matches!(delta, ModelDelta::Call(_)));
        assert!(count(|delta| matches!(delta, ModelDelta::State(_))) <= 1);
        match &self.error {
            None => {
                assert_eq!(finishes, 1);
                assert!(matches!(self.deltas.last(), Some(ModelDelta::Finish { .. })));
                assert_eq!(self.abandoned, []);
            }
            Some(error) => {
                assert_eq!((finishes, calls), (0, 0), "{error}");
                assert!(error.to_string().len() <= 4 * bytes.len() + 1024);
            }
        }
        let abandoned = self.abandoned.iter().map(call_size);
        let size: usize = self.deltas.iter().map(delta_size).chain(abandoned).sum();
        assert!(size <= 16 * bytes.len() + 4096, "{} bytes became {size}", bytes.len());
    }
}

/// Where text was cut into deltas is no part of the answer.
fn joined(deltas: Vec<ModelDelta>) -> Vec<ModelDelta> {
    let mut joined: Vec<ModelDelta> = Vec::new();
    for delta in deltas {
        match (joined.last_mut(), delta) {
            (Some(ModelDelta::Text(text)), ModelDelta::Text(more)) => text.push_str(&more),
            (Some(ModelDelta::Reasoning(text)), ModelDelta::Reasoning(more)) => text.push_str(&more),
            (_, delta) => joined.push(delta),
        }
    }
    joined
}

fn delta_size(delta: &ModelDelta) -> usize {
    match delta {
        ModelDelta::Text(text) | ModelDelta::Reasoning(text) | ModelDelta::Notice(text) => text.len(),
        ModelDelta::Call(call) => call_size(call),
        ModelDelta::Native(native) => native.item.to_string().len(),
        ModelDelta::State(state) => json!(state).to_string().len(),
        ModelDelta::Usage(_) => 0,
        ModelDelta::Finish { raw, stop_sequence, .. } => {
            raw.as_ref().map_or(0, String::len) + stop_sequence.as_ref().map_or(0, String::len)
        }
    }
}

fn call_size(call: &ToolCall) -> usize {
    let replayed = call.arguments.for_replay();
    assert!(serde_json::from_str::<Map<String, Value>>(&replayed).is_ok(), "{replayed}");
    call.id.len()
        + call.name.len()
        + call.arguments.raw().len()
        + replayed.len()
        + json!(call.rest).to_string().len()
}
