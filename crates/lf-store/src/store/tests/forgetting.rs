//! What is deleted is nowhere in the files any more.

use super::*;

/// Words that stand in every place where something of a conversation may be kept.
const SECRET: &str = "quokkasecret";

on_both_stores! {
    a_deleted_message_leaves_the_journals_and_the_index_and_the_files,
    a_deleted_conversation_leaves_the_files,
    responses_branch_and_survive_and_keep_what_they_go_on_from,
    a_response_that_was_deleted_while_it_was_made_stays_so,
    old_and_large_responses_and_resumes_go_first,
}

/// The files, or tables of a Postgres, in which this text stands, in the case in which it is or that of the index of words.
fn found_in(bench: &Bench, text: &str) -> Vec<String> {
    if let Home::Database(database) = &bench.home {
        let tables = ["conversation", "message", "waiting", "entry", "part", "response", "resume"];
        let holds = |table: &&str| {
            let count = format!("SELECT count(*) FROM {table} WHERE CAST({table} AS TEXT) LIKE '%{text}%'");
            database.ask(&count) != "0"
        };
        return tables.iter().filter(|table| holds(table)).map(|table| (*table).to_owned()).collect();
    }
    let files = std::fs::read_dir(bench.dir()).unwrap().map(|file| file.unwrap().path());
    files
        .filter(|file| {
            let bytes = std::fs::read(file).unwrap();
            bytes.windows(text.len()).any(|at| at == text.as_bytes())
        })
        .map(|file| file.display().to_string())
        .collect()
}

/// A turn of a conversation: asked `said`, answered `answer`, its journal whole.
async fn turn(bench: &Bench, id: &str, before: Vec<Message>, said: &str, answer: &str) {
    let named = [(format!("{id}-said"), user(said))];
    let mut all = before;
    all.push(user(said));
    let entry = begun(all);
    let begin = Begin { turn: id, conversation: "c", said: &named, begun: &entry, after: None };
    let mut journal = bench.store.begin(begin).await.unwrap();
    journal.append(&Entry::Delta(ModelDelta::Text(answer.to_owned())));
    journal.append(&Entry::Answered);
    journal.flush().await.unwrap();
    let answered = [(format!("{id}-answer"), assistant(answer))];
    bench.store.end(End::finished(id, "c", &answered)).await.unwrap();
}

async fn a_deleted_message_leaves_the_journals_and_the_index_and_the_files(bench: Bench) {
    bench.conversation("c").await;
    turn(&bench, "one", Vec::new(), "nothing special", "so it is").await;
    let before = vec![user("nothing special"), assistant("so it is")];
    turn(&bench, "two", before.clone(), &format!("it is {SECRET}"), &format!("{SECRET} it is")).await;
    let mut longer = before;
    longer.extend([user(&format!("it is {SECRET}")), assistant(&format!("{SECRET} it is"))]);
    turn(&bench, "three", longer, "and now?", "nothing more").await;
    assert!(!found_in(&bench, SECRET).is_empty(), "it is somewhere, or this test shows nothing");

    assert!(bench.store.delete_message("c", "two-said").await.unwrap());
    assert!(bench.store.delete_message("c", "two-answer").await.unwrap());
    assert!(!bench.store.delete_message("c", "two-answer").await.unwrap(), "it is gone");
    assert_eq!(found_in(&bench, SECRET), [] as [String; 0]);
    assert_eq!(bench.store.search("default/p", SECRET, ALL).await.unwrap(), []);
    let left = bench.store.messages("c", 0).await.unwrap();
    let left: Vec<&str> = left.iter().map(|kept| kept.id.as_str()).collect();
    assert_eq!(left, ["one-said", "one-answer", "three-said", "three-answer"]);
    // the turn before it is as it was
    let record = bench.store.turn("one").await.unwrap().unwrap();
    assert_eq!(bench.store.entries(&record, 0).await.unwrap().len(), 3);
    let record = bench.store.turn("three").await.unwrap().unwrap();
    assert!(bench.store.entries(&record, 0).await.unwrap().is_empty(), "it was begun with what is deleted");
}

async fn a_deleted_conversation_leaves_the_files(bench: Bench) {
    bench.conversation("c").await;
    turn(&bench, "one", Vec::new(), SECRET, &format!("yes, {SECRET}")).await;
    bench.store.delete("c").await.unwrap();
    assert_eq!(found_in(&bench, SECRET), [] as [String; 0]);
}

/// A response of the chain `chain`, that was asked and has said one thing.
async fn response(bench: &Bench, id: &str, previous: Option<&str>, said: &str, answer: &str) -> Response {
    let chain = Conversation { kind: Kind::Response, title: None, ..conversation("chain") };
    let new = Response {
        id: id.to_owned(),
        scope: String::new(),
        conversation: "chain".to_owned(),
        previous: previous.map(str::to_owned),
        turn: format!("turn-{id}"),
        body: serde_json::json!({"status": "in_progress"}),
        input: serde_json::json!([said]),
        head: None,
        created: 1,
    };
    let alone = previous.is_none().then_some(&chain);
    bench.store.begin_response(&new, alone, &[(format!("{id}-said"), user(said))]).await.unwrap();
    let body = serde_json::json!({"status": "completed", "text": answer});
    let answered = [(format!("{id}-answer"), assistant(answer))];
    assert!(bench.store.end_response(&new, &body, &answered).await.unwrap());
    bench.store.response("", id).await.unwrap().unwrap()
}

async fn texts(bench: &Bench, response: &Response) -> Vec<String> {
    let said = bench.store.said_until(response).await.unwrap();
    said.iter()
        .map(|message| match message {
            Message::User(said) => said.content.text(),
            Message::Assistant(said) => said.content.text(),
            other => panic!("nobody said {other:?}"),
        })
        .collect()
}

async fn responses_branch_and_survive_and_keep_what_they_go_on_from(bench: Bench) {
    response(&bench, "a", None, "one", SECRET).await;
    response(&bench, "b", Some("a"), "two", "b").await;
    response(&bench, "c", Some("a"), "three", "c").await;
    let bench = bench.reopened().await;
    let found = async |id: &str| bench.store.response("", id).await.unwrap();
    let (b, c) = (found("b").await.unwrap(), found("c").await.unwrap());
    assert_eq!(b.body["text"], "b");
    assert_eq!(bench.store.response("ns/p", "b").await.unwrap(), None, "it is of no project");
    assert_eq!(texts(&bench, &b).await, ["one", SECRET, "two", "b"]);
    assert_eq!(texts(&bench, &c).await, ["one", SECRET, "three", "c"]);

    assert!(bench.store.delete_response("", "a").await.unwrap());
    assert!(!bench.store.delete_response("", "a").await.unwrap());
    assert_eq!(found("a").await, None);
    assert_eq!(texts(&bench, &c).await, ["one", SECRET, "three", "c"], "it was built on that");
    assert!(bench.store.delete_response("", "b").await.unwrap());
    assert!(!found_in(&bench, SECRET).is_empty());
    assert!(bench.store.delete_response("", "c").await.unwrap());
    assert_eq!(found_in(&bench, SECRET), [] as [String; 0], "with the last one all of it goes");
    assert_eq!(bench.store.conversation("chain").await.unwrap(), None);
}

async fn a_response_that_was_deleted_while_it_was_made_stays_so(bench: Bench) {
    let made = response(&bench, "a", None, "one", "a").await;
    response(&bench, "b", Some("a"), "two", "b").await;
    assert!(bench.store.delete_response("", "b").await.unwrap());
    let b =
        Response { id: "b".to_owned(), turn: "turn-b".to_owned(), previous: Some("a".to_owned()), ..made };
    let late = [("late".to_owned(), assistant(SECRET))];
    assert!(!bench.store.end_response(&b, &serde_json::json!({}), &late).await.unwrap());
    assert_eq!(bench.store.messages_of("turn-b").await.unwrap(), []);
}

async fn old_and_large_responses_and_resumes_go_first(bench: Bench) {
    for id in ["a", "b", "c"] {
        let previous = (id != "a").then_some("a");
        response(&bench, id, previous, "hm", &"x".repeat(10_000)).await;
    }
    let forget_old = async |before, bytes| {
        for old in bench.store.old_responses(before, bytes).await.unwrap() {
            assert!(bench.store.delete_response(&old.scope, &old.id).await.unwrap());
        }
    };
    forget_old(0, 30_000).await;
    // all are of the same time: the names decide
    let mut left = Vec::new();
    for id in ["a", "b", "c"] {
        left.extend(bench.store.response("", id).await.unwrap().map(|found| found.id));
    }
    assert_eq!(left, ["a"]);
    forget_old(2, i64::MAX).await;
    assert_eq!(bench.store.response("", "a").await.unwrap(), None);

    let resume = |ids: &[&str]| lf_core::turn::Resume {
        ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        messages: vec![assistant(SECRET)].into(),
    };
    bench.store.remember(&resume(&["x", "y"])).await.unwrap();
    let bench = bench.reopened().await;
    assert_eq!(bench.store.remembered("y").await.unwrap(), Some(resume(&["x", "y"])));
    bench.store.trim_remembered(0, i64::MAX).await.unwrap();
    assert!(bench.store.remembered("x").await.unwrap().is_some());
    bench.store.trim_remembered(0, 1).await.unwrap();
    assert_eq!(bench.store.remembered("x").await.unwrap(), None);
    assert_eq!(found_in(&bench, SECRET), [] as [String; 0]);
}

#[tokio::test]
async fn what_a_deleted_turn_ended_with_is_not_of_the_conversation_that_has_its_name_now() {
    let bench = Bench::sqlite().await;
    bench.conversation("c").await;
    let entry = begun(Vec::new());
    let said = [("msg-1".to_owned(), user("hi"))];
    let begin = || Begin { turn: "t", conversation: "c", said: &said, begun: &entry, after: None };
    bench.store.begin(begin()).await.unwrap();
    bench.store.delete("c").await.unwrap();
    let gone = StoreError::NotFound { what: "conversation", id: "c".to_owned() };
    assert_eq!(bench.store.begin(begin()).await.err(), Some(gone));

    bench.conversation("c").await;
    let waiting = Waiting { calls: Vec::new(), asks: Vec::new(), ..Waiting::default() };
    let answer = [("msg-2".to_owned(), assistant("hello"))];
    let end = || End { waiting: Some(&waiting), ..End::finished("t", "c", &answer) };
    let gone = StoreError::NotFound { what: "turn", id: "t".to_owned() };
    assert_eq!(bench.store.end(end()).await, Err(gone));
    assert_eq!(bench.store.messages("c", 0).await.unwrap(), []);
    assert_eq!(bench.store.waiting("c").await.unwrap(), None);
}
