use std::collections::BTreeMap;
use std::sync::Mutex;

use futures_util::stream;
use lf_core::message::{Arguments, Prose, ToolCall};
use lf_core::model::{DeltaStream, FinishReason, ModelDelta, ModelProvider, ModelRequest};
use lf_core::project::Provider;
use lf_core::tool::{Attendant, BoxFuture, Catalogue, Tool};
use lf_core::turn::check_answers;
use lf_core::{Journal, JournalError, Message, ToolRef, ToolSet, ToolSource};
use lf_store::{Begin, Conversation, Kind, Store};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::driver::tests::{Runs, anybody};
use crate::memory::message_id;
use crate::memory::tests::unattended;

const ROUNDS: usize = 6;

/// Two calls a round for six rounds, and an answer in three pieces.
struct Script;

impl ModelProvider for Script {
    fn stream(&self, request: &ModelRequest) -> DeltaStream {
        check_answers(&request.messages).expect("every call is answered once, in order");
        let round =
            request.messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count();
        let text = |text: String| ModelDelta::Text(text);
        let mut deltas = Vec::new();
        let mut reason = FinishReason::Stop;
        if round < ROUNDS {
            reason = FinishReason::ToolCalls;
            deltas.push(text(format!("Round {round}.")));
            for side in ["left", "right"] {
                deltas.push(ModelDelta::Call(ToolCall {
                    id: format!("{round}-{side}"),
                    name: "s__walk".to_owned(),
                    arguments: Arguments::from_object(Map::from_iter([(
                        "to".to_owned(),
                        json!(format!("{round} {side}")),
                    )])),
                    rest: Map::new(),
                }));
            }
        } else {
            deltas.extend(["All ", "is ", "done."].map(|piece| text(piece.to_owned())));
        }
        deltas.push(ModelDelta::Finish { reason, raw: None, stop_sequence: None });
        // one piece at a time, as from a network
        Box::pin(stream::unfold(deltas.into_iter(), |mut deltas| async {
            tokio::task::yield_now().await;
            Some((Ok(deltas.next()?), deltas))
        }))
    }
}

/// How often each call was run.
type Walks = Arc<Mutex<BTreeMap<String, usize>>>;

/// Counts how often each call is run.
fn walking(walks: Walks) -> impl ToolSource {
    Runs(move |_: &ToolRef, arguments: &Map<String, Value>, _: &dyn Attendant| {
        let to = arguments["to"].as_str().unwrap_or_default().to_owned();
        *walks.lock().unwrap().entry(to).or_default() += 1;
        async {
            tokio::task::yield_now().await;
            "walked"
        }
    })
}

/// Where the power goes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cut {
    /// What was to be written is lost.
    Before,
    /// It is written, and nobody is told.
    After,
}

/// A journal that dies with its daemon after so many entries.
struct Dying {
    journal: TurnJournal,
    left: usize,
    cut: Cut,
    leave: CancellationToken,
}

impl Journal for Dying {
    fn append(&mut self, entry: &Entry) {
        match (self.left, self.cut) {
            (0, Cut::Before) => {}
            _ => self.journal.append(entry),
        }
        self.left = self.left.saturating_sub(1);
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            self.journal.flush().await?;
            if self.left == 0 {
                self.leave.cancel();
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    }
}

fn setup(repeatable: bool) -> Setup {
    let id = ToolRef { server: "s".into(), name: "walk".into() };
    let mut tool = Tool::new(id, None, json!({"type": "object"}).into());
    tool.repeatable = repeatable;
    let catalogue = Catalogue { tools: vec![tool], down: Vec::new() };
    Setup::new(
        &uuid::Uuid::new_v4().simple().to_string(),
        "m",
        ModelRequest { messages: vec![user()], ..ModelRequest::default() },
        ToolSet::new(&catalogue, &[], &[]),
    )
}

fn user() -> Message {
    Message::User(Prose { content: "Walk.".into(), ..Prose::default() })
}

fn with(journal: impl Journal + 'static, walks: &Walks) -> Drive {
    let upstream = Upstream {
        model: Arc::new(Model::new("m", Provider::Demo, "m", "")),
        provider: Arc::new(Script),
        stand_in: None,
    };
    Drive {
        upstreams: Upstreams::new(upstream, Vec::new(), Arc::default()),
        tools: Arc::new(walking(walks.clone())),
        authority: anybody(),
        turn_timeout: std::time::Duration::from_secs(60),
        person: None,
        approving: unattended(),
        journal: Some(Box::new(journal)),
        stop: None,
        remember: Box::new(|_| {}),
    }
}

async fn store(dir: &std::path::Path) -> Store {
    loop {
        match Store::open(dir.to_owned()).await {
            // the threads of the one before are about to end
            Err(StoreError::InUse { .. }) => tokio::task::yield_now().await,
            opened => return opened.unwrap(),
        }
    }
}

/// The events that a watcher was told.
async fn watched(running: Arc<Running>) -> Vec<ChatEvent> {
    use futures_util::StreamExt as _;
    let events: Vec<(usize, Arc<ChatEvent>)> = running.watch(0).collect().await;
    events.into_iter().map(|(_, event)| (*event).clone()).collect()
}

/// Runs the turn until the power goes, and what is left of it afterwards. How many entries there were before, and
/// whether the power went at all.
async fn survives(entries: usize, cut: Cut, repeatable: bool) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let walks = Walks::default();
    let memory = Arc::new(Memory::new(store(dir.path()).await));
    let conversation = Conversation {
        owner: String::new(),
        id: "c".to_owned(),
        scope: "a/b".to_owned(),
        kind: Kind::Conversation,
        title: None,
        system: None,
        model: None,
        created: 0,
        updated: 0,
    };
    memory.store.create(&conversation).await.unwrap();
    let setup = setup(repeatable);
    let turn = setup.id.clone();
    let said = vec![(message_id(), user())];
    let begun = Entry::Begun(Box::new(setup.clone()));
    let begin = Begin { turn: &turn, conversation: "c", said: &said, begun: &begun };
    let journal = memory.store.begin(begin).await.unwrap();
    let journal = Dying { journal, left: entries, cut, leave: memory.leave.clone() };
    let mut events = Vec::new();
    let course = Course::new(setup, &mut events);
    let running = Arc::new(Running::new(turn.clone(), "c".to_owned(), CancellationToken::new()));
    let guard = memory.line("c").lock_owned().await;
    memory.run(running.clone(), course, events, with(journal, &walks), guard);
    let told = watched(running).await;
    let died = memory.leave.is_cancelled();
    memory.drain(&CancellationToken::new()).await;
    drop(memory);

    // what was begun and not told about may have happened, and is not done again
    let memory = Arc::new(Memory::new(store(dir.path()).await));
    let record = memory.store.turn(&turn).await.unwrap().unwrap();
    assert_eq!(record.state == TurnState::Running, died);
    let mut all = told.clone();
    if died {
        let Read { mut course, mut events, entries, answering, setup, .. } =
            read(&memory, &record).await.unwrap();
        let mut journal = memory.store.journal(&record, entries);
        take_up(&mut course, &mut events, &mut journal, (&setup.tools, answering));
        let running = Arc::new(Running::new(turn.clone(), "c".to_owned(), CancellationToken::new()));
        let guard = memory.line("c").lock_owned().await;
        memory.run(running.clone(), course, events, with(journal, &walks), guard);
        all = watched(running).await;
    }
    assert!(matches!(all.last(), Some(ChatEvent::Finished { .. })), "{entries} {cut:?}: {:?}", all.last());
    assert_eq!(all[..told.len()], told, "{entries} {cut:?}: what was told is still so");
    let walks = walks.lock().unwrap().clone();
    match repeatable {
        // one that was cut off before it began was not run at all
        false => assert!(walks.values().all(|count| *count == 1), "{entries} {cut:?}: {walks:?}"),
        true => assert_eq!(walks.len(), 2 * ROUNDS, "{entries} {cut:?}: {walks:?}"),
    }
    let kept: Vec<Message> =
        memory.store.messages("c", 0).await.unwrap().into_iter().map(|kept| kept.message).collect();
    check_answers(&kept).unwrap();
    let failed = kept.iter().filter(|kept| matches!(kept, Message::Tool(result) if result.is_error)).count();
    assert!(failed <= if repeatable { 0 } else { 2 }, "{entries} {cut:?}: {kept:#?}");
    assert_eq!(kept.len(), 1 + 3 * ROUNDS + 1, "{entries} {cut:?}: {kept:#?}");
    assert_eq!(kept[0], user());
    assert!(
        matches!(&kept[3 * ROUNDS + 1], Message::Assistant(said) if said.content.text() == "All is done.")
    );
    assert_eq!(memory.store.turn(&turn).await.unwrap().unwrap().state, TurnState::Finished);
    assert_eq!(memory.store.running().await.unwrap(), []);
    let record = memory.store.turn(&turn).await.unwrap().unwrap();
    assert_eq!(super::events(&memory, &record).await.unwrap(), Some(all), "the journal tells the same");
    died
}

#[tokio::test]
async fn a_turn_survives_a_crash_at_each_of_its_entries() {
    for cut in [Cut::Before, Cut::After] {
        let mut entries = 1;
        while survives(entries, cut, false).await {
            entries += 1;
        }
        assert!(entries > 8 * ROUNDS, "{entries} entries are too few for this turn");
    }
}

#[tokio::test]
async fn a_call_that_changes_nothing_is_made_again_after_a_crash() {
    for entries in 1..40 {
        assert!(survives(entries, Cut::After, true).await);
    }
}
