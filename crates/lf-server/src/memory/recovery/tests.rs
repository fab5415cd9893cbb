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
use lf_test_postgres::{Database, Postgres};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::authority::Errand;
use crate::driver::tests::Runs;
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
    let catalogue = Catalogue { tools: vec![tool], ..Catalogue::default() };
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
        check: Arc::new(crate::rules::Recorded),
        errand: Errand::default(),
        shelf: Shelf::default(),
        charge: Charge::default(),
        turn_timeout: std::time::Duration::from_secs(60),
        person: None,
        approving: unattended(),
        journal: Some(Box::new(journal)),
        stop: None,
        remember: Box::new(|_| {}),
    }
}

/// Where the daemons of a test keep their turns.
enum Home {
    Directory(tempfile::TempDir),
    Database(Database),
}

impl Home {
    fn sqlite() -> Self {
        Self::Directory(tempfile::tempdir().unwrap())
    }

    fn postgres() -> Self {
        Self::Database(Postgres::shared().database())
    }

    /// Of the next daemon.
    async fn memory(&self) -> Arc<Memory> {
        let dir = match self {
            Self::Directory(dir) => dir.path(),
            Self::Database(database) => {
                return Arc::new(Memory::new(Store::shared(&database.url().into(), &[]).unwrap()));
            }
        };
        loop {
            match Store::open(dir.to_owned()).await {
                // the threads of the one before are about to end
                Err(StoreError::InUse { .. }) => tokio::task::yield_now().await,
                opened => return Arc::new(Memory::new(opened.unwrap())),
            }
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
async fn survives(home: &Home, entries: usize, cut: Cut, repeatable: bool) -> bool {
    let walks = Walks::default();
    let memory = home.memory().await;
    let id = uuid::Uuid::new_v4().simple().to_string();
    let conversation = Conversation {
        owner: String::new(),
        id: id.clone(),
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
    let begin = Begin { turn: &turn, conversation: &id, said: &said, begun: &begun, after: None };
    let journal = memory.store.begin(begin).await.unwrap();
    let journal = Dying { journal, left: entries, cut, leave: memory.leave.clone() };
    let mut events = Vec::new();
    let course = Course::new(setup, &mut events);
    let running = Arc::new(Running::new(turn.clone(), id.clone(), CancellationToken::new()));
    let guard = memory.line(&id).lock_owned().await;
    memory.run(running.clone(), course, events, with(journal, &walks), guard);
    let told = watched(running).await;
    let died = memory.leave.is_cancelled();
    memory.drain(&CancellationToken::new()).await;
    drop(memory);

    // what was begun and not told about may have happened, and is not done again
    let memory = home.memory().await;
    let record = memory.store.turn(&turn).await.unwrap().unwrap();
    assert_eq!(record.state == TurnState::Running, died);
    let mut all = told.clone();
    if died {
        assert!(memory.store.take_over(&turn).await.unwrap(), "the daemon before is dead");
        let Read { mut course, mut events, entries, setup, .. } = read(&memory, &record).await.unwrap();
        let mut journal = memory.store.journal(&record, entries);
        take_up(&mut course, &mut events, &mut journal, &setup.tools);
        let running = Arc::new(Running::new(turn.clone(), id.clone(), CancellationToken::new()));
        let guard = memory.line(&id).lock_owned().await;
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
        memory.store.messages(&id, 0).await.unwrap().into_iter().map(|kept| kept.message).collect();
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

/// Cuts at each entry, from this one on in steps.
async fn survives_everywhere(home: Home, first: usize, step: usize) {
    for cut in [Cut::Before, Cut::After] {
        let mut entries = first;
        while survives(&home, entries, cut, false).await {
            entries += step;
        }
        assert!(entries > 8 * ROUNDS, "{entries} entries are too few for this turn");
    }
}

#[tokio::test]
async fn a_turn_survives_a_crash_at_each_of_its_entries() {
    survives_everywhere(Home::sqlite(), 1, 1).await;
}

#[tokio::test]
async fn a_turn_in_postgres_survives_a_crash_at_each_of_its_entries() {
    // each commit waits for the disk: side by side, in databases of their own
    let lanes = 6;
    let all = (1..=lanes).map(|first| survives_everywhere(Home::postgres(), first, lanes));
    futures_util::future::join_all(all).await;
}

#[tokio::test]
async fn a_call_that_changes_nothing_is_made_again_after_a_crash() {
    for home in [Home::sqlite(), Home::postgres()] {
        for entries in 1..40 {
            assert!(survives(&home, entries, Cut::After, true).await);
        }
    }
}
