//! How a stored response begins.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use futures_core::Stream;
use futures_util::StreamExt as _;
use lf_core::model::ChatRequest;
use lf_core::{ChatEvent, Message};
use lf_dialects::openai_chat::ErrorReply;
use lf_dialects::openai_responses::input_items;
use lf_store::{Conversation, Kind as ConversationKind, Response as Stored};
use serde_json::Value;

use super::{Keeper, Kind, Plan, Record, Way, reading};
use crate::app::{App, Refusal};
use crate::approvals::Attendance;
use crate::chat::Said;
use crate::memory::{Recall, Running, Saying, ago, named, unkept};
use crate::routes::answer::{Asked, Begun, Events};
use crate::routes::conversations;
use crate::routes::faces::{Head, Shown, View};

/// How long responses are kept, and bytes of all of them; the oldest go first.
const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);
const KEPT: i64 = 1024 * 1024 * 1024;
/// So many are begun between two looks for old ones.
const LOOK_EVERY: usize = 64;

impl Keeper {
    /// Begins to keep the response of a turn that is its client's; nothing where nothing is to be kept. One that cannot be
    /// stored is told of, unless its client insists.
    ///
    /// # Errors
    /// Where it cannot be stored and the client insists.
    pub(in super::super) async fn begin(
        &self,
        head: &mut Head,
        request: &Bytes,
        plan: Plan,
        said: Arc<Said>,
    ) -> Result<(Option<Record>, Option<String>), ErrorReply> {
        let View::Responses(view) = &head.view else { return Ok((None, None)) };
        let completion = head.response(view);
        let kind = match plan.way {
            Way::Aside(aside) => Kind::Aside { aside, id: head.id.clone(), before: plan.before },
            Way::Bound => {
                let body = completion.response();
                let stored = self.row(head, request, plan.previous.as_deref(), body);
                let made = self.app.making.begin(&head.id);
                let asked = said.asked.get().cloned().unwrap_or_default();
                let asked = named(whole(&stored, &plan.before, asked));
                let alone = self.alone(&stored, &head.model).await;
                let begun = match alone {
                    Ok(alone) => self.store(&stored, alone.as_ref(), &asked).await,
                    Err(refusal) => Err(refusal),
                };
                if let Err(refusal) = begun {
                    let View::Responses(view) = &mut head.view else { return Ok((None, None)) };
                    return self.do_without(view, &refusal).map(|notice| (None, Some(notice)));
                }
                Kind::Stored { app: self.app.clone(), stored: Box::new(stored), made }
            }
            Way::Unkept | Way::Background | Way::Conversation(_) => return Ok((None, None)),
        };
        Ok((Some(Record { completion: Some(completion), said, kind }), None))
    }

    fn row(&self, head: &Head, request: &Bytes, previous: Option<&Stored>, body: Value) -> Stored {
        let turn = head.id.strip_prefix("resp_").unwrap_or(&head.id).to_owned();
        // what goes on from a response of a kept conversation is no part of that
        let chain = previous.filter(|previous| previous.conversation.starts_with(CHAIN));
        Stored {
            id: head.id.clone(),
            scope: self.scope.clone(),
            conversation: chain
                .map_or_else(|| format!("{CHAIN}{turn}"), |previous| previous.conversation.clone()),
            previous: chain.map(|previous| previous.id.clone()),
            turn,
            body,
            input: input_items(request, &head.id).into(),
            head: None,
            created: conversations::now(),
        }
    }

    /// The conversation that begins with a response that goes on from none.
    async fn alone(&self, stored: &Stored, model: &str) -> Result<Option<Conversation>, Refusal> {
        if stored.previous.is_some() {
            return Ok(None);
        }
        let (project, _) = self.app.find_model(self.project.as_ref(), Some(model)).await?;
        Ok(Some(Conversation {
            id: stored.conversation.clone(),
            scope: format!("{}/{}", project.namespace, project.name),
            kind: ConversationKind::Response,
            title: None,
            system: None,
            model: None,
            created: stored.created,
            updated: stored.created,
        }))
    }

    async fn store(
        &self,
        stored: &Stored,
        alone: Option<&Conversation>,
        said: &[(String, Message)],
    ) -> Result<(), Refusal> {
        let memory = self.app.memory()?;
        memory.store.begin_response(stored, alone, said).await.map_err(|error| unkept(&error))?;
        if self.app.making.count().is_multiple_of(LOOK_EVERY) {
            let app = self.app.clone();
            memory.later(async move { forget_old(&app).await });
        }
        Ok(())
    }
}

/// What the names of conversations of responses begin with.
const CHAIN: &str = "resp-";

async fn forget_old(app: &App) {
    let Ok(memory) = app.memory() else { return };
    match memory.store.old_responses(ago(KEPT_FOR), KEPT).await {
        Ok(old) => {
            for response in old {
                if let Err(refusal) = reading::remove(app, &response).await {
                    tracing::warn!(response = response.id, %refusal, "an old response cannot be deleted");
                    return;
                }
            }
        }
        Err(error) => tracing::warn!(%error, "cannot look for old responses"),
    }
}

impl Asked {
    /// A turn that goes on by itself, whoever watches, and after a crash.
    pub(in super::super) async fn in_background(
        &self,
        request: ChatRequest,
        view: View,
        plan: Plan,
        body: &Bytes,
    ) -> Result<Begun, ErrorReply> {
        let (conversation, _) = plan.conversation(&view);
        let begun = async {
            let app = &self.shared.app;
            let memory = app.memory()?;
            let left = app.left_for(self.scope.as_ref(), &request).await?;
            let mut prepared = app.prepare(self.scope.as_ref(), request, conversation).await?;
            let head = Head::new(&prepared.setup.id, prepared.setup.model.clone(), view, self.told());
            let mut stored = self.keeper.row(&head, body, plan.previous.as_deref(), Value::Null);
            show(&head, &mut stored);
            let alone = self.keeper.alone(&stored, &head.model).await?;
            // nothing of the conversation is deleted before this one is whole; then turns that branch do not wait for each other
            let settled = memory.turn_to_speak(&stored.conversation).await?;
            let own = memory.turn_to_speak(&stored.id).await?;
            self.keeper.store(&stored, alone.as_ref(), &[]).await?;
            let asked = named(whole(&stored, &plan.before, prepared.asked.clone()));
            let going = async {
                if let Some(left) = left {
                    prepared.setup.waiting = Some(app.take_left(left).await?);
                }
                let guards = (settled, own);
                app.set_going(prepared, &stored.conversation, asked, Attendance::HandedOver, guards).await
            };
            let running = going.await;
            if running.is_err() {
                let _ = memory.store.delete_response(&stored.scope, &stored.id).await;
            }
            Ok::<_, Refusal>((running?, head, stored))
        };
        let (running, head, stored) = begun.await.map_err(|refusal| self.caller.refused(&refusal))?;
        if !head.view.streams() {
            return Ok(Begun::Aside(stored.body));
        }
        let (events, ..) = self.started(self.watched(running)?).await?;
        Ok(Begun::Turn(events, Box::new(head)))
    }

    /// A turn of a kept conversation.
    pub(in super::super) async fn in_conversation(
        &self,
        id: &str,
        request: ChatRequest,
        view: View,
        body: &Bytes,
    ) -> Result<Begun, ErrorReply> {
        let View::Responses(asked) = view else { return Ok(Begun::Aside(Value::Null)) };
        let (calls_left, is_stored) = (asked.max_tool_calls, asked.store);
        let recalled = Arc::new(Mutex::new(asked.clone()));
        let known = recalled.clone();
        let recall: Recall = Arc::new(move |request, earlier| {
            let mut view = asked.clone();
            view.recall_tools(request, earlier).map_err(Refusal::from)?;
            *known.lock().unwrap_or_else(PoisonError::into_inner) = view;
            Ok(())
        });
        let begun = async {
            let conversation = conversations::find(&self.shared, id).await?;
            if !self.keeper.scope.is_empty() && conversation.scope != self.keeper.scope {
                return Err(Refusal::UnknownConversation(id.to_owned()));
            }
            let project = self.shared.app.project_of(&conversation.scope).await?;
            let attendance = Attendance::HandedOver;
            let recall = Some(recall);
            let saying = Saying { request, chosen_tools: false, calls_left, attendance, recall };
            self.shared.app.converse(Some(&project), &conversation, saying).await
        };
        let running = begun.await.map_err(|refusal| self.caller.refused(&refusal))?;
        let (events, turn, model) = self.started(self.watched(running)?).await?;
        let view = recalled.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let head = Head::new(&turn, model, View::Responses(view), self.told());
        let mut notice = None;
        if is_stored {
            let mut stored = self.keeper.row(&head, body, None, Value::Null);
            id.clone_into(&mut stored.conversation);
            show(&head, &mut stored);
            // the turn is kept, whether or not this way to it is
            let kept = self.keeper.store(&stored, None, &[]).await;
            notice = kept.err().map(|refusal| format!("this response is not stored: {refusal}"));
        }
        let notice = futures_util::stream::iter(notice.map(ChatEvent::Notice));
        Ok(Begun::Turn(Box::pin(notice.chain(events)), Box::new(head)))
    }

    fn watched(&self, running: Arc<Running>) -> Result<Events, ErrorReply> {
        let memory = self.shared.app.memory().map_err(|refusal| self.caller.refused(&refusal))?;
        Ok(numbered(memory.watch(running, 0)))
    }
}

/// What is kept with a response: what came before only where no earlier response of its chain has it.
fn whole(stored: &Stored, before: &[Message], mut asked: Vec<Message>) -> Vec<Message> {
    if stored.previous.is_none() {
        asked.splice(0..0, before.iter().cloned());
    }
    asked
}

/// The events of a turn that goes on by itself. Without progress, which is not kept: whoever comes back finds the same
/// events under the same numbers.
pub(super) fn numbered(events: impl Stream<Item = (usize, Arc<ChatEvent>)> + Send + 'static) -> Events {
    let events = events.map(|(_, event)| (*event).clone());
    Box::pin(events.filter(|event| std::future::ready(!matches!(event, ChatEvent::CallProgress { .. }))))
}

/// Keeps with a response how it is to be shown.
fn show(head: &Head, stored: &mut Stored) {
    let View::Responses(view) = &head.view else { return };
    stored.body = head.response(view).response();
    let shown =
        Shown { view: (**view).clone(), created: head.created, model: head.model.clone(), told: head.told };
    stored.head = serde_json::to_value(shown).ok();
}
