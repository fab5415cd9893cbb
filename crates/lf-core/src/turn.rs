//! A turn, from a request to its answer, as a state machine held by value. It decides and never waits: the driver
//! asks models, runs tools and hands back what they said.
//!
//! [`start`] gives the first [`AskModel`]; each step is consumed by what it makes possible, so a wrong order of calls
//! does not compile. Everything a client may see comes out as [`ChatEvent`]s.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::event::ChatEvent;
use crate::message::{AssistantMessage, Content, Message, Prose, ToolCall};
use crate::model::{FinishReason, ModelDelta, ModelError, ModelRequest, ToolChoice, Usage};
use crate::policy::Labels;
use crate::project::{Limits, Price, ToolCallStrategy};
use crate::prompting;
use crate::results::KeptResult;
use crate::text_calls::{Piece, TextCall, TextEnd, TextFormat, TextScanner};
use crate::tool::ToolRef;
use crate::tool_set::ToolSet;

mod approval;
pub mod cassette;
mod course;
mod ending;
mod judging;
mod keeping;
mod other_ways;
mod output;
mod over;
mod pictures;
mod plan;
mod resume;
mod run;
mod setup;

pub use approval::{Ask, AskPerson, Decision, Verdict, Waiting, refusal};
pub use course::{Course, Entry, OutOfPlace, Taken};
pub use ending::{Limit, Spent};
pub use judging::{Before, Judge, Judged, Ran, Standing, denial, seen_in};
pub use other_ways::{Rescue, StandIn};
pub use output::{Cut, result_for_model};
pub use over::Done;
pub use plan::{Planned, PlannedCall};
pub use resume::{Resume, answer_in_order, check_answers, put_back, size_of};
pub use run::RunTools;
use run::say;
pub use setup::Setup;

/// Calls of one message of a model, which native ones cannot exceed.
const MAX_CALLS: usize = 1024;

/// What the driver does next.
#[derive(Debug)]
pub enum Step {
    AskModel(AskModel),
    Judge(Judge),
    AskPerson(AskPerson),
    RunTools(RunTools),
    Done(Done),
}

/// What lives as long as the turn.
#[derive(Debug)]
struct Turn {
    id: String,
    /// `messages` grows by what each round said; `tool_choice` is the first round's.
    request: ModelRequest,
    /// How many of the messages are the request's own.
    given: usize,
    tools: ToolSet,
    prompted: bool,
    may_switch: bool,
    /// The upstream was asked again because of a call of the model's that it could not read.
    rescued: bool,
    /// What the adapter had to say.
    noticed: Vec<String>,
    text_formats: &'static [TextFormat],
    limits: Limits,
    calls_left: Option<u64>,
    always: Vec<ToolRef>,
    judged: bool,
    seen: Labels,
    /// Finished rounds, the last answer not counted.
    rounds: u32,
    ended_by: Option<Limit>,
    limit_told: bool,
    usage: Usage,
    spent: Spent,
    price: Option<Price>,
    images: bool,
    /// Calls minted an id so far.
    minted: u32,
    repeats: HashMap<String, u32>,
    /// Text was shown in an earlier round and the next text belongs apart from it.
    apart: bool,
    /// What was wrong with calls of the running round that could not be read, while others of it could.
    unread: Vec<String>,
    /// The number of the last handle that stands in the conversation.
    handles: u32,
    /// Results that were cut, until they are taken to be kept.
    cut: Vec<KeptResult>,
}

/// Starts a turn by asking the model.
pub fn start(setup: Setup, events: &mut Vec<ChatEvent>) -> AskModel {
    AskModel::new(begin(setup, events))
}

fn begin(setup: Setup, events: &mut Vec<ChatEvent>) -> Box<Turn> {
    events.push(ChatEvent::Started { turn: setup.id.clone(), model: setup.model });
    let mut request = setup.request;
    request.tools = setup.tools.specs();
    let mut turn = Box::new(Turn {
        id: setup.id,
        given: request.messages.len(),
        request,
        tools: setup.tools,
        prompted: setup.strategy == ToolCallStrategy::PromptBased,
        may_switch: setup.strategy == ToolCallStrategy::Auto,
        rescued: false,
        noticed: Vec::new(),
        text_formats: setup.text_formats,
        limits: setup.limits,
        calls_left: setup.calls_left,
        always: setup.always,
        judged: setup.judged,
        seen: setup.seen,
        rounds: 0,
        ended_by: None,
        limit_told: false,
        usage: Usage::default(),
        spent: Spent::default(),
        price: setup.price,
        images: setup.images,
        minted: 0,
        repeats: HashMap::new(),
        apart: false,
        unread: Vec::new(),
        handles: 0,
        cut: Vec::new(),
    });
    turn.offer_what_was_cut();
    let has = pictures::any(&turn.request.messages);
    turn.notice_pictures(has, events);
    turn
}

/// The model is to be asked, and is answering.
#[derive(Debug)]
pub struct AskModel {
    turn: Box<Turn>,
    scanner: Option<Box<TextScanner>>,
    round: Box<Round>,
}

/// What the model said in this round.
#[derive(Debug, Default)]
struct Round {
    text: String,
    reasoning: String,
    calls: Vec<RawCall>,
    malformed: Vec<Malformed>,
    finish: Option<FinishReason>,
    stop_sequence: Option<String>,
    usage: Usage,
    /// A piece of the answer has come.
    begun: bool,
    /// Bytes of the answer, also of what is held back.
    came: usize,
    /// It was given up before its end: it is paid for all the same, by estimate where nobody says how much it was.
    given_up: bool,
    /// What must come back with the message.
    state: serde_json::Map<String, serde_json::Value>,
    /// Text after a call: it is shown after the call, once it is known who runs it.
    late: String,
}

/// A call as it was read, before it is planned.
#[derive(Debug)]
struct RawCall {
    call: ToolCall,
    /// Given apart from the name, by the `<tool_use>` format.
    server: Option<String>,
}

impl Round {
    /// Told once, however many there are.
    fn too_many_calls(&mut self) {
        let problem = format!("a message may have {MAX_CALLS} calls; what came after them was not run");
        if self.malformed.last().is_none_or(|last| last.problem != problem) {
            self.malformed.push(Malformed { raw: String::new(), problem });
        }
    }
}

#[derive(Debug)]
struct Malformed {
    raw: String,
    problem: String,
}

impl AskModel {
    fn new(mut turn: Box<Turn>) -> Self {
        if turn.is_last() {
            turn.ask_for_the_end();
        } else if turn.rounds > 0
            && matches!(turn.request.tool_choice, Some(ToolChoice::Required | ToolChoice::Tool(_)))
        {
            // a forced call is forced once: kept, it would never let the model answer
            turn.request.tool_choice = Some(ToolChoice::Auto);
        }
        let scanner = turn.scanner();
        Self { turn, scanner, round: Box::default() }
    }

    /// What to ask.
    pub fn request(&self) -> Cow<'_, ModelRequest> {
        let mut request = match self.turn.prompted {
            true => Cow::Owned(prompting::as_text(&self.turn.request)),
            false => Cow::Borrowed(&self.turn.request),
        };
        if !self.turn.images && pictures::any(&request.messages) {
            pictures::as_notes(&mut request.to_mut().messages);
        }
        request
    }

    /// Takes a piece of the answer.
    pub fn push(&mut self, delta: ModelDelta, events: &mut Vec<ChatEvent>) {
        self.round.begun |= !matches!(delta, ModelDelta::Notice(_));
        self.round.came += match &delta {
            ModelDelta::Text(text) | ModelDelta::Reasoning(text) => text.len(),
            ModelDelta::Call(call) => call.arguments.raw().len(),
            _ => 0,
        };
        match delta {
            ModelDelta::Notice(text) => self.turn.notice(text, events),
            ModelDelta::Text(text) => match &mut self.scanner {
                Some(scanner) => {
                    let pieces = scanner.push(&text);
                    self.take_pieces(pieces, events);
                }
                None => self.show(text, events),
            },
            ModelDelta::Reasoning(text) => self.reason(text, events),
            ModelDelta::Call(call) => self.round.calls.push(RawCall { call, server: None }),
            ModelDelta::Usage(usage) => self.round.usage = usage,
            ModelDelta::Native(native) => events.push(ChatEvent::Native(native)),
            ModelDelta::State(state) => self.round.state.extend(state),
            ModelDelta::Finish { reason, stop_sequence, .. } => {
                self.round.finish = Some(reason);
                self.round.stop_sequence = stop_sequence;
            }
        }
    }

    fn take_pieces(&mut self, pieces: Vec<Piece>, events: &mut Vec<ChatEvent>) {
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.show(text, events),
                Piece::Reasoning(text) => self.reason(text, events),
                Piece::Call(call) if self.round.calls.len() < MAX_CALLS => {
                    self.round.calls.push(raw_call(call));
                }
                Piece::Call(_) => self.round.too_many_calls(),
                Piece::Malformed { raw, problem } => self.round.malformed.push(Malformed { raw, problem }),
            }
        }
    }

    fn show(&mut self, text: String, events: &mut Vec<ChatEvent>) {
        if text.is_empty() {
            return;
        }
        self.round.text.push_str(&text);
        if !self.round.calls.is_empty() {
            self.round.late.push_str(&text);
            return;
        }
        if std::mem::take(&mut self.turn.apart) && !text.starts_with(char::is_whitespace) {
            events.push(ChatEvent::Text(format!("\n\n{text}")));
        } else {
            events.push(ChatEvent::Text(text));
        }
    }

    fn reason(&mut self, text: String, events: &mut Vec<ChatEvent>) {
        if !text.is_empty() {
            self.round.reasoning.push_str(&text);
            events.push(ChatEvent::Reasoning(text));
        }
    }

    /// The answer could not be had, or broke off: nothing of it runs or stays, and the turn is over.
    pub fn fail(mut self, error: ModelError, events: &mut Vec<ChatEvent>) -> Done {
        self.flush(TextEnd::Cut, events);
        self.round.show_late(events);
        self.round.given_up |= self.round.begun || error.is_given_up();
        self.turn.count(&self.round);
        self.turn.fail(error, events)
    }

    /// The person does not want to hear more: what was shown is what was said, and nothing runs.
    pub fn stop(mut self, events: &mut Vec<ChatEvent>) -> Done {
        self.flush(TextEnd::Cut, events);
        let Self { turn, mut round, .. } = self;
        round.given_up = true;
        round.show_late(events);
        turn.stop(*round, events)
    }

    /// The answer is whole.
    pub fn finish(mut self, events: &mut Vec<ChatEvent>) -> Step {
        let cut = matches!(self.round.finish, Some(FinishReason::Length | FinishReason::ContentFilter));
        self.flush(if cut { TextEnd::Cut } else { TextEnd::Clean }, events);
        let Self { mut turn, mut round, .. } = self;
        // an answer that began after a limit was reached is the last one, whatever it takes
        let is_last = turn.is_last();
        turn.count(&round);
        turn.apart = !round.text.is_empty() && !round.text.ends_with(char::is_whitespace) || turn.apart;
        let runnable = round.calls.iter().any(|raw| raw.call.arguments.value().is_ok());
        let forbidden = turn.request.tool_choice == Some(ToolChoice::None);
        if is_last || forbidden || (cut && !runnable) {
            round.show_late(events);
            return Step::Done(turn.answer(*round, events));
        }
        if !round.calls.is_empty() {
            let calls = std::mem::take(&mut round.calls);
            turn.unread = round.malformed.drain(..).map(|malformed| malformed.problem).collect();
            return plan::plan(turn, *round, calls, events);
        }
        if round.malformed.is_empty() {
            return Step::Done(turn.answer(*round, events));
        }
        turn.report_malformed(*round, events);
        Step::AskModel(Self::new(turn))
    }

    /// What the model had said of its answer is void; it is asked again.
    fn begin_again(&mut self, events: &mut Vec<ChatEvent>) {
        self.round.given_up = true;
        self.turn.spend(&self.round);
        self.turn.apart |= !self.round.text.is_empty();
        if !self.round.text.is_empty() || !self.round.reasoning.is_empty() {
            events.push(ChatEvent::Notice("the answer was interrupted and begins again".to_owned()));
        }
        *self.round = Round::default();
        self.scanner = self.turn.scanner();
    }

    fn flush(&mut self, end: TextEnd, events: &mut Vec<ChatEvent>) {
        if let Some(mut scanner) = self.scanner.take() {
            let pieces = scanner.finish(end);
            self.take_pieces(pieces, events);
        }
    }
}

impl Round {
    fn show_late(&mut self, events: &mut Vec<ChatEvent>) {
        if !self.late.is_empty() {
            events.push(ChatEvent::Text(std::mem::take(&mut self.late)));
        }
    }
}

fn raw_call(call: TextCall) -> RawCall {
    RawCall {
        call: ToolCall {
            id: call.id.unwrap_or_default(),
            name: call.name,
            arguments: call.arguments,
            rest: serde_json::Map::new(),
        },
        server: call.server,
    }
}

impl Turn {
    /// Said once in a turn, however many rounds it has.
    fn notice(&mut self, text: String, events: &mut Vec<ChatEvent>) {
        if !self.noticed.contains(&text) {
            self.noticed.push(text.clone());
            events.push(ChatEvent::Notice(text));
        }
    }

    fn scanner(&self) -> Option<Box<TextScanner>> {
        // "none" is a promise to the client: text is not even looked at for calls
        (!self.tools.is_empty() && self.request.tool_choice != Some(ToolChoice::None))
            .then(|| Box::new(TextScanner::new(self.text_formats).with_tools(self.tools.specs())))
    }

    /// Tells the model that what looks like its calls could not be read, so that it can send them again.
    fn report_malformed(&mut self, round: Round, events: &mut Vec<ChatEvent>) {
        let mut said = round.text;
        let mut problems = String::new();
        for malformed in &round.malformed {
            said.push_str(&malformed.raw);
            problems.push_str("\n- ");
            problems.push_str(&malformed.problem);
        }
        self.request.messages.push(Message::Assistant(AssistantMessage {
            content: said.into(),
            reasoning: some_text(round.reasoning),
            ..AssistantMessage::default()
        }));
        let report = format!(
            "<tool_response>\nError: the tool call could not be read, so nothing was run:{problems}\nSend the whole \
             call again, with valid JSON.\n</tool_response>"
        );
        self.end_round();
        let mut content = Content::Text(report);
        if let Some(note) = self.tell_limit(events) {
            say(&mut content, &note);
        }
        self.request.messages.push(Message::User(Prose { content, ..Prose::default() }));
    }

    /// Counts a round of calls; the ask after the last one is for the answer.
    fn end_round(&mut self) {
        self.rounds += 1;
        if self.rounds >= self.limits.rounds {
            self.reach(Limit::Rounds(self.limits.rounds));
        }
    }

    fn mint_id(&mut self) -> String {
        self.minted += 1;
        format!("call_{}{:02}", self.id.get(..24).unwrap_or(&self.id), self.minted)
    }
}

fn some_text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
