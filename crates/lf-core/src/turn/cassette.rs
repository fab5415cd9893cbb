//! A cassette: a turn that was recorded, as lines of JSON. The first says that it is one, the others are the turn's
//! [`Entry`] values. Told to a [`Course`], they are the turn again: its events, what the model was asked and said, and what
//! its tools answered.
//!
//! Pure: reading and writing files is for the adapters.

mod compare;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::event::ChatEvent;
use crate::model::{ModelDelta, ModelError, ModelRequest};
use crate::tool::{Tool, ToolError, ToolOutput, ToolRef};
use crate::tool_set::Target;

use super::{Course, Entry, OutOfPlace, Planned, Setup, Step};

pub use compare::{RoundDifference, first_difference, request_difference};

/// The format that is written and read.
pub const VERSION: u64 = 1;

/// A whole cassette, of which every line can be told to the turn that it begins with.
#[derive(Debug)]
pub struct Cassette {
    pub setup: Setup,
    /// What happened, the beginning included.
    pub entries: Vec<Entry>,
    /// What clients were told; reports of progress are not recorded.
    pub events: Vec<ChatEvent>,
    /// Every ask that was answered, refused or cut off, in order.
    pub asks: Vec<RecordedAsk>,
    /// Every call that has an outcome, in the order in which they ended.
    pub calls: Vec<RecordedCall>,
    /// False when the recording ends before the turn does.
    pub is_over: bool,
}

/// One ask, and what came of it.
#[derive(Debug)]
pub struct RecordedAsk {
    pub request: ModelRequest,
    pub answer: Vec<ModelDelta>,
    /// How the answer ended.
    pub end: AskEnd,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AskEnd {
    Whole,
    Failed(ModelError),
    /// Somebody stopped the turn, or the recording ends here.
    Cut,
}

/// One call, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    pub tool: ToolRef,
    pub arguments: Map<String, Value>,
    pub outcome: Result<ToolOutput, ToolError>,
}

/// Why a text is no cassette that can be played.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CassetteError {
    #[error("it is no cassette: its first line is not `{{\"cassette\":{VERSION}, …}}`")]
    NotACassette,
    #[error("it is a cassette of version {found}, and this program reads version {VERSION}")]
    OtherVersion { found: u64 },
    #[error("line {line} is cut off")]
    CutOff { line: usize },
    #[error("line {line} cannot be read: {reason}")]
    Unreadable { line: usize, reason: String },
    /// The line is right by itself, and cannot be at its place.
    #[error("line {line} does not belong there: {source}")]
    OutOfPlace { line: usize, source: OutOfPlace },
    #[error("line 2 is not the beginning of a turn (`{{\"begun\": …}}`)")]
    NoBeginning,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Label<'a> {
    cassette: u64,
    turn: &'a str,
    model: &'a str,
}

/// The first line of a turn's cassette, without the end of the line.
pub fn label(setup: &Setup) -> String {
    json(&Label { cassette: VERSION, turn: &setup.id, model: &setup.model })
}

/// One entry as a line, without the end of the line.
pub fn line(entry: &Entry) -> String {
    json(entry)
}

fn json(value: &impl Serialize) -> String {
    // values of the core have text keys alone, so that there is nothing that JSON could not say
    serde_json::to_string(value).unwrap_or_default()
}

impl Cassette {
    /// Reads a cassette, and plays it to see that it is right.
    ///
    /// # Errors
    /// [`CassetteError`], with the line.
    pub fn parse(text: &str) -> Result<Self, CassetteError> {
        let (label, rest) = text.split_once('\n').unwrap_or((text, ""));
        let version = serde_json::from_str::<Value>(label).ok().and_then(|label| label["cassette"].as_u64());
        match version {
            None => return Err(CassetteError::NotACassette),
            Some(VERSION) => {}
            Some(found) => return Err(CassetteError::OtherVersion { found }),
        }
        let mut entries = Vec::new();
        for (at, line) in rest.split_inclusive('\n').enumerate() {
            entries.push(read(at + 2, line)?);
        }
        Self::play(entries)
    }

    fn play(entries: Vec<Entry>) -> Result<Self, CassetteError> {
        let Some(Entry::Begun(setup)) = entries.first() else { return Err(CassetteError::NoBeginning) };
        let setup = Setup::clone(setup);
        let mut player = Player::new(setup.clone());
        for (at, entry) in entries.iter().enumerate().skip(1) {
            player.tell(entry).map_err(|source| CassetteError::OutOfPlace { line: at + 2, source })?;
        }
        let Player { course, events, mut asks, calls, open, .. } = player;
        asks.extend(open);
        let is_over = matches!(course.step(), Step::Done(_));
        Ok(Self { setup, entries, events, asks, calls, is_over })
    }

    /// The tools that the turn had and this program ran.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.setup.tools.iter().filter_map(|(_, target)| match target {
            Target::Source(tool) => Some(tool),
            Target::Client(_) => None,
        })
    }

    /// The recorded ask that takes the place of the one at this position (from 0).
    ///
    /// # Errors
    /// What is different about it, as a fragment.
    pub fn ask(&self, position: usize, request: &ModelRequest) -> Result<&RecordedAsk, String> {
        let number = position + 1;
        let Some(ask) = self.asks.get(position) else {
            return Err(format!("ask {number} is one more than were recorded"));
        };
        let Some(difference) = request_difference(&ask.request, request) else { return Ok(ask) };
        // a turn that goes on after a restart begins in the middle
        let later = || self.asks.iter().find(|ask| request_difference(&ask.request, request).is_none());
        match later().filter(|_| position == 0) {
            Some(ask) => Ok(ask),
            None => Err(format!("ask {number} is not the recorded one: {difference}")),
        }
    }
}

fn read(line: usize, text: &str) -> Result<Entry, CassetteError> {
    let Some(whole) = text.strip_suffix('\n') else { return Err(CassetteError::CutOff { line }) };
    serde_json::from_str(whole).map_err(|error| match error.is_eof() {
        true => CassetteError::CutOff { line },
        false => CassetteError::Unreadable { line, reason: error.to_string() },
    })
}

/// Tells a turn what was recorded, and keeps what is said on the way.
struct Player {
    course: Course,
    events: Vec<ChatEvent>,
    asks: Vec<RecordedAsk>,
    calls: Vec<RecordedCall>,
    /// The ask that is being answered.
    open: Option<RecordedAsk>,
    /// The entry before this one was a refusal.
    is_refused: bool,
}

impl Player {
    fn new(setup: Setup) -> Self {
        let mut events = Vec::new();
        let course = Course::new(setup, &mut events);
        Self { course, events, asks: Vec::new(), calls: Vec::new(), open: None, is_refused: false }
    }

    fn tell(&mut self, entry: &Entry) -> Result<(), OutOfPlace> {
        match (self.course.step(), entry) {
            (Step::AskModel(_), Entry::Delta(delta)) => self.asked().answer.push(delta.clone()),
            (Step::AskModel(_), Entry::Answered) => self.asked().end = AskEnd::Whole,
            (Step::AskModel(_), Entry::Refused(error)) => self.asked().end = AskEnd::Failed(error.clone()),
            // after a refusal it only says that there is no other way
            (Step::AskModel(_), Entry::Failed(error)) if !self.is_refused => {
                self.asked().end = AskEnd::Failed(error.clone());
            }
            // what was said of the answer is void
            (Step::AskModel(_), Entry::Interrupted) => self.open = None,
            (Step::RunTools(run), Entry::Settled { call, outcome, .. }) => {
                if let Some(planned) = run.calls().get(*call)
                    && let Planned::Run(tool) = &planned.plan
                {
                    let arguments = planned.call.arguments.value().cloned().unwrap_or_default();
                    self.calls.push(RecordedCall { tool: tool.clone(), arguments, outcome: outcome.clone() });
                }
            }
            _ => {}
        }
        self.course.take(entry.clone(), &mut self.events)?;
        self.is_refused = matches!(entry, Entry::Refused(_));
        if self.is_refused || matches!(entry, Entry::Answered) {
            self.asks.extend(self.open.take());
        }
        Ok(())
    }

    /// The ask that is being answered: the first of its entries opens it.
    fn asked(&mut self) -> &mut RecordedAsk {
        let course = &self.course;
        self.open.get_or_insert_with(|| {
            let request = match course.step() {
                Step::AskModel(ask) => ask.request().into_owned(),
                _ => ModelRequest::default(),
            };
            RecordedAsk { request, answer: Vec::new(), end: AskEnd::Cut }
        })
    }
}

#[cfg(test)]
mod tests;
