//! The file is edited all the time, wrongly as well, while clients ask.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lf_tests::client::get;
use lf_tests::project::{Daemon, TestProject};
use lf_tests::runtime::block_on;
use lf_tests::wait::PATIENCE;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::status;

/// So many edits, where `LF_RELOAD_EDITS` names no other number: 10,000 take a quarter of an hour.
const EDITS: usize = 300;
/// Requests in a second.
const RATE: u32 = 500;
const CLIENTS: u32 = 50;
/// Edits right after one another, the last of which has to count.
const BURST: usize = 10;
/// For an edit to be active.
const LIMIT: Duration = Duration::from_secs(1);
/// On a machine that has other things to do: so many times what the slowest request took besides.
const BUSY: u32 = 5;

fn text(edit: usize) -> String {
    super::models(&["keep", &format!("one-{edit}"), &format!("two-{edit}")])
}

/// The edit that is active; both of its models must be there, and no other's.
fn active(listed: &Value) -> usize {
    let ids: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert!(ids.len() == 3 && ids[0] == "keep", "not three models: {ids:?}");
    let number = |id: &str, prefix: &str| id.strip_prefix(prefix).and_then(|rest| rest.parse::<usize>().ok());
    let edit = number(ids[1], "one-").expect("a number");
    assert_eq!(number(ids[2], "two-"), Some(edit), "half of one generation and half of another: {ids:?}");
    edit
}

/// Asks until `over`; gives how often, every answer being right, and how long the slowest took.
async fn ask(
    url: &(String, String),
    client: &reqwest::Client,
    over: &AtomicBool,
    at: u32,
) -> (usize, Duration) {
    let mut pace = interval(Duration::from_secs(1) * CLIENTS / RATE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let body = json!({"model": "keep", "messages": [{"role": "user", "content": "hello"}]}).to_string();
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while !over.load(Ordering::Relaxed) {
        pace.tick().await;
        let is_chat = (at as usize + count).is_multiple_of(2);
        let request = match is_chat {
            true => client.post(&url.0).header("content-type", "application/json").body(body.clone()),
            false => client.get(&url.1),
        };
        let start = Instant::now();
        let response = request.send().await.expect("an answer");
        let status = response.status();
        let answer = response.text().await.expect("a whole answer");
        slowest = slowest.max(start.elapsed());
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        match is_chat {
            true => assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}"),
            false => drop(active(&answer)),
        }
        count += 1;
    }
    (count, slowest)
}

/// Writes edits in bursts, and gives how long the last right one of each took to be active.
fn edit(project: &TestProject, daemon: &Daemon, edits: usize) -> Vec<Duration> {
    let path = project.path().join("llamafarm.yaml");
    let mut took = Vec::new();
    let mut last = 0;
    for number in 1..=edits {
        let ends_burst = number % BURST == 0 || number == edits;
        let is_wrong = number % 3 == 0;
        let whole = text(number);
        let text = match (is_wrong, number % 2) {
            (false, _) => whole,
            (true, 0) => whole.replace("provider", "privoder"),
            (true, _) => whole[..whole.len() * 2 / 3].to_owned(),
        };
        match number % 4 {
            0 => std::fs::write(&path, &text).unwrap(),
            1 | 2 => {
                std::fs::write(path.with_extension("new"), &text).unwrap();
                std::fs::rename(path.with_extension("new"), &path).unwrap();
            }
            _ => {
                std::fs::rename(&path, path.with_extension("old")).unwrap();
                std::fs::write(&path, &text).unwrap();
            }
        }
        if !is_wrong {
            last = number;
        }
        if !ends_burst {
            // a few milliseconds that are never the same, so that looks fall everywhere
            std::thread::park_timeout(Duration::from_millis((number * 7 % 23) as u64));
            continue;
        }
        if !is_wrong {
            took.push(until(daemon, || active(&get(&daemon.url("/v1/models")).ok()) == number));
            continue;
        }
        // the mistake is seen, and nothing of it is active; what was right before it may have been there too shortly
        until(daemon, || status(daemon)["refused"].is_object());
        let now = active(&get(&daemon.url("/v1/models")).ok());
        assert!(now <= last && now + BURST > last && !now.is_multiple_of(3), "{now} is active after {last}");
    }
    took
}

fn until(daemon: &Daemon, mut is_so: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {}", status(daemon));
        std::thread::park_timeout(Duration::from_millis(10));
    }
    start.elapsed()
}

#[test]
fn no_request_fails_while_the_file_is_edited_and_the_last_right_edit_is_always_active() {
    let edits = std::env::var("LF_RELOAD_EDITS").ok().and_then(|count| count.parse().ok()).unwrap_or(EDITS);
    let project = TestProject::new(&text(0));
    let daemon = project.serve_with(&["--log", "warn"]);
    let over = AtomicBool::new(false);
    let asked = Mutex::new((0, Duration::ZERO));
    let urls = (daemon.url("/v1/chat/completions"), daemon.url("/v1/models"));
    let start = Instant::now();
    let mut took = std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE);
            let client = block_on(async { client.build().expect("a client") });
            let asking = join_all((0..CLIENTS).map(|at| ask(&urls, &client, &over, at)));
            let told = block_on(asking).into_iter();
            *asked.lock().unwrap() =
                told.fold((0, Duration::ZERO), |all, one| (all.0 + one.0, all.1.max(one.1)));
        });
        let _over = Over(&over);
        edit(&project, &daemon, edits)
    });
    took.sort();
    let ((requests, slowest), seconds) = (asked.into_inner().unwrap(), start.elapsed().as_secs_f64());
    let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
    println!(
        "{edits} edits, {requests} requests in {seconds:.0} s, none failed, {slowest:?} at most; {} bursts ended right: {median:?} in the middle, {longest:?} at most",
        took.len()
    );
    let limit = LIMIT + slowest * BUSY;
    let late = took.iter().filter(|took| **took > limit).count();
    assert!(late * 20 <= took.len(), "{late} of {} took more than {limit:?}: {took:?}", took.len());
    assert_eq!(daemon.stop().status, Some(0));
}

/// Ends the asking, also of a test that fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
