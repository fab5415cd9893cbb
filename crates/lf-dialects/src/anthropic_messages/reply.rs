//! Writes whole answers.

use lf_core::ChatEvent;
use serde_json::{Map, Value, json};

use super::gather::Gathered;
use super::request::MessagesView;
use super::shown::{BlockStep, MessageEnd, Shown};
use super::{error_reply, internal_error_reply};
use crate::openai_chat::{ErrorReply, LfEvents, lf_event};

/// Folds the events of a turn into one `message` object.
#[derive(Debug)]
pub struct Completion {
    id: String,
    model: String,
    lf_events: LfEvents,
    shown: Shown,
    content: Gathered,
    /// Blocks begun so far.
    blocks: u64,
    told: Vec<Value>,
    end: Option<Result<MessageEnd, lf_core::ModelError>>,
}

impl Completion {
    pub fn new(id: &str, model: &str, view: MessagesView, lf_events: LfEvents) -> Self {
        Self {
            id: id.to_owned(),
            model: model.to_owned(),
            lf_events,
            shown: Shown::new(view.thinking),
            content: Gathered::default(),
            blocks: 0,
            told: Vec::new(),
            end: None,
        }
    }

    pub fn push(&mut self, event: &ChatEvent) {
        if self.end.is_some() {
            return;
        }
        let mut steps = Vec::new();
        match event {
            ChatEvent::Finished { reason, usage, stop_sequence, .. } => {
                let end = self.shown.end(*reason, usage, stop_sequence.as_deref(), &mut steps);
                self.end = Some(Ok(end));
            }
            ChatEvent::Failed(error) => self.end = Some(Err(error.clone())),
            event => self.shown.event(event, &mut steps),
        }
        steps.into_iter().for_each(|step| self.step(step));
        if let ChatEvent::Answering { model } = event {
            self.model.clone_from(model);
        }
        // only a running client can use progress
        if self.lf_events == LfEvents::Told && !matches!(event, ChatEvent::CallProgress { .. }) {
            self.told.extend(lf_event(event));
        }
    }

    fn step(&mut self, step: BlockStep) {
        match step {
            BlockStep::Start(block) => {
                self.blocks += 1;
                self.content.start(Some(self.blocks), block);
            }
            BlockStep::Delta(delta) => self.content.delta(Some(self.blocks), &delta),
            BlockStep::Stop => {
                self.content.stop(Some(self.blocks));
            }
        }
    }

    /// The body for status 200, or the error the turn ended with. A turn that has no end is an error of ours.
    pub fn finish(mut self, request_id: &str) -> Result<Value, ErrorReply> {
        let Some(end) = self.end else {
            return Err(internal_error_reply(500, "the turn ended without an answer", request_id));
        };
        let end = end.map_err(|error| error_reply(&error, request_id))?;
        let mut body = Map::new();
        body.insert("id".to_owned(), self.id.into());
        body.insert("type".to_owned(), "message".into());
        body.insert("role".to_owned(), "assistant".into());
        body.insert("model".to_owned(), self.model.into());
        body.insert("content".to_owned(), self.content.take().into());
        body.extend(end.delta);
        for (key, value) in end.beside {
            body.entry(key).or_insert(value);
        }
        body.insert("usage".to_owned(), end.usage);
        if !self.told.is_empty() {
            body.insert("lf".to_owned(), json!({"events": self.told}));
        }
        Ok(body.into())
    }
}
