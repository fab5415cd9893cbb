//! A database that goes away and comes back, and one without room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lf_core::turn::Spent;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;

use super::*;
use crate::TurnState;

#[tokio::test]
async fn a_database_that_is_gone_is_told_and_used_again_when_it_is_back() {
    let server = Server::own();
    let database = server.database();
    let store = patient(&database.url(), Patience { absence: PATIENCE, ..Patience::default() });
    let mut journal = begun(&store, "t", None).await.unwrap();
    server.stop();
    let StoreError::Unavailable { place, reason } = store.ready().await.unwrap_err() else { panic!() };
    assert_eq!(place, database.place());
    assert!(reason.contains("refused"), "{reason}");
    assert!(store.renew().await.is_err(), "only a turn under way is worth the wait");

    journal.append(&Entry::Answered);
    let back = tokio::task::spawn_blocking(|| server.start_again());
    journal.flush().await.unwrap();
    back.await.unwrap();
    let turn = store.turn("t").await.unwrap().unwrap();
    assert_eq!(format!("{:?}", store.entries(&turn, 0).await.unwrap()), "[Answered, Answered]");

    server.stop();
    let back = tokio::task::spawn_blocking(|| server.start_again());
    store.end(End::finished("t", "c", &[])).await.unwrap();
    back.await.unwrap();
    assert_eq!(store.turn("t").await.unwrap().unwrap().state, TurnState::Finished);
}

#[tokio::test]
async fn a_database_that_stays_away_is_not_waited_for_without_end() {
    let server = Server::own();
    let database = server.database();
    let store = store(&database);
    let mut journal = begun(&store, "t", None).await.unwrap();
    server.stop();
    journal.append(&Entry::Answered);
    let asked = std::time::Instant::now();
    let refused = journal.flush().await.unwrap_err();
    assert_eq!(refused.place, database.place());
    assert!(asked.elapsed() >= crate::LEASE, "{:?}", asked.elapsed());
}

/// Lies between a daemon and its database, and can lose the answer to a `COMMIT`.
struct Between {
    port: u16,
    loses: Arc<AtomicBool>,
    lost: Arc<AtomicUsize>,
    tasks: TaskTracker,
}

impl Between {
    async fn start(database: &Database) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = database.place().trim_start_matches("postgres://").to_owned();
        let address = address[..address.find('/').unwrap()].to_owned();
        let between = Self { port, loses: Arc::default(), lost: Arc::default(), tasks: TaskTracker::new() };
        let (loses, lost, tasks) = (between.loses.clone(), between.lost.clone(), between.tasks.clone());
        between.tasks.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&address).await.unwrap();
                tasks.spawn(carry(client, server, loses.clone(), lost.clone()));
            }
        });
        between
    }

    fn store(&self, database: &Database) -> Store {
        let url = database.url();
        let port = &url[url.rfind(':').unwrap() + 1..url.rfind('/').unwrap()];
        Store::shared(&url.replace(port, &self.port.to_string()).as_str().into(), &[]).unwrap()
    }

    fn lose_the_next(&self) {
        self.loses.store(true, Ordering::SeqCst);
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, loses: Arc<AtomicBool>, lost: Arc<AtomicUsize>) {
    let (mut asked, mut told) = (vec![0; 65536], vec![0; 65536]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(read @ 1..) = read else { return };
                server.write_all(&asked[..read]).await.unwrap();
                if asked[..read].windows(6).any(|at| at == b"COMMIT") && loses.swap(false, Ordering::SeqCst) {
                    // it is done once the database says so, and nobody hears of it
                    assert_ne!(server.read(&mut told).await.unwrap(), 0);
                    lost.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
            read = server.read(&mut told) => {
                let Ok(read @ 1..) = read else { return };
                client.write_all(&told[..read]).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_not_done_twice() {
    let database = Server::shared().database();
    let between = Between::start(&database).await;
    let store = between.store(&database);
    let mut journal = begun(&store, "t", None).await.unwrap();
    for times in 1..=3 {
        journal.append(&Entry::Ran);
        between.lose_the_next();
        journal.flush().await.unwrap();
        assert_eq!(between.lost.load(Ordering::SeqCst), times);
    }
    let turn = store.turn("t").await.unwrap().unwrap();
    assert_eq!(format!("{:?}", store.entries(&turn, 0).await.unwrap()), "[Answered, Ran, Ran, Ran]");

    let said = [("msg-end".to_owned(), Message::User(lf_core::message::Prose::default()))];
    between.lose_the_next();
    store.end(End::finished("t", "c", &said)).await.unwrap();
    assert_eq!(between.lost.load(Ordering::SeqCst), 4);
    assert_eq!(store.turn("t").await.unwrap().unwrap().state, TurnState::Finished);
    assert_eq!(store.messages("c", 0).await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_spent_is_counted_once_where_the_answer_to_its_commit_is_lost() {
    let database = Server::shared().database();
    let between = Between::start(&database).await;
    let store = between.store(&database);
    let spent = |tokens| Spent { tokens, cost: 0.5 };
    for times in 1..=2 {
        let (id, before) = (times.to_string(), (times - 1).to_string());
        let used = [("project:a", 20_000, spent(100)), ("key:b", 20_000, spent(1))];
        between.lose_the_next();
        let StoreError::Unavailable { .. } = store.spend((&id, Some(&before)), &used).await.unwrap_err()
        else {
            panic!("whether it is done is not known")
        };
        store.spend((&id, Some(&before)), &used).await.unwrap();
    }
    assert_eq!(store.spent("project:a", 20_000).await.unwrap(), Spent { tokens: 200, cost: 1.0 });
    assert_eq!(
        database.ask("SELECT count(*) FROM spent WHERE account LIKE 'flush:%'"),
        "1",
        "and no trace stays"
    );
}

#[tokio::test]
async fn a_database_without_room_is_told_as_full_and_used_again_when_there_is_some() {
    let database = Server::shared().database();
    let store = store(&database);
    let mut journal = begun(&store, "t", None).await.unwrap();
    // as the database says it when a table cannot grow
    database.ask(
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE disk_full; END';
         CREATE TRIGGER no_room BEFORE INSERT ON entry FOR EACH ROW EXECUTE FUNCTION no_room()",
    );
    let expected = StoreError::Full { place: database.place() };
    assert_eq!(begun(&store, "t2", None).await.err(), Some(expected.clone()));
    journal.append(&Entry::Answered);
    let refused = journal.flush().await.unwrap_err();
    assert_eq!(refused.reason, expected.to_string());
    database.ask("DROP TRIGGER no_room ON entry");
    begun(&store, "t2", None).await.unwrap();
    assert_eq!(store.messages("c", 0).await.unwrap().len(), 2, "nothing is left of the first try");
}
