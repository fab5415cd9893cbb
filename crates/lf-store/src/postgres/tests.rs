use std::time::Duration;

use lf_core::turn::{Ask, Decision, Entry, Verdict, Waiting};
use lf_core::{Arguments, Journal as _, Message, ToolCall, ToolRef};
use lf_test_postgres::{Database, PASSWORD, Postgres as Server};

use super::{Patience, Postgres};
use crate::{Begin, Conversation, End, Kind, Known, Store, StoreError};

mod outages;

/// For what takes milliseconds on a machine that does nothing else.
const PATIENCE: Duration = Duration::from_secs(60);

fn store(database: &Database) -> Store {
    patient(&database.url(), Patience::default())
}

/// Waits in one way like this, and otherwise for connections as long as a busy machine takes over them.
fn patient(url: &str, patience: Patience) -> Store {
    let patience = Patience { connection: PATIENCE, ..patience };
    Store::of(Postgres { patience, ..Postgres::new(&url.to_owned().into(), &[]).unwrap() })
}

/// Those that live do so for the rest of the test, whatever it takes.
fn live_long(database: &Database) {
    database.ask(
        "UPDATE daemon SET until = clock_timestamp() + interval '1 hour' WHERE until > clock_timestamp()",
    );
}

async fn begun(store: &Store, turn: &str, after: Option<i64>) -> Result<crate::TurnJournal, StoreError> {
    let conversation = Conversation {
        id: "c".to_owned(),
        scope: "default/p".to_owned(),
        kind: Kind::Conversation,
        owner: String::new(),
        title: None,
        system: None,
        model: None,
        created: 1,
        updated: 1,
    };
    store.create(&conversation).await?;
    let said = [(format!("msg-{turn}"), Message::User(lf_core::message::Prose::default()))];
    let known = after.map(|place| Known { place, waiting: None });
    let after = known.as_ref();
    let begin = Begin { turn, conversation: "c", said: &said, begun: &Entry::Answered, after };
    store.begin(begin).await
}

#[tokio::test]
async fn daemons_that_start_at_the_same_time_make_the_tables_once() {
    let database = Server::shared().database();
    let stores: Vec<Store> = (0..6).map(|_| store(&database)).collect();
    let checks = futures_util::future::join_all(stores.iter().map(Store::ready)).await;
    assert!(checks.iter().all(Result::is_ok), "{checks:?}");
    let tables = database.ask("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'");
    assert_eq!(tables, "15");
}

#[tokio::test]
async fn tables_of_a_later_program_are_left_alone() {
    let database = Server::shared().database();
    store(&database).ready().await.unwrap();
    database.ask("UPDATE lf_schema SET version = 1000");
    let error = store(&database).ready().await.unwrap_err();
    let known = i64::try_from(crate::schema::POSTGRES_STEPS.len()).unwrap();
    let expected = StoreError::TooNew { place: database.place(), found: 1000, known };
    assert_eq!(error, expected);
    assert!(error.hint().is_some_and(|hint| hint.contains("--storage")), "a database is not moved away");
}

#[tokio::test]
async fn both_databases_have_the_same_tables_and_columns() {
    let database = Server::shared().database();
    store(&database).ready().await.unwrap();
    let own = [
        "message.words",
        "turn.owner",
        "turn.stop",
        "response.owner",
        "response.stop",
        "daemon.id",
        "daemon.until",
        "ask.id",
        "ask.owner",
        "ask.body",
        "ask.decision",
        "ask.outcome",
        "ask.since",
        "lf_schema.version",
    ];
    let columns = database.ask(
        "SELECT table_name || '.' || column_name FROM information_schema.columns
         WHERE table_schema = 'public' ORDER BY 1",
    );
    let columns = columns.lines().filter(|column| !own.contains(column));
    let mut postgres: Vec<String> = columns.map(str::to_owned).collect();
    postgres.sort();
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    for step in crate::schema::STEPS {
        sqlite.execute_batch(step).unwrap();
    }
    let mut names = sqlite
        .prepare(
            "SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c
             WHERE m.type = 'table' AND m.name NOT LIKE 'said%' AND m.name NOT LIKE 'sqlite_%'",
        )
        .unwrap();
    let names = names.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let mut sqlite: Vec<String> = names.map(Result::unwrap).collect();
    sqlite.sort();
    assert_eq!(postgres, sqlite);
    assert_eq!(crate::schema::STEPS.len(), crate::schema::POSTGRES_STEPS.len());
}

#[tokio::test]
async fn a_turn_is_taken_over_when_its_daemon_is_dead_and_then_the_former_one_writes_nothing() {
    let database = Server::shared().database();
    let (one, other) = (store(&database), store(&database));
    one.renew().await.unwrap();
    other.renew().await.unwrap();
    database.ask("UPDATE daemon SET until = clock_timestamp() + interval '1 hour'");
    let mut journal = begun(&one, "t", None).await.unwrap();
    journal.append(&Entry::Answered);
    journal.flush().await.unwrap();
    assert_eq!(other.unattended().await.unwrap(), []);
    assert!(!other.take_over("t").await.unwrap(), "its daemon lives");

    database.ask("UPDATE daemon SET until = clock_timestamp() - interval '1 second'");
    other.renew().await.unwrap();
    live_long(&database);
    let [turn] = &other.unattended().await.unwrap()[..] else { panic!("nobody runs it") };
    assert!(other.take_over("t").await.unwrap());
    let mut taken = other.journal(turn, 2);
    // it comes back, and thinks that nothing has happened
    one.renew().await.unwrap();
    journal.append(&Entry::Answered);
    let refused = journal.flush().await.unwrap_err();
    assert!(refused.reason.contains("another daemon"), "{refused}");
    let ended = one.end(End::finished("t", "c", &[])).await.unwrap_err();
    assert_eq!(ended, StoreError::Overtaken { what: "turn", id: "t".to_owned() });
    assert!(!one.take_over("t").await.unwrap());
    taken.append(&Entry::Ran);
    taken.flush().await.unwrap();
    assert_eq!(other.entries(turn, 0).await.unwrap().len(), 3);
    other.end(End::finished("t", "c", &[])).await.unwrap();
    assert_eq!(one.running().await.unwrap(), []);
}

#[tokio::test]
async fn of_two_turns_that_begin_at_once_in_a_conversation_one_waits() {
    let database = Server::shared().database();
    let (one, other) = (store(&database), store(&database));
    begun(&one, "t1", Some(0)).await.unwrap();
    let overtaken = StoreError::Overtaken { what: "conversation", id: "c".to_owned() };
    let second = begun(&other, "t2", Some(1)).await;
    assert_eq!(second.err(), Some(overtaken.clone()), "another one runs");
    assert_eq!(other.running_in("c").await.unwrap(), ["t1"]);
    one.end(End::finished("t1", "c", &[])).await.unwrap();
    let second = begun(&other, "t2", Some(0)).await;
    assert_eq!(second.err(), Some(overtaken), "something was said");
    begun(&other, "t2", Some(1)).await.unwrap();
    assert_eq!(one.messages("c", 0).await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_decided_at_one_daemon_is_not_lost_by_another_one() {
    let database = Server::shared().database();
    let (one, other) = (store(&database), store(&database));
    begun(&one, "t1", None).await.unwrap();
    let ask = |id: &str| {
        let call = ToolCall {
            id: id.to_owned(),
            name: "wipe".to_owned(),
            arguments: Arguments::from_object(Default::default()),
            rest: Default::default(),
        };
        let tool = ToolRef { server: "disk".into(), name: "wipe".into() };
        Ask { id: id.to_owned(), call, tool, why: None, decision: None }
    };
    let asks = vec![ask("a"), ask("b")];
    let waiting =
        Waiting { calls: asks.iter().map(|ask| ask.call.clone()).collect(), asks, ..Waiting::default() };
    one.end(End { waiting: Some(&waiting), ..End::finished("t1", "c", &[]) }).await.unwrap();

    let seen = [one.waiting("c").await.unwrap().unwrap(), other.waiting("c").await.unwrap().unwrap()];
    let decide = |at: usize| {
        let mut waiting = seen[at].waiting.clone();
        let decision = Decision { verdict: Verdict::Approved, by: "Ada".to_owned(), reason: None, who: None };
        waiting.asks[at].decision = Some(decision);
        waiting
    };
    assert!(one.decided(&seen[0], &decide(0)).await.unwrap());
    assert!(!other.decided(&seen[1], &decide(1)).await.unwrap(), "the first decision would be lost");
    let begin = |known| Begin {
        turn: "t2",
        conversation: "c",
        said: &[],
        begun: &Entry::Answered,
        after: Some(known),
    };
    let known = Known { place: 1, waiting: Some(seen[1].clone()) };
    let overtaken = StoreError::Overtaken { what: "conversation", id: "c".to_owned() };
    assert_eq!(other.begin(begin(&known)).await.err(), Some(overtaken), "it does not know of the decision");
    let known = Known { place: 1, waiting: other.waiting("c").await.unwrap() };
    other.begin(begin(&known)).await.unwrap();
    assert!(!one.decided(&seen[0], &decide(0)).await.unwrap(), "nothing waits any more");
}

#[tokio::test]
async fn a_daemon_hears_which_of_its_turns_are_to_stop() {
    let database = Server::shared().database();
    let (one, other) = (store(&database), store(&database));
    begun(&one, "t", None).await.unwrap();
    assert_eq!(one.to_stop().await.unwrap(), [] as [&str; 0]);
    other.ask_to_stop("t").await.unwrap();
    assert_eq!(one.to_stop().await.unwrap(), ["t"]);
    assert_eq!(other.to_stop().await.unwrap(), [] as [&str; 0]);
}

#[tokio::test]
async fn the_password_is_in_no_error() {
    let database = Server::shared().database();
    let url = database.url();
    for (wrong, expected) in [
        (url.replace(PASSWORD, "pass-never-shown-2"), "password authentication failed"),
        (url.replace("/test", "/none"), "does not exist"),
        (format!("{url}?sslmode=require"), "does not support TLS"),
        (format!("{url}?option=none"), "of the form"),
        (url.replace("127.0.0.1:", "127.0.0.1:x"), "of the form"),
        (format!("mysql{url}"), "of the form"),
        (format!("host=localhost password={PASSWORD}"), "of the form"),
    ] {
        let error = match Store::shared(&wrong.as_str().into(), &[]) {
            Ok(store) => store.ready().await.unwrap_err(),
            Err(error) => error,
        };
        let StoreError::Unavailable { place, reason } = &error else { panic!("{error}") };
        assert!(reason.contains(expected), "{wrong}: {reason}");
        assert!(!place.contains("lf:"), "{place}");
        assert!(!format!("{error} {error:?}").contains("never-shown"), "{error}");
    }
}

#[tokio::test]
async fn more_callers_than_connections_wait_for_each_other() {
    let database = Server::shared().database();
    let store = patient(&database.url(), Patience { room: PATIENCE, ..Patience::default() });
    let all = futures_util::future::join_all((0..200).map(|_| store.conversation("none"))).await;
    assert!(all.iter().all(|found| *found == Ok(None)), "{all:?}");
    let open = database.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lf' AND datname = current_database()");
    assert!(open.parse::<usize>().unwrap() <= super::CONNECTIONS, "{open}");
}

#[tokio::test]
async fn a_database_is_spoken_to_over_tls_when_its_certificate_is_right() {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key).unwrap().der().to_vec();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();
    let server = Server::own();
    let database = server.database();
    server.certify(&certificate.pem(), &key.serialize_pem());

    let named = format!("{}?sslmode=require", database.url().replace("127.0.0.1", "localhost"));
    let store = Store::shared(&named.as_str().into(), std::slice::from_ref(&root)).unwrap();
    store.ready().await.unwrap();
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                     WHERE ssl AND application_name = 'lf'";
    assert_eq!(database.ask(encrypted), "1");
    let other_name = format!("{}?sslmode=require", database.url());
    for (url, roots) in [(&named, &[][..]), (&other_name, &[root][..])] {
        let error = Store::shared(&url.as_str().into(), roots).unwrap().ready().await.unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}

/// A connection of somebody else.
async fn connected(database: &Database) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&database.url(), tokio_postgres::NoTls).await.unwrap();
    tokio_util::task::TaskTracker::new().spawn(connection);
    client
}

/// Somebody else who holds the conversation's row, as a backup or a person with `psql` may.
async fn holding(database: &Database) -> tokio_postgres::Client {
    let client = connected(database).await;
    client.batch_execute("BEGIN; SELECT 1 FROM conversation WHERE id = 'c' FOR UPDATE").await.unwrap();
    client
}

/// That many connections that wait for somebody who holds a row. They share this thread, which is left to them meanwhile.
async fn waiting(database: &Database, count: usize) -> Vec<i32> {
    let watcher = connected(database).await;
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'lf' AND wait_event_type = 'Lock'
               AND datname = current_database()";
    let all = async {
        loop {
            let pids = watcher.query(sql, &[]).await.unwrap();
            if pids.len() == count {
                return pids.iter().map(|row| row.get(0)).collect();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("they wait")
}

#[tokio::test]
async fn a_database_that_is_slow_is_told_within_its_time() {
    let database = Server::shared().database();
    // the tables are made by one that is not
    store(&database).ready().await.unwrap();
    let impatient = format!("{}?options=-c%20lock_timeout%3D100ms", database.url());
    let store = patient(&impatient, Patience::default());
    begun(&store, "t1", None).await.unwrap();
    let holder = holding(&database).await;
    let error = begun(&store, "t2", None).await.err().unwrap();
    assert!(error.to_string().ends_with("canceling statement due to lock timeout"), "{error}");
    holder.batch_execute("ROLLBACK").await.unwrap();
    begun(&store, "t2", None).await.unwrap();
    assert_eq!(store.messages("c", 0).await.unwrap().len(), 2, "nothing is left of the first try");
}

#[tokio::test]
async fn a_connection_that_is_cut_in_the_middle_leaves_nothing_half_done() {
    let database = Server::shared().database();
    let store = store(&database);
    begun(&store, "t1", None).await.unwrap();
    let holder = holding(&database).await;
    let cut = async {
        let pids = waiting(&database, 1).await;
        database.ask(&format!("SELECT pg_terminate_backend({})", pids[0]));
    };
    let (begun_then, ()) = tokio::join!(begun(&store, "t2", None), cut);
    let error = begun_then.err().unwrap();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    holder.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(store.running().await.unwrap().len(), 1);
    begun(&store, "t2", None).await.unwrap();

    // between two uses nobody notices
    let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE application_name = 'lf' AND datname = current_database()";
    assert_ne!(database.ask(all), "0");
    store.renew().await.unwrap();
    assert_ne!(database.ask(all), "0");
    assert_eq!(store.running().await.unwrap().len(), 2);
}

#[tokio::test]
async fn connections_that_are_all_busy_are_told_and_a_daemon_says_that_it_lives_all_the_same() {
    let database = Server::shared().database();
    let patient =
        format!("{}?options=-c%20lock_timeout%3D14s%20-c%20statement_timeout%3D14s", database.url());
    // far less than the database lets them wait
    let room = Duration::from_secs(1);
    let store = self::patient(&patient, Patience { room, ..Patience::default() });
    begun(&store, "t", None).await.unwrap();
    let holder = holding(&database).await;
    let ids: Vec<String> = (0..super::CONNECTIONS).map(|at| format!("t{at}")).collect();
    let blocked = futures_util::future::join_all(ids.iter().map(|id| begun(&store, id, None)));
    let more = async {
        waiting(&database, super::CONNECTIONS).await;
        let (busy, renewed) = tokio::join!(store.conversation("c"), async {
            store.renew().await?;
            store.to_stop().await?;
            store.unattended().await
        });
        assert_eq!(renewed.unwrap().len(), 1);
        holder.batch_execute("ROLLBACK").await.unwrap();
        busy.unwrap_err()
    };
    let (blocked, busy) = tokio::join!(blocked, more);
    assert!(busy.to_string().contains("all 8 connections have been busy for 1s"), "{busy}");
    assert!(blocked.iter().all(Result::is_ok), "each waited less than the database lets it");
}
