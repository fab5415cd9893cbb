use lf_core::message::{AssistantMessage, Prose};
use lf_core::model::ModelRequest;
use lf_core::turn::{Course, Entry, Setup, Step, Waiting};
use lf_core::{Journal as _, Message, ModelDelta, ToolRef, ToolSet};
use lf_test_postgres::{Database, Postgres};

use super::*;
use crate::{StoreError, TurnState};

/// Runs each of these on both databases.
macro_rules! on_both_stores {
    ($($test:ident,)*) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Bench::sqlite().await).await;
            })*
        }

        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(super::Bench::postgres()).await;
            })*
        }
    };
}

on_both_stores! {
    a_conversation_is_made_once_found_changed_and_forgotten,
    what_is_acknowledged_is_there_after_a_restart_and_can_be_gone_on_with,
    what_every_turn_begins_with_is_kept_once,
    what_a_turn_leaves_waiting_waits_until_the_next_one_begins,
    words_find_the_conversations_in_which_they_were_said,
    words_are_found_whatever_their_case_their_accents_and_the_marks_around_them,
    tools_are_switched_on_and_off_for_one_conversation,
    many_callers_at_once_each_get_their_own_outcome,
    a_conversation_is_forgotten_with_its_turns,
    what_is_said_may_be_long_and_hold_any_character,
    lists_are_in_the_order_of_use,
}

struct Bench {
    home: Home,
    store: Store,
}

enum Home {
    Directory(tempfile::TempDir),
    Database(Database),
}

impl Bench {
    async fn sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().to_owned()).await.unwrap();
        Self { home: Home::Directory(dir), store }
    }

    fn postgres() -> Self {
        let database = Postgres::shared().database();
        let store = Store::shared(&database.url().into(), &[]).unwrap();
        Self { home: Home::Database(database), store }
    }

    fn dir(&self) -> &Path {
        match &self.home {
            Home::Directory(dir) => dir.path(),
            Home::Database(_) => panic!("it has none"),
        }
    }

    /// As after a crash.
    async fn reopened(self) -> Self {
        let Self { home, store } = self;
        drop(store);
        let store = match &home {
            Home::Directory(dir) => loop {
                match Store::open(dir.path().to_owned()).await {
                    // the threads of the former one are about to end
                    Err(StoreError::InUse { .. }) => tokio::task::yield_now().await,
                    other => break other.unwrap(),
                }
            },
            Home::Database(database) => Store::shared(&database.url().into(), &[]).unwrap(),
        };
        Self { home, store }
    }

    async fn conversation(&self, id: &str) {
        assert!(self.store.create(&conversation(id)).await.unwrap());
    }

    /// In a conversation of its own, with a turn of the same id.
    async fn say(&self, id: &str, text: &str) {
        self.conversation(id).await;
        let said = [(format!("msg-{id}"), user(text))];
        let begun = begun(Vec::new());
        let begin = Begin { turn: id, conversation: id, said: &said, begun: &begun, after: None };
        self.store.begin(begin).await.unwrap();
    }

    /// The ids of the conversations that words find.
    async fn found(&self, words: &str) -> String {
        let found = self.store.search("default/p", words, None, ALL).await.unwrap();
        let mut ids: Vec<String> = found.into_iter().map(|found| found.id).collect();
        ids.sort();
        ids.concat()
    }
}

fn conversation(id: &str) -> Conversation {
    Conversation {
        id: id.to_owned(),
        scope: "default/p".to_owned(),
        kind: Kind::Conversation,
        owner: String::new(),
        title: Some(format!("About {id}")),
        system: None,
        model: None,
        created: 1,
        updated: 1,
    }
}

fn user(text: &str) -> Message {
    Message::User(Prose { content: text.into(), ..Prose::default() })
}

fn assistant(text: &str) -> Message {
    Message::Assistant(AssistantMessage { content: text.into(), ..AssistantMessage::default() })
}

fn begun(messages: Vec<Message>) -> Entry {
    Entry::Begun(Box::new(Setup::new(
        &"t".repeat(32),
        "m",
        ModelRequest { messages, ..ModelRequest::default() },
        ToolSet::default(),
    )))
}

mod changes;
mod forgetting;
mod owners;
mod paging;
mod spent;

const ALL: Page = Page { offset: 0, limit: 100 };

async fn a_conversation_is_made_once_found_changed_and_forgotten(bench: Bench) {
    bench.conversation("a").await;
    assert!(!bench.store.create(&conversation("a")).await.unwrap(), "a second one of this id");
    let found = bench.store.conversation("a").await.unwrap().unwrap();
    assert_eq!(found, conversation("a"));
    let changed = Change { title: Some(None), model: Some(Some("m".to_owned())), ..Change::default() };
    bench.store.change("a", changed.clone()).await.unwrap();
    let found = bench.store.conversation("a").await.unwrap().unwrap();
    assert_eq!((found.title, found.model.as_deref()), (None, Some("m")));
    bench.store.delete("a").await.unwrap();
    assert_eq!(bench.store.conversation("a").await.unwrap(), None);
    let gone = StoreError::NotFound { what: "conversation", id: "a".to_owned() };
    assert_eq!(bench.store.delete("a").await, Err(gone.clone()));
    assert_eq!(bench.store.change("a", changed).await, Err(gone));
}

async fn what_is_acknowledged_is_there_after_a_restart_and_can_be_gone_on_with(bench: Bench) {
    bench.conversation("c").await;
    let said = [("msg-1".to_owned(), user("What is new?"))];
    let entry = begun(vec![user("What is new?")]);
    let begin = Begin { turn: "t", conversation: "c", said: &said, begun: &entry, after: None };
    let mut journal = bench.store.begin(begin).await.unwrap();
    journal.append(&Entry::Delta(ModelDelta::Text("Not ".to_owned())));
    journal.append(&Entry::Delta(ModelDelta::Text("much".to_owned())));
    journal.flush().await.unwrap();
    journal.append(&Entry::Delta(ModelDelta::Text(" lost".to_owned())));
    drop(journal);

    let bench = bench.reopened().await;
    let [turn] = &bench.store.unattended().await.unwrap()[..] else { panic!("one turn runs") };
    assert_eq!((turn.id.as_str(), turn.conversation.as_str(), turn.state), ("t", "c", TurnState::Running));
    assert!(bench.store.take_over(&turn.id).await.unwrap());
    let entries = bench.store.entries(turn, 0).await.unwrap();
    let count = entries.len();
    let mut entries = entries.into_iter();
    let Some(Entry::Begun(setup)) = entries.next() else { panic!("the first one begins the turn") };
    assert_eq!(setup.request.messages, [user("What is new?")]);
    let mut events = Vec::new();
    let mut course = Course::new(*setup, &mut events);
    for entry in entries {
        course.take(entry, &mut events).unwrap();
    }
    assert!(matches!(course.step(), Step::AskModel(_)));
    assert_eq!(events.len(), 3, "begun, and two pieces: {events:?}");

    let mut journal = bench.store.journal(turn, count);
    for entry in [Entry::Interrupted, Entry::Delta(ModelDelta::Text("Nothing.".to_owned())), Entry::Answered]
    {
        journal.append(&entry);
        course.take(entry, &mut events).unwrap();
    }
    journal.flush().await.unwrap();
    let said = [("msg-2".to_owned(), assistant("Nothing."))];
    bench.store.end(End::finished("t", "c", &said)).await.unwrap();
    assert_eq!(bench.store.running().await.unwrap(), []);
    assert_eq!(bench.store.turn("t").await.unwrap().unwrap().state, TurnState::Finished);
    let kept = bench.store.messages("c", 0).await.unwrap();
    let places: Vec<(i64, &str)> = kept.iter().map(|kept| (kept.seq, kept.id.as_str())).collect();
    assert_eq!(places, [(1, "msg-1"), (2, "msg-2")]);
    assert_eq!(kept[1].message, assistant("Nothing."));
    assert_eq!(bench.store.messages("c", 1).await.unwrap().len(), 1);
    let record = bench.store.turn("t").await.unwrap().unwrap();
    assert_eq!(bench.store.entries(&record, 0).await.unwrap().len(), count + 3);
    assert_eq!(bench.store.entries(&record, count).await.unwrap().len(), 3);
}

async fn what_every_turn_begins_with_is_kept_once(bench: Bench) {
    bench.conversation("c").await;
    let long = "x".repeat(10_000);
    let mut history = Vec::new();
    for turn in 0..20 {
        history.push(user(&format!("{turn} {long}")));
        let entry = begun(history.clone());
        let id = format!("t{turn}");
        bench
            .store
            .begin(Begin { turn: &id, conversation: "c", said: &[], begun: &entry, after: None })
            .await
            .unwrap();
    }
    let sql = "SELECT count(*), sum(length(body)) FROM part";
    let row = bench.store.query(sql, Vec::new()).await.unwrap().remove(0);
    let mut columns = Columns::of(row);
    assert_eq!(columns.int(), 21, "each message, and the empty tool list");
    assert!(columns.int() < 250_000);
    let turn = bench.store.turn("t19").await.unwrap().unwrap();
    let [Entry::Begun(setup)] = &bench.store.entries(&turn, 0).await.unwrap()[..] else { panic!() };
    assert_eq!(setup.request.messages, history);
}

#[tokio::test]
async fn a_second_daemon_does_not_get_the_directory() {
    let bench = Bench::sqlite().await;
    let second = Store::open(bench.dir().to_owned()).await;
    let Err(error) = second else { panic!("it has it") };
    assert_eq!(error, StoreError::InUse { path: bench.dir().to_owned() });
    assert!(error.to_string().ends_with("is in use by another daemon"));
}

async fn what_a_turn_leaves_waiting_waits_until_the_next_one_begins(bench: Bench) {
    bench.say("c", "hi").await;
    let waiting = Waiting { calls: Vec::new(), asks: Vec::new(), ..Waiting::default() };
    let answer = [("msg-2".to_owned(), assistant("hello"))];
    bench.store.end(End { waiting: Some(&waiting), ..End::finished("c", "c", &answer) }).await.unwrap();
    assert_eq!(bench.store.waiting("c").await.unwrap().map(|left| left.waiting), Some(waiting));
    let entry = begun(Vec::new());
    let begin = Begin { turn: "t", conversation: "c", said: &[], begun: &entry, after: None };
    bench.store.begin(begin).await.unwrap();
    assert_eq!(bench.store.waiting("c").await.unwrap(), None);
}

async fn words_find_the_conversations_in_which_they_were_said(bench: Bench) {
    for (id, text) in [("a", "The goat ate the \"hay\""), ("b", "Rain, and no hay"), ("c", "nothing")] {
        bench.say(id, text).await;
    }
    let ids = async |words: &str| bench.found(words).await;
    assert_eq!(ids("HAY").await, "ab");
    assert_eq!(ids("hay goat").await, "a");
    assert_eq!(ids("about c").await, "c", "a title");
    assert_eq!(ids("\" OR NOT * (").await, "", "words, and no language of their own");
    assert_eq!(ids("  ").await, "");
    bench.store.delete("a").await.unwrap();
    assert_eq!(ids("hay").await, "b");
    // no message is deleted under a turn that runs
    bench.store.end(End::finished("b", "b", &[])).await.unwrap();
    assert!(bench.store.delete_message("b", "msg-b").await.unwrap());
    assert_eq!(ids("hay").await, "");
}

async fn tools_are_switched_on_and_off_for_one_conversation(bench: Bench) {
    bench.conversation("a").await;
    bench.conversation("b").await;
    let tool = ToolRef { server: "fs".into(), name: "read".into() };
    bench.store.switch_on("a", &tool).await.unwrap();
    bench.store.switch_on("a", &tool).await.unwrap();
    assert_eq!(bench.store.tools("a").await.unwrap(), std::slice::from_ref(&tool));
    assert_eq!(bench.store.tools("b").await.unwrap(), []);
    assert!(bench.store.switch_off("a", &tool).await.unwrap());
    assert!(!bench.store.switch_off("a", &tool).await.unwrap());
}

async fn many_callers_at_once_each_get_their_own_outcome(bench: Bench) {
    bench.conversation("c").await;
    let entry = begun(Vec::new());
    let said: Vec<[(String, Message); 1]> =
        (0..200).map(|at| [(format!("msg-{}", at % 150), user("hi"))]).collect();
    let ids: Vec<String> = (0..200).map(|at| format!("t{at}")).collect();
    let begins = said.iter().zip(&ids).map(|(said, turn)| {
        bench.store.begin(Begin { turn, conversation: "c", said, begun: &entry, after: None })
    });
    let outcomes = match &bench.home {
        Home::Directory(dir) => in_few_commits(dir.path(), futures(begins)).await,
        Home::Database(_) => futures(begins).await,
    };
    for at in 0..50 {
        let won = [at, at + 150].into_iter().filter(|at| outcomes[*at].is_ok()).count();
        assert_eq!(won, 1, "of two with the same id");
    }
    assert!(outcomes[50..150].iter().all(Result::is_ok));
    if matches!(bench.home, Home::Directory(_)) {
        assert!(outcomes[150..].iter().all(Result::is_err), "ids that were there before");
    }
    assert_eq!(bench.store.messages("c", 0).await.unwrap().len(), 150);
    assert_eq!(bench.store.running().await.unwrap().len(), 150, "all of a turn or nothing");
}

/// What these callers are told, who share two commits at the most.
async fn in_few_commits<T>(dir: &Path, all: impl Future<Output = T>) -> T {
    // the writer waits for this lock, and all others for the writer
    let mut other = rusqlite::Connection::open(dir.join("lf.db")).unwrap();
    let lock = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let before = commits(dir);
    let mut lock = Some(lock);
    let unlock = std::future::poll_fn(|_| {
        drop(lock.take());
        std::task::Poll::Ready(())
    });
    let (outcomes, ()) = tokio::join!(biased; all, unlock);
    let commits = commits(dir) - before;
    // the one that the writer had taken before the others came, and theirs
    assert!((1..=2).contains(&commits), "{commits} commits");
    outcomes
}

/// Frames of the log that end a transaction: those that tell the size of the database (SQLite's file format, section 4.1).
fn commits(dir: &Path) -> usize {
    let log = std::fs::read(dir.join("lf.db-wal")).unwrap();
    let word = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let page = usize::try_from(word(8)).unwrap();
    let salt = &log[16..24];
    let frames = (32..log.len()).step_by(24 + page);
    frames.filter(|at| log[at + 8..at + 16] == *salt && word(at + 4) != 0).count()
}

/// All at the same time, in order.
async fn futures<T>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut all: Vec<_> = all.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        for (future, outcome) in all.iter_mut().filter(|(_, outcome)| outcome.is_none()) {
            if let std::task::Poll::Ready(ready) = future.as_mut().poll(context) {
                *outcome = Some(ready);
            }
        }
        match all.iter().all(|(_, outcome)| outcome.is_some()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    all.into_iter().filter_map(|(_, outcome)| outcome).collect()
}

async fn words_are_found_whatever_their_case_their_accents_and_the_marks_around_them(bench: Bench) {
    let texts = [
        ("a", "Crème brûlée, «flambée»; see https://example.org/a-list?q=1"),
        ("b", "the well-known list of 10,5 items (v1.2) snake_case"),
        ("c", "Привет, мир! 東京"),
        ("d", "known well"),
    ];
    for (id, text) in texts {
        bench.say(id, text).await;
    }
    for (words, expected) in [
        ("creme BRULEE", "a"),
        ("flambée", "a"),
        ("example.org", "a"),
        ("list", "ab"),
        ("well-known", "b"),
        ("known", "bd"),
        ("v1.2", "b"),
        ("case", "b"),
        ("привет", "c"),
        ("東京", "c"),
        ("wel", ""),
        ("- well", "bd"),
    ] {
        assert_eq!(bench.found(words).await, expected, "{words}");
    }
}

async fn a_conversation_is_forgotten_with_its_turns(bench: Bench) {
    bench.say("a", "hay").await;
    let turn = bench.store.turn("a").await.unwrap().unwrap();
    let mut journal = bench.store.journal(&turn, 1);
    bench.store.delete("a").await.unwrap();
    assert_eq!(bench.store.turn("a").await.unwrap(), None);
    assert_eq!(bench.store.messages("a", 0).await.unwrap(), []);
    assert_eq!(bench.found("hay").await, "");
    journal.append(&Entry::Answered);
    journal.flush().await.unwrap_err();
    assert_eq!(bench.store.entries(&turn, 0).await.unwrap().len(), 0);
}

async fn what_is_said_may_be_long_and_hold_any_character(bench: Bench) {
    let many: String = (0..400_000).map(|at| format!("w{at} ")).collect();
    bench.say("a", &format!("first\0second \u{10ffff} {many}")).await;
    let kept = bench.store.messages("a", 0).await.unwrap();
    let Message::User(said) = &kept[0].message else { panic!() };
    assert!(said.content.text().starts_with("first\0second \u{10ffff} w0 "));
    assert_eq!(bench.found("w100").await, "a");
    let odd = Change { title: Some(Some("a\0b".to_owned())), ..Change::default() };
    bench.store.change("a", odd).await.unwrap();
}

async fn lists_are_in_the_order_of_use(bench: Bench) {
    for (id, updated) in [("b", 2), ("B", 2), ("a", 3), ("_", 1)] {
        bench.store.create(&Conversation { updated, ..conversation(id) }).await.unwrap();
    }
    let page = async |offset, limit| {
        let page = Page { offset, limit };
        let found = bench.store.conversations("default/p", Kind::Conversation, None, page).await.unwrap();
        found.into_iter().map(|found| found.id).collect::<String>()
    };
    assert_eq!(page(0, 10).await, "aBb_", "equal ones by the bytes of their ids");
    assert_eq!(page(1, 2).await, "Bb");
    for (server, name) in [("b", "x"), ("B", "x"), ("a", "Z"), ("a", "a")] {
        bench.store.switch_on("a", &ToolRef { server: server.into(), name: name.into() }).await.unwrap();
    }
    let tools = bench.store.tools("a").await.unwrap();
    let tools: Vec<String> = tools.iter().map(|tool| format!("{}{}", tool.server, tool.name)).collect();
    assert_eq!(tools, ["Bx", "aZ", "aa", "bx"]);
}

#[tokio::test]
async fn a_damaged_file_and_a_later_one_are_left_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lf.db");
    std::fs::write(&file, "This is no database, whatever its name says. ".repeat(100)).unwrap();
    let before = std::fs::read(&file).unwrap();
    let Err(StoreError::Corrupt { path, .. }) = Store::open(dir.path().to_owned()).await else {
        panic!("it is no database")
    };
    assert_eq!((path, std::fs::read(&file).unwrap()), (file.clone(), before));
    std::fs::remove_file(&file).unwrap();
    let later = rusqlite::Connection::open(&file).unwrap();
    later.pragma_update(None, "user_version", 1000).unwrap();
    drop(later);
    let Err(error) = Store::open(dir.path().to_owned()).await else { panic!("it is from the future") };
    assert!(error.to_string().contains("schema version 1000"), "{error}");
}

#[tokio::test]
async fn trouble_with_the_file_costs_the_requests_of_that_time_only() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lf.db");
    std::fs::write(&file, "no database, ".repeat(1000)).unwrap();
    let store = Store::at(dir.path()).unwrap();
    let Err(StoreError::Corrupt { .. }) = store.conversation("a").await else { panic!("it is none") };
    std::fs::remove_file(&file).unwrap();
    let Err(StoreError::Corrupt { .. }) = store.create(&conversation("a")).await else {
        panic!("it is not tried again at once")
    };
    let until_it_can_be_used = async |store: &Store| {
        let can_be_used = async {
            while store.ready().await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), can_be_used).await.unwrap();
    };
    until_it_can_be_used(&store).await;
    assert!(store.create(&conversation("a")).await.unwrap());
    // moved away alone, it leaves what is not yet in it
    let (away, log) = (dir.path().join("away.db"), dir.path().join("lf.db-wal"));
    std::fs::rename(&file, &away).unwrap();
    let Err(StoreError::Corrupt { reason, .. }) = store.create(&conversation("b")).await else {
        panic!("a new file would be given the log of the former one")
    };
    assert!(reason.contains("lf.db-wal"), "{reason}");
    assert!(log.metadata().unwrap().len() > 0, "and that is left as it is");
    std::fs::rename(&away, &file).unwrap();
    until_it_can_be_used(&store).await;
    assert_eq!(store.conversation("a").await.unwrap(), Some(conversation("a")));
    assert_eq!(store.conversation("b").await.unwrap(), None);
}

#[tokio::test]
async fn nobody_else_may_read_what_was_said() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::sqlite().await;
    bench.conversation("c").await;
    for file in std::fs::read_dir(bench.dir()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.path().display());
    }
}
