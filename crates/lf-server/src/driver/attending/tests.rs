use serde_json::{Value, json};

use super::*;

struct Slow(Duration);

impl Person for Slow {
    fn ask(&self, _: Question) -> BoxFuture<'_, Reply> {
        Box::pin(async {
            sleep(self.0).await;
            Reply::Result(json!({"action": "decline"}))
        })
    }
}

fn question() -> Question {
    Question { server: "s".into(), tool: None, method: Question::ELICITATION.to_owned(), params: Value::Null }
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_turn_stands_still_while_a_person_is_asked() {
    let (reports, _waiting) = mpsc::channel(4);
    let clock = Clock::new(Duration::from_secs(5));
    let person: Arc<dyn Person> = Arc::new(Slow(Duration::from_secs(60)));
    let attending = Attending::new(reports, Some(person), clock.clone());
    let (one, other) = (attending.call("a", false, None), attending.call("b", false, None));
    let started = Instant::now();
    let asked = async {
        sleep(Duration::from_secs(1)).await;
        // two questions at once stop it once
        tokio::join!(one.ask(question()), other.ask(question()));
    };
    tokio::join!(asked, clock.over());
    let elapsed = started.elapsed();
    assert!(elapsed >= Duration::from_secs(65) && elapsed < Duration::from_secs(66), "{elapsed:?}");
    assert_eq!(one.party(), other.party());
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_dropped_lets_the_time_run_again() {
    let (reports, mut waiting) = mpsc::channel(4);
    let clock = Clock::new(Duration::from_secs(5));
    let person: Arc<dyn Person> = Arc::new(Slow(Duration::from_secs(3600)));
    let attending = Attending::new(reports, Some(person), clock.clone());
    let call = attending.call("a", false, None);
    let asked = tokio::time::timeout(Duration::from_secs(10), call.ask(question())).await;
    assert!(asked.is_err());
    let started = Instant::now();
    clock.over().await;
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    call.note("told".to_owned());
    assert_eq!(waiting.recv().await, Some(ChatEvent::Notice("told".to_owned())));
}

#[tokio::test]
async fn without_a_person_nobody_is_asked() {
    let (reports, _waiting) = mpsc::channel(4);
    let attending = Attending::new(reports, None, Clock::new(Duration::from_secs(5)));
    assert_eq!(attending.call("a", false, None).ask(question()).await, Reply::Nobody);
}

#[tokio::test]
async fn what_is_said_on_somebodys_behalf_is_said_to_no_other_server() {
    let (reports, mut told) = mpsc::channel(4);
    let attending = Attending::new(reports, None, Clock::new(Duration::from_secs(5)));
    let call = attending.call("a", true, Some("a token"));
    let elsewhere = Elsewhere(&call);
    assert_eq!((call.on_behalf(), elsewhere.on_behalf()), (Some("a token"), None));
    assert_eq!((elsewhere.tries_again(), elsewhere.party()), (true, call.party()));
    elsewhere.note("so".to_owned());
    elsewhere.progress(ToolProgress { progress: 1.0, total: None, message: None });
    assert_eq!(told.recv().await, Some(ChatEvent::Notice("so".to_owned())));
    assert!(matches!(told.recv().await, Some(ChatEvent::CallProgress { .. })));
    assert_eq!(elsewhere.ask(question()).await, Reply::Nobody);
}
