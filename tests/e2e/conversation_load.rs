//! Many clients, many conversations, and much that was said before.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use lf_tests::client::{get, post};
use lf_tests::conversation::{at, create, said};
use lf_tests::postgres::Postgres;
use lf_tests::project::{Daemon, TestProject};
use lf_tests::runtime::block_on;
use lf_tests::scripted_model::{Reply, ScriptedModel};
use lf_tests::wait::Gate;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// For a list of conversations, and for one with what was said in it.
const LIMIT: Duration = Duration::from_millis(10);
const CLIENTS: usize = 100;
/// Turns that are being begun at a time.
const BEGIN_AT_ONCE: usize = 50;
const CONVERSATIONS: usize = 1000;
/// Of a daemon that has little to remember.
const FEW: usize = 100;
/// Of them at the same time, where it does not matter.
const AT_ONCE: usize = 20;
/// Messages of a conversation.
const MESSAGES: u32 = 100;
/// Of each kind, in a series. Other tests run at the same time: one series in which they did not disturb is enough.
const REQUESTS: usize = 200;
const SERIES: usize = 8;
/// So many times what it takes with little, it may take with much.
const MOST: u32 = 2;

fn last_question(request: &Value) -> &str {
    let messages = request["messages"].as_array().unwrap();
    messages.last().unwrap()["content"].as_str().unwrap()
}

async fn ask(request: reqwest::RequestBuilder) -> Value {
    let (client, request) = request.build_split();
    let mut request = request.expect("a request");
    let key = lf_tests::keys::headers(request.url().as_str());
    request.headers_mut().extend(key);
    let response = client.execute(request).await.expect("an answer");
    let (status, text) = (response.status(), response.text().await.expect("a whole answer"));
    assert!(status.is_success(), "{status}: {text}");
    serde_json::from_str(&text).unwrap()
}

async fn say(client: &reqwest::Client, url: &str, content: &str) -> Value {
    let request = client.post(url).header("content-type", "application/json");
    ask(request.body(json!({"content": content}).to_string())).await
}

/// Does this for every conversation, a few at the same time, and gives what came of each in their order.
fn for_all<T>(each: impl AsyncFn(usize) -> T) -> Vec<T> {
    block_on(stream::iter(0..CONVERSATIONS).map(|at| each(at)).buffered(AT_ONCE).collect())
}

fn client() -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(600));
    block_on(async { builder.build().expect("a client") })
}

#[test]
fn a_hundred_clients_of_one_conversation_are_put_in_order_and_none_is_lost() {
    let model = ScriptedModel::start_with(|_, request| {
        Some(Reply::text(&format!("answer to {}", last_question(request))))
    });
    let project = TestProject::with_model(&model.base_url(), &[]);
    let daemon = project.serve();
    let id = create(&daemon, &json!({}));
    let (url, client) = (at(&daemon, &id, "/chat"), client());
    block_on(join_all((0..CLIENTS).map(|each| {
        let (url, client) = (&url, &client);
        async move {
            let question = format!("question {each}");
            let answer = say(client, url, &question).await;
            assert_eq!(answer["user_message"]["content"], question);
            assert_eq!(answer["assistant_message"]["content"], format!("answer to {question}"));
        }
    })));
    let said = said(&daemon, &id);
    assert_eq!(said.len(), 2 * CLIENTS);
    let mut questions: Vec<&str> = said
        .chunks(2)
        .map(|pair| {
            let question = pair[0].strip_prefix("user: ").unwrap();
            assert_eq!(pair[1], format!("assistant: answer to {question}"));
            question
        })
        .collect();
    questions.sort_unstable();
    questions.dedup();
    assert_eq!(questions.len(), CLIENTS, "each once");
    model.finish();
}

#[test]
fn a_thousand_conversations_go_on_at_the_same_time() {
    a_thousand_go_on(|project| project);
}

#[test]
fn a_thousand_conversations_go_on_at_the_same_time_in_postgres() {
    let database = Postgres::shared().database();
    a_thousand_go_on(|project| project.variable("LF_STORAGE", &database.url()));
}

fn a_thousand_go_on(with_store: impl FnOnce(TestProject) -> TestProject) {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most.min(8192), most).unwrap();
    let gate = Gate::new();
    let held = gate.clone();
    let model = ScriptedModel::start_with(move |_, request| {
        Some(Reply::text(&format!("answer to {}", last_question(request))).hold(&held))
    });
    let project = with_store(TestProject::with_model(&model.base_url(), &[]));
    let daemon = project.serve_with_files(8192);
    let client = client();
    let ids = for_all(async |_| {
        let new = client.post(daemon.url("/conversations")).header("content-type", "application/json");
        ask(new.body("{}")).await["conversation"]["id"].as_str().unwrap().to_owned()
    });
    let begun = Semaphore::new(BEGIN_AT_ONCE);
    let answers = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            block_on(join_all(ids.iter().enumerate().map(|(each, id)| {
                let (url, client, begun) = (at(&daemon, id, "/chat"), &client, &begun);
                async move {
                    // not all in one moment: that all are open at once is what is tried
                    begun.acquire().await.expect("it is never closed").forget();
                    say(client, &url, &format!("question {each}")).await
                }
            })))
        });
        // none is answered before all have asked
        for number in 1..=CONVERSATIONS {
            model.wait_for_requests(number);
            begun.add_permits(1);
        }
        gate.open();
        asking.join().unwrap()
    });
    let kept = for_all(async |each| ask(client.get(at(&daemon, &ids[each], "/messages"))).await);
    for (each, (kept, answer)) in kept.iter().zip(&answers).enumerate() {
        let (question, expected) = (format!("question {each}"), format!("answer to question {each}"));
        assert_eq!(answer["assistant_message"]["content"], expected);
        assert_eq!(kept["count"], 2, "{kept}");
        assert_eq!(kept["messages"][0]["content"], question);
        assert_eq!(kept["messages"][1]["content"], expected);
    }
    assert_eq!(get(&daemon.url("/conversations?limit=500&offset=500")).ok()["count"], 500);
    assert_eq!(model.received().len(), CONVERSATIONS, "none is asked again");
    model.finish();
}

/// As a daemon of some years has it.
fn fill(file: &mut Connection, conversations: usize) {
    let transaction = file.transaction().unwrap();
    for conversation in 0..conversations {
        let id = format!("conv-{conversation:04}");
        let times = i64::try_from(conversation).unwrap();
        transaction
            .execute(
                "INSERT INTO conversation (id, scope, kind, title, created, updated)
                 VALUES (?1, 'default/demo', 'conversation', ?2, ?3, ?3)",
                (&id, format!("About {conversation}"), times),
            )
            .unwrap();
        let mut insert = transaction
            .prepare_cached(
                "INSERT INTO message (conversation, seq, id, created, turn, body, text)
                 VALUES (?1, ?2, ?3, ?4, NULL, ?5, ?6)",
            )
            .unwrap();
        for seq in 1..=MESSAGES {
            let text =
                format!("What number {seq} of conversation {conversation} says about word{conversation}");
            let role = if seq % 2 == 1 { "user" } else { "assistant" };
            let body = json!({"role": role, "content": text});
            let message = format!("msg-{conversation}-{seq}");
            insert.execute((&id, seq, message, times, body.to_string(), text)).unwrap();
        }
    }
    transaction.commit().unwrap();
}

/// What a request takes its client.
#[derive(Debug)]
struct Times {
    median: Duration,
    /// The 99th percentile.
    slow: Duration,
}

/// The same requests to each of two daemons, in turns.
fn times(client: &reqwest::Client, urls: impl Fn(usize) -> [String; 2], count: u32) -> [Times; 2] {
    let mut times = [const { Vec::new() }; 2];
    for request in 0..REQUESTS {
        for (url, times) in urls(request).iter().zip(&mut times) {
            let started = Instant::now();
            let text = block_on(async {
                let request = client.get(url).headers(lf_tests::keys::headers(url));
                let response = request.send().await.expect("an answer");
                response.text().await.expect("a whole answer")
            });
            times.push(started.elapsed());
            let answer: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(answer["count"], count, "{answer}");
        }
    }
    times.map(|mut times| {
        times.sort();
        Times { median: times[REQUESTS / 2], slow: times[(REQUESTS - 1) * 99 / 100] }
    })
}

/// A daemon with so many conversations.
fn serve_with(project: &TestProject, conversations: usize) -> Daemon {
    let daemon = project.serve();
    let first = create(&daemon, &json!({}));
    post(&at(&daemon, &first, "/chat"), &json!({"content": "hi"})).ok();
    daemon.stop().ok();
    let mut file = Connection::open(project.home().join("data/lf.db")).unwrap();
    // what is filled in is of the form that the daemon wrote
    let body: String =
        file.query_row("SELECT body FROM message WHERE seq = 1", [], |row| row.get(0)).unwrap();
    assert_eq!(body, json!({"role": "user", "content": "hi"}).to_string());
    fill(&mut file, conversations);
    project.serve()
}

#[test]
fn listing_and_opening_are_quick_with_a_hundred_thousand_messages() {
    let model = ScriptedModel::start_with(|_, _| Some(Reply::text("hello")));
    let (small, large) =
        (TestProject::with_model(&model.base_url(), &[]), TestProject::with_model(&model.base_url(), &[]));
    let (little, much) = (serve_with(&small, FEW), serve_with(&large, CONVERSATIONS));
    let client = client();
    let any = |request: usize| request * 7919 % FEW;
    let shown = u32::try_from(FEW / 2).unwrap();
    type Ask<'a> = (&'a str, u32, &'a dyn Fn(&Daemon, usize) -> String);
    let asks: [Ask<'_>; 4] = [
        ("listing", shown, &|daemon, _| daemon.url(&format!("/conversations?limit={shown}"))),
        ("listing later ones", 1, &|daemon, request| {
            daemon.url(&format!("/conversations?limit=1&offset={}", any(request)))
        }),
        ("opening", MESSAGES, &|daemon, request| {
            at(daemon, &format!("conv-{:04}", any(request)), "/messages")
        }),
        ("searching", 1, &|daemon, request| {
            daemon.url(&format!("/conversations?search=word{}", any(request)))
        }),
    ];
    for (what, count, url) in asks {
        let mut told = Vec::new();
        let quick = (0..SERIES).any(|_| {
            let urls = |request: usize| [url(&little, request), url(&much, request)];
            let [with_little, with_much] = times(&client, urls, count);
            // a machine that is busy otherwise is late with everything
            let limit = LIMIT.max(with_little.slow * MOST);
            let quick = with_much.slow < limit && with_much.median < with_little.median * MOST;
            told.push((with_little, with_much));
            quick
        });
        assert!(quick, "{what} takes, with little and with much: {told:?}");
    }
    model.finish();
}
